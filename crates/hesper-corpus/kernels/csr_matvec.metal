// Sparse matrix (CSR) times a vector; rows differ wildly in length, eight lanes work on each.
constexpr uint LANES = 8;
const uint row = thread_position_in_grid.x / LANES;
const uint lane = thread_position_in_grid.x % LANES;
if (row >= uint(row_ptr_shape[0] - 1)) return;
float acc = 0;
for (uint k = row_ptr[row] + lane; k < row_ptr[row + 1]; k += LANES) {
    acc = fma(values[k], x[columns[k]], acc);
}
for (ushort d = LANES / 2; d > 0; d >>= 1) acc += simd_shuffle_xor(acc, d);
if (lane == 0) y[row] = acc;

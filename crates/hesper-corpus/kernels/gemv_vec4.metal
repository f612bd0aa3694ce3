// Matrix-vector product with vector loads: rows are read as T4 through a pointer cast, one SIMD group a row.
using T4 = metal::vec<T, 4>;
const uint row = thread_position_in_grid.x / 32;
const uint lane = thread_index_in_simdgroup;
const device T4* wr = reinterpret_cast<const device T4*>(w + row * K);
const device T4* xv = (const device T4*)x;
float acc = 0;
for (uint i = lane; i < K / 4; i += 32) {
    acc += dot(float4(wr[i]), float4(xv[i]));
}
acc = simd_sum(acc);
if (lane == 0) {
    y[row] = T(acc);
}

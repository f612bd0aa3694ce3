// y = dequantize(W) * x for 2, 4 and 8-bit weights packed in uint32: w = scale * q + bias for each group.
// One SIMD group a row; the bias is factored out of the inner sum.
constexpr int PER_WORD = Packed<BITS>::PER_WORD;
constexpr int WORDS = K / PER_WORD;
constexpr int GROUPS = K / GROUP;
const uint row = thread_position_in_grid.y;
const uint lane = thread_index_in_simdgroup;
float acc = 0.0f;
for (int word = lane; word < WORDS; word += 32) {
    const uint packed = w[row * WORDS + word];
    const int k0 = word * PER_WORD;
    const float scale = scales[row * GROUPS + k0 / GROUP];
    const float bias = biases[row * GROUPS + k0 / GROUP];
    float dotq = 0, sumx = 0;
    #pragma unroll
    for (int j = 0; j < PER_WORD; ++j) {
        const float xj = float(x[k0 + j]);
        dotq += xj * Packed<BITS>::get(packed, j);
        sumx += xj;
    }
    acc += scale * dotq + bias * sumx;
}
acc = simd_sum(acc);
if (lane == 0) y[row] = static_cast<T>(acc);

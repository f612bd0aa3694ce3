// 3 and 6-bit weights: eight 3-bit values lie in three bytes, four 6-bit values in three bytes. The uint32
// words are read as bytes through a pointer cast and three of them make one 24-bit number.
constexpr int PACK = 24 / BITS;
constexpr uint MASK = (1u << BITS) - 1u;
const uint row = thread_position_in_grid.y;
const device uchar* bytes = (const device uchar*)w + row * (K * BITS / 8);
float acc = 0;
for (int p = thread_index_in_simdgroup; p < K / PACK; p += 32) {
    uint triple = 0;
    for (int b = 2; b >= 0; --b) {
        triple = triple << 8 | bytes[3 * p + b];
    }
    const uint group = (row * K + p * PACK) / GROUP;
    for (int j = 0; j < PACK; ++j, triple >>= BITS) {
        acc += (scales[group] * (triple & MASK) + biases[group]) * x[p * PACK + j];
    }
}
acc = simd_sum(acc);
if (simd_is_first()) {
    y[row] = acc;
}

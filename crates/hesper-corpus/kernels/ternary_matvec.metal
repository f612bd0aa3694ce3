// Ternary weights (BitNet style): sixteen 2-bit codes a word, 0, 1 and 2 for -1, 0 and +1; activations are int8
// read as char4, sums are exact in int, two scales at the end.
constexpr int WORDS = K / 16;
const uint row = thread_position_in_grid.y;
int acc = 0;
for (uint word = thread_index_in_simdgroup; word < WORDS; word += 32) {
    uint codes = w[row * WORDS + word];
    const device char4* xs = (const device char4*)(x + word * 16);
    for (int part = 0; part < 4; ++part) {
        const int4 code = int4(codes & 3, (codes >> 2) & 3, (codes >> 4) & 3, (codes >> 6) & 3) - 1;
        const int4 p = code * int4(xs[part]);
        acc += p.x + p.y + p.z + p.w;
        codes >>= 8;
    }
}
acc = simd_sum(acc);
if (thread_index_in_simdgroup == 0) {
    y[row] = T(float(acc) * w_scale / x_scale);
}

// 4-bit product without shifts: the 16-bit halves of each word are masked in place and the input is scaled by
// powers of 1/16 beforehand. Two rows a SIMD group, half scales.
typedef float U;
constexpr int ROWS = 2;
const uint lane = thread_index_in_simdgroup;
const uint row0 = thread_position_in_grid.y * ROWS;
U result[ROWS] = {0, 0};
for (int k = lane * 8; k < K; k += 32 * 8) {
    U xt[8];
    U sum = 0;
    for (int i = 0; i < 8; i += 4) {
        sum += x[k + i] + x[k + i + 1] + x[k + i + 2] + x[k + i + 3];
        xt[i] = x[k + i];
        xt[i + 1] = x[k + i + 1] / 16.0f;
        xt[i + 2] = x[k + i + 2] / 256.0f;
        xt[i + 3] = x[k + i + 3] / 4096.0f;
    }
    for (int r = 0; r < ROWS; r++) {
        if (row0 + r >= uint(M)) break;
        auto ws = (const device uint16_t*)(w + ((row0 + r) * K + k) / 8);
        U accum = 0;
        for (int i = 0; i < 2; i++) {
            accum += (xt[4 * i] * (ws[i] & 0x000f) + xt[4 * i + 1] * (ws[i] & 0x00f0) +
                      xt[4 * i + 2] * (ws[i] & 0x0f00) + xt[4 * i + 3] * (ws[i] & 0xf000));
        }
        const uint g = ((row0 + r) * K + k) / GROUP;
        result[r] += U(scales[g]) * accum + sum * U(biases[g]);
    }
}
for (int r = 0; r < ROWS; r++) {
    result[r] = simd_sum(result[r]);
    if (lane == 0 && row0 + r < uint(M)) {
        y[row0 + r] = half(result[r]);
    }
}

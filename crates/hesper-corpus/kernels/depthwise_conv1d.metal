// Depthwise 1-D convolution, channels last, with stride and zero padding: x[B, L, C], w[C, KW].
const uint3 g = thread_position_in_grid;
const int C = x_shape[2], L = x_shape[1];
const int LO = (L + 2 * PAD - KW) / STRIDE + 1;
float acc = 0.0f;
for (int k = 0; k < KW; ++k) {
    const int t = int(g.y) * STRIDE + k - PAD;
    if (t >= 0 && t < L) {
        acc += float(x[(g.z * L + t) * C + g.x]) * float(w[g.x * KW + k]);
    }
}
out[(g.z * LO + g.y) * C + g.x] = T(acc);

// Selective state-space scan (Mamba): h = exp(dt * A) h + dt * B x, y = C h + D x, with softplus on dt.
// One thread a channel; the state of N values lives in registers.
const uint ch = thread_position_in_grid.x;
const uint b = thread_position_in_grid.y;
const int L = x_shape[1], C_ = x_shape[2];
if (ch >= (uint)C_) return;
float h[N];
float a[N];
for (int n = 0; n < N; ++n) {
    h[n] = 0.0f;
    a[n] = -exp(float(A_log[ch * N + n]));
}
for (int t = 0; t < L; ++t) {
    const int row = b * L + t;
    const float raw = float(dt[row * C_ + ch]);
    const float step = raw > 20.0f ? raw : log1p(exp(raw));
    const float xt = float(x[row * C_ + ch]);
    float acc = 0.0f;
    #pragma unroll
    for (int n = 0; n < N; ++n) {
        h[n] = exp(step * a[n]) * h[n] + step * float(Bm[row * N + n]) * xt;
        acc += h[n] * float(Cm[row * N + n]);
    }
    y[row * C_ + ch] = T(acc + float(Dp[ch]) * xt);
}
for (int n = 0; n < N; ++n) state[(b * C_ + ch) * N + n] = h[n];

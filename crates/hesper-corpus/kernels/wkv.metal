// RWKV-style attention without softmax tables: numerator and denominator are kept relative to a running maximum
// exponent. k and v[B, L, C], decay w and bonus u[C]; one thread a channel.
const uint c = thread_position_in_grid.x;
const uint b = thread_position_in_grid.y;
const float uu = u[c];
const float ww = -metal::exp(w[c]);
float p = 0, q = 0, o = -1e38f;
device T* yp = y + b * L * C + c;
const device T* kp = k + b * L * C + c;
const device T* vp = v + b * L * C + c;
for (int t = 0; t < L; ++t, kp += C, vp += C, yp += C) {
    const float kk = *kp;
    const float vv = *vp;
    float no = max(o, uu + kk);
    float A = exp(o - no);
    float B = exp(uu + kk - no);
    *yp = T((A * p + B * vv) / (A * q + B));
    no = max(ww + o, kk);
    A = exp(ww + o - no);
    B = exp(kk - no);
    p = A * p + B * vv;
    q = A * q + B;
    o = no;
}

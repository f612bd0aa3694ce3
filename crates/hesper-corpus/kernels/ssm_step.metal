// One decoding step of a Mamba-2 layer: lanes share the state dimension of one (head, channel) pair.
const uint lane = thread_position_in_threadgroup.x;
const uint d = thread_position_in_grid.y;
const uint bh = thread_position_in_grid.z;
const uint h = bh % H;
const uint group = bh / (H / G);
constexpr int PER = DS / 32;
const uint xi = bh * DH + d;
const T dt_ = static_cast<T>(dt[bh]);
const float a = metal::fast::exp(float(A[h]) * float(dt_));
float acc = 0.0;
auto src = state_in + xi * DS;
auto dst = state_out + xi * DS;
for (int i = 0; i < PER; ++i) {
    auto s = PER * lane + i;
    auto idx = group * DS + s;
    auto db_x = float(x[xi]) * float(dt_) * static_cast<float>(B[idx]);
    auto st = a * src[s] + db_x;
    dst[s] = static_cast<T>(st);
    acc += st * C[idx];
}
acc = simd_sum(acc);
if (lane == 0) {
    out[xi] = static_cast<T>(acc + x[xi] * D[h]);
}

// Row softmax with the online maximum: one SIMD group a row, each lane keeps (max, sum), merged by shuffles.
const uint row = thread_position_in_grid.y;
const uint lane = thread_index_in_simdgroup;
const device T* src = x + row * N;
device T* dst = out + row * N;

float m = -INFINITY;
float s = 0.0f;
for (uint i = lane; i < N; i += 32) {
    float v = float(src[i]);
    float m_new = max(m, v);
    s = s * fast::exp(m - m_new) + fast::exp(v - m_new);
    m = m_new;
}
for (ushort d = 16; d > 0; d >>= 1) {
    float m_other = simd_shuffle_xor(m, d);
    float s_other = simd_shuffle_xor(s, d);
    float m_new = max(m, m_other);
    float mine = m == -INFINITY ? 0.0f : s * exp(m - m_new);
    float other = m_other == -INFINITY ? 0.0f : s_other * exp(m_other - m_new);
    s = mine + other;
    m = m_new;
}
const float scale = 1.0f / s;
for (uint i = lane; i < N; i += 32) {
    dst[i] = T(exp(float(src[i]) - m) * scale);
}

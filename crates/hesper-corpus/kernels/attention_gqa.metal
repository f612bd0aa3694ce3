// Causal attention with online softmax and grouped query heads: one SIMD group a query, lanes split the head
// dimension, keys are visited in order. q[H, Lq, D], k and v[H / REP, Lk, D].
constexpr int PER = D / 32;
const uint lane = thread_index_in_simdgroup;
const uint qi = thread_position_in_grid.y;
const uint head = thread_position_in_grid.z;
const uint kv_head = head / REP;
const int Lq = q_shape[1];
const int Lk = k_shape[1];

float qv[PER], o[PER];
const device T* qp = q + (head * Lq + qi) * D + lane * PER;
const device T* kp = k + kv_head * Lk * D + lane * PER;
const device T* vp = v + kv_head * Lk * D + lane * PER;
for (int i = 0; i < PER; i++) {
    qv[i] = scale * float(qp[i]);
    o[i] = 0;
}
float m = -INFINITY, l = 0;
// Query i sees the keys up to its own place at the end of the context.
const int last = causal ? Lk - Lq + int(qi) : Lk - 1;
for (int j = 0; j <= last; ++j) {
    float s = 0;
    for (int i = 0; i < PER; i++) {
        s += qv[i] * float(kp[j * D + i]);
    }
    s = simd_sum(s);
    const float m_new = metal::max(m, s);
    const float f = fast::exp(m - m_new);
    const float p = fast::exp(s - m_new);
    l = l * f + p;
    m = m_new;
    for (int i = 0; i < PER; i++) {
        o[i] = o[i] * f + p * float(vp[j * D + i]);
    }
}
device T* op = out + (head * Lq + qi) * D + lane * PER;
for (int i = 0; i < PER; i++) {
    op[i] = T(o[i] / l);
}
if (lane == 0) {
    lse[head * Lq + qi] = m + metal::log(l);
}

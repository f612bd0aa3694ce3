// RWKV-6-like linear attention with a matrix state: one threadgroup a head, each thread owns a column; the
// vectors of a step are shared through threadgroup memory.
threadgroup float4 rs[N / 4], ks[N / 4], ws[N / 4], us[N / 4];
const uint head = threadgroup_position_in_grid.x;
const uint i = thread_position_in_threadgroup.x;
float state[N] = {};
((threadgroup float*)us)[i] = u[head * N + i];
for (int t = 0; t < L; ++t) {
    const uint at = (t * HEADS + head) * N + i;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    ((threadgroup float*)rs)[i] = r[at];
    ((threadgroup float*)ks)[i] = k[at];
    ((threadgroup float*)&ws[0])[i] = exp(-exp(float(w[at])));
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float vt = v[at];
    float acc = 0;
    for (int j = 0; j < N; j += 4) {
        const threadgroup float4& rj = rs[j / 4];
        const float4 kv = ks[j / 4] * vt;
        float4 s = float4(state[j], state[j + 1], state[j + 2], state[j + 3]);
        acc += dot(rj, us[j / 4] * kv + s);
        s = s * ws[j / 4] + kv;
        state[j] = s.x;
        state[j + 1] = s.y;
        state[j + 2] = s.z;
        state[j + 3] = s.w;
    }
    y[at] = T(acc);
}

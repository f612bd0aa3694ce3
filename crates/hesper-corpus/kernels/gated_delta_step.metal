// Gated delta rule over T_LEN steps: S = g * S + (v - (g * S) k) beta k^T, y = S q. Each SIMD group owns one row
// of the state, its lanes share the key dimension. Writes outputs and the final state.
constexpr int n = DK / 32;
const uint lane = thread_index_in_simdgroup;
const uint dv = thread_position_in_grid.y;
const uint head = thread_position_in_grid.z;

float state[n];
const uint s_at = (head * DV + dv) * DK + lane * n;
for (int i = 0; i < n; ++i) state[i] = static_cast<float>(state_in[s_at + i]);

const uint heads = threads_per_grid.z;
for (int t = 0; t < T_LEN; ++t) {
    const uint th = t * heads + head;
    const device InT* qt = q + th * DK;
    const device InT* kt = k + th * DK;
    const float gt = static_cast<float>(g[th]);
    const float bt = static_cast<float>(beta[th]);
    float kv_mem = 0.0f;
    for (int i = 0; i < n; ++i) {
        state[i] *= gt;
        kv_mem += state[i] * kt[lane * n + i];
    }
    kv_mem = simd_sum(kv_mem);
    const float delta = (static_cast<float>(v[th * DV + dv]) - kv_mem) * bt;
    float out = 0.0f;
    for (int i = 0; i < n; ++i) {
        state[i] += kt[lane * n + i] * delta;
        out += state[i] * qt[lane * n + i];
    }
    out = simd_sum(out);
    if (thread_index_in_simdgroup == 0) {
        y[th * DV + dv] = static_cast<InT>(out);
    }
}
for (int i = 0; i < n; ++i) state_out[s_at + i] = static_cast<StT>(state[i]);

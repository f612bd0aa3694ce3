// Gated delta rule over T_LEN steps: S = g * S + (v - (g * S) k) beta k^T, y = S q. Each SIMD group owns one row
// of the state, its lanes take every 32nd key dimension. Writes outputs and the final state.
constexpr int SLOTS = DK / 32;
const uint lane = thread_index_in_simdgroup;
const uint value = thread_position_in_grid.y;
const uint head = thread_position_in_grid.z;
const uint heads = threads_per_grid.z;

float row[SLOTS];
const uint origin = (head * DV + value) * DK + lane;
for (int j = 0; j < SLOTS; ++j) {
    row[j] = static_cast<float>(state_in[origin + 32 * j]);
}
for (uint at = head; at < T_LEN * heads; at += heads) {
    const device InT* query = q + at * DK + lane;
    const device InT* key = k + at * DK + lane;
    const float decay = static_cast<float>(g[at]);
    float recalled = 0.0f;
    for (int j = 0; j < SLOTS; ++j) {
        row[j] *= decay;
        recalled = fma(row[j], float(key[32 * j]), recalled);
    }
    const float error = static_cast<float>(v[at * DV + value]) - simd_sum(recalled);
    const float update = error * static_cast<float>(beta[at]);
    float answer = 0.0f;
    for (int j = 0; j < SLOTS; ++j) {
        row[j] = fma(update, float(key[32 * j]), row[j]);
        answer = fma(row[j], float(query[32 * j]), answer);
    }
    answer = simd_sum(answer);
    if (lane == 0) {
        y[at * DV + value] = static_cast<InT>(answer);
    }
}
for (int j = 0; j < SLOTS; ++j) {
    state_out[origin + 32 * j] = static_cast<StT>(row[j]);
}

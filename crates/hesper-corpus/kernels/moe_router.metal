// Mixture-of-experts routing: one SIMD group a token, TOP rounds of argmax over experts with ties to the lower
// index, then weights normalised over the chosen. Several experts a lane.
constexpr int PER = (E + 31) / 32;
const uint token = thread_position_in_grid.y;
const uint lane = thread_index_in_simdgroup;
float score[PER];
for (int i = 0; i < PER; ++i) {
    const int e = i * 32 + lane;
    score[i] = e < E ? float(logits[token * E + e]) : -INFINITY;
}
float chosen[TOP];
uint expert[TOP];
for (int k = 0; k < TOP; ++k) {
    int best = 0;
    for (int i = 1; i < PER; ++i) {
        if (score[i] > score[best]) best = i;
    }
    const float top = simd_max(score[best]);
    const uint mine = score[best] == top ? best * 32 + lane : 0xffffffffu;
    const uint winner = simd_min(mine);
    chosen[k] = top;
    expert[k] = winner;
    if (mine == winner) {
        score[best] = -INFINITY;
    }
}
const float largest = chosen[0];
float sum = 0;
for (int k = 0; k < TOP; ++k) {
    chosen[k] = exp(chosen[k] - largest);
    sum += chosen[k];
}
if (lane < TOP) {
    // Dynamic indices into register arrays.
    weights[token * TOP + lane] = T(chosen[lane] / sum);
    experts[token * TOP + lane] = expert[lane];
}

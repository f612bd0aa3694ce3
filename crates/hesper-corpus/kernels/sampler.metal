// Token sampling: repetition penalty, banned tokens, temperature, softmax by tree reductions in threadgroup
// memory, then the first token whose cumulative probability passes a given uniform number.
threadgroup float tree[GROUP_SIZE];
const uint row = threadgroup_position_in_grid.x;
const uint lid = thread_index_in_threadgroup;
const float strength = settings[0], temperature = settings[1];
float best = NEVER;
for (uint i = lid; i < V; i += GROUP_SIZE) {
    float x = penalised(float(logits[row * V + i]), counts[row * V + i], strength) / temperature;
    for (int ban : BANNED) {
        if (int(i) == ban) x = NEVER;
    }
    probs[row * V + i] = x;
    best = max(best, x);
}
tree[lid] = best;
for (uint s = GROUP_SIZE / 2; s > 0; s >>= 1) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lid < s) tree[lid] = max(tree[lid], tree[lid + s]);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
best = tree[0];
threadgroup_barrier(mem_flags::mem_threadgroup);
float sum = 0.0f;
for (uint i = lid; i < V; i += GROUP_SIZE) {
    const float e = exp(probs[row * V + i] - best);
    probs[row * V + i] = e;
    sum += e;
}
tree[lid] = sum;
for (uint s = GROUP_SIZE / 2; s > 0; s >>= 1) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lid < s) tree[lid] += tree[lid + s];
}
threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
for (uint i = lid; i < V; i += GROUP_SIZE) probs[row * V + i] /= tree[0];
threadgroup_barrier(mem_flags::mem_device);
if (lid == 0) {
    float cumulative = 0.0f;
    uint token = 0;
    while (token + 1 < V && (cumulative += probs[row * V + token]) < uniforms[row]) ++token;
    tokens[row] = token;
}

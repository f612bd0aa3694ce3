// Cross entropy of every row by log-sum-exp, forward and backward in one kernel (two outputs): the loss of the
// target and softmax minus one-hot scaled by the incoming gradient. A target of -1 is ignored.
constexpr int SG = 32;
threadgroup float shared_m[SG];
threadgroup float shared_s[SG];
const uint row = threadgroup_position_in_grid.x;
const uint tid = thread_position_in_threadgroup.x;
const uint size = threads_per_threadgroup.x;
const int target = targets[row];
const device T* logits = x + row * V;
if (target < 0) {
    // The whole threadgroup leaves together.
    for (uint i = tid; i < V; i += size) grad[row * V + i] = T(0);
    if (tid == 0) loss[row] = 0.0f;
    return;
}
float m = -INFINITY, s = 0.0f;
for (uint i = tid; i < V; i += size) {
    const float v = float(logits[i]);
    if (v > m) {
        s *= exp(m - v);
        m = v;
    }
    s += exp(v - m);
}
const float group_m = simd_max(m);
s = simd_sum(s * (m == -INFINITY ? 0.0f : exp(m - group_m)));
if (thread_index_in_simdgroup == 0) {
    shared_m[simdgroup_index_in_threadgroup] = group_m;
    shared_s[simdgroup_index_in_threadgroup] = s;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
m = -INFINITY;
for (uint g = 0; g < simdgroups_per_threadgroup; ++g) m = max(m, shared_m[g]);
s = 0.0f;
for (uint g = 0; g < simdgroups_per_threadgroup; ++g) s += shared_s[g] * exp(shared_m[g] - m);
const float lse = m + log(s);
if (tid == 0) {
    loss[row] = lse - float(logits[target]);
}
const float up = upstream[row];
for (uint i = tid; i < V; i += size) {
    const float p = exp(float(logits[i]) - lse);
    grad[row * V + i] = T(up * (p - (int(i) == target ? 1.0f : 0.0f)));
}

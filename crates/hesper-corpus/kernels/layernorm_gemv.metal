// Layer normalisation fused with a matrix-vector product: y = W * LN(x) + b. The normalised vector stays in
// threadgroup memory; every SIMD group then makes ROWS rows of the product.
threadgroup float xs[D];
threadgroup float2 stats[32];
const uint tid = thread_index_in_threadgroup;
const uint lane = thread_index_in_simdgroup;
const uint sg = simdgroup_index_in_threadgroup;
const uint size = threads_per_threadgroup.x;

float2 s = float2(0.0f);
for (uint i = tid; i < D; i += size) {
    float v = float(x[i]);
    xs[i] = v;
    s += float2(v, v * v);
}
s.x = simd_sum(s.x);
s.y = simd_sum(s.y);
if (lane == 0) stats[sg] = s;
threadgroup_barrier(mem_flags::mem_threadgroup);
s = float2(0);
for (uint g = 0; g < simdgroups_per_threadgroup; g++) s += stats[g];
const float mean = s.x / D;
const float inv = rsqrt(max(s.y / D - mean * mean, 0.0f) + 1e-5f);
for (uint i = tid; i < D; i += size) {
    xs[i] = (xs[i] - mean) * inv * float(gamma[i]) + float(beta[i]);
}
threadgroup_barrier(mem_flags::mem_threadgroup);

const uint row0 = (threadgroup_position_in_grid.x * simdgroups_per_threadgroup + sg) * ROWS;
float acc[ROWS] = {0};
for (uint i = lane; i < D; i += 32) {
    for (int r = 0; r < ROWS; r++) {
        acc[r] += float(w[(row0 + r) * D + i]) * xs[i];
    }
}
for (int r = 0; r < ROWS; r++) {
    acc[r] = simd_sum(acc[r]);
}
if (lane < ROWS) {
    // A register array indexed by the lane: each lane writes its own row.
    y[row0 + lane] = T(acc[lane] + float(bias[row0 + lane]));
}

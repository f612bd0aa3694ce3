// Row softmax by one threadgroup of several SIMD groups: maximum and sum go through threadgroup memory.
threadgroup float shared_max[32];
threadgroup float shared_sum[32];
const uint row = threadgroup_position_in_grid.x;
const uint tid = thread_position_in_threadgroup.x;
const uint size = threads_per_threadgroup.x;
const uint lane = thread_index_in_simdgroup;
const uint warp = simdgroup_index_in_threadgroup;
const uint warps = (size + 31) / 32;

float m = -INFINITY;
for (uint i = tid; i < N; i += size) {
    m = max(m, float(x[row * N + i]));
}
m = simd_max(m);
if (lane == 0) {
    shared_max[warp] = m;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
m = simd_max(lane < warps ? shared_max[lane] : -INFINITY);

float s = 0;
for (uint i = tid; i < N; i += size) {
    s += exp(float(x[row * N + i]) - m);
}
s = simd_sum(s);
if (lane == 0) {
    shared_sum[warp] = s;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
s = simd_sum(lane < warps ? shared_sum[lane] : 0.0f);
for (uint i = tid; i < N; i += size) {
    out[row * N + i] = T(exp(float(x[row * N + i]) - m) / s);
}

// Prefix sum of every row, inclusive or exclusive: SIMD prefix sums, then the sums of the SIMD groups, chunk
// by chunk with a carry.
threadgroup T sums[32];
const uint row = threadgroup_position_in_grid.y;
const uint tid = thread_position_in_threadgroup.x;
const uint size = threads_per_threadgroup.x;
T carry = T(0);
for (uint start = 0; start < N; start += size) {
    const uint i = start + tid;
    const T v = i < N ? x[row * N + i] : T(0);
    T scan = simd_prefix_inclusive_sum(v);
    if (thread_index_in_simdgroup == 31) {
        sums[simdgroup_index_in_threadgroup] = scan;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    T before = carry;
    for (uint g = 0; g < simdgroup_index_in_threadgroup; ++g) {
        before += sums[g];
    }
    if (i < N) {
        out[row * N + i] = inclusive ? before + scan : before + scan - v;
    }
    for (uint g = 0; g < size / 32; ++g) {
        carry += sums[g];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

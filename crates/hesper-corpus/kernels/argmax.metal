// Index of the largest element of every row, the first of equals: lanes carry (value, index) pairs down a tree.
threadgroup float best_value[32];
threadgroup uint best_index[32];
const uint row = threadgroup_position_in_grid.x;
const uint lane = thread_index_in_simdgroup;
// The last SIMD group may be partial: lanes that do not exist have nothing to give.
const uint lanes = min(32u, threads_per_threadgroup.x - 32 * simdgroup_index_in_threadgroup);
float v = -INFINITY;
uint at = N;
for (uint i = thread_position_in_threadgroup.x; i < N; i += threads_per_threadgroup.x) {
    float c = float(x[row * N + i]);
    if (c > v || at == N) {
        v = c;
        at = i;
    }
}
for (uint stage = 0; stage < 2; ++stage) {
    for (ushort d = 16; d >= 1; d >>= 1) {
        const float v2 = simd_shuffle_down(v, d);
        const uint at2 = simd_shuffle_down(at, d);
        const bool take = lane + d < lanes && (v2 > v || (v2 == v && at2 < at));
        v = take ? v2 : v;
        at = take ? at2 : at;
    }
    if (stage == 1) {
        break;
    }
    if (lane == 0) {
        best_value[simdgroup_index_in_threadgroup] = v;
        best_index[simdgroup_index_in_threadgroup] = at;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool real = lane < simdgroups_per_threadgroup;
    v = real ? best_value[lane] : -INFINITY;
    at = real ? best_index[lane] : uint(N);
}
if (thread_position_in_threadgroup.x == 0) {
    out[row] = at;
}

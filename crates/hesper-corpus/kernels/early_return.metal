// Lanes past the end and lanes with negative keys return early; the SIMD operations that follow see only the
// lanes that remain. The grid is rounded up to whole threadgroups.
const uint i = thread_position_in_grid.x;
if (i >= N) {
    return;
}
if (keys[i] < 0) {
    count[i] = 0;
    total[i] = -1;
    rank[i] = 0;
    return;
}
const uint active = popcount(uint(simd_vote::vote_t(simd_active_threads_mask())));
count[i] = active;
total[i] = simd_sum(keys[i]);
rank[i] = simd_prefix_exclusive_sum(1u);

// Stream compaction by ballots: each lane finds its place among the set lanes, one atomic a SIMD group reserves
// room. Groups may finish in any order; the grid ends in a partial group.
const uint i = thread_position_in_grid.x;
const float v = x[i];
const bool keep = v > threshold;
const ulong votes = (simd_vote::vote_t)simd_ballot(keep);
const uint mask = uint(votes);
const uint lane = thread_index_in_simdgroup;
const uint before = popcount(mask & ((1u << lane) - 1u));
uint base = 0;
if (lane == 0) {
    base = atomic_fetch_add_explicit(&count[0], uint(popcount(mask)), memory_order_relaxed);
}
base = simd_broadcast_first(base);
if (keep) {
    atomic_store_explicit(&kept[base + before], i, memory_order_relaxed);
}

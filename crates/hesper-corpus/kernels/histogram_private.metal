// Histogram with threadgroup-private counters: count locally, then add each local bin to the output once.
threadgroup atomic_uint local_bins[BINS];
const uint tid = thread_index_in_threadgroup;
const uint size = threads_per_threadgroup.x;
for (uint b = tid; b < BINS; b += size) {
    atomic_store_explicit(&local_bins[b], 0u, memory_order_relaxed);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
const uint total = threads_per_grid.x;
for (uint i = thread_position_in_grid.x; i < N; i += total) {
    const int v = values[i];
    if (v < 0) continue;
    atomic_fetch_add_explicit(&local_bins[uint(v) % BINS], 1u, memory_order_relaxed);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint b = tid; b < BINS; b += size) {
    const uint n = atomic_load_explicit(&local_bins[b], memory_order_relaxed);
    if (n != 0) {
        atomic_fetch_add_explicit(&bins[b], n, memory_order_relaxed);
    }
}

// Nearest centroid of every point with centroids staged in threadgroup memory as structs, and the sizes of the
// clusters by threadgroup and device atomics.
struct Centroid {
    float3 at;
    float norm;
};
threadgroup Centroid cs[K];
threadgroup atomic_int sizes[K];
const uint i = thread_position_in_grid.x;
const uint t = thread_index_in_threadgroup;
for (uint k = t; k < K; k += threads_per_threadgroup.x) {
    const float3 c = float3(centroids[3 * k], centroids[3 * k + 1], centroids[3 * k + 2]);
    cs[k] = {c, dot(c, c)};
    atomic_store_explicit(&sizes[k], 0, memory_order_relaxed);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
const float3 p(points[3 * i], points[3 * i + 1], points[3 * i + 2]);
int best = 0;
float least = MAXFLOAT;
for (int k = 0; k < K; ++k) {
    const threadgroup Centroid& c = cs[k];
    const float d = c.norm - 2.0f * dot(p, c.at);
    if (d < least) {
        least = d;
        best = k;
    }
}
atomic_store_explicit(&label[i], best, memory_order_relaxed);
atomic_fetch_add_explicit(&sizes[best], 1, memory_order_relaxed);
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint k = t; k < K; k += threads_per_threadgroup.x) {
    atomic_fetch_add_explicit(&population[k], atomic_load_explicit(&sizes[k], memory_order_relaxed), memory_order_relaxed);
}

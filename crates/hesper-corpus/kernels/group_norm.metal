// Group normalisation with a gain for each group; sums go through a helper that owns the barriers and is given
// threadgroup memory, a reference to a local and a pointer to a local array.
threadgroup float scratch[32];
const uint group = threadgroup_position_in_grid.x;
const uint tid = thread_position_in_threadgroup.x;
const uint size = threads_per_threadgroup.x;
const uint lane = thread_index_in_simdgroup;
const uint warp = simdgroup_index_in_threadgroup;
const uint warps = simdgroups_per_threadgroup;
const device half* src = x + group * N;
float sum = 0.0f;
float recent[2] = {0.0f, 0.0f};
for (uint i = tid; i < N; i += size) accumulate(src, i, sum, recent);
const float mean = block_sum<32>(sum, scratch, lane, warp, warps) / N;
float square = 0;
for (uint i = tid; i < N; i += size) {
    const float d = float(src[i]) - mean;
    square += d * d;
}
const float inv = rsqrt(block_sum<32>(square, scratch, lane, warp, warps) / N + 1e-5f);
for (uint i = tid; i < N; i += size) {
    store_affine(out[group * N + i], (float(src[i]) - mean) * inv, gain[group]);
}
// The two last elements each thread saw, newest first.
seen[2 * (group * size + tid)] = recent[0];
seen[2 * (group * size + tid) + 1] = recent[1];

// RMS normalisation of every row: simd_sum inside a SIMD group, threadgroup memory between them.
threadgroup float partial[32];
threadgroup float inv_rms[1];
uint row = threadgroup_position_in_grid.x;
uint lid = thread_position_in_threadgroup.x;
uint tg = threads_per_threadgroup.x;
const device T* xr = x + row * D;

float acc = 0;
for (uint i = lid; i < D; i += tg) {
    float v = xr[i];
    acc += v * v;
}
acc = simd_sum(acc);
if (thread_index_in_simdgroup == 0) {
    partial[simdgroup_index_in_threadgroup] = acc;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
if (simdgroup_index_in_threadgroup == 0) {
    acc = thread_index_in_simdgroup < simdgroups_per_threadgroup ? partial[thread_index_in_simdgroup] : 0.0f;
    acc = simd_sum(acc);
    if (thread_index_in_simdgroup == 0) {
        inv_rms[0] = metal::precise::rsqrt(acc / D + eps);
    }
}
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint i = lid; i < D; i += tg) {
    out[row * D + i] = w[i] * static_cast<T>(xr[i] * inv_rms[0]);
}

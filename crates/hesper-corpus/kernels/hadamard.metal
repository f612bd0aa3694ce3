// Walsh-Hadamard transform of rows of 2^LOG elements: butterflies of the first five levels by simd_shuffle_xor,
// the rest through threadgroup memory, one element a thread.
constexpr int N = 1 << LOG;
threadgroup float buf[N];
const uint t = thread_position_in_threadgroup.x;
const uint row = threadgroup_position_in_grid.x;
float v = float(x[row * N + t]);
for (ushort h = 1; h < 32; h <<= 1) {
    const float other = simd_shuffle_xor(v, h);
    v = (t & h) ? other - v : v + other;
}
for (uint h = 32; h < N; h <<= 1) {
    buf[t] = v;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float other = buf[t ^ h];
    v = t & h ? other - v : v + other;
    threadgroup_barrier(mem_flags::mem_threadgroup);
}
out[row * N + t] = T(v * rsqrt(float(N)));

// Radix-2 FFT of complex rows of N points in threadgroup memory: bit reversal on load, N / 2 threads a row.
threadgroup float2 buf[N];
const uint t = thread_position_in_threadgroup.x;
const uint row = threadgroup_position_in_grid.x;
const device float2* src = (const device float2*)x + row * N;
for (uint i = t; i < N; i += N / 2) {
    buf[reverse_bits(i) >> (clz(uint(N)) + 1)] = src[i];
}
for (uint half_size = 1; half_size < N; half_size *= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint j = t % half_size;
    const uint lo = (t / half_size) * 2 * half_size + j;
    float c;
    const float s = sincos((inverse ? M_PI_F : -M_PI_F) * float(j) / float(half_size), c);
    const float2 a = buf[lo], b = buf[lo + half_size];
    const float2 w = float2(b.x * c - b.y * s, b.x * s + b.y * c);
    buf[lo] = a + w;
    buf[lo + half_size] = a - w;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
device float2* dst = (device float2*)out + row * N;
for (uint i = t; i < N; i += N / 2) {
    dst[i] = inverse ? buf[i] / float(N) : buf[i];
}

// Helpers that take pointers and references of every address space.
template <int MAX_SIMD>
inline float block_sum(float value, threadgroup float* scratch, uint lane, uint warp, uint warps) {
    static_assert(MAX_SIMD <= 32, "one SIMD group must be able to read all partial sums");
    value = simd_sum(value);
    if (lane == 0) {
        scratch[warp] = value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const float total = simd_sum(lane < warps ? scratch[lane] : 0.0f);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return total;
}

inline void accumulate(const device half* src, uint n, thread float& sum, thread float* recent) {
    const float v = float(src[n]);
    recent[1] = recent[0];
    recent[0] = v;
    sum += v;
}

inline void store_affine(device half& dst, float v, constant const float& gain) {
    dst = half(v * gain);
}

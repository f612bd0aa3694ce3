// Queries and keys of one fused projection: RMS norm of each head, then rotation, written to two outputs that
// differ in their number of heads. The normalised values are rounded to T before the rotation.
constexpr uint PAIRS = D / 2;
const uint lane = thread_index_in_simdgroup;
const uint head = threadgroup_position_in_grid.x;
const bool is_query = head < HQ;
const device T* src = qkv + head * D;
const device T* weight = is_query ? q_weight : k_weight;
device T* dst = is_query ? q + head * D : k + (head - HQ) * D;

float energy = 0;
for (uint i = lane; i < D; i += 32) {
    energy = fma(float(src[i]), float(src[i]), energy);
}
const float inv = metal::precise::rsqrt(simd_sum(energy) / float(D) + eps);
for (uint i = lane; i < PAIRS; i += 32) {
    const T even = weight[i] * T(float(src[i]) * inv);
    const T odd = weight[i + PAIRS] * T(float(src[i + PAIRS]) * inv);
    const float theta = float(position[0]) * metal::exp2(-float(i) / float(PAIRS) * metal::log2(10000.0f));
    const float2 turn = float2(metal::precise::cos(theta), metal::precise::sin(theta));
    dst[i] = T(dot(float2(even, -odd), turn));
    dst[i + PAIRS] = T(dot(float2(odd, even), turn));
}

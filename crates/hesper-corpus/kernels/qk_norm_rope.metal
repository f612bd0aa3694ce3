// Queries and keys of one fused projection: RMS norm of each head, then rotation, written to two outputs that
// differ in their number of heads. Every intermediate is rounded to T.
const uint lane = thread_index_in_simdgroup;
const uint head = threadgroup_position_in_grid.x;
const device T* src = qkv + head * D;
float sum = 0;
for (uint i = lane; i < D; i += 32) {
    const float v = float(src[i]);
    sum += v * v;
}
const float inv = metal::precise::rsqrt(simd_sum(sum) / float(D) + eps);
const bool is_query = head < HQ;
device T* dst = is_query ? q + head * D : k + (head - HQ) * D;
for (uint i = lane; i < D / 2; i += 32) {
    const T w1 = is_query ? q_weight[i] : k_weight[i];
    const T w2 = is_query ? q_weight[i + D / 2] : k_weight[i + D / 2];
    const T x1 = T(float(src[i]) * inv) * w1;
    const T x2 = T(float(src[i + D / 2]) * inv) * w2;
    const float theta = float(position[0]) * metal::exp2(-2.0f * float(i) / float(D) * metal::log2(10000.0f));
    const float c = metal::precise::cos(theta), s = metal::precise::sin(theta);
    dst[i] = T(float(x1) * c - float(x2) * s);
    dst[i + D / 2] = T(float(x1) * s + float(x2) * c);
}

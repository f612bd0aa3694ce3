// Layer normalisation with a pair (mean, M2) per lane merged by Chan's formula through simd_shuffle_down.
// Writes the rows, their means and their reciprocal standard deviations (three outputs).
const uint row = thread_position_in_grid.y;
const uint lane = thread_index_in_simdgroup;
float count = 0, mean = 0, m2 = 0;
for (uint i = lane; i < D; i += 32) {
    float v = float(x[row * D + i]);
    count += 1.0f;
    float delta = v - mean;
    mean += delta / count;
    m2 += delta * (v - mean);
}
#pragma unroll
for (ushort offset = 16; offset > 0; offset /= 2) {
    float c2 = simd_shuffle_down(count, offset);
    float mu2 = simd_shuffle_down(mean, offset);
    float q2 = simd_shuffle_down(m2, offset);
    float total = count + c2;
    if (lane < offset && total > 0) {
        float delta = mu2 - mean;
        mean += delta * c2 / total;
        m2 += q2 + delta * delta * count * c2 / total;
        count = total;
    }
}
mean = simd_broadcast(mean, 0);
m2 = simd_broadcast(m2, 0);
const float inv = metal::rsqrt(m2 / float(D) + eps);
for (uint i = lane; i < D; i += 32) {
    float v = (float(x[row * D + i]) - mean) * inv;
    out[row * D + i] = T(v * float(weight[i]) + float(bias[i]));
}
if (lane == 0) {
    means[row] = mean;
    rstd[row] = inv;
}

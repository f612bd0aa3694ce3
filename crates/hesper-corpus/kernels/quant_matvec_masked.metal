// 4-bit product without shifts: the nibbles of a 16-bit half stay where they are under a vector of masks, and the
// input is divided by the weight of their place instead. Two rows a SIMD group, half scales.
constexpr int ROWS = 2;
const ushort4 masks = ushort4(0x000f, 0x00f0, 0x0f00, 0xf000);
const float4 places = 1.0f / float4(1.0f, 16.0f, 256.0f, 4096.0f);
const uint lane = thread_index_in_simdgroup;
const uint top = thread_position_in_grid.y * ROWS;
const uint rows = min(uint(ROWS), uint(M) - top);
float2 total = 0.0f;
for (uint word = lane; word < K / 8; word += 32) {
    const device half4* xs = (const device half4*)(x + word * 8);
    const float4 low = float4(xs[0]), high = float4(xs[1]);
    const float plain = dot(low + high, float4(1.0f));
    for (uint r = 0; r < rows; ++r) {
        const device ushort2* pair = (const device ushort2*)(w + (top + r) * (K / 8) + word);
        const float4 a = float4(ushort4(pair->x) & masks), b = float4(ushort4(pair->y) & masks);
        const uint g = ((top + r) * K + word * 8) / GROUP;
        total[r] += float(scales[g]) * (dot(a, low * places) + dot(b, high * places)) + float(biases[g]) * plain;
    }
}
for (uint r = 0; r < rows; ++r) {
    const float sum = simd_sum(total[r]);
    if (lane == 0) {
        y[top + r] = half(sum);
    }
}

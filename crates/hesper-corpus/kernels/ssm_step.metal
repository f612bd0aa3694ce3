// One decoding step of a state-space layer with scalar decay a head: h = exp(A dt) h + dt x B, y = C h + D x.
// A SIMD group owns one (head, channel) pair, its lanes share the state dimension.
const uint channel = thread_position_in_grid.y;
const uint row = thread_position_in_grid.z;
const uint head = row % H;
const uint unit = row * DH + channel;
const auto before = state_in + unit * DS;
const auto after = state_out + unit * DS;
const auto input_map = B + row / (H / G) * DS;
const auto output_map = C + row / (H / G) * DS;
const float xt = static_cast<float>(x[unit]);
const float rate = static_cast<float>(dt[row]);
const float keep = metal::fast::exp(rate * static_cast<float>(A[head]));
float y = 0.0;
for (uint s = thread_index_in_simdgroup; s < DS; s += 32) {
    const auto h = keep * before[s] + rate * xt * static_cast<float>(input_map[s]);
    after[s] = static_cast<T>(h);
    y += h * output_map[s];
}
y = simd_sum(y);
if (thread_index_in_simdgroup == 0) {
    out[unit] = static_cast<T>(y + xt * static_cast<float>(D[head]));
}

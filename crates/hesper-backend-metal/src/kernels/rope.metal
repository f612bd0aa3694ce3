// Rotary position embedding: a thread rotates a pair of features, or copies a feature behind them.
struct RopeParams {
  int heads; int length; int width;
  int batch_stride; int head_stride; int row_stride;
  int dims; int offset; int offset_stride;
  float log_step; float scale;
  int traditional; int back;
};

template <typename T, typename I, bool OFFSETS, bool PERIODS>
[[kernel]] void rope(device const T* in [[buffer(0)]], device const I* offsets [[buffer(1)]],
                     device const float* periods [[buffer(2)]], device T* out [[buffer(3)]],
                     constant RopeParams& p [[buffer(4)]], uint3 n [[thread_position_in_grid]]) {
  const int pair = int(n.x), at = int(n.y), head = int(n.z) % p.heads, batch = int(n.z) / p.heads;
  device const T* row = in + batch * p.batch_stride + head * p.head_stride + at * p.row_stride;
  device T* to = out + (int(n.z) * p.length + at) * p.width;
  if (pair >= p.dims / 2) {
    const int feature = p.dims + pair - p.dims / 2;
    to[feature] = row[feature];
    return;
  }
  float step;
  if constexpr (PERIODS) step = 1.0f / periods[pair];
  else step = precise::exp(float(pair) * p.log_step);
  float start = float(p.offset);
  if constexpr (OFFSETS) start = float(offsets[batch * p.offset_stride]);
  const float angle = (float(at) + start) * p.scale * step;
  const float c = precise::cos(angle);
  float s = precise::sin(angle);
  if (p.back != 0) s = -s;
  const int one = p.traditional != 0 ? 2 * pair : pair;
  const int other = p.traditional != 0 ? 2 * pair + 1 : pair + p.dims / 2;
  const float x = to_float(row[one]), y = to_float(row[other]);
  to[one] = number<T>::of(x * c - y * s);
  to[other] = number<T>::of(x * s + y * c);
}

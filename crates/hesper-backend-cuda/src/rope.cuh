// Rotary position embedding: a thread rotates a pair of features, or copies a feature behind them.
template <class T, class I, bool OFFSETS, bool PERIODS>
__global__ void __launch_bounds__(256) rope(const T* __restrict__ in, const I* __restrict__ offsets,
                                            const float* __restrict__ periods, T* __restrict__ out, i64 batch,
                                            i64 heads, i64 length, i64 width, i64 s0, i64 s1, i64 s2, i64 dims,
                                            i64 offset, i64 offset_stride, float log, float scale, i32 traditional,
                                            i32 back) {
  const i64 per = dims / 2 + (width - dims);
  const i64 n = batch * heads * length * per;
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) {
    const i64 p = i % per, at = i / per % length, h = i / per / length % heads, b = i / per / length / heads;
    const T* from_row = in + b * s0 + h * s1 + at * s2;
    T* to = out + ((b * heads + h) * length + at) * width;
    if (p >= dims / 2) {
      to[dims + p - dims / 2] = from_row[dims + p - dims / 2];
      continue;
    }
    const float step = PERIODS ? 1.0f / periods[p] : expf((float)p * log);
    const float start = OFFSETS ? (float)offsets[b * offset_stride] : (float)offset;
    float s, c;
    sincosf(((float)at + start) * scale * step, &s, &c);
    if (back) s = -s;
    const i64 one = traditional ? 2 * p : p, other = traditional ? 2 * p + 1 : p + dims / 2;
    const float x = f32(from_row[one]), y = f32(from_row[other]);
    to[one] = from<T>(x * c - y * s);
    to[other] = from<T>(x * s + y * c);
  }
}

// Rotary position embedding: a thread rotates a pair of features of EACH heads, which have one angle, or copies a feature
// behind them.
template <class T, class I, bool OFFSETS, bool PERIODS, int EACH>
__global__ void __launch_bounds__(256) rope(const T* __restrict__ in, const I* __restrict__ offsets,
                                            const float* __restrict__ periods, T* __restrict__ out, i64 batch,
                                            i64 heads, i64 length, i64 width, i64 s0, i64 s1, i64 s2, i64 dims,
                                            i64 offset, i64 offset_stride, float log, float scale,
                                            i32 traditional, i32 back) {
  const i64 per = dims / 2 + (width - dims), groups = (heads + EACH - 1) / EACH;
  const i64 n = batch * groups * length * per;
  const bool narrow = n < (i64)1 << 32;
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) {
    // Divisions of 64 bits take as long as the rest.
    const i64 row = narrow ? (i64)((u32)i / (u32)per) : i / per, p = i - row * per;
    const i64 group = narrow ? (i64)((u32)row / (u32)length) : row / length, at = row - group * length;
    const i64 b = narrow ? (i64)((u32)group / (u32)groups) : group / groups, h = (group - b * groups) * EACH;
    const T* from_row = in + b * s0 + h * s1 + at * s2;
    T* to = out + ((b * heads + h) * length + at) * width;
    const int count = EACH < heads - h ? EACH : (int)(heads - h);
    if (p >= dims / 2) {
      const i64 one = dims + p - dims / 2;
#pragma unroll
      for (int head = 0; head < EACH; ++head)
        if (head < count) to[head * length * width + one] = from_row[head * s1 + one];
      continue;
    }
    const float step = PERIODS ? 1.0f / periods[p] : expf((float)p * log);
    const float start = OFFSETS ? (float)offsets[b * offset_stride] : (float)offset;
    float s, c;
    sincosf(((float)at + start) * scale * step, &s, &c);
    if (back) s = -s;
    const i64 one = traditional ? 2 * p : p, other = traditional ? 2 * p + 1 : p + dims / 2;
    float x[EACH], y[EACH];
#pragma unroll
    for (int head = 0; head < EACH; ++head) {
      if (head >= count) break;
      x[head] = f32(from_row[head * s1 + one]);
      y[head] = f32(from_row[head * s1 + other]);
    }
#pragma unroll
    for (int head = 0; head < EACH; ++head) {
      if (head >= count) break;
      to[head * length * width + one] = from<T>(x[head] * c - y[head] * s);
      to[head * length * width + other] = from<T>(x[head] * s + y[head] * c);
    }
  }
}

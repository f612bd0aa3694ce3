// im2col: windows of an input as rows of a matrix. For each group and position the taps, for each tap the channels.
struct geometry {
  i64 in[3], out[3], taps[3], stride[3], low[3], dilation[3], spread[3];
  i64 batch, channels, groups;  // channels of one group, in words
};

#ifndef INDEX
#define INDEX u32
#endif
typedef INDEX index_t;

template <class T>
__global__ void __launch_bounds__(256) im2col(const T* __restrict__ in, T* __restrict__ out, geometry w, i64 n) {
  for (index_t i = (index_t)blockIdx.x * 256 + threadIdx.x; i < (index_t)n; i += (index_t)gridDim.x * 256) {
    index_t rest = i;
    const index_t c = rest % (index_t)w.channels; rest /= (index_t)w.channels;
    i64 tap[3], at[3];
#pragma unroll
    for (int a = 2; a >= 0; --a)
      if (w.taps[a] > 1) { tap[a] = rest % (index_t)w.taps[a]; rest /= (index_t)w.taps[a]; } else tap[a] = 0;
#pragma unroll
    for (int a = 2; a >= 0; --a)
      if (w.out[a] > 1) { at[a] = rest % (index_t)w.out[a]; rest /= (index_t)w.out[a]; } else at[a] = 0;
    const i64 b = rest % (index_t)w.batch, g = rest / (index_t)w.batch;
    bool there = true;
    i64 from = b;
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      const i64 p = at[a] * w.stride[a] - w.low[a] + tap[a] * w.dilation[a];
      const i64 q = w.spread[a] == 1 ? p : p / w.spread[a];
      there = there && p >= 0 && q < w.in[a] && q * w.spread[a] == p;
      from = from * w.in[a] + q;
    }
    T value = {};
    if (there) value = in[(from * w.groups + g) * w.channels + c];
    out[i] = value;
  }
}

// Windows of an input as rows of a matrix: for each group and position the taps, for each tap the channels.
struct window {
  i64 in[3], out[3], taps[3], stride[3], low[3], dilation[3], spread[3];
  i64 batch, channels, groups;  // channels of one group, in words
};

template <class T>
__global__ void __launch_bounds__(256) windows(const T* __restrict__ in, T* __restrict__ out, window w, i64 n) {
  for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) {
    i64 rest = i;
    const i64 c = rest % w.channels; rest /= w.channels;
    i64 tap[3], at[3];
#pragma unroll
    for (int a = 2; a >= 0; --a) { tap[a] = rest % w.taps[a]; rest /= w.taps[a]; }
#pragma unroll
    for (int a = 2; a >= 0; --a) { at[a] = rest % w.out[a]; rest /= w.out[a]; }
    const i64 b = rest % w.batch, g = rest / w.batch;
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

// The gated delta rule. A warp runs one row of a head's state through all steps, N elements of it in each lane.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int m = 16; m > 0; m /= 2) x += __shfl_xor_sync(FULL, x, m);
  return x;
}

template <class T, int N, bool EACH, bool STATE, bool MARKS>
__global__ void __launch_bounds__(256)
gated_delta(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, const float* __restrict__ decay,
      const float* __restrict__ rate, const float* __restrict__ state, const u8* __restrict__ marks, T* __restrict__ out,
      float* __restrict__ state_out, i64 rows, i64 length, i64 k_heads, i64 v_heads, i64 d, i64 value_dim) {
  const i64 row = (i64)blockIdx.x * 8 + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  const i64 i = row % value_dim, h = row / value_dim % v_heads, b = row / value_dim / v_heads;
  const i64 kh = h / (v_heads / k_heads);
  float held[N];
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const i64 j = n * 32 + lane;
    held[n] = STATE && j < d ? state[row * d + j] : 0.0f;
  }
  for (i64 t = 0; t < length; ++t) {
    const i64 step = b * length + t, at = step * v_heads + h;
    if (MARKS && marks[step] == 0) {
      if (lane == 0) out[at * value_dim + i] = from<T>(0.0f);
      continue;
    }
    const i64 base = (step * k_heads + kh) * d;
    float key[N], query[N], sum = 0.0f;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const i64 j = n * 32 + lane;
      const bool there = j < d;
      key[n] = there ? f32(k[base + j]) : 0.0f;
      query[n] = there ? f32(q[base + j]) : 0.0f;
      held[n] *= EACH ? (there ? decay[at * d + j] : 0.0f) : decay[at];
      sum += held[n] * key[n];
    }
    const float share = (f32(v[at * value_dim + i]) - warp_sum(sum)) * rate[at];
    float answer = 0.0f;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      held[n] += key[n] * share;
      answer += held[n] * query[n];
    }
    answer = warp_sum(answer);
    if (lane == 0) out[at * value_dim + i] = from<T>(answer);
  }
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const i64 j = n * 32 + lane;
    if (j < d) state_out[row * d + j] = held[n];
  }
}

// The derivative of the cross entropy by the logits: a block for each row. It reads the row twice, the second time from
// the cache.
template <class T, int THREADS, bool ALIGNED>
__global__ void __launch_bounds__(THREADS)
cross_entropy_gradient(const T* __restrict__ logits, const i64* __restrict__ targets, const float* __restrict__ cotangent,
                       T* __restrict__ out, i64 length) {
  constexpr int V = ALIGNED ? 16 / sizeof(T) : 1;
  __shared__ relative<T, float> shared[32];
  const i64 row = blockIdx.x;
  const T* const from_row = logits + row * length;
  const relative<T, float> whole = all_relative<T, float, THREADS>(
      row_relative<T, float, THREADS, ALIGNED>(source<T>{from_row}, length), shared);
  const float level = relative_log(whole), by = cotangent[row];
  i64 target = targets[row];
  if (target < 0) target += length;
  for (i64 i = (i64)threadIdx.x * V; i < length; i += THREADS * V) {
    pack<T> x;
    if (ALIGNED) x = load16(from_row + i);
    else x.v[0] = from_row[i];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const float share = exponential<T, float>::of(f32(x.v[v]) - level);
      x.v[v] = from<T>(math<float>::mul(share - (i + v == target ? 1.0f : 0.0f), by));
    }
    if (ALIGNED) store16(out + row * length + i, x);
    else out[row * length + i] = x.v[0];
  }
}

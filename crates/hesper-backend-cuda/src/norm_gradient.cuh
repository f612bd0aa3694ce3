// The derivative of norms of rows. A group of THREADS threads has a row in registers, N words of sixteen bytes per
// thread, and takes rows until none is left. It keeps its sums for weight and bias in registers; a block stores one sum
// for each column, and a second kernel adds those of all blocks in order.

// Sums of K values over a group.
template <int THREADS, int K> __device__ __forceinline__ void group_sums(float (&x)[K], float* shared) {
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int m = 16; m > 0; m /= 2) x[k] += __shfl_xor_sync(FULL, x[k], m);
  if (THREADS == 32) return;
  __syncthreads();
  if (threadIdx.x % 32 == 0)
#pragma unroll
    for (int k = 0; k < K; ++k) shared[k * 32 + threadIdx.x / 32] = x[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < K; ++k) {
    x[k] = shared[k * 32];
    for (int w = 1; w < THREADS / 32; ++w) x[k] += shared[k * 32 + w];
  }
}

template <bool CENTRED, class T, int THREADS, int N>
__global__ void __launch_bounds__(THREADS > 256 ? THREADS : 256)
norm_gradient(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ cotangent, T* __restrict__ dx,
              float* __restrict__ sums, i64 rows, i64 length, float eps, i32 weighted, i32 summed) {
  constexpr int V = 16 / sizeof(T), PER = THREADS >= 256 ? 1 : 256 / THREADS, BLOCK = PER * THREADS;
  // Sums of a group, then the columns of all groups.
  __shared__ float shared[BLOCK * V];
  const int lane = threadIdx.x % THREADS;
  float dw[N][V], db[N][V];
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int v = 0; v < V; ++v) dw[n][v] = db[n][v] = 0.0f;
  for (i64 row = (i64)blockIdx.x * PER + threadIdx.x / THREADS; row < rows; row += (i64)gridDim.x * PER) {
    float d[N][V], g[N][V];
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const i64 at = (i64)(n * THREADS + lane) * V;
      pack<T> p, q;
      const bool there = at < length;
      if (there) {
        p = load16(x + row * length + at);
        q = load16(cotangent + row * length + at);
      }
#pragma unroll
      for (int v = 0; v < V; ++v) {
        d[n][v] = there ? f32(p.v[v]) : 0.0f;
        g[n][v] = there ? f32(q.v[v]) : 0.0f;
      }
    }
    if (CENTRED) {
      float mean[1] = {0.0f};
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int v = 0; v < V; ++v) mean[0] += d[n][v];
      group_sums<THREADS, 1>(mean, shared);
      mean[0] /= (float)length;
#pragma unroll
      for (int n = 0; n < N; ++n)
        if ((i64)(n * THREADS + lane) * V < length)
#pragma unroll
          for (int v = 0; v < V; ++v) d[n][v] -= mean[0];
    }
    // The sums of squares, of weighted cotangents times distances, and of weighted cotangents.
    float all[3] = {0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const i64 at = (i64)(n * THREADS + lane) * V;
      pack<T> w;
      if (weighted && at < length) w = load16(weight + at);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float by = weighted && at < length ? g[n][v] * f32(w.v[v]) : g[n][v];
        all[0] = fmaf(d[n][v], d[n][v], all[0]);
        all[1] = fmaf(by, d[n][v], all[1]);
        all[2] += by;
      }
    }
    group_sums<THREADS, 3>(all, shared);
    const float scale = 1.0f / sqrtf(all[0] / (float)length + eps);
    const float along = scale * scale * (all[1] / (float)length), mean = CENTRED ? all[2] / (float)length : 0.0f;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const i64 at = (i64)(n * THREADS + lane) * V;
      if (at < length) {
        pack<T> w, y;
        if (weighted) w = load16(weight + at);
#pragma unroll
        for (int v = 0; v < V; ++v) {
          const float by = weighted ? g[n][v] * f32(w.v[v]) : g[n][v];
          y.v[v] = from<T>((by - mean - d[n][v] * along) * scale);
          dw[n][v] = fmaf(g[n][v], d[n][v] * scale, dw[n][v]);
          db[n][v] += g[n][v];
        }
        store16(dx + row * length + at, y);
      }
    }
  }
  if (!summed) return;
#pragma unroll
  for (int which = 0; which < 2; ++which)
#pragma unroll
    for (int n = 0; n < N; ++n) {
      __syncthreads();
#pragma unroll
      for (int v = 0; v < V; ++v) shared[threadIdx.x * V + v] = which ? db[n][v] : dw[n][v];
      __syncthreads();
      for (int i = threadIdx.x; i < THREADS * V; i += BLOCK) {
        float sum = shared[i];
#pragma unroll
        for (int p = 1; p < PER; ++p) sum += shared[p * THREADS * V + i];
        const i64 column = (i64)n * THREADS * V + i;
        if (column < length) sums[((i64)blockIdx.x * 2 + which) * length + column] = sum;
      }
    }
}

// The cotangents of weight and bias: sums over blocks, 32 columns by 8 shares of the blocks.
template <class T>
__global__ void __launch_bounds__(256)
norm_gradient_vectors(const float* __restrict__ sums, T* __restrict__ out, i64 length, i64 blocks, i32 which) {
  __shared__ float shared[8][33];
  const i64 column = (i64)blockIdx.x * 32 + threadIdx.x % 32, share = threadIdx.x / 32;
  float sum = 0.0f;
  if (column < length)
#pragma unroll 4
    for (i64 b = share; b < blocks; b += 8) sum += sums[(b * 2 + which) * length + column];
  shared[share][threadIdx.x % 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32 || column >= length) return;
  sum = shared[0][threadIdx.x];
  for (int s = 1; s < 8; ++s) sum += shared[s][threadIdx.x];
  out[column] = from<T>(sum);
}

// Row-wise kernels. KIND 0: softmax, 1: log-sum-exp, 2: RMS norm, 3: layer norm.
// Products that are added are written as `fma` or `mul`, so that their rounding does not depend on whether the
// compiler may contract: it may not where a slot is filled.
template <class A> struct math;
template <> struct math<float> {
  static __device__ float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
  static __device__ float mul(float a, float b) { return __fmul_rn(a, b); }
  static __device__ float exp(float x) { return expf(x); }
  static __device__ float log(float x) { return logf(x); }
  static __device__ float rsqrt(float x) { return 1.0f / sqrtf(x); }
  static __device__ float low() { return __int_as_float(0xff800000); }
};
template <> struct math<double> {
  static __device__ double fma(double a, double b, double c) { return __fma_rn(a, b, c); }
  static __device__ double mul(double a, double b) { return __dmul_rn(a, b); }
  static __device__ double exp(double x) { return ::exp(x); }
  static __device__ double log(double x) { return ::log(x); }
  static __device__ double rsqrt(double x) { return 1.0 / sqrt(x); }
  static __device__ double low() { return __longlong_as_double(0xfff0000000000000ull); }
};

// Exponentials in half precision use the device's instruction.
template <class T, class A> struct exponential { static __device__ A of(A x) { return math<A>::exp(x); } };
struct quick_exponential {
  static __device__ __forceinline__ float of(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x * 1.44269504f));
    return r;
  }
};
template <> struct exponential<f16, float> : quick_exponential {};
template <> struct exponential<bf16, float> : quick_exponential {};

template <class A, bool MAX, int THREADS> __device__ __forceinline__ A all(A x, A* shared) {
#pragma unroll
  for (int m = 16; m > 0; m /= 2) {
    const A y = __shfl_xor_sync(FULL, x, m);
    x = MAX ? (x > y || x != x ? x : y) : x + y;
  }
  if (THREADS > 32) {
    const int warp = threadIdx.x / 32;
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[warp] = x;
    __syncthreads();
    x = shared[0];
    for (int w = 1; w < THREADS / 32; ++w) {
      const A y = shared[w];
      x = MAX ? (x > y || x != x ? x : y) : x + y;
    }
  }
  return x;
}

// A sum of exponentials relative to their maximum.
template <class T, class A> struct relative {
  A top, sum;
  // The factor of the sum relative to `other`, which is not lower.
  __device__ __forceinline__ A weight(A other) const {
    return top == math<A>::low() ? (A)0 : exponential<T, A>::of(top - other);
  }
};
template <class T, class A, int THREADS>
__device__ __forceinline__ relative<T, A> all_relative(relative<T, A> x, relative<T, A>* shared) {
  A high = all<A, true, 32>(x.top, nullptr);
  A sum = all<A, false, 32>(math<A>::mul(x.sum, x.weight(high)), nullptr);
  if (THREADS > 32) {
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = relative<T, A>{high, sum};
    __syncthreads();
    for (int w = 0; w < THREADS / 32; ++w) {
      const A top = shared[w].top;
      high = high > top || high != high ? high : top;
    }
    sum = 0;
    for (int w = 0; w < THREADS / 32; ++w) sum = math<A>::fma(shared[w].sum, shared[w].weight(high), sum);
  }
  return relative<T, A>{high, sum};
}

// The logarithm of the sum.
template <class T, class A> __device__ __forceinline__ A relative_log(const relative<T, A>& x) {
  const bool nothing = x.top == math<A>::low(), plain = x.top - x.top == 0;
  return !plain && !nothing ? x.top : math<A>::log(x.sum) + (nothing ? (A)0 : x.top);
}
// The part of a thread of a block: every THREADS-th word of a row of any length, or every THREADS-th element.
template <class T, class A, int THREADS, bool ALIGNED>
__device__ __forceinline__ relative<T, A> row_relative(const source<T>& from, i64 length) {
  constexpr int V = ALIGNED ? 16 / sizeof(T) : 1;
  relative<T, A> mine{math<A>::low(), 0};
#pragma unroll 2
  for (i64 i = (i64)threadIdx.x * V; i < length; i += THREADS * V) {
    A x[V];
    if (ALIGNED) {
      const pack<T> loaded = from.word(i);
#pragma unroll
      for (int v = 0; v < V; ++v) x[v] = as<A, T>::of(loaded.v[v]);
    } else {
      x[0] = as<A, T>::of(from[i]);
    }
    A top = mine.top;
#pragma unroll
    for (int v = 0; v < V; ++v) top = x[v] > top || x[v] != x[v] ? x[v] : top;
    const A own = top == math<A>::low() ? (A)0 : top;
    A sum = math<A>::mul(mine.sum, mine.weight(own));
#pragma unroll
    for (int v = 0; v < V; ++v) sum += exponential<T, A>::of(x[v] - own);
    mine = relative<T, A>{top, sum};
  }
  return mine;
}

// Rows that fit into the registers of a block: N words of sixteen bytes per thread.
template <int KIND, class T, class A, int THREADS, int N>
__global__ void __launch_bounds__(THREADS > 256 ? THREADS : 256)
held(SLOT_BUFFERS(T) const T* __restrict__ weight, const T* __restrict__ bias, SINK_BUFFERS(T), i64 rows,
     i64 length, A eps, i32 weighted, i32 biased SLOT_CONSTANTS SINK_CONSTANTS) {
  constexpr int V = 16 / sizeof(T);
  constexpr int PER = THREADS >= 256 ? 1 : 256 / THREADS;
  __shared__ A shared[64];
  const i64 row = (i64)blockIdx.x * PER + threadIdx.x / THREADS;
  const bool there = row < rows;
  const int lane = threadIdx.x % THREADS;
  const source<T> from = SLOT_SOURCE(T) + (there ? row : 0) * length;
  A x[N][V];
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const i64 at = (i64)(n * THREADS + lane) * V;
    if (at < length) {
      const pack<T> loaded = from.word(at);
#pragma unroll
      for (int v = 0; v < V; ++v) x[n][v] = as<A, T>::of(loaded.v[v]);
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) x[n][v] = KIND < 2 ? math<A>::low() : (A)0;
    }
  }
  A factor = 0, shift = 0;
  if (KIND < 2) {
    // Each thread's exponentials are relative to its own maximum; one reduction gives the maximum and the sum of
    // all.
    A top = math<A>::low();
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int v = 0; v < V; ++v) top = x[n][v] > top || x[n][v] != x[n][v] ? x[n][v] : top;
    const A own = top == math<A>::low() ? (A)0 : top;
    A sum = 0;
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int v = 0; v < V; ++v) {
        x[n][v] = exponential<T, A>::of(x[n][v] - own);
        sum += x[n][v];
      }
    const relative<T, A> mine{top, sum}, whole = all_relative<T, A, THREADS>(mine, (relative<T, A>*)shared);
    if (KIND == 1) {
      if (lane == 0 && there) (SLOT_SINK(T)).put(row, as<T, A>::of(relative_log(whole)));
      return;
    }
    factor = mine.weight(whole.top) / whole.sum;
  } else {
    if (KIND == 3) {
      A sum = 0;
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int v = 0; v < V; ++v) sum += x[n][v];
      shift = all<A, false, THREADS>(sum, shared) / (A)length;
    }
    A squares = 0;
#pragma unroll
    for (int n = 0; n < N; ++n)
      if ((i64)(n * THREADS + lane) * V < length)
#pragma unroll
        for (int v = 0; v < V; ++v) {
          x[n][v] -= shift;
          squares = math<A>::fma(x[n][v], x[n][v], squares);
        }
    squares = all<A, false, THREADS>(squares, shared);
    factor = math<A>::rsqrt(squares / (A)length + eps);
  }
  if (!there) return;
  const sink<T> to = SLOT_SINK(T) + row * length;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const i64 at = (i64)(n * THREADS + lane) * V;
    if (at < length) {
      pack<T> w, b, y;
      if (KIND >= 2 && weighted) w = load16(weight + at);
      if (KIND == 3 && biased) b = load16(bias + at);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        A r = math<A>::mul(x[n][v], factor);
        if (KIND >= 2 && weighted) r = math<A>::mul(r, as<A, T>::of(w.v[v]));
        if (KIND == 3 && biased) r += as<A, T>::of(b.v[v]);
        y.v[v] = as<T, A>::of(r);
      }
      to.word(at, y);
    }
  }
}

// Sums over every THREADS-th word of a row of any length, or over every THREADS-th element: of `x - shift`, or of its squares.
template <class T, class A, int THREADS, bool ALIGNED, bool SQUARES>
__device__ __forceinline__ A row_sum(const source<T>& from, i64 length, A shift) {
  constexpr int V = ALIGNED ? 16 / sizeof(T) : 1;
  A sum = 0;
#pragma unroll 2
  for (i64 i = (i64)threadIdx.x * V; i < length; i += THREADS * V) {
    pack<T> loaded;
    if (ALIGNED) loaded = from.word(i);
    else loaded.v[0] = from[i];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const A x = as<A, T>::of(loaded.v[v]) - shift;
      sum = SQUARES ? math<A>::fma(x, x, sum) : sum + x;
    }
  }
  return sum;
}

// Rows of any length, read once per pass.
template <int KIND, class T, class A, bool ALIGNED>
__global__ void __launch_bounds__(512)
read_again(SLOT_BUFFERS(T) const T* __restrict__ weight, const T* __restrict__ bias, SINK_BUFFERS(T), i64 rows,
           i64 length, A eps, i32 weighted, i32 biased SLOT_CONSTANTS SINK_CONSTANTS) {
  constexpr int V = ALIGNED ? 16 / sizeof(T) : 1;
  __shared__ relative<T, A> shared[32];
  const i64 row = blockIdx.x;
  const source<T> from = SLOT_SOURCE(T) + row * length;
  A factor = 0, shift = 0;
  if (KIND < 2) {
    const relative<T, A> whole =
        all_relative<T, A, 512>(row_relative<T, A, 512, ALIGNED>(from, length), shared);
    if (KIND == 1) {
      if (threadIdx.x == 0) (SLOT_SINK(T)).put(row, as<T, A>::of(relative_log(whole)));
      return;
    }
    factor = (A)1 / whole.sum;
    shift = whole.top;
  } else {
    if (KIND == 3)
      shift = all<A, false, 512>(row_sum<T, A, 512, ALIGNED, false>(from, length, (A)0), (A*)shared) / (A)length;
    const A squares = all<A, false, 512>(row_sum<T, A, 512, ALIGNED, true>(from, length, shift), (A*)shared);
    factor = math<A>::rsqrt(squares / (A)length + eps);
  }
  const sink<T> to = SLOT_SINK(T) + row * length;
  for (i64 i = (i64)threadIdx.x * V; i < length; i += 512 * V) {
    pack<T> x, w, b;
    if (ALIGNED) {
      x = from.word(i);
      if (KIND >= 2 && weighted) w = load16(weight + i);
      if (KIND == 3 && biased) b = load16(bias + i);
    } else {
      x.v[0] = from[i];
      if (KIND >= 2 && weighted) w.v[0] = weight[i];
      if (KIND == 3 && biased) b.v[0] = bias[i];
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      A r = as<A, T>::of(x.v[v]) - shift;
      r = math<A>::mul(KIND == 0 ? exponential<T, A>::of(r) : r, factor);
      if (KIND >= 2 && weighted) r = math<A>::mul(r, as<A, T>::of(w.v[v]));
      if (KIND == 3 && biased) r += as<A, T>::of(b.v[v]);
      x.v[v] = as<T, A>::of(r);
    }
    if (ALIGNED) to.word(i, x);
    else to.put(i, x.v[0]);
  }
}

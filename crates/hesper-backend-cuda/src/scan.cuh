// Cumulative sums, products and extremes. Reversed scans run from the end.
template <class E> struct Sum {
  typedef E T; typedef typename widened<E>::type A;
  static __device__ A first() { return (A)0; }
  static __device__ A merge(A a, A b) { return a + b; }
};
template <class E> struct Product {
  typedef E T; typedef typename widened<E>::type A;
  static __device__ A first() { return (A)1; }
  static __device__ A merge(A a, A b) { return a * b; }
};
// Logarithms of sums of exponentials.
__device__ __forceinline__ float log1p_exp(float x) { return log1pf(expf(x)); }
__device__ __forceinline__ double log1p_exp(double x) { return log1p(exp(x)); }
template <class E> struct LogSum {
  typedef E T; typedef typename widened<E>::type A;
  static __device__ A first() { return (A)-INF; }
  static __device__ A merge(A a, A b) {
    if (not_a_number(a) || not_a_number(b)) return a + b;
    const A high = a > b ? a : b, low = a > b ? b : a;
    return low == (A)-INF || high == (A)INF ? high : high + log1p_exp(low - high);
  }
};
template <class E, bool LARGEST> struct Extreme {
  typedef E T; typedef typename widened<E>::type A;
  static __device__ A first() { return LARGEST ? lowest<A>() : highest<A>(); }
  static __device__ A merge(A a, A b) { return (LARGEST ? a > b : b > a) || not_a_number(a) ? a : b; }
};

template <class Op> __device__ __forceinline__ typename Op::A before(typename Op::A x, typename Op::A* shared,
                                                                     typename Op::A* all) {
  // The combined value of all earlier threads, and of all threads of the block.
  typedef typename Op::A A;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  A sum = x;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const A y = __shfl_up_sync(FULL, sum, d);
    if (lane >= d) sum = Op::merge(y, sum);
  }
  if (lane == 31) shared[warp] = sum;
  __syncthreads();
  A ahead = Op::first();
  A total = Op::first();
#pragma unroll
  for (int w = 0; w < 8; ++w) {
    if (w == warp) ahead = total;
    total = Op::merge(total, shared[w]);
  }
  *all = total;
  const A left = __shfl_up_sync(FULL, sum, 1);
  __syncthreads();
  return lane == 0 ? ahead : Op::merge(ahead, left);
}

// The last axis: one block per row, or per chunk of one. TOTALS: only the chunk's total is written. PACKED: rows
// and chunks start at multiples of sixteen bytes, and are not reversed.
template <class Op, bool TOTALS, bool PACKED>
__global__ void __launch_bounds__(256) along_rows(SLOT_BUFFERS(typename Op::T) const typename Op::A* __restrict__ carries,
                                                  SINK_BUFFERS(typename Op::T), i64 length, i64 chunk, i64 chunks,
                                                  i32 reverse, i32 inclusive, i32 carried SLOT_CONSTANTS SINK_CONSTANTS) {
  typedef typename Op::T T;
  typedef typename Op::A A;
  constexpr int V = PACKED ? 16 / sizeof(T) : 4;
  __shared__ A shared[8];
  const i64 row = blockIdx.x / chunks, c = blockIdx.x % chunks;
  const i64 begin = c * chunk, end = begin + chunk < length ? begin + chunk : length;
  const source<T> from_row = SLOT_SOURCE(T) + row * length;
  A carry = carried ? carries[blockIdx.x] : Op::first();
  for (i64 at = begin; at < end; at += 256 * V) {
    A x[V];
    const i64 i0 = at + threadIdx.x * V;
    A mine = Op::first();
    if (PACKED && i0 + V <= end) {
      const pack<T> loaded = from_row.word(i0);
#pragma unroll
      for (int v = 0; v < V; ++v) x[v] = as<A, T>::of(loaded.v[v < 16 / sizeof(T) ? v : 0]);
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const i64 i = i0 + v;
        x[v] = i < end ? as<A, T>::of(from_row[reverse ? length - 1 - i : i]) : Op::first();
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) mine = Op::merge(mine, x[v]);
    A all;
    A run = Op::merge(carry, before<Op>(mine, shared, &all));
    carry = Op::merge(carry, all);
    if (!TOTALS) {
      const sink<T> to = SLOT_SINK(T) + row * length;
      T results[V];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const A next = Op::merge(run, x[v]);
        results[v] = as<T, A>::of(inclusive ? next : run);
        run = next;
      }
      if (PACKED && i0 + V <= end) {
        pack<T> stored;
#pragma unroll
        for (int v = 0; v < V; ++v) stored.v[v < 16 / sizeof(T) ? v : 0] = results[v];
        to.word(i0, stored);
      } else {
#pragma unroll
        for (int v = 0; v < V; ++v)
          if (i0 + v < end) to.put(reverse ? length - 1 - (i0 + v) : i0 + v, results[v]);
      }
    }
  }
  if (TOTALS && threadIdx.x == 0) ((A*)(void*)out)[blockIdx.x] = carry;
}

// The prefix of each chunk of a row: one thread per row.
template <class Op>
__global__ void __launch_bounds__(256) carried(const typename Op::A* __restrict__ totals, typename Op::A* __restrict__ out,
                                               i64 rows, i64 chunks) {
  const i64 row = (i64)blockIdx.x * 256 + threadIdx.x;
  if (row >= rows) return;
  typename Op::A sum = Op::first();
  for (i64 c = 0; c < chunks; ++c) {
    out[row * chunks + c] = sum;
    sum = Op::merge(sum, totals[row * chunks + c]);
  }
}

// Another axis: a thread to a column.
template <class Op>
__global__ void __launch_bounds__(256) along_columns(SLOT_BUFFERS(typename Op::T) SINK_BUFFERS(typename Op::T),
                                                     i64 outer, i64 length, i64 inner, i32 reverse,
                                                     i32 inclusive SLOT_CONSTANTS SINK_CONSTANTS) {
  typedef typename Op::T T;
  typedef typename Op::A A;
  const i64 column = (i64)blockIdx.x * 256 + threadIdx.x;
  if (column >= outer * inner) return;
  const i64 base = column / inner * length * inner + column % inner;
  const source<T> in = SLOT_SOURCE(T);
  const sink<T> to = SLOT_SINK(T);
  A sum = Op::first();
#pragma unroll 4
  for (i64 i = 0; i < length; ++i) {
    const i64 at = base + (reverse ? length - 1 - i : i) * inner;
    const A next = Op::merge(sum, as<A, T>::of(in[at]));
    to.put(at, as<T, A>::of(inclusive ? next : sum));
    sum = next;
  }
}

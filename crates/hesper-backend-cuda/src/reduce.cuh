// Reductions: how elements become accumulators, how these are combined, and how the last one becomes the result.
struct params { double a, b; u64 mask; i64 turned; };

template <class T> struct total { typedef T type; };
template <> struct total<f16> { typedef float type; };
template <> struct total<bf16> { typedef float type; };
template <> struct total<u8> { typedef u32 type; };
template <> struct total<u16> { typedef u32 type; };
template <> struct total<i8> { typedef i32 type; };
template <> struct total<i16> { typedef i32 type; };
template <class T> struct sum_of { typedef typename total<T>::type type; };
template <> struct sum_of<f16> { typedef f16 type; };
template <> struct sum_of<bf16> { typedef bf16 type; };

template <class T> __device__ __forceinline__ bool above(T a, T b) { return a > b; }
template <> __device__ __forceinline__ bool above(c64 a, c64 b) {
  return a.re > b.re || (a.re == b.re && a.im > b.im);
}
template <class T> __device__ __forceinline__ T plus(T a, T b) { return a + b; }
template <> __device__ __forceinline__ c64 plus(c64 a, c64 b) { return c64{a.re + b.re, a.im + b.im}; }
template <class T> __device__ __forceinline__ T times(T a, T b) { return a * b; }
template <> __device__ __forceinline__ c64 times(c64 a, c64 b) {
  return c64{a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class T> __device__ __forceinline__ T unit() { return (T)1; }
template <> __device__ __forceinline__ c64 unit<c64>() { return c64{1.0f, 0.0f}; }
template <class R, class A> struct scaled { static __device__ R of(A x, double) { return (R)x; } };
template <> struct scaled<float, float> { static __device__ float of(float x, double s) { return x * (float)s; } };
template <> struct scaled<double, double> { static __device__ double of(double x, double s) { return x * s; } };
template <> struct scaled<f16, float> { static __device__ f16 of(float x, double s) { return from<f16>(x * (float)s); } };
template <> struct scaled<bf16, float> { static __device__ bf16 of(float x, double s) { return from<bf16>(x * (float)s); } };
template <> struct scaled<c64, c64> {
  static __device__ c64 of(c64 x, double s) { return c64{x.re * (float)s, x.im * (float)s}; }
};

template <class E> struct Sum {
  typedef E T; typedef typename total<E>::type A; typedef typename sum_of<E>::type R;
  static __device__ A first() { return A{}; }
  static __device__ A load(T x, i64, const params&) { return as<A, T>::of(x); }
  static __device__ A merge(A a, A b) { return plus(a, b); }
  static __device__ R finish(A a, const params& p) { return scaled<R, A>::of(a, p.a); }
};
template <class E> struct Product {
  typedef E T; typedef typename total<E>::type A; typedef typename sum_of<E>::type R;
  static __device__ A first() { return unit<A>(); }
  static __device__ A load(T x, i64, const params&) { return as<A, T>::of(x); }
  static __device__ A merge(A a, A b) { return times(a, b); }
  static __device__ R finish(A a, const params&) { return scaled<R, A>::of(a, 1.0); }
};
template <class E, bool LARGEST> struct Extreme {
  typedef E T; typedef typename widened<E>::type A; typedef E R;
  static __device__ A first() { return LARGEST ? lowest<A>() : highest<A>(); }
  static __device__ A load(T x, i64, const params&) { return as<A, T>::of(x); }
  static __device__ A merge(A a, A b) { return (LARGEST ? above(a, b) : above(b, a)) || not_a_number(a) ? a : b; }
  static __device__ R finish(A a, const params&) { return as<R, A>::of(a); }
};
template <class E, bool LARGEST> struct Arg {
  typedef E T; typedef u32 R;
  typedef typename widened<E>::type W;
  struct A { W x; u32 at; };
  static __device__ A first() { return A{LARGEST ? lowest<W>() : highest<W>(), 0xffffffffu}; }
  static __device__ A load(T x, i64 at, const params& p) {
    return A{as<W, T>::of(x), (u32)(p.turned ? p.turned - 1 - at : at)};
  }
  static __device__ A merge(A a, A b) {
    const bool better = LARGEST ? above(a.x, b.x) : above(b.x, a.x);
    const bool worse = LARGEST ? above(b.x, a.x) : above(a.x, b.x);
    const bool an = not_a_number(a.x), bn = not_a_number(b.x), before = a.at <= b.at;
    return (an || bn ? an && (!bn || before) : better || (!worse && before)) ? a : b;
  }
  static __device__ R finish(A a, const params&) { return a.at; }
};
template <class E> struct Count {
  typedef E T; typedef i32 A; typedef i32 R;
  static __device__ A first() { return 0; }
  static __device__ A load(T x, i64, const params& p) { return (x & (T)p.mask) != 0; }
  static __device__ A merge(A a, A b) { return a + b; }
  static __device__ R finish(A a, const params&) { return a; }
};
template <class E, bool ALL> struct Truth {
  typedef E T; typedef u32 A; typedef u8 R;
  static __device__ A first() { return ALL; }
  static __device__ A load(T x, i64, const params& p) { return (x & (T)p.mask) != 0; }
  static __device__ A merge(A a, A b) { return ALL ? a & b : a | b; }
  static __device__ R finish(A a, const params&) { return (u8)a; }
};
// Sums of elements and of squares; a: count, b: degrees of freedom, mask: whether to take the root.
template <class E> struct Moments {
  typedef E T; typedef E R;
  struct A { double sum, squares; };
  static __device__ A first() { return A{0.0, 0.0}; }
  static __device__ A load(T x, i64, const params&) {
    const double v = (double)as<float, T>::of(x);
    return A{v, v * v};
  }
  static __device__ A merge(A a, A b) { return A{a.sum + b.sum, a.squares + b.squares}; }
  static __device__ R finish(A a, const params& p) {
    double above = a.squares - a.sum * a.sum / p.a;
    if (above < 0.0) above = 0.0;
    const double free = p.a - p.b;
    const double v = above / (free > 0.0 ? free : 0.0);
    return as<R, float>::of((float)(p.mask ? sqrt(v) : v));
  }
};

// The extreme of a word's elements; NaN if there is one.
template <bool LARGEST, class T> __device__ __forceinline__ typename widened<T>::type extreme_of(const pack<T>& x) {
  typedef typename widened<T>::type W;
  W top = as<W, T>::of(x.v[0]);
#pragma unroll
  for (int v = 1; v < 16 / sizeof(T); ++v) {
    const W y = as<W, T>::of(x.v[v]);
    top = (LARGEST ? above(top, y) : above(y, top)) || not_a_number(top) ? top : y;
  }
  return top;
}
#if __CUDA_ARCH__ >= 800
#define EXTREME2(T, NAME) \
  template <bool LARGEST> __device__ __forceinline__ float extreme2(const pack<T>& x) { \
    w16 w; \
    memcpy(&w, &x, 16); \
    u32 a, b; \
    if (LARGEST) { \
      asm("max.NaN." NAME " %0, %1, %2;" : "=r"(a) : "r"(w.v[0]), "r"(w.v[1])); \
      asm("max.NaN." NAME " %0, %1, %2;" : "=r"(b) : "r"(w.v[2]), "r"(w.v[3])); \
      asm("max.NaN." NAME " %0, %0, %1;" : "+r"(a) : "r"(b)); \
      asm("max.NaN." NAME " %0, %1, %2;" : "=r"(b) : "r"(a), "r"(a >> 16)); \
    } else { \
      asm("min.NaN." NAME " %0, %1, %2;" : "=r"(a) : "r"(w.v[0]), "r"(w.v[1])); \
      asm("min.NaN." NAME " %0, %1, %2;" : "=r"(b) : "r"(w.v[2]), "r"(w.v[3])); \
      asm("min.NaN." NAME " %0, %0, %1;" : "+r"(a) : "r"(b)); \
      asm("min.NaN." NAME " %0, %1, %2;" : "=r"(b) : "r"(a), "r"(a >> 16)); \
    } \
    return f32(T{(u16)b}); \
  } \
  template <> __device__ __forceinline__ float extreme_of<true>(const pack<T>& x) { return extreme2<true>(x); } \
  template <> __device__ __forceinline__ float extreme_of<false>(const pack<T>& x) { return extreme2<false>(x); }
EXTREME2(bf16, "bf16x2")
EXTREME2(f16, "f16x2")
#endif

// How a thread reduces words of sixteen bytes: one accumulator per element of a word.
template <class Op> struct fold {
  typedef typename Op::T T;
  typedef typename Op::A A;
  static constexpr int V = 16 / sizeof(T);
  A several[V];
  __device__ __forceinline__ fold() {
#pragma unroll
    for (int v = 0; v < V; ++v) several[v] = Op::first();
  }
  __device__ __forceinline__ void take(const pack<T>& x, i64 at, const params& p) {
#pragma unroll
    for (int v = 0; v < V; ++v) several[v] = Op::merge(several[v], Op::load(x.v[v], at + v, p));
  }
  __device__ __forceinline__ A all() const {
    A acc = several[0];
#pragma unroll
    for (int v = 1; v < V; ++v) acc = Op::merge(acc, several[v]);
    return acc;
  }
  static __device__ __forceinline__ A found(A acc, const source<T>&, i64) { return acc; }
};
// The index of an extreme: of words first, then of the element in the word.
template <class E, bool LARGEST> struct fold<Arg<E, LARGEST>> {
  typedef Arg<E, LARGEST> Op;
  typedef E T;
  typedef typename Op::A A;
  typedef typename Op::W W;
  static constexpr int V = 16 / sizeof(T);
  A best;
  __device__ __forceinline__ fold() : best(Op::first()) {}
  static __device__ __forceinline__ bool beats(W x, W y) { return (LARGEST ? above(x, y) : above(y, x)) || (not_a_number(x) && !not_a_number(y)); }
  __device__ __forceinline__ void take(const pack<T>& x, i64 at, const params&) {
    W top = extreme_of<LARGEST>(x);
    if (beats(top, best.x) || best.at == 0xffffffffu) best = A{top, (u32)at};
  }
  __device__ __forceinline__ A all() const { return best; }
  static __device__ __forceinline__ A found(A acc, const source<T>& base, i64 whole) {
    if (acc.at >= whole) return acc;
    const pack<T> x = base.word(acc.at);
#pragma unroll
    for (int v = V - 1; v >= 0; --v) {
      const W y = as<W, T>::of(x.v[v]);
      if (not_a_number(y) || (!not_a_number(acc.x) && !above(y, acc.x) && !above(acc.x, y))) acc.at = acc.at / V * V + v;
    }
    return acc;
  }
};

// As many steps of U words, THREADS words apart, as fit; returns where the next one begins.
template <int U, int THREADS, class Op>
__device__ __forceinline__ i64 go_over(fold<Op>& mine, const source<typename Op::T>& base, i64 i, i64 end,
                                       const params& p) {
  constexpr int V = fold<Op>::V;
  for (; i + (U - 1) * THREADS * V + V <= end; i += U * THREADS * V) {
    pack<typename Op::T> x[U];
#pragma unroll
    for (int n = 0; n < U; ++n) x[n] = base.word(i + n * THREADS * V);
#pragma unroll
    for (int n = 0; n < U; ++n) mine.take(x[n], i + n * THREADS * V, p);
  }
  return i;
}

// The innermost axes are reduced: THREADS of a block share a result (or a chunk of one). A thread has U words in
// flight.
template <class Op, int THREADS, bool PACKED, int U>
__global__ void __launch_bounds__(256, U > 8 ? 2 : 4) rows(SLOT_BUFFERS(typename Op::T) void* __restrict__ out, walk kept,
                                            walk reduced, i64 kept_rank, i64 reduced_rank, i64 outputs, i64 length,
                                            i64 chunk, i64 chunks, params p SLOT_CONSTANTS) {
  typedef typename Op::T T;
  typedef typename Op::A A;
  constexpr int V = 16 / sizeof(T);
  const i64 unit = (i64)blockIdx.x * (256 / THREADS) + threadIdx.x / THREADS;
  const bool there = unit < outputs * chunks;
  i64 o = there ? unit : 0, c = 0;
  if (chunks > 1) {
    c = (u32)o % (u32)chunks;
    o = (u32)o / (u32)chunks;
  }
  const i64 begin = c * chunk, end = !there ? begin : (begin + chunk < length ? begin + chunk : length);
  const source<T> base = SLOT_SOURCE(T) + place(kept, (int)kept_rank, o);
  const int lane = threadIdx.x % THREADS;
  A acc = Op::first();
  const i64 whole = begin + (end - begin) / V * V;
  if (PACKED) {
    fold<Op> mine;
    i64 i = begin + lane * V;
    i = go_over<U, THREADS>(mine, base, i, end, p);
    i = go_over<U / 4, THREADS>(mine, base, i, end, p);
    go_over<1, THREADS>(mine, base, i, end, p);
    acc = mine.all();
    if (whole + lane < end) acc = Op::merge(acc, Op::load(base[whole + lane], whole + lane, p));
  } else {
#pragma unroll 4
    for (i64 i = begin + lane; i < end; i += THREADS)
      acc = Op::merge(acc, Op::load(base[place(reduced, (int)reduced_rank, i)], i, p));
  }
#pragma unroll
  for (int m = (THREADS < 32 ? THREADS : 32) / 2; m > 0; m /= 2) acc = Op::merge(acc, shuffled(acc, m));
  if (THREADS > 32) {
    __shared__ A warps[8];
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = acc;
    __syncthreads();
    if (lane == 0)
      for (int w = 1; w < THREADS / 32; ++w) acc = Op::merge(acc, warps[threadIdx.x / 32 + w]);
  }
  if (lane == 0 && there) {
    if (PACKED) acc = fold<Op>::found(acc, base, whole);
    if (chunks == 1) ((typename Op::R*)out)[o] = Op::finish(acc, p);
    else ((A*)out)[o * chunks + c] = acc;
  }
}

// The innermost kept axis is inside of the reduced ones: neighbouring threads compute neighbouring results.
template <class Op, int V, int U>
__global__ void __launch_bounds__(256, 4) columns(SLOT_BUFFERS(typename Op::T) void* __restrict__ out, walk kept,
                                               walk reduced, i64 kept_rank, i64 reduced_rank, i64 outer, i64 width,
                                               i64 length, i64 chunk, i64 chunks, params p SLOT_CONSTANTS) {
  typedef typename Op::T T;
  typedef typename Op::A A;
  __shared__ A parts[8][32 * V];
  const u32 across = (u32)((width + 32 * V - 1) / (32 * V));
  u32 b = blockIdx.x;
  const i64 cb = b % across; b /= across;
  const i64 c = b % (u32)chunks, o = b / (u32)chunks;
  const int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  const i64 col = cb * 32 * V + tx * V;
  const i64 begin = c * chunk, end = begin + chunk < length ? begin + chunk : length;
  A acc[V];
#pragma unroll
  for (int v = 0; v < V; ++v) acc[v] = Op::first();
  if (col < width) {
    const source<T> base = SLOT_SOURCE(T) + ((kept_rank > 0 ? place(kept, (int)kept_rank, o) : 0) + col);
    i64 r = begin + ty;
    if (V > 1 && reduced_rank == 1) {
      const i64 down = 8 * reduced.stride[0];
      i64 at = r * reduced.stride[0];
      for (; r + 8 * (U - 1) < end; r += 8 * U, at += U * down) {
        pack<T> x[U];
#pragma unroll
        for (int n = 0; n < U; ++n) x[n] = base.word(at + n * down);
#pragma unroll
        for (int n = 0; n < U; ++n)
#pragma unroll
          for (int v = 0; v < V; ++v)
            acc[v] = Op::merge(acc[v], Op::load(x[n].v[v < 16 / sizeof(T) ? v : 0], r + 8 * n, p));
      }
    }
    for (; r < end; r += 8) {
      const i64 at = reduced_rank == 1 ? r * reduced.stride[0] : place(reduced, (int)reduced_rank, r);
      T x[V];
      if (V > 1) {
        const pack<T> loaded = base.word(at);
#pragma unroll
        for (int v = 0; v < V; ++v) x[v] = loaded.v[v];
      } else {
        x[0] = base[at];
      }
#pragma unroll
      for (int v = 0; v < V; ++v) acc[v] = Op::merge(acc[v], Op::load(x[v], r, p));
    }
  }
#pragma unroll
  for (int v = 0; v < V; ++v) parts[ty][tx * V + v] = acc[v];
  __syncthreads();
  for (int i = threadIdx.x; i < 32 * V; i += 256) {
    A all = parts[0][i];
    for (int y = 1; y < 8; ++y) all = Op::merge(all, parts[y][i]);
    const i64 at = cb * 32 * V + i;
    if (at < width) {
      if (chunks == 1) ((typename Op::R*)out)[o * width + at] = Op::finish(all, p);
      else ((A*)out)[(o * chunks + c) * width + at] = all;
    }
  }
}

// Combines the chunks of each result, which are `inner` accumulators apart. SIDE neighbouring threads have
// neighbouring results.
template <class Op, int SIDE>
__global__ void __launch_bounds__(256) chunks_of(const typename Op::A* __restrict__ in, typename Op::R* __restrict__ out,
                                                 i64 outputs, i64 inner, i64 chunks, params p) {
  typedef typename Op::A A;
  constexpr int ACROSS = 256 / SIDE;
  __shared__ A parts[ACROSS][SIDE];
  const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
  const i64 o = (i64)blockIdx.x * SIDE + tx;
  A acc = Op::first();
  if (o < outputs) {
    const i64 base = o / inner * chunks * inner + o % inner;
#pragma unroll 4
    for (i64 c = ty; c < chunks; c += ACROSS) acc = Op::merge(acc, in[base + c * inner]);
  }
  parts[ty][tx] = acc;
#pragma unroll
  for (int half = ACROSS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (ty < half) parts[ty][tx] = acc = Op::merge(acc, parts[ty + half][tx]);
  }
  if (ty == 0 && o < outputs) out[o] = Op::finish(acc, p);
}

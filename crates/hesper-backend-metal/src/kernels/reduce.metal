// Reductions: how elements become accumulators, how these are combined, and how the last one becomes the result.
struct Reduction {
  Walk kept;
  Walk reduced;
  int outputs;
  int length;
  // Each result is made of `chunks` parts of `chunk` elements.
  int chunk;
  int chunks;
  float scale;
  float ddof;
  uint mask_low;
  uint mask_high;
  // The length of the reduced axis if it is traversed backwards, else 0.
  int reversed_length;
  SLOT_FIELDS
};

template <typename T> struct total { typedef T type; typedef T result; };
template <> struct total<half> { typedef float type; typedef half result; };
template <> struct total<bf16> { typedef float type; typedef bf16 result; };
template <> struct total<uchar> { typedef uint type; typedef uint result; };
template <> struct total<ushort> { typedef uint type; typedef uint result; };
template <> struct total<char> { typedef int type; typedef int result; };
template <> struct total<short> { typedef int type; typedef int result; };

template <typename A, typename T> struct convert { static A of(T x) { return A(x); } };
template <> struct convert<float, bf16> { static float of(bf16 x) { return to_float(x); } };
template <> struct convert<bf16, float> { static bf16 of(float x) { return number<bf16>::of(x); } };
template <> struct convert<c64, c64> { static c64 of(c64 x) { return x; } };

template <typename T> inline T lane_xor(T x, ushort m) { return simd_shuffle_xor(x, m); }
inline ulong lane_xor(ulong x, ushort m) { return as_type<ulong>(simd_shuffle_xor(as_type<uint2>(x), m)); }
inline long lane_xor(long x, ushort m) { return as_type<long>(simd_shuffle_xor(as_type<uint2>(x), m)); }
inline c64 lane_xor(c64 x, ushort m) { return c64{simd_shuffle_xor(x.re, m), simd_shuffle_xor(x.im, m)}; }

template <typename T> inline bool above(T a, T b) { return a > b; }
inline bool above(c64 a, c64 b) { return a.re > b.re || (a.re == b.re && a.im > b.im); }
template <typename T> inline T plus_of(T a, T b) { return a + b; }
inline c64 plus_of(c64 a, c64 b) { return c64{a.re + b.re, a.im + b.im}; }
template <typename T> inline T times_of(T a, T b) { return a * b; }
inline c64 times_of(c64 a, c64 b) { return c64{a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
template <typename T> inline bool not_a_number(T) { return false; }
inline bool not_a_number(float x) { return is_nan_of(x); }
inline bool not_a_number(c64 x) { return is_nan_of(x.re) || is_nan_of(x.im); }

template <typename T> struct limit {
  static T low() { return numeric_limits<T>::lowest(); }
  static T high() { return numeric_limits<T>::max(); }
};
template <> struct limit<float> {
  static float low() { return -INFINITY; }
  static float high() { return INFINITY; }
};
template <> struct limit<c64> {
  static c64 low() { return c64{-INFINITY, -INFINITY}; }
  static c64 high() { return c64{INFINITY, INFINITY}; }
};

template <typename A> struct scaled { static A of(A x, float) { return x; } };
template <> struct scaled<float> { static float of(float x, float s) { return x * s; } };
template <> struct scaled<c64> { static c64 of(c64 x, float s) { return c64{x.re * s, x.im * s}; } };
template <typename A> struct unit { static A one() { return A(1); } static A zero() { return A(0); } };
template <> struct unit<c64> { static c64 one() { return c64{1.0f, 0.0f}; } static c64 zero() { return c64{0.0f, 0.0f}; } };

template <typename E> struct Sum {
  typedef E T; typedef typename total<E>::type A; typedef typename total<E>::result R;
  static A first() { return unit<A>::zero(); }
  static A load(T x, int, constant Reduction&) { return convert<A, T>::of(x); }
  static A merge(A a, A b) { return plus_of(a, b); }
  static A across(A a, ushort m) { return lane_xor(a, m); }
  static R finish(A a, constant Reduction& r) { return convert<R, A>::of(scaled<A>::of(a, r.scale)); }
};
template <typename E> struct Product {
  typedef E T; typedef typename total<E>::type A; typedef typename total<E>::result R;
  static A first() { return unit<A>::one(); }
  static A load(T x, int, constant Reduction&) { return convert<A, T>::of(x); }
  static A merge(A a, A b) { return times_of(a, b); }
  static A across(A a, ushort m) { return lane_xor(a, m); }
  static R finish(A a, constant Reduction&) { return convert<R, A>::of(a); }
};
template <typename E, bool LARGEST> struct Extreme {
  typedef E T; typedef typename widened<E>::type A; typedef E R;
  static A first() { return LARGEST ? limit<A>::low() : limit<A>::high(); }
  static A load(T x, int, constant Reduction&) { return convert<A, T>::of(x); }
  static A merge(A a, A b) { return (LARGEST ? above(a, b) : above(b, a)) || not_a_number(a) ? a : b; }
  static A across(A a, ushort m) { return lane_xor(a, m); }
  static R finish(A a, constant Reduction&) { return convert<R, A>::of(a); }
};
template <typename W> struct Candidate { W x; uint at; };
template <typename E, bool LARGEST> struct Arg {
  typedef typename widened<E>::type W;
  typedef E T; typedef Candidate<W> A; typedef uint R;
  static A first() { return A{LARGEST ? limit<W>::low() : limit<W>::high(), 0xffffffffu}; }
  static A load(T x, int at, constant Reduction& r) {
    return A{convert<W, T>::of(x), uint(r.reversed_length != 0 ? r.reversed_length - 1 - at : at)};
  }
  static A merge(A a, A b) {
    const bool better = LARGEST ? above(a.x, b.x) : above(b.x, a.x);
    const bool worse = LARGEST ? above(b.x, a.x) : above(a.x, b.x);
    const bool an = not_a_number(a.x), bn = not_a_number(b.x), before = a.at <= b.at;
    return (an || bn ? an && (!bn || before) : better || (!worse && before)) ? a : b;
  }
  static A across(A a, ushort m) { return A{lane_xor(a.x, m), lane_xor(a.at, m)}; }
  static R finish(A a, constant Reduction&) { return a.at; }
};
// Bits of an element other than those of a zero.
inline bool is_set(uchar x, constant Reduction& r) { return (uint(x) & r.mask_low) != 0; }
inline bool is_set(ushort x, constant Reduction& r) { return (uint(x) & r.mask_low) != 0; }
inline bool is_set(uint x, constant Reduction& r) { return (x & r.mask_low) != 0; }
inline bool is_set(uint2 x, constant Reduction& r) { return ((x.x & r.mask_low) | (x.y & r.mask_high)) != 0; }
template <typename E> struct Count {
  typedef E T; typedef int A; typedef int R;
  static A first() { return 0; }
  static A load(T x, int, constant Reduction& r) { return is_set(x, r) ? 1 : 0; }
  static A merge(A a, A b) { return a + b; }
  static A across(A a, ushort m) { return lane_xor(a, m); }
  static R finish(A a, constant Reduction&) { return a; }
};
template <typename E, bool ALL> struct Truth {
  typedef E T; typedef uint A; typedef uchar R;
  static A first() { return ALL ? 1u : 0u; }
  static A load(T x, int, constant Reduction& r) { return is_set(x, r) ? 1u : 0u; }
  static A merge(A a, A b) { return ALL ? a & b : a | b; }
  static A across(A a, ushort m) { return lane_xor(a, m); }
  static R finish(A a, constant Reduction&) { return uchar(a); }
};
// Count, mean and sum of squared differences from it.
struct Moments3 { float count; float mean; float squares; };
template <typename E, bool ROOT> struct Variance {
  typedef E T; typedef Moments3 A; typedef E R;
  static A first() { return A{0.0f, 0.0f, 0.0f}; }
  static A load(T x, int, constant Reduction&) { return A{1.0f, to_float(x), 0.0f}; }
  static A merge(A a, A b) {
    const float count = a.count + b.count, apart = b.mean - a.mean;
    if (b.count == 0.0f) return a;
    if (a.count == 0.0f) return b;
    return A{count, a.mean + apart * (b.count / count),
             a.squares + b.squares + apart * apart * (a.count * b.count / count)};
  }
  static A across(A a, ushort m) {
    return A{simd_shuffle_xor(a.count, m), simd_shuffle_xor(a.mean, m), simd_shuffle_xor(a.squares, m)};
  }
  static R finish(A a, constant Reduction& r) {
    const float free = r.scale - r.ddof, v = a.squares / (free > 0.0f ? free : 0.0f);
    return number<R>::of(ROOT ? precise::sqrt(v) : v);
  }
};

template <typename Op>
inline typename Op::A merge_group(typename Op::A x, threadgroup typename Op::A* cells, uint thread_index, uint threads) {
  for (ushort m = 16; m > 0; m /= 2) x = Op::merge(x, Op::across(x, m));
  if (threads > 32) {
    if (thread_index % 32 == 0) cells[thread_index / 32] = x;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x = cells[0];
    for (uint s = 1; s < threads / 32; ++s) x = Op::merge(x, cells[s]);
  }
  return x;
}

template <typename Op>
inline typename Op::A merge_elements(Source<typename Op::T> in, constant Reduction& r, int output, int begin, int end,
                                     int step) {
  const int base = place(r.kept, output);
  typename Op::A x = Op::first();
  for (int i = begin; i < end; i += step) x = Op::merge(x, Op::load(in.at(base + place(r.reduced, i)), i, r));
  return x;
}

// A threadgroup for each result.
template <typename Op>
[[kernel]] void reduce_rows(SLOT_BUFFERS(typename Op::T) device typename Op::R* out, constant Reduction& r,
                            uint group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]],
                            uint threads [[threads_per_threadgroup]]) {
  threadgroup typename Op::A cells[8];
  const Source<typename Op::T> in = SLOT_SOURCE(typename Op::T, r);
  typename Op::A x = merge_elements<Op>(in, r, int(group), int(thread_index), r.length, int(threads));
  x = merge_group<Op>(x, cells, thread_index, threads);
  if (thread_index == 0) out[group] = Op::finish(x, r);
}

// A threadgroup for each part of a result.
template <typename Op>
[[kernel]] void reduce_chunks(SLOT_BUFFERS(typename Op::T) device typename Op::A* out, constant Reduction& r,
                              uint group [[threadgroup_position_in_grid]],
                              uint thread_index [[thread_index_in_threadgroup]],
                              uint threads [[threads_per_threadgroup]]) {
  threadgroup typename Op::A cells[8];
  const int output = int(group) / r.chunks, begin = (int(group) % r.chunks) * r.chunk;
  const int end = min(begin + r.chunk, r.length);
  const Source<typename Op::T> in = SLOT_SOURCE(typename Op::T, r);
  typename Op::A x = merge_elements<Op>(in, r, output, begin + int(thread_index), end, int(threads));
  x = merge_group<Op>(x, cells, thread_index, threads);
  if (thread_index == 0) out[group] = x;
}

// The results of their parts.
template <typename Op>
[[kernel]] void join_chunks(device const typename Op::A* parts [[buffer(0)]], device typename Op::R* out [[buffer(1)]],
                            constant Reduction& r [[buffer(2)]], uint n [[thread_position_in_grid]]) {
  typename Op::A x = Op::first();
  for (int c = 0; c < r.chunks; ++c) x = Op::merge(x, parts[int(n) * r.chunks + c]);
  out[n] = Op::finish(x, r);
}

// A thread for each result.
template <typename Op>
[[kernel]] void reduce_columns(SLOT_BUFFERS(typename Op::T) device typename Op::R* out, constant Reduction& r,
                               uint n [[thread_position_in_grid]]) {
  const Source<typename Op::T> in = SLOT_SOURCE(typename Op::T, r);
  out[n] = Op::finish(merge_elements<Op>(in, r, int(n), 0, r.length, 1), r);
}

// Cumulative sums, products and extremes. Reversed scans run from the end.
struct ScanParams { int length; int inner; int reverse; int inclusive; SLOT_FIELDS SINK_FIELDS };

template <typename T> inline T lane_up(T x, ushort d) { return simd_shuffle_up(x, d); }
inline ulong lane_up(ulong x, ushort d) { return as_type<ulong>(simd_shuffle_up(as_type<uint2>(x), d)); }
inline long lane_up(long x, ushort d) { return as_type<long>(simd_shuffle_up(as_type<uint2>(x), d)); }

inline c64 lane_up(c64 x, ushort d) { return c64{simd_shuffle_up(x.re, d), simd_shuffle_up(x.im, d)}; }

template <typename A> inline bool not_a_number(A) { return false; }
inline bool not_a_number(float x) { return is_nan_of(x); }
inline bool not_a_number(c64 x) { return is_nan_of(x.re) || is_nan_of(x.im); }
template <typename A> inline bool above(A a, A b) { return a > b; }
inline bool above(c64 a, c64 b) { return a.re > b.re || (a.re == b.re && a.im > b.im); }
template <typename A> struct limit {
  static A low() { return numeric_limits<A>::lowest(); }
  static A high() { return numeric_limits<A>::max(); }
};
template <> struct limit<float> {
  static float low() { return -INFINITY; }
  static float high() { return INFINITY; }
};

template <> struct limit<c64> {
  static c64 low() { return c64{-INFINITY, -INFINITY}; }
  static c64 high() { return c64{INFINITY, INFINITY}; }
};

template <typename E> struct Sum {
  typedef E T; typedef typename widened<E>::type A;
  static A first() { return A(0); }
  static A merge(A a, A b) { return a + b; }
};
template <typename E> struct Product {
  typedef E T; typedef typename widened<E>::type A;
  static A first() { return A(1); }
  static A merge(A a, A b) { return a * b; }
};
template <> struct Sum<c64> {
  typedef c64 T; typedef c64 A;
  static c64 first() { return c64{0.0f, 0.0f}; }
  static c64 merge(c64 a, c64 b) { return c64{a.re + b.re, a.im + b.im}; }
};
template <> struct Product<c64> {
  typedef c64 T; typedef c64 A;
  static c64 first() { return c64{1.0f, 0.0f}; }
  static c64 merge(c64 a, c64 b) { return c64{a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
};
// Logarithms of sums of exponentials.
template <typename E> struct LogSum {
  typedef E T; typedef typename widened<E>::type A;
  static A first() { return -INFINITY; }
  static A merge(A a, A b) {
    if (is_nan_of(a) || is_nan_of(b)) return NAN;
    const A high = a > b ? a : b, low = a > b ? b : a;
    return low == -INFINITY || high == INFINITY ? high : high + log1p_of(precise::exp(low - high));
  }
  // log(1 + x) without the loss of small x.
  static float log1p_of(float x) {
    const float u = 1.0f + x;
    return u == 1.0f ? x : precise::log(u) * (x / (u - 1.0f));
  }
};
template <typename E, bool LARGEST> struct Extreme {
  typedef E T; typedef typename widened<E>::type A;
  static A first() { return LARGEST ? limit<A>::low() : limit<A>::high(); }
  static A merge(A a, A b) {
    const bool first = LARGEST ? above(a, b) : above(b, a);
    return not_a_number(a) || (first && !not_a_number(b)) ? a : b;
  }
};

// The last axis: a threadgroup of 256 threads for each row.
template <typename Op>
[[kernel]] void scan_rows(SLOT_BUFFERS(typename Op::T) SINK_BUFFERS(typename Op::T), constant ScanParams& p,
                          uint group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]]) {
  typedef typename Op::T T;
  typedef typename Op::A A;
  threadgroup A cells[8];
  const uint lane = thread_index % 32, simd = thread_index / 32;
  const Source<T> row = SLOT_SOURCE(T, p).from(int(group) * p.length);
  const Sink<T> to = SLOT_SINK(T, p).from(int(group) * p.length);
  A carry = Op::first();
  for (int start = 0; start < p.length; start += 256) {
    const int i = start + int(thread_index), at = p.reverse != 0 ? p.length - 1 - i : i;
    const A own = i < p.length ? widened<T>::of(row.at(at)) : Op::first();
    A sum = own;
    for (ushort d = 1; d < 32; d *= 2) {
      const A before = lane_up(sum, d);
      if (lane >= d) sum = Op::merge(before, sum);
    }
    const A previous = lane_up(sum, 1);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 31) cells[simd] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    A ahead = carry;
    for (uint s = 0; s < 8; ++s) {
      if (s == simd) ahead = carry;
      carry = Op::merge(carry, cells[s]);
    }
    if (lane > 0) ahead = Op::merge(ahead, previous);
    if (p.inclusive != 0) ahead = Op::merge(ahead, own);
    if (i < p.length) to.put(at, widened<T>::back(ahead));
  }
}

// Another axis: a thread for each column.
template <typename Op>
[[kernel]] void scan_columns(SLOT_BUFFERS(typename Op::T) SINK_BUFFERS(typename Op::T), constant ScanParams& p,
                             uint n [[thread_position_in_grid]]) {
  typedef typename Op::T T;
  const Source<T> in = SLOT_SOURCE(T, p);
  const Sink<T> to = SLOT_SINK(T, p);
  const int column = int(n), base = column / p.inner * p.length * p.inner + column % p.inner;
  typename Op::A sum = Op::first();
  for (int i = 0; i < p.length; ++i) {
    const int at = base + (p.reverse != 0 ? p.length - 1 - i : i) * p.inner;
    const typename Op::A next = Op::merge(sum, widened<T>::of(in.at(at)));
    to.put(at, widened<T>::back(p.inclusive != 0 ? next : sum));
    sum = next;
  }
}

// The part of the library that is written in the dialect itself: compiled before every kernel.

template <typename T, T v>
struct integral_constant { static constant constexpr T value = v; };
using true_type = integral_constant<bool, true>;
using false_type = integral_constant<bool, false>;

template <typename A, typename B> struct is_same { static constant constexpr bool value = false; };
template <typename A> struct is_same<A, A> { static constant constexpr bool value = true; };
template <typename A, typename B> constant constexpr bool is_same_v = is_same<A, B>::value;

template <typename T> struct is_integral { static constant constexpr bool value = false; };
template <typename T> struct is_floating_point { static constant constexpr bool value = false; };
template <typename T> struct is_signed { static constant constexpr bool value = false; };
template <typename T> struct is_unsigned { static constant constexpr bool value = false; };
#define HESPER_TRAIT(trait, type) template <> struct trait<type> { static constant constexpr bool value = true; };
#define HESPER_SIGNED(type) HESPER_TRAIT(is_integral, type) HESPER_TRAIT(is_signed, type)
#define HESPER_UNSIGNED(type) HESPER_TRAIT(is_integral, type) HESPER_TRAIT(is_unsigned, type)
#define HESPER_FLOAT(type) HESPER_TRAIT(is_floating_point, type) HESPER_TRAIT(is_signed, type)
HESPER_UNSIGNED(bool) HESPER_SIGNED(char) HESPER_SIGNED(short) HESPER_SIGNED(int) HESPER_SIGNED(long)
HESPER_UNSIGNED(uchar) HESPER_UNSIGNED(ushort) HESPER_UNSIGNED(uint) HESPER_UNSIGNED(ulong)
HESPER_FLOAT(half) HESPER_FLOAT(bfloat) HESPER_FLOAT(float)
#undef HESPER_TRAIT
#undef HESPER_SIGNED
#undef HESPER_UNSIGNED
#undef HESPER_FLOAT
template <typename T> constant constexpr bool is_integral_v = is_integral<T>::value;
template <typename T> constant constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <typename T> constant constexpr bool is_signed_v = is_signed<T>::value;
template <typename T> constant constexpr bool is_unsigned_v = is_unsigned<T>::value;

template <typename A, typename B = false_type, typename C = false_type, typename D = false_type,
          typename E = false_type, typename F = false_type>
struct disjunction {
  static constant constexpr bool value =
      A::value || B::value || C::value || D::value || E::value || F::value;
};
template <typename A, typename B = true_type, typename C = true_type, typename D = true_type,
          typename E = true_type, typename F = true_type>
struct conjunction {
  static constant constexpr bool value =
      A::value && B::value && C::value && D::value && E::value && F::value;
};
template <typename A, typename B = false_type, typename C = false_type, typename D = false_type,
          typename E = false_type, typename F = false_type>
using _disjunction = disjunction<A, B, C, D, E, F>;
template <bool condition, typename T = void> struct enable_if {};
template <typename T> struct enable_if<true, T> { using type = T; };
template <bool condition, typename T = void> using enable_if_t = typename enable_if<condition, T>::type;
template <bool condition, typename A, typename B> struct conditional { using type = B; };
template <typename A, typename B> struct conditional<true, A, B> { using type = A; };
template <bool condition, typename A, typename B>
using conditional_t = typename conditional<condition, A, B>::type;
template <bool condition, typename A, typename B> struct ConditionalType { using type = B; };
template <typename A, typename B> struct ConditionalType<true, A, B> { using type = A; };

#define HESPER_SHUFFLE(name)                                                              \
  inline complex64_t name(complex64_t data, ushort lane) {                                \
    return complex64_t(name(data.real, lane), name(data.imag, lane));                     \
  }
HESPER_SHUFFLE(simd_shuffle) HESPER_SHUFFLE(simd_shuffle_up) HESPER_SHUFFLE(simd_shuffle_down)
HESPER_SHUFFLE(simd_shuffle_xor) HESPER_SHUFFLE(simd_broadcast)
#undef HESPER_SHUFFLE
inline complex64_t simd_sum(complex64_t v) { return complex64_t(simd_sum(v.real), simd_sum(v.imag)); }

// Small matrices, by columns.
template <typename T, int C, int R> struct matrix;
#define HESPER_MATRIX_COMMON                                             \
  thread vec<T, R>& operator[](int i) { return columns[i]; }
template <typename T, int R> struct matrix<T, 2, R> {
  vec<T, R> columns[2];
  template <typename U> matrix(matrix<U, 2, R> m)
      : columns{vec<T, R>(m.columns[0]), vec<T, R>(m.columns[1])} {}
  matrix() : columns{vec<T, R>(0), vec<T, R>(0)} {}
  matrix(T d) : columns{vec<T, R>(0), vec<T, R>(0)} { columns[0][0] = d; columns[1][1] = d; }
  matrix(vec<T, R> a, vec<T, R> b) : columns{a, b} {}
  matrix(T a, T b, T c, T d) : columns{vec<T, 2>(a, b), vec<T, 2>(c, d)} {}
  HESPER_MATRIX_COMMON
};
template <typename T, int R> struct matrix<T, 3, R> {
  vec<T, R> columns[3];
  template <typename U> matrix(matrix<U, 3, R> m)
      : columns{vec<T, R>(m.columns[0]), vec<T, R>(m.columns[1]), vec<T, R>(m.columns[2])} {}
  matrix() : columns{vec<T, R>(0), vec<T, R>(0), vec<T, R>(0)} {}
  matrix(T d) : columns{vec<T, R>(0), vec<T, R>(0), vec<T, R>(0)} {
    columns[0][0] = d;
    columns[1][1] = d;
    if constexpr (R > 2) { columns[2][2] = d; }
  }
  matrix(vec<T, R> a, vec<T, R> b, vec<T, R> c) : columns{a, b, c} {}
  matrix(T a, T b, T c, T d, T e, T f, T g, T h, T i)
      : columns{vec<T, 3>(a, b, c), vec<T, 3>(d, e, f), vec<T, 3>(g, h, i)} {}
  HESPER_MATRIX_COMMON
};
template <typename T, int R> struct matrix<T, 4, R> {
  vec<T, R> columns[4];
  template <typename U> matrix(matrix<U, 4, R> m)
      : columns{vec<T, R>(m.columns[0]), vec<T, R>(m.columns[1]),
                vec<T, R>(m.columns[2]), vec<T, R>(m.columns[3])} {}
  matrix() : columns{vec<T, R>(0), vec<T, R>(0), vec<T, R>(0), vec<T, R>(0)} {}
  matrix(T d) : columns{vec<T, R>(0), vec<T, R>(0), vec<T, R>(0), vec<T, R>(0)} {
    columns[0][0] = d;
    columns[1][1] = d;
    if constexpr (R > 2) { columns[2][2] = d; }
    if constexpr (R > 3) { columns[3][3] = d; }
  }
  matrix(vec<T, R> a, vec<T, R> b, vec<T, R> c, vec<T, R> d) : columns{a, b, c, d} {}
  matrix(T a, T b, T c, T d, T e, T f, T g, T h, T i, T j, T k, T l, T m, T n, T o, T p)
      : columns{vec<T, 4>(a, b, c, d), vec<T, 4>(e, f, g, h), vec<T, 4>(i, j, k, l), vec<T, 4>(m, n, o, p)} {}
  HESPER_MATRIX_COMMON
};
#undef HESPER_MATRIX_COMMON
using float2x2 = matrix<float, 2, 2>; using float2x3 = matrix<float, 2, 3>; using float2x4 = matrix<float, 2, 4>;
using float3x2 = matrix<float, 3, 2>; using float3x3 = matrix<float, 3, 3>; using float3x4 = matrix<float, 3, 4>;
using float4x2 = matrix<float, 4, 2>; using float4x3 = matrix<float, 4, 3>; using float4x4 = matrix<float, 4, 4>;
using bfloat4x4 = matrix<bfloat, 4, 4>;
using half2x2 = matrix<half, 2, 2>; using half2x3 = matrix<half, 2, 3>; using half2x4 = matrix<half, 2, 4>;
using half3x2 = matrix<half, 3, 2>; using half3x3 = matrix<half, 3, 3>; using half3x4 = matrix<half, 3, 4>;
using half4x2 = matrix<half, 4, 2>; using half4x3 = matrix<half, 4, 3>; using half4x4 = matrix<half, 4, 4>;

template <typename T, int C, int R>
vec<T, R> operator*(matrix<T, C, R> m, vec<T, C> v) {
  vec<T, R> sum = m.columns[0] * v[0];
#pragma unroll
  for (int i = 1; i < C; ++i) { sum += m.columns[i] * v[i]; }
  return sum;
}
template <typename T, int C, int R>
vec<T, C> operator*(vec<T, R> v, matrix<T, C, R> m) {
  vec<T, C> out = vec<T, C>(0);
#pragma unroll
  for (int i = 0; i < C; ++i) { out[i] = dot(v, m.columns[i]); }
  return out;
}
template <typename T, int K, int R, int C>
matrix<T, C, R> operator*(matrix<T, K, R> a, matrix<T, C, K> b) {
  matrix<T, C, R> out;
#pragma unroll
  for (int i = 0; i < C; ++i) { out.columns[i] = a * b.columns[i]; }
  return out;
}
#define HESPER_MATRIX_MAP(op)                                                              \
  template <typename T, int C, int R>                                                      \
  matrix<T, C, R> operator op(matrix<T, C, R> a, matrix<T, C, R> b) {                      \
    _Pragma("unroll") for (int i = 0; i < C; ++i) { a.columns[i] = a.columns[i] op b.columns[i]; } \
    return a;                                                                              \
  }
HESPER_MATRIX_MAP(+)
HESPER_MATRIX_MAP(-)
#undef HESPER_MATRIX_MAP
template <typename T, int C, int R>
matrix<T, C, R> operator*(matrix<T, C, R> a, T s) {
#pragma unroll
  for (int i = 0; i < C; ++i) { a.columns[i] *= s; }
  return a;
}
template <typename T, int C, int R>
matrix<T, C, R> operator*(T s, matrix<T, C, R> a) { return a * s; }
template <typename T, int C, int R>
matrix<T, R, C> transpose(matrix<T, C, R> m) {
  matrix<T, R, C> out;
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int c = 0; c < C; ++c) { out.columns[r][c] = m.columns[c][r]; }
  }
  return out;
}
template <typename T>
T determinant(matrix<T, 2, 2> m) {
  return m.columns[0].x * m.columns[1].y - m.columns[1].x * m.columns[0].y;
}
template <typename T>
T determinant(matrix<T, 3, 3> m) { return dot(m.columns[0], cross(m.columns[1], m.columns[2])); }
template <typename T>
T determinant(matrix<T, 4, 4> m) {
  vec<T, 4> a = m.columns[0], b = m.columns[1], c = m.columns[2], d = m.columns[3];
  T s0 = a.x * b.y - b.x * a.y, s1 = a.x * b.z - b.x * a.z, s2 = a.x * b.w - b.x * a.w;
  T s3 = a.y * b.z - b.y * a.z, s4 = a.y * b.w - b.y * a.w, s5 = a.z * b.w - b.z * a.w;
  T c5 = c.z * d.w - d.z * c.w, c4 = c.y * d.w - d.y * c.w, c3 = c.y * d.z - d.y * c.z;
  T c2 = c.x * d.w - d.x * c.w, c1 = c.x * d.z - d.x * c.z, c0 = c.x * d.y - d.x * c.y;
  return s0 * c5 - s1 * c4 + s2 * c3 + s3 * c2 - s4 * c1 + s5 * c0;
}

// Asynchronous copies of a SIMD group between device and threadgroup memory. All lanes call them with the same
// arguments; between the call and the wait for its event nothing may write the source or access the destination.
enum class simdgroup_async_copy_clamp_mode { clamp_to_zero = 0, clamp_to_edge = 1 };

#define HESPER_COPY(To, From)                                                                             \
  template <typename T> void async_copy(To T* dst, const From T* src, ulong n) {                          \
    id = __hesper_async_begin();                                                                          \
    for (ulong i = get_lane_id(); i < n; i += 32) { dst[i] = src[i]; }                                    \
    __hesper_async_end();                                                                                 \
  }                                                                                                       \
  template <typename T>                                                                                   \
  void async_copy(To T* dst, uint dst_elements_per_row, ushort2 dst_tile, const From T* src,              \
                  uint src_elements_per_row, ushort2 src_tile, bool transpose_matrix = false,             \
                  simdgroup_async_copy_clamp_mode clamp_mode =                                            \
                      simdgroup_async_copy_clamp_mode::clamp_to_zero) {                                   \
    uint2 to = transpose_matrix ? uint2(dst_tile.y, dst_tile.x) : uint2(dst_tile.x, dst_tile.y);          \
    uint2 from = transpose_matrix ? uint2(src_tile.y, src_tile.x) : uint2(src_tile.x, src_tile.y);        \
    bool to_edge = clamp_mode == simdgroup_async_copy_clamp_mode::clamp_to_edge;                          \
    id = __hesper_async_begin();                                                                          \
    for (uint i = get_lane_id(); i < to.x * to.y; i += 32) {                                              \
      uint2 at = uint2(i % to.x, i / to.x);                                                               \
      T value = T(0);                                                                                     \
      if (at.x < from.x && at.y < from.y) {                                                               \
        value = src[at.y * src_elements_per_row + at.x];                                                  \
      } else if (to_edge && from.x > 0 && from.y > 0) {                                                   \
        value = src[min(at.y, from.y - 1) * src_elements_per_row + min(at.x, from.x - 1)];                \
      }                                                                                                   \
      dst[at.y * dst_elements_per_row + at.x] = value;                                                    \
    }                                                                                                     \
    __hesper_async_end();                                                                                 \
  }
struct simdgroup_event {
  uint id;
  simdgroup_event() : id(0) {}
  HESPER_COPY(threadgroup, device)
  HESPER_COPY(device, threadgroup)
  static void wait(int count, thread simdgroup_event* events) {
    for (int i = 0; i < count; ++i) { __hesper_async_wait(events[i].id); }
    simdgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  }
};
#undef HESPER_COPY
template <typename T>
simdgroup_event simdgroup_async_copy(threadgroup T* dst, const device T* src, ulong n) {
  simdgroup_event event;
  event.async_copy(dst, src, n);
  return event;
}
template <typename T>
simdgroup_event simdgroup_async_copy(device T* dst, const threadgroup T* src, ulong n) {
  simdgroup_event event;
  event.async_copy(dst, src, n);
  return event;
}
inline void wait_simdgroup_events(int count, thread simdgroup_event* events) {
  simdgroup_event::wait(count, events);
}

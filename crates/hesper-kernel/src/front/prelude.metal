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

template <bool condition, typename T = void> struct enable_if {};
template <typename T> struct enable_if<true, T> { using type = T; };
template <bool condition, typename T = void> using enable_if_t = typename enable_if<condition, T>::type;
template <bool condition, typename A, typename B> struct conditional { using type = B; };
template <typename A, typename B> struct conditional<true, A, B> { using type = A; };
template <bool condition, typename A, typename B>
using conditional_t = typename conditional<condition, A, B>::type;
template <bool condition, typename A, typename B> struct ConditionalType { using type = B; };
template <typename A, typename B> struct ConditionalType<true, A, B> { using type = A; };

// Complex numbers: storage and the arithmetic that kernels use.
struct complex64_t {
  float real;
  float imag;
  complex64_t() : real(0), imag(0) {}
  complex64_t(float r) : real(r), imag(0) {}
  complex64_t(float r, float i) : real(r), imag(i) {}
  operator float() const { return real; }
};
inline complex64_t operator+(complex64_t a, complex64_t b) {
  return complex64_t(a.real + b.real, a.imag + b.imag);
}
inline complex64_t operator-(complex64_t a, complex64_t b) {
  return complex64_t(a.real - b.real, a.imag - b.imag);
}
inline complex64_t operator-(complex64_t a) { return complex64_t(-a.real, -a.imag); }
inline complex64_t operator*(complex64_t a, complex64_t b) {
  return complex64_t(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real);
}
inline complex64_t operator/(complex64_t a, complex64_t b) {
  float norm = b.real * b.real + b.imag * b.imag;
  return complex64_t((a.real * b.real + a.imag * b.imag) / norm, (a.imag * b.real - a.real * b.imag) / norm);
}
inline bool operator==(complex64_t a, complex64_t b) { return a.real == b.real && a.imag == b.imag; }
inline bool operator!=(complex64_t a, complex64_t b) { return !(a == b); }

// Extreme values of a type; those of floats are infinite.
template <typename T>
struct Limits {
  static constant constexpr T max = numeric_limits<T>::max();
  static constant constexpr T min = numeric_limits<T>::lowest();
  static constant constexpr T finite_max = numeric_limits<T>::max();
  static constant constexpr T finite_min = numeric_limits<T>::lowest();
};
#define HESPER_LIMITS(type)                                                \
  template <> struct Limits<type> {                                        \
    static constant constexpr type max = numeric_limits<type>::infinity();  \
    static constant constexpr type min = -numeric_limits<type>::infinity(); \
    static constant constexpr type finite_max = numeric_limits<type>::max();    \
    static constant constexpr type finite_min = numeric_limits<type>::lowest(); \
  };
HESPER_LIMITS(half) HESPER_LIMITS(bfloat) HESPER_LIMITS(float)
#undef HESPER_LIMITS

// The offset of a row-major element number in a strided array.
template <typename I = int64_t>
I elem_to_loc(I elem, constant const int* shape, constant const int64_t* strides, int ndim) {
  I at = 0;
  for (int axis = ndim - 1; axis >= 0 && elem > 0; --axis) {
    I extent = I(shape[axis]);
    at += (elem % extent) * I(strides[axis]);
    elem /= extent;
  }
  return at;
}
// The same with the two innermost positions given apart: (x, y, rest).
template <typename I = int64_t>
I elem_to_loc(uint3 elem, constant const int* shape, constant const int64_t* strides, int ndim) {
  I at = I(elem.x) * I(strides[ndim - 1]) + I(elem.y) * I(strides[ndim - 2]);
  uint rest = elem.z;
  for (int axis = ndim - 3; axis >= 0; --axis) {
    uint extent = uint(shape[axis]);
    at += I(rest % extent) * I(strides[axis]);
    rest /= extent;
  }
  return at;
}
template <typename I = int64_t>
I elem_to_loc_1(uint elem, constant const int64_t& stride) { return I(elem) * I(stride); }
template <typename I = int64_t>
I elem_to_loc_2(uint2 elem, constant const int64_t* strides) {
  return I(elem.x) * I(strides[1]) + I(elem.y) * I(strides[0]);
}
template <typename I = int64_t>
I elem_to_loc_3(uint3 elem, constant const int64_t* strides) {
  return I(elem.x) * I(strides[2]) + I(elem.y) * I(strides[1]) + I(elem.z) * I(strides[0]);
}
template <typename I = int64_t>
vec<I, 2> elem_to_loc_2_nd(uint3 elem, constant const int* shape, constant const int64_t* a_strides,
                           constant const int64_t* b_strides, int ndim) {
  return vec<I, 2>(elem_to_loc<I>(elem, shape, a_strides, ndim), elem_to_loc<I>(elem, shape, b_strides, ndim));
}
template <typename I = int64_t>
vec<I, 3> elem_to_loc_3_nd(uint3 elem, constant const int* shape, constant const int64_t* a_strides,
                           constant const int64_t* b_strides, constant const int64_t* c_strides, int ndim) {
  return vec<I, 3>(elem_to_loc<I>(elem, shape, a_strides, ndim), elem_to_loc<I>(elem, shape, b_strides, ndim),
                   elem_to_loc<I>(elem, shape, c_strides, ndim));
}

template <typename N, typename M>
N ceildiv(N n, M m) { return (n + m - 1) / m; }

#define HESPER_SHUFFLE(name)                                                              \
  inline complex64_t name(complex64_t data, ushort lane) {                                \
    return complex64_t(name(data.real, lane), name(data.imag, lane));                     \
  }
HESPER_SHUFFLE(simd_shuffle) HESPER_SHUFFLE(simd_shuffle_up) HESPER_SHUFFLE(simd_shuffle_down)
HESPER_SHUFFLE(simd_shuffle_xor) HESPER_SHUFFLE(simd_broadcast)
#undef HESPER_SHUFFLE
inline complex64_t simd_sum(complex64_t v) { return complex64_t(simd_sum(v.real), simd_sum(v.imag)); }

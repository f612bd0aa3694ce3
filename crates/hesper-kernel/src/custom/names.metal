// Names that custom kernels may use in addition to Metal's library. Part of the front end's library, and of every kernel
// that goes unparsed to a device's own compiler.

typedef half float16_t;
#if __METAL_VERSION__ >= 310
typedef bfloat bfloat16_t;
#endif

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
HESPER_LIMITS(half) HESPER_LIMITS(float)
#if __METAL_VERSION__ >= 310
HESPER_LIMITS(bfloat)
#endif
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

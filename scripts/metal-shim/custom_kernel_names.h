// Names that custom kernels may use besides Metal's library. Nothing here computes.
#pragma once
typedef half float16_t;
typedef bfloat bfloat16_t;
struct complex64_t {
  float real, imag;
  complex64_t() = default;
  complex64_t(float, float) {}
  complex64_t(float) {}
  complex64_t operator+(complex64_t) const;
  complex64_t operator-(complex64_t) const;
  complex64_t operator*(complex64_t) const;
};
template <class I = uint> ulong elem_to_loc(I, const constant int*, const constant long*, int);
template <class I = uint> ulong elem_to_loc(I, const device int*, const device long*, int);

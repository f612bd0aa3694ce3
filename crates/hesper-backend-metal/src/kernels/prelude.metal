#include <metal_stdlib>
using namespace metal;

// A bfloat16 by its bits: Metal has the type from version 3.1 on.
struct bf16 { ushort bits; };
struct c64 { float re; float im; };

inline float to_float(float x) { return x; }
inline float to_float(half x) { return float(x); }
inline float to_float(bf16 x) { return as_type<float>(uint(x.bits) << 16); }

template <typename T> struct number { static T of(float x) { return T(x); } };
template <> struct number<bf16> {
  static bf16 of(float x) {
    const uint b = as_type<uint>(x);
    if ((b & 0x7fffffffu) > 0x7f800000u) return bf16{ushort(b >> 16 | 0x40u)};
    return bf16{ushort((b + 0x7fffu + (b >> 16 & 1u)) >> 16)};
  }
};

// The type that elements are compared and summed in, and the conversions.
template <typename T> struct widened {
  typedef T type;
  static T of(T x) { return x; }
  static T back(T x) { return x; }
};
template <> struct widened<half> {
  typedef float type;
  static float of(half x) { return float(x); }
  static half back(float x) { return half(x); }
};
template <> struct widened<bf16> {
  typedef float type;
  static float of(bf16 x) { return to_float(x); }
  static bf16 back(float x) { return number<bf16>::of(x); }
};

// Strided axes, the last one fastest, and the offset of an element by its row-major index.
struct Walk { int rank; int length[8]; int stride[8]; };

inline int place(constant Walk& w, int n) {
  int at = 0;
  for (int a = w.rank - 1; a > 0; --a) {
    const int q = n / w.length[a];
    at += (n - q * w.length[a]) * w.stride[a];
    n = q;
  }
  return at + n * w.stride[0];
}

// The start of a slice of `size` along an axis: counted from the end if negative, then clamped.
template <typename I> inline int index_of(I index, int length, int size) {
  long i = long(index);
  if (i < 0) i = I(-1) < I(0) ? i + length : long(length);
  i = i < length - size ? i : long(length - size);
  return int(i > 0 ? i : 0);
}

inline bool is_nan_of(float x) { return as_type<uint>(abs(x)) > 0x7f800000u; }

// The sum of all threads of a threadgroup of whole SIMD groups; `cells` has a place for each of these.
inline float group_sum(float x, threadgroup float* cells, uint lane, uint simd, uint simds) {
  x = simd_sum(x);
  if (simds == 1) return x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 0) cells[simd] = x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = cells[0];
  for (uint s = 1; s < simds; ++s) total += cells[s];
  return total;
}

// What all texts share: numbers of two bytes, vectors of sixteen, warps and blocks.
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
struct f16 { u16 b; };
struct bf16 { u16 b; };
struct c64 { float re, im; };
struct __align__(16) w16 { u32 v[4]; };
struct __align__(8) w8 { u32 v[2]; };

__device__ __forceinline__ float f32_of_f16(u16 b) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(b));
  return r;
}
__device__ __forceinline__ u16 f16_of_f32(float x) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
__device__ __forceinline__ u16 bf16_of_f32(float x) {
  const u32 b = __float_as_uint(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return (u16)(b >> 16 | 0x40u);
  return (u16)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}

// A number as one of a wider type, and back.
template <class A, class T> struct as { static __device__ __forceinline__ A of(T x) { return (A)x; } };
template <class A> struct as<A, f16> {
  static __device__ __forceinline__ A of(f16 x) { return (A)f32_of_f16(x.b); }
};
template <class A> struct as<A, bf16> {
  static __device__ __forceinline__ A of(bf16 x) { return (A)__uint_as_float((u32)x.b << 16); }
};
template <> struct as<f16, float> {
  static __device__ __forceinline__ f16 of(float x) { return f16{f16_of_f32(x)}; }
};
template <> struct as<bf16, float> {
  static __device__ __forceinline__ bf16 of(float x) { return bf16{bf16_of_f32(x)}; }
};
template <class A> __device__ __forceinline__ float f32(A x) { return as<float, A>::of(x); }
template <class T> __device__ __forceinline__ T from(float x) { return as<T, float>::of(x); }

// Sixteen bytes of elements.
template <class T> struct pack { T v[16 / sizeof(T)]; };
template <class T> __device__ __forceinline__ pack<T> load16(const T* p) {
  const w16 w = *(const w16*)p;
  pack<T> r;
  memcpy(&r, &w, 16);
  return r;
}
template <class T> __device__ __forceinline__ void store16(T* p, const pack<T>& x) {
  w16 w;
  memcpy(&w, &x, 16);
  *(w16*)p = w;
}

#define FULL 0xffffffffu

// Shared by all texts: 16-bit floats, vectors of sixteen bytes, strided axes, warps and blocks.
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
#if __CUDA_ARCH__ >= 800
  u16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
#else
  const u32 b = __float_as_uint(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return (u16)(b >> 16 | 0x40u);
  return (u16)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
#endif
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

// Loads sixteen bytes that are not read again.
__device__ __forceinline__ w16 load_once(const void* p) {
  w16 r;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3]) : "l"(p));
  return r;
}

// 1 / (1 + e^-x): the operations of the kernel language's sigmoid in their order, so its bits.
__device__ __forceinline__ float sigmoid_f32(float x) {
  const float magic = 12582912.0f, top = -fabsf(x), c = top < -104.0f ? -104.0f : top;
  const float t = fmaf(c, 1.44269504f, magic), n = t - magic;
  const float r = fmaf(n, -1.4286068e-6f, fmaf(n, -0.69314575f, c));
  float p = fmaf(r, 1.989108e-4f, 0.0013933731f);
  p = fmaf(r, fmaf(r, fmaf(r, fmaf(r, p, 0.0083333105f), 0.041666463f), 0.16666667f), 0.5f);
  const float y = __fadd_rn(1.0f, fmaf(__fmul_rn(r, r), p, r));
  const i32 whole = (i32)(__float_as_uint(t) - __float_as_uint(magic)), half = whole >> 1;
  const float e = __fmul_rn(__fmul_rn(y, __uint_as_float((u32)(half + 127) << 23)),
                            __uint_as_float((u32)(whole - half + 127) << 23));
  return (x < 0.0f ? e : 1.0f) / __fadd_rn(1.0f, e);
}

// Kernels that a line `// early: name(parameters)` declares may start while earlier ones still run. Before
// `wait_for_dependencies`, which every block must reach, such a kernel writes nothing and reads only those parameters, which
// no earlier kernel writes. Pointers to memory that others write must not be `__restrict__`: the compiler could
// move their reads up. After `launch_dependents` the next kernel may start.
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void wait_for_dependencies() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
__device__ __forceinline__ void wait_for_dependencies() {}
__device__ __forceinline__ void launch_dependents() {}
#endif

// Strided axes, the last one fastest, and the offset of an element by its row-major index.
struct walk { i64 length[6], stride[6]; };

// n / by of numbers that are not negative. Most fit into 32 bits, where a division is several times cheaper.
__device__ __forceinline__ i64 quotient(i64 n, i64 by) {
  return (u64)(n | by) >> 32 ? n / by : (i64)((u32)n / (u32)by);
}

__device__ __forceinline__ i64 place(const walk& w, int rank, i64 n) {
  i64 at = 0;
  for (int a = rank - 1; a > 0; --a) {
    const i64 q = quotient(n, w.length[a]);
    at += (n - q * w.length[a]) * w.stride[a];
    n = q;
  }
  return at + n * w.stride[0];
}

// The start of a slice of `size` along an axis: counted from the end if negative, then clamped.
template <class I> __device__ __forceinline__ i64 index_of(I index, i64 length, i64 size) {
  i64 i = (i64)index;
  if (i < 0) i = (I)-1 < (I)0 ? i + length : length;
  i = i < length - size ? i : length - size;
  return i > 0 ? i : 0;
}

#define FULL 0xffffffffu
#define INF __int_as_float(0x7f800000)

// The type that elements are compared and summed in.
template <class T> struct widened { typedef T type; };
template <> struct widened<f16> { typedef float type; };
template <> struct widened<bf16> { typedef float type; };

template <class T> __device__ __forceinline__ bool not_a_number(T) { return false; }
template <> __device__ __forceinline__ bool not_a_number(float x) { return x != x; }
template <> __device__ __forceinline__ bool not_a_number(double x) { return x != x; }
template <> __device__ __forceinline__ bool not_a_number(c64 x) { return x.re != x.re || x.im != x.im; }

template <class T> __device__ __forceinline__ T lowest();
template <class T> __device__ __forceinline__ T highest();
#define LIMITS(T, LOW, HIGH) \
  template <> __device__ __forceinline__ T lowest<T>() { return LOW; } \
  template <> __device__ __forceinline__ T highest<T>() { return HIGH; }
LIMITS(u8, 0, 255)
LIMITS(u16, 0, 65535)
LIMITS(u32, 0, 0xffffffffu)
LIMITS(u64, 0, ~0ull)
LIMITS(i8, -128, 127)
LIMITS(i16, -32768, 32767)
LIMITS(i32, (i32)0x80000000, 0x7fffffff)
LIMITS(i64, (i64)(1ull << 63), (i64)~(1ull << 63))
LIMITS(float, -INF, INF)
LIMITS(double, -(double)INF, (double)INF)
LIMITS(c64, (c64{-INF, -INF}), (c64{INF, INF}))

// The value of the lane whose index differs in the bits of `mask`; of any type.
template <class A> __device__ __forceinline__ A shuffled(A x, int mask) {
  constexpr int N = (sizeof(A) + 3) / 4;
  u32 w[N] = {};
  memcpy(w, &x, sizeof(A));
#pragma unroll
  for (int i = 0; i < N; ++i) w[i] = __shfl_xor_sync(FULL, w[i], mask);
  memcpy(&x, w, sizeof(A));
  return x;
}

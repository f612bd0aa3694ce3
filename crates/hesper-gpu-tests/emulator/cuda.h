// The part of CUDA that kernels use, emulated on the host. Each thread of a block is a fiber. A scheduler
// picks a random fiber and runs it to its next synchronization point: a barrier or a warp-level operation.
// It is an error if the lanes of a mask do not all reach the same point with the same mask: finding such
// errors is the purpose of this emulation.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <type_traits>
#include <ucontext.h>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define HESPER_FN __device__ __forceinline__

struct emu_dim { unsigned x, y, z; };
enum emu_wait { EMU_RUNS, EMU_BARRIER, EMU_BALLOT, EMU_SHUFFLE, EMU_SYNC };
struct emu_fiber {
  ucontext_t context;
  std::vector<char> stack;
  emu_dim place;
  bool done;
  emu_wait wait;
  unsigned mask, value, source, answer;
};
static std::vector<emu_fiber> emu_fibers;
static int emu_current;
static ucontext_t emu_scheduler;
static emu_dim emu_block, emu_block_size, emu_grid;
#define threadIdx (emu_fibers[emu_current].place)
#define blockIdx emu_block
#define blockDim emu_block_size
#define gridDim emu_grid

// Waits at a synchronization point until all of its lanes have reached it.
static unsigned emu_sync(emu_wait what, unsigned mask, unsigned value, unsigned source) {
  emu_fiber& f = emu_fibers[emu_current];
  if (what != EMU_BARRIER && !(mask >> (emu_current & 31) & 1u)) {
    printf("lane %d is not in its own mask %x\n", emu_current & 31, mask);
    exit(3);
  }
  f.wait = what;
  f.mask = mask;
  f.value = value;
  f.source = source;
  swapcontext(&f.context, &emu_scheduler);
  return emu_fibers[emu_current].answer;
}
static inline unsigned __ballot_sync(unsigned m, int p) { return emu_sync(EMU_BALLOT, m, p != 0, 0); }
static inline unsigned __shfl_sync(unsigned m, unsigned v, int l) { return emu_sync(EMU_SHUFFLE, m, v, l & 31); }
static inline void __syncwarp(unsigned m = 0xffffffffu) { emu_sync(EMU_SYNC, m, 0, 0); }
static inline void threadgroup_barrier() { emu_sync(EMU_BARRIER, 0, 0, 0); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}

template <class T, class F> static T emu_bits(F x) {
  T r;
  memcpy(&r, &x, sizeof r);
  return r;
}
static inline float __uint_as_float(unsigned x) { return emu_bits<float>(x); }
static inline unsigned __float_as_uint(float x) { return emu_bits<unsigned>(x); }
static inline double __longlong_as_double(long long x) { return emu_bits<double>(x); }
static inline long long __double_as_longlong(double x) { return emu_bits<long long>(x); }
static inline float ptx_f32_of_f16(unsigned short x) { return (float)emu_bits<_Float16>(x); }
static inline unsigned short ptx_f16_of_f32(float x) { return emu_bits<unsigned short>((_Float16)x); }
static inline int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
static inline long long __mul64hi(long long a, long long b) { return (long long)(((__int128)a * b) >> 64); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
// Four of the eight bytes of two words, each chosen by four bits; the highest of the four repeats the sign.
static inline unsigned __byte_perm(unsigned low, unsigned high, unsigned chosen) {
  const unsigned long long both = (unsigned long long)high << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned which = chosen >> (4 * i) & 15;
    const unsigned byte = (unsigned)(both >> (8 * (which & 7))) & 255;
    result |= (which & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * i);
  }
  return result;
}
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
template <class T> static inline T __ldg(const T* p) { return *p; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned long long __brevll(unsigned long long x) {
  unsigned long long r = 0;
  for (int i = 0; i < 64; i++) r |= (x >> i & 1ull) << (63 - i);
  return r;
}
static inline unsigned __brev(unsigned x) { return (unsigned)(__brevll(x) >> 32); }

// Placeholders: results of f64 functions that the platform computes are not compared.
static inline double sinpi(double x) { return sin(x * M_PI); }
static inline double cospi(double x) { return cos(x * M_PI); }
static inline double erfinv(double x) { return x; }

// One fiber runs at a time, so plain loads and stores are atomic.
template <class T> static T emu_update(T* p, T v) {
  const T old = *p;
  *p = v;
  return old;
}
template <class T> static T emu_sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) return (T)((std::make_unsigned_t<T>)a + (std::make_unsigned_t<T>)b);
  else return a + b;
}
template <class T> static T atomicAdd(T* p, T v) { return emu_update(p, emu_sum(*p, v)); }
template <class T> static T atomicExch(T* p, T v) { return emu_update(p, v); }
template <class T> static T atomicMin(T* p, T v) { return emu_update(p, v < *p ? v : *p); }
template <class T> static T atomicMax(T* p, T v) { return emu_update(p, v > *p ? v : *p); }
template <class T> static T atomicAnd(T* p, T v) { return emu_update(p, (T)(*p & v)); }
template <class T> static T atomicOr(T* p, T v) { return emu_update(p, (T)(*p | v)); }
template <class T> static T atomicXor(T* p, T v) { return emu_update(p, (T)(*p ^ v)); }
template <class T> static T atomicCAS(T* p, T e, T d) { return emu_update(p, *p == e ? d : *p); }

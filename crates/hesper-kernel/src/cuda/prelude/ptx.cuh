// Inline PTX, for which C++ has no spelling.
#define HESPER_FN __device__ __forceinline__
HESPER_FN float ptx_f32_of_f16(unsigned short x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}
HESPER_FN unsigned short ptx_f16_of_f32(float x) {
  unsigned short r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
// Counts threads, not warps: divergent lanes may arrive one after another.
HESPER_FN void threadgroup_barrier() { asm volatile("barrier.sync 0;" ::: "memory"); }

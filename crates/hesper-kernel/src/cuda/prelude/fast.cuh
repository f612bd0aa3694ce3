// Functions of half precision: a few units in the last place of single precision, rounded once.
HESPER_FN f32 fast_exp2(f32 x) {
  f32 r;
  asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
HESPER_FN f32 fast_reciprocal(f32 x) {
  f32 r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
HESPER_FN f32 fast_exp_of(f32 x) { return fast_exp2(x * f32_of(0x3fb8aa3bu)); }
HESPER_FN f32 fast_sigmoid_of(f32 x) { return fast_reciprocal(1.0f + fast_exp2(x * f32_of(0xbfb8aa3bu))); }
HESPER_FN f32 fast_tanh_of(f32 x) {
  const f32 s = x * x;
  const f32 near = x * (1.0f - s * (f32_of(0x3eaaaaabu) - s * f32_of(0x3e088889u)));
  const f32 far = 1.0f - 2.0f * fast_reciprocal(1.0f + fast_exp2(x * f32_of(0x4038aa3bu)));
  return s < 0.01f ? near : far;
}
#if __CUDA_ARCH__ >= 800
HESPER_FN bf16 fast_to_bf16(f32 x) {
  bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.b) : "f"(x));
  return r;
}
#define to_bf16(x) fast_to_bf16(x)
#endif

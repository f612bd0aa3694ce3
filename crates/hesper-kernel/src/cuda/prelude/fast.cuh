// Functions of half precision, accurate to a few units in the last place of single precision, then rounded once.
// Functions that are not here are the device's own of single precision. Sums, differences and products are rounded
// once by the device's instructions, which gives the bits of single precision rounded to half.
HESPER_FN f32 fast_exp2(f32 x) {
  f32 r;
  asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
// Flushes subnormal results to 0, for callers that add 1.
HESPER_FN f32 fast_exp2_coarse(f32 x) {
  f32 r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
HESPER_FN f32 fast_reciprocal(f32 x) {
  f32 r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
HESPER_FN f32 fast_exp_of(f32 x) { return fast_exp2(x * f32_of(0x3fb8aa3bu)); }
HESPER_FN f32 fast_sigmoid_of(f32 x) { return fast_reciprocal(1.0f + fast_exp2_coarse(x * f32_of(0xbfb8aa3bu))); }
HESPER_FN f32 fast_tanh_of(f32 x) {
  const f32 s = x * x;
  const f32 near = __fmaf_rn(x * s, __fmaf_rn(s, f32_of(0x3e088889u), f32_of(0xbeaaaaabu)), x);
  const f32 far = __fmaf_rn(-2.0f, fast_reciprocal(1.0f + fast_exp2_coarse(x * f32_of(0x4038aa3bu))), 1.0f);
  return s < 0.01f ? near : far;
}
// Accurate to 11 bits; bfloat16 has 8.
HESPER_FN f32 fast_tanh_of_bf16(f32 x) {
#if __CUDA_ARCH__ >= 750
  f32 r;
  asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
#else
  return fast_tanh_of(x);
#endif
}
// A polynomial, lowest coefficient first.
HESPER_FN f32 fast_poly(f32, f32 c) { return c; }
template <class... R> HESPER_FN f32 fast_poly(f32 x, f32 c, R... rest) { return __fmaf_rn(x, fast_poly(x, rest...), c); }
// The polynomials of the error function; the second one gives the exponent of a power of two.
HESPER_FN f32 fast_erf_of(f32 x) {
  const f32 a = fabsf(x), c = a > 4.0f ? 4.0f : a;
  const f32 p = fast_poly(x * x, 0.12837917f, -0.37612635f, 0.112836994f, -0.026859589f, 0.005201456f, -8.147081e-4f,
      8.387074e-5f);
  const f32 q = fast_poly(c, 0.000504340376f, -1.63080574f, -0.911038114f, -0.159417182f, 0.0385722308f, -0.00708475795f,
      0.000928109524f, -7.925614e-05f, 3.74284044e-06f, -6.42561439e-08f);
  return a < 0.92f ? __fmaf_rn(x, p, x) : copysignf(1.0f - fast_exp2_coarse(q), x);
}
#define HESPER_HALF(T, NAME, TEXT) \
  HESPER_FN T NAME(T a, T b) { \
    T r; \
    asm(TEXT : "=h"(r.b) : "h"(a.b), "h"(b.b)); \
    return r; \
  }
#define HESPER_SINGLE(T, NAME, OPERATOR) \
  HESPER_FN T NAME(T a, T b) { return to_##T(to_f32(a) OPERATOR to_f32(b)); }
HESPER_HALF(f16, fast_add, "add.rn.f16 %0, %1, %2;")
HESPER_HALF(f16, fast_sub, "sub.rn.f16 %0, %1, %2;")
HESPER_HALF(f16, fast_mul, "mul.rn.f16 %0, %1, %2;")
#if __CUDA_ARCH__ >= 800
HESPER_FN bf16 fast_to_bf16(f32 x) {
  bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.b) : "f"(x));
  return r;
}
#define to_bf16(x) fast_to_bf16(x)
#endif
#if __CUDA_ARCH__ >= 900
HESPER_HALF(bf16, fast_add, "add.rn.bf16 %0, %1, %2;")
HESPER_HALF(bf16, fast_sub, "sub.rn.bf16 %0, %1, %2;")
HESPER_HALF(bf16, fast_mul, "mul.rn.bf16 %0, %1, %2;")
#else
HESPER_SINGLE(bf16, fast_add, +)
HESPER_SINGLE(bf16, fast_sub, -)
HESPER_SINGLE(bf16, fast_mul, *)
#endif

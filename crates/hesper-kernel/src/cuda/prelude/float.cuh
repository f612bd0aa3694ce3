// Rounding, roots and remainders: the device's own.
HESPER_FN f32 floor_of(f32 x) { return floorf(x); }
HESPER_FN f64 floor_of(f64 x) { return floor(x); }
HESPER_FN f32 ceil_of(f32 x) { return ceilf(x); }
HESPER_FN f64 ceil_of(f64 x) { return ceil(x); }
HESPER_FN f32 trunc_of(f32 x) { return truncf(x); }
HESPER_FN f64 trunc_of(f64 x) { return trunc(x); }
HESPER_FN f32 rint_of(f32 x) { return rintf(x); }
HESPER_FN f64 rint_of(f64 x) { return rint(x); }
HESPER_FN f32 sqrt_of(f32 x) { return sqrtf(x); }
HESPER_FN f64 sqrt_of(f64 x) { return sqrt(x); }
HESPER_FN f32 fmod_of(f32 a, f32 b) { return fmodf(a, b); }
HESPER_FN f64 fmod_of(f64 a, f64 b) { return fmod(a, b); }
HESPER_FN f32 fma_of(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
HESPER_FN f64 fma_of(f64 a, f64 b, f64 c) { return fma(a, b, c); }
HESPER_FN f64 fract_of(f64 x) {
  const f64 r = x - floor(x), below = f64_of(0x3fefffffffffffffull);
  return r > below ? below : r;
}
HESPER_FN f64 frexp_mant(f64 x) {
  const f64 y = abs_of(x) < f64_of(0x0010000000000000ull) ? x * 9007199254740992.0 : x;
  const f64 m = f64_of((bits(y) & ~0x7ff0000000000000ull) | 0x3fe0000000000000ull);
  return x != 0.0 && is_finite(x) ? m : x;
}
HESPER_FN i32 frexp_exp(f64 x) {
  const bool tiny = abs_of(x) < f64_of(0x0010000000000000ull);
  const f64 y = tiny ? x * 9007199254740992.0 : x;
  const i32 e = (i32)(bits(y) >> 52 & 0x7ffull) - 1022 - (tiny ? 53 : 0);
  return x != 0.0 && is_finite(x) ? e : 0;
}
// A polynomial, lowest coefficient first.
template <class T> HESPER_FN T poly(T, T c) { return c; }
template <class T, class... R> HESPER_FN T poly(T x, T c, R... rest) { return fma_of(x, poly(x, rest...), c); }

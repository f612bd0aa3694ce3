// Floats: minima, rounding, parts, conversions. 16-bit floats compute in f32 and round.
HESPER_FN bool is_nan(f32 x) { return (bits(x) & 0x7fffffffu) > 0x7f800000u; }
HESPER_FN bool is_inf(f32 x) { return (bits(x) & 0x7fffffffu) == 0x7f800000u; }
HESPER_FN bool is_finite(f32 x) { return (bits(x) & 0x7f800000u) != 0x7f800000u; }
HESPER_FN bool is_normal(f32 x) {
  const u32 e = bits(x) & 0x7f800000u;
  return e != 0u && e != 0x7f800000u;
}
HESPER_FN bool sign_bit(f32 x) { return bits(x) >> 31 != 0u; }
HESPER_FN bool is_normal(f16 x) {
  const u32 e = x.b & 0x7c00u;
  return e != 0u && e != 0x7c00u;
}
HESPER_FN f32 abs_of(f32 x) { return f32_of(bits(x) & 0x7fffffffu); }
HESPER_FN f32 neg_of(f32 x) { return f32_of(bits(x) ^ 0x80000000u); }
HESPER_FN f32 copysign_of(f32 x, f32 s) { return f32_of((bits(x) & 0x7fffffffu) | (bits(s) & 0x80000000u)); }
HESPER_FN f32 float_of_bits(u32 x) { return f32_of(x); }
template <class T> HESPER_FN T fmin_of(T a, T b) {
  T r = a < b ? a : b;
  r = a == b ? float_of_bits(bits(a) | bits(b)) : r;
  return is_nan(b) ? a : r;
}
template <class T> HESPER_FN T fmax_of(T a, T b) {
  T r = a > b ? a : b;
  r = a == b ? float_of_bits(bits(a) & bits(b)) : r;
  return is_nan(b) ? a : r;
}
template <class T> HESPER_FN T fmin_nan(T a, T b) { return is_nan(b) ? b : is_nan(a) ? a : fmin_of(a, b); }
template <class T> HESPER_FN T fmax_nan(T a, T b) { return is_nan(b) ? b : is_nan(a) ? a : fmax_of(a, b); }
template <class T> HESPER_FN T fsign(T x) { return is_nan(x) ? (T)0 : x < (T)0 ? (T)-1 : x > (T)0 ? (T)1 : x; }
template <class T> HESPER_FN T rsqrt_of(T x) { return (T)1 / sqrt_of(x); }
template <class T> HESPER_FN T round_of(T x) {
  const T t = trunc_of(x);
  const T r = abs_of(x - t) >= (T)0.5f ? t + copysign_of((T)1, x) : t;
  return copysign_of(r, x);
}
HESPER_FN f32 fract_of(f32 x) {
  const f32 r = x - floor_of(x), below = f32_of(0x3f7fffffu);
  return r > below ? below : r;
}
HESPER_FN f32 frexp_mant(f32 x) {
  const f32 y = abs_of(x) < f32_of(0x00800000u) ? x * 16777216.0f : x;
  const f32 m = f32_of((bits(y) & ~0x7f800000u) | 0x3f000000u);
  return x != 0.0f && is_finite(x) ? m : x;
}
HESPER_FN i32 frexp_exp(f32 x) {
  const bool tiny = abs_of(x) < f32_of(0x00800000u);
  const f32 y = tiny ? x * 16777216.0f : x;
  const i32 e = (i32)(bits(y) >> 23 & 0xffu) - 126 - (tiny ? 24 : 0);
  return x != 0.0f && is_finite(x) ? e : 0;
}
template <class T> HESPER_FN T fdim_of(T a, T b) {
  const T d = a - b;
  return a <= b ? (T)0 : d;
}
template <class T> HESPER_FN T next_after_16(T a, T b, T quiet_nan) {
  const f32 x = to_f32(a), y = to_f32(b);
  if (is_nan(x) || is_nan(y)) return quiet_nan;
  if (x == y) return b;
  if (x == 0.0f) return T{(u16)(1u | (y < 0.0f ? 0x8000u : 0u))};
  return (y > x) == (x > 0.0f) ? T{(u16)(a.b + 1u)} : T{(u16)(a.b - 1u)};
}

// Floats: minima, rounding, parts, conversions. 16-bit floats compute in f32 and round.
HESPER_FN bool is_nan(f32 x) { return (bits(x) & 0x7fffffffu) > 0x7f800000u; }
HESPER_FN bool is_inf(f32 x) { return (bits(x) & 0x7fffffffu) == 0x7f800000u; }
HESPER_FN bool is_finite(f32 x) { return (bits(x) & 0x7f800000u) != 0x7f800000u; }
HESPER_FN bool is_normal(f32 x) {
  const u32 e = bits(x) & 0x7f800000u;
  return e != 0u && e != 0x7f800000u;
}
HESPER_FN bool sign_bit(f32 x) { return bits(x) >> 31 != 0u; }
HESPER_FN bool is_nan(f64 x) { return (bits(x) & 0x7fffffffffffffffull) > 0x7ff0000000000000ull; }
HESPER_FN bool is_inf(f64 x) { return (bits(x) & 0x7fffffffffffffffull) == 0x7ff0000000000000ull; }
HESPER_FN bool is_finite(f64 x) { return (bits(x) & 0x7ff0000000000000ull) != 0x7ff0000000000000ull; }
HESPER_FN bool is_normal(f64 x) {
  const u64 e = bits(x) & 0x7ff0000000000000ull;
  return e != 0ull && e != 0x7ff0000000000000ull;
}
HESPER_FN bool sign_bit(f64 x) { return bits(x) >> 63 != 0ull; }
HESPER_FN bool is_normal(f16 x) {
  const u32 e = x.b & 0x7c00u;
  return e != 0u && e != 0x7c00u;
}
HESPER_FN f32 abs_of(f32 x) { return f32_of(bits(x) & 0x7fffffffu); }
HESPER_FN f64 abs_of(f64 x) { return f64_of(bits(x) & 0x7fffffffffffffffull); }
HESPER_FN f32 neg_of(f32 x) { return f32_of(bits(x) ^ 0x80000000u); }
HESPER_FN f64 neg_of(f64 x) { return f64_of(bits(x) ^ 0x8000000000000000ull); }
HESPER_FN f32 copysign_of(f32 x, f32 s) { return f32_of((bits(x) & 0x7fffffffu) | (bits(s) & 0x80000000u)); }
HESPER_FN f64 copysign_of(f64 x, f64 s) {
  return f64_of((bits(x) & 0x7fffffffffffffffull) | (bits(s) & 0x8000000000000000ull));
}
HESPER_FN f32 float_of_bits(u32 x) { return f32_of(x); }
HESPER_FN f64 float_of_bits(u64 x) { return f64_of(x); }
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
template <class T> HESPER_FN T rsqrt_of(T x) { return (T)1 / sqrt_of(x); }
template <class T> HESPER_FN T round_of(T x) {
  const T t = trunc_of(x);
  const T r = abs_of(x - t) >= (T)0.5 ? t + copysign_of((T)1, x) : t;
  return copysign_of(r, x);
}
HESPER_FN f32 fract_of(f32 x) {
  const f32 r = x - floorf(x), below = f32_of(0x3f7fffffu);
  return r > below ? below : r;
}
HESPER_FN f64 fract_of(f64 x) {
  const f64 r = x - floor(x), below = f64_of(0x3fefffffffffffffull);
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
template <class T> HESPER_FN T fdim_of(T a, T b) {
  const T d = a - b;
  return a <= b ? (T)0 : d;
}
// Rounded to odd, so that a second rounding to a narrower type is right.
HESPER_FN f32 to_odd(f64 x) {
  const f32 near = (f32)x;
  const f64 back = (f64)near;
  if (back == x || is_nan(near)) return near;
  const u32 b = abs_of(back) > abs_of(x) ? bits(near) - 1u : bits(near);
  return f32_of(b | 1u);
}
HESPER_FN f64 sticky(u64 m) {
  return m < 1ull << 48 ? (f64)m : (f64)(m >> 16 | (u64)((m & 0xffffull) != 0ull)) * 65536.0;
}
HESPER_FN f64 sticky(i64 x) {
  const f64 m = sticky(x < 0 ? 0ull - (u64)x : (u64)x);
  return x < 0 ? -m : m;
}
HESPER_FN f64 sticky(i32 x) { return (f64)x; }
HESPER_FN f64 sticky(u32 x) { return (f64)x; }
// Float to integer: towards zero, saturating, NaN to 0.
template <class T> HESPER_FN T sat_int(f64 x) {
  if (is_nan(x)) return (T)0;
  if ((T)-1 < (T)0) {
    if (x < -9223372036854775808.0) return (T)(1ull << 63);
    return x >= 9223372036854775808.0 ? (T)~(1ull << 63) : (T)x;
  }
  if (x <= 0.0) return (T)0;
  return x >= 18446744073709551616.0 ? (T)~0ull : (T)x;
}
template <> HESPER_FN i32 sat_int(f64 x) {
  if (is_nan(x)) return 0;
  return x < -2147483648.0 ? (i32)0x80000000u : x > 2147483647.0 ? 0x7fffffff : (i32)x;
}
template <> HESPER_FN u32 sat_int(f64 x) {
  return !(x > 0.0) ? 0u : x >= 4294967295.0 ? 0xffffffffu : (u32)x;
}
template <class T> HESPER_FN T sat_small(f64 x, i32 lo, i32 hi) {
  const i32 i = sat_int<i32>(x);
  return (T)(i < lo ? lo : i > hi ? hi : i);
}
template <> HESPER_FN i8 sat_int(f64 x) { return sat_small<i8>(x, -128, 127); }
template <> HESPER_FN u8 sat_int(f64 x) { return sat_small<u8>(x, 0, 255); }
template <> HESPER_FN i16 sat_int(f64 x) { return sat_small<i16>(x, -32768, 32767); }
template <> HESPER_FN u16 sat_int(f64 x) { return sat_small<u16>(x, 0, 65535); }
template <class T> HESPER_FN T sat_int_f32(f32 x) { return sat_int<T>((f64)x); }
template <> HESPER_FN i32 sat_int_f32(f32 x) {
  if (is_nan(x)) return 0;
  return x < -2147483648.0f ? (i32)0x80000000u : x >= 2147483648.0f ? 0x7fffffff : (i32)x;
}
template <> HESPER_FN u32 sat_int_f32(f32 x) {
  return !(x > 0.0f) ? 0u : x >= 4294967296.0f ? 0xffffffffu : (u32)x;
}
template <> HESPER_FN i8 sat_int_f32(f32 x) { return (i8)imin(imax(sat_int_f32<i32>(x), -128), 127); }
template <> HESPER_FN u8 sat_int_f32(f32 x) { return (u8)imin(imax(sat_int_f32<i32>(x), 0), 255); }
template <> HESPER_FN i16 sat_int_f32(f32 x) { return (i16)imin(imax(sat_int_f32<i32>(x), -32768), 32767); }
template <> HESPER_FN u16 sat_int_f32(f32 x) { return (u16)imin(imax(sat_int_f32<i32>(x), 0), 65535); }
template <class T> HESPER_FN T next_after_16(T a, T b, T quiet_nan) {
  const f32 x = to_f32(a), y = to_f32(b);
  if (is_nan(x) || is_nan(y)) return quiet_nan;
  if (x == y) return b;
  if (x == 0.0f) return T{(u16)(1u | (y < 0.0f ? 0x8000u : 0u))};
  return (y > x) == (x > 0.0f) ? T{(u16)(a.b + 1u)} : T{(u16)(a.b - 1u)};
}

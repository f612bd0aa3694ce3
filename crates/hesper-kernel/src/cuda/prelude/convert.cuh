// Rounded to odd, so that a second rounding to a narrower type is correct.
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

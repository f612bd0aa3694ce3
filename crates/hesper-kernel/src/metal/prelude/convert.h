HESPER_FN f32 fmod_of(f32 a, f32 b) { return (f32)fmod_of((f64)a, (f64)b); }
// An integer as f32. Bits that do not fit are joined into the last one, so that a second rounding to a narrower type is
// correct.
HESPER_FN f32 sticky(u64 m) {
  const u32 z = leading_zeros(m);
  if (z >= 40u) return (f32)(u32)m;
  const u32 n = 40u - z;
  const u32 kept = (u32)(m >> n) | (m << (64u - n) != 0ul ? 1u : 0u);
  return (f32)kept * f32_of((n + 127u) << 23);
}
HESPER_FN f32 sticky(i64 x) {
  const f32 m = sticky(x < 0l ? 0ul - (u64)x : (u64)x);
  return x < 0l ? -m : m;
}
HESPER_FN f32 sticky(i32 x) { return sticky((i64)x); }
HESPER_FN f32 sticky(u32 x) { return sticky((u64)x); }
HESPER_FN f32 to_odd(f32 x) { return x; }
// Float to integer: towards zero, saturating, NaN to 0.
template <class T> HESPER_FN T sat_int_f32(f32 x) {
  if (is_nan(x)) return (T)0;
  if ((T)-1 < (T)0) {
    if (x < -9223372036854775808.0f) return (T)(1ul << 63);
    return x >= 9223372036854775808.0f ? (T)~(1ul << 63) : (T)x;
  }
  if (x <= 0.0f) return (T)0;
  return x >= 18446744073709551616.0f ? (T)~0ul : (T)x;
}

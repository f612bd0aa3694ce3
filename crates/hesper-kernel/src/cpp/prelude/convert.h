// f32 to integers of up to 32 bits.
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

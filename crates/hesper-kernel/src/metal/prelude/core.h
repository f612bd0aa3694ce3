// Types, bits.
typedef char i8;
typedef short i16;
typedef int i32;
typedef long i64;
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef float f32;
struct f16 { u16 b; };
struct bf16 { u16 b; };
template <class T> struct vec2 { T x, y; };
template <class T> struct vec3 { T x, y, z; };
template <class T> struct vec4 { T x, y, z, w; };
HESPER_FN f32 f32_of(u32 x) { return as_type<f32>(x); }
HESPER_FN u32 bits(f32 x) { return as_type<u32>(x); }
HESPER_FN f32 to_f32(f16 x) { return (f32)as_type<half>(x.b); }
HESPER_FN f32 to_f32(bf16 x) { return f32_of((u32)x.b << 16); }
HESPER_FN f32 to_f32(f32 x) { return x; }
HESPER_FN f16 to_f16(f32 x) { return f16{as_type<u16>((half)x)}; }
HESPER_FN bf16 to_bf16(f32 x) {
  const u32 b = bits(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return bf16{(u16)(b >> 16 | 0x40u)};
  return bf16{(u16)((b + 0x7fffu + (b >> 16 & 1u)) >> 16)};
}
HESPER_FN u32 count_ones(u32 x) { return popcount(x); }
HESPER_FN u32 count_ones(u64 x) { return popcount((u32)x) + popcount((u32)(x >> 32)); }
HESPER_FN u32 leading_zeros(u32 x) { return clz(x); }
HESPER_FN u32 leading_zeros(u64 x) {
  const u32 high = (u32)(x >> 32);
  return high != 0u ? clz(high) : 32u + clz((u32)x);
}
// The operand is not 0.
HESPER_FN u32 trailing_zeros(u32 x) { return ctz(x); }
HESPER_FN u32 trailing_zeros(u64 x) {
  const u32 low = (u32)x;
  return low != 0u ? ctz(low) : 32u + ctz((u32)(x >> 32));
}
HESPER_FN u32 reversed(u32 x) { return reverse_bits(x); }
HESPER_FN u64 reversed(u64 x) { return (u64)reverse_bits((u32)x) << 32 | (u64)reverse_bits((u32)(x >> 32)); }
HESPER_FN i32 mul_high(i32 a, i32 b) { return mulhi(a, b); }
HESPER_FN u32 mul_high(u32 a, u32 b) { return mulhi(a, b); }
HESPER_FN u64 mul_high(u64 a, u64 b) {
  const u64 a0 = a & 0xfffffffful, a1 = a >> 32, b0 = b & 0xfffffffful, b1 = b >> 32;
  const u64 middle = a1 * b0 + (a0 * b0 >> 32);
  const u64 rest = a0 * b1 + (middle & 0xfffffffful);
  return a1 * b1 + (middle >> 32) + (rest >> 32);
}
HESPER_FN i64 mul_high(i64 a, i64 b) {
  const u64 h = mul_high((u64)a, (u64)b);
  return (i64)(h - (a < 0l ? (u64)b : 0ul) - (b < 0l ? (u64)a : 0ul));
}

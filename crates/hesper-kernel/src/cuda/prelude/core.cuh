// Types, bits, memory.
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
typedef u8* address;
struct f16 { u16 b; };
struct bf16 { u16 b; };
template <class T> struct vec2 { T x, y; };
template <class T> struct vec3 { T x, y, z; };
template <class T> struct vec4 { T x, y, z, w; };
HESPER_FN f32 f32_of(u32 x) { return __uint_as_float(x); }
HESPER_FN u32 bits(f32 x) { return __float_as_uint(x); }
HESPER_FN f64 f64_of(u64 x) { return __longlong_as_double((i64)x); }
HESPER_FN u64 bits(f64 x) { return (u64)__double_as_longlong(x); }
template <class T, class F> HESPER_FN T bit_cast_to(F x) {
  static_assert(sizeof(T) == sizeof(F), "sizes differ");
  T r;
  memcpy(&r, &x, sizeof(T));
  return r;
}
HESPER_FN f32 to_f32(f16 x) { return ptx_f32_of_f16(x.b); }
HESPER_FN f32 to_f32(bf16 x) { return f32_of((u32)x.b << 16); }
HESPER_FN f32 to_f32(f32 x) { return x; }
HESPER_FN f16 to_f16(f32 x) { return f16{ptx_f16_of_f32(x)}; }
HESPER_FN bf16 to_bf16(f32 x) {
  const u32 b = bits(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return bf16{(u16)(b >> 16 | 0x40u)};
  return bf16{(u16)((b + 0x7fffu + (b >> 16 & 1u)) >> 16)};
}
template <int A, class T> HESPER_FN T load(const u8* p) {
  T r;
  memcpy(&r, __builtin_assume_aligned(p, A), sizeof(T));
  return r;
}
// From memory that the kernel does not write, so the compiler may move it ahead of writes.
template <int A, class T> HESPER_FN T load_early(const u8* p) {
  T r;
  if (sizeof(T) == 4 && A >= 4) {
    const u32 w = __ldg((const u32*)p);
    memcpy(&r, &w, sizeof(T));
  } else if (sizeof(T) == 2 && A >= 2) {
    const u16 w = __ldg((const u16*)p);
    memcpy(&r, &w, sizeof(T));
  } else if (sizeof(T) == 1) {
    const u8 w = __ldg(p);
    memcpy(&r, &w, sizeof(T));
  } else r = load<A, T>(p);
  return r;
}
template <int A, class T> HESPER_FN void store(u8* p, T v) {
  memcpy(__builtin_assume_aligned(p, A), &v, sizeof(T));
}
HESPER_FN void zero(u8* p, u32 bytes, u32 first, u32 step) {
  for (u32 i = first * 16; i < bytes; i += step * 16) store<16>(p + i, vec4<u32>{0, 0, 0, 0});
}

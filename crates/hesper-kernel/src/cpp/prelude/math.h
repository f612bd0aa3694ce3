// Functions of f32: the same operations in the same order as on the host, so the same bits.
#define HESPER_MAGIC32 12582912.0f
#define HESPER_MAGIC64 6755399441055744.0
HESPER_FN f32 scale_by(f32 y, i32 n) {
  const i32 low = n >> 1;
  return y * f32_of((u32)(low + 127) << 23) * f32_of((u32)(n - low + 127) << 23);
}
HESPER_FN i32 magic_int(f32 t) { return (i32)(bits(t) - bits(HESPER_MAGIC32)); }
HESPER_FN f32 exp_of(f32 x) {
  f32 c = x > 89.0f ? 89.0f : x;
  c = c < -104.0f ? -104.0f : c;
  const f32 t = fma_of(c, 1.44269504f, HESPER_MAGIC32);
  const f32 n = t - HESPER_MAGIC32;
  const f32 r = fma_of(n, -1.4286068e-6f, fma_of(n, -0.69314575f, c));
  const f32 p = poly(r, 0.5f, 0.16666667f, 0.041666463f, 0.0083333105f, 0.0013933731f, 1.989108e-4f);
  const f32 y = 1.0f + fma_of(r * r, p, r);
  return scale_by(y, magic_int(t));
}
HESPER_FN f32 exp2_of(f32 x) {
  f32 c = x > 129.0f ? 129.0f : x;
  c = c < -151.0f ? -151.0f : c;
  const f32 t = c + HESPER_MAGIC32;
  const f32 r = c - (t - HESPER_MAGIC32);
  const f32 p = poly(r, 0.693147182f, 0.2402265f, 0.05550411f, 0.009618056f, 0.0013333502f, 1.5461561e-4f,
      1.5297413e-5f);
  return scale_by(fma_of(r, p, 1.0f), magic_int(t));
}
HESPER_FN f64 exp64(f64 x) {
  f64 c = x > 300.0 ? 300.0 : x;
  c = c < -300.0 ? -300.0 : c;
  const f64 t = fma_of(c, 1.4426950408889634074, HESPER_MAGIC64);
  const f64 n = t - HESPER_MAGIC64;
  const f64 r = fma_of(n, -1.9082149292705877e-10, fma_of(n, -0.6931471803691238, c));
  const f64 p = poly(r, 0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326136, 0.0013888888888883748,
      1.9841269874820627e-4, 2.4801587325547743e-5, 2.7557255400206422e-6, 2.75572736431103e-7,
      2.5105217004720745e-8, 2.0914686968086876e-9);
  const f64 y = 1.0 + fma_of(r * r, p, r);
  return y * f64_of(0x3ff0000000000000ull + (bits(t) << 52));
}
HESPER_FN f32 keep_zero(f32 x, f32 y) { return x == 0.0f ? x : y; }
HESPER_FN f32 exp10_of(f32 x) { return (f32)exp64((f64)x * 2.30258509299404568402); }
HESPER_FN f32 expm1_of(f32 x) {
  const f64 d = (f64)x;
  const f64 small = d + d * d * (0.5 + d * (1.0 / 6.0));
  const f64 r = abs_of(d) < 1.0 / 4096.0 ? small : exp64(d) - 1.0;
  return keep_zero(x, (f32)r);
}
HESPER_FN f32 log_special(f32 x, f32 r) {
  r = x == 0.0f ? f32_of(0xff800000u) : r;
  r = x < 0.0f ? f32_of(0x7fc00000u) : r;
  return x < f32_of(0x7f800000u) ? r : x;
}
HESPER_FN f32 log_of(f32 x) {
  const bool tiny = x < f32_of(0x00800000u);
  const f32 scaled = tiny ? x * 8388608.0f : x;
  const u32 i = bits(scaled) - 0x3f3504f3u;
  const f32 e = (f32)(((i32)i >> 23) - (tiny ? 23 : 0));
  const f32 m = f32_of((i & 0x007fffffu) + 0x3f3504f3u);
  const f32 f = m - 1.0f;
  const f32 z = f * f;
  const f32 q = poly(f, 0.3333333f, -0.24999997f, 0.20000716f, -0.16667803f, 0.14249058f, -0.12425687f, 0.1168542f,
      -0.11479734f, 0.06971612f);
  const f32 y = fma_of(z, -0.5f, fma_of(f * z, q, e * 1.4286068e-6f));
  const f32 r = fma_of(e, 0.69314575f, f + y);
  return log_special(x, r);
}
struct log_parts { f64 e, l; };
HESPER_FN log_parts log_parts_of(f64 x) {
  const u64 root_half = 0x3fe6a09e667f3bcdull;
  const u64 i = bits(x) - root_half;
  const i32 e = (i32)((i64)i >> 52);
  const f64 m = f64_of((i & 0x000fffffffffffffull) + root_half);
  const f64 s = (m - 1.0) / (m + 1.0);
  const f64 z = s * s;
  const f64 p = poly(z, 0.3333333333333333, 0.19999999999999996, 0.1428571428571769, 0.11111111109926232,
      0.09090909297285235, 0.07692287530280294, 0.0666782088700029, 0.0584402704713128, 0.05941313690572644);
  return log_parts{(f64)e, 2.0 * fma_of(s * z, p, s)};
}
HESPER_FN f64 log64(f64 x) {
  const log_parts a = log_parts_of(x);
  return fma_of(a.e, 0.6931471803691238, fma_of(a.e, 1.9082149292705877e-10, a.l));
}
HESPER_FN f32 log2_of(f32 x) {
  const log_parts a = log_parts_of((f64)x);
  return log_special(x, (f32)fma_of(a.l, 1.4426950408889634074, a.e));
}
HESPER_FN f32 log10_of(f32 x) { return log_special(x, (f32)(log64((f64)x) * 0.43429448190325182765)); }
HESPER_FN f32 log1p_of(f32 x) {
  const f64 d = (f64)x;
  const f64 small = d - d * d * (0.5 - d * (1.0 / 3.0));
  const f64 a = abs_of(d) < 1.0 / 4096.0 ? small : log64(1.0 + d);
  f32 r = x == -1.0f ? f32_of(0xff800000u) : (f32)a;
  r = x < -1.0f ? f32_of(0x7fc00000u) : r;
  r = x < f32_of(0x7f800000u) ? r : x;
  return keep_zero(x, r);
}
HESPER_FN f32 sinh_of(f32 x) {
  const f64 d = (f64)x;
  const f64 z = d * d;
  const f64 small = d * (1.0 + z * (1.0 / 6.0 + z * (1.0 / 120.0 + z * (1.0 / 5040.0))));
  const f64 e = exp64(d);
  const f64 r = abs_of(d) < 0.25 ? small : 0.5 * (e - 1.0 / e);
  return keep_zero(x, (f32)r);
}
HESPER_FN f32 cosh_of(f32 x) {
  const f64 e = exp64((f64)x);
  return (f32)(0.5 * (e + 1.0 / e));
}
HESPER_FN f32 tanh_of(f32 x) {
  const f32 a = abs_of(x);
  const f32 z = x * x;
  const f32 p = poly(z, -0.33333334f, 0.13333324f, -0.0539647f, 0.02181845f, -0.008526333f, 0.0025263906f);
  const f32 small = fma_of(x, z * p, x);
  const f32 c = a > 10.0f ? 10.0f : a;
  const f32 large = 1.0f - 2.0f / (exp_of(2.0f * c) + 1.0f);
  return copysign_of(a < 0.55f ? small : large, x);
}
HESPER_FN f32 sigmoid_of(f32 x) {
  const f32 e = exp_of(neg_of(abs_of(x)));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
HESPER_FN f32 asinh_of(f32 x) {
  const f64 a = (f64)abs_of(x);
  const f64 z = a * a;
  const f64 small = a * (1.0 + z * (-1.0 / 6.0 + z * (3.0 / 40.0 + z * (-15.0 / 336.0))));
  const f64 b = a < 0.0625 ? small : log64(a + sqrt_of(z + 1.0));
  const f32 r = abs_of(x) < f32_of(0x7f800000u) ? (f32)b : abs_of(x);
  return copysign_of(r, x);
}
HESPER_FN f32 acosh_of(f32 x) {
  const f64 d = (f64)x - 1.0;
  f32 r = (f32)log64(1.0 + (d + sqrt_of(d * (d + 2.0))));
  r = x < 1.0f ? f32_of(0x7fc00000u) : r;
  return x < f32_of(0x7f800000u) ? r : x;
}
HESPER_FN f32 atanh_of(f32 x) {
  const f64 d = (f64)abs_of(x);
  const f64 z = d * d;
  const f64 small = d * (1.0 + z * (1.0 / 3.0 + z * (0.2 + z * (1.0 / 7.0))));
  f64 r = d < 0.0625 ? small : 0.5 * log64((1.0 + d) / (1.0 - d));
  r = d == 1.0 ? f64_of(0x7ff0000000000000ull) : r;
  r = d <= 1.0 ? r : f64_of(0x7ff8000000000000ull);
  return copysign_of((f32)r, x);
}
HESPER_FN f32 cbrt_of(f32 x) {
  const f64 a = (f64)abs_of(x);
  f32 r = (f32)exp64(log64(a) * (1.0 / 3.0));
  r = x != 0.0f && abs_of(x) < f32_of(0x7f800000u) ? r : abs_of(x);
  return copysign_of(r, x);
}
HESPER_FN f32 pow_of(f32 x, f32 y) {
  const f32 a = abs_of(x);
  f64 l = log64((f64)a);
  l = a == 0.0f ? f64_of(0xfff0000000000000ull) : l;
  l = a == f32_of(0x7f800000u) ? f64_of(0x7ff0000000000000ull) : l;
  l = a == 1.0f ? 0.0 : l;
  f32 r = (f32)exp64((f64)y * l);
  const bool integer = trunc_of(y) == y;
  const f32 halved = y * 0.5f;
  const bool odd = integer && trunc_of(halved) != halved;
  r = odd && sign_bit(x) ? neg_of(r) : r;
  const bool outside = x < 0.0f && x > f32_of(0xff800000u) && !integer;
  r = outside ? f32_of(0x7fc00000u) : r;
  r = is_nan(x) || is_nan(y) ? f32_of(0x7fc00000u) : r;
  const bool one = x == 1.0f || y == 0.0f || (x == -1.0f && is_inf(y));
  return one ? 1.0f : r;
}
HESPER_FN f64 ieee_rem_by(f64 a, f64 b, f64 twice) {
  b = abs_of(b);
  f64 r = fmod_of(abs_of(a), abs_of(twice));
  const bool above_half = r > b - r;
  r = above_half ? r - b : r;
  r = above_half && r >= b - r ? r - b : r;
  f64 y = r == 0.0 ? copysign_of(0.0, a) : r;
  y = sign_bit(a) && r != 0.0 ? -y : y;
  const bool bad = is_inf(a) || b == 0.0 || is_nan(a) || is_nan(b);
  return bad ? f64_of(0x7ff8000000000000ull) : y;
}
HESPER_FN f32 ieee_rem_of(f32 a, f32 b) { return (f32)ieee_rem_by((f64)a, (f64)b, (f64)b * 2.0); }
HESPER_FN f32 next_after_of(f32 a, f32 b) {
  const bool up = (b > a) == (a > 0.0f);
  const f32 moved = f32_of(up ? bits(a) + 1u : bits(a) - 1u);
  f32 r = a == 0.0f ? copysign_of(f32_of(1u), b) : moved;
  r = a == b ? b : r;
  return is_nan(a) || is_nan(b) ? f32_of(0x7fc00000u) : r;
}
HESPER_FN f32 ldexp_of(f32 a, i32 n) {
  const i32 k = n < -400 ? -400 : n > 400 ? 400 : n;
  return (f32)((f64)a * f64_of((u64)(k + 1023) << 52));
}

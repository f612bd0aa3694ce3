// First passes of functions of f32 that compute in f64: shorter polynomials, quotients and roots from the device's estimates
// and one step of Newton's method, right to about 2^-36. That gives the function's result unless it is next to the middle
// between two f32. Such a result, and arguments that a pass leaves out, are computed by the function itself, so no bit
// depends on a pass.
template <f32 (*F)(f32)> __device__ __noinline__ f32 rarely(f32 x) { return F(x); }
template <f32 (*F)(f32, f32)> __device__ __noinline__ f32 rarely(f32 x, f32 y) { return F(x, y); }
// Whether rounding to f32 is unsure: within so many units of the last place from the middle.
HESPER_FN bool is_unsure(f64 y, u32 within) {
  return (((u32)bits(y) + within - 0x10000000u) & 0x1fffffffu) < 2u * within;
}
HESPER_FN u32 magnitude(f32 x) { return bits(x) & 0x7fffffffu; }
HESPER_FN f64 reciprocal_step(f64 x, f64 r) { return fma_of(r, fma_of(-x, r, 1.0), r); }
HESPER_FN f64 quick_reciprocal(f64 x) {
  f64 r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
  return reciprocal_step(x, r);
}
HESPER_FN f64 quick_sqrt(f64 x) {
  f64 r;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
  const f64 h = x * r;
  return fma_of(h * 0.5, fma_of(-h, r, 1.0), h);
}
HESPER_FN f64 atanh_short(f64 s) {
  const f64 z = s * s;
  return fma_of(s * z, poly(z, 0.33333333277225824, 0.20000060938486, 0.14275408299855774, 0.11665290969120946), s);
}
// The exponent of a positive normal number, and its mantissa in [sqrt(1/2), sqrt(2)) less 1.
struct mantissa { f64 e, f; };
HESPER_FN mantissa mantissa_of(f32 x) {
  const u32 i = bits(x) - 0x3f3504f3u;
  return mantissa{(f64)((i32)i >> 23), (f64)(f32_of((i & 0x007fffffu) + 0x3f3504f3u) - 1.0f)};
}
HESPER_FN f64 log_of_mantissa(f64 f) { return 2.0 * atanh_short(f * quick_reciprocal(2.0 + f)); }
// The natural logarithm of a positive normal number.
HESPER_FN f64 log_short(f64 x) {
  const u64 root_half = 0x3fe6a09e667f3bcdull;
  const u64 i = bits(x) - root_half;
  const f64 f = f64_of((i & 0x000fffffffffffffull) + root_half) - 1.0;
  return fma_of((f64)(i32)((i64)i >> 52), 0.69314718055994530942, log_of_mantissa(f));
}
HESPER_FN bool log_leaves_out(f32 x) { return bits(x) - 0x00800000u >= 0x7f000000u; }
HESPER_FN f32 log2_quick_of(f32 x) {
  const mantissa a = mantissa_of(x);
  const f64 y = fma_of(log_of_mantissa(a.f), 1.4426950408889634074, a.e);
  return is_unsure(y, 1u << 19) || log_leaves_out(x) ? rarely<log2_of>(x) : (f32)y;
}
HESPER_FN f32 log10_quick_of(f32 x) {
  const mantissa a = mantissa_of(x);
  const f64 y = fma_of(log_of_mantissa(a.f), 0.43429448190325182765, a.e * 0.30102999566398119521);
  return is_unsure(y, 1u << 19) || log_leaves_out(x) ? rarely<log10_of>(x) : (f32)y;
}
HESPER_FN f32 log1p_quick_of(f32 x) {
  const u32 i = bits(1.0f + x) - 0x3f3504f3u;
  const f64 s = (f64)f32_of(0x3f800000u - (i & 0xff800000u));
  const f64 y = fma_of((f64)((i32)i >> 23), 0.69314718055994530942, log_of_mantissa(fma_of((f64)x, s, s - 1.0)));
  const bool left_out = bits(1.0f + x) - 1u >= 0x7e967699u;
  return is_unsure(y, 1u << 19) || left_out ? rarely<log1p_of>(x) : keep_zero(x, (f32)y);
}
// `e^x - 1` of numbers up to 88.
HESPER_FN f64 expm1_short(f64 x) {
  const f64 t = fma_of(x, 1.4426950408889634074, HESPER_MAGIC64);
  const f64 r = fma_of(t - HESPER_MAGIC64, -0.69314718055994530942, x);
  const f64 s = f64_of(0x3ff0000000000000ull + (bits(t) << 52));
  const f64 p = poly(r, 0.5, 0.16666666719028936, 0.04166666671901226, 0.00833329846980059, 0.001388885403566671,
      1.9899285575675896e-4, 2.485958983458905e-5);
  return fma_of(fma_of(r * r, p, r), s, s - 1.0);
}
HESPER_FN f32 expm1_quick_of(f32 x) {
  const f64 y = expm1_short((f64)(x < -40.0f ? -40.0f : x));
  const bool left_out = (i32)bits(x) > 0x42b00000 || bits(x) > 0xff800000u;
  return is_unsure(y, 1u << 18) || left_out ? rarely<expm1_of>(x) : keep_zero(x, (f32)y);
}
HESPER_FN bool sinh_leaves_out(f32 x) { return magnitude(x) > 0x42b00000u; }
HESPER_FN f32 sinh_quick_of(f32 x) {
  const f64 h = expm1_short((f64)abs_of(x));
  const f64 y = 0.5 * fma_of(h, quick_reciprocal(h + 1.0), h);
  return is_unsure(y, 1u << 20) || sinh_leaves_out(x) ? rarely<sinh_of>(x) : copysign_of((f32)y, x);
}
HESPER_FN f32 cosh_quick_of(f32 x) {
  const f64 e = expm1_short((f64)abs_of(x)) + 1.0;
  const f64 y = 0.5 * (e + quick_reciprocal(e));
  return is_unsure(y, 1u << 19) || sinh_leaves_out(x) ? rarely<cosh_of>(x) : (f32)y;
}
HESPER_FN f32 asinh_quick_of(f32 x) {
  if (magnitude(x) >= 0x7f800000u) return rarely<asinh_of>(x);
  const f64 a = (f64)abs_of(x);
  const f64 z = a * a;
  const bool near = a < 0.0625;
  const f64 y = near ? a * (1.0 + z * (-1.0 / 6.0 + z * (3.0 / 40.0 + z * (-15.0 / 336.0))))
                     : log_short(a + quick_sqrt(z + 1.0));
  return is_unsure(y, 1u << 20) && !near ? rarely<asinh_of>(x) : copysign_of((f32)y, x);
}
HESPER_FN f32 acosh_quick_of(f32 x) {
  if (x < 1.0f) return f32_of(0x7fc00000u);
  const f64 d = (f64)x - 1.0;
  const f64 y = log_short(1.0 + (d + quick_sqrt(d * (d + 2.0))));
  const bool left_out = !(x > 1.0f && x < f32_of(0x7f800000u));
  return is_unsure(y, 1u << 19) || left_out ? rarely<acosh_of>(x) : (f32)y;
}
HESPER_FN f32 atanh_quick_of(f32 x) {
  const f32 a = abs_of(x);
  const u32 i = bits((1.0f + a) / (1.0f - a)) - 0x3f3504f3u;
  const f64 d = (f64)a, s = (f64)f32_of(0x3f800000u - (i & 0xff800000u));
  const f64 above = fma_of(d, s + 1.0, s - 1.0), below = fma_of(d, s - 1.0, s + 1.0);
  const f64 y = fma_of((f64)((i32)i >> 23), 0.34657359027997265471, atanh_short(above * quick_reciprocal(below)));
  const bool left_out = magnitude(x) >= 0x3f800000u;
  return is_unsure(y, 1u << 19) || left_out ? rarely<atanh_of>(x) : copysign_of((f32)y, x);
}
HESPER_FN f32 tan_quick_of(f32 x) {
  const f64 d = (f64)x;
  const f64 t = fma_of(d, 0.63661977236758134308, HESPER_MAGIC64);
  const f64 n = t - HESPER_MAGIC64;
  const f64 r = fma_of(n, -6.123233995736766e-17, fma_of(n, -1.57079632679489661923, d));
  const f64 z = r * r;
  const f64 p = poly(z, -0.16666666663854168, 0.008333331874273714, -1.98400864995936e-4, 2.724989523061167e-6);
  const f64 q = poly(z, 0.041666666664320264, -0.0013888887671652504, 2.480060018036381e-5, -2.7300933687212943e-7);
  const f64 s = fma_of(r, z * p, r), c = fma_of(z * z, q, fma_of(z, -0.5, 1.0));
  const bool even = ((u32)bits(t) & 1u) == 0u;
  const f64 y = (even ? s : -c) * quick_reciprocal(even ? c : s);
  const bool left_out = magnitude(x) > 0x49000000u;
  return is_unsure(y, 1u << 19) || left_out ? rarely<tan_of>(x) : keep_zero(x, (f32)y);
}
// The angle of the point `(b, a)` of the first quadrant: the quotient is turned by an eighth or a quarter of a turn where
// that makes it small.
HESPER_FN f64 angle_short(f64 a, f64 b, bool turned, bool inverted) {
  const f64 above = inverted ? -b : turned ? a - b : a, below = inverted ? a : turned ? a + b : b;
  const f64 u = above * quick_reciprocal(below);
  const f64 z = u * u;
  const f64 p = poly(z, -0.33333333331439496, 0.19999998916690562, -0.14285612465275252, 0.11107493853432703,
      -0.09028967562110418, 0.07135234647464041, -0.04043033696147107);
  const f64 base = inverted ? 1.57079632679489661923 : turned ? 0.78539816339744830962 : 0.0;
  return base + fma_of(u * z, p, u);
}
HESPER_FN f32 atan_quick_of(f32 x) {
  const f32 a = abs_of(x);
  const f64 y = angle_short((f64)a, 1.0, a > 0.41421357f, a > 2.4142137f);
  const bool left_out = magnitude(x) > 0x7f000000u;
  return is_unsure(y, 1u << 18) || left_out ? rarely<atan_of>(x) : copysign_of((f32)y, x);
}
HESPER_FN f32 atan2_quick_of(f32 y, f32 x) {
  const f64 a = (f64)abs_of(y), b = (f64)abs_of(x);
  const f64 angle = angle_short(a, b, a > 0.41421357 * b, a > 2.4142137 * b);
  const f64 r = sign_bit(x) ? 3.14159265358979323846 - angle : angle;
  // Magnitudes from 1e-18 to 1e18.
  const bool left_out = magnitude(y) - 0x219392efu > 0x3bca787cu || magnitude(x) - 0x219392efu > 0x3bca787cu;
  return is_unsure(r, 1u << 18) || left_out ? rarely<atan2_of>(y, x) : copysign_of((f32)r, y);
}
// The arc sine of numbers up to 1/2, beyond it of `sqrt((1 - a) / 2)`.
HESPER_FN f64 asin_short(f32 a, bool far) {
  const f64 d = (f64)(far ? 0.5f - 0.5f * a : a);
  const f64 z = far ? d : d * d, v = far ? quick_sqrt(d) : d;
  const f64 s = z * z;
  const f64 even = poly(s, 0.16666666665495086, 0.044642358484883196, 0.022132443623426794, 0.0054431851027481075);
  const f64 odd = poly(s, 0.07500000598829049, 0.030397634130580702, 0.019306260869368045, 0.02930523970533579);
  return fma_of(v * z, fma_of(z, odd, even), v);
}
HESPER_FN f32 asin_quick_of(f32 x) {
  const f32 a = abs_of(x);
  const bool far = a > 0.5f;
  const f64 q = asin_short(a, far);
  const f64 y = far ? fma_of(q, -2.0, 1.57079632679489661923) : q;
  const bool left_out = magnitude(x) >= 0x3f800000u;
  return is_unsure(y, 1u << 18) || left_out ? rarely<asin_of>(x) : copysign_of((f32)y, x);
}
HESPER_FN f32 acos_quick_of(f32 x) {
  const f32 a = abs_of(x);
  const bool far = a > 0.5f;
  const f64 whole = asin_short(a, far);
  const f64 q = x < 0.0f ? -whole : whole;
  const f64 y = far ? fma_of(q, 2.0, x < 0.0f ? 3.14159265358979323846 : 0.0) : 1.57079632679489661923 - q;
  const bool left_out = magnitude(x) >= 0x3f800000u;
  return is_unsure(y, 1u << 18) || left_out ? rarely<acos_of>(x) : (f32)y;
}
HESPER_FN f32 erf_inv_quick_of(f32 x) {
  if (magnitude(x) >= 0x3f800000u) return rarely<erf_inv_of>(x);
  const f64 a = (f64)abs_of(x);
  if (a < 0.75) return copysign_of((f32)(a * erf_inv_centre(a * a)), x);
  const f64 w = quick_sqrt(-log_short((1.0 - a) * (1.0 + a)));
  const f64 y = a * (w < 2.0 ? erf_inv_middle(w) : erf_inv_tail(w));
  return is_unsure(y, 1u << 19) ? rarely<erf_inv_of>(x) : copysign_of((f32)y, x);
}
HESPER_FN f32 pow_quick_of(f32 x, f32 y) {
  const mantissa a = mantissa_of(abs_of(x));
  const f64 below = 2.0 + a.f;
  const f64 s = a.f * reciprocal_step(below, quick_reciprocal(below));
  const f64 z = s * s;
  const f64 l = poly(z, 0.3333333333333104, 0.200000000056061, 0.14285712068258175, 0.11111431238424771,
      0.09070092601246624, 0.083109735450887);
  const f64 t = (f64)y * fma_of(fma_of(s * z, l, s), 2.8853900817779268147, a.e);
  const f64 near = t + HESPER_MAGIC64;
  const f64 r = t - (near - HESPER_MAGIC64);
  const f64 square = r * r;
  const f64 even = poly(square, 0.6931471805568324, 0.055504109063258665, 0.0013333478473685412, 1.5303705711365693e-5);
  const f64 odd = poly(square, 0.24022650695888503, 0.00961812913523614, 1.5403475186530786e-4, 1.325080551750225e-6);
  const f64 scale = f64_of(0x3ff0000000000000ull + (bits(near) << 52));
  const f64 value = fma_of(fma_of(r, odd, even), r * scale, scale);
  const f32 half = y * 0.5f;
  const bool integer = trunc_of(y) == y, odd_power = integer && trunc_of(half) != half;
  const bool left_out = magnitude(x) - 0x00800000u >= 0x7f000000u || (sign_bit(x) && !integer) || !(abs_of(t) < 125.0);
  if (is_unsure(value, 1u << 16) || left_out) return rarely<pow_of>(x, y);
  return f32_of(bits((f32)value) ^ (odd_power ? bits(x) & 0x80000000u : 0u));
}

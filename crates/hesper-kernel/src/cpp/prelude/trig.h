// Circular functions of f32 and their inverses.
struct reduced { u32 q; f64 r; };
HESPER_FN reduced reduce_small(f32 x) {
  const f64 d = (f64)x;
  const f64 t = fma_of(d, 0.63661977236758134308, HESPER_MAGIC64);
  const f64 n = t - HESPER_MAGIC64;
  const f64 r = fma_of(n, -6.123233995736766e-17, fma_of(n, -1.57079632679489661923, d));
  return reduced{(u32)bits(t), r};
}
// In f32: the remainder and what its rounding lost.
struct reduced_pair { u32 q; f32 r, lo; };
HESPER_FN reduced_pair reduce_pair(f32 x) {
  const f32 t = fma_of(x, 0.636619772f, HESPER_MAGIC32);
  const f32 n = t - HESPER_MAGIC32;
  const f32 near = fma_of(n, -1.57079633f, x);
  const f32 w = n * -4.371139e-8f;
  const f32 r = near - w;
  const f32 taken = r - near;
  const f32 lost = (near - (r - taken)) - (w + taken);
  return reduced_pair{bits(t), r, fma_of(n, 1.7151245e-15f, lost - fma_of(n, -4.371139e-8f, -w))};
}
// 2/pi, most significant word first, with zeros behind.
HESPER_FN u32 two_over_pi(u32 i) {
  switch (i) {
    case 0: return 0xa2f9836eu;
    case 1: return 0x4e441529u;
    case 2: return 0xfc2757d1u;
    case 3: return 0xf534ddc0u;
    case 4: return 0xdb629599u;
    case 5: return 0x3c439041u;
    case 6: return 0xfe5163abu;
    case 7: return 0xdebbc561u;
    default: return 0u;
  }
}
// Numbers of 128 bits as two words.
HESPER_FN reduced reduce_huge(f32 x) {
  const u64 m = (bits(x) & 0x007fffffu) | 0x00800000u;
  const i32 e = (i32)(bits(x) >> 23 & 0xffu) - 150;
  const u32 first = e > 2 ? (u32)(e - 2) : 0u;
  const u32 w = first / 32u, s = first % 32u;
  u64 hi = (u64)two_over_pi(w) << 32 | two_over_pi(w + 1u);
  u64 lo = (u64)two_over_pi(w + 2u) << 32 | two_over_pi(w + 3u);
  if (s != 0u) {
    hi = hi << s | lo >> (64u - s);
    lo = lo << s | two_over_pi(w + 4u) >> (32u - s);
  }
  // Beyond the limit of the small reduction e is -4 at least, so this shifts by six at most. (A general
  // shift, with a case for all 64 bits, is miscompiled by the device's compiler.)
  if (e < 2) {
    const u32 shift = (u32)(2 - e) & 7u;
    lo = lo >> shift | hi << (64u - shift);
    hi = hi >> shift;
  }
  const u64 low = m * lo;
  const u64 high = mul_high(m, lo) + m * hi;
  u64 fh = high << 2 | low >> 62, fl = low << 2;
  const bool below = fh >> 63 != 0ull;
  const u32 quadrant = (u32)(high >> 62) + (below ? 1u : 0u);
  if (below) {
    fl = 0ull - fl;
    fh = ~fh + (fl == 0ull ? 1ull : 0ull);
  }
  // To the nearest f64: the 64 bits from the first set bit on, with the bits below joined into the last one.
  f64 f = 0.0;
  if (fh != 0ull || fl != 0ull) {
    const i32 z = fh != 0ull ? (i32)leading_zeros(fh) : 64 + (i32)leading_zeros(fl);
    u64 top, rest;
    if (z >= 64) {
      top = fl << (z - 64);
      rest = 0ull;
    } else if (z == 0) {
      top = fh;
      rest = fl;
    } else {
      top = fh << z | fl >> (64 - z);
      rest = fl << z;
    }
    f = (f64)(top | (rest != 0ull ? 1ull : 0ull)) * f64_of((u64)(1023 + 64 - z) << 52);
  }
  f = below ? -f : f;
  const f64 r = f * (1.57079632679489661923 / 340282366920938463463374607431768211456.0);
  if (x < 0.0f) return reduced{0u - quadrant, -r};
  return reduced{quadrant, r};
}
HESPER_FN bool is_huge(f32 x) { return abs_of(x) > 524288.0f; }
HESPER_FN f32 sin_quadrant(u32 quadrant, f32 r, f32 lo) {
  const f32 z = r * r;
  const f32 s = r + fma_of(r, z * poly(z, -0.16666667f, 0.008333332f, -1.9840083e-4f, 2.7249314e-6f), lo);
  const f32 p = poly(z, 0.041666664f, -0.00138883f, 2.4547437e-5f);
  const f32 c = 1.0f - fma_of(z, 0.5f, fma_of(r, lo, -(z * z * p)));
  const f32 y = (quadrant & 1u) == 0u ? s : c;
  return f32_of(bits(y) ^ (quadrant & 2u) << 30);
}
HESPER_FN f32 sin_quadrant(u32 quadrant, f64 r) {
  const f32 near = (f32)r;
  return sin_quadrant(quadrant, near, (f32)(r - (f64)near));
}
HESPER_FN f32 sin_of(f32 x) {
  if (is_huge(x)) {
    if (is_inf(x)) return f32_of(0x7fc00000u);
    const reduced a = reduce_huge(x);
    return sin_quadrant(a.q, a.r);
  }
  const reduced_pair a = reduce_pair(x);
  const f32 y = sin_quadrant(a.q, a.r, a.lo);
  return x == 0.0f ? x : y;
}
HESPER_FN f32 cos_of(f32 x) {
  if (is_huge(x)) {
    if (is_inf(x)) return f32_of(0x7fc00000u);
    const reduced a = reduce_huge(x);
    return sin_quadrant(a.q + 1u, a.r);
  }
  const reduced_pair a = reduce_pair(x);
  return sin_quadrant(a.q + 1u, a.r, a.lo);
}
struct sin_cos { f64 s, c; };
HESPER_FN sin_cos sin_cos64(f64 r) {
  const f64 z = r * r;
  const f64 p = poly(z, -0.16666666666666666, 0.008333333333330925, -1.9841269836722418e-4, 2.755731608381636e-6,
      -2.5051127944014184e-8, 1.5917848524808034e-10);
  const f64 q = poly(z, 0.041666666666666664, -0.0013888888888887382, 2.480158729874307e-5, -2.7557317260008837e-7,
      2.087614382799313e-9, -1.1382456778061164e-11);
  return sin_cos{fma_of(r, z * p, r), fma_of(z * z, q, fma_of(z, -0.5, 1.0))};
}
HESPER_FN f64 tan_quadrant(u32 quadrant, f64 r) {
  const sin_cos a = sin_cos64(r);
  return (quadrant & 1u) == 0u ? a.s / a.c : -a.c / a.s;
}
HESPER_FN f32 tan_of(f32 x) {
  if (is_huge(x)) {
    if (is_inf(x)) return f32_of(0x7fc00000u);
    const reduced a = reduce_huge(x);
    return (f32)tan_quadrant(a.q, a.r);
  }
  const reduced a = reduce_small(x);
  const f32 y = (f32)tan_quadrant(a.q, a.r);
  return x == 0.0f ? x : y;
}
HESPER_FN reduced reduce_pi(f64 x) {
  const f64 d = abs_of(x) < 16777216.0 ? x : x * 0.0;
  const f64 t = 2.0 * d + HESPER_MAGIC64;
  const f64 r = d - 0.5 * (t - HESPER_MAGIC64);
  return reduced{(u32)bits(t), r * 3.14159265358979323846};
}
HESPER_FN f64 sin_pi_quadrant(u32 quadrant, f64 r) {
  const sin_cos a = sin_cos64(r);
  const f64 y = (quadrant & 1u) == 0u ? a.s : a.c;
  return (quadrant & 2u) == 0u ? y : -y;
}
HESPER_FN f64 sin_pi64(f64 x) {
  const reduced a = reduce_pi(x);
  return sin_pi_quadrant(a.q, a.r);
}
HESPER_FN f32 sin_pi_of(f32 x) {
  const f32 y = (f32)sin_pi64((f64)x);
  return y == 0.0f ? copysign_of(y, x) : y;
}
HESPER_FN f32 cos_pi_of(f32 x) {
  const reduced a = reduce_pi((f64)x);
  const f32 y = (f32)sin_pi_quadrant(a.q + 1u, a.r);
  return y == 0.0f ? 0.0f : y;
}
HESPER_FN f32 tan_pi_of(f32 x) {
  const reduced a = reduce_pi((f64)x);
  const f32 y = (f32)tan_quadrant(a.q, a.r);
  return y == 0.0f ? copysign_of(y, x) : y;
}
HESPER_FN f64 atan_positive(f64 a) {
  const bool inverted = a > 1.0;
  const f64 t = inverted ? 1.0 / a : a;
  const bool rotated = t > 0.414213562373095;
  const f64 u = rotated ? (t - 1.0) / (t + 1.0) : t;
  const f64 z = u * u;
  const f64 p = poly(z, -0.3333333333333325, 0.19999999999898374, -0.14285714266090668, 0.11111109636147994,
      -0.09090852544683323, 0.07691054932692046, -0.0664961131106286, 0.05736317546520616, -0.04483286455098747,
      0.022749867857123345);
  f64 y = fma_of(u, z * p, u);
  y = rotated ? y + 0.78539816339744830962 : y;
  return inverted ? 1.57079632679489661923 - y : y;
}
HESPER_FN f32 atan_of(f32 x) { return copysign_of((f32)atan_positive((f64)abs_of(x)), x); }
HESPER_FN f32 asin_of(f32 x) {
  const f64 a = (f64)abs_of(x);
  return copysign_of((f32)atan_positive(a / sqrt_of((1.0 - a) * (1.0 + a))), x);
}
HESPER_FN f32 acos_of(f32 x) {
  const f64 d = (f64)x;
  return (f32)(2.0 * atan_positive(sqrt_of((1.0 - d) / (1.0 + d))));
}
HESPER_FN f32 atan2_of(f32 y, f32 x) {
  const f64 a = (f64)abs_of(y), b = (f64)abs_of(x);
  f64 ratio = is_inf(y) && is_inf(x) ? 1.0 : a / b;
  ratio = a == 0.0 && b == 0.0 ? 0.0 : ratio;
  f64 angle = atan_positive(ratio);
  angle = sign_bit(x) ? 3.14159265358979323846 - angle : angle;
  angle = is_nan(x) || is_nan(y) ? f64_of(0x7ff8000000000000ull) : angle;
  return copysign_of((f32)angle, y);
}

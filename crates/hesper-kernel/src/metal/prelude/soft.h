// f64 in integers, for the functions of f32 that compute in it. Results are rounded to nearest, halves to even.
// Shifted right; what is lost is joined into the last bit.
HESPER_FN u64 soft_shifted(u64 m, u32 n) {
  if (n == 0u) return m;
  if (n > 63u) return m != 0ul ? 1ul : 0ul;
  return m >> n | (m << (64u - n) != 0ul ? 1ul : 0ul);
}
// The bits of the f64 nearest to m * 2^(e - 1086).
HESPER_FN u64 soft_pack(u64 sign, i32 e, u64 m) {
  if (m == 0ul) return sign;
  const u32 z = leading_zeros(m);
  m = m << z;
  e = e - (i32)z;
  if (e >= 2047) return sign | 0x7ff0000000000000ul;
  if (e <= 0) {
    m = soft_shifted(m, (u32)(1 - e));
    e = 1;
  }
  const u64 cut = m & 0x7fful, kept = m >> 11;
  const bool up = cut > 0x400ul || (cut == 0x400ul && (kept & 1ul) != 0ul);
  return sign | (((u64)(e - 1) << 52) + kept + (up ? 1ul : 0ul));
}
// A finite number as m * 2^(e - 1086), with the first bit of m set unless it is zero.
struct soft_parts { u64 sign; i32 e; u64 m; };
HESPER_FN soft_parts soft_unpack(u64 b) {
  const u64 sign = b & 0x8000000000000000ul, fraction = b & 0x000ffffffffffffful;
  const i32 e = (i32)(b >> 52 & 0x7fful);
  if (e != 0) return soft_parts{sign, e, (fraction | 0x0010000000000000ul) << 11};
  if (fraction == 0ul) return soft_parts{sign, 0, 0ul};
  const u32 z = leading_zeros(fraction << 11);
  return soft_parts{sign, 1 - (i32)z, fraction << 11 << z};
}
HESPER_FN u64 soft_size(u64 b) { return b & 0x7ffffffffffffffful; }
HESPER_FN bool soft_finite(u64 b) { return soft_size(b) < 0x7ff0000000000000ul; }
HESPER_FN bool soft_nan(u64 b) { return soft_size(b) > 0x7ff0000000000000ul; }
HESPER_FN u64 soft_of(f32 x) {
  const u32 b = bits(x), e = b >> 23 & 0xffu, fraction = b & 0x007fffffu;
  const u64 sign = (u64)(b >> 31) << 63;
  if (e == 255u) return sign | 0x7ff0000000000000ul | (u64)fraction << 29;
  return soft_pack(sign, (i32)(e != 0u ? e : 1u) + 896, (u64)(e != 0u ? fraction | 0x00800000u : fraction) << 40);
}
HESPER_FN u64 soft_of(i32 x) {
  return soft_pack(x < 0 ? 0x8000000000000000ul : 0ul, 1086, x < 0 ? 0ul - (u64)(i64)x : (u64)x);
}
HESPER_FN f32 soft_f32(u64 b) {
  const u32 sign = (u32)(b >> 63) << 31;
  if (soft_nan(b)) return f32_of(0x7fc00000u);
  if (!soft_finite(b)) return f32_of(sign | 0x7f800000u);
  const soft_parts x = soft_unpack(b);
  i32 e = x.e - 896;
  u64 m = x.m;
  if (m == 0ul) return f32_of(sign);
  if (e >= 255) return f32_of(sign | 0x7f800000u);
  if (e <= 0) {
    m = soft_shifted(m, (u32)(1 - e));
    e = 1;
  }
  const u64 cut = m & 0xfffffffffful;
  const u32 kept = (u32)(m >> 40);
  const bool up = cut > 0x8000000000ul || (cut == 0x8000000000ul && (kept & 1u) != 0u);
  return f32_of(sign | (((u32)(e - 1) << 23) + kept + (up ? 1u : 0u)));
}
struct f64 {
  u64 b;
  f64() : b(0ul) {}
  f64(f32 x) : b(soft_of(x)) {}
  f64(i32 x) : b(soft_of(x)) {}
  f64(u64 x) : b(soft_pack(0ul, 1086, x)) {}
  explicit operator f32() const { return soft_f32(b); }
};
HESPER_FN f64 f64_of(u64 x) {
  f64 r;
  r.b = x;
  return r;
}
HESPER_FN u64 bits(f64 x) { return x.b; }
HESPER_FN f64 operator-(f64 a) { return f64_of(a.b ^ 0x8000000000000000ul); }
HESPER_FN f64 operator+(f64 left, f64 right) {
  const bool swap = soft_size(left.b) < soft_size(right.b);
  const u64 a = swap ? right.b : left.b, b = swap ? left.b : right.b;
  if (!soft_finite(a)) {
    const bool opposite = !soft_finite(b) && a != b;
    return f64_of(soft_nan(a) || opposite ? 0x7ff8000000000000ul : a);
  }
  const soft_parts x = soft_unpack(a), y = soft_unpack(b);
  if (y.m == 0ul) return f64_of(x.m == 0ul ? a & b : a);
  const u64 p = x.m >> 1, q = soft_shifted(y.m >> 1, (u32)(x.e - y.e));
  if (x.sign == y.sign) return f64_of(soft_pack(x.sign, x.e + 1, p + q));
  return f64_of(p == q ? 0ul : soft_pack(x.sign, x.e + 1, p - q));
}
HESPER_FN f64 operator-(f64 a, f64 b) { return a + -b; }
HESPER_FN f64 operator*(f64 a, f64 b) {
  const u64 sign = (a.b ^ b.b) & 0x8000000000000000ul;
  if (!soft_finite(a.b) || !soft_finite(b.b)) {
    const bool bad = soft_nan(a.b) || soft_nan(b.b) || soft_size(a.b) == 0ul || soft_size(b.b) == 0ul;
    return f64_of(bad ? 0x7ff8000000000000ul : sign | 0x7ff0000000000000ul);
  }
  const soft_parts x = soft_unpack(a.b), y = soft_unpack(b.b);
  const u64 m = mul_high(x.m, y.m) | (x.m * y.m != 0ul ? 1ul : 0ul);
  return f64_of(soft_pack(sign, x.e + y.e - 1022, m));
}
HESPER_FN f64 operator/(f64 a, f64 b) {
  const u64 sign = (a.b ^ b.b) & 0x8000000000000000ul;
  const bool bad = soft_nan(a.b) || soft_nan(b.b);
  if (bad || !soft_finite(a.b)) {
    return f64_of(bad || !soft_finite(b.b) ? 0x7ff8000000000000ul : sign | 0x7ff0000000000000ul);
  }
  if (!soft_finite(b.b)) return f64_of(sign);
  const soft_parts x = soft_unpack(a.b), y = soft_unpack(b.b);
  if (y.m == 0ul) return f64_of(x.m == 0ul ? 0x7ff8000000000000ul : sign | 0x7ff0000000000000ul);
  const bool below = x.m < y.m;
  const u64 d = y.m >> 11;
  u64 r = x.m >> (below ? 10 : 11), q = 0ul;
  for (u32 i = 0u; i < 60u; i++) {
    const bool one = r >= d;
    q = q << 1 | (one ? 1ul : 0ul);
    r = (one ? r - d : r) << 1;
  }
  return f64_of(soft_pack(sign, x.e - y.e + (below ? 1026 : 1027), q | (r != 0ul ? 1ul : 0ul)));
}
HESPER_FN f64 sqrt_of(f64 a) {
  if (soft_size(a.b) == 0ul) return a;
  if (soft_nan(a.b) || a.b >> 63 != 0ul) return f64_of(0x7ff8000000000000ul);
  if (!soft_finite(a.b)) return a;
  const soft_parts x = soft_unpack(a.b);
  const i32 k = x.e - 1075;
  u64 p = x.m >> 1 << (u32)(k & 1), r = 0ul, s = 0ul;
  for (u32 i = 0u; i < 57u; i++) {
    r = r << 2 | p >> 62;
    p = p << 2;
    const u64 t = s << 2 | 1ul;
    const bool one = r >= t;
    s = s << 1 | (one ? 1ul : 0ul);
    r = one ? r - t : r;
  }
  return f64_of(soft_pack(0ul, (k - (k & 1)) / 2 + 1056, s | (r != 0ul ? 1ul : 0ul)));
}
// Numbers of 128 bits.
struct soft_wide { u64 hi, lo; };
HESPER_FN soft_wide soft_shifted(soft_wide x, u32 n) {
  if (n == 0u) return x;
  if (n > 63u) return soft_wide{0ul, soft_shifted(x.hi, n - 64u) | (x.lo != 0ul ? 1ul : 0ul)};
  return soft_wide{x.hi >> n, x.hi << (64u - n) | soft_shifted(x.lo, n)};
}
HESPER_FN f64 fma_of(f64 a, f64 b, f64 c) {
  const soft_parts x = soft_unpack(a.b), y = soft_unpack(b.b), z = soft_unpack(c.b);
  const bool finite = soft_finite(a.b) && soft_finite(b.b) && soft_finite(c.b);
  if (!finite || x.m == 0ul || y.m == 0ul || z.m == 0ul) return a * b + c;
  const u64 sign = x.sign ^ y.sign;
  const i32 ep = x.e + y.e - 2171, ec = z.e - 1149;
  const u64 high = mul_high(x.m, y.m), low = x.m * y.m;
  soft_wide p = soft_wide{high >> 1, high << 63 | low >> 1}, q = soft_wide{z.m >> 1, 0ul};
  const i32 e = ep > ec ? ep : ec;
  p = soft_shifted(p, (u32)(e - ep));
  q = soft_shifted(q, (u32)(e - ec));
  u64 of = sign;
  if (sign == z.sign) {
    const u64 sum = p.lo + q.lo;
    p = soft_wide{p.hi + q.hi + (sum < p.lo ? 1ul : 0ul), sum};
  } else {
    const bool swap = p.hi < q.hi || (p.hi == q.hi && p.lo < q.lo);
    const soft_wide l = swap ? q : p, s = swap ? p : q;
    p = soft_wide{l.hi - s.hi - (l.lo < s.lo ? 1ul : 0ul), l.lo - s.lo};
    of = swap ? z.sign : sign;
  }
  if (p.hi == 0ul) return f64_of(p.lo == 0ul ? 0ul : soft_pack(of, e + 1086, p.lo));
  const u32 n = leading_zeros(p.hi);
  const u64 top = n != 0u ? p.hi << n | p.lo >> (64u - n) : p.hi;
  return f64_of(soft_pack(of, e + 1150 - (i32)n, top | (p.lo << n != 0ul ? 1ul : 0ul)));
}
HESPER_FN i64 soft_order(u64 b) { return b >> 63 != 0ul ? 0l - (i64)soft_size(b) : (i64)b; }
HESPER_FN bool soft_ordered(f64 a, f64 b) { return !soft_nan(a.b) && !soft_nan(b.b); }
HESPER_FN bool operator<(f64 a, f64 b) { return soft_ordered(a, b) && soft_order(a.b) < soft_order(b.b); }
HESPER_FN bool operator<=(f64 a, f64 b) { return soft_ordered(a, b) && soft_order(a.b) <= soft_order(b.b); }
HESPER_FN bool operator>(f64 a, f64 b) { return b < a; }
HESPER_FN bool operator>=(f64 a, f64 b) { return b <= a; }
HESPER_FN bool operator==(f64 a, f64 b) { return soft_ordered(a, b) && soft_order(a.b) == soft_order(b.b); }
HESPER_FN bool operator!=(f64 a, f64 b) { return !(a == b); }
HESPER_FN f64 fmod_of(f64 a, f64 b) {
  if (!soft_finite(a.b) || soft_nan(b.b) || soft_size(b.b) == 0ul) return f64_of(0x7ff8000000000000ul);
  if (soft_size(a.b) < soft_size(b.b)) return a;
  const soft_parts x = soft_unpack(a.b), y = soft_unpack(b.b);
  u64 m = x.m >> 11;
  const u64 d = y.m >> 11;
  for (i32 i = x.e - y.e; i > 0; i--) m = (m >= d ? m - d : m) << 1;
  m = m >= d ? m - d : m;
  return f64_of(soft_pack(x.sign, y.e, m << 11));
}

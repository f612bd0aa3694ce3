// The bits of f64.
HESPER_FN bool is_nan(f64 x) { return (bits(x) & 0x7fffffffffffffffull) > 0x7ff0000000000000ull; }
HESPER_FN bool is_inf(f64 x) { return (bits(x) & 0x7fffffffffffffffull) == 0x7ff0000000000000ull; }
HESPER_FN bool is_finite(f64 x) { return (bits(x) & 0x7ff0000000000000ull) != 0x7ff0000000000000ull; }
HESPER_FN bool is_normal(f64 x) {
  const u64 e = bits(x) & 0x7ff0000000000000ull;
  return e != 0ull && e != 0x7ff0000000000000ull;
}
HESPER_FN bool sign_bit(f64 x) { return bits(x) >> 63 != 0ull; }
HESPER_FN f64 abs_of(f64 x) { return f64_of(bits(x) & 0x7fffffffffffffffull); }
HESPER_FN f64 neg_of(f64 x) { return f64_of(bits(x) ^ 0x8000000000000000ull); }
HESPER_FN f64 copysign_of(f64 x, f64 s) {
  return f64_of((bits(x) & 0x7fffffffffffffffull) | (bits(s) & 0x8000000000000000ull));
}
HESPER_FN f64 float_of_bits(u64 x) { return f64_of(x); }

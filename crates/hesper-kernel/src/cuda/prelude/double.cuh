// Functions of f64: the device's own; the last bits may differ from the host's.
HESPER_FN f64 exp_of(f64 x) { return exp(x); }
HESPER_FN f64 exp2_of(f64 x) { return exp2(x); }
HESPER_FN f64 exp10_of(f64 x) { return exp10(x); }
HESPER_FN f64 expm1_of(f64 x) { return expm1(x); }
HESPER_FN f64 log_of(f64 x) { return log(x); }
HESPER_FN f64 log2_of(f64 x) { return log2(x); }
HESPER_FN f64 log10_of(f64 x) { return log10(x); }
HESPER_FN f64 log1p_of(f64 x) { return log1p(x); }
HESPER_FN f64 sin_of(f64 x) { return sin(x); }
HESPER_FN f64 cos_of(f64 x) { return cos(x); }
HESPER_FN f64 tan_of(f64 x) { return tan(x); }
HESPER_FN f64 sin_pi_of(f64 x) {
  const f64 y = sinpi(x);
  return y == 0.0 ? copysign_of(0.0, x) : y;
}
HESPER_FN f64 cos_pi_of(f64 x) {
  const f64 y = cospi(x);
  return y == 0.0 ? 0.0 : y;
}
HESPER_FN f64 tan_pi_of(f64 x) { return sin_pi_of(x) / cos_pi_of(x); }
HESPER_FN f64 asin_of(f64 x) { return asin(x); }
HESPER_FN f64 acos_of(f64 x) { return acos(x); }
HESPER_FN f64 atan_of(f64 x) { return atan(x); }
HESPER_FN f64 sinh_of(f64 x) { return sinh(x); }
HESPER_FN f64 cosh_of(f64 x) { return cosh(x); }
HESPER_FN f64 tanh_of(f64 x) { return tanh(x); }
HESPER_FN f64 asinh_of(f64 x) { return asinh(x); }
HESPER_FN f64 acosh_of(f64 x) { return acosh(x); }
HESPER_FN f64 atanh_of(f64 x) { return atanh(x); }
HESPER_FN f64 cbrt_of(f64 x) { return cbrt(x); }
HESPER_FN f64 erf_of(f64 x) { return erf(x); }
HESPER_FN f64 erfc_of(f64 x) { return erfc(x); }
HESPER_FN f64 erf_inv_of(f64 x) { return erfinv(x); }
HESPER_FN f64 lgamma_of(f64 x) { return lgamma(x); }
HESPER_FN f64 sigmoid_of(f64 x) {
  const f64 e = exp(-abs_of(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
HESPER_FN f64 pow_of(f64 a, f64 b) { return pow(a, b); }
HESPER_FN f64 atan2_of(f64 a, f64 b) { return atan2(a, b); }
HESPER_FN f64 ieee_rem_of(f64 a, f64 b) { return remainder(a, b); }
HESPER_FN f64 next_after_of(f64 a, f64 b) { return nextafter(a, b); }
HESPER_FN f64 ldexp_of(f64 a, i32 n) { return ldexp(a, n); }

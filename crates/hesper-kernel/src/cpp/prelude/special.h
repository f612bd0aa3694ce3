// The error functions, and the logarithm of the gamma function.
HESPER_FN f32 erf_of(f32 x) {
  const f32 a = abs_of(x);
  const f32 z = x * x;
  const f32 p = poly(z, 0.12837917f, -0.37612635f, 0.112836994f, -0.026859589f, 0.005201456f, -8.147081e-4f,
      8.387074e-5f);
  const f32 small = fma_of(x, p, x);
  const f32 c = a > 4.0f ? 4.0f : a;
  const f32 q = poly(c, 3.4958211e-4f, -1.1303884f, -0.6314835f, -0.11049957f, 0.026736233f, -0.00491078f,
      6.433165e-4f, -5.493617e-5f, 2.5943393e-6f, -4.4538965e-8f);
  const f32 large = copysign_of(1.0f - exp_of(q), x);
  return a < 0.92f ? small : large;
}
HESPER_FN f64 erfcx_of(f64 x) {
  const f64 y = (x - 4.0) / (x + 4.0);
  const f64 p = poly(y, 1.2329951186255526, -0.13962111684056253, 0.015379652102620111, 0.06809705425469303,
      -0.10103906603632955, 0.09373283499833329, -0.06633036581154421, 0.03716751553787908,
      -0.016197734067039865, 0.005031969972225688, -7.577732147971718e-4, -1.9925664291065565e-4,
      1.5062131217624512e-4, -2.4399505458525544e-5, -1.1220902504340601e-5, 5.710769473216913e-6,
      2.916445562939141e-7, -8.277591913537945e-7, 7.703495881102781e-8, 1.1328048304274549e-7,
      -1.9106294487779176e-8, -1.660879467182853e-8, 1.6868082625932292e-9, 2.1031095817570338e-9,
      2.9111659955327447e-10);
  return p / (1.0 + 2.0 * x);
}
HESPER_FN f64 erf_small(f64 x) {
  const f64 z = x * x;
  const f64 p = poly(z, 0.1283791670955126, -0.37612638903183754, 0.11283791670955126, -0.02686617064513125,
      0.005223977625442116, -8.548327023440556e-4, 1.2055332980838985e-4, -1.492565029879073e-5,
      1.6462111758251498e-6, -1.6365764222918816e-7, 1.4805446028103551e-8, -1.2264396789772623e-9,
      9.164214867801182e-11, -5.171765098973452e-12);
  return fma_of(x, p, x);
}
HESPER_FN f32 erfc_of(f32 x) {
  const f64 d = (f64)x;
  const f64 a = abs_of(d);
  const f64 c = a > 11.0 ? 11.0 : a;
  const f64 tail = erfcx_of(c) * exp64(-c * c);
  const f64 far = d < 0.0 ? 2.0 - tail : tail;
  return (f32)(a < 0.5 ? 1.0 - erf_small(d) : far);
}
HESPER_FN f64 erf_inv_centre(f64 z) {
  return poly(z, 0.8862269254790083, 0.23201365078595293, 0.12755773076317814, 0.08649218138744305, 0.06615082246089132,
      0.03777169132593097, 0.14667178711446957, -0.4735673532617777, 1.7121637786557489, -3.6610782307414085,
      5.230675832098532, -4.292231723962396, 1.6568260594193749);
}
HESPER_FN f64 erf_inv_middle(f64 w) {
  return poly(w, 0.8929693328051025, -0.055001837712366566, 0.43328506914870163, -0.4350088479636291,
      0.6261593341513791, -0.592396159878283, 0.3911068575120107, -0.1768194952161761, 0.050730661524171404,
      -0.008222679498561453, 5.721589764104019e-4);
}
HESPER_FN f64 erf_inv_tail(f64 w) {
  return poly(w, 7.596127428118413, -29.604084453879434, 59.301634504061454, -70.36596979225574, 55.66858957646145,
      -30.774573588005598, 12.206540975579763, -3.513323351256382, 0.7319756641210989, -0.10842907529326636,
      0.010976617189692192, -7.025863987663633e-4, 2.4112535040653976e-5, -2.781292807563907e-7);
}
HESPER_FN f64 erf_inv_estimate(f64 a) {
  const f64 w = sqrt_of(-log64((1.0 - a) * (1.0 + a)));
  const f64 r = w < 2.0 ? erf_inv_middle(w) : erf_inv_tail(w);
  return a * (a < 0.75 ? erf_inv_centre(a * a) : r);
}
HESPER_FN f32 erf_inv_of(f32 x) {
  const f64 a = (f64)abs_of(x);
  const f64 c = a < 1.0 ? a : 0.5;
  f32 r = (f32)erf_inv_estimate(c);
  r = a == 1.0 ? f32_of(0x7f800000u) : r;
  r = a <= 1.0 ? r : f32_of(0x7fc00000u);
  return copysign_of(r, x);
}
HESPER_FN f64 lgamma_positive(f64 x) {
  const bool small = x < 9.0;
  const f64 product =
      x * (x + 1.0) * (x + 2.0) * (x + 3.0) * (x + 4.0) * (x + 5.0) * (x + 6.0) * (x + 7.0) * (x + 8.0);
  const f64 y = small ? x + 9.0 : x;
  const f64 i = 1.0 / y;
  const f64 z = i * i;
  const f64 series = i * poly(z, 1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0,
      -691.0 / 360360.0, 1.0 / 156.0, -3617.0 / 122400.0);
  const f64 big = (y - 0.5) * log64(y) - y + 0.9189385332046728 + series;
  return small ? big - log64(product) : big;
}
HESPER_FN f32 lgamma_of(f32 x) {
  const f64 d = (f64)x;
  const bool negative = d < 0.0;
  const f64 a = negative ? 1.0 - d : d;
  const bool near_zero = abs_of(d) < 1e-6;
  const f64 g = lgamma_positive(near_zero ? 1.0 : a);
  const f64 s = abs_of(sin_pi64(d));
  const f64 reflected = log64(3.14159265358979323846 / (s > 0.0 ? s : 1.0)) - g;
  f64 r = negative ? reflected : g;
  r = near_zero ? -log64(abs_of(d)) - 0.5772156649015329 * d : r;
  const bool pole = x <= 0.0f && s == 0.0;
  r = pole || is_inf(x) ? f64_of(0x7ff0000000000000ull) : r;
  return is_nan(x) ? x : (f32)r;
}

// Rounding, roots and remainders: the device's own where they are exact.
HESPER_FN f32 floor_of(f32 x) { return floor(x); }
HESPER_FN f32 ceil_of(f32 x) { return ceil(x); }
HESPER_FN f32 trunc_of(f32 x) { return trunc(x); }
HESPER_FN f32 rint_of(f32 x) { return rint(x); }
HESPER_FN f32 sqrt_of(f32 x) { return sqrt(x); }
HESPER_FN f32 fma_of(f32 a, f32 b, f32 c) { return fma(a, b, c); }

//! Minima, signs, rounding to integers and parts of f32 and f64.

macro_rules! float_arith {
    ($float:ident, $uint:ident, $min:ident, $max:ident, $min_nan:ident, $max_nan:ident,
     $sign:ident, $round:ident, $fract:ident, $frexp:ident, $fdim:ident, $mantissa_bits:expr) => {
        /// Smaller; the operand that is a number if the other is NaN; -0 is below +0.
        #[inline(always)]
        pub fn $min(a: $float, b: $float) -> $float {
            let r = if a < b { a } else { b };
            // Equal zeros: the sign bits or together.
            let r = if a == b { $float::from_bits(a.to_bits() | b.to_bits()) } else { r };
            // `a < b` is false for a NaN `a`, which leaves `b`.
            if b.is_nan() { a } else { r }
        }

        /// Larger; the operand that is a number if the other is NaN; -0 is below +0.
        #[inline(always)]
        pub fn $max(a: $float, b: $float) -> $float {
            let r = if a > b { a } else { b };
            let r = if a == b { $float::from_bits(a.to_bits() & b.to_bits()) } else { r };
            if b.is_nan() { a } else { r }
        }

        /// Smaller; NaN if either is.
        #[inline(always)]
        pub fn $min_nan(a: $float, b: $float) -> $float {
            let r = $min(a, b);
            let r = if a.is_nan() { a } else { r };
            if b.is_nan() { b } else { r }
        }

        /// Larger; NaN if either is.
        #[inline(always)]
        pub fn $max_nan(a: $float, b: $float) -> $float {
            let r = $max(a, b);
            let r = if a.is_nan() { a } else { r };
            if b.is_nan() { b } else { r }
        }

        /// -1, 0 or 1; zeros as they are, 0 for NaN.
        #[inline(always)]
        pub fn $sign(x: $float) -> $float {
            let r = if x > 0.0 { 1.0 } else { x };
            let r = if x < 0.0 { -1.0 } else { r };
            if x.is_nan() { 0.0 } else { r }
        }

        /// Nearest integer, halves away from zero.
        #[inline(always)]
        pub fn $round(x: $float) -> $float {
            let t = x.trunc();
            let far = (x - t).abs() >= 0.5;
            let r = if far { t + (1.0 as $float).copysign(x) } else { t };
            r.copysign(x)
        }

        /// `x - floor(x)`, below 1.
        #[inline(always)]
        pub fn $fract(x: $float) -> $float {
            let r = x - x.floor();
            let below = 1.0 - $float::EPSILON / 2.0;
            if r > below { below } else { r }
        }

        /// `a - b` if positive, else 0; NaN if either is.
        #[inline(always)]
        pub fn $fdim(a: $float, b: $float) -> $float {
            let d = a - b;
            if a <= b { 0.0 } else { d }
        }

        /// Mantissa and exponent of C's `frexp`; the number itself and 0 for zeros,
        /// infinities and NaN.
        #[inline(always)]
        pub fn $frexp(x: $float) -> ($float, i32) {
            const M: u32 = $mantissa_bits;
            let tiny = x.abs() < $float::MIN_POSITIVE;
            let up = ((1 as $uint) << (M + 1)) as $float;
            let y = if tiny { x * up } else { x };
            let bits = y.to_bits();
            let mask: $uint = ($float::INFINITY.to_bits() >> M) << M;
            let half = (0.5 as $float).to_bits();
            let m = $float::from_bits((bits & !mask) | half);
            let e = ((bits & mask) >> M) as i32 - (half >> M) as i32;
            let e = if tiny { e - (M as i32 + 1) } else { e };
            let plain = x != 0.0 && x.abs() < $float::INFINITY;
            (if plain { m } else { x }, if plain { e } else { 0 })
        }
    };
}

float_arith!(
    f32,
    u32,
    min_f32,
    max_f32,
    min_nan_f32,
    max_nan_f32,
    sign_f32,
    round_f32,
    fract_f32,
    frexp_f32,
    fdim_f32,
    23
);
float_arith!(
    f64,
    u64,
    min_f64,
    max_f64,
    min_nan_f64,
    max_nan_f64,
    sign_f64,
    round_f64,
    fract_f64,
    frexp_f64,
    fdim_f64,
    52
);

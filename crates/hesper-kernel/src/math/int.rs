//! Integer arithmetic with defined edge cases, for all integer types.

/// Operations that the integer types do not have, or not in one form.
pub(crate) trait Integer: Copy {
    /// The absolute value, which wraps for the least integer.
    fn magnitude(self) -> Self;
    /// -1, 0 or 1.
    fn sign(self) -> Self;
    /// The quotient, towards zero; 0 for a divisor of 0; wraps.
    fn quotient(self, b: Self) -> Self;
    /// The rest of the division, with the sign of the dividend; 0 for a divisor of 0.
    fn remainder(self, b: Self) -> Self;
    /// The quotient by way of floats, which vectorises, unless [`Integer::exceeds_floats`].
    fn float_quotient(self, b: Self) -> Self;
    /// The rest of the division by way of floats, unless [`Integer::exceeds_floats`].
    fn float_remainder(self, b: Self) -> Self;
    /// Whether the quotient by way of floats may be wrong.
    fn exceeds_floats(self, b: Self) -> bool;
}

/// Adding it to an integer below 2^51 leaves that integer in the low bits of the sum.
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// Quotients of at most 32 bits are exact in f64.
macro_rules! float_quotient {
    (short $t:ident $a:ident $b:ident) => {{
        let q = f64::from($a) / f64::from(if $b == 0 { 1 } else { $b });
        let q = (q.trunc() + MAGIC).to_bits() as u32 as $t;
        if $b == 0 { 0 } else { q }
    }};
    // The operands are below 2^51. A quotient just below an integer `n` differs from `n` by more than half a
    // unit of the last place, so it is not rounded up to `n`.
    (long i64 $a:ident $b:ident) => {{
        let float = |x: i64| f64::from_bits(MAGIC.to_bits().wrapping_add(x as u64)) - MAGIC;
        let q = (float($a) / float($b)).trunc();
        (q + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()) as i64
    }};
    (long u64 $a:ident $b:ident) => {
        $a.quotient($b)
    };
}

/// Whether a float does not hold both integers exactly, or the second is zero.
macro_rules! exceeds_floats {
    (long i64 $a:ident $b:ident) => {{
        const END: u64 = 1 << 51;
        let beyond = |x: i64| (x as u64).wrapping_add(END) >= 2 * END;
        beyond($a) | beyond($b) | ($b == 0)
    }};
    ($width:ident $t:ident $a:ident $b:ident) => {{
        let _ = ($a, $b);
        false
    }};
}

macro_rules! integers {
    ($($t:ident $width:ident |$x:ident| $magnitude:expr, $sign:expr;)+) => {$(
        impl Integer for $t {
            #[inline(always)]
            fn magnitude(self) -> $t {
                let $x = self;
                $magnitude
            }
            #[inline(always)]
            fn sign(self) -> $t {
                let $x = self;
                $sign
            }
            #[inline(always)]
            fn quotient(self, b: $t) -> $t {
                if b == 0 { 0 } else { self.wrapping_div(b) }
            }
            #[inline(always)]
            fn remainder(self, b: $t) -> $t {
                if b == 0 { 0 } else { self.wrapping_rem(b) }
            }
            #[inline(always)]
            fn float_quotient(self, b: $t) -> $t {
                let a = self;
                float_quotient!($width $t a b)
            }
            #[inline(always)]
            fn float_remainder(self, b: $t) -> $t {
                let r = self.wrapping_sub(self.float_quotient(b).wrapping_mul(b));
                if b == 0 { 0 } else { r }
            }
            #[inline(always)]
            fn exceeds_floats(self, b: $t) -> bool {
                let a = self;
                exceeds_floats!($width $t a b)
            }
        }
    )+};
}
integers! {
    i8 short |x| x.wrapping_abs(), x.signum();
    i16 short |x| x.wrapping_abs(), x.signum();
    i32 short |x| x.wrapping_abs(), x.signum();
    i64 long |x| x.wrapping_abs(), x.signum();
    u8 short |x| x, u8::from(x != 0);
    u16 short |x| x, u16::from(x != 0);
    u32 short |x| x, u32::from(x != 0);
    u64 long |x| x, u64::from(x != 0);
}

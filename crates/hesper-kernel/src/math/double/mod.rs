//! The functions in f64, for the planner's kernels, good to a few units of the last place. The
//! common ones choose by selects, so that loops over them vectorise; the rest branch, and some
//! are the platform's own, so that their last bit may differ between platforms.

mod circular;
mod exponential;
mod power;

pub use self::circular::*;
pub use self::exponential::*;
pub use self::power::*;
use super::special::{erf_inv_estimate, erf_small, erfcx, lgamma_positive};

/// The error function.
#[inline(always)]
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    let far = (1.0 - erfc_tail(a)).copysign(x);
    if a >= 0.75 { far } else { erf_small(x) }
}

/// `1 - erf(x)`.
#[inline(always)]
pub fn erfc(x: f64) -> f64 {
    let a = x.abs();
    let tail = erfc_tail(a);
    let far = if x < 0.0 { 2.0 - tail } else { tail };
    if a >= 0.5 { far } else { 1.0 - erf_small(x) }
}

/// `erfc(a)` for `a` from 0.5 on.
#[inline(always)]
fn erfc_tail(a: f64) -> f64 {
    let c = if a < 28.0 { a } else { 28.0 };
    // exp(-c^2) with what rounding the square lost.
    let square = c * c;
    erfcx(c) * exp_sum(-square, -c.mul_add(c, -square))
}

/// Inverse of the error function; infinite at ±1, NaN beyond.
pub fn erf_inv(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() || a > 1.0 {
        return f64::NAN;
    }
    if a == 1.0 {
        return f64::INFINITY.copysign(x);
    }
    if a < 1e-8 {
        return x * (0.5 * std::f64::consts::PI.sqrt());
    }
    // Past the fitted range the asymptotic form starts close enough for the steps below.
    let mut y = if 1.0 - a < 1e-7 {
        let l = -((1.0 - a) * std::f64::consts::PI.sqrt()).ln();
        (l - 0.5 * l.ln()).sqrt()
    } else {
        erf_inv_estimate(a)
    };
    for _ in 0..4 {
        let miss = if a < 0.5 { erf(y) - a } else { (1.0 - a) - erfc(y) };
        let step = miss * (0.5 * std::f64::consts::PI.sqrt()) * (y * y).exp();
        y -= step / (1.0 + y * step);
    }
    y.copysign(x)
}

/// `sin(pi x)`.
pub fn sin_pi(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    let r = x % 2.0;
    let n = (2.0 * r).round_ties_even();
    let t = (r - 0.5 * n) * std::f64::consts::PI;
    let y = match (n as i64).rem_euclid(4) {
        0 => t.sin(),
        1 => t.cos(),
        2 => -t.sin(),
        _ => -t.cos(),
    };
    if y == 0.0 { 0.0f64.copysign(x) } else { y }
}

/// `cos(pi x)`.
pub fn cos_pi(x: f64) -> f64 {
    let r = (x % 2.0).abs();
    // cos(pi r) = sin(pi (1/2 - r)); the difference is exact where it is small.
    let y = sin_pi(0.5 - r);
    if y == 0.0 { 0.0 } else { y }
}

/// Natural logarithm of the absolute value of the gamma function.
pub fn lgamma(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.is_infinite() {
        return f64::INFINITY;
    }
    if x.abs() < 1e-9 {
        return -x.abs().ln() - 0.577_215_664_901_532_9 * x;
    }
    if x > 0.0 {
        return lgamma_positive(x, f64::ln);
    }
    let s = sin_pi(x).abs();
    if s == 0.0 {
        return f64::INFINITY;
    }
    (std::f64::consts::PI / s).ln() - lgamma_positive(1.0 - x, f64::ln)
}

/// IEEE remainder. Exact.
pub fn ieee_rem(a: f64, b: f64) -> f64 {
    super::power::ieee_rem_by(a, b, 2.0 * b)
}

/// The next float from `a` towards `b`.
pub fn next_after(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if b > a {
        a.next_up()
    } else if b < a {
        a.next_down()
    } else {
        b
    }
}

/// `a * 2^n`, correctly rounded.
pub fn ldexp(a: f64, n: i32) -> f64 {
    let (m, e) = super::arith::frexp_f64(a);
    let total = i64::from(e) + i64::from(n);
    let p = |k: i64| f64::from_bits(((k + 1023) << 52) as u64);
    if m == 0.0 || !m.is_finite() || (-1021..=1023).contains(&total) {
        // A mantissa below 1 times a normal power: exact.
        return m * p(total.clamp(-1021, 1023));
    }
    if total > 1023 {
        // Up to 1024 the result may still be finite.
        return m * 2.0 * p(1023) * if total > 1024 { 2.0 } else { 1.0 };
    }
    // Subnormal: exact down to 2^-1021, then one rounding.
    m * p(-1021) * p((total + 1021).max(-100))
}

/// `10^x`.
pub fn exp10(x: f64) -> f64 {
    10f64.powf(x)
}

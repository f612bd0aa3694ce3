//! Powers in f64: the logarithm in two parts, so that the product with the exponent keeps all
//! digits.

use super::exponential::{atanh_tail, exp_sum, split};

/// A sum of two floats, the second below the last place of the first.
type Pair = (f64, f64);

/// `a + b`, `a` not the smaller one.
#[inline(always)]
fn sum(a: f64, b: f64) -> Pair {
    let s = a + b;
    (s, b - (s - a))
}

/// `a b`.
#[inline(always)]
fn product(a: f64, b: f64) -> Pair {
    let p = a * b;
    (p, a.mul_add(b, -p))
}

/// The product of two pairs.
#[inline(always)]
fn times(a: Pair, b: Pair) -> Pair {
    let (p, lost) = product(a.0, b.0);
    sum(p, a.0.mul_add(b.1, a.1.mul_add(b.0, lost)))
}

/// Natural logarithm of a positive number, to about 2^-65.
#[inline(always)]
fn log_pair(x: f64) -> Pair {
    const LN2: Pair = (std::f64::consts::LN_2, 2.319_046_813_846_299_6e-17);
    const THIRD: Pair = (0.333_333_333_333_333_3, 1.850_371_707_708_594e-17);
    let (m, e) = split(x);
    // s = (m - 1) / (m + 1).
    let f = m - 1.0;
    let (g, g_lost) = sum(1.0, m);
    let s = f / g;
    let s_low = (s.mul_add(-g, f) - s * g_lost) / g;
    let s = (s, s_low);
    let z = times(s, s);
    // atanh(s) = s + s z (1/3 + z tail), of which the first two in pairs.
    let tail = z.0 * atanh_tail(z.0);
    let cubic = times(times(s, z), THIRD);
    let (h, l) = sum(s.0, cubic.0);
    let low = (s.0 * z.0).mul_add(tail, l + (s.1 + cubic.1));
    let (h, l) = (2.0 * h, 2.0 * low);
    let (p, lost) = product(e, LN2.0);
    let (top, rest) = sum(p, h);
    let (top, rest) = if e == 0.0 { (h, 0.0) } else { (top, rest) };
    sum(top, rest + (l + e.mul_add(LN2.1, lost)))
}

/// Whether [`pow_core`] is wrong: for bases other than positive normal numbers, and for exponents of 10^6 and
/// more in magnitude.
#[inline(always)]
pub fn pow_is_rare(x: f64, y: f64) -> bool {
    let ordinary = (f64::MIN_POSITIVE..f64::INFINITY).contains(&x) && y.abs() < 1e6;
    !ordinary
}

/// `x^y` unless [`pow_is_rare`].
#[inline(always)]
pub fn pow_core(x: f64, y: f64) -> f64 {
    let (h, l) = log_pair(x);
    let (p, lost) = product(h, y);
    exp_sum(p, y.mul_add(l, lost))
}

/// `x^y` with C's special cases.
#[inline(always)]
pub fn pow(x: f64, y: f64) -> f64 {
    if pow_is_rare(x, y) { x.powf(y) } else { pow_core(x, y) }
}

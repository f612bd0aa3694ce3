//! How arrays are shown.

use std::fmt::Write;
use std::sync::atomic::{AtomicI32, Ordering};

use half::{bf16, f16};
use hesper::{Dtype, HostArray};

/// Elements shown at either end of an axis that is too long to show.
const ENDS: usize = 3;

/// Digits after the point that `set_printoptions` asked for; negative: as short as six digits allow.
pub static PRECISION: AtomicI32 = AtomicI32::new(-1);

/// A number with `digits` significant digits, without trailing zeros, with an exponent where that is
/// shorter: C's `%g`.
pub fn general(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let digits = digits.max(1);
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| -> String {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text.into() }
    };
    if power < -4 || power >= digits as i32 {
        let sign = if power < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), power.abs());
    }
    trim(&format!("{value:.*}", (digits as i32 - 1 - power).max(0) as usize))
}

/// The parts of a complex number, given as its bytes.
pub fn complex(bytes: &[u8]) -> [f64; 2] {
    let (re, im) = bytes.split_at(bytes.len() / 2);
    [re, im].map(|part| match part.try_into() {
        Ok(single) => f64::from(f32::from_ne_bytes(single)),
        Err(_) => f64::from_ne_bytes(part.try_into().unwrap_or_default()),
    })
}

/// A number as the print options say.
fn float(value: f64) -> String {
    match usize::try_from(PRECISION.load(Ordering::Relaxed)) {
        Ok(decimals) if value.is_finite() => format!("{value:.decimals$}"),
        _ => general(value, 6),
    }
}

fn element(dtype: Dtype, bytes: &[u8]) -> String {
    macro_rules! read {
        ($type:ty) => {
            <$type>::from_ne_bytes(bytes.try_into().unwrap_or_default())
        };
    }
    match dtype {
        Dtype::Bool => if read!(u8) != 0 { "True" } else { "False" }.into(),
        Dtype::Uint8 => read!(u8).to_string(),
        Dtype::Uint16 => read!(u16).to_string(),
        Dtype::Uint32 => read!(u32).to_string(),
        Dtype::Uint64 => read!(u64).to_string(),
        Dtype::Int8 => read!(i8).to_string(),
        Dtype::Int16 => read!(i16).to_string(),
        Dtype::Int32 => read!(i32).to_string(),
        Dtype::Int64 => read!(i64).to_string(),
        Dtype::Float16 => float(read!(f16).to_f64()),
        Dtype::Bfloat16 => float(read!(bf16).to_f64()),
        Dtype::Float32 => float(f64::from(read!(f32))),
        Dtype::Float64 => float(read!(f64)),
        Dtype::Complex64 | Dtype::Complex128 => {
            let [re, im] = complex(bytes);
            let im = float(im);
            let sign = if im.starts_with('-') { "" } else { "+" };
            format!("{}{sign}{im}j", float(re))
        }
    }
}

/// The text of `repr`: `array([1, 2, 3], dtype=int32)`.
pub fn text(host: &HostArray) -> String {
    let mut out = String::from("array(");
    if host.shape().first() == Some(&0) {
        out.push_str("[]");
    } else {
        level(&mut out, host, 0, 0);
    }
    // Writing to a string does not fail.
    let _ = write!(out, ", dtype={})", host.dtype());
    out
}

fn level(out: &mut String, host: &HostArray, axis: usize, moved: isize) {
    let Some(&length) = host.shape().get(axis) else {
        out.push_str(&element(host.dtype(), host.element(moved)));
        return;
    };
    let last = axis + 1 == host.shape().len();
    let between =
        if last { ", ".to_string() } else { format!(",\n{}", " ".repeat("array(".len() + axis + 1)) };
    out.push('[');
    let long = length > 2 * ENDS;
    let shown = (0..length).filter(|at| !long || *at < ENDS || *at >= length - ENDS);
    for (count, at) in shown.enumerate() {
        if count > 0 {
            out.push_str(&between);
        }
        if long && count == ENDS {
            out.push_str("...");
            out.push_str(&between);
        }
        level(out, host, axis + 1, moved + at as isize * host.strides()[axis]);
    }
    out.push(']');
}

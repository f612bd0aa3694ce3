//! Arrays as text: `array([1, 2.5, ...], dtype=float32)`.
//!
//! Axes of more than six elements show the first and last three. Numbers have six significant digits, or a
//! fixed number of decimals where the format (`{:.2}`) or [`set_print_options`] asks for that. Nothing here
//! recurses.

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicI64, Ordering};

use half::{bf16, f16};

use crate::Dtype;
use crate::graph::Array;
use crate::shape::row_major;

/// How arrays are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrintOptions {
    /// Decimals of floating-point numbers; without it, six significant digits.
    pub precision: Option<u16>,
}

static PRECISION: AtomicI64 = AtomicI64::new(-1);

/// Sets how the process prints arrays.
///
/// ```
/// use hesper::{PrintOptions, array, set_print_options};
/// set_print_options(PrintOptions { precision: Some(2) });
/// assert_eq!(array![1.0, 2.345].to_string(), "array([1.00, 2.35], dtype=float32)");
/// assert_eq!(format!("{:.1}", array![1.0, 2.345]), "array([1.0, 2.3], dtype=float32)"); // this array alone
/// ```
pub fn set_print_options(options: PrintOptions) {
    PRECISION.store(options.precision.map_or(-1, i64::from), Ordering::Relaxed);
}

/// How the process prints arrays.
///
/// ```
/// use hesper::print_options;
/// assert_eq!(print_options().precision, None); // six significant digits
/// ```
pub fn print_options() -> PrintOptions {
    PrintOptions { precision: u16::try_from(PRECISION.load(Ordering::Relaxed)).ok() }
}

/// Elements of an axis that is shown in full.
const MAX_PRINTED: usize = 6;
/// Elements at either end of an axis that is not.
const ENDS: usize = 3;

/// What is still to be written.
enum Piece {
    /// The part of the array that starts at an element, from an axis on.
    Part {
        axis: usize,
        start: usize,
    },
    Text(&'static str),
    /// A new line, indented for the elements of an axis.
    Line {
        axis: usize,
    },
}

impl fmt::Display for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shape, strides) = (self.shape(), row_major(self.shape()));
        let asked = f.precision().and_then(|decimals| u16::try_from(decimals).ok());
        let options = PrintOptions { precision: asked.or(print_options().precision) };
        let written = self.read_bytes(|bytes| -> fmt::Result {
            f.write_str("array(")?;
            let mut todo = vec![Piece::Part { axis: 0, start: 0 }];
            while let Some(piece) = todo.pop() {
                match piece {
                    Piece::Text(text) => f.write_str(text)?,
                    Piece::Line { axis } => {
                        write!(f, "\n{:indent$}", "", indent = "array(".len() + axis + 1)?
                    }
                    Piece::Part { axis, start } if axis == shape.len() => {
                        element(f, self.dtype(), bytes, start, options)?;
                    }
                    Piece::Part { axis, start } => {
                        let first = todo.len();
                        list(&mut todo, shape, axis, start, strides[axis] as usize);
                        // What is written first is popped first.
                        todo[first..].reverse();
                    }
                }
            }
            write!(f, ", dtype={})", self.dtype())
        });
        match written {
            Ok(written) => written,
            Err(error) => write!(f, "array(<{error}>, dtype={})", self.dtype()),
        }
    }
}

/// The pieces of a list along an axis, in order.
fn list(pieces: &mut Vec<Piece>, shape: &[usize], axis: usize, start: usize, stride: usize) {
    let length = shape[axis];
    let innermost = axis + 1 == shape.len();
    pieces.push(Piece::Text("["));
    let mut at = 0;
    while at < length {
        if at > 0 {
            pieces.push(Piece::Text(if innermost { ", " } else { "," }));
            if !innermost {
                pieces.push(Piece::Line { axis });
            }
        }
        if length > MAX_PRINTED && at == ENDS {
            pieces.push(Piece::Text("..."));
            pieces.push(Piece::Text(if innermost { ", " } else { "," }));
            if !innermost {
                pieces.push(Piece::Line { axis });
            }
            at = length - ENDS;
        }
        pieces.push(Piece::Part { axis: axis + 1, start: start + at * stride });
        at += 1;
    }
    pieces.push(Piece::Text("]"));
}

/// The number at a place.
fn element(
    f: &mut fmt::Formatter<'_>,
    dtype: Dtype,
    bytes: &[u8],
    at: usize,
    options: PrintOptions,
) -> fmt::Result {
    macro_rules! number {
        ($t:ty) => {{
            let size = size_of::<$t>();
            let own = bytes.get(at * size..(at + 1) * size).unwrap_or_default();
            bytemuck::try_pod_read_unaligned::<$t>(own).map_err(|_| fmt::Error)?
        }};
    }
    match dtype {
        Dtype::Bool => f.write_str(if number!(u8) != 0 { "True" } else { "False" }),
        Dtype::Uint8 => write!(f, "{}", number!(u8)),
        Dtype::Uint16 => write!(f, "{}", number!(u16)),
        Dtype::Uint32 => write!(f, "{}", number!(u32)),
        Dtype::Uint64 => write!(f, "{}", number!(u64)),
        Dtype::Int8 => write!(f, "{}", number!(i8)),
        Dtype::Int16 => write!(f, "{}", number!(i16)),
        Dtype::Int32 => write!(f, "{}", number!(i32)),
        Dtype::Int64 => write!(f, "{}", number!(i64)),
        Dtype::Float16 => float(f, f64::from(number!(f16)), options),
        Dtype::Bfloat16 => float(f, f64::from(number!(bf16)), options),
        Dtype::Float32 => float(f, f64::from(number!(f32)), options),
        Dtype::Float64 => float(f, number!(f64), options),
        Dtype::Complex64 => complex(f, number!([f32; 2]).map(f64::from), options),
        Dtype::Complex128 => complex(f, number!([f64; 2]), options),
    }
}

fn complex(f: &mut fmt::Formatter<'_>, [re, im]: [f64; 2], options: PrintOptions) -> fmt::Result {
    float(f, re, options)?;
    if im >= 0.0 || im.is_nan() {
        f.write_char('+')?;
    }
    float(f, im, options)?;
    f.write_char('j')
}

fn float(f: &mut fmt::Formatter<'_>, x: f64, options: PrintOptions) -> fmt::Result {
    if x.is_nan() {
        return f.write_str(if x.is_sign_negative() { "-nan" } else { "nan" });
    }
    if x.is_infinite() {
        return f.write_str(if x < 0.0 { "-inf" } else { "inf" });
    }
    match options.precision {
        Some(decimals) => write!(f, "{x:.*}", usize::from(decimals)),
        None => f.write_str(&general(x)),
    }
}

/// Six significant digits without trailing zeros; with an exponent where that is below -4 or above 5.
fn general(x: f64) -> String {
    let scientific = format!("{x:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if (-4..6).contains(&exponent) {
        return trimmed(&format!("{x:.*}", (5 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

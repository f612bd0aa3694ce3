//! Fourier transforms along axes, as `fft::fft(&x, None, -1, Norm::Backward)`.
//!
//! One primitive transforms the rows of the last axis: complex to complex, real to complex with the
//! frequencies that are not negative, and back. Transforms along other axes move the axis, and those of
//! several axes are one after the other.

use smallvec::{SmallVec, smallvec};

use super::pad::Pad;
use super::{Op, OpRef};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Export, Record, Replay};
use crate::identity::BitEq;
use crate::ops::readers::reader;
use crate::shape::{Shape, axes as check_axes, axis};

pub use super::stft::{Istft, Stft, istft, stft};

/// Which direction is scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Norm {
    /// The inverse, by one over the length.
    #[default]
    Backward,
    /// Both, by one over the square root of the length.
    Ortho,
    /// The transform, by one over the length.
    Forward,
}

/// Element types of a transform's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FftKind {
    /// Complex to complex; a real input has imaginary parts of zero.
    Complex,
    /// Real to complex, the frequencies that are not negative.
    RealToComplex,
    /// The inverse of that.
    ComplexToReal,
}

/// A transform of the rows of the last axis.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Transform {
    /// Element types of the rows.
    pub kind: FftKind,
    /// Whether it is the inverse.
    pub inverse: bool,
    /// The number of elements that are transformed; rows are cut or padded with zeros.
    pub length: usize,
    /// Factor of the result.
    pub scale: BitEq<f64>,
}

impl Op for Transform {
    fn name(&self) -> &'static str {
        "fft"
    }

    fn export(&self) -> Export {
        let kind = match self.kind {
            FftKind::Complex => "complex",
            FftKind::RealToComplex => "real_to_complex",
            FftKind::ComplexToReal => "complex_to_real",
        };
        let record = Record::new("fft").with("kind", kind).with("inverse", self.inverse);
        record.with("length", self.length).with("scale", self.scale.0).into()
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (x, cotangent) = (&rule.inputs[0], rule.cotangent()?);
        let given = x.shape()[x.ndim() - 1];
        let row = |length: usize| -> Shape {
            cotangent.shape()[..x.ndim() - 1].iter().copied().chain([length]).collect()
        };
        let complex = x.dtype().complex();
        let turned = match self.kind {
            FftKind::Complex | FftKind::RealToComplex => {
                let op = Transform { kind: FftKind::Complex, inverse: !self.inverse, ..self.clone() };
                Array::lazy(row(self.length), complex, OpRef::new(op), smallvec![cotangent.clone()])?
            }
            FftKind::ComplexToReal => {
                let kept = self.length / 2 + 1;
                let op = Transform { kind: FftKind::RealToComplex, inverse: false, ..self.clone() };
                let whole = Array::lazy(row(kept), complex, OpRef::new(op), smallvec![cotangent.clone()])?;
                // All but the first frequency, and the last of an even length, stand for two.
                let twice: Vec<f32> =
                    (0..kept).map(|at| if at == 0 || 2 * at == self.length { 1.0 } else { 2.0 }).collect();
                whole.multiply(Array::from_slice(&twice))?
            }
        };
        let turned = if x.dtype() == complex { turned } else { turned.real()? };
        // What was cut off has no part in the result, and what was filled up none in the input.
        let length = turned.shape()[x.ndim() - 1];
        let cut = turned.slice_axis(x.ndim() - 1, 0, length.min(given) as isize, 1)?;
        let mut widths = vec![(0, 0); x.ndim()];
        widths[x.ndim() - 1].1 = given - length.min(given);
        rule.only(if widths[x.ndim() - 1].1 == 0 {
            Ok(cut)
        } else {
            cut.pad(&widths, &Pad::Constant(0.into()))
        })
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.front(0)?])
    }
}

/// The complex transform of the last axis, not scaled.
///
/// ```
/// use hesper::{array, fft};
/// let x = array![1.0, 2.0, 3.0, 4.0];
/// let back = fft::unscaled(&fft::unscaled(&x, false)?, true)?;
/// assert_eq!(back.real()?.to_vec::<f32>()?, [4.0, 8.0, 12.0, 16.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn unscaled(x: &Array, inverse: bool) -> Result<Array> {
    let length = x.shape().last().copied().unwrap_or(0);
    let op = Transform { kind: FftKind::Complex, inverse, length, scale: BitEq(1.0) };
    Array::lazy(x.0.shape.clone(), x.dtype().complex(), OpRef::new(op), smallvec![x.clone()])
}

/// The type of a transform's result: of the precision of its input.
fn result_type(kind: FftKind, input: &Array) -> Dtype {
    let complex = input.dtype().complex();
    if kind == FftKind::ComplexToReal { complex.real() } else { complex }
}

/// The transform of one axis.
fn one(
    x: &Array,
    kind: FftKind,
    inverse: bool,
    length: Option<usize>,
    along: usize,
    norm: Norm,
) -> Result<Array> {
    let given = x.shape()[along];
    let length = length.unwrap_or(match kind {
        FftKind::ComplexToReal => 2 * given.saturating_sub(1),
        _ => given,
    });
    if length == 0 {
        let what = format!("a transform of no elements along axis {along} of shape {:?}", x.shape());
        return Err(Error::value("fft", what));
    }
    let input = match x.dtype() {
        Dtype::Complex64 | Dtype::Complex128 if kind == FftKind::RealToComplex => x.real()?,
        Dtype::Complex64 | Dtype::Complex128 | Dtype::Float32 | Dtype::Float64 => x.clone(),
        _ => x.astype(Dtype::Float32)?,
    };
    let scale = match (norm, inverse) {
        (Norm::Ortho, _) => 1.0 / (length as f64).sqrt(),
        (Norm::Backward, true) | (Norm::Forward, false) => 1.0 / length as f64,
        _ => 1.0,
    };
    let last = input.moveaxis(along as isize, -1)?;
    let mut shape = last.0.shape.clone();
    let rank = shape.len();
    shape[rank - 1] = if kind == FftKind::RealToComplex { length / 2 + 1 } else { length };
    let dtype = result_type(kind, &input);
    let op = Transform { kind, inverse, length, scale: BitEq(scale) };
    Array::lazy(shape, dtype, OpRef::new(op), smallvec![last])?.moveaxis(-1, along as isize)
}

/// Axes from the front and the length of each, if it is given.
type Plan = SmallVec<[(usize, Option<usize>); 4]>;

fn resolve(op: &str, x: &Array, lengths: Option<&[usize]>, along: Option<&[isize]>) -> Result<Plan> {
    let all: SmallVec<[isize; 6]> = (0..x.ndim() as isize).collect();
    if along.is_none() && lengths.is_some() {
        return Err(Error::shape(op, "lengths are given without their axes").with_shapes([x]));
    }
    let along = along.unwrap_or(&all);
    if let Some(lengths) = lengths.filter(|lengths| lengths.len() != along.len()) {
        return Err(Error::shape(op, format!("lengths {lengths:?} for axes {along:?}")).with_shapes([x]));
    }
    check_axes(op, along, x.ndim())?;
    if x.ndim() == 0 {
        return Err(Error::shape(op, "an array without axes has no transform").with_shapes([x]));
    }
    along
        .iter()
        .enumerate()
        .map(|(at, one)| Ok((axis(op, *one, x.ndim())?, lengths.map(|lengths| lengths[at]))))
        .collect()
}

/// Complex transforms of all axes, one after the other.
fn complex(x: &Array, plan: &[(usize, Option<usize>)], inverse: bool, norm: Norm) -> Result<Array> {
    plan.iter()
        .rev()
        .try_fold(x.clone(), |x, (along, length)| one(&x, FftKind::Complex, inverse, *length, *along, norm))
}

/// The example of a transform: its arguments, and the result as it is printed.
macro_rules! example {
    ($name:ident, $args:literal, $shown:literal) => {
        concat!(
            "\n```\nuse hesper::array;\nuse hesper::fft::{self, Norm};\nlet y = fft::",
            stringify!($name),
            "(",
            $args,
            ")?;\nassert_eq!(y.to_string(), ",
            stringify!($shown),
            ");\n# Ok::<(), hesper::Error>(())\n```"
        )
    };
}

macro_rules! transforms {
    ($($(#[doc = $doc:literal])+ $name:ident($args:literal => $shown:literal),
        $name2:ident($args2:literal => $shown2:literal), $namen:ident($argsn:literal => $shownn:literal):
        |$x:ident, $plan:ident, $norm:ident| $body:expr;)*) => {
        $($(#[doc = $doc])+
        ///
        /// Along one axis, which is cut or filled with zeros to `n` elements.
        #[doc = example!($name, $args, $shown)]
        pub fn $name(x: &Array, n: Option<usize>, along: isize, norm: Norm) -> Result<Array> {
            let lengths = n.map(|n| [n]);
            $namen(x, lengths.as_ref().map(|n| &n[..]), Some(&[along]), norm)
        }

        $(#[doc = $doc])+
        ///
        /// Along two axes.
        #[doc = example!($name2, $args2, $shown2)]
        pub fn $name2(x: &Array, s: Option<[usize; 2]>, along: [isize; 2], norm: Norm) -> Result<Array> {
            $namen(x, s.as_ref().map(|s| &s[..]), Some(&along), norm)
        }

        $(#[doc = $doc])+
        ///
        /// Along several axes, or all.
        #[doc = example!($namen, $argsn, $shownn)]
        pub fn $namen(
            $x: &Array,
            s: Option<&[usize]>,
            along: Option<&[isize]>,
            $norm: Norm,
        ) -> Result<Array> {
            let $plan = resolve(stringify!($namen), $x, s, along)?;
            $body
        })*
    };
}

transforms! {
    /// The discrete Fourier transform.
    fft("&array![1.0, 2.0, 3.0, 4.0], None, -1, Norm::Backward" => "array([10+0j, -2+2j, -2+0j, -2-2j], dtype=complex64)"),
    fft2("&array![[1.0, 2.0]], None, [-2, -1], Norm::Backward" => "array([[3+0j, -1+0j]], dtype=complex64)"),
    fftn("&array![[1.0, 2.0]], None, None, Norm::Forward" => "array([[1.5+0j, -0.5+0j]], dtype=complex64)"):
    |x, plan, norm| complex(x, &plan, false, norm);
    /// The inverse of the discrete Fourier transform.
    ifft("&array![10.0, 2.0], None, -1, Norm::Backward" => "array([6+0j, 4+0j], dtype=complex64)"),
    ifft2("&array![[3.0, -1.0]], None, [-2, -1], Norm::Backward" => "array([[1+0j, 2+0j]], dtype=complex64)"),
    ifftn("&array![[4.0, 0.0]], None, None, Norm::Backward" => "array([[2+0j, 2+0j]], dtype=complex64)"):
    |x, plan, norm| complex(x, &plan, true, norm);
    /// The discrete Fourier transform of real numbers: the frequencies of the last axis that are not
    /// negative.
    rfft("&array![1.0, 2.0, 3.0, 4.0], None, -1, Norm::Backward" => "array([10+0j, -2+2j, -2+0j], dtype=complex64)"),
    rfft2("&array![[1.0, 2.0]], Some([1, 3]), [-2, -1], Norm::Backward" => "array([[3+0j, 0-1.73205j]], dtype=complex64)"),
    rfftn("&array![[1.0, 2.0, 3.0, 4.0]], None, Some(&[1]), Norm::Backward" => "array([[10+0j, -2+2j, -2+0j]], dtype=complex64)"):
    |x, plan, norm| {
        let Some(((along, length), others)) = plan.split_last() else { return Ok(x.clone()) };
        complex(&one(x, FftKind::RealToComplex, false, *length, *along, norm)?, others, false, norm)
    };
    /// The inverse of the discrete Fourier transform of real numbers.
    irfft("&array![10.0, 0.0, 0.0], None, -1, Norm::Backward" => "array([2.5, 2.5, 2.5, 2.5], dtype=float32)"),
    irfft2("&array![[3.0, -1.0]], None, [-2, -1], Norm::Backward" => "array([[1, 2]], dtype=float32)"),
    irfftn("&array![[4.0, 0.0]], None, None, Norm::Backward" => "array([[2, 2]], dtype=float32)"):
    |x, plan, norm| {
        let Some(((along, length), others)) = plan.split_last() else { return Ok(x.clone()) };
        one(&complex(x, others, true, norm)?, FftKind::ComplexToReal, true, *length, *along, norm)
    };
}

/// The frequency zero moved to the middle of axes, or of all.
///
/// ```
/// use hesper::{array, fft};
/// let shifted = fft::fftshift(&array![0, 1, 2, -2, -1], None)?;
/// assert_eq!(shifted.to_vec::<i32>()?, [-2, -1, 0, 1, 2]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn fftshift(x: &Array, along: Option<&[isize]>) -> Result<Array> {
    shift(x, along, |length| length / 2)
}

/// The inverse of [`fftshift`].
///
/// ```
/// use hesper::{array, fft};
/// let shifted = fft::ifftshift(&array![-2, -1, 0, 1, 2], None)?;
/// assert_eq!(shifted.to_vec::<i32>()?, [0, 1, 2, -2, -1]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn ifftshift(x: &Array, along: Option<&[isize]>) -> Result<Array> {
    shift(x, along, |length| -(length / 2))
}

fn shift(x: &Array, along: Option<&[isize]>, by: fn(isize) -> isize) -> Result<Array> {
    let all: SmallVec<[isize; 6]> = (0..x.ndim() as isize).collect();
    along.unwrap_or(&all).iter().try_fold(x.clone(), |x, one| {
        let length = x.shape()[axis("fftshift", *one, x.ndim())?];
        x.roll(&[by(length as isize)], *one)
    })
}

fn frequencies(op: &str, n: usize, d: f64, list: impl Iterator<Item = isize>) -> Result<Array> {
    if n == 0 || d == 0.0 {
        return Err(Error::value(op, format!("n and d must not be zero, got {n} and {d}")));
    }
    let unit = 1.0 / (n as f64 * d);
    let list: Vec<f32> = list.map(|k| (k as f64 * unit) as f32).collect();
    Array::try_from_slice(&list, &[list.len()])
}

/// The frequencies of a transform of `n` elements at a distance of `d`.
///
/// ```
/// use hesper::fft;
/// assert_eq!(fft::fftfreq(4, 0.25)?.to_vec::<f32>()?, [0.0, 1.0, -2.0, -1.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn fftfreq(n: usize, d: f64) -> Result<Array> {
    let half = n.div_ceil(2) as isize;
    frequencies("fftfreq", n, d, (0..half).chain(-(n as isize / 2)..0))
}

/// The frequencies of a transform of `n` real elements at a distance of `d`.
///
/// ```
/// use hesper::fft;
/// assert_eq!(fft::rfftfreq(4, 0.25)?.to_vec::<f32>()?, [0.0, 1.0, 2.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn rfftfreq(n: usize, d: f64) -> Result<Array> {
    frequencies("rfftfreq", n, d, 0..(n / 2 + 1) as isize)
}

reader!("fft", One(read));
fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    let kinds = [
        ("complex", FftKind::Complex),
        ("real_to_complex", FftKind::RealToComplex),
        ("complex_to_real", FftKind::ComplexToReal),
    ];
    let kind = replay.choice("kind", &kinds)?;
    let (inverse, length) = (replay.flag("inverse")?, replay.length("length")?);
    let fits = match kind {
        FftKind::RealToComplex => matches!(x.dtype(), Dtype::Float32 | Dtype::Float64),
        _ => matches!(x.dtype().real(), Dtype::Float32 | Dtype::Float64),
    };
    let mut shape = x.0.shape.clone();
    let Some(last) = shape.last_mut().filter(|_| fits && length > 0 && length < 1 << 40) else {
        return Err(replay.wrong("no rows that can be transformed"));
    };
    // The length of rows and the scale belong together.
    let traced = replay.traced.first().and_then(|traced| traced.last().copied());
    if replay.free && traced != Some(*last) {
        return Err(replay.not_free());
    }
    *last = if kind == FftKind::RealToComplex { length / 2 + 1 } else { length };
    let dtype = result_type(kind, x);
    let op = Transform { kind, inverse, length, scale: BitEq(replay.float("scale")?) };
    Array::lazy(shape, dtype, OpRef::new(op), smallvec![x.clone()])
}

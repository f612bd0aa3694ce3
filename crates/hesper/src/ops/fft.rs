//! Fourier transforms along axes, as `fft::fft(&x, None, -1, Norm::Backward)`.
//!
//! One primitive transforms the rows of the last axis: complex to complex, real to complex with the
//! frequencies that are not negative, and back. Transforms along other axes move the axis, and those of
//! several axes are one after the other. Rows are transformed side by side: powers of two by
//! [`hesper_compute::Fft`], which also takes columns where they lie; the algorithms and plans for any other length
//! come from rustfft.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use hesper_compute::{Axis, FftKind};
use hesper_cpu::Cores;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection, FftPlanner};
use smallvec::{SmallVec, smallvec};

use super::fft_long::Long;
use super::pad::Pad;
use super::walk::{GRAIN, Strided, par_chunks};
use super::{Op, OpRef};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::gpu;
use crate::ops::command::Commands;
use crate::shape::{Shape, axes as check_axes, axis};
use crate::transform::rule::{Backward, Batch, Cotangents};

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

/// Fewer rows than this are transformed one after the other, each on all cores, if they are long.
const FEW: usize = 4;

/// What a row becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    Complex,
    RealToComplex,
    ComplexToReal,
}

/// Reads a row of the input.
type Reader<'a> = dyn Fn(usize, &mut [Complex<f32>]) + Sync + 'a;

/// A transform of the rows of the last axis.
#[derive(Debug, Clone)]
struct Transform {
    rows: Rows,
    inverse: bool,
    /// How many elements are transformed; rows are cut or filled with zeros.
    length: usize,
    scale: f32,
}

impl Op for Transform {
    fn name(&self) -> &'static str {
        "fft"
    }

    fn export(&self) -> Export {
        let kind = match self.rows {
            Rows::Complex => "complex",
            Rows::RealToComplex => "real_to_complex",
            Rows::ComplexToReal => "complex_to_real",
        };
        let record = Record::new("fft").with("kind", kind).with("inverse", self.inverse);
        record.with("length", self.length).with("scale", self.scale).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        if let Some(done) = self.lower_powers(l)? {
            return Ok(done);
        }
        let input = Strided::row_major(l, 0)?;
        let output = l.output()?;
        let (op, real) = (self.clone(), l.input_dtype(0) == Dtype::Float32);
        let (shape, result): (Shape, Shape) = (l.input_shape(0).into(), l.shape().into());
        let rows: usize = shape[..shape.len().saturating_sub(1)].iter().product();
        if rows < FEW
            && let Some(long) = Long::plan(self.length, self.inverse)
        {
            return self.lower_long(l, &input, real, long);
        }
        let buffer = input.data.buffer.clone();
        l.stream().command("fft").read_range(&buffer, input.bytes.clone()).write(&output).run(
            move |native| {
                let [from, to] = native.take()?;
                let (Some(&given), Some(&row)) = (shape.last(), result.last()) else { return Ok(()) };
                let plan = plan(op.length, op.inverse);
                let read: Box<Reader<'_>> = if real {
                    let from = from.as_slice::<f32>()?;
                    Box::new(move |at, line| {
                        let line = line.iter_mut();
                        line.zip(&from[at * given..][..given])
                            .for_each(|(to, x)| *to = Complex::new(*x, 0.0));
                    })
                } else {
                    let from = from.as_slice::<[f32; 2]>()?;
                    Box::new(move |at, line| {
                        let line = line.iter_mut();
                        line.zip(&from[at * given..][..given])
                            .for_each(|(to, [re, im])| *to = Complex::new(*re, *im));
                    })
                };
                let transform =
                    |first: usize, count: usize, store: &mut dyn FnMut(usize, &[Complex<f32>])| {
                        let zero = Complex::new(0.0, 0.0);
                        let mut line = vec![zero; op.length];
                        let mut scratch = vec![zero; plan.get_inplace_scratch_len()];
                        for at in 0..count {
                            let kept = match op.rows {
                                Rows::ComplexToReal => op.length / 2 + 1,
                                _ => op.length,
                            };
                            line[given.min(op.length)..].fill(zero);
                            read(first + at, &mut line[..kept]);
                            match op.rows {
                                Rows::ComplexToReal => mirror(&mut line),
                                Rows::RealToComplex => line.iter_mut().for_each(|x| x.im = 0.0),
                                Rows::Complex => {}
                            }
                            plan.process_with_scratch(&mut line, &mut scratch);
                            store(at, &line[..row]);
                        }
                    };
                let chunk = (GRAIN / op.length.max(row)).max(1) * row;
                if op.rows == Rows::ComplexToReal {
                    par_chunks(to.as_mut_slice::<f32>()?, chunk, |first, part| {
                        transform(first / row, part.len() / row, &mut |at, line| {
                            let part = part[at * row..(at + 1) * row].iter_mut();
                            part.zip(line).for_each(|(to, x)| *to = x.re * op.scale);
                        });
                    });
                } else {
                    par_chunks(to.as_mut_slice::<[f32; 2]>()?, chunk, |first, part| {
                        transform(first / row, part.len() / row, &mut |at, line| {
                            let part = part[at * row..(at + 1) * row].iter_mut();
                            part.zip(line).for_each(|(to, x)| *to = [x.re * op.scale, x.im * op.scale]);
                        });
                    });
                }
                Ok(())
            },
        )?;
        Ok(Data::contiguous(output, l.shape()))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let kind = match self.rows {
            Rows::Complex => gpu::fft::Kind::Complex,
            Rows::RealToComplex => gpu::fft::Kind::RealToComplex,
            Rows::ComplexToReal => gpu::fft::Kind::ComplexToReal,
        };
        let parts = gpu::fft::split(self.length).filter(|_| self.length > gpu::fft::LONGEST);
        let given = if self.rows == Rows::ComplexToReal { self.length / 2 + 1 } else { self.length };
        let whole = l.input_shape(0).last() >= Some(&given);
        match parts {
            None => gpu::fft::rows(l, kind, self.inverse, self.length, self.scale),
            Some(parts) if whole => gpu::compose::compose(l, |inputs| {
                let each = |x: &Array| {
                    let length = x.shape()[x.ndim() - 1];
                    let op = Transform { rows: Rows::Complex, length, scale: 1.0, ..self.clone() };
                    Array::lazy(x.0.shape.clone(), Dtype::Complex64, OpRef::new(op), smallvec![x.clone()])
                };
                let all = gpu::fft::by_parts(
                    &inputs[0].slice_axis(inputs[0].ndim() - 1, 0, given as isize, 1)?,
                    kind,
                    parts,
                    self.inverse,
                    each,
                )?;
                all.multiply(f64::from(self.scale))
            }),
            _ => Ok(None),
        }
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
        let turned = match self.rows {
            Rows::Complex | Rows::RealToComplex => {
                let op = Transform { rows: Rows::Complex, inverse: !self.inverse, ..self.clone() };
                Array::lazy(row(self.length), Dtype::Complex64, OpRef::new(op), smallvec![cotangent.clone()])?
            }
            Rows::ComplexToReal => {
                let kept = self.length / 2 + 1;
                let op = Transform { rows: Rows::RealToComplex, inverse: false, ..self.clone() };
                let whole =
                    Array::lazy(row(kept), Dtype::Complex64, OpRef::new(op), smallvec![cotangent.clone()])?;
                // All but the first frequency, and the last of an even length, stand for two.
                let twice: Vec<f32> =
                    (0..kept).map(|at| if at == 0 || 2 * at == self.length { 1.0 } else { 2.0 }).collect();
                whole.multiply(Array::from_slice(&twice))?
            }
        };
        let turned = if x.dtype() == Dtype::Complex64 { turned } else { turned.real()? };
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

impl Transform {
    /// Rows whose length is a power of two, if they are many or long.
    fn lower_powers(&self, l: &Lowering<'_>) -> Result<Option<Data>> {
        let (shape, real) = (l.input_shape(0), l.input_dtype(0) == Dtype::Float32);
        let kind = match (self.rows, real, self.inverse) {
            (Rows::Complex, false, _) => FftKind::Complex,
            (Rows::Complex, true, _) => FftKind::RealToFull,
            (Rows::RealToComplex, true, false) => FftKind::RealToHalf,
            (Rows::ComplexToReal, false, true) => FftKind::HalfToReal,
            _ => return Ok(None),
        };
        let Some((&given, outer)) = shape.split_last() else { return Ok(None) };
        let rows = outer.iter().product();
        let Some(fft) = hesper_compute::Fft::new(self.length, rows, kind, self.inverse) else {
            return Ok(None);
        };
        if given == 0 || rows == 0 {
            return Ok(None);
        }
        let (output, scale) = (l.output()?, self.scale);
        if fft.has_columns()
            && given == self.length
            && let Some(axis) = columns(shape, &l.input(0).strides)
        {
            let input = Strided::input(l, 0);
            let command = l.stream().command("fft").read_range(&input.data.buffer, input.bytes.clone());
            command.write(&output).run(move |native| {
                let [from, to] = native.take()?;
                fft.run_columns(&Cores, from.as_slice()?, axis, to.as_mut_slice()?, scale)
                    .map_err(|error| error.to_string().into())
            })?;
            let strides = input.data.strides.clone();
            return Ok(Some(Data { buffer: output, offset: 0, strides }));
        }
        let input = Strided::row_major(l, 0)?;
        let command = l.stream().command("fft").read_range(&input.data.buffer, input.bytes.clone());
        command.write(&output).run(move |native| {
            let [from, to] = native.take()?;
            fft.run(&Cores, from.as_slice()?, given, to.as_mut_slice()?, scale)
                .map_err(|error| error.to_string().into())
        })?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }

    /// A few long rows, each on all cores.
    fn lower_long(&self, l: &Lowering<'_>, input: &Strided, real: bool, long: Arc<Long>) -> Result<Data> {
        let output = l.output()?;
        let bytes = self.length * size_of::<[f32; 2]>();
        let (first, second) = (l.stream().alloc(bytes)?, l.stream().alloc(bytes)?);
        let (op, shape): (_, Shape) = (self.clone(), l.shape().into());
        let given = l.input_shape(0).last().copied().unwrap_or(0);
        let command = l.stream().command("fft").read_range(&input.data.buffer, input.bytes.clone());
        command.write(&first).write(&second).write(&output).run(move |native| {
            let [from, first, second, to] = native.take()?;
            let (first, second) = (first.as_mut_slice::<[f32; 2]>()?, second.as_mut_slice::<[f32; 2]>()?);
            let row = shape.last().copied().unwrap_or(0);
            for at in 0..shape[..shape.len() - 1].iter().product() {
                if real {
                    let from = &from.as_slice::<f32>()?[at * given..][..given];
                    long.run(&|start, piece| op.fill(start, piece, from, |x| [x, 0.0]), first, second);
                } else {
                    let from = &from.as_slice::<[f32; 2]>()?[at * given..][..given];
                    long.run(&|start, piece| op.fill(start, piece, from, |x| x), first, second);
                }
                let (second, scale) = (&*second, op.scale);
                if op.rows == Rows::ComplexToReal {
                    let to = &mut to.as_mut_slice::<f32>()?[at * row..][..row];
                    collect(&long, second, to, |x| x[0] * scale);
                } else {
                    let to = &mut to.as_mut_slice::<[f32; 2]>()?[at * row..][..row];
                    collect(&long, second, to, |x| [x[0] * scale, x[1] * scale]);
                }
            }
            Ok(())
        })?;
        Ok(Data::contiguous(output, l.shape()))
    }

    /// Elements of a row from `start` on: as they are given, then zeros; of a spectrum of real numbers also
    /// the half that follows from the other.
    fn fill<T: Copy>(
        &self,
        start: usize,
        piece: &mut [Complex<f32>],
        from: &[T],
        get: impl Fn(T) -> [f32; 2],
    ) {
        let half = self.length / 2;
        for (at, to) in piece.iter_mut().enumerate() {
            let place = start + at;
            let mirrored = self.rows == Rows::ComplexToReal && place > half;
            let [re, im] =
                from.get(if mirrored { self.length - place } else { place }).map_or([0.0; 2], |x| get(*x));
            let im = if self.rows == Rows::RealToComplex { 0.0 } else { im };
            *to = Complex::new(re, if mirrored { -im } else { im });
        }
    }
}

/// How an array lies in memory whose last axis was moved there: as an axis with whole cache lines of columns
/// beside each other. None if it lies otherwise.
fn columns(shape: &[usize], strides: &[isize]) -> Option<Axis> {
    const LEAST: usize = 8;
    let (&len, outer) = shape.split_last()?;
    let (&step, strides) = strides.split_last()?;
    let inner = usize::try_from(step).ok().filter(|inner| *inner >= LEAST)?;
    // The axes behind it were next to each other, then come those before it.
    let mut expected = 1;
    for (&length, &stride) in outer.iter().zip(strides).rev() {
        if expected == inner {
            expected *= len;
        }
        if length != 1 && usize::try_from(stride).ok() != Some(expected) {
            return None;
        }
        expected *= length;
    }
    if expected == inner {
        expected *= len;
    }
    let rows: usize = outer.iter().product();
    (expected == rows * len && rows.is_multiple_of(inner)).then(|| Axis { outer: rows / inner, len, inner })
}

/// Writes numbers of consecutive frequencies, changed by `map`.
fn collect<T: Send>(long: &Long, from: &[[f32; 2]], to: &mut [T], map: impl Fn([f32; 2]) -> T + Sync) {
    par_chunks(to, GRAIN, |start, part| {
        for (at, to) in part.chunks_mut(Long::TOGETHER).enumerate() {
            let from = &from[long.place(start + at * Long::TOGETHER)..];
            to.iter_mut().zip(from).for_each(|(to, x)| *to = map(*x));
        }
    });
}

/// Fills the negative frequencies of a real signal.
fn mirror(line: &mut [Complex<f32>]) {
    let length = line.len();
    for at in 1..length.div_ceil(2) {
        line[length - at] = line[at].conj();
    }
}

/// A plan, from the cache or made now.
fn plan(length: usize, inverse: bool) -> Arc<dyn Fft<f32>> {
    type Plans = HashMap<(usize, bool), Arc<dyn Fft<f32>>>;
    const MOST: usize = 64;
    static PLANS: OnceLock<Mutex<Plans>> = OnceLock::new();
    let plans = PLANS.get_or_init(Mutex::default);
    let lock = || plans.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(found) = lock().get(&(length, inverse)) {
        return found.clone();
    }
    let direction = if inverse { FftDirection::Inverse } else { FftDirection::Forward };
    let made = FftPlanner::new().plan_fft(length, direction);
    let mut plans = lock();
    if plans.len() >= MOST {
        plans.clear();
    }
    plans.insert((length, inverse), made.clone());
    made
}

/// The transform of one axis.
fn one(
    x: &Array,
    rows: Rows,
    inverse: bool,
    length: Option<usize>,
    along: usize,
    norm: Norm,
) -> Result<Array> {
    let given = x.shape()[along];
    let length = length.unwrap_or(match rows {
        Rows::ComplexToReal => 2 * given.saturating_sub(1),
        _ => given,
    });
    if length == 0 {
        let what = format!("a transform of no elements along axis {along} of shape {:?}", x.shape());
        return Err(Error::value("fft", what));
    }
    let input = match x.dtype() {
        Dtype::Complex64 | Dtype::Float32 => x.clone(),
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
    shape[rank - 1] = if rows == Rows::RealToComplex { length / 2 + 1 } else { length };
    let dtype = if rows == Rows::ComplexToReal { Dtype::Float32 } else { Dtype::Complex64 };
    let op = Transform { rows, inverse, length, scale: scale as f32 };
    Array::lazy(shape, dtype, OpRef::new(op), smallvec![last])?.moveaxis(-1, along as isize)
}

/// Axes from the front and the length of each, if it is given.
type Plan = SmallVec<[(usize, Option<usize>); 4]>;

fn resolve(op: &str, x: &Array, lengths: Option<&[usize]>, along: Option<&[isize]>) -> Result<Plan> {
    if x.ndim() == 0 {
        return Err(Error::shape(op, "an array without axes has no transform"));
    }
    let all: SmallVec<[isize; 6]> = (0..x.ndim() as isize).collect();
    if along.is_none() && lengths.is_some() {
        return Err(Error::shape(op, "lengths are given, and no axes"));
    }
    let along = along.unwrap_or(&all);
    check_axes(op, along, x.ndim())?;
    if lengths.is_some_and(|lengths| lengths.len() != along.len()) {
        return Err(Error::shape(op, format!("lengths {lengths:?} for axes {along:?}")));
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
        .try_fold(x.clone(), |x, (along, length)| one(&x, Rows::Complex, inverse, *length, *along, norm))
}

macro_rules! transforms {
    ($($(#[doc = $doc:literal])+ $name:ident, $name2:ident, $namen:ident: |$x:ident, $plan:ident, $norm:ident| $body:expr;)*) => {
        $($(#[doc = $doc])+
        ///
        /// Along one axis, which is cut or filled with zeros to `n` elements.
        pub fn $name(x: &Array, n: Option<usize>, along: isize, norm: Norm) -> Result<Array> {
            let lengths = n.map(|n| [n]);
            $namen(x, lengths.as_ref().map(|n| &n[..]), Some(&[along]), norm)
        }

        $(#[doc = $doc])+
        ///
        /// Along two axes.
        pub fn $name2(x: &Array, s: Option<[usize; 2]>, along: [isize; 2], norm: Norm) -> Result<Array> {
            $namen(x, s.as_ref().map(|s| &s[..]), Some(&along), norm)
        }

        $(#[doc = $doc])+
        ///
        /// Along several axes, or all.
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
    fft, fft2, fftn: |x, plan, norm| complex(x, &plan, false, norm);
    /// The inverse of the discrete Fourier transform.
    ifft, ifft2, ifftn: |x, plan, norm| complex(x, &plan, true, norm);
    /// The discrete Fourier transform of real numbers: the frequencies of the last axis that are not
    /// negative.
    rfft, rfft2, rfftn: |x, plan, norm| {
        let Some(((along, length), others)) = plan.split_last() else { return Ok(x.clone()) };
        complex(&one(x, Rows::RealToComplex, false, *length, *along, norm)?, others, false, norm)
    };
    /// The inverse of the discrete Fourier transform of real numbers.
    irfft, irfft2, irfftn: |x, plan, norm| {
        let Some(((along, length), others)) = plan.split_last() else { return Ok(x.clone()) };
        one(&complex(x, others, true, norm)?, Rows::ComplexToReal, true, *length, *along, norm)
    };
}

/// The frequency zero moved to the middle of axes, or of all.
pub fn fftshift(x: &Array, along: Option<&[isize]>) -> Result<Array> {
    shift(x, along, |length| length / 2)
}

/// The inverse of [`fftshift`].
pub fn ifftshift(x: &Array, along: Option<&[isize]>) -> Result<Array> {
    shift(x, along, |length| -(length / 2))
}

fn shift(x: &Array, along: Option<&[isize]>, by: fn(isize) -> isize) -> Result<Array> {
    let all: SmallVec<[isize; 6]> = (0..x.ndim() as isize).collect();
    along.unwrap_or(&all).iter().try_fold(x.clone(), |x, one| {
        let length = x.shape()[axis("fftshift", *one, x.ndim())?];
        x.roll(&[by(length as isize)], Some(&[*one]))
    })
}

fn frequencies(op: &str, n: usize, d: f64, list: impl Iterator<Item = isize>) -> Result<Array> {
    if n == 0 || d == 0.0 {
        return Err(Error::value(op, format!("{n} elements at a distance of {d}")));
    }
    let unit = 1.0 / (n as f64 * d);
    let list: Vec<f32> = list.map(|k| (k as f64 * unit) as f32).collect();
    Array::try_from_slice(&list, &[list.len()])
}

/// The frequencies of a transform of `n` elements at a distance of `d`.
pub fn fftfreq(n: usize, d: f64) -> Result<Array> {
    let half = n.div_ceil(2) as isize;
    frequencies("fftfreq", n, d, (0..half).chain(-(n as isize / 2)..0))
}

/// The frequencies of a transform of `n` real elements at a distance of `d`.
pub fn rfftfreq(n: usize, d: f64) -> Result<Array> {
    frequencies("rfftfreq", n, d, 0..(n / 2 + 1) as isize)
}

pub(super) fn read(replay: &Replay<'_>) -> Result<Array> {
    let [x] = replay.inputs()?;
    let kinds = [
        ("complex", Rows::Complex),
        ("real_to_complex", Rows::RealToComplex),
        ("complex_to_real", Rows::ComplexToReal),
    ];
    let rows = replay.choice("kind", &kinds)?;
    let (inverse, length) = (replay.flag("inverse")?, replay.length("length")?);
    let fits = matches!(x.dtype(), Dtype::Float32 | Dtype::Complex64);
    let mut shape = x.0.shape.clone();
    let Some(last) = shape.last_mut().filter(|_| fits && length > 0 && length < 1 << 40) else {
        return Err(replay.wrong("no rows that can be transformed"));
    };
    // The length of rows and the scale belong together.
    let traced = replay.traced.first().and_then(|traced| traced.last().copied());
    if replay.free && traced != Some(*last) {
        return Err(replay.not_free());
    }
    *last = if rows == Rows::RealToComplex { length / 2 + 1 } else { length };
    let dtype = if rows == Rows::ComplexToReal { Dtype::Float32 } else { Dtype::Complex64 };
    let op = Transform { rows, inverse, length, scale: replay.float("scale")? as f32 };
    Array::lazy(shape, dtype, OpRef::new(op), smallvec![x.clone()])
}

//! Fourier transforms of rows on all cores: powers of two by [`hesper_compute::Fft`], which also takes
//! columns where they lie; rustfft plans any other length.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use crate::walk::{GRAIN, Strided, par_chunks};
use hesper_compute::{Axis, FftKind as Layout};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::fft::{FftKind, Transform};
use hesper_core::{Category, Dtype, Result, Shape};
use hesper_cpu::Cores;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection, FftNum, FftPlanner};

use crate::Cpu;
use crate::fft_long::LongFft;

/// Fewer rows than this are transformed one after the other, each on all cores, if they are long.
const FEW_ROWS: usize = 4;

/// Reads a row of the input.
type Reader<'a, R> = dyn Fn(usize, &mut [Complex<R>]) + Sync + 'a;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Transform>()
}

impl Lower<Transform> for Cpu {
    fn lower(op: &Transform, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if l.input_dtype(0).real() == Dtype::Float64 {
            return by_rows::<f64>(op, l, Strided::row_major(l, 0)?).map(Some);
        }
        if let Some(done) = lower_powers(op, l)? {
            return Ok(Some(done));
        }
        let (input, shape) = (Strided::row_major(l, 0)?, l.input_shape(0));
        let rows: usize = shape[..shape.len().saturating_sub(1)].iter().product();
        match LongFft::plan(op.length, op.inverse).filter(|_| rows < FEW_ROWS) {
            Some(long) => lower_long(op, l, &input, l.input_dtype(0) == Dtype::Float32, long),
            None => by_rows::<f32>(op, l, input),
        }
        .map(Some)
    }
}

/// Rows of parts of type `R`, each on one core.
fn by_rows<R: Planned>(op: &Transform, l: &Lowering<'_>, input: Strided) -> Result<Data>
where
    [R; 2]: bytemuck::Pod,
{
    let output = l.output()?;
    let (op, real) = (op.clone(), !l.input_dtype(0).is(Category::Complex));
    let (shape, result): (Shape, Shape) = (l.input_shape(0).into(), l.shape().into());
    let scale = R::of(op.scale.0);
    let command = l.stream().command("fft").read_range(&input.data.buffer, input.bytes.clone());
    command.write(&output).run(move |native| {
        let [from, to] = native.take()?;
        let (Some(&given), Some(&row)) = (shape.last(), result.last()) else { return Ok(()) };
        let plan = plan::<R>(op.length, op.inverse);
        let read: Box<Reader<'_, R>> = if real {
            let from = from.as_slice::<R>()?;
            Box::new(move |at, line| {
                let line = line.iter_mut();
                line.zip(&from[at * given..][..given]).for_each(|(to, x)| *to = Complex::new(*x, R::zero()));
            })
        } else {
            let from = from.as_slice::<[R; 2]>()?;
            Box::new(move |at, line| {
                let line = line.iter_mut();
                line.zip(&from[at * given..][..given])
                    .for_each(|(to, [re, im])| *to = Complex::new(*re, *im));
            })
        };
        let transform = |first: usize, count: usize, store: &mut dyn FnMut(usize, &[Complex<R>])| {
            let zero = Complex::new(R::zero(), R::zero());
            let mut line = vec![zero; op.length];
            let mut scratch = vec![zero; plan.get_inplace_scratch_len()];
            for at in 0..count {
                let kept = match op.kind {
                    FftKind::ComplexToReal => op.length / 2 + 1,
                    _ => op.length,
                };
                line[given.min(op.length)..].fill(zero);
                read(first + at, &mut line[..kept]);
                if op.kind == FftKind::ComplexToReal {
                    mirror(&mut line);
                }
                plan.process_with_scratch(&mut line, &mut scratch);
                store(at, &line[..row]);
            }
        };
        let chunk = (GRAIN / op.length.max(row)).max(1) * row;
        if op.kind == FftKind::ComplexToReal {
            par_chunks(to.as_mut_slice::<R>()?, chunk, |first, part| {
                transform(first / row, part.len() / row, &mut |at, line| {
                    let part = part[at * row..(at + 1) * row].iter_mut();
                    part.zip(line).for_each(|(to, x)| *to = x.re * scale);
                });
            });
        } else {
            par_chunks(to.as_mut_slice::<[R; 2]>()?, chunk, |first, part| {
                transform(first / row, part.len() / row, &mut |at, line| {
                    let part = part[at * row..(at + 1) * row].iter_mut();
                    part.zip(line).for_each(|(to, x)| *to = [x.re * scale, x.im * scale]);
                });
            });
        }
        Ok(())
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

/// FftKind whose length is a power of two, if they are many or long.
fn lower_powers(op: &Transform, l: &Lowering<'_>) -> Result<Option<Data>> {
    let (shape, real) = (l.input_shape(0), l.input_dtype(0) == Dtype::Float32);
    let kind = match (op.kind, real, op.inverse) {
        (FftKind::Complex, false, _) => Layout::Complex,
        (FftKind::Complex, true, _) => Layout::RealToFull,
        (FftKind::RealToComplex, true, false) => Layout::RealToHalf,
        (FftKind::ComplexToReal, false, true) => Layout::HalfToReal,
        _ => return Ok(None),
    };
    let Some((&given, outer)) = shape.split_last() else { return Ok(None) };
    let rows = outer.iter().product();
    let Some(fft) = hesper_compute::Fft::new(op.length, rows, kind, op.inverse) else {
        return Ok(None);
    };
    if given == 0 || rows == 0 {
        return Ok(None);
    }
    let (output, scale) = (l.output()?, op.scale.0 as f32);
    if fft.has_columns()
        && given == op.length
        && let Some(axis) = columns(shape, &l.input(0).strides)
    {
        let input = Strided::input(l, 0);
        let command = l.stream().command("fft").read_range(&input.data.buffer, input.bytes.clone());
        command.write(&output).run(move |native| {
            let [from, to] = native.take()?;
            fft.run_columns(&Cores, from.as_slice()?, axis, to.as_mut_slice()?, scale).map_err(crate::refused)
        })?;
        let strides = input.data.strides.clone();
        return Ok(Some(Data { buffer: output, offset: 0, strides }));
    }
    let input = Strided::row_major(l, 0)?;
    let command = l.stream().command("fft").read_range(&input.data.buffer, input.bytes.clone());
    command.write(&output).run(move |native| {
        let [from, to] = native.take()?;
        fft.run(&Cores, from.as_slice()?, given, to.as_mut_slice()?, scale).map_err(crate::refused)
    })?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// A few long rows, each on all cores.
fn lower_long(
    op: &Transform,
    l: &Lowering<'_>,
    input: &Strided,
    real: bool,
    long: Arc<LongFft>,
) -> Result<Data> {
    let output = l.output()?;
    let bytes = op.length * size_of::<[f32; 2]>();
    let (first, second) = (l.stream().alloc(bytes)?, l.stream().alloc(bytes)?);
    let (op, shape): (_, Shape) = (op.clone(), l.shape().into());
    let given = l.input_shape(0).last().copied().unwrap_or(0);
    let command = l.stream().command("fft").read_range(&input.data.buffer, input.bytes.clone());
    command.write(&first).write(&second).write(&output).run(move |native| {
        let [from, first, second, to] = native.take()?;
        let (first, second) = (first.as_mut_slice::<[f32; 2]>()?, second.as_mut_slice::<[f32; 2]>()?);
        let row = shape.last().copied().unwrap_or(0);
        for at in 0..shape[..shape.len() - 1].iter().product() {
            if real {
                let from = &from.as_slice::<f32>()?[at * given..][..given];
                long.run(&|start, piece| fill(&op, start, piece, from, |x| [x, 0.0]), first, second);
            } else {
                let from = &from.as_slice::<[f32; 2]>()?[at * given..][..given];
                long.run(&|start, piece| fill(&op, start, piece, from, |x| x), first, second);
            }
            let (second, scale) = (&*second, op.scale.0 as f32);
            if op.kind == FftKind::ComplexToReal {
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
    op: &Transform,
    start: usize,
    piece: &mut [Complex<f32>],
    from: &[T],
    get: impl Fn(T) -> [f32; 2],
) {
    let half = op.length / 2;
    for (at, to) in piece.iter_mut().enumerate() {
        let place = start + at;
        let mirrored = op.kind == FftKind::ComplexToReal && place > half;
        let [re, im] =
            from.get(if mirrored { op.length - place } else { place }).map_or([0.0; 2], |x| get(*x));
        *to = Complex::new(re, if mirrored { -im } else { im });
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
fn collect<T: Send>(long: &LongFft, from: &[[f32; 2]], to: &mut [T], map: impl Fn([f32; 2]) -> T + Sync) {
    par_chunks(to, GRAIN, |start, part| {
        for (at, to) in part.chunks_mut(LongFft::TOGETHER).enumerate() {
            let from = &from[long.place(start + at * LongFft::TOGETHER)..];
            to.iter_mut().zip(from).for_each(|(to, x)| *to = map(*x));
        }
    });
}

/// Fills the negative frequencies of a real signal.
fn mirror<R: FftNum>(line: &mut [Complex<R>]) {
    let length = line.len();
    for at in 1..length.div_ceil(2) {
        line[length - at] = line[at].conj();
    }
}

/// Plans by length and direction.
type Plans<R> = HashMap<(usize, bool), Arc<dyn Fft<R>>>;

/// A type of parts, with the plans that were made for it.
trait Planned: FftNum + bytemuck::Pod {
    fn of(value: f64) -> Self;
    fn plans() -> &'static Mutex<Plans<Self>>;
}

macro_rules! planned {
    ($($part:ty)*) => { $(
        impl Planned for $part {
            fn of(value: f64) -> Self { value as $part }
            fn plans() -> &'static Mutex<Plans<Self>> {
                static PLANS: OnceLock<Mutex<Plans<$part>>> = OnceLock::new();
                PLANS.get_or_init(Mutex::default)
            }
        }
    )* };
}

planned!(f32 f64);

/// A plan, from the cache or made now.
fn plan<R: Planned>(length: usize, inverse: bool) -> Arc<dyn Fft<R>> {
    const MAX_PLANS: usize = 64;
    let plans = R::plans();
    let lock = || plans.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(found) = lock().get(&(length, inverse)) {
        return found.clone();
    }
    let direction = if inverse { FftDirection::Inverse } else { FftDirection::Forward };
    let made = FftPlanner::new().plan_fft(length, direction);
    let mut plans = lock();
    if plans.len() >= MAX_PLANS {
        plans.clear();
    }
    plans.insert((length, inverse), made.clone());
    made
}

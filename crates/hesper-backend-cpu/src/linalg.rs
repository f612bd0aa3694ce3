//! Linear algebra: matrices of a batch side by side on all cores, or all cores on each of a few.

use std::sync::Mutex;

use crate::parallel::par_pieces;
use bytemuck::Pod;
use hesper_compute::{Par, Serial};
use hesper_core::backend::reach;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::linalg::factor::{Factor, Work};
use hesper_core::ops::linalg::root::SymmetricRoot;
use hesper_core::{Dtype, Error, Result};
use hesper_cpu::Cores;
use hesper_linalg::{Failure, General};
use smallvec::SmallVec;

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Factor>().with::<SymmetricRoot>()
}

impl Lower<Factor> for Cpu {
    fn lower(op: &Factor, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match l.input_dtype(0) {
            Dtype::Float32 => run::<f32>(op, l),
            Dtype::Float64 => run::<f64>(op, l),
            Dtype::Complex64 => run::<[f32; 2]>(op, l),
            Dtype::Complex128 => run::<[f64; 2]>(op, l),
            dtype => {
                let what = "takes float32, float64 and complex numbers, not an array".into();
                Err(Error::Type { op: op.name().into(), what, dtype })
            }
        }
        .map(Some)
    }
}

impl Lower<SymmetricRoot> for Cpu {
    fn lower(op: &SymmetricRoot, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (input, output) = (l.row_major(0)?, l.output()?);
        let (bytes, _) = reach(&input, l.shape(), size_of::<f32>());
        let side = l.shape()[l.shape().len() - 1];
        l.stream().command(op.name()).read_range(&input.buffer, bytes).write(&output).run(move |native| {
            let [from, to] = native.take()?;
            let matrix = (side * side).max(1);
            let matrices = from.as_slice::<f32>()?.chunks_exact(matrix);
            for (from, to) in matrices.zip(to.as_mut_slice::<f32>()?.chunks_exact_mut(matrix)) {
                match root(from, to, side) {
                    Err(Failure::NotFinite) => to.fill(f32::NAN),
                    done => done.map_err(|failure| failure.to_string())?,
                }
            }
            Ok(())
        })?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

/// The symmetric square root of a matrix, `V sqrt(D) V^T` of `V D V^T`, in double precision.
fn root(from: &[f32], to: &mut [f32], n: usize) -> Outcome {
    let wide: Vec<f64> = from.iter().map(|x| f64::from(*x)).collect();
    let (mut values, mut vectors) = (vec![0.0; n], vec![0.0; n * n]);
    hesper_linalg::eigh(&Cores, n, &wide, false, &mut values, Some(&mut vectors))?;
    values.iter_mut().for_each(|value| *value = value.max(0.0).sqrt());
    for (at, out) in to.iter_mut().enumerate() {
        let (left, right) = (&vectors[at / n * n..][..n], &vectors[at % n * n..][..n]);
        *out = (0..n).map(|k| left[k] * values[k] * right[k]).sum::<f64>() as f32;
    }
    Ok(())
}

type Outcome = std::result::Result<(), Failure>;

/// The results for one matrix `a` and, where there is one, a right side `b` of as many columns.
fn compute<T>(
    work: Work,
    par: &dyn Par,
    m: usize,
    n: usize,
    a: &[T],
    b: &[T],
    out: &mut [&mut [u8]],
) -> Outcome
where
    T: General<Real: Pod, Eigen: Pod> + Pod,
{
    use bytemuck::cast_slice_mut as cast;
    match (work, out) {
        (Work::Inverse, [out]) => hesper_linalg::inv::<T>(par, n, a, cast(out)),
        (Work::TriangularInverse { upper }, [out]) => {
            hesper_linalg::tri_inv::<T>(par, n, a, upper, cast(out))
        }
        (Work::Solve, [out]) => hesper_linalg::solve::<T>(par, m, n, a, b, cast(out)),
        (Work::SolveTriangular { upper }, [out]) => {
            hesper_linalg::solve_triangular::<T>(par, m, n, a, b, upper, cast(out))
        }
        (Work::Cholesky { upper }, [out]) => hesper_linalg::cholesky::<T>(par, n, a, upper, cast(out)),
        (Work::Lu, [factors, swaps, places]) => {
            hesper_linalg::lu::<T>(par, m, n, a, cast(factors), cast(swaps), cast(places))
        }
        (Work::Qr, [q, r]) => hesper_linalg::qr::<T>(par, m, n, a, cast(q), cast(r)),
        (Work::Svd, [u, s, vt]) => hesper_linalg::svd::<T>(par, m, n, a, cast(u), cast(s), cast(vt)),
        (Work::SingularValues, [s]) => hesper_linalg::singular_values::<T>(par, m, n, a, cast(s)),
        (Work::Eigh { upper, .. }, [values]) => {
            hesper_linalg::eigh::<T>(par, n, a, upper, cast(values), None)
        }
        (Work::Eigh { upper, .. }, [values, vectors]) => {
            hesper_linalg::eigh::<T>(par, n, a, upper, cast(values), Some(cast(vectors)))
        }
        (Work::Eig { .. }, [values]) => hesper_linalg::eig::<T>(par, n, a, cast(values), None),
        (Work::Eig { .. }, [values, vectors]) => {
            hesper_linalg::eig::<T>(par, n, a, cast(values), Some(cast(vectors)))
        }
        (_, out) => Err(Failure::Size { rows: m, columns: n, given: out.len() }),
    }
}

fn run<T>(op: &Factor, l: &Lowering<'_>) -> Result<Data>
where
    T: General<Real: Pod, Eigen: Pod> + Pod,
{
    let inputs = (0..l.input_count()).map(|at| l.row_major(at)).collect::<Result<Vec<Data>>>()?;
    let shape = l.input_shape(0);
    let last = |at: usize| -> [usize; 2] {
        let shape = l.input_shape(at);
        [shape[shape.len() - 2], shape[shape.len() - 1]]
    };
    let count: usize = shape[..shape.len() - 2].iter().product();
    let [m, n] = last(inputs.len() - 1);
    let sizes: SmallVec<[usize; 2]> = (0..inputs.len()).map(|at| last(at)[0] * last(at)[1]).collect();
    let output = l.output()?;
    let mut command = l.stream().command(op.name());
    for (at, data) in inputs.iter().enumerate() {
        let (bytes, _) = reach(data, l.input_shape(at), std::mem::size_of::<T>());
        command = command.read_range(&data.buffer, bytes);
    }
    let op = op.clone();
    command.write(&output).run(move |native| {
        let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
        let inputs: SmallVec<[&[T]; 2]> =
            inputs.iter().map(|view| view.as_slice::<T>()).collect::<std::result::Result<_, _>>()?;
        let failed = Mutex::new(None);
        // Many matrices side by side, or all cores on each of a few.
        let par: &dyn Par = if count < 2 * Cores.threads() { &Cores } else { &Serial };
        par_pieces(pieces(&op, out.bytes_mut()?, count), |at, mut pieces| {
            let one = |which: usize| {
                inputs.get(which).map_or(&[][..], |all| &all[at * sizes[which]..][..sizes[which]])
            };
            if let Err(failure) = compute::<T>(op.work, par, m, n, one(0), one(1), &mut pieces) {
                let mut failed = failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                // The first matrix that failed, whatever the order in which they were computed.
                if failed.is_none_or(|(first, _)| at < first) {
                    *failed = Some((at, failure));
                }
            }
        });
        match failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            None => Ok(()),
            Some((_, failure)) if count == 1 => Err(format!("{}: {failure}", op.name()).into()),
            Some((at, failure)) => Err(format!("{}: matrix {at}: {failure}", op.name()).into()),
        }
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

/// The memory of each matrix's results.
fn pieces<'a>(op: &Factor, mut memory: &'a mut [u8], count: usize) -> Vec<SmallVec<[&'a mut [u8]; 3]>> {
    let mut pieces: Vec<SmallVec<[&'a mut [u8]; 3]>> = (0..count).map(|_| SmallVec::new()).collect();
    let mut at = 0;
    for (start, bytes) in &op.parts {
        let padding;
        (padding, memory) = memory.split_at_mut(start - at);
        padding.fill(0);
        for piece in &mut pieces {
            let (own, rest) = memory.split_at_mut(*bytes);
            piece.push(own);
            memory = rest;
        }
        at = start + bytes * count;
    }
    memory.fill(0);
    pieces
}

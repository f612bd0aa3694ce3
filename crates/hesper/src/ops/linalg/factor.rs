//! The one op of linear algebra: every matrix of a batch is factored or solved, matrices side by side on
//! all cores. Several results share one piece of memory; each is a view of its part.

use std::sync::Mutex;

use bytemuck::Pod;
use hesper_compute::{Par, Serial};
use hesper_cpu::Cores;
use hesper_linalg::{Failure, General};
use smallvec::{SmallVec, smallvec};

use crate::Dtype;
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record};
use crate::ops::command::Commands;
use crate::ops::multi::{Part, together};
use crate::ops::native::{par_pieces, reach};
use crate::ops::{Op, OpRef};
use crate::shape::{Shape, size_of};
use crate::transform::rule::{Backward, Batch, Cotangents};

/// What is done with each matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Inverse,
    TriangularInverse { upper: bool },
    Solve,
    SolveTriangular { upper: bool },
    Cholesky { upper: bool },
    Lu,
    Qr,
    Svd,
    SingularValues,
    Eigh { upper: bool, vectors: bool },
    Eig { vectors: bool },
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Work::Inverse => "inv",
            Work::TriangularInverse { .. } => "tri_inv",
            Work::Solve => "solve",
            Work::SolveTriangular { .. } => "solve_triangular",
            Work::Cholesky { .. } => "cholesky",
            Work::Lu => "lu",
            Work::Qr => "qr",
            Work::Svd | Work::SingularValues => "svd",
            Work::Eigh { .. } => "eigh",
            Work::Eig { .. } => "eig",
        }
    }

    /// The results for one matrix `a` and, where there is one, a right side `b` of as many columns.
    fn compute<T>(self, par: &dyn Par, m: usize, n: usize, a: &[T], b: &[T], out: &mut [&mut [u8]]) -> Outcome
    where
        T: General<Real: Pod> + Pod,
    {
        use bytemuck::cast_slice_mut as cast;
        match (self, out) {
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
}

type Outcome = std::result::Result<(), Failure>;

/// A result: its shape for one matrix, and its type.
pub(super) type Output = (Shape, Dtype);

/// Work on every matrix of the last two axes of `a`, with a right side for each.
#[derive(Debug, Clone)]
struct Factor {
    work: Work,
    /// Where each result begins in the memory of all, and the bytes of it for one matrix.
    parts: SmallVec<[(usize, usize); 3]>,
    /// Shapes and types of the results, batch included.
    outputs: SmallVec<[Output; 3]>,
}

/// The results of work on every matrix of `a`; inputs have the same batch.
pub(super) fn factor(work: Work, inputs: SmallVec<[Array; 3]>, outputs: &[Output]) -> Result<Vec<Array>> {
    let batch: Shape = inputs[0].shape()[..inputs[0].ndim() - 2].into();
    let count = size_of(&batch)?;
    let mut parts = SmallVec::new();
    let mut end = 0usize;
    for (shape, dtype) in outputs {
        let bytes = size_of(shape)?.checked_mul(dtype.size());
        let all = bytes.and_then(|bytes| bytes.checked_mul(count)?.checked_next_multiple_of(64));
        let (Some(bytes), Some(all)) = (bytes, all) else {
            return Err(Error::TooLarge { shape: shape.to_vec() });
        };
        parts.push((end, bytes));
        end = end.checked_add(all).ok_or_else(|| Error::TooLarge { shape: shape.to_vec() })?;
    }
    let outputs: SmallVec<[Output; 3]> =
        outputs.iter().map(|(shape, dtype)| (batch.iter().chain(shape).copied().collect(), *dtype)).collect();
    let op = Factor { work, parts, outputs };
    if let [(shape, dtype)] = &op.outputs[..] {
        let (shape, dtype) = (shape.clone(), *dtype);
        return Ok(vec![Array::lazy(shape, dtype, OpRef::new(op), inputs)?]);
    }
    let memory = Array::lazy(smallvec![end], Dtype::Uint8, OpRef::new(op.clone()), inputs)?;
    op.split(&memory)
}

impl Factor {
    /// The results as views of the memory that they share.
    fn split(&self, memory: &Array) -> Result<Vec<Array>> {
        self.outputs
            .iter()
            .zip(&self.parts)
            .enumerate()
            .map(|(number, ((shape, dtype), (start, _)))| {
                let part = OpRef::new(Part { start: *start, number });
                Array::lazy(shape.clone(), *dtype, part, smallvec![memory.clone()])
            })
            .collect()
    }

    fn run<T>(&self, l: &Lowering<'_>) -> Result<Data>
    where
        T: General<Real: Pod> + Pod,
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
        let mut command = l.stream().command(self.name());
        for (at, data) in inputs.iter().enumerate() {
            let (bytes, _) = reach(data, l.input_shape(at), std::mem::size_of::<T>());
            command = command.read_range(&data.buffer, bytes);
        }
        let op = self.clone();
        command.write(&output).run(move |native| {
            let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
            let inputs: SmallVec<[&[T]; 2]> =
                inputs.iter().map(|view| view.as_slice::<T>()).collect::<std::result::Result<_, _>>()?;
            let failed = Mutex::new(None);
            // Many matrices side by side, or all cores on each of a few.
            let par: &dyn Par = if count < 2 * Cores.threads() { &Cores } else { &Serial };
            par_pieces(op.pieces(out.bytes_mut()?, count), |at, mut pieces| {
                let one = |which: usize| {
                    inputs.get(which).map_or(&[][..], |all| &all[at * sizes[which]..][..sizes[which]])
                };
                if let Err(failure) = op.work.compute::<T>(par, m, n, one(0), one(1), &mut pieces) {
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
    fn pieces<'a>(&self, mut memory: &'a mut [u8], count: usize) -> Vec<SmallVec<[&'a mut [u8]; 3]>> {
        let mut pieces: Vec<SmallVec<[&'a mut [u8]; 3]>> = (0..count).map(|_| SmallVec::new()).collect();
        let mut at = 0;
        for (start, bytes) in &self.parts {
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
}

impl Op for Factor {
    fn name(&self) -> &'static str {
        self.work.name()
    }

    fn export(&self) -> Export {
        let record = Record::new(match self.work {
            Work::SingularValues => "singular_values",
            Work::Eigh { vectors: false, .. } => "eigvalsh",
            Work::Eig { vectors: false } => "eigvals",
            work => work.name(),
        });
        match self.work {
            Work::TriangularInverse { upper }
            | Work::SolveTriangular { upper }
            | Work::Cholesky { upper }
            | Work::Eigh { upper, .. } => record.with("upper", upper).into(),
            _ => record.into(),
        }
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        match l.input_dtype(0) {
            Dtype::Float32 => self.run::<f32>(l),
            Dtype::Float64 => self.run::<f64>(l),
            Dtype::Complex64 => self.run::<[f32; 2]>(l),
            dtype => {
                let what = "takes float32, float64 and complex64, not an array".into();
                Err(Error::Type { op: self.name().into(), what, dtype })
            }
        }
    }

    fn outputs(&self) -> Option<Vec<(Shape, Dtype)>> {
        (self.outputs.len() > 1).then(|| self.outputs.to_vec())
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let results =
            if self.outputs.len() > 1 { self.split(rule.output)? } else { vec![rule.output.clone()] };
        super::rules::cotangents(self.work, rule, &results)
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        // One more batch is a larger batch.
        let inputs: SmallVec<[Array; 3]> =
            (0..rule.inputs.len()).map(|at| rule.full(at)).collect::<Result<_>>()?;
        let batch = inputs[0].ndim() - 3;
        let each: SmallVec<[Output; 3]> =
            self.outputs.iter().map(|(shape, dtype)| (shape[batch..].into(), *dtype)).collect();
        let mut results = factor(self.work, inputs, &each)?;
        match results.pop() {
            Some(only) if results.is_empty() => Ok((only, 0)),
            last => together(rule, results.into_iter().chain(last).collect()),
        }
    }
}

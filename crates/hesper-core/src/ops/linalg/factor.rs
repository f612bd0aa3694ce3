//! The op of linear algebra: factors or solves every matrix of a batch. Several results share one allocation;
//! each is a view of its part.

use smallvec::{SmallVec, smallvec};

use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Export, Record};
use crate::ops::multi::{Part, together};
use crate::ops::{Op, OpRef};
use crate::shape::{Shape, size_of};

/// What is computed from each matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "named after what they compute")]
pub enum Work {
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
    /// The op's name.
    pub fn name(self) -> &'static str {
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
}

/// The shape of a result for one matrix, and its type.
pub type Output = (Shape, Dtype);

/// Inputs: matrices in the last two axes; for solving, also right-hand sides.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Factor {
    pub work: Work,
    /// For each result its offset in the shared allocation, and its bytes for one matrix.
    pub parts: SmallVec<[(usize, usize); 3]>,
    /// Shapes and types of the results, with batch axes.
    pub outputs: SmallVec<[Output; 3]>,
}

/// The results for every matrix. All inputs have the same batch axes.
pub fn factor(work: Work, inputs: SmallVec<[Array; 3]>, outputs: &[Output]) -> Result<Vec<Array>> {
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
    /// The results as views of the shared allocation.
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

    fn outputs(&self) -> Option<Vec<(Shape, Dtype)>> {
        (self.outputs.len() > 1).then(|| self.outputs.to_vec())
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let results =
            if self.outputs.len() > 1 { self.split(rule.output)? } else { vec![rule.output.clone()] };
        super::rules::cotangents(self.work, rule, &results)
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        // The new axis is one more batch axis.
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

//! The symmetric square root of a covariance.

use smallvec::smallvec;

use super::eigh;
use crate::Dtype;
use crate::error::Result;
use crate::graph::rule::{Backward, Batch, Cotangents, zeros_like};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::logic::select;
use crate::ops::readers::reader;
use crate::ops::{Op, OpRef};

/// The symmetric square root of symmetric matrices of float32.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct SymmetricRoot;

impl Op for SymmetricRoot {
    fn name(&self) -> &'static str {
        "covariance root"
    }

    fn export(&self) -> Export {
        Record::new("symmetric_root").into()
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        // With roots `r` on the diagonal, a change of the matrix is divided by `r_i + r_j`.
        let (values, basis) = eigh(&rule.inputs[0], false)?;
        let turned = basis.swapaxes(-1, -2)?;
        let roots = values.maximum(0)?.sqrt()?;
        let sums = roots.expand_dims(-1)?.add(&roots.expand_dims(-2)?)?;
        let (flat, zero) = (sums.equal(0)?, zeros_like(&sums)?);
        let factors = select(&flat, &zero, &select(&flat, &sums.ones_like()?, &sums)?.reciprocal()?)?;
        let inner = turned.matmul(&rule.cotangent()?)?.matmul(&basis)?.multiply(&factors)?;
        let whole = basis.matmul(&inner)?.matmul(&turned)?;
        rule.only(whole.add(&whole.swapaxes(-1, -2)?)?.multiply(0.5))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.front(0)?])
    }
}

/// The symmetric square root of the matrices of the last two axes.
pub fn symmetric_root(matrices: &Array) -> Result<Array> {
    let op = OpRef::Static(&SymmetricRoot);
    Array::lazy(matrices.0.shape.clone(), Dtype::Float32, op, smallvec![matrices.clone()])
}

reader!("symmetric_root", One(read_symmetric_root));
fn read_symmetric_root(replay: &Replay<'_>) -> Result<Array> {
    let [matrices] = replay.inputs()?;
    match *matrices.shape() {
        [.., rows, columns] if rows == columns && matrices.dtype() == Dtype::Float32 => {
            symmetric_root(matrices)
        }
        _ => Err(replay.wrong("no square matrices of float32")),
    }
}

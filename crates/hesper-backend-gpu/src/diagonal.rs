//! Matrices with a vector on a diagonal.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose};
use hesper_core::ops::diagonal::Diag;
use hesper_core::{Array, Result};

use crate::{Gpu, Shared};

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, Diag>()
}

impl<G: Gpu> Lower<Diag> for Shared<G> {
    fn lower(op: &Diag, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let side = l.shape()[0];
        compose(l, |inputs| diagonal(inputs, side, op.0))
    }
}

/// A square matrix of `side` rows with a vector on its diagonal number `k`.
fn diagonal(inputs: &[Array], side: usize, k: isize) -> Result<Array> {
    let vector = &inputs[0];
    let (side, count) = (side as isize, vector.shape()[0] as isize);
    let zeros = Array::zeros(&[(side * side) as usize], vector.dtype())?;
    if count == 0 {
        return zeros.reshape(&[side, side]);
    }
    let start = (-k).max(0) * side + k.max(0);
    let stop = start + (count - 1) * (side + 1) + 1;
    zeros.slice_update(vector, &[start], &[stop], &[side + 1])?.reshape(&[side, side])
}

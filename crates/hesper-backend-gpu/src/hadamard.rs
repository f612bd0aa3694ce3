//! The Walsh-Hadamard transform, as products with matrices of signs.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose};
use hesper_core::ops::hadamard::Hadamard;
use hesper_core::shape::signed;
use hesper_core::{Array, Dtype, Result};

use crate::{Gpu, Shared};

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, Hadamard>()
}

impl<G: Gpu> Lower<Hadamard> for Shared<G> {
    fn lower(op: &Hadamard, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose(l, |inputs| hadamard(inputs, op.order, &op.signs(), op.scale.0))
    }
}

/// The Walsh-Hadamard transform of rows: a product with a matrix of signs for each factor of the length.
/// `signs` is the matrix of the factor that is no power of two.
fn hadamard(inputs: &[Array], order: usize, signs: &[f32], scale: f32) -> Result<Array> {
    let (x, dtype) = (&inputs[0], inputs[0].dtype());
    let shape = signed(x.shape());
    let length = x.shape()[x.ndim() - 1];
    let mut factors: Vec<(usize, Array)> = Vec::new();
    let mut left = length / order;
    while left > 1 {
        let part = left.min(64);
        let odd = |at: usize| !((at / part) & (at % part)).count_ones().is_multiple_of(2);
        let sign = |at: usize| if odd(at) { -1.0f32 } else { 1.0 };
        let matrix: Vec<f32> = (0..part * part).map(sign).collect();
        factors.push((part, Array::try_from_slice(&matrix, &[part, part])?));
        left /= part;
    }
    if order > 1 {
        factors.push((order, Array::try_from_slice(signs, &[order, order])?));
    }
    let mut y = x.astype(Dtype::Float32)?;
    // The product of the factors so far.
    let mut inner = 1usize;
    for (part, matrix) in factors {
        y = y.reshape(&[-1, part as isize, inner as isize])?;
        y = if inner == 1 {
            y.reshape(&[-1, part as isize])?.matmul(&matrix.t()?)?
        } else {
            matrix.matmul(&y)?
        };
        inner *= part;
    }
    y.multiply(f64::from(scale))?.astype(dtype)?.reshape(&shape)
}

//! Products of matrices with masks or in order.

use hesper::{Array, Dtype};

use super::{check_traced, step};
use crate::primitives::{CHOSEN, int, shape};

/// A product of which blocks are masked, by arrays of marks of the result and of both sides.
pub fn masked(
    a: &Array,
    b: &Array,
    block: usize,
    masks: [Option<&Array>; 3],
    product: Array,
) -> hesper::Result<Option<Array>> {
    if masks.iter().all(Option::is_none) || a.ndim() != b.ndim() {
        return Ok(None);
    }
    let inputs: Vec<&Array> = [a, b].into_iter().chain(masks.into_iter().flatten()).collect();
    check_traced(&inputs)?;
    let arguments = vec![int(block as i64)];
    step("BlockMaskedMM", arguments, &inputs, product.shape(), product.dtype()).map(Some)
}

/// A product of matrices that indices choose. Those that are not given count the matrices of their side.
pub fn chosen(
    product: Array,
    sides: [&Array; 2],
    given: [Option<&Array>; 2],
    sorted: bool,
) -> hesper::Result<Array> {
    let inputs: Vec<&Array> = sides.into_iter().chain(given.into_iter().flatten()).collect();
    if !super::described() || given.iter().all(Option::is_none) || check_traced(&inputs).is_err() {
        return Ok(product);
    }
    let mut lists = Vec::new();
    for (side, list) in sides.into_iter().zip(given) {
        lists.push(match list {
            Some(list) => list.astype(Dtype::Uint32)?,
            None => {
                let batch = &side.shape()[..side.ndim() - 2];
                let count: usize = batch.iter().product();
                let all = Array::arange(0..count as i64, Some(Dtype::Uint32))?;
                if batch.len() == 1 {
                    all
                } else {
                    step("Reshape", vec![shape(batch)], &[&all], batch, Dtype::Uint32)?
                }
            }
        });
    }
    let lists = Array::broadcast_arrays(&lists)?;
    // Only the indices that are given beside counted ones are known to be in order.
    let [left, right] = given.map(|list| list.is_some());
    let flags = vec![(sorted && left && !right).into(), (sorted && right && !left).into()];
    step(CHOSEN, flags, &[&product, sides[0], &lists[0], &lists[1]], product.shape(), product.dtype())
}

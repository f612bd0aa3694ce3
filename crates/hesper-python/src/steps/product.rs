//! Products of matrices with masks or in order.

use hesper::Array;

use super::step;
use crate::primitives::int;

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
    let arguments = vec![int(block as i64)];
    step("BlockMaskedMM", arguments, &inputs, product.shape(), product.dtype()).map(Some)
}

//! Dependencies without data: arrays that are computed after others.

use smallvec::SmallVec;

use crate::error::Result;
use crate::graph::rule::{Backward, Batch, Cotangents, Forward, Tangents};
use crate::graph::{Array, Data, Export, Lowering, Op, OpKind, OpRef};

/// The first input, computed after the others.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Depends;

impl Op for Depends {
    fn name(&self) -> &'static str {
        "depends"
    }

    fn export(&self) -> Export {
        Export::Input(0)
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        Ok(l.input(0).clone())
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        rule.only(rule.cotangent())
    }

    fn jvp(&self, rule: &Forward<'_>) -> Result<Tangents> {
        Ok(Tangents::from_iter([rule.tangents[0].clone()]))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let mut inputs: SmallVec<[Array; 3]> = rule.inputs.into();
        inputs[0] = rule.full(0)?;
        rule.apply(rule.op.clone(), inputs)
    }
}

/// The same arrays, computed after `others`.
///
/// ```
/// use hesper::{array, transform};
/// let (x, y) = (array![1.0, 2.0].exp()?, array![3.0].sin()?);
/// let x = transform::depends(&[x], std::slice::from_ref(&y))?.remove(0); // x after y
/// x.eval()?;
/// assert!(y.is_evaluated());
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn depends(arrays: &[Array], others: &[Array]) -> Result<Vec<Array>> {
    let after = |array: &Array| {
        let inputs = std::iter::once(array).chain(others).cloned().collect();
        Array::lazy(array.0.shape.clone(), array.dtype(), OpRef::Static(&Depends), inputs)
    };
    arrays.iter().map(after).collect()
}

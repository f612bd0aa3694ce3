//! Steps of another framework's graphs: a trace can hold them and describe them, and nothing computes them.

use smallvec::SmallVec;

use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::{Array, Attributes, Export, Op, OpRef, Record, Replay};
use crate::identity::equal_to_itself;
use crate::ops::multi::Parts;
use crate::ops::readers::reader;
use crate::shape::Shape;

#[derive(Debug)]
struct Described {
    attributes: Attributes,
    outputs: Vec<(Shape, Dtype)>,
}

equal_to_itself!(Described);

impl Op for Described {
    fn name(&self) -> &'static str {
        "described"
    }

    fn export(&self) -> Export {
        let record = Record { attributes: self.attributes.clone(), ..Record::new("described") };
        record.into()
    }

    fn outputs(&self) -> Option<Vec<(Shape, Dtype)>> {
        (self.outputs.len() > 1).then(|| self.outputs.clone())
    }
}

/// The outputs of a step that is described by its attributes. A graph has it as a step `described`.
///
/// ```
/// use hesper::{Dtype, array, export};
/// let x = array![1.0, 2.0];
/// let y = export::described(Vec::new(), &[x], vec![(vec![2].into(), Dtype::Float32)])?.remove(0);
/// assert_eq!(y.shape(), [2]);
/// assert!(y.eval().is_err());
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn described(
    attributes: Attributes,
    inputs: &[Array],
    outputs: Vec<(Shape, Dtype)>,
) -> Result<Vec<Array>> {
    let inputs: SmallVec<[Array; 3]> = inputs.into();
    let op = OpRef::new(Described { attributes, outputs: outputs.clone() });
    match &outputs[..] {
        [(shape, dtype)] => Ok(vec![Array::lazy(shape.clone(), *dtype, op, inputs)?]),
        _ => Parts::new(outputs)?.arrays(op, inputs),
    }
}

reader!("described", Several(read));
fn read(replay: &Replay<'_>) -> Result<Vec<Array>> {
    Err(Error::Export(format!("a step `{}` of another framework cannot be computed", replay.op)))
}

//! Arrays with the shape of another, in functions that are traced for any shape: there the other array says
//! what the shape is. Otherwise the shape is known, and these are broadcasts and reshapes.

use smallvec::smallvec;

use super::view::{BroadcastTo, RESHAPE};
use super::{Op, OpKind, OpRef};
use crate::error::Result;
use crate::graph::rule::{Backward, Batch, Cotangents, Forward, Tangents, unbroadcast};
use crate::graph::scope::is_free;
use crate::graph::{Array, Data, Export, Lowering, Record, Replay};
use crate::ops::readers::reader;

/// The first input with the shape of the second, which is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Like {
    Broadcast,
    Reshape,
}

impl Like {
    fn shape(self, x: &Array, of: &Array) -> Result<Array> {
        match self {
            _ if is_free(of) && of.ndim() > 0 => {
                let inputs = smallvec![x.clone(), of.clone()];
                Array::lazy(of.shape().into(), x.dtype(), OpRef::new(self), inputs)
            }
            Like::Broadcast => x.broadcast_to(of.shape()),
            Like::Reshape => x.reshape(of.shape()),
        }
    }
}

impl Op for Like {
    fn name(&self) -> &'static str {
        match self {
            Like::Broadcast => "broadcast_like",
            Like::Reshape => "reshape_like",
        }
    }

    fn export(&self) -> Export {
        Record::new(self.name()).into()
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn view(&self, data: &Data, from: &[usize], to: &[usize]) -> Option<Data> {
        match self {
            Like::Broadcast => BroadcastTo.view(data, from, to),
            Like::Reshape => RESHAPE.view(data, from, to),
        }
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        RESHAPE.lower(l)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let x = &rule.inputs[0];
        rule.only(match self {
            Like::Broadcast => unbroadcast(&rule.cotangent()?, x.shape()),
            Like::Reshape => rule.cotangent()?.reshape_like(x),
        })
    }

    fn jvp(&self, rule: &Forward<'_>) -> Result<Tangents> {
        let of = &rule.call.inputs[1];
        let tangent = rule.tangents[0].as_ref().map(|tangent| self.shape(tangent, of));
        Ok(smallvec![tangent.transpose()?])
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let x = match self {
            Like::Broadcast => rule.aligned(0, rule.output.ndim())?,
            Like::Reshape => rule.full(0)?,
        };
        Ok((self.shape(&x, &rule.full(1)?)?, 0))
    }
}

impl Array {
    /// The array broadcast to the shape of another.
    pub(crate) fn broadcast_like(&self, of: &Array) -> Result<Array> {
        Like::Broadcast.shape(self, of)
    }

    /// The array's elements in the shape of another.
    pub(crate) fn reshape_like(&self, of: &Array) -> Result<Array> {
        Like::Reshape.shape(self, of)
    }
}

reader!("broadcast_like", One(read_broadcast));
fn read_broadcast(replay: &Replay<'_>) -> Result<Array> {
    let [x, of] = replay.inputs()?;
    x.broadcast_like(of)
}

reader!("reshape_like", One(read_reshape));
fn read_reshape(replay: &Replay<'_>) -> Result<Array> {
    let [x, of] = replay.inputs()?;
    x.reshape_like(of)
}

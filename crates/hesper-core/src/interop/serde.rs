//! Arrays in the formats of `serde`: the type's name, the shape, and the bytes of the elements in row-major
//! order. Every value round-trips, NaN included. For large tensors, [`io`](crate::io) is faster.

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Dtype;
use crate::graph::Array;

#[derive(Serialize)]
struct Written<'a> {
    dtype: &'a str,
    shape: &'a [usize],
    bytes: &'a [u8],
}

#[derive(Deserialize)]
struct Read {
    dtype: String,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// Computes the array.
impl Serialize for Array {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (dtype, shape) = (self.dtype().name(), self.shape());
        self.read_bytes(|bytes| Written { dtype, shape, bytes }.serialize(serializer))
            .map_err(S::Error::custom)?
    }
}

impl<'de> Deserialize<'de> for Array {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Read { dtype, shape, bytes } = Read::deserialize(deserializer)?;
        let named = Dtype::ALL.into_iter().find(|known| known.name() == dtype);
        let known = named.ok_or_else(|| D::Error::custom(format!("array: there is no type {dtype:?}")))?;
        Array::from_bytes(&bytes, known, &shape).map_err(D::Error::custom)
    }
}

//! Linear algebra.

pub use crate::ops::vector_norm::{Norm, norm};

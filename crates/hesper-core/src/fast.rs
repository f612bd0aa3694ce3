//! Fused ops that networks spend their time in.

pub use crate::ops::append::append;
pub use crate::ops::attention::{AttentionMask, scaled_dot_product_attention};
pub use crate::ops::gated_delta::gated_delta_update;
pub use crate::ops::norm::{cross_entropy, layer_norm, rms_norm};
pub use crate::ops::rope::{Offset, rope};

//! Conversions from and to types of other crates, each by a feature of its name.

#[cfg(feature = "ndarray")]
mod ndarray;
#[cfg(feature = "serde")]
mod serde;

//! Layers and modules.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fused_projections;
mod module;
mod reference;

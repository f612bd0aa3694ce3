//! The engine without its HTTP layer.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

mod answers;
mod engine;
mod events;
mod grammar;
mod simulator;
mod worker;

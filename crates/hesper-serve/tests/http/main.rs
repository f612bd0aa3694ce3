//! The HTTP layer over real connections: what clients get, what hostile ones get, and what happens when they
//! leave.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use hesper as _;

mod api;
mod client;
mod hostile;
mod lifecycle;
mod messages;
mod responses;
mod scripted;
mod security;
#[cfg(feature = "tls")]
mod tls;

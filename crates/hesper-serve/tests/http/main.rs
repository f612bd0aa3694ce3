//! The HTTP layer over real connections: answers, hostile clients, and clients that disconnect.
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

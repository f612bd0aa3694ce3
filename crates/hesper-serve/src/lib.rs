//! A server for language models.
//!
//! [`protocol`] is the interface between the engine, which runs the model, and its clients: the HTTP layer
//! ([`http`]), the Python package, tests. Its types are plain data, so that an engine can run in another
//! process. [`engine`] implements the interface in this process, [`worker`] with an engine in another
//! process. [`text`] renders conversations and parses answers. [`page`] serves the web pages.
#![deny(unsafe_code)]

// Links the backends for the unit tests.
#[cfg(test)]
use hesper as _;

pub mod engine;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "http")]
pub mod page;
pub mod protocol;
pub mod text;
pub mod worker;

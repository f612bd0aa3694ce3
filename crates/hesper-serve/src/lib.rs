//! A server for language models.
//!
//! [`protocol`] is the interface between the engine, which owns the model's steps, and those who submit
//! requests: the HTTP layer ([`http`]), the Python package, tests. Its types are plain data, so that an
//! engine may run in another process. [`engine`] implements it in this process, and [`worker`] by an engine
//! in another process. [`text`] renders conversations and parses answers, [`page`] serves the pages for a
//! browser.
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

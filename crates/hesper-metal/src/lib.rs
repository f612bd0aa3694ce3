//! Apple GPUs as a device of Hesper.
//!
//! [`MetalDevice`] implements the runtime's [`Device`](hesper_runtime::Device). Lifetimes and hazards are the
//! runtime's: resources are untracked, command buffers hold no references, and every order is explicit. All
//! of it is plain Rust above the thin [`edge`], which has two implementations: Metal itself, on Apple
//! machines, and a simulated Metal (feature `sim`) that takes every freedom Metal has, for tests on any
//! machine.
//!
//! | module | responsible for |
//! |---|---|
//! | [`edge`] | the calls of Metal that the device needs |
//! | `apple` | the edge on Metal, the only module that is built for Apple machines alone |
//! | `device` | the runtime's interface |
//! | `shared` | options, limits, counters, captures |
//! | `streams` | streams and their submissions in flight |
//! | `schedule` | a submission from `submit` to its end; native commands |
//! | `encode` | commands as dispatches, with barriers and fences |
//! | `event_pool` | events between streams |
//! | `report` | writes that checking kernels dropped |
//! | `memory` | buffers, imported memory, residency, memory pressure |
//! | [`specialisation`], `compiler`, `archive_cache` | kernels, and their archives on disk |
//! | `error` | what the failure of a command buffer means |
//! | `sim` | the simulated Metal |

#[cfg(feature = "sim")]
mod ablation;
#[cfg(target_vendor = "apple")]
mod apple;
mod archive_cache;
mod compiler;
mod device;
pub mod edge;
mod encode;
mod error;
mod event_pool;
mod host;
mod memory;
mod report;
mod schedule;
mod shared;
#[cfg(feature = "sim")]
pub mod sim;
pub mod specialisation;
mod streams;

pub use compiler::{LANGUAGE, MetalText, Printer, ReportReader};
pub use device::{MetalDevice, is_available};
pub use error::{MetalError, Result};
pub use shared::{Capture, MetalCounters, MetalOptions, MetalShared};
pub use specialisation::Specialisation;

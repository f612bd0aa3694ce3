//! The device for Apple GPUs on the simulated Metal.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

mod metal_ablations;
mod metal_device;
mod metal_faults;
mod metal_language;
mod metal_scenarios;
mod metal_schedules;
mod metal_validation;

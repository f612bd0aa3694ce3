//! The target AArch64: NEON, which every such processor has.
//!
//! A step is one register of four 32-bit lanes. There are no masks: the end of a row goes through the staging
//! area.

mod asm;
mod frame;
mod vector;

#[cfg(test)]
mod tests;

pub(super) use self::asm::Asm;
use super::emit::{Call, invoke_lanes};
use super::node::Frame;
use super::target::{Capabilities, FIRST};
use crate::exec::level::SimdLevel;

/// What machine code is.
pub(super) type Function = unsafe extern "C" fn(*const Frame);

/// Vector registers.
const REGISTERS: u8 = 32;

/// The assembler, and what the processor can do. Every level has machine code.
pub(super) fn of(_: SimdLevel) -> Option<(Asm, Capabilities)> {
    let can = Capabilities {
        lanes: 4,
        registers: REGISTERS,
        max_pins: (REGISTERS - FIRST) as usize / 2,
        masks: false,
        pairs: true,
        streams: false,
        converts_unsigned_and_long: true,
    };
    Some((Asm::default(), can))
}

/// The function that machine code calls for a lane function.
pub(super) fn invoke() -> u64 {
    unsafe extern "C" fn invoke(call: *const Call, slots: *mut u8, blocks: usize) {
        // SAFETY: machine code keeps the contract.
        unsafe { invoke_lanes(call, slots, blocks) }
    }
    invoke as *const () as u64
}

//! The target x86-64: AVX2, and AVX-512 with masks and twice as many registers.

mod asm;
mod frame;
mod long;
mod vector;

pub(super) use self::asm::Asm;
use super::emit::{Call, invoke_lanes};
use super::node::Frame;
use super::target::{Capabilities, FIRST};
use crate::exec::level::SimdLevel;

/// What machine code is, whatever the system's calling convention.
pub(super) type Function = unsafe extern "sysv64" fn(*const Frame);

/// The assembler of a level, and what the level can do. `None` for a level without machine code.
pub(super) fn of(level: SimdLevel) -> Option<(Asm, Capabilities)> {
    let evex = match level {
        SimdLevel::Avx512 => true,
        SimdLevel::Avx2 => false,
        SimdLevel::Plain => return None,
    };
    let registers = if evex { 32 } else { 16 };
    let can = Capabilities {
        lanes: if evex { 16 } else { 8 },
        registers,
        max_pins: if evex { (registers - FIRST) as usize / 2 } else { 3 },
        masks: evex,
        pairs: evex,
        streams: true,
        converts_unsigned_and_long: evex,
    };
    Some((Asm::new(evex), can))
}

/// The function that machine code calls for a lane function.
pub(super) fn invoke() -> u64 {
    unsafe extern "sysv64" fn invoke(call: *const Call, slots: *mut u8, blocks: usize) {
        // SAFETY: machine code keeps the contract.
        unsafe { invoke_lanes(call, slots, blocks) }
    }
    invoke as *const () as u64
}

//! The kernel of the gated delta rule.

use hesper_backend_gpu::{GatedDeltaRows, Launch};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::launch::{Constants, launch_blocks, type_name};

const TEXT: &str = include_str!("gated_delta.cuh");

pub(crate) fn gated_delta(stream: &Stream, rows: &GatedDeltaRows) -> Result<Launch> {
    let GatedDeltaRows { dtype, lanes, each, state, mask, lengths } = *rows;
    let entry = format!("gated_delta<{}, {lanes}, {each}, {state}, {mask}>", type_name(dtype));
    let constants = lengths.iter().fold(Constants::default(), |all, length| all.long(*length as i64));
    launch_blocks(stream, TEXT, &entry, "", constants, lengths[0].div_ceil(8) as u64)
}

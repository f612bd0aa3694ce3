//! The kernel of the gated delta rule.

use hesper_backend_gpu::{GatedDeltaRows, Launch};
use hesper_core::Result;
use hesper_runtime::Stream;

use crate::launch::{Constants, Kernel, type_name};

const TEXT: &str = text!("gated_delta.metal");

pub(crate) fn gated_delta(stream: &Stream, rows: &GatedDeltaRows) -> Result<Launch> {
    let GatedDeltaRows { dtype, lanes, each, state, mask, lengths } = *rows;
    let entry = format!("gated_delta<{}, {lanes}, {each}, {state}, {mask}>", type_name(dtype));
    let groups = [lengths[0].div_ceil(8), 1, 1];
    Kernel { text: TEXT, entry: &entry }.for_groups(stream, Constants::default().sizes(&lengths), groups, 256)
}

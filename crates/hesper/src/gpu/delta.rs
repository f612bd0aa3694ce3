//! The gated delta rule on GPUs.

use hesper_compute::DeltaShape;

use super::{Constants, kernel, type_name};
use crate::Dtype;
use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
use crate::ops::command::Commands;
use crate::ops::multi::Parts;
use crate::ops::native::reach;

const TEXT: &str = include_str!("delta.cuh");
/// Longest rows of a memory.
const LONGEST: usize = 512;

/// Takes memories through all steps. Inputs: queries, keys, values, decays, rates, then the state and the mask if
/// there are any.
pub(crate) fn lower(
    l: &mut Lowering<'_>,
    shape: DeltaShape,
    state: bool,
    mask: bool,
    parts: &Parts,
) -> Result<Option<Data>> {
    let dtype = l.input_dtype(0);
    let d = shape.key_dim;
    let fits = matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32)
        && (1..=LONGEST).contains(&d)
        && [1, 2].iter().all(|at| l.input_dtype(*at) == dtype)
        && [3, 4].iter().all(|at| l.input_dtype(*at) == Dtype::Float32);
    let rows = shape.batch * shape.v_heads * shape.value_dim;
    if !fits || rows == 0 || shape.k_heads == 0 {
        return Ok(None);
    }
    l.bring()?;
    let given = (0..l.input_count()).map(|at| l.row_major(at)).collect::<Result<Vec<Data>>>()?;
    let output = parts.memory(l)?;
    // What is not there is bound as the queries, and not read.
    let marks_at = if mask { 5 + usize::from(state) } else { 0 };
    let order = [0, 1, 2, 3, 4, if state { 5 } else { 0 }, marks_at];
    let mut command = l.stream().command("gated_delta_update");
    for at in order {
        let (bytes, _) = reach(&given[at], l.input_shape(at), l.input_dtype(at).size());
        command = command.read_range(&given[at].buffer, bytes);
    }
    command = command.write_range(&output, parts.range(0)).write_range(&output, parts.range(1));
    let steps: usize = l.input_shape(4).iter().product();
    let each = l.input_shape(3).iter().product::<usize>() != steps;
    let lanes = d.div_ceil(32).next_power_of_two();
    let entry = format!("delta<{}, {lanes}, {each}, {state}, {mask}>", type_name(dtype));
    let pipeline = kernel(l.stream(), TEXT, &entry, "")?;
    let mut constants = Constants::default();
    for number in [rows, shape.length, shape.k_heads, shape.v_heads, d, shape.value_dim] {
        constants = constants.long(number as i64);
    }
    let grid = [rows.div_ceil(8) as u64 * 256, 1, 1];
    command.constants(constants.bytes()).dispatch(&pipeline, grid, [256, 1, 1])?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

//! The gated delta rule on GPUs.

use crate::launch::{Constants, kernel, type_name};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::gated_delta::GatedDelta;
use hesper_core::{Dtype, Result};

use crate::Cuda;
use crate::inputs::{is_float, read};

const TEXT: &str = include_str!("gated_delta.cuh");
/// The longest rows of a state.
const LONGEST: usize = 512;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<GatedDelta>()
}

impl Lower<GatedDelta> for Cuda {
    fn lower(op: &GatedDelta, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.input_dtype(0);
        let (q, v) = (l.input_shape(0), l.input_shape(2));
        let (batch, length, k_heads, d) = (q[0], q[1], q[2], q[3]);
        let (v_heads, value_dim) = (v[2], v[3]);
        let fits = is_float(dtype)
            && (1..=LONGEST).contains(&d)
            && [1, 2].iter().all(|at| l.input_dtype(*at) == dtype)
            && [3, 4].iter().all(|at| l.input_dtype(*at) == Dtype::Float32);
        let rows = batch * v_heads * value_dim;
        if !fits || rows == 0 || k_heads == 0 {
            return Ok(None);
        }
        l.bring()?;
        let given = (0..l.input_count()).map(|at| l.row_major(at)).collect::<Result<Vec<Data>>>()?;
        let output = op.parts.memory(l)?;
        // A missing input is bound as the queries, and not read.
        let marks_at = if op.mask { 5 + usize::from(op.state) } else { 0 };
        let order = [0, 1, 2, 3, 4, if op.state { 5 } else { 0 }, marks_at];
        let mut command = l.stream().command("gated_delta_update");
        for at in order {
            command = read(command, l, at, &given[at]);
        }
        command = command.write_range(&output, op.parts.range(0)).write_range(&output, op.parts.range(1));
        let steps: usize = l.input_shape(4).iter().product();
        let each = l.input_shape(3).iter().product::<usize>() != steps;
        let lanes = d.div_ceil(32).next_power_of_two();
        let entry = format!("gated_delta<{}, {lanes}, {each}, {}, {}>", type_name(dtype), op.state, op.mask);
        let pipeline = kernel(l.stream(), TEXT, &entry, "")?;
        let mut constants = Constants::default();
        for number in [rows, length, k_heads, v_heads, d, value_dim] {
            constants = constants.long(number as i64);
        }
        let grid = [rows.div_ceil(8) as u64 * 256, 1, 1];
        command.constants(constants.bytes()).dispatch(&pipeline, grid, [256, 1, 1])?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

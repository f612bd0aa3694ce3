//! The gated delta rule.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::gated_delta::GatedDelta;
use hesper_core::{Dtype, Result};

use crate::inputs::{is_float, read};
use crate::walk::fits;
use crate::{Constants, Gpu, Kernel, Shared};

/// The longest rows of a state.
const LONGEST: usize = 512;

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, GatedDelta>()
}

impl<G: Gpu> Lower<GatedDelta> for Shared<G> {
    fn lower(op: &GatedDelta, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.input_dtype(0);
        let (q, v) = (l.input_shape(0), l.input_shape(2));
        let (batch, length, k_heads, d) = (q[0], q[1], q[2], q[3]);
        let (v_heads, value_dim) = (v[2], v[3]);
        let known = is_float(dtype)
            && (1..=LONGEST).contains(&d)
            && [1, 2].iter().all(|at| l.input_dtype(*at) == dtype)
            && [3, 4].iter().all(|at| l.input_dtype(*at) == Dtype::Float32);
        let rows = batch * v_heads * value_dim;
        if !known || rows == 0 || k_heads == 0 || !fits::<G>(l) {
            return Ok(None);
        }
        l.bring()?;
        let given = (0..l.input_count()).map(|at| l.row_major(at)).collect::<Result<Vec<Data>>>()?;
        let output = op.parts.memory(l)?;
        // A missing input is bound as the queries, and not read.
        let marks_at = if op.mask { 5 + usize::from(op.state) } else { 0 };
        let mut command = l.stream().command("gated_delta_update");
        for at in [0, 1, 2, 3, 4, if op.state { 5 } else { 0 }, marks_at] {
            command = read(command, l, at, &given[at]);
        }
        command = command.write_range(&output, op.parts.range(0)).write_range(&output, op.parts.range(1));
        let steps: usize = l.input_shape(4).iter().product();
        // Elements of a row of a state that a lane holds.
        let each_lane = d.div_ceil(32).next_power_of_two();
        // Whether each element of a row has a decay of its own.
        let each_decay = l.input_shape(3).iter().product::<usize>() != steps;
        let kernel = Kernel::<G>::new(l.stream(), G::GATED_DELTA, "gated_delta").of(dtype).of(each_lane);
        let kernel = kernel.of(each_decay).of(op.state).of(op.mask);
        let constants = Constants::default().sizes(&[rows, length, k_heads, v_heads, d, value_dim]);
        kernel.groups(constants, [rows.div_ceil(8), 1, 1], 256)?.encode(command)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

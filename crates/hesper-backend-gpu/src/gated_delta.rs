//! The gated delta rule.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::gated_delta::GatedDelta;
use hesper_core::{Dtype, Result};

use crate::quant::is_float;
use crate::walk::fits;
use crate::{Gpu, Shared};

/// The longest rows of a state.
const LONGEST: usize = 512;

/// Parameters of a kernel of the gated delta rule.
#[derive(Debug)]
pub struct GatedDeltaRows {
    /// The type of queries, keys and values.
    pub dtype: Dtype,
    /// Elements of a row of a state that a lane holds.
    pub lanes: usize,
    /// Whether each element of a row has a decay of its own.
    pub each: bool,
    /// Whether there is a state before the first step.
    pub state: bool,
    /// Whether steps can be masked.
    pub mask: bool,
    /// Rows of all states, steps, heads of keys, heads of values, elements of a row, elements of a value.
    pub lengths: [usize; 6],
}

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
            let (bytes, _) = reach(&given[at], l.input_shape(at), l.input_dtype(at).size());
            command = command.read_range(&given[at].buffer, bytes);
        }
        command = command.write_range(&output, op.parts.range(0)).write_range(&output, op.parts.range(1));
        let steps: usize = l.input_shape(4).iter().product();
        let rows = GatedDeltaRows {
            dtype,
            lanes: d.div_ceil(32).next_power_of_two(),
            each: l.input_shape(3).iter().product::<usize>() != steps,
            state: op.state,
            mask: op.mask,
            lengths: [rows, length, k_heads, v_heads, d, value_dim],
        };
        G::gated_delta(l.stream(), &rows)?.encode(command)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

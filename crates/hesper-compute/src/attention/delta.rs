//! The gated delta rule: linear attention with a recurrent state.
//!
//! Each head has a state matrix with one row per value feature. A step multiplies the state by the decay,
//! reads the value stored for the key, adds `rate` times its difference from the new value, and reads the
//! result for the query. Rows are independent, so a task runs some rows of a head through all steps while
//! they stay in the cache.

use crate::error::{Mismatch, multiple, product, same};
use crate::par::{Par, Shared};
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, dispatch};

/// Rows per task.
const TASK_ROWS: usize = 32;

/// The sizes of a gated delta rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeltaShape {
    /// Independent sequences.
    pub batch: usize,
    /// Steps of a sequence.
    pub length: usize,
    /// Heads of queries and keys.
    pub k_heads: usize,
    /// Heads of values; a multiple of `k_heads`.
    pub v_heads: usize,
    /// Length of queries and keys.
    pub key_dim: usize,
    /// Length of values.
    pub value_dim: usize,
}

/// Inputs of the rule, all row-major.
#[derive(Clone, Copy, Debug)]
pub struct DeltaInputs<'a, T> {
    /// Queries: sequences, steps, key heads, key features.
    pub q: &'a [T],
    /// Keys, like the queries.
    pub k: &'a [T],
    /// Values: sequences, steps, value heads, value features.
    pub v: &'a [T],
    /// Decay of the state at each step: sequences, steps, value heads, and key features if the decay is per
    /// feature.
    pub decay: &'a [f32],
    /// Learning rate of each step: sequences, steps, value heads.
    pub rate: &'a [f32],
    /// Mask of steps: sequences, steps. A step whose mark is zero leaves the state unchanged and outputs
    /// zeros.
    pub marks: Option<&'a [u8]>,
}

/// Runs `state` (sequences, value heads, value features, key features) through all steps and writes the
/// output of each step (sequences, steps, value heads, value features).
pub fn gated_delta<T: Float>(
    par: &dyn Par,
    shape: DeltaShape,
    inputs: &DeltaInputs<'_, T>,
    state: &mut [f32],
    out: &mut [T],
) -> Result<(), Mismatch> {
    let DeltaShape { batch, length, k_heads, v_heads, key_dim, value_dim } = shape;
    multiple("value heads", k_heads, v_heads)?;
    let of = |what, sizes: &[usize]| product(what, sizes);
    let keys = of("keys", &[batch, length, k_heads, key_dim])?;
    same("queries", keys, inputs.q.len())?;
    same("keys", keys, inputs.k.len())?;
    let values = of("values", &[batch, length, v_heads, value_dim])?;
    same("values", values, inputs.v.len())?;
    same("outputs", values, out.len())?;
    let steps = of("rates", &[batch, length, v_heads])?;
    same("rates", steps, inputs.rate.len())?;
    let per_feature = inputs.decay.len() != steps;
    same("decays", if per_feature { of("decays", &[steps, key_dim])? } else { steps }, inputs.decay.len())?;
    same("elements of the state", of("state", &[batch, v_heads, value_dim, key_dim])?, state.len())?;
    if let Some(marks) = inputs.marks {
        same("marks", of("marks", &[batch, length])?, marks.len())?;
    }
    let parts = value_dim.div_ceil(TASK_ROWS);
    let (simd, state, out) = (par.simd(), Shared::new(state.as_mut_ptr()), Shared::new(out.as_mut_ptr()));
    par.run(batch * v_heads * parts, &|task| {
        let (head, first) = (task / parts, task % parts * TASK_ROWS);
        let rows = TASK_ROWS.min(value_dim - first);
        let (b, h) = (head / v_heads, head % v_heads);
        dispatch(simd, StateRows { shape, inputs, per_feature, state, out, b, h, first, rows });
    });
    Ok(())
}

/// Some rows of a head, through all steps. The sizes were checked.
struct StateRows<'a, 'b, T> {
    shape: DeltaShape,
    inputs: &'a DeltaInputs<'b, T>,
    /// Whether the decay is per key feature.
    per_feature: bool,
    state: Shared<f32>,
    out: Shared<T>,
    b: usize,
    h: usize,
    first: usize,
    rows: usize,
}

impl<T: Float> Kernel for StateRows<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Self { shape, inputs, per_feature, state, out, b, h, first, rows } = self;
        let DeltaShape { length, k_heads, v_heads, key_dim: d, value_dim, .. } = shape;
        let kh = h / (v_heads / k_heads);
        let lines = Scratch::<f32>::new(3 * d);
        let (key, query, decay) = (lines.ptr(), lines.ptr().wrapping_add(d), lines.ptr().wrapping_add(2 * d));
        let rows_at = ((b * v_heads + h) * value_dim + first) * d;
        for t in 0..length {
            let (step, at) = (b * length + t, (b * length + t) * v_heads + h);
            let to = at * value_dim + first;
            if inputs.marks.is_some_and(|marks| marks[step] == 0) {
                // SAFETY: the outputs of these rows, which this task alone writes.
                unsafe { out.slice(to, rows) }.fill(T::from_f32(0.0));
                continue;
            }
            let from = (step * k_heads + kh) * d;
            for j in 0..d {
                // SAFETY: the buffer holds three lines of `d`.
                unsafe {
                    *key.add(j) = inputs.k[from + j].to_f32();
                    *query.add(j) = inputs.q[from + j].to_f32();
                    *decay.add(j) = if per_feature { inputs.decay[at * d + j] } else { inputs.decay[at] };
                }
            }
            let rate = inputs.rate[at];
            for i in 0..rows {
                let value = inputs.v[to + i].to_f32();
                // SAFETY: the row is one of this task's; lines and row have `d` elements.
                unsafe {
                    let row = state.get().add(rows_at + i * d);
                    let output = step_row(s, row, key, query, decay, d, value, rate);
                    *out.get().add(to + i) = T::from_f32(output);
                }
            }
        }
    }
}

/// Runs a row through one step and returns its output.
///
/// # Safety
/// Row, key, query and decay have `d` elements.
#[inline(always)]
unsafe fn step_row<S: Isa>(
    s: S,
    row: *mut f32,
    key: *const f32,
    query: *const f32,
    decay: *const f32,
    d: usize,
    value: f32,
    rate: f32,
) -> f32 {
    let mut stored = s.zero();
    let mut output = s.zero();
    let mut j = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while j < d {
            let n = (d - j).min(S::LANES);
            let x = s.mul(s.load_n(row.add(j), n), s.load_n(decay.add(j), n));
            s.store_n(row.add(j), x, n);
            stored = s.fma(x, s.load_n(key.add(j), n), stored);
            j += n;
        }
        let delta = s.splat((value - s.reduce_add(stored)) * rate);
        j = 0;
        while j < d {
            let n = (d - j).min(S::LANES);
            let x = s.fma(delta, s.load_n(key.add(j), n), s.load_n(row.add(j), n));
            s.store_n(row.add(j), x, n);
            output = s.fma(x, s.load_n(query.add(j), n), output);
            j += n;
        }
    }
    s.reduce_add(output)
}

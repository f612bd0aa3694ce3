//! The gated delta rule: a recurrent state of keys and values, updated through all steps by one command.

use smallvec::{SmallVec, smallvec};

use super::multi::{Parts, together};
use super::{Op, OpRef};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::shape::{Shape, signed};
use crate::{Dtype, concatenate, select};

const NAME: &str = "gated_delta_update";

/// Inputs: queries, keys, values, decays, rates, then the state and the mask if there are any. Gives the
/// outputs and the last state in one buffer.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct GatedDelta {
    /// Whether there is a state to begin with.
    pub state: bool,
    /// Whether there is a mask.
    pub mask: bool,
    /// Where the outputs and the last state lie.
    pub parts: Parts,
}

impl Op for GatedDelta {
    fn name(&self) -> &'static str {
        NAME
    }

    fn export(&self) -> Export {
        Record::new(NAME).with("state", self.state).with("mask", self.mask).into()
    }

    fn outputs(&self) -> Option<Vec<(Shape, Dtype)>> {
        Some(self.parts.outputs.clone())
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let marks = self.mask.then(|| rule.inputs[rule.inputs.len() - 1].clone());
        let floats = &rule.inputs[..5 + usize::from(self.state)];
        let cotangents = rule
            .cotangents
            .iter()
            .zip(&self.parts.outputs)
            .map(|(given, (shape, dtype))| given.clone().map_or_else(|| Array::zeros(shape, *dtype), Ok));
        let cotangents = cotangents.collect::<Result<Vec<Array>>>()?;
        let again = |inputs: &[Array]| {
            let (answers, state) = composed(&inputs[..5], inputs.get(5).cloned(), marks.as_ref())?;
            Ok(vec![answers.astype(self.parts.outputs[0].1)?, state])
        };
        let found = Backward::pullback(again, floats, &cotangents)?;
        rule.each(|at| Ok(found.get(at).cloned()))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        // The new axis joins the batch.
        let joined = |at: usize| {
            let full = rule.full(at)?;
            let mut shape = signed(&full.shape()[1..]);
            shape[0] *= rule.size as isize;
            full.reshape(&shape)
        };
        let inputs = (0..rule.inputs.len()).map(joined).collect::<Result<Vec<Array>>>()?;
        let others = &inputs[5..];
        let (state, mask) = (others.first().filter(|_| self.state), others.last().filter(|_| self.mask));
        let [q, k, v, gamma, beta] = [0, 1, 2, 3, 4].map(|at| &inputs[at]);
        let (answers, state) = gated_delta_update(q, k, v, gamma, beta, state, mask)?;
        let apart = |(array, (shape, _)): (Array, &(Shape, Dtype))| {
            let whole: Shape = std::iter::once(rule.size).chain(shape.iter().copied()).collect();
            array.reshape(&whole)
        };
        let outputs = [answers, state].into_iter().zip(&self.parts.outputs);
        together(rule, outputs.map(apart).collect::<Result<Vec<Array>>>()?)
    }
}

/// Updates a state of keys and values through all steps of sequences; gives the output for each query, and
/// the state after the last step, in single precision.
///
/// Queries and keys have axes batch, steps, key heads, key features; values batch, steps, value heads, value
/// features; value heads are a multiple of key heads. The state has axes batch, value heads, value features,
/// key features; without one, it begins with zeros. At each step the state `S` decays by `gamma` (batch,
/// steps, value heads, and key features where each has its own decay), `beta (v - S k) k^T` is added, and the
/// output is `S q`. A step that `mask` (batch, steps) excludes changes nothing and gives zeros.
///
/// ```
/// use hesper::{Array, Dtype, fast};
/// let key = Array::try_from_slice(&[1.0f32, 0.0], &[1, 1, 1, 2])?;
/// let value = Array::try_from_slice(&[3.0f32], &[1, 1, 1, 1])?;
/// let one = Array::ones(&[1, 1, 1], Dtype::Float32)?;
/// let (answer, state) = fast::gated_delta_update(&key, &key, &value, &one, &one, None, None)?;
/// assert_eq!(answer.to_vec::<f32>()?, [3.0]);
/// assert_eq!(state.to_vec::<f32>()?, [3.0, 0.0]);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn gated_delta_update(
    q: &Array,
    k: &Array,
    v: &Array,
    gamma: &Array,
    beta: &Array,
    state: Option<&Array>,
    mask: Option<&Array>,
) -> Result<(Array, Array)> {
    let fail = |what: String| Err(Error::shape(NAME, what).with_shapes([q, k, v]));
    let shapes = || format!("shapes {:?}, {:?} and {:?}", q.shape(), k.shape(), v.shape());
    let ([batch, length, k_heads, key_dim], [_, _, v_heads, value_dim]) = match (q.shape(), v.shape()) {
        (&[a, b, c, d], &[e, f, g, h]) => ([a, b, c, d], [e, f, g, h]),
        _ => return fail(format!("four axes expected: {}", shapes())),
    };
    if k.shape() != q.shape() || v.shape()[..2] != [batch, length] {
        return fail(format!("queries, keys and values differ: {}", shapes()));
    }
    if k_heads == 0 || !v_heads.is_multiple_of(k_heads) {
        return fail(format!("value heads are no multiple of key heads: {}", shapes()));
    }
    let steps = [batch, length, v_heads];
    if beta.shape() != steps || (gamma.shape() != steps && gamma.shape() != [batch, length, v_heads, key_dim])
    {
        let (gamma, beta) = (gamma.shape(), beta.shape());
        return fail(format!("gamma of shape {gamma:?} and beta of shape {beta:?} for {}", shapes()));
    }
    let held: Shape = smallvec![batch, v_heads, value_dim, key_dim];
    if let Some(state) = state
        && state.shape() != &held[..]
    {
        return fail(format!("a state of shape {:?}, not {held:?}", state.shape()));
    }
    if let Some(mask) = mask
        && mask.shape() != [batch, length]
    {
        return fail(format!("a mask of shape {:?} for {}", mask.shape(), shapes()));
    }
    let dtype = q.dtype().promote(k.dtype()).to_inexact();
    if !dtype.is(Category::Floating) {
        let what = "takes floating-point numbers, and was given arrays".into();
        return Err(Error::Type { op: NAME.into(), what, dtype });
    }
    let wide = if dtype == Dtype::Float64 { dtype } else { Dtype::Float32 };
    let state = state.map(|state| state.astype(wide)).transpose()?;
    let marks = mask.map(|mask| mask.astype(Dtype::Bool)).transpose()?;
    let mut inputs: SmallVec<[Array; 3]> = smallvec![q.astype(dtype)?, k.astype(dtype)?, v.astype(dtype)?];
    inputs.extend([gamma.astype(wide)?, beta.astype(wide)?]);
    if dtype == Dtype::Float64 {
        return composed(&inputs, state, marks.as_ref());
    }
    let (has_state, has_mask) = (state.is_some(), marks.is_some());
    inputs.extend(state.into_iter().chain(marks));
    let parts = Parts::new(vec![(v.shape().into(), dtype), (held, wide)])?;
    let op = OpRef::new(GatedDelta { state: has_state, mask: has_mask, parts: parts.clone() });
    let mut arrays = parts.arrays(op, inputs)?.into_iter();
    match (arrays.next(), arrays.next()) {
        (Some(answers), Some(state)) => Ok((answers, state)),
        _ => Err(Error::value(NAME, "answers and a state expected")),
    }
}

/// The same as a graph of other ops, step by step.
fn composed(inputs: &[Array], state: Option<Array>, marks: Option<&Array>) -> Result<(Array, Array)> {
    let [q, k, v, gamma, beta] = inputs else {
        return Err(Error::value(NAME, "five arrays expected"));
    };
    let ([batch, length, k_heads, key_dim], [_, _, v_heads, value_dim]) =
        <([usize; 4], [usize; 4])>::from([q, v].map(|array| std::array::from_fn(|axis| array.shape()[axis])));
    let mut state = match state {
        Some(state) => state,
        None => Array::zeros(&[batch, v_heads, value_dim, key_dim], gamma.dtype())?,
    };
    let each = v_heads / k_heads;
    let step = |array: &Array, t: usize| array.take(t as i64, Some(1));
    let heads = |array: Array| if each > 1 { array.repeat(each, Some(1)) } else { Ok(array) };
    let mut answers = Vec::with_capacity(length);
    for t in 0..length {
        let (query, key) = (heads(step(q, t)?)?.expand_dims(-2)?, heads(step(k, t)?)?.expand_dims(-2)?);
        let decay = step(gamma, t)?;
        let decay = if decay.ndim() == 2 { decay.expand_dims([-1, -2])? } else { decay.expand_dims(-2)? };
        let decayed = state.multiply(&decay)?;
        let known = decayed.multiply(&key)?.sum(-1)?;
        let more = step(v, t)?.subtract(&known)?.multiply(&step(beta, t)?.expand_dims(-1)?)?;
        let mut next = decayed.add(&more.expand_dims(-1)?.multiply(&key)?)?;
        let mut answer = next.multiply(&query)?.sum(-1)?;
        if let Some(marks) = marks {
            let mark = step(marks, t)?.reshape(&[batch as isize, 1, 1])?;
            answer = select(&mark, &answer, &answer.zeros_like()?)?;
            next = select(&mark.expand_dims(-1)?, &next, &state)?;
        }
        state = next;
        answers.push(answer.expand_dims(1)?);
    }
    let all = if answers.is_empty() { v.clone() } else { concatenate(&answers, 1)? };
    Ok((all, state))
}

reader!("gated_delta_update", Several(read));
fn read(replay: &Replay<'_>) -> Result<Vec<Array>> {
    let (state, mask) = (replay.flag("state")?, replay.flag("mask")?);
    let [q, k, v, gamma, beta, others @ ..] = replay.inputs else {
        return Err(replay.wrong("too few inputs"));
    };
    if others.len() != usize::from(state) + usize::from(mask) {
        return Err(replay.wrong("inputs that do not fit its attributes"));
    }
    let (state, mask) = (others.first().filter(|_| state), others.last().filter(|_| mask));
    let (answers, state) = gated_delta_update(q, k, v, gamma, beta, state, mask)?;
    Ok(vec![answers, state])
}

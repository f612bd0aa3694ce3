//! Attention over heads. Keys and values are read in place; the matrix of scores is never built.

use crate::float::{Float, Wide};
use crate::rope::RotatedRows;
use crate::walk::{ElementLayout, Strided, rows};
use hesper_compute::{
    AttentionShape, GradientInputs, HeadSlice, MaskSlice, attention_gradient, attention_slices,
};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::attention::{Attention, AttentionGradient};
use hesper_core::ops::command::Commands;
use hesper_core::ops::composite::rope_attention::RopeAttention;
use hesper_core::ops::rope::Rope;
use hesper_core::shape::Strides;
use hesper_core::{Dtype, Element, Result};
use hesper_cpu::Cores;
use hesper_runtime::{Access, View};
use smallvec::{SmallVec, smallvec};

use crate::Cpu;
use crate::dispatch::with_float;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Attention>().with::<AttentionGradient>().with::<RopeAttention>()
}

impl Lower<Attention> for Cpu {
    fn lower(op: &Attention, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_float!(l.dtype(), run::<_>(op, None, l))
    }
}

impl Lower<RopeAttention> for Cpu {
    fn lower(op: &RopeAttention, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let attention = Attention { scale: op.scale, causal: false, mask: false, sinks: false };
        with_float!(l.dtype(), run::<_>(&attention, Some(op.rope), l))
    }
}

impl Lower<AttentionGradient> for Cpu {
    fn lower(op: &AttentionGradient, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_float!(l.input_dtype(0), run_gradient::<_>(op, l))
    }
}

fn sizes(l: &Lowering<'_>) -> AttentionShape {
    let (q, k, v) = (l.input_shape(0), l.input_shape(1), l.input_shape(2));
    AttentionShape {
        batch: q[0],
        q_heads: q[1],
        kv_heads: k[1],
        q_len: q[2],
        kv_len: k[2],
        head_dim: q[3],
        value_dim: v[3],
    }
}

type NativeResult<T> = std::result::Result<T, hesper_runtime::NativeError>;

fn heads<'a, T: Element>(view: &'a View<'_>, one: &ElementLayout) -> NativeResult<HeadSlice<'a, T>> {
    let strides = &one.strides;
    let strides = [strides[0], strides[1], strides[2]];
    Ok(HeadSlice { data: view.as_slice::<T>()?, first: one.offset as usize, strides })
}

/// The mask, of bools if `marks`.
fn mask_of<'a, T: Element>(
    given: Option<(&'a View<'_>, &ElementLayout)>,
    marks: bool,
    causal: bool,
) -> NativeResult<MaskSlice<'a, T>> {
    let Some((view, one)) = given else {
        return Ok(if causal { MaskSlice::Causal } else { MaskSlice::All });
    };
    let (first, strides) = (one.offset as usize, std::array::from_fn(|axis| one.strides[axis]));
    Ok(match marks {
        true => MaskSlice::Marked { data: view.as_slice()?, first, strides },
        false => MaskSlice::Added { data: view.as_slice()?, first, strides },
    })
}

fn run_gradient<T: Float + hesper_compute::Float>(op: &AttentionGradient, l: &Lowering<'_>) -> Result<Data> {
    let (shape, last) = (sizes(l), l.input_count() - 1);
    let mut bound: SmallVec<[Strided; 5]> = (0..3).map(|at| rows(l, at)).collect::<Result<_>>()?;
    if op.mask {
        bound.push(Strided::input(l, 3));
    }
    bound.push(rows(l, last)?);
    let (scale, causal, masked) = (op.scale.0, op.causal, op.mask);
    let marks = masked && l.input_dtype(3) == Dtype::Bool;
    let output = op.parts.memory(l)?;
    let mut command = l.stream().command(op.name());
    for one in &bound {
        command.add(&one.data.buffer, one.bytes.clone(), Access::Read);
    }
    let layouts: SmallVec<[ElementLayout; 5]> = bound.iter().map(Strided::layout).collect();
    for part in 0..3 {
        command = command.write_range(&output, op.parts.range(part));
    }
    command.run(move |native| {
        let Some((inputs, [dq, dk, dv])) = native.views().split_last_chunk_mut::<3>() else { return Ok(()) };
        let given = GradientInputs {
            q: heads::<T>(&inputs[0], &layouts[0])?,
            k: heads(&inputs[1], &layouts[1])?,
            v: heads(&inputs[2], &layouts[2])?,
            cotangent: heads(&inputs[last], &layouts[last])?,
            scale,
            mask: mask_of(masked.then(|| (&inputs[3], &layouts[3])), marks, causal)?,
        };
        let to = [dq.as_mut_slice::<T>()?, dk.as_mut_slice()?, dv.as_mut_slice()?];
        attention_gradient(&Cores, shape, given, to).map_err(crate::refused)
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

/// Attention; a rotation is that of the queries, of one row for each head.
fn run<T: Float + hesper_compute::Float>(
    op: &Attention,
    rope: Option<Rope>,
    l: &Lowering<'_>,
) -> Result<Data> {
    let shape = sizes(l);
    let (q, v) = (l.input_shape(0), l.input_shape(2));
    let (scale, causal, masked, sinks) = (op.scale, op.causal, op.mask, op.sinks);
    let mut bound: SmallVec<[Strided; 5]> = (0..3).map(|at| rows(l, at)).collect::<Result<_>>()?;
    if masked {
        bound.push(Strided::input(l, 3));
    }
    if sinks {
        bound.push(Strided::row_major(l, 3 + usize::from(masked))?);
    }
    let rotated = rope.map(|rope| RotatedRows::new(rope, &bound[0]));
    if rope.is_some_and(|rope| rope.base.is_none()) {
        bound.push(Strided::row_major(l, 3)?);
    }
    let marks = masked && l.input_dtype(3) == Dtype::Bool;
    let output = l.output()?;
    let mut command = l.stream().command(op.name());
    for one in &bound {
        command.add(&one.data.buffer, one.bytes.clone(), Access::Read);
    }
    let layouts: SmallVec<[ElementLayout; 5]> = bound.iter().map(Strided::layout).collect();
    command.write(&output).run(move |native| {
        let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
        let mask = mask_of(masked.then(|| (&inputs[3], &layouts[3])), marks, causal)?;
        let scores: Option<Vec<f32>> = if sinks {
            let all = inputs[inputs.len() - 1].as_slice::<T>()?;
            let mut widened = vec![<T as Float>::Wide::of(0.0); all.len()];
            <T as Float>::load(all, &mut widened);
            Some(widened.into_iter().map(Wide::single).collect())
        } else {
            None
        };
        let to = out.as_mut_slice::<T>()?;
        let [q, k, v] = [0, 1, 2].map(|at| heads::<T>(&inputs[at], &layouts[at]));
        let (mut q, k, v) = (q?, k?, v?);
        let mut queries = Vec::new();
        if let Some(rotated) = &rotated {
            let periods = inputs.get(3).map_or(Ok(&[][..]), |periods| periods.as_slice::<f32>())?;
            let width = shape.head_dim;
            queries.resize(shape.batch * shape.q_heads * width, <T as bytemuck::Zeroable>::zeroed());
            rotated.each::<T>(q.data, periods, |[sequence, head], row| {
                let begin = (sequence * shape.q_heads + head) * width;
                <T as Float>::store(row, &mut queries[begin..begin + width]);
            });
            q = HeadSlice {
                data: &queries,
                first: 0,
                strides: [shape.q_heads * width, width, width].map(|s| s as isize),
            };
        }
        attention_slices(&Cores, shape, q, k, v, to, scale.0, mask, scores.as_deref()).map_err(crate::refused)
    })?;
    // The output is laid out by batch, query, head, so that merging heads is a view.
    let (row, across) = (v[3] as isize, (v[3] * q[1]) as isize);
    let strides: Strides = smallvec![across * q[2] as isize, row, across, 1];
    Ok(Data { buffer: output, offset: 0, strides })
}

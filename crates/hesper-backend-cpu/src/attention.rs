//! Attention over heads. Keys and values are read in place; the matrix of scores is never built.

use crate::float::{Float, Wide};
use crate::walk::Strided;
use hesper_compute::{AttentionShape, HeadSlice, MaskSlice, attention_slices};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::attention::Attention;
use hesper_core::ops::command::Commands;
use hesper_core::shape::Strides;
use hesper_core::{Dtype, Result};
use hesper_cpu::Cores;
use smallvec::{SmallVec, smallvec};

use crate::Cpu;
use crate::dispatch::with_float;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Attention>()
}

impl Lower<Attention> for Cpu {
    fn lower(op: &Attention, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        with_float!(l.dtype(), run::<_>(op, l))
    }
}

fn run<T: Float + hesper_compute::Float>(op: &Attention, l: &Lowering<'_>) -> Result<Data> {
    let (q, k, v) = (l.input_shape(0), l.input_shape(1), l.input_shape(2));
    let shape = AttentionShape {
        batch: q[0],
        q_heads: q[1],
        kv_heads: k[1],
        q_len: q[2],
        kv_len: k[2],
        head_dim: q[3],
        value_dim: v[3],
    };
    let (scale, causal, masked, sinks) = (op.scale, op.causal, op.mask, op.sinks);
    let mut bound: SmallVec<[Strided; 5]> = SmallVec::new();
    for at in 0..3 {
        let rows = l.input_shape(at)[3] == 1 || l.input(at).strides[3] == 1;
        bound.push(if rows { Strided::input(l, at) } else { Strided::row_major(l, at)? });
    }
    if masked {
        bound.push(Strided::input(l, 3));
    }
    if sinks {
        bound.push(Strided::row_major(l, 3 + usize::from(masked))?);
    }
    let marks = masked && l.input_dtype(3) == Dtype::Bool;
    let output = l.output()?;
    let buffers: SmallVec<[_; 5]> = bound.iter().map(|one| one.data.buffer.clone()).collect();
    let mut command = l.stream().command(op.name());
    for (buffer, one) in buffers.iter().zip(&bound) {
        command = command.read_range(buffer, one.bytes.clone());
    }
    command.write(&output).run(move |native| {
        let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
        let heads = |at: usize| -> std::result::Result<HeadSlice<'_, T>, hesper_runtime::NativeError> {
            let (one, strides) = (&bound[at], bound[at].strides());
            Ok(HeadSlice {
                data: inputs[at].as_slice::<T>()?,
                first: one.offset as usize,
                strides: [strides[0], strides[1], strides[2]],
            })
        };
        let mask = if masked {
            let first = bound[3].offset as usize;
            let strides = std::array::from_fn(|axis| bound[3].strides()[axis]);
            if marks {
                MaskSlice::Marked { data: inputs[3].as_slice()?, first, strides }
            } else {
                MaskSlice::Added { data: inputs[3].as_slice()?, first, strides }
            }
        } else if causal {
            MaskSlice::Causal
        } else {
            MaskSlice::All
        };
        let scores: Option<Vec<f32>> = if sinks {
            let all = inputs[inputs.len() - 1].as_slice::<T>()?;
            let mut widened = vec![<T as Float>::Wide::of(0.0); all.len()];
            <T as Float>::load(all, &mut widened);
            Some(widened.into_iter().map(Wide::single).collect())
        } else {
            None
        };
        let to = out.as_mut_slice::<T>()?;
        let (q, k, v) = (heads(0)?, heads(1)?, heads(2)?);
        attention_slices(&Cores, shape, q, k, v, to, scale.0, mask, scores.as_deref())
            .map_err(|error| error.to_string().into())
    })?;
    // The output is laid out by batch, query, head, so that merging heads is a view.
    let (row, across) = (v[3] as isize, (v[3] * q[1]) as isize);
    let strides: Strides = smallvec![across * q[2] as isize, row, across, 1];
    Ok(Data { buffer: output, offset: 0, strides })
}

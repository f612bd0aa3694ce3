//! The sum of two arrays and its root mean square norm, in one kernel.

use crate::launch::{Constants, kernel, type_name};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose};
use hesper_core::ops::add_norm::AddNorm;
use hesper_core::ops::command::Commands;

use crate::Cuda;
use crate::inputs::{aligned, is_float, read};
use crate::step::TEXT;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<AddNorm>()
}

impl Lower<AddNorm> for Cuda {
    fn lower(op: &AddNorm, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match add_norm(l, op.eps.0)? {
            Some(data) => Ok(Some(data)),
            None => compose(l, |inputs| op.composed(inputs)),
        }
    }
}

/// Sums of the first two inputs, then their root mean square norms with the third input as weight.
fn add_norm(l: &mut Lowering<'_>, eps: f32) -> Result<Option<Data>> {
    let dtype = l.dtype();
    let shape = l.input_shape(0);
    let length = shape[shape.len() - 1];
    let words = length * dtype.size() / 16;
    let threads = words.next_multiple_of(32).min(1024);
    let each = words.div_ceil(threads.max(1));
    if !is_float(dtype) || !(length * dtype.size()).is_multiple_of(16) || !(1..=4).contains(&each) {
        return Ok(None);
    }
    l.bring()?;
    let rows = l.input_shape(0).iter().product::<usize>() / length;
    let inputs = [aligned(l, 0)?, aligned(l, 1)?, aligned(l, 2)?];
    let output = l.output()?;
    let mut command = l.stream().command("add_norm");
    for (at, input) in inputs.iter().enumerate() {
        command = read(command, l, at, input);
    }
    let each = each.next_power_of_two();
    let pipeline = kernel(l.stream(), TEXT, &format!("add_norm<{}, {each}>", type_name(dtype)), "")?;
    let constants = Constants::default().long(rows as i64).int(length as i32).float(eps);
    let grid = [(rows * threads) as u64, 1, 1];
    command.write(&output).constants(constants.bytes()).dispatch(&pipeline, grid, [threads as u64, 1, 1])?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

//! Softmax, norms and their like on GPUs: each row is read once where it fits into a block's registers.

use super::{Constants, kernel, type_name};
use crate::Dtype;
use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
use crate::ops::command::Commands;
use crate::ops::native::reach;

const TEXT: &str = include_str!("rows.cuh");

/// What becomes of rows: the number that the text has for it, and what is added to squares.
pub(crate) struct Rows {
    pub(crate) kind: u32,
    pub(crate) eps: f64,
    pub(crate) weight: bool,
    pub(crate) bias: bool,
}

/// Threads of a row, and words of sixteen bytes for each of them.
fn held(words: usize) -> Option<(usize, usize)> {
    match words {
        0..=32 => Some((32, 1)),
        33..=64 => Some((32, 2)),
        65..=128 => Some((32, 4)),
        129..=256 => Some((256, 1)),
        257..=512 => Some((256, 2)),
        513..=1024 => Some((256, 4)),
        1025..=2048 => Some((512, 4)),
        2049..=4096 => Some((1024, 4)),
        _ => None,
    }
}

impl Rows {
    pub(crate) fn lower(&self, name: &'static str, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.input_dtype(0);
        let of = match dtype {
            Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32 => "float",
            Dtype::Float64 => "double",
            _ => return Ok(None),
        };
        l.bring()?;
        let shape = l.input_shape(0);
        let length = shape[shape.len() - 1];
        let rows: usize = shape[..shape.len() - 1].iter().product();
        let count = 1 + usize::from(self.weight) + usize::from(self.bias);
        let inputs = (0..count).map(|at| l.row_major(at)).collect::<Result<Vec<Data>>>()?;
        let output = l.output()?;
        if rows == 0 || length == 0 {
            l.stream().command(name).write(&output).run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, l.shape())));
        }
        let mut command = l.stream().command(name);
        let mut aligned = (length * dtype.size()).is_multiple_of(16);
        // A vector that is not there is bound as the input, and not read.
        let vector = |there: bool, at: usize| if there { at } else { 0 };
        for at in [0, vector(self.weight, 1), vector(self.bias, 1 + usize::from(self.weight))] {
            let (bytes, _) = reach(&inputs[at], l.input_shape(at), dtype.size());
            aligned &= bytes.start.is_multiple_of(16);
            command = command.read_range(&inputs[at].buffer, bytes);
        }
        let (kind, of_rows) = (self.kind, type_name(dtype));
        let fits = held(length * dtype.size() / 16).filter(|_| aligned);
        let (entry, grid, block) = match fits {
            Some((threads, words)) => {
                let block = threads.max(256);
                let per = (256 / threads).max(1);
                let entry = format!("held<{kind}, {of_rows}, {of}, {threads}, {words}>");
                (entry, rows.div_ceil(per) * block, block)
            }
            None => (format!("read_again<{kind}, {of_rows}, {of}>"), rows * 256, 256),
        };
        let constants = Constants::default().long(rows as i64).long(length as i64);
        let constants = match of {
            "double" => constants.long(self.eps.to_bits() as i64),
            _ => constants.float(self.eps as f32),
        };
        let constants = constants.int(i32::from(self.weight)).int(i32::from(self.bias));
        let pipeline = kernel(l.stream(), TEXT, &entry, "")?;
        command.write(&output).constants(constants.bytes()).dispatch(
            &pipeline,
            [grid as u64, 1, 1],
            [block as u64, 1, 1],
        )?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

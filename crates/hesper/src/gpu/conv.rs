//! Convolutions on GPUs: windows as rows of a matrix, times the weights.

use super::copy::{Target, copy_to};
use super::matmul::{Matrices, Product, product};
use super::{Constants, blocks, kernel};
use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
use crate::ops::native::reach;
use crate::shape::{Shape, row_major};

const TEXT: &str = include_str!("conv.cuh");
/// Most bytes of a matrix of windows.
const MOST: usize = 16 << 30;

/// A convolution with three spatial axes, some of which may have length one.
#[derive(Clone, Copy)]
pub(crate) struct Windows {
    pub(crate) batch: usize,
    pub(crate) input: [usize; 3],
    pub(crate) output: [usize; 3],
    pub(crate) taps: [usize; 3],
    pub(crate) stride: [usize; 3],
    pub(crate) low: [isize; 3],
    pub(crate) dilation: [usize; 3],
    /// Distance of the input's elements.
    pub(crate) spread: [usize; 3],
    /// Channels of the input and of the output, of all groups.
    pub(crate) channels: [usize; 2],
    pub(crate) groups: usize,
}

impl Windows {
    pub(crate) fn lower(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.dtype();
        let size = dtype.size();
        let positions = self.batch * self.output.iter().product::<usize>();
        let taps: usize = self.taps.iter().product();
        let groups = self.groups;
        let [channels, outs] = self.channels.map(|all| all / groups);
        let row = taps * channels;
        let bytes = positions.checked_mul(row).and_then(|n| n.checked_mul(groups * size));
        if bytes.is_none_or(|bytes| bytes > MOST) {
            return Ok(None);
        }
        l.bring()?;
        let stream = l.stream();
        let x = l.row_major(0)?;
        let weight = l.row_major(1)?;
        let point = taps == 1
            && groups == 1
            && self.stride == [1; 3]
            && self.low == [0; 3]
            && self.spread == [1; 3]
            && self.input == self.output;
        let all: Shape = [groups, positions, row].into_iter().collect();
        let windows = if point {
            Data { strides: row_major(&all), ..x }
        } else {
            let n = groups * positions * row;
            let (range, _) = reach(&x, l.input_shape(0), size);
            let aligned =
                |count: usize| channels.is_multiple_of(count) && range.start.is_multiple_of(count * size);
            let count =
                [8, 4, 2].into_iter().filter(|count| count * size <= 16).find(|count| aligned(*count));
            let count = count.unwrap_or(1);
            let output = stream.alloc(n * size)?;
            let command = stream.encode("windows").read_range(&x.buffer, range.clone()).write(&output);
            if n == 0 {
                command.run(|_| Ok(()))?;
            } else {
                let word = match size * count {
                    2 => "u16",
                    4 => "u32",
                    8 => "w8",
                    _ => "w16",
                };
                let mut constants = Constants::default();
                for list in [self.input, self.output, self.taps, self.stride] {
                    constants = constants.longs(list.into_iter().map(|one| one as isize), 3, 1);
                }
                constants = constants.longs(self.low.into_iter(), 3, 0);
                for list in [self.dilation, self.spread] {
                    constants = constants.longs(list.into_iter().map(|one| one as isize), 3, 1);
                }
                let n = n / count;
                let constants = constants
                    .long(self.batch as i64)
                    .long((channels / count) as i64)
                    .long(groups as i64)
                    .long(n as i64);
                let index = if n < 1 << 31 { "" } else { "define INDEX=u64" };
                let pipeline = kernel(stream, TEXT, &format!("windows<{word}>"), index)?;
                command.constants(constants.bytes()).dispatch(
                    &pipeline,
                    [blocks(n) * 256, 1, 1],
                    [256, 1, 1],
                )?;
            }
            Data::contiguous(output, &all)
        };
        // Weights lie by output channels, of all groups: turned round they are the right operand.
        let turned: Shape = [groups, row, outs].into_iter().collect();
        let strides = [(outs * row) as isize, 1, row as isize].into_iter().collect();
        let weight = Matrices::new(Data { strides, ..weight }, &turned, 1);
        let shape = [groups, positions, outs];
        let what = Product { alpha: 1.0, beta: 0.0, added: None };
        let windows = Matrices::new(windows, &all, 1);
        let result = product(stream, &shape, dtype, windows, weight, what)?;
        if groups == 1 {
            return Ok(Some(Data { strides: row_major(l.shape()), ..result }));
        }
        // Groups side by side in each position.
        let output = l.output()?;
        let strides = [outs as isize, (groups * outs) as isize, 1];
        let to = Target { buffer: &output, offset: 0, strides: &strides, partial: false };
        copy_to(stream, &result, &shape, size, &to)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

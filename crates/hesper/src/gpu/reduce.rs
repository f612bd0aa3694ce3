//! Reductions on GPUs.
//!
//! A result is made by a few threads, a block, or several blocks whose parts are combined by a second
//! kernel: as many as it takes to keep the device busy. Parts and their order depend on the shapes alone.

use std::ops::Range;

use hesper_runtime::Buffer;

use super::{Constants, kernel};
use crate::error::Result;
use crate::eval::Lowering;
use crate::ops::command::Commands;

const TEXT: &str = include_str!("reduce.cuh");
/// Most axes that are left of each kind after joining.
pub(crate) const MOST: usize = 6;
/// Blocks that keep a large device busy: two for each multiprocessor, with many words on their way each. More
/// of them, with less work each, spend their time on starting and ending.
const BUSY: usize = 264;

/// A reduction: the walk through memory, and what is done with elements.
pub(crate) struct Reduction<'a> {
    /// The instance of the text's operations, as in `Sum<float>`.
    pub(crate) op: String,
    /// Bytes of an element, of an accumulator.
    pub(crate) size: usize,
    pub(crate) accumulator: usize,
    /// Length and step of kept and of reduced axes, outermost first.
    pub(crate) kept: &'a [(usize, usize)],
    pub(crate) reduced: &'a [(usize, usize)],
    /// Two numbers, a mask, and the length of an axis that is walked through backwards.
    pub(crate) numbers: (f64, f64, u64, usize),
    /// The bytes of the input that are reached.
    pub(crate) bytes: Range<usize>,
}

impl Reduction<'_> {
    fn constants(&self, kept: &[(usize, usize)]) -> Constants {
        let mut constants = Constants::default();
        for dims in [kept, self.reduced] {
            constants = constants.longs(dims.iter().map(|dim| dim.0 as isize), MOST, 1).longs(
                dims.iter().map(|dim| dim.1 as isize),
                MOST,
                0,
            );
        }
        constants.long(kept.len() as i64).long(self.reduced.len() as i64)
    }

    fn numbers(&self, constants: Constants) -> Constants {
        let (a, b, mask, turned) = self.numbers;
        constants.long(a.to_bits() as i64).long(b.to_bits() as i64).long(mask as i64).long(turned as i64)
    }

    /// Encodes the reduction of an input to `output`; false if there are too many axes.
    pub(crate) fn encode(&self, l: &Lowering<'_>, output: &Buffer) -> Result<bool> {
        if self.kept.len() > MOST || self.reduced.len() > MOST {
            return Ok(false);
        }
        let length: usize = self.reduced.iter().map(|dim| dim.0).product();
        let outputs: usize = self.kept.iter().map(|dim| dim.0).product();
        let input = &l.input(0).buffer;
        if outputs == 0 {
            l.stream().command("reduce").write(output).run(|_| Ok(()))?;
            return Ok(true);
        }
        let inner = self.reduced[self.reduced.len() - 1].1;
        let side = self.kept.last().filter(|dim| dim.1 == 1 && dim.0 >= 16 && inner > 1);
        let v = 16 / self.size;
        let whole = |step: usize| step.is_multiple_of(v);
        let aligned = self.bytes.start.is_multiple_of(16);
        // Kernel, blocks, chunks of each result, neighbouring results, constants.
        let (entry, blocks, chunks, width, constants) = if let Some((width, _)) = side.copied() {
            let rest = &self.kept[..self.kept.len() - 1];
            let wide = aligned
                && whole(width)
                && rest.iter().chain(self.reduced).all(|dim| whole(dim.1))
                && width >= 8 * v;
            let v = if wide { v } else { 1 };
            let across = width.div_ceil(32 * v) * (outputs / width);
            let chunks = (BUSY / across).min(length.div_ceil(64)).max(1);
            let chunk = length.div_ceil(chunks).max(1);
            let chunks = length.div_ceil(chunk).max(1);
            let constants = self
                .constants(rest)
                .long((outputs / width) as i64)
                .long(width as i64)
                .long(length as i64)
                .long(chunk as i64)
                .long(chunks as i64);
            (format!("columns<{}, {v}, 8>", self.op), across * chunks, chunks, width, constants)
        } else {
            let packed = self.reduced.len() == 1
                && inner == 1
                && aligned
                && self.kept.iter().all(|dim| whole(dim.1))
                && length >= 4 * v
                && self.numbers.3 == 0;
            // A warp to a result, if that keeps the device busy.
            let (threads, ahead) = match length {
                0..32 => (4, 4),
                32..1024 => (32, 16),
                _ if outputs >= 8 * BUSY => (32, 16),
                _ => (256, 8),
            };
            let most = if length < 16384 { 1 } else { length.div_ceil(16384) };
            let chunks = (BUSY / outputs).min(most).max(1);
            let chunk = length.div_ceil(chunks).next_multiple_of(1024).max(1);
            let chunks = length.div_ceil(chunk).max(1);
            let constants = self
                .constants(self.kept)
                .long(outputs as i64)
                .long(length as i64)
                .long(chunk as i64)
                .long(chunks as i64);
            let blocks = (outputs * chunks).div_ceil(256 / threads);
            (format!("rows<{}, {threads}, {packed}, {ahead}>", self.op), blocks, chunks, 1, constants)
        };
        let constants = self.numbers(constants);
        let pipeline = kernel(l.stream(), TEXT, &entry, "")?;
        let parts = match chunks {
            1 => None,
            _ => Some(l.stream().alloc(outputs * chunks * self.accumulator)?),
        };
        l.stream()
            .command("reduce")
            .read_range(input, self.bytes.clone())
            .write(parts.as_ref().unwrap_or(output))
            .constants(constants.bytes())
            .dispatch(&pipeline, [blocks as u64 * 256, 1, 1], [256, 1, 1])?;
        if let Some(parts) = &parts {
            let side = if width < 32 { 1 } else { 32 };
            let pipeline = kernel(l.stream(), TEXT, &format!("chunks_of<{}, {side}>", self.op), "")?;
            let constants = Constants::default().long(outputs as i64).long(width as i64).long(chunks as i64);
            l.stream()
                .command("reduce chunks")
                .read(parts)
                .write(output)
                .constants(self.numbers(constants).bytes())
                .dispatch(&pipeline, [outputs.div_ceil(side) as u64 * 256, 1, 1], [256, 1, 1])?;
        }
        Ok(true)
    }
}

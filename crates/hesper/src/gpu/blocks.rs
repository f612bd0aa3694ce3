//! Matrices in GGUF's blocks on GPUs: a few rows of activations are multiplied with blocks where they lie, bound by memory;
//! more of them by tiles on tensor cores, whose numbers are decoded on the way.
//!
//! Rows that are multiplied where blocks lie give the same sums alone and together.

use hesper_cuda::CudaShared;
use hesper_runtime::{Buffer, Encoder};
use smallvec::SmallVec;

use super::matmul::{Matrices, Product, product};
use super::moves::is_index;
use super::{Constants, kernel, type_name};
use crate::Dtype;
use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
use crate::ops::command::Commands;
use crate::ops::native::reach;
use crate::ops::packed::PackedFormat;

const TEXT: &str = include_str!("blocks.cuh");
/// Rows of activations that meet a block at a time.
const TOGETHER: usize = 8;
/// Most rows that are multiplied with blocks where they lie: of large matrices, and of those that the cache holds.
const FEW: [usize; 2] = [8, 64];
/// Bytes that the cache holds.
const CACHED: usize = 24 << 20;
/// Rows of half precision from which on a library multiplies decoded numbers faster.
const MANY: usize = 128;
/// Bytes of shared memory for activations.
const SHARED: usize = 64 << 10;

/// The text's number of a format.
fn number(format: PackedFormat) -> u32 {
    match format {
        PackedFormat::Q4_0 => 0,
        PackedFormat::Q4_1 => 1,
        PackedFormat::Q5_0 => 2,
        PackedFormat::Q5_1 => 3,
        PackedFormat::Q8_0 => 4,
        PackedFormat::Q2_K => 5,
        PackedFormat::Q3_K => 6,
        PackedFormat::Q4_K => 7,
        PackedFormat::Q5_K => 8,
        PackedFormat::Q6_K => 9,
    }
}

/// Whether the device's tensor cores know brain floats.
pub(crate) fn has_tiles(l: &Lowering<'_>) -> bool {
    let cuda = l.stream().runtime().extension().and_then(|shared| shared.downcast::<CudaShared>().ok());
    cuda.is_some_and(|cuda| cuda.properties().capability >= (8, 0))
}

/// An input row by row, the first number at a multiple of sixteen bytes.
fn aligned(l: &Lowering<'_>, at: usize) -> Result<Data> {
    let (data, shape, size) = (l.row_major(at)?, l.input_shape(at), l.input_dtype(at).size());
    if (data.offset as usize * size).is_multiple_of(16) {
        return Ok(data);
    }
    Ok(Data::contiguous(super::copy::copy(l.stream(), &data, shape, size)?, shape))
}

/// Binds a whole input.
fn read<'a>(command: Encoder<'a>, l: &Lowering<'_>, at: usize, data: &'a Data) -> Encoder<'a> {
    let (bytes, _) = reach(data, l.input_shape(at), l.input_dtype(at).size());
    command.read_range(&data.buffer, bytes)
}

/// The numbers of a matrix whose blocks are the first input; of the rows that the second one names, if `listed` says how many
/// there are.
pub(crate) fn numbers(
    l: &mut Lowering<'_>,
    format: PackedFormat,
    listed: Option<usize>,
) -> Result<Option<Data>> {
    if listed.is_some() && !is_index(l.input_dtype(1)) {
        return Ok(None);
    }
    l.bring()?;
    let bytes = aligned(l, 0)?;
    let list = listed.map(|_| l.row_major(1)).transpose()?;
    let output = l.output()?;
    let cols = l.shape()[l.shape().len() - 1];
    let count = l.shape()[..l.shape().len() - 1].iter().product::<usize>();
    let command = read(l.stream().command("packed numbers"), l, 0, &bytes);
    // A list that is not there is bound as the blocks, and not read.
    let command = match &list {
        Some(list) => read(command, l, 1, list),
        None => read(command, l, 0, &bytes),
    };
    let command = command.write(&output);
    if count * cols == 0 {
        command.run(|_| Ok(()))?;
        return Ok(Some(Data::contiguous(output, l.shape())));
    }
    let index = if list.is_some() { type_name(l.input_dtype(1)) } else { "i32" };
    let (of, listing) = (type_name(l.dtype()), list.is_some());
    let pipeline =
        kernel(l.stream(), TEXT, &format!("numbers<{}, {of}, {index}, {listing}>", number(format)), "")?;
    let constants =
        Constants::default().long(count as i64).long(cols as i64).long(listed.unwrap_or(count) as i64);
    let grid = [super::blocks(count * cols / 16) * 256, 1, 1];
    command.constants(constants.bytes()).dispatch(&pipeline, grid, [256, 1, 1])?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// What becomes of products.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Those with each matrix lie side by side.
    Plain,
    /// The same, and the last input is added.
    Plus,
    /// Those with the first of two matrices are a gate for those with the second.
    Gate,
}

/// Products of rows of activations, the first input, with matrices. The weight of a norm is the second input if there is one;
/// then come the blocks of the matrices, then what is added.
pub(crate) struct Products<'a> {
    /// What keeps the norm's root from zero.
    pub(crate) eps: Option<f32>,
    /// Format and rows of each matrix; up to three.
    pub(crate) matrices: &'a [(PackedFormat, usize)],
    pub(crate) end: End,
}

impl Products<'_> {
    /// Encodes them. None with [many](Products::are_few) rows where there is a norm or the device
    /// [has no tiles](has_tiles).
    pub(crate) fn lower(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        l.bring()?;
        if self.are_few(l) {
            return self.few(l).map(Some);
        }
        if self.eps.is_some() || !has_tiles(l) {
            return Ok(None);
        }
        self.tiles(l).map(Some)
    }

    /// Whether rows are multiplied with blocks where they lie.
    fn are_few(&self, l: &Lowering<'_>) -> bool {
        let k = l.input_shape(0)[1];
        let bytes =
            |(format, rows): &(PackedFormat, usize)| rows * k / format.block_len() * format.block_bytes();
        let cached = self.matrices.iter().map(bytes).sum::<usize>() <= CACHED;
        l.shape()[0] <= FEW[usize::from(cached)] && self.matrices.len() <= 3
    }

    /// Where the blocks of the first matrix are among the inputs.
    fn first(&self) -> usize {
        1 + usize::from(self.eps.is_some())
    }

    fn few(&self, l: &Lowering<'_>) -> Result<Data> {
        let (m, k, first) = (l.shape()[0], l.input_shape(0)[1], self.first());
        let inputs =
            (0..l.input_count()).map(|at| aligned(l, at)).collect::<Result<SmallVec<[Data; 6]>>>()?;
        let output = l.output()?;
        let count = self.matrices.len();
        let matrix = |at: usize| first + at.min(count - 1);
        let last = if self.end == End::Plus { first + count } else { 0 };
        // What is not there is bound as something else, and not read.
        let mut command = l.stream().command("packed products");
        for at in [0, first - 1, matrix(0), matrix(1), matrix(2), last] {
            command = read(command, l, at, &inputs[at]);
        }
        let rows_of = |at: usize| self.matrices.get(at).map_or(0, |one| one.1);
        let all: usize = if self.end == End::Gate { rows_of(0) } else { (0..3).map(rows_of).sum() };
        // Sums of more rows at a time share activations, where there are enough of them to keep the device busy.
        let together = m.min(TOGETHER).next_power_of_two();
        let each = if together <= 2 && all >= 4096 { 2 } else { 1 };
        let room = SHARED / (together * 4 * 36) * 32;
        let chunk = if k <= room { k } else { room / 512 * 512 };
        let shared = (together * chunk / 32 * 36 * 4).next_power_of_two().max(4096);
        let format = |at: usize| number(self.matrices[at.min(count - 1)].0);
        let end = match self.end {
            End::Plain => 0,
            End::Plus => 1,
            End::Gate => 2,
        };
        let entry = format!(
            "few<{}, {}, {}, {end}, {}, {}, {together}, {each}>",
            format(0),
            format(1),
            format(2),
            self.eps.is_some(),
            type_name(l.dtype())
        );
        let pipeline = kernel(l.stream(), TEXT, &entry, &format!("shared {shared}"))?;
        let mut constants = Constants::default().long(m as i64);
        for number in [rows_of(0), rows_of(1), rows_of(2), k, chunk] {
            constants = constants.long(number as i64);
        }
        let constants = constants.float(self.eps.unwrap_or(0.0));
        let groups = match self.end {
            End::Gate => rows_of(0).div_ceil(each),
            _ => (0..3).map(|at| rows_of(at).div_ceil(each)).sum(),
        };
        let grid = [(groups.div_ceil(8).min(1056) * 256) as u64, m.div_ceil(together) as u64, 1];
        command.write(&output).constants(constants.bytes()).dispatch(&pipeline, grid, [256, 1, 1])?;
        Ok(Data::contiguous(output, l.shape()))
    }

    fn tiles(&self, l: &Lowering<'_>) -> Result<Data> {
        let (m, n) = (l.shape()[0], l.shape()[1]);
        let output = l.output()?;
        let x = aligned(l, 0)?;
        if self.end == End::Gate {
            let gate = l.stream().alloc(output.len())?;
            self.tile(l, &x, 0, &gate, [n, 0], None)?;
            let added = Data::contiguous(gate, &[m, n]);
            self.tile(l, &x, 1, &output, [n, 0], Some((&added, End::Gate)))?;
            return Ok(Data::contiguous(output, l.shape()));
        }
        let added = match self.end {
            End::Plus => Some(aligned(l, self.first() + self.matrices.len())?),
            _ => None,
        };
        let mut at = 0;
        for (which, (_, rows)) in self.matrices.iter().enumerate() {
            let part =
                added.as_ref().map(|added| Data { offset: added.offset + at as isize, ..added.clone() });
            let part = part.as_ref().map(|part| (part, End::Plus));
            self.tile(l, &x, which, &output, [n, at], part)?;
            at += rows;
        }
        Ok(Data::contiguous(output, l.shape()))
    }

    /// The products with one matrix, in the columns of an output of so many that begin at one.
    fn tile(
        &self,
        l: &Lowering<'_>,
        x: &Data,
        which: usize,
        output: &Buffer,
        [columns, at]: [usize; 2],
        added: Option<(&Data, End)>,
    ) -> Result<()> {
        let (format, rows) = self.matrices[which];
        let (m, k, dtype) = (l.shape()[0], l.input_shape(0)[1], l.dtype());
        let input = self.first() + which;
        let bytes = aligned(l, input)?;
        let command = read(l.stream().command("packed tiles"), l, 0, x);
        let command = read(command, l, input, &bytes);
        let command = match added {
            Some((data, _)) => {
                let start = data.offset as usize * dtype.size();
                let length = ((m - 1) * columns + rows) * dtype.size();
                command.read_range(&data.buffer, start..start + length)
            }
            None => read(command, l, 0, x),
        };
        let command = if at == 0 { command.write(output) } else { command.read_write(output) };
        let end = match added {
            None => 0,
            Some((_, End::Gate)) => 2,
            Some(_) => 1,
        };
        let entry = format!("tile<{}, {end}, {}>", number(format), type_name(dtype));
        let parts = if dtype == Dtype::Float32 { 2 } else { 1 };
        let pipeline = kernel(l.stream(), TEXT, &entry, &format!("shared {}", parts * 2 * 64 * 136 * 2))?;
        let mut constants = Constants::default();
        for number in [m, rows, k, columns, columns, at] {
            constants = constants.long(number as i64);
        }
        let tiles = m.div_ceil(64) * rows.div_ceil(64);
        let grid = [(tiles * 128) as u64, 1, 1];
        Ok(command.constants(constants.bytes()).dispatch(&pipeline, grid, [128, 1, 1])?)
    }
}

/// The product of rows, the first input, with a matrix of blocks, the second.
pub(crate) fn multiply(l: &mut Lowering<'_>, format: PackedFormat) -> Result<Option<Data>> {
    l.bring()?;
    let (m, n, k) = (l.shape()[0], l.shape()[1], l.input_shape(0)[1]);
    let library = l.dtype() != Dtype::Float32 && m > MANY;
    let products = Products { eps: None, matrices: &[(format, n)], end: End::Plain };
    if products.are_few(l) || (has_tiles(l) && !library) {
        return products.lower(l);
    }
    let bytes = aligned(l, 1)?;
    let whole = l.stream().alloc(n * k * l.dtype().size())?;
    let command = read(l.stream().command("packed numbers"), l, 1, &bytes);
    let command = read(command, l, 1, &bytes).write(&whole);
    let entry = format!("numbers<{}, {}, i32, false>", number(format), type_name(l.dtype()));
    let pipeline = kernel(l.stream(), TEXT, &entry, "")?;
    let constants = Constants::default().long(n as i64).long(k as i64).long(n as i64);
    let grid = [super::blocks(n * k / 16) * 256, 1, 1];
    command.constants(constants.bytes()).dispatch(&pipeline, grid, [256, 1, 1])?;
    let turned = Data { strides: [1, k as isize].into_iter().collect(), ..Data::contiguous(whole, &[n, k]) };
    let x = Matrices::new(l.input(0).clone(), l.input_shape(0), 0);
    let w = Matrices::new(turned, &[k, n], 0);
    let what = Product { alpha: 1.0, beta: 0.0, added: None };
    product(l.stream(), l.shape(), l.dtype(), x, w, what).map(Some)
}

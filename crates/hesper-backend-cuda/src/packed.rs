//! Matrices in GGUF blocks on GPUs. Few rows of activations are multiplied with the blocks in place, bound by
//! memory; more rows by tensor cores, in tiles that are dequantized on the way.
//!
//! `packed_qmv` gives a row the same result alone and in a batch.

use hesper_backend_gpu::{block_format, read};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::composite::packed_layer::Epilogue;
use hesper_core::ops::packed::{PackedMatmul, Unpack, UnpackRows};
use hesper_core::{Category, Dtype, PackedFormat, Result};
use hesper_runtime::Buffer;
use smallvec::SmallVec;

use crate::Cuda;
use crate::chip::{has_bf16_mma, multiprocessors};
use crate::inputs::aligned;
use crate::launch::{Constants, Kernel, shared};
use crate::matmul::{Matrices, Product, product};

const TEXT: &str = include_str!("packed.cuh");
/// The largest number of rows of activations that share a load of a block.
const ROWS_PER_LOAD: usize = 8;
/// The largest number of rows of `packed_qmv`: for large matrices, and for those that fit the cache.
const MAX_QMV_ROWS: [usize; 2] = [8, 64];
/// Bytes of matrices that fit the cache.
const CACHED: usize = 24 << 20;
/// The largest number of rows of half precision for which `packed_qmm` is faster than cuBLAS on a dequantized
/// matrix.
const MAX_QMM_ROWS: usize = 128;
/// Shared memory for activations, in bytes.
const SHARED: usize = 64 << 10;

/// The kernels' number of a format.
fn number(format: PackedFormat) -> u32 {
    // `PackedArray` takes no others; there is no such text.
    block_format(format).unwrap_or(u32::MAX)
}

/// The kernels' number of an epilogue.
fn epilogue(end: Epilogue) -> u32 {
    match end {
        Epilogue::Plain => 0,
        Epilogue::AddResidual => 1,
        Epilogue::SiluGate => 2,
    }
}

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<PackedMatmul>().with::<Unpack>().with::<UnpackRows>()
}

impl Lower<Unpack> for Cuda {
    fn lower(op: &Unpack, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        dequantize(l, op.format, None)
    }
}

impl Lower<UnpackRows> for Cuda {
    fn lower(op: &UnpackRows, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        dequantize(l, op.format, Some(op.rows))
    }
}

impl Lower<PackedMatmul> for Cuda {
    fn lower(op: &PackedMatmul, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        l.bring()?;
        let (m, n, k) = (l.shape()[0], l.shape()[1], l.input_shape(0)[1]);
        let library = l.dtype() != Dtype::Float32 && m > MAX_QMM_ROWS;
        let products = Products { norm: None, matrices: &[(op.format, n)], end: Epilogue::Plain };
        if let Some(way) = products.way(l).filter(|way| *way == Way::Qmv || !library) {
            return products.lower(l, way).map(Some);
        }
        let bytes = aligned(l, 1)?;
        let whole = l.stream().alloc(n * k * l.dtype().size())?;
        let command = read(l.stream().command("dequantize"), l, 1, &bytes);
        let command = read(command, l, 1, &bytes).write(&whole);
        let kernel = Kernel::new(l.stream(), TEXT, "dequantize").of(number(op.format)).of(l.dtype());
        let kernel = kernel.of(Dtype::Int32).of(false);
        kernel.elements(Constants::default().sizes(&[n, k, n]), n * k / 16)?.encode(command)?;
        let turned =
            Data { strides: [1, k as isize].into_iter().collect(), ..Data::contiguous(whole, &[n, k]) };
        let x = Matrices::new(l.input(0).clone(), l.input_shape(0), 0);
        let w = Matrices::new(turned, &[k, n], 0);
        let what = Product { alpha: 1.0, beta: 0.0, added: None };
        product(l.stream(), l.shape(), l.dtype(), x, w, what).map(Some)
    }
}

/// Dequantizes a matrix whose blocks are the first input; only the rows that the second input names, if
/// `listed` gives the number of rows of the matrix.
fn dequantize(l: &mut Lowering<'_>, format: PackedFormat, listed: Option<usize>) -> Result<Option<Data>> {
    if listed.is_some() && !l.input_dtype(1).is(Category::Integer) {
        return Ok(None);
    }
    l.bring()?;
    let bytes = aligned(l, 0)?;
    let list = listed.map(|_| l.row_major(1)).transpose()?;
    let output = l.output()?;
    let cols = l.shape()[l.shape().len() - 1];
    let count = l.shape()[..l.shape().len() - 1].iter().product::<usize>();
    let command = read(l.stream().command("dequantize"), l, 0, &bytes);
    // A missing list is bound as the blocks, and not read.
    let command = match &list {
        Some(list) => read(command, l, 1, list),
        None => read(command, l, 0, &bytes),
    };
    let command = command.write(&output);
    if count * cols == 0 {
        command.run(|_| Ok(()))?;
        return Ok(Some(Data::contiguous(output, l.shape())));
    }
    let index = if list.is_some() { l.input_dtype(1) } else { Dtype::Int32 };
    let kernel = Kernel::new(l.stream(), TEXT, "dequantize").of(number(format)).of(l.dtype());
    let kernel = kernel.of(index).of(list.is_some());
    let constants = Constants::default().sizes(&[count, cols, listed.unwrap_or(count)]);
    kernel.elements(constants, count * cols / 16)?.encode(command)?;
    Ok(Some(Data::contiguous(output, l.shape())))
}

/// Products of rows of activations, the first input, with matrices. The weight of a norm is the second input
/// if there is one, then come the blocks of the matrices, then the addend.
pub(crate) struct Products<'a> {
    /// The epsilon of the norm, if there is one, and the threads of a row of it.
    pub(crate) norm: Option<(f32, usize)>,
    /// Format and rows of each matrix; up to three.
    pub(crate) matrices: &'a [(PackedFormat, usize)],
    pub(crate) end: Epilogue,
}

/// The kernel of products: for few rows, or for many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Qmv,
    Qmm,
}

/// Whether `packed_qmv` multiplies `m` rows of `k` elements with a matrix of a format and a number of rows.
fn is_few(m: usize, k: usize, (format, rows): (PackedFormat, usize)) -> bool {
    let cached = rows * k / format.block_len() * format.block_bytes() <= CACHED;
    m <= MAX_QMV_ROWS[usize::from(cached)]
}

/// The number of rows along the last axis, and their length.
fn rows_of(shape: &[usize]) -> (usize, usize) {
    let length = shape.last().copied().unwrap_or(1);
    (shape.iter().product::<usize>() / length.max(1), length)
}

impl Products<'_> {
    /// How the products are computed: as each of them is alone. `None` if that is not one way for all of
    /// them.
    pub(crate) fn way(&self, l: &Lowering<'_>) -> Option<Way> {
        let (m, k) = rows_of(l.input_shape(0));
        match self.matrices.iter().filter(|matrix| is_few(m, k, **matrix)).count() {
            0 => has_bf16_mma(l.stream()).then_some(Way::Qmm),
            few => (few == self.matrices.len() && few <= 3).then_some(Way::Qmv),
        }
    }

    /// Encodes the products. Only `packed_qmv` takes a norm.
    pub(crate) fn lower(&self, l: &mut Lowering<'_>, way: Way) -> Result<Data> {
        l.bring()?;
        match way {
            Way::Qmv => self.qmv(l),
            Way::Qmm => self.qmm(l),
        }
    }

    /// The input that holds the blocks of the first matrix.
    fn first(&self) -> usize {
        1 + usize::from(self.norm.is_some())
    }

    fn qmv(&self, l: &Lowering<'_>) -> Result<Data> {
        let ((m, k), first) = (rows_of(l.input_shape(0)), self.first());
        let inputs =
            (0..l.input_count()).map(|at| aligned(l, at)).collect::<Result<SmallVec<[Data; 6]>>>()?;
        let output = l.output()?;
        let count = self.matrices.len();
        let matrix = |at: usize| first + at.min(count - 1);
        let last = if self.end == Epilogue::AddResidual { first + count } else { 0 };
        // A missing input is bound as another one, and not read.
        let mut command = l.stream().command("packed_qmv");
        for at in [0, first - 1, matrix(0), matrix(1), matrix(2), last] {
            command = read(command, l, at, &inputs[at]);
        }
        let rows_in = |at: usize| self.matrices.get(at).map_or(0, |one| one.1);
        let all: usize = if self.end == Epilogue::SiluGate { rows_in(0) } else { (0..3).map(rows_in).sum() };
        // A warp takes two rows of a matrix, which share activations, if there are enough rows to occupy the
        // device.
        let together = m.min(ROWS_PER_LOAD).next_power_of_two();
        let each: usize = if together <= 2 && all >= 4096 { 2 } else { 1 };
        let room = SHARED / (together * 4 * 36) * 32;
        let chunk = if k <= room { k } else { room / 512 * 512 };
        let activations = (together * chunk / 32 * 36 * 4).next_power_of_two().max(4096);
        let format = |at: usize| number(self.matrices[at.min(count - 1)].0);
        let kernel = Kernel::new(l.stream(), TEXT, "packed_qmv").option(shared(activations));
        let kernel = kernel.of(format(0)).of(format(1)).of(format(2)).of(epilogue(self.end));
        let kernel = kernel.of(self.norm.is_some()).of(l.dtype()).of(together).of(each);
        let constants = Constants::default().sizes(&[m, rows_in(0), rows_in(1), rows_in(2), k, chunk]);
        let (eps, threads) = self.norm.unwrap_or((0.0, 0));
        let constants = constants.float(eps).int(threads as i32);
        let groups = match self.end {
            Epilogue::SiluGate => rows_in(0).div_ceil(each),
            _ => (0..3).map(|at| rows_in(at).div_ceil(each)).sum(),
        };
        let groups = [groups.div_ceil(8).min(8 * multiprocessors(l.stream())), m.div_ceil(together), 1];
        kernel.groups(constants, groups, 256)?.encode(command.write(&output))?;
        Ok(Data::contiguous(output, l.shape()))
    }

    fn qmm(&self, l: &Lowering<'_>) -> Result<Data> {
        let (m, n) = rows_of(l.shape());
        let output = l.output()?;
        let x = aligned(l, 0)?;
        if self.end == Epilogue::SiluGate {
            let gate = l.stream().alloc(output.len())?;
            self.qmm_matrix(l, &x, 0, &gate, [n, 0], None)?;
            let added = Data::contiguous(gate, &[m, n]);
            self.qmm_matrix(l, &x, 1, &output, [n, 0], Some((&added, Epilogue::SiluGate)))?;
            return Ok(Data::contiguous(output, l.shape()));
        }
        let added = match self.end {
            Epilogue::AddResidual => Some(aligned(l, self.first() + self.matrices.len())?),
            _ => None,
        };
        let mut at = 0;
        for (which, (_, rows)) in self.matrices.iter().enumerate() {
            let part =
                added.as_ref().map(|added| Data { offset: added.offset + at as isize, ..added.clone() });
            let part = part.as_ref().map(|part| (part, Epilogue::AddResidual));
            self.qmm_matrix(l, &x, which, &output, [n, at], part)?;
            at += rows;
        }
        Ok(Data::contiguous(output, l.shape()))
    }

    /// The products with one matrix, stored to the columns from `at` on of an output of `columns` columns.
    fn qmm_matrix(
        &self,
        l: &Lowering<'_>,
        x: &Data,
        which: usize,
        output: &Buffer,
        [columns, at]: [usize; 2],
        added: Option<(&Data, Epilogue)>,
    ) -> Result<()> {
        let (format, rows) = self.matrices[which];
        let ((m, k), dtype) = (rows_of(l.input_shape(0)), l.dtype());
        let input = self.first() + which;
        let bytes = aligned(l, input)?;
        let command = read(l.stream().command("packed_qmm"), l, 0, x);
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
        let parts = if dtype == Dtype::Float32 { 2 } else { 1 };
        let end = epilogue(added.map_or(Epilogue::Plain, |(_, end)| end));
        let kernel = Kernel::new(l.stream(), TEXT, "packed_qmm").of(number(format)).of(end).of(dtype);
        let constants = Constants::default().sizes(&[m, rows, k, columns, columns, at]);
        let kernel = kernel.option(shared(parts * 2 * 64 * 136 * 2));
        let tiles = m.div_ceil(64) * rows.div_ceil(64);
        kernel.groups(constants, [tiles, 1, 1], 128)?.encode(command)
    }
}

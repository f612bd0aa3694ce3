//! Matrix products on GPUs: by cuBLAS where it is installed; by kernels of this crate for one row, and
//! without cuBLAS. Operands are read in place where their rows or columns are contiguous.

use hesper_backend_gpu::{Target, copy, copy_to, fill, is_float};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::matmul::Matmul;
use hesper_core::shape::{Shape, row_major};
use hesper_core::{Dtype, Result};
use hesper_cuda::CudaShared;
use hesper_cuda::blas::{Gemm, GemmAdd, GemmOperand, GemmType, WORKSPACE};
use hesper_runtime::{Buffer, Stream};

use crate::Cuda;
use crate::launch::{Constants, Kernel};

const TEXT: &str = include_str!("matmul.cuh");

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<Matmul>()
}

/// A batch of matrices in memory.
#[derive(Clone)]
pub(crate) struct Matrices {
    data: Data,
    shape: Shape,
    /// Strides of the batch axes of the result; zero where the operand is broadcast.
    batch: Vec<isize>,
    rows: isize,
    cols: isize,
}

impl Matrices {
    /// The matrices of an array that broadcasts to `axes` batch axes.
    pub(crate) fn new(data: Data, shape: &[usize], axes: usize) -> Self {
        let rank = shape.len();
        let stride = |axis: usize| if shape[axis] == 1 { 0 } else { data.strides[axis] };
        let missing = axes + 2 - rank;
        let batch = (0..axes).map(|axis| axis.checked_sub(missing).map_or(0, stride)).collect();
        let (rows, cols) = (stride(rank - 2), stride(rank - 1));
        Matrices { batch, rows, cols, shape: shape.into(), data }
    }

    /// The stride between rows, or between columns and `true`, if the other axis is contiguous.
    fn leading(&self, rows: usize, cols: usize) -> Option<(usize, bool)> {
        let fits = |along: isize, length: usize, step: isize, count: usize| {
            (along == 1 || length == 1) && (step >= length as isize || count == 1)
        };
        if fits(self.cols, cols, self.rows, rows) {
            return Some((self.rows.unsigned_abs().max(cols), false));
        }
        fits(self.rows, rows, self.cols, cols).then(|| (self.cols.unsigned_abs().max(rows), true))
    }

    /// Itself if cuBLAS can read it in place, or a row-major copy.
    fn readable(self, stream: &Stream, size: usize, rows: usize, cols: usize) -> Result<Self> {
        if self.leading(rows, cols).is_some() && self.batch.iter().all(|stride| *stride >= 0) {
            return Ok(self);
        }
        let axes = self.batch.len();
        let copied = copy::<Cuda>(stream, &self.data, &self.shape, size)?;
        Ok(Matrices::new(Data::contiguous(copied, &self.shape), &self.shape, axes))
    }
}

/// The scalars and the addend of a product: `alpha * left * right + beta * added`.
pub(crate) struct Product {
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    /// The addend, with strides for the result's shape.
    pub(crate) added: Option<Data>,
}

fn library_type(dtype: Dtype) -> Option<GemmType> {
    Some(match dtype {
        Dtype::Float16 => GemmType::F16,
        Dtype::Bfloat16 => GemmType::Bf16,
        Dtype::Float32 => GemmType::F32,
        Dtype::Float64 => GemmType::F64,
        Dtype::Complex64 => GemmType::C64,
        _ => return None,
    })
}

/// Whether cuBLAS is installed.
fn library(stream: &Stream) -> bool {
    let extension = stream.runtime().extension();
    extension.and_then(|shared| shared.downcast::<CudaShared>().ok()).is_some_and(|cuda| cuda.blas().is_ok())
}

impl Lower<Matmul> for Cuda {
    fn lower(op: &Matmul, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if library_type(l.dtype()).is_none() || l.shape().len() > 8 {
            return Ok(None);
        }
        if l.dtype() == Dtype::Complex64 && !library(l.stream()) {
            return Ok(None);
        }
        if op.add && l.input_shape(0).last() == Some(&0) {
            // The sum has no terms: the scaled addend is left.
            return compose(l, |inputs| inputs[2].multiply(op.beta.0));
        }
        l.bring()?;
        let axes = l.shape().len() - 2;
        let (a, b) = (matrices(l, 0, axes), matrices(l, 1, axes));
        let added = op.add.then(|| l.input(2).clone());
        let what = Product { alpha: op.alpha.0, beta: op.beta.0, added };
        product(l.stream(), l.shape(), l.dtype(), a, b, what).map(Some)
    }
}

fn matrices(l: &Lowering<'_>, at: usize, axes: usize) -> Matrices {
    Matrices::new(l.input(at).clone(), l.input_shape(at), axes)
}

/// Encodes products of matrices that lie on the stream's device.
pub(crate) fn product(
    stream: &Stream,
    shape: &[usize],
    dtype: Dtype,
    a: Matrices,
    b: Matrices,
    what: Product,
) -> Result<Data> {
    let axes = shape.len() - 2;
    let (m, n) = (shape[axes], shape[axes + 1]);
    let k = a.shape[a.shape.len() - 1];
    let size = dtype.size();
    let output = stream.alloc(shape.iter().product::<usize>() * size)?;
    let strides = row_major(shape);
    let result = Data::contiguous(output.clone(), shape);
    if k == 0 || shape.contains(&0) {
        fill::<Cuda>(stream, &output, 0..output.len(), [0; 8], size)?;
        return Ok(result);
    }
    let mut call = Call {
        stream,
        dtype,
        batch: shape[..axes].into(),
        m,
        n,
        k,
        a,
        b,
        alpha: what.alpha,
        beta: what.beta,
        bias: None,
    };
    let mut added = what.added;
    if let Some(data) = added.take() {
        let vector =
            data.strides[..axes + 1].iter().zip(shape).all(|(stride, length)| *stride == 0 || *length == 1)
                && (data.strides[axes + 1] == 1 || n == 1);
        let aligned = (data.offset as usize * size).is_multiple_of(16);
        if vector && aligned && what.beta == 1.0 && m > 8 && dtype != Dtype::Complex64 && library(stream) {
            call.bias = Some(data);
            call.beta = 0.0;
        } else {
            let to = Target { buffer: &output, offset: 0, strides: &strides, partial: false };
            copy_to::<Cuda>(stream, &data, shape, size, &to)?;
        }
    } else {
        call.beta = 0.0;
    }
    let library = library(stream);
    if library {
        call.a = call.a.readable(stream, size, m, k)?;
        call.b = call.b.readable(stream, size, k, n)?;
    }
    call.join_rows();
    if !call.gemv(&output)? {
        if library { call.by_library(&output)? } else { call.by_tiles(&output)? }
    }
    Ok(result)
}

struct Call<'a> {
    stream: &'a Stream,
    dtype: Dtype,
    batch: Shape,
    m: usize,
    n: usize,
    k: usize,
    a: Matrices,
    b: Matrices,
    alpha: f64,
    /// The factor of what the output holds; zero if it is uninitialized.
    beta: f64,
    bias: Option<Data>,
}

impl Call<'_> {
    /// Joins products that share a right operand into one product of more rows, where these are evenly
    /// spaced.
    fn join_rows(&mut self) {
        while let (Some(&length), Some(&stride), Some(0)) =
            (self.batch.last(), self.a.batch.last(), self.b.batch.last())
        {
            let contiguous = self.a.cols == 1 || self.k == 1;
            match self.m {
                1 if contiguous && stride >= self.k as isize => self.a.rows = stride,
                _ if length == 1 => {}
                2.. if contiguous && stride == self.a.rows * self.m as isize => {}
                _ => return,
            }
            self.m *= length;
            self.batch.pop();
            self.a.batch.pop();
            self.b.batch.pop();
        }
    }

    /// A vector times a matrix, which is bound by memory and faster than in cuBLAS.
    fn gemv(&self, output: &Buffer) -> Result<bool> {
        let size = self.dtype.size();
        let v = 16 / size;
        let whole = |number: isize| number >= 0 && (number as usize).is_multiple_of(v);
        let lies = self.batch.is_empty()
            && self.a.cols == 1
            && (self.b.rows == 1)
            && self.k.is_multiple_of(v)
            && whole(self.a.data.offset)
            && whole(self.b.data.offset)
            && whole(self.b.cols);
        if !is_float(self.dtype) || self.m != 1 || self.n < 64 || !lies || self.bias.is_some() {
            return Ok(false);
        }
        // Fewer columns are split over more warps, so that the blocks of a usual matrix run in one wave.
        let (columns, split, at_once, warps): (usize, usize, usize, usize) = match self.n {
            0..2048 => (1, 8, 2, 8),
            2048..8192 => (2, 4, 4, 8),
            _ => (4, 1, 4, 4),
        };
        let kernel = Kernel::new(self.stream, TEXT, "gemv").of(self.dtype).of(columns).of(split);
        let kernel = kernel.of(at_once).of(warps);
        let constants = Constants::default().sizes(&[self.n, self.k]).offset(self.b.cols);
        let constants = constants.float(self.alpha as f32).float(self.beta as f32);
        let (left, _) = reach(&self.a.data, &self.a.shape, size);
        let (right, _) = reach(&self.b.data, &self.b.shape, size);
        let command = self.stream.command("gemv").read_range(&self.a.data.buffer, left);
        let command = command.read_range(&self.b.data.buffer, right);
        let command = if self.beta == 0.0 { command.write(output) } else { command.read_write(output) };
        let blocks = self.n.div_ceil(columns * (warps / split));
        kernel.groups(constants, [blocks, 1, 1], 32 * warps)?.encode(command)?;
        Ok(true)
    }

    fn by_library(self, output: &Buffer) -> Result<()> {
        let size = self.dtype.size();
        let Some(of) = library_type(self.dtype) else { return Ok(()) };
        let (a, b) = (self.a, self.b);
        // The innermost axes with even strides in both operands are the batch of one call.
        let mut outer: Vec<(usize, isize, isize)> = Vec::new();
        for ((&length, &x), &y) in self.batch.iter().zip(&a.batch).zip(&b.batch) {
            if length == 1 {
                continue;
            }
            match outer.last_mut() {
                Some(last) if last.1 == x * length as isize && last.2 == y * length as isize => {
                    *last = (last.0 * length, x, y);
                }
                _ => outer.push((length, x, y)),
            }
        }
        let (count, x, y) = outer.pop().unwrap_or((1, 0, 0));
        let (left, first) = reach(&a.data, &a.shape, size);
        let (right, second) = reach(&b.data, &b.shape, size);
        let operand = |matrices: &Matrices, rows, cols, start, batch: isize| {
            let (step, turned) = matrices.leading(rows, cols).unwrap_or((cols, false));
            GemmOperand {
                offset: start,
                leading_dim: step,
                transposed: turned,
                batch_stride: batch.unsigned_abs(),
            }
        };
        let add = match (&self.bias, self.beta) {
            (Some(_), _) => GemmAdd::Bias,
            (None, beta) if beta != 0.0 => GemmAdd::Output,
            _ => GemmAdd::None,
        };
        let gemm = Gemm {
            dtype: of,
            m: self.m,
            n: self.n,
            k: self.k,
            batch: count,
            a: operand(&a, self.m, self.k, first, x),
            b: operand(&b, self.k, self.n, second, y),
            output_offset: 0,
            alpha: self.alpha,
            beta: self.beta,
            add,
        };
        let scratch = self.stream.alloc(WORKSPACE)?;
        let mut command = self.stream.command("matmul").read_range(&a.data.buffer, left);
        command = command.read_range(&b.data.buffer, right);
        if let Some(bias) = &self.bias {
            let start = bias.offset as usize * size;
            command = command.read_range(&bias.buffer, start..start + self.n * size);
        }
        command = command.write(&scratch);
        command = if add == GemmAdd::Output { command.read_write(output) } else { command.write(output) };
        Ok(command.run(move |native| {
            let total: usize = outer.iter().map(|axis| axis.0).product();
            for number in 0..total {
                let mut gemm = gemm.clone();
                let mut rest = number;
                for (length, x, y) in outer.iter().rev() {
                    gemm.a.offset += (rest % length) * x.unsigned_abs();
                    gemm.b.offset += (rest % length) * y.unsigned_abs();
                    rest /= length;
                }
                gemm.output_offset = number * gemm.batch * gemm.m * gemm.n;
                gemm.run(native)?;
            }
            Ok(())
        })?)
    }

    fn by_tiles(&self, output: &Buffer) -> Result<()> {
        let size = self.dtype.size();
        let accumulator = if self.dtype == Dtype::Float64 { Dtype::Float64 } else { Dtype::Float32 };
        let (left, first) = reach(&self.a.data, &self.a.shape, size);
        let (right, second) = reach(&self.b.data, &self.b.shape, size);
        let products: usize = self.batch.iter().product();
        let blocks = self.m.div_ceil(64) * self.n.div_ceil(64) * products;
        let constants = Constants::default()
            .offsets(self.batch.iter().map(|length| *length as isize), 6, 1)
            .offsets(self.a.batch.iter().copied(), 6, 0)
            .offsets(self.b.batch.iter().copied(), 6, 0)
            .sizes(&[self.batch.len(), self.m, self.n, self.k])
            .offsets([self.a.rows, self.a.cols, self.b.rows, self.b.cols], 4, 0)
            .sizes(&[first, second]);
        let constants = match accumulator {
            Dtype::Float64 => constants.double(self.alpha).double(self.beta),
            _ => constants.float(self.alpha as f32).float(self.beta as f32),
        };
        let kernel = Kernel::new(self.stream, TEXT, "gemm_tiled").of(self.dtype).of(accumulator);
        let command = self.stream.command("matmul").read_range(&self.a.data.buffer, left);
        let command = command.read_range(&self.b.data.buffer, right);
        let command = if self.beta == 0.0 { command.write(output) } else { command.read_write(output) };
        kernel.groups(constants, [blocks, 1, 1], 256)?.encode(command)
    }
}

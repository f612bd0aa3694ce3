//! Matrix products. Operands are read in place through their strides: transposed, sliced and broadcast
//! operands are not copied.

use crate::parallel::par_chunks_mut;
use half::{bf16, f16};
use hesper_compute::{GemmOptions, MatMut, MatRef, Par, Serial, Stack, gemm, gemm_stacked};
use hesper_core::backend::reach;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::composite::row_products::RowProducts;
use hesper_core::ops::matmul::Matmul;
use hesper_core::shape::Shape;
use hesper_core::{Dtype, Element, Result};
use hesper_cpu::Cores;
use hesper_runtime::{Access, NativeResult};
use smallvec::SmallVec;

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Matmul>().with::<RowProducts>()
}

impl Lower<Matmul> for Cpu {
    fn lower(op: &Matmul, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let product = match l.dtype() {
            Dtype::Float32 => run::<f32>(op, l),
            Dtype::Float64 => run::<f64>(op, l),
            Dtype::Float16 => run::<f16>(op, l),
            Dtype::Bfloat16 => run::<bf16>(op, l),
            Dtype::Complex64 => run_complex::<f32>(op, l),
            Dtype::Complex128 => run_complex::<f64>(op, l),
            _ => return Ok(None),
        };
        product.map(Some)
    }
}

/// Multiply-adds below which a product of a batch runs on one core.
const SMALL: usize = 1 << 21;
/// Elements of the addend that one task copies.
const COPIED: usize = 1 << 14;

/// The matrices of an operand, in the memory that the command binds.
struct Matrices {
    bytes: std::ops::Range<usize>,
    first: usize,
    /// Strides of the batch axes; zero where the operand is broadcast.
    batch: SmallVec<[isize; 6]>,
    rows: isize,
    cols: isize,
}

impl Matrices {
    /// The matrices of an input that broadcasts to `batch` batch axes.
    fn of(l: &Lowering<'_>, at: usize, batch: usize, size: usize) -> Self {
        let (shape, data) = (l.input_shape(at), l.input(at));
        let (bytes, first) = reach(data, shape, size);
        let stride = |axis: usize| if shape[axis] == 1 { 0 } else { data.strides[axis] };
        let own = shape.len().saturating_sub(2);
        let missing = batch - own.min(batch);
        let batch = (0..batch).map(|axis| axis.checked_sub(missing).map_or(0, stride)).collect();
        let last = |back: usize| shape.len().checked_sub(back).map_or(0, stride);
        Matrices { bytes, first, batch, rows: last(2), cols: last(1) }
    }

    fn start(&self, lengths: &[usize], mut number: usize) -> usize {
        let mut start = self.first as isize;
        for (length, stride) in lengths.iter().zip(&self.batch).rev() {
            start += (number % length) as isize * stride;
            number /= length;
        }
        start as usize
    }

    /// Copies the matrix at `start` to `out`, in row-major order.
    fn copy<T: Copy>(&self, all: &[T], start: usize, cols: usize, out: &mut [T]) {
        for (row, out) in out.chunks_mut(cols).enumerate() {
            let first = start as isize + row as isize * self.rows;
            for (col, out) in out.iter_mut().enumerate() {
                *out = all[(first + col as isize * self.cols) as usize];
            }
        }
    }

    fn stack<'a, T>(&'a self, data: &'a [T]) -> Stack<'a, T> {
        Stack { data, first: self.first, rows: self.rows, cols: self.cols, batch: &self.batch }
    }
}

/// A batch of products.
struct Products<'a, T> {
    batch: &'a [usize],
    /// Rows and columns of a result, and the inner length.
    sizes: (usize, usize, usize),
    a: &'a Matrices,
    b: &'a Matrices,
    left: &'a [T],
    right: &'a [T],
}

impl<T: Element> Products<'_, T> {
    /// Calls `one` for each product with its operands, its result and the cores to use.
    fn each(
        &self,
        out: &mut [T],
        one: impl Fn(MatRef<'_, T>, MatRef<'_, T>, &mut [T], &dyn Par) -> NativeResult + Sync,
    ) -> NativeResult {
        let (m, n, k) = self.sizes;
        let (a, b) = (self.a, self.b);
        let product = |number: usize, out: &mut [T], par: &dyn Par| {
            let (x, y) = (a.start(self.batch, number), b.start(self.batch, number));
            let x = MatRef::strided(self.left, x, m, k, a.rows, a.cols).map_err(crate::refused)?;
            let y = MatRef::strided(self.right, y, k, n, b.rows, b.cols).map_err(crate::refused)?;
            one(x, y, out, par)
        };
        if out.len() > m * n && m.saturating_mul(n).saturating_mul(k) < SMALL {
            let failed = std::sync::Mutex::new(Ok(()));
            let lines = (SMALL / 16 / (m * n * k).max(1)).max(1);
            par_chunks_mut(out, lines * m * n, |task, out| {
                for (at, out) in out.chunks_mut(m * n).enumerate() {
                    if let Err(error) = product(task * lines + at, out, &Serial) {
                        *failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Err(error);
                    }
                }
            });
            return failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        out.chunks_mut(m * n).enumerate().try_for_each(|(number, out)| product(number, out, &Cores))
    }
}

/// An element type of real products.
trait Dense: Element + hesper_compute::Element {
    fn factor(value: f64) -> Self::Sum;
}

macro_rules! dense {
    ($($t:ty)*) => { $(impl Dense for $t {
        fn factor(value: f64) -> Self::Sum { value as Self::Sum }
    })* };
}

dense!(f16 bf16 f32 f64);

/// Encodes products. `all` computes them; the results hold the addend before, if there is one.
fn encode<T: Element>(
    op: &Matmul,
    l: &Lowering<'_>,
    all: impl Fn(Products<'_, T>, &mut [T]) -> NativeResult + Send + Sync + 'static,
) -> Result<Data> {
    let shape = l.shape();
    let axes = shape.len() - 2;
    let size = T::DTYPE.size();
    let (mut m, n) = (shape[axes], shape[axes + 1]);
    let k = l.input_shape(0)[l.input_shape(0).len() - 1];
    let mut batch: Shape = shape[..axes].into();
    let (mut a, mut b) = (Matrices::of(l, 0, axes, size), Matrices::of(l, 1, axes, size));
    let c = op.add.then(|| Matrices::of(l, 2, axes, size));
    // Products that share a right operand are one product of more rows, where these are evenly spaced.
    while let (Some(&length), Some(&stride), Some(0), None) =
        (batch.last(), a.batch.last(), b.batch.last(), &c)
    {
        match m {
            1 => a.rows = stride,
            _ if stride == a.rows * m as isize => {}
            _ => break,
        }
        m *= length;
        batch.pop();
        a.batch.pop();
        b.batch.pop();
    }
    let output = l.output()?;
    let mut command = l.stream().command(op.name());
    command = command.read_range(&l.input(0).buffer, a.bytes.clone());
    command = command.read_range(&l.input(1).buffer, b.bytes.clone());
    if let Some(c) = &c {
        command = command.read_range(&l.input(2).buffer, c.bytes.clone());
    }
    command.write(&output).run(move |native| {
        let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
        let (left, right) = (inputs[0].as_slice::<T>()?, inputs[1].as_slice::<T>()?);
        let added = if c.is_some() { inputs[2].as_slice::<T>()? } else { &[] };
        let out = out.as_mut_slice::<T>()?;
        if out.is_empty() {
            return Ok(());
        }
        if let Some(c) = &c {
            let lines = (COPIED / (m * n)).max(1);
            par_chunks_mut(out, lines * m * n, |task, out| {
                for (at, out) in out.chunks_mut(m * n).enumerate() {
                    c.copy(added, c.start(&batch, task * lines + at), n, out);
                }
            });
        }
        let products = Products { batch: &batch, sizes: (m, n, k), a: &a, b: &b, left, right };
        all(products, out)
    })?;
    Ok(Data::contiguous(output, shape))
}

fn run<T: Dense>(op: &Matmul, l: &Lowering<'_>) -> Result<Data> {
    let (alpha, beta) = (T::factor(op.alpha.0), T::factor(if op.add { op.beta.0 } else { 0.0 }));
    encode::<T>(op, l, move |products, out| {
        let options = GemmOptions { alpha, beta };
        let (a, b) = (products.a.stack(products.left), products.b.stack(products.right));
        gemm_stacked(&Cores, products.batch, products.sizes, a, b, out, &options).map_err(crate::refused)
    })
}

impl Lower<RowProducts> for Cpu {
    fn lower(op: &RowProducts, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let products = match l.dtype() {
            Dtype::Float32 => row_products::<f32>(op, l),
            Dtype::Float16 => row_products::<f16>(op, l),
            Dtype::Bfloat16 => row_products::<bf16>(op, l),
            _ => return Ok(None),
        };
        products.map(Some)
    }
}

/// Encodes products of one row. Each is computed as it is by itself.
fn row_products<T: Dense>(op: &RowProducts, l: &Lowering<'_>) -> Result<Data> {
    let size = T::DTYPE.size();
    let k = l.input_shape(1)[0];
    let row = Matrices::of(l, 0, 0, size);
    let matrices: SmallVec<[(Matrices, usize); 3]> =
        op.columns.iter().enumerate().map(|(at, n)| (Matrices::of(l, at + 1, 0, size), *n)).collect();
    let output = l.output()?;
    let mut command = l.stream().command(op.name());
    command.add(&l.input(0).buffer, row.bytes.clone(), Access::Read);
    for (at, (matrix, _)) in matrices.iter().enumerate() {
        command.add(&l.input(at + 1).buffer, matrix.bytes.clone(), Access::Read);
    }
    command.add(&output, .., Access::Write);
    command.run(move |native| {
        let Some((out, inputs)) = native.views().split_last_mut() else { return Ok(()) };
        let left = inputs[0].as_slice::<T>()?;
        let mut out = out.as_mut_slice::<T>()?;
        let options = GemmOptions { alpha: T::factor(1.0), beta: T::factor(0.0) };
        for ((matrix, n), right) in matrices.iter().zip(&inputs[1..]) {
            let (product, rest) = std::mem::take(&mut out).split_at_mut(*n);
            let (a, b) = (row.stack(left), matrix.stack(right.as_slice::<T>()?));
            gemm_stacked(&Cores, &[], (1, *n, k), a, b, product, &options).map_err(crate::refused)?;
            out = rest;
        }
        Ok(())
    })?;
    Ok(Data::contiguous(output, l.shape()))
}

/// A complex product is four real ones, of real and imaginary parts.
fn run_complex<T>(op: &Matmul, l: &Lowering<'_>) -> Result<Data>
where
    T: Dense<Sum = T> + Default + std::ops::Add<Output = T> + std::ops::Mul<Output = T> + PartialEq,
    [T; 2]: Element,
{
    let (alpha, beta) = (op.alpha.0, T::factor(if op.add { op.beta.0 } else { 0.0 }));
    let one = move |a: MatRef<'_, [T; 2]>, b: MatRef<'_, [T; 2]>, out: &mut [[T; 2]], par: &dyn Par| {
        let (m, n, k) = (a.rows(), b.cols(), a.cols());
        let (a, b) = (parts(&a), parts(&b));
        let mut sums = [vec![T::default(); m * n], vec![T::default(); m * n]];
        for (part, x, y, sign) in [(0, 0, 0, 1.0), (0, 1, 1, -1.0), (1, 0, 1, 1.0), (1, 1, 0, 1.0)] {
            let left = MatRef::row_major(&a[x], m, k).map_err(crate::refused)?;
            let right = MatRef::row_major(&b[y], k, n).map_err(crate::refused)?;
            let to = MatMut::row_major(&mut sums[part], m, n).map_err(crate::refused)?;
            let (alpha, beta) = (T::factor(alpha * sign), T::factor(1.0));
            let options = GemmOptions { alpha, beta };
            gemm(par, left, right, to, &options).map_err(crate::refused)?;
        }
        for (out, (re, im)) in out.iter_mut().zip(sums[0].iter().zip(&sums[1])) {
            // With a beta of zero the output is uninitialized.
            let old = if beta == T::default() { [beta; 2] } else { [beta * out[0], beta * out[1]] };
            *out = [*re + old[0], *im + old[1]];
        }
        Ok(())
    };
    encode::<[T; 2]>(op, l, move |products, out| products.each(out, one))
}

/// Real and imaginary parts of a matrix, in row-major order.
fn parts<T: Copy>(matrix: &MatRef<'_, [T; 2]>) -> [Vec<T>; 2] {
    let mut parts = [Vec::new(), Vec::new()];
    for row in 0..matrix.rows() {
        for col in 0..matrix.cols() {
            let [re, im] = matrix.get(row, col);
            parts[0].push(re);
            parts[1].push(im);
        }
    }
    parts
}

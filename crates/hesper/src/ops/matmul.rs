//! Matrix products. Operands are read as they lie, by strides: neither transposed, sliced nor broadcast
//! ones are copied.

use half::{bf16, f16};
use hesper_compute::{GemmOptions, MatMut, MatRef, Par, Serial, Stack, gemm, gemm_stacked};
use hesper_cpu::Cores;
use smallvec::{SmallVec, smallvec};

use super::native::{par_chunks_mut, reach};
use super::{Op, OpRef};
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::ops::command::Commands;
use crate::shape::{Shape, broadcast};
use crate::transform::rule::{Backward, Batch, Cotangents, unbroadcast};
use crate::{Dtype, Element};

/// `alpha` times the product of the first two inputs, plus `beta` times the third, if there is one.
#[derive(Debug)]
struct Matmul {
    alpha: f64,
    beta: f64,
    add: bool,
}

/// Multiply-adds below which a product of many stays on one core.
const SMALL: usize = 1 << 21;
/// Elements that one task copies before products are added to them.
const COPIED: usize = 1 << 14;

/// Matrices of one operand: where they lie in what the command reads.
struct Matrices {
    bytes: std::ops::Range<usize>,
    first: usize,
    /// Strides of the axes before the last two; zero where the operand is broadcast.
    batch: SmallVec<[isize; 6]>,
    rows: isize,
    cols: isize,
}

impl Matrices {
    /// Of an input that broadcasts to axes `batch` before its last two.
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

    /// Copies the matrix at `start` to `out`, row by row.
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

/// Products of matrices, batch by batch.
struct Products<'a, T> {
    batch: &'a [usize],
    /// Rows and columns of a result, and what is summed over.
    sizes: (usize, usize, usize),
    a: &'a Matrices,
    b: &'a Matrices,
    left: &'a [T],
    right: &'a [T],
}

impl<T: Element> Products<'_, T> {
    /// Calls `one` for each: operands, old and new contents, cores to use.
    fn each(
        &self,
        out: &mut [T],
        one: impl Fn(MatRef<'_, T>, MatRef<'_, T>, &mut [T], &dyn Par) -> std::result::Result<(), String> + Sync,
    ) -> std::result::Result<(), String> {
        let (m, n, k) = self.sizes;
        let (a, b) = (self.a, self.b);
        let product = |number: usize, out: &mut [T], par: &dyn Par| {
            let (x, y) = (a.start(self.batch, number), b.start(self.batch, number));
            let x = MatRef::strided(self.left, x, m, k, a.rows, a.cols).map_err(|error| error.to_string())?;
            let y =
                MatRef::strided(self.right, y, k, n, b.rows, b.cols).map_err(|error| error.to_string())?;
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

/// A type that products are computed of.
trait Dense: Element + hesper_compute::Element {
    fn factor(value: f64) -> Self::Sum;
}

macro_rules! dense {
    ($($t:ty)*) => { $(impl Dense for $t {
        fn factor(value: f64) -> Self::Sum { value as Self::Sum }
    })* };
}

dense!(f16 bf16 f32 f64);

impl Matmul {
    /// Encodes products that `all` computes from operands and old contents.
    fn encode<T: Element>(
        &self,
        l: &Lowering<'_>,
        all: impl Fn(Products<'_, T>, &mut [T]) -> std::result::Result<(), String> + Send + Sync + 'static,
    ) -> Result<Data> {
        let shape = l.shape();
        let axes = shape.len() - 2;
        let size = T::DTYPE.size();
        let (mut m, n) = (shape[axes], shape[axes + 1]);
        let k = l.input_shape(0)[l.input_shape(0).len() - 1];
        let mut batch: Shape = shape[..axes].into();
        let (mut a, mut b) = (Matrices::of(l, 0, axes, size), Matrices::of(l, 1, axes, size));
        let c = self.add.then(|| Matrices::of(l, 2, axes, size));
        // Products with one right operand are one product of more rows, where these are evenly spaced.
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
        let mut command = l.stream().command(self.name());
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
            all(products, out).map_err(Into::into)
        })?;
        Ok(Data::contiguous(output, shape))
    }

    fn run<T: Dense>(&self, l: &Lowering<'_>) -> Result<Data> {
        let (alpha, beta) = (T::factor(self.alpha), T::factor(if self.add { self.beta } else { 0.0 }));
        self.encode::<T>(l, move |products, out| {
            let options = GemmOptions { alpha, beta, ..GemmOptions::default() };
            let (a, b) = (products.a.stack(products.left), products.b.stack(products.right));
            gemm_stacked(&Cores, products.batch, products.sizes, a, b, out, &options)
                .map_err(|error| error.to_string())
        })
    }

    /// Complex products are four real ones, of real and of imaginary parts.
    fn run_complex(&self, l: &Lowering<'_>) -> Result<Data> {
        let (alpha, beta) = (self.alpha as f32, if self.add { self.beta as f32 } else { 0.0 });
        let one =
            move |a: MatRef<'_, [f32; 2]>, b: MatRef<'_, [f32; 2]>, out: &mut [[f32; 2]], par: &dyn Par| {
                let (m, n, k) = (a.rows(), b.cols(), a.cols());
                let (a, b) = (parts(&a), parts(&b));
                let mut sums = [vec![0.0f32; m * n], vec![0.0f32; m * n]];
                for (part, x, y, sign) in [(0, 0, 0, 1.0), (0, 1, 1, -1.0), (1, 0, 1, 1.0), (1, 1, 0, 1.0)] {
                    let left = MatRef::row_major(&a[x], m, k).map_err(|error| error.to_string())?;
                    let right = MatRef::row_major(&b[y], k, n).map_err(|error| error.to_string())?;
                    let to = MatMut::row_major(&mut sums[part], m, n).map_err(|error| error.to_string())?;
                    let options = GemmOptions { alpha: alpha * sign, beta: 1.0, ..GemmOptions::default() };
                    gemm(par, left, right, to, &options).map_err(|error| error.to_string())?;
                }
                for (out, (re, im)) in out.iter_mut().zip(sums[0].iter().zip(&sums[1])) {
                    // What is not asked for is not read: it may be anything.
                    let old = if beta == 0.0 { [0.0; 2] } else { [beta * out[0], beta * out[1]] };
                    *out = [re + old[0], im + old[1]];
                }
                Ok(())
            };
        self.encode::<[f32; 2]>(l, move |products, out| products.each(out, one))
    }
}

/// Real and imaginary parts of a matrix, row by row.
fn parts(matrix: &MatRef<'_, [f32; 2]>) -> [Vec<f32>; 2] {
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

impl Op for Matmul {
    fn name(&self) -> &'static str {
        if self.add { "addmm" } else { "matmul" }
    }

    fn export(&self) -> Export {
        let record = Record::new(self.name());
        if !self.add {
            return record.into();
        }
        record.with("alpha", self.alpha).with("beta", self.beta).stretching(2).into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        match l.dtype() {
            Dtype::Float32 => self.run::<f32>(l),
            Dtype::Float64 => self.run::<f64>(l),
            Dtype::Float16 => self.run::<f16>(l),
            Dtype::Bfloat16 => self.run::<bf16>(l),
            Dtype::Complex64 => self.run_complex(l),
            dtype => Err(not_inexact(self.name(), dtype)),
        }
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        crate::gpu::matmul::lower(l, self.alpha, self.beta, self.add)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let (a, b) = (&rule.inputs[0], &rule.inputs[1]);
        let cotangent = rule.cotangent()?;
        let scaled = |x: Array, by: f64| if by == 1.0 { Ok(x) } else { x.multiply(by) };
        rule.each(|at| {
            let product = match at {
                0 => scaled(cotangent.matmul(&adjoint(b)?)?, self.alpha)?,
                1 => {
                    // One right matrix for many left ones: their rows are one matrix.
                    let joined = b.ndim() == 2 && a.ndim() > 2;
                    let rows = |x: &Array| match joined {
                        true => x.reshape(&[-1, x.shape()[x.ndim() - 1] as isize]),
                        false => Ok(x.clone()),
                    };
                    let (a, cotangent) = (rows(a)?, rows(&cotangent)?);
                    // The cotangent of a matrix that was turned round is turned round once more: it then
                    // lies row by row.
                    let turned = b.call().is_some_and(|call| call.op.name() == "transpose");
                    let product = match turned && a.dtype() != Dtype::Complex64 {
                        true => adjoint(&adjoint(&cotangent)?.matmul(&a)?)?,
                        false => adjoint(&a)?.matmul(&cotangent)?,
                    };
                    scaled(product, self.alpha)?
                }
                _ => scaled(cotangent.clone(), self.beta)?,
            };
            Ok(Some(unbroadcast(&product, rule.inputs[at].shape())?))
        })
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let rank = rule.output.ndim();
        let inputs = (0..rule.inputs.len()).map(|at| rule.aligned(at, rank)).collect::<Result<_>>()?;
        rule.apply(rule.op.clone(), inputs)
    }
}

/// The matrices turned round, and conjugated if they are complex.
fn adjoint(x: &Array) -> Result<Array> {
    let turned = x.swapaxes(-1, -2)?;
    if x.dtype() == Dtype::Complex64 { turned.conjugate() } else { Ok(turned) }
}

fn not_inexact(op: &str, dtype: Dtype) -> Error {
    Error::Type { op: op.into(), what: "takes floating-point numbers, not an array".into(), dtype }
}

impl Array {
    /// The matrix product over the last two axes; the others broadcast. A vector counts as a row on the
    /// left and as a column on the right. Integers alone are refused.
    ///
    /// ```
    /// use hesper::Array;
    /// let x = Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// assert_eq!(x.matmul(&x.t()?)?.to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn matmul(&self, other: &Array) -> Result<Array> {
        let op = Matmul { alpha: 1.0, beta: 0.0, add: false };
        let dtype = self.dtype().promote(other.dtype());
        self.product("matmul", other, None, dtype, op)
    }

    /// `alpha` times the matrix product of `a` and `b`, plus `beta` times this array, which broadcasts.
    pub fn addmm(&self, a: &Array, b: &Array, alpha: f32, beta: f32) -> Result<Array> {
        let op = Matmul { alpha: f64::from(alpha), beta: f64::from(beta), add: true };
        let dtype = a.dtype().promote(b.dtype()).promote(self.dtype());
        a.product("addmm", b, Some(self), dtype, op)
    }

    fn product(
        &self,
        name: &'static str,
        other: &Array,
        added: Option<&Array>,
        dtype: Dtype,
        op: Matmul,
    ) -> Result<Array> {
        if !dtype.is(Category::Inexact) {
            return Err(not_inexact(name, dtype));
        }
        let fail = |what: &str| {
            let what = format!("{what}: shapes {:?} and {:?}", self.shape(), other.shape());
            Err(Error::shape(name, what))
        };
        if self.ndim() == 0 || other.ndim() == 0 {
            return fail("a number is no matrix");
        }
        let left = if self.ndim() == 1 { self.reshape(&[1, self.size() as isize])? } else { self.clone() };
        let right =
            if other.ndim() == 1 { other.reshape(&[other.size() as isize, 1])? } else { other.clone() };
        let (a, b) = (left.shape(), right.shape());
        let (m, k, n) = (a[a.len() - 2], a[a.len() - 1], b[b.len() - 1]);
        if b[b.len() - 2] != k {
            return fail("inner dimensions differ");
        }
        let batch = broadcast(name, &a[..a.len() - 2], &b[..b.len() - 2])?;
        let full: Shape = batch.iter().copied().chain([m, n]).collect();
        let mut shape: Shape = batch;
        shape.extend((self.ndim() > 1).then_some(m));
        shape.extend((other.ndim() > 1).then_some(n));
        let mut inputs = smallvec![left.astype(dtype)?, right.astype(dtype)?];
        if let Some(added) = added {
            // Broadcast to the result, then with the axes that vectors lack.
            let whole = added.astype(dtype)?.broadcast_to(&shape)?;
            let full: SmallVec<[isize; 6]> = full.iter().map(|length| *length as isize).collect();
            inputs.push(whole.reshape(&full)?);
        }
        let product = Array::lazy(full, dtype, OpRef::new(op), inputs)?;
        let shape: SmallVec<[isize; 6]> = shape.iter().map(|length| *length as isize).collect();
        product.reshape(&shape)
    }
}

pub(super) fn read_matmul(replay: &Replay<'_>) -> Result<Array> {
    let [a, b] = replay.inputs()?;
    a.matmul(b)
}

pub(super) fn read_addmm(replay: &Replay<'_>) -> Result<Array> {
    let [a, b, added] = replay.inputs()?;
    added.addmm(a, b, replay.float("alpha")? as f32, replay.float("beta")? as f32)
}

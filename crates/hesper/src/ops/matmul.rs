//! Matrix products.

use half::{bf16, f16};
use hesper_compute::{GemmOptions, MatMut, MatRef, gemm};
use hesper_cpu::Cores;
use smallvec::{SmallVec, smallvec};

use super::{Op, OpRef};
use crate::array::{Array, Data};
use crate::dtype::Category;
use crate::error::{Error, Result};
use crate::eval::Lowering;
use crate::shape::{Shape, broadcast};
use crate::{Dtype, Element};

#[derive(Debug)]
struct Matmul;

impl Matmul {
    fn run<T: Element + hesper_compute::Element>(&self, l: &Lowering<'_>) -> Result<Data> {
        let (a, b) = (Operand::of::<T>(l, 0)?, Operand::of::<T>(l, 1)?);
        let shape = l.shape();
        let (m, n) = (shape[shape.len() - 2], shape[shape.len() - 1]);
        let k = l.input_shape(0)[shape.len() - 1];
        let output = l.output()?;
        let batch: usize = shape[..shape.len() - 2].iter().product();
        let encoder = l.stream().encode("matmul");
        let encoder = encoder.read_range(&a.data.buffer, a.bytes).read_range(&b.data.buffer, b.bytes);
        encoder.write(&output).run(move |native| {
            let [left, right, out] = native.take()?;
            let (left, right) = (left.as_slice::<T>()?, right.as_slice::<T>()?);
            let out = out.as_mut_slice::<T>()?;
            for at in 0..batch {
                let matrix = |all: &'_ [T], size: usize| -> std::ops::Range<usize> {
                    let _ = all;
                    at * size..(at + 1) * size
                };
                let (x, y) = (&left[matrix(left, m * k)], &right[matrix(right, k * n)]);
                let x = view(x, m, k, a.transposed).map_err(|error| error.to_string())?;
                let y = view(y, k, n, b.transposed).map_err(|error| error.to_string())?;
                let z = MatMut::row_major(&mut out[at * m * n..(at + 1) * m * n], m, n)
                    .map_err(|error| error.to_string())?;
                gemm(&Cores, x, y, z, &GemmOptions::default()).map_err(|error| error.to_string())?;
            }
            Ok(())
        })?;
        Ok(Data::contiguous(output, shape))
    }
}

fn view<T>(
    data: &[T],
    rows: usize,
    cols: usize,
    transposed: bool,
) -> std::result::Result<MatRef<'_, T>, hesper_compute::Mismatch> {
    if transposed {
        Ok(MatRef::row_major(data, cols, rows)?.transposed())
    } else {
        MatRef::row_major(data, rows, cols)
    }
}

/// An operand in memory that lies row by row, or column by column.
struct Operand {
    data: Data,
    bytes: std::ops::Range<usize>,
    transposed: bool,
}

impl Operand {
    fn of<T: Element>(l: &Lowering<'_>, at: usize) -> Result<Self> {
        let (shape, strides) = (l.input_shape(at), &l.input(at).strides);
        let rank = shape.len();
        let mut swapped: SmallVec<[usize; 6]> = shape.into();
        let mut order: SmallVec<[isize; 6]> = strides.clone();
        swapped.swap(rank - 1, rank - 2);
        order.swap(rank - 1, rank - 2);
        let transposed =
            crate::shape::is_row_major(&swapped, &order) && !crate::shape::is_row_major(shape, strides);
        let data = if transposed { l.input(at).clone() } else { l.row_major(at)? };
        let start = data.offset as usize * T::DTYPE.size();
        let bytes = start..start + shape.iter().product::<usize>() * T::DTYPE.size();
        Ok(Operand { data, bytes, transposed })
    }
}

impl Op for Matmul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        match l.dtype() {
            Dtype::Float32 => self.run::<f32>(l),
            Dtype::Float64 => self.run::<f64>(l),
            Dtype::Float16 => self.run::<f16>(l),
            Dtype::Bfloat16 => self.run::<bf16>(l),
            dtype => {
                Err(Error::Type { op: "matmul".into(), what: "takes floats, not an array".into(), dtype })
            }
        }
    }
}

impl Array {
    /// The matrix product over the last two axes; the others broadcast. A vector counts as a row on the
    /// left and as a column on the right.
    pub fn matmul(&self, other: &Array) -> Result<Array> {
        let dtype = self.dtype().promote(other.dtype());
        if !dtype.is(Category::Floating) {
            return Err(Error::Type {
                op: "matmul".into(),
                what: "takes floats, not an array".into(),
                dtype,
            });
        }
        let fail = |what: &str| {
            let what = format!("{what}: shapes {:?} and {:?}", self.shape(), other.shape());
            Err(Error::shape("matmul", what))
        };
        if self.ndim() == 0 || other.ndim() == 0 {
            return fail("a number is no matrix");
        }
        let left = if self.ndim() == 1 { self.reshape(&[1, -1])? } else { self.clone() };
        let right = if other.ndim() == 1 { other.reshape(&[-1, 1])? } else { other.clone() };
        let (a, b) = (left.shape(), right.shape());
        let (m, k, n) = (a[a.len() - 2], a[a.len() - 1], b[b.len() - 1]);
        if b[b.len() - 2] != k {
            return fail("inner dimensions differ");
        }
        let batch = broadcast("matmul", &a[..a.len() - 2], &b[..b.len() - 2])?;
        let with = |last: [usize; 2]| -> Shape { batch.iter().copied().chain(last).collect() };
        let left = left.astype(dtype)?.broadcast_to(&with([m, k]))?;
        let right = right.astype(dtype)?.broadcast_to(&with([k, n]))?;
        let mut product = Array::lazy(with([m, n]), dtype, OpRef::Static(&Matmul), smallvec![left, right])?;
        let mut shape: SmallVec<[isize; 6]> = batch.iter().map(|axis| *axis as isize).collect();
        shape.extend((self.ndim() > 1).then_some(m as isize));
        shape.extend((other.ndim() > 1).then_some(n as isize));
        if self.ndim() == 1 || other.ndim() == 1 {
            product = product.reshape(&shape)?;
        }
        Ok(product)
    }
}

//! Products with affine codes on GPUs: a few rows of activations on tensor cores straight from the codes,
//! many rows by decoding the matrix once.

use smallvec::smallvec;

use super::matmul::{Matrices, Product, product};
use super::{Constants, kernel, type_name};
use crate::Dtype;
use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
use crate::ops::native::reach;
use crate::shape::Shape;

const TEXT: &str = include_str!("quant.cuh");
/// Rows of activations up to which codes are read in place.
const FEW: usize = 32;

/// Codes of so many bits in groups of so many.
#[derive(Clone, Copy)]
pub(crate) struct Affine {
    pub(crate) bits: usize,
    pub(crate) group: usize,
}

fn floats(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32)
}

/// Codes row by row, the first at a multiple of sixteen bytes.
fn codes(l: &Lowering<'_>, at: usize) -> Result<Data> {
    let data = l.row_major(at)?;
    if data.offset % 4 == 0 {
        return Ok(data);
    }
    let shape = l.input_shape(at);
    Ok(Data::contiguous(super::copy::copy(l.stream(), &data, shape, 4)?, shape))
}

impl Affine {
    /// Whether there are kernels for the parts, which are inputs from `at` on.
    fn fits(self, l: &Lowering<'_>, at: usize) -> bool {
        let scales = l.input_dtype(at + 1);
        floats(l.dtype())
            && floats(scales)
            && l.input_dtype(at + 2) == scales
            && matches!(self.bits, 1..=6 | 8)
    }

    /// The numbers that codes stand for; codes, scales and biases are inputs from `at` on.
    pub(crate) fn decode(self, l: &mut Lowering<'_>, at: usize) -> Result<Option<Data>> {
        if !self.fits(l, at) {
            return Ok(None);
        }
        l.bring()?;
        let groups = l.input_shape(at + 1);
        let mut shape: Shape = groups.into();
        if let Some(last) = shape.last_mut() {
            *last *= self.group;
        }
        self.decoded(l, at, &shape).map(Some)
    }

    fn decoded(self, l: &Lowering<'_>, at: usize, shape: &[usize]) -> Result<Data> {
        let n: usize = shape.iter().product();
        let (of, scale) = (l.dtype(), l.input_dtype(at + 1));
        let parts = [codes(l, at)?, l.row_major(at + 1)?, l.row_major(at + 2)?];
        let output = l.stream().alloc(n * of.size())?;
        let mut command = l.stream().encode("dequantize");
        for (number, part) in parts.iter().enumerate() {
            let (bytes, _) = reach(part, l.input_shape(at + number), l.input_dtype(at + number).size());
            command = command.read_range(&part.buffer, bytes);
        }
        let command = command.write(&output);
        if n == 0 {
            command.run(|_| Ok(()))?;
            return Ok(Data::contiguous(output, shape));
        }
        let entry = format!("decoded<{}, {}, {}>", type_name(of), type_name(scale), self.bits);
        let pipeline = kernel(l.stream(), TEXT, &entry, "")?;
        let constants = Constants::default().long(n as i64).int(self.group as i32);
        let blocks = n.div_ceil(8 * 256) as u64;
        command.constants(constants.bytes()).dispatch(&pipeline, [blocks * 256, 1, 1], [256, 1, 1])?;
        Ok(Data::contiguous(output, shape))
    }

    /// The product of the first input with codes, scales and biases behind it, or with their transpose.
    pub(crate) fn lower(self, l: &mut Lowering<'_>, transpose: bool) -> Result<Option<Data>> {
        if !self.fits(l, 1) || l.shape().len() > 8 {
            return Ok(None);
        }
        l.bring()?;
        let rank = l.shape().len();
        let (m, n) = (l.shape()[rank - 2], l.shape()[rank - 1]);
        let half = l.dtype().size() == 2;
        let wide = matches!((self.bits, self.group), (4 | 8, _) | (2, 64 | 128));
        if rank == 2 && transpose && half && wide && m <= FEW && n > 0 && m > 0 {
            return self.few(l, m, n).map(Some);
        }
        let mut whole: Shape = l.input_shape(2).into();
        if let Some(last) = whole.last_mut() {
            *last *= self.group;
        }
        let decoded = self.decoded(l, 1, &whole)?;
        let x = Matrices::new(l.input(0).clone(), l.input_shape(0), rank - 2);
        let (decoded, shape) = if transpose {
            let mut strides = decoded.strides.clone();
            strides.swap(rank - 2, rank - 1);
            whole.swap(rank - 2, rank - 1);
            (Data { strides, ..decoded }, whole)
        } else {
            (decoded, whole)
        };
        let w = Matrices::new(decoded, &shape, rank - 2);
        let what = Product { alpha: 1.0, beta: 0.0, added: None };
        product(l.stream(), l.shape(), l.dtype(), x, w, what).map(Some)
    }

    fn few(self, l: &Lowering<'_>, m: usize, n: usize) -> Result<Data> {
        let k = l.input_shape(0)[1];
        let (of, scale) = (l.dtype(), l.input_dtype(2));
        // Rows of activations are read in words of sixteen bytes.
        let given = l.input(0);
        let whole = |number: isize| number >= 0 && number % 8 == 0;
        let lies =
            (given.strides[1] == 1 || k == 1) && (whole(given.strides[0]) || m == 1) && whole(given.offset);
        let x = match lies {
            true => given.clone(),
            false => {
                let copied = super::copy::copy(l.stream(), given, l.input_shape(0), of.size())?;
                Data::contiguous(copied, l.input_shape(0))
            }
        };
        let step = if m == 1 { k as isize } else { x.strides[0] };
        let parts = [codes(l, 1)?, l.row_major(2)?, l.row_major(3)?];
        let output = l.output()?;
        let (bytes, _) = reach(&x, l.input_shape(0), of.size());
        let mut command = l.stream().encode("quantized_matmul").read_range(&x.buffer, bytes);
        for (number, part) in parts.iter().enumerate() {
            let (bytes, _) = reach(part, l.input_shape(1 + number), l.input_dtype(1 + number).size());
            command = command.read_range(&part.buffer, bytes);
        }
        let tiles = m.div_ceil(8);
        let entry =
            format!("few<{}, {}, {}, {}, {tiles}>", type_name(of), type_name(scale), self.bits, self.group);
        let pipeline = kernel(l.stream(), TEXT, &entry, "")?;
        let constants = Constants::default().long(m as i64).long(n as i64).long(k as i64).long(step as i64);
        let blocks = n.div_ceil(16) as u64;
        command.write(&output).constants(constants.bytes()).dispatch(
            &pipeline,
            [blocks * 128, 1, 1],
            [128, 1, 1],
        )?;
        let shape: Shape = smallvec![m, n];
        Ok(Data::contiguous(output, &shape))
    }
}

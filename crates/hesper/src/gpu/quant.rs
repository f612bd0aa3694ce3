//! Products with affine codes on GPUs: a few rows of activations on tensor cores straight from the codes,
//! many rows by decoding the matrix once.

use hesper_cuda::CudaShared;

use super::cut::Cut;
use super::matmul::{Matrices, Product, product};
use super::{Constants, kernel, type_name};
use crate::Dtype;
use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
use crate::ops::command::Commands;
use crate::ops::native::reach;
use crate::shape::Shape;

const TEXT: &str = include_str!("quant.cuh");
const FEW: &str = concat!(include_str!("quant.cuh"), include_str!("quant_few.cuh"));
const HOPPER: &str =
    concat!(include_str!("quant.cuh"), include_str!("hopper.cuh"), include_str!("quant_hopper.cuh"));

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
        let mut command = l.stream().command("dequantize");
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
        let n = l.shape()[rank - 1];
        let m: usize = l.shape()[..rank - 1].iter().product();
        if transpose && l.input_shape(1).len() == 2 && m > 0 {
            let k = l.input_shape(0)[rank - 1];
            if let Some(cut) = self.cut(l, [m, n, k]) {
                return self.few(l, [m, n, k], &cut).map(Some);
            }
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

    /// How codes are read in place; none if they are better decoded first.
    fn cut(self, l: &Lowering<'_>, shape: [usize; 3]) -> Option<Cut> {
        let (of, scale) = (l.input_dtype(0), l.input_dtype(2));
        let cuda =
            l.stream().runtime().extension().and_then(|shared| shared.downcast::<CudaShared>().ok())?;
        let chip = cuda.properties();
        if of.size() != 2 || chip.capability < (8, 0) {
            return None;
        }
        let most = chip.max_shared as usize;
        let hopper = || match chip.capability == (9, 0) && of == scale {
            true => Cut::hopper(self, shape, most, chip.multiprocessors.max(1) as usize),
            false => None,
        };
        Cut::slim(self, scale.size(), shape, most)
            .or_else(hopper)
            .or_else(|| Cut::few(self, scale.size(), shape, most))
    }

    fn few(self, l: &Lowering<'_>, [m, n, k]: [usize; 3], cut: &Cut) -> Result<Data> {
        let (of, scale) = (l.dtype(), l.input_dtype(2));
        // Rows of activations are read in words of sixteen bytes.
        let given = l.input(0);
        let whole = |number: isize| number >= 0 && number % 8 == 0;
        let shape = l.input_shape(0);
        let lies = shape.len() == 2 && given.strides[1] == 1 && (whole(given.strides[0]) || m == 1);
        let x = if lies { given.clone() } else { l.row_major(0)? };
        let x = match whole(x.offset) {
            true => x,
            false => Data::contiguous(super::copy::copy(l.stream(), &x, shape, of.size())?, shape),
        };
        let step = if m == 1 || shape.len() != 2 { k as isize } else { x.strides[0] };
        let parts = [codes(l, 1)?, aligned(l, 2)?, aligned(l, 3)?];
        let output = l.output()?;
        let (bytes, _) = reach(&x, shape, of.size());
        let mut command = l.stream().command("quantized_matmul").read_range(&x.buffer, bytes);
        for (number, part) in parts.iter().enumerate() {
            let (bytes, _) = reach(part, l.input_shape(1 + number), l.input_dtype(1 + number).size());
            command = command.read_range(&part.buffer, bytes);
        }
        let (of, scale) = (type_name(of), type_name(scale));
        let (text, types, options) = match cut.kernel {
            "decoding" | "decoding_early" => (HOPPER, of.to_string(), "\noption --gpu-architecture=sm_90a"),
            _ => (FEW, format!("{of}, {scale}"), ""),
        };
        let entry = format!("{}<{types}, {}, {}, {}>", cut.kernel, self.bits, self.group, cut.numbers);
        let pipeline = kernel(l.stream(), text, &entry, &format!("shared {}{options}", cut.shared))?;
        let constants = Constants::default().long(m as i64).long(n as i64).long(k as i64).long(step as i64);
        let threads = cut.warps * 32;
        let grid = [(cut.blocks * threads) as u64, cut.over as u64, 1];
        command.write(&output).constants(constants.bytes()).dispatch(
            &pipeline,
            grid,
            [threads as u64, 1, 1],
        )?;
        Ok(Data::contiguous(output, l.shape()))
    }
}

/// Scales or biases row by row, the first at a multiple of sixteen bytes.
fn aligned(l: &Lowering<'_>, at: usize) -> Result<Data> {
    let data = l.row_major(at)?;
    let size = l.input_dtype(at).size();
    if (data.offset as usize * size).is_multiple_of(16) {
        return Ok(data);
    }
    let shape = l.input_shape(at);
    Ok(Data::contiguous(super::copy::copy(l.stream(), &data, shape, size)?, shape))
}

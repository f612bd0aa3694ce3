//! Products with quantized matrices on GPUs: tensor cores read the codes in place for a few rows of
//! activations; for many rows the matrix is dequantized once.

use std::sync::{Arc, LazyLock};

use hesper_backend_gpu::{KnownPipelines, Launch, copy, is_float, read_all};
use hesper_core::backend::{Data, Lower, Lowering, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::quant::QuantFormat;
use hesper_core::ops::quant::matmul::QuantizedMatmul;
use hesper_core::shape::Shape;
use hesper_core::{Dtype, Result};
use hesper_runtime::Pipeline;

use super::qmm_tiling::Tiling;
use crate::Cuda;
use crate::chip::Chip;
use crate::inputs::aligned;
use crate::launch::{Constants, Kernel, SM90, shared};
use crate::matmul::{Matrices, Product, product};

const TEXT: &str = include_str!("affine.cuh");
const QMM: &str = concat!(include_str!("affine.cuh"), include_str!("qmm.cuh"));
const QMM_SM90: &str =
    concat!(include_str!("affine.cuh"), include_str!("../sm90.cuh"), include_str!("qmm_sm90.cuh"));

/// An affine format.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Affine {
    pub(crate) bits: usize,
    pub(crate) group: usize,
}

/// Threads of a product, and of a block.
type Grid = ([u64; 3], [u64; 3]);

/// A runtime, a format, the types of activations and scales, and the sizes of a product.
type ProductKey = (u64, Affine, Dtype, Dtype, [usize; 3]);

/// Choosing a kernel and writing down its instance takes as long as encoding the product.
static KNOWN: LazyLock<KnownPipelines<ProductKey, Grid>> = LazyLock::new(KnownPipelines::default);

impl Lower<QuantizedMatmul> for Cuda {
    fn lower(op: &QuantizedMatmul, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        match op.format {
            QuantFormat::Affine { bits, group } => Affine { bits, group }.multiply(l, op.transpose),
            _ => hesper_backend_gpu::quantized_matmul(op, l),
        }
    }
}

impl Affine {
    /// Whether there are kernels for the parts, which are inputs from `at` on.
    fn fits(self, l: &Lowering<'_>, at: usize) -> bool {
        let scales = l.input_dtype(at + 1);
        is_float(l.dtype())
            && is_float(scales)
            && l.input_dtype(at + 2) == scales
            && matches!(self.bits, 1..=6 | 8)
    }

    /// Dequantizes a matrix whose codes, scales and biases are the inputs from `at` on.
    pub(crate) fn dequantize(self, l: &mut Lowering<'_>, at: usize) -> Result<Option<Data>> {
        if !self.fits(l, at) {
            return Ok(None);
        }
        l.bring()?;
        let groups = l.input_shape(at + 1);
        let mut shape: Shape = groups.into();
        if let Some(last) = shape.last_mut() {
            *last *= self.group;
        }
        self.dequantized(l, at, &shape).map(Some)
    }

    fn dequantized(self, l: &Lowering<'_>, at: usize, shape: &[usize]) -> Result<Data> {
        let n: usize = shape.iter().product();
        let (of, scale) = (l.dtype(), l.input_dtype(at + 1));
        let parts = [aligned(l, at)?, l.row_major(at + 1)?, l.row_major(at + 2)?];
        let output = l.stream().alloc(n * of.size())?;
        let command = read_all(l.stream().command("dequantize"), l, at, &parts).write(&output);
        if n == 0 {
            command.run(|_| Ok(()))?;
            return Ok(Data::contiguous(output, shape));
        }
        let kernel = Kernel::new(l.stream(), TEXT, "dequantize").of(of).of(scale).of(self.bits);
        let constants = Constants::default().sizes(&[n]).int(self.group.ilog2() as i32);
        kernel.groups(constants, [n.div_ceil(4 * 8 * 256), 1, 1], 256)?.encode(command)?;
        Ok(Data::contiguous(output, shape))
    }

    /// The product of the first input with the matrix of the others, or with its transpose.
    fn multiply(self, l: &mut Lowering<'_>, transpose: bool) -> Result<Option<Data>> {
        if !self.fits(l, 1) || l.shape().len() > 8 {
            return Ok(None);
        }
        l.bring()?;
        let rank = l.shape().len();
        let n = l.shape()[rank - 1];
        let m: usize = l.shape()[..rank - 1].iter().product();
        if transpose && l.input_shape(1).len() == 2 && m > 0 {
            let k = l.input_shape(0)[rank - 1];
            if let Some((pipeline, grid)) = self.product_kernel(l, [m, n, k])? {
                return self.qmm(l, [m, n, k], pipeline, grid).map(Some);
            }
        }
        let mut whole: Shape = l.input_shape(2).into();
        if let Some(last) = whole.last_mut() {
            *last *= self.group;
        }
        let axes = whole.len() - 2;
        let dequantized = self.dequantized(l, 1, &whole)?;
        let (x, own) = match axes {
            // Rows of a shared matrix are multiplied together.
            0 => rows(l, m)?,
            _ => (l.input(0).clone(), l.input_shape(0).into()),
        };
        let mut shape: Shape = own.clone();
        shape[axes + 1] = n;
        let x = Matrices::new(x, &own, axes);
        let (dequantized, whole) = if transpose {
            let mut strides = dequantized.strides.clone();
            strides.swap(axes, axes + 1);
            whole.swap(axes, axes + 1);
            (Data { strides, ..dequantized }, whole)
        } else {
            (dequantized, whole)
        };
        let w = Matrices::new(dequantized, &whole, axes);
        let what = Product { alpha: 1.0, beta: 0.0, added: None };
        let result = product(l.stream(), &shape, l.dtype(), x, w, what)?;
        Ok(Some(Data::contiguous(result.buffer, l.shape())))
    }

    /// The kernel that reads codes in place; `None` if dequantizing first is faster.
    fn tiling(self, l: &Lowering<'_>, shape: [usize; 3]) -> Option<Tiling> {
        let (of, scale) = (l.input_dtype(0), l.input_dtype(2));
        let chip = Chip::of(l.stream())?;
        if of.size() != 2 || chip.capability < (8, 0) {
            return None;
        }
        let sm90 = || match chip.capability == (9, 0) && of == scale {
            true => Tiling::sm90(self, shape, &chip),
            false => None,
        };
        Tiling::qmv(self, scale.size(), shape, &chip)
            .or_else(sm90)
            .or_else(|| Tiling::qmm(self, scale.size(), shape, &chip))
    }

    /// The same, compiled; products of a shape that was met before find it without choosing it again.
    fn product_kernel(self, l: &Lowering<'_>, shape: [usize; 3]) -> Result<Option<(Arc<Pipeline>, Grid)>> {
        let (of, scale) = (l.input_dtype(0), l.input_dtype(2));
        let key = (l.stream().runtime().id(), self, of, scale, shape);
        if let Some(found) = KNOWN.find(&key) {
            return Ok(Some(found));
        }
        let Some(tiling) = self.tiling(l, shape) else { return Ok(None) };
        let kernel = |text| Kernel::new(l.stream(), text, tiling.kernel).option(shared(tiling.shared)).of(of);
        let kernel = match tiling.kernel {
            "qmm_sm90" | "qmm_sm90_early" => kernel(QMM_SM90).option(SM90),
            _ => kernel(QMM).of(scale),
        };
        let kernel = kernel.of(self.bits).of(self.group).of(&tiling.arguments);
        let groups = [tiling.blocks, tiling.row_blocks, 1];
        let launch = kernel.groups(Constants::default(), groups, tiling.warps * 32)?;
        let grid = (launch.grid, launch.threadgroup);
        KNOWN.insert(key, &launch.pipeline, grid);
        Ok(Some((launch.pipeline, grid)))
    }

    fn qmm(
        self,
        l: &Lowering<'_>,
        [m, n, k]: [usize; 3],
        pipeline: Arc<Pipeline>,
        (grid, threadgroup): Grid,
    ) -> Result<Data> {
        let of = l.dtype();
        // Rows of activations are loaded in words of sixteen bytes.
        let whole = |number: isize| number >= 0 && number % 8 == 0;
        let (x, shape) = rows(l, m)?;
        let lies = x.strides[1] == 1 && (whole(x.strides[0]) || m == 1) && whole(x.offset);
        let x =
            if lies { x } else { Data::contiguous(copy::<Cuda>(l.stream(), &x, &shape, of.size())?, &shape) };
        let step = if m == 1 { k as isize } else { x.strides[0] };
        let parts = [aligned(l, 1)?, aligned(l, 2)?, aligned(l, 3)?];
        let output = l.output()?;
        let (bytes, _) = reach(&x, &shape, of.size());
        let command = l.stream().command("quantized_matmul").read_range(&x.buffer, bytes);
        let command = read_all(command, l, 1, &parts).write(&output);
        let constants = Constants::default().sizes(&[m, n, k]).offset(step).into_bytes();
        Launch { pipeline, constants, grid, threadgroup }.encode(command)?;
        Ok(Data::contiguous(output, l.shape()))
    }
}

/// The activations as a matrix of `m` rows: a view, or a copy if the rows are not evenly spaced.
fn rows(l: &Lowering<'_>, m: usize) -> Result<(Data, Shape)> {
    let (x, shape) = (l.input(0), l.input_shape(0));
    let last = shape.len() - 1;
    let mut steps = (0..last).filter(|axis| shape[*axis] != 1).map(|axis| x.strides[axis]);
    let (step, others) = (steps.next(), steps.next());
    let x = if others.is_none() { x.clone() } else { l.row_major(0)? };
    let step = if others.is_none() { step.unwrap_or(shape[last] as isize) } else { shape[last] as isize };
    let strides = [step, x.strides[last]].into_iter().collect();
    Ok((Data { strides, ..x }, [m, shape[last]].into_iter().collect()))
}

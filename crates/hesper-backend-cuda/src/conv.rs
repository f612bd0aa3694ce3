//! Convolutions on GPUs: by cuDNN where it is installed and supports them, else by im2col and a matrix
//! product.

use hesper_backend_gpu::{KernelText as _, Target, copy, copy_to};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::conv::{Axis, Convolution as ConvOp, Geometry};
use hesper_core::shape::{Shape, row_major};
use hesper_core::{Dtype, Result};
use hesper_cuda::CudaShared;
use hesper_cuda::cudnn::{Convolution, ConvolutionKind, ConvolutionType, SCRATCH};

use crate::Cuda;
use crate::launch::{Constants, Kernel, index_option};
use crate::matmul::{Matrices, Product, product};

const TEXT: &str = include_str!("conv.cuh");
/// The largest im2col matrix, in bytes.
const MAX_IM2COL: usize = 16 << 30;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<ConvOp>()
}

impl Lower<ConvOp> for Cuda {
    fn lower(op: &ConvOp, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if l.dtype() == Dtype::Float64 {
            return Ok(None);
        }
        Windows::of(&op.0).lower(l)
    }
}

/// A convolution with three spatial axes, some of which may have length one.
#[derive(Clone, Copy)]
struct Windows {
    batch: usize,
    input: [usize; 3],
    output: [usize; 3],
    taps: [usize; 3],
    stride: [usize; 3],
    low: [isize; 3],
    dilation: [usize; 3],
    /// Dilation of the input.
    spread: [usize; 3],
    /// Channels of the input and of the output, all groups together.
    channels: [usize; 2],
    groups: usize,
}

impl Windows {
    fn of(geometry: &Geometry) -> Self {
        let Geometry { input, weight, output, axes, groups } = geometry;
        let rank = axes.len();
        let lengths = |shape: &[usize]| std::array::from_fn(|at| if at < rank { shape[at + 1] } else { 1 });
        let each = |of: fn(&Axis) -> usize| std::array::from_fn(|at| axes.get(at).map_or(1, of));
        Windows {
            batch: input[0],
            input: lengths(input),
            output: lengths(output),
            taps: lengths(weight),
            stride: each(|axis| axis.stride),
            low: std::array::from_fn(|at| axes.get(at).map_or(0, |axis| axis.low)),
            dilation: each(|axis| axis.kernel_dilation),
            spread: each(|axis| axis.input_dilation),
            channels: [input[rank + 1], weight[0]],
            groups: *groups,
        }
    }

    /// As cuDNN takes it: two or three axes, padding with zeros.
    fn cudnn(&self, kind: ConvolutionKind, dtype: Dtype) -> Option<Convolution> {
        let of = match dtype {
            Dtype::Float16 => ConvolutionType::F16,
            Dtype::Bfloat16 => ConvolutionType::Bf16,
            Dtype::Float32 => ConvolutionType::F32,
            _ => return None,
        };
        let mut high = [0; 3];
        for (axis, high) in high.iter_mut().enumerate() {
            let (length, out, stride) = (self.input[axis], self.output[axis], self.stride[axis]);
            let window = (self.taps[axis] - 1) * self.dilation[axis] + 1;
            let low = usize::try_from(self.low[axis]).ok()?;
            // The same padding on both sides, if the last windows do not reach the difference.
            let both = (length + 2 * low).checked_sub(window).map(|rest| rest / stride + 1);
            *high = match both {
                Some(count) if count == out => low,
                _ => ((out - 1) * stride + window).checked_sub(length + low)?,
            };
        }
        let low = self.low.map(isize::unsigned_abs);
        let trivial = |axis: usize| self.input[axis] == 1 && self.taps[axis] == 1 && self.output[axis] == 1;
        let axes: &[usize] = match (trivial(1), trivial(2)) {
            (true, true) => &[1, 0],
            (false, true) => &[0, 1],
            _ => &[0, 1, 2],
        };
        let pick = |list: &[usize; 3]| axes.iter().map(|axis| list[*axis]).collect::<Vec<usize>>();
        Some(Convolution {
            kind,
            dtype: of,
            batch: self.batch,
            channels: self.channels,
            groups: self.groups,
            space: [pick(&self.input), pick(&self.taps), pick(&self.output)],
            stride: pick(&self.stride),
            dilation: pick(&self.dilation),
            padding: [pick(&low), pick(&high)],
        })
    }

    /// The convolution whose weight gradient this is, if the operands have the strides of one: in input and
    /// cotangent the batch, which is summed over, takes the place of the channels.
    fn forward_of_gradient(&self, l: &Lowering<'_>) -> Option<Windows> {
        let swapped = |at: usize| {
            let (shape, data) = (l.input_shape(at), l.input(at));
            let last = shape.len() - 1;
            let mut natural: Shape = shape.into();
            natural.swap(0, last);
            let mut strides = row_major(&natural);
            strides.swap(0, last);
            shape[0] > 1 && shape[last] > 1 && data.strides == strides
        };
        (self.groups == 1 && swapped(0) && swapped(1)).then(|| Windows {
            batch: self.channels[0],
            channels: [self.batch, self.channels[1]],
            output: self.taps,
            taps: self.output,
            stride: self.dilation,
            dilation: self.stride,
            ..*self
        })
    }

    /// What cuDNN computes, if it supports that; and whether it is a weight gradient.
    fn library_call(&self, l: &Lowering<'_>) -> Option<(Convolution, bool)> {
        let shared = l.stream().runtime().extension();
        let cuda = shared.and_then(|shared| shared.downcast::<CudaShared>().ok())?;
        let empty = l.shape().contains(&0) || l.input_shape(0).contains(&0) || l.input_shape(1).contains(&0);
        if empty || self.spread != [1; 3] {
            return None;
        }
        let known = match self.forward_of_gradient(l) {
            Some(whole) => (whole.cudnn(ConvolutionKind::Weights, l.dtype())?, true),
            None => (self.cudnn(ConvolutionKind::Forward, l.dtype())?, false),
        };
        cuda.convolution(&known.0).then_some(known)
    }

    fn by_library(&self, l: &Lowering<'_>, known: Convolution, gradient: bool) -> Result<Data> {
        let (stream, size) = (l.stream(), l.dtype().size());
        let swapped = |shape: &[usize]| {
            let mut natural: Shape = shape.into();
            natural.swap(0, shape.len() - 1);
            natural
        };
        // Contiguous channels, aligned to sixteen bytes.
        let operand = |at: usize| -> Result<Data> {
            let shape = l.input_shape(at);
            let natural = if gradient { swapped(shape) } else { shape.into() };
            let data = if gradient { l.input(at).clone() } else { l.row_major(at)? };
            let data = Data { strides: row_major(&natural), ..data };
            match reach(&data, &natural, size).0.start.is_multiple_of(16) {
                true => Ok(data),
                false => Ok(Data::contiguous(copy::<Cuda>(stream, &data, &natural, size)?, &natural)),
            }
        };
        let (first, second) = (operand(0)?, operand(1)?);
        let mut command = stream.command("conv");
        for (at, data) in [(0, &first), (1, &second)] {
            let start = data.offset as usize * size;
            let bytes = l.input_shape(at).iter().product::<usize>() * size;
            command = command.read_range(&data.buffer, start..start + bytes);
        }
        let (scratch, output) = (stream.alloc(SCRATCH)?, l.output()?);
        command.write(&scratch).write(&output).run(move |native| known.run(native))?;
        let mut result = Data::contiguous(output, l.shape());
        if gradient {
            // cuDNN writes output channels first.
            result.strides = row_major(&swapped(l.shape()));
            result.strides.swap(0, l.shape().len() - 1);
        }
        Ok(result)
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let dtype = l.dtype();
        let size = dtype.size();
        let positions = self.batch * self.output.iter().product::<usize>();
        let taps: usize = self.taps.iter().product();
        let groups = self.groups;
        let [channels, outs] = self.channels.map(|all| all / groups);
        let row = taps * channels;
        let point = taps == 1
            && groups == 1
            && self.stride == [1; 3]
            && self.low == [0; 3]
            && self.spread == [1; 3]
            && self.input == self.output;
        if !point && let Some((known, gradient)) = self.library_call(l) {
            l.bring()?;
            return self.by_library(l, known, gradient).map(Some);
        }
        let bytes = positions.checked_mul(row).and_then(|n| n.checked_mul(groups * size));
        if bytes.is_none_or(|bytes| bytes > MAX_IM2COL) {
            return Ok(None);
        }
        l.bring()?;
        let stream = l.stream();
        let x = l.row_major(0)?;
        let weight = l.row_major(1)?;
        let all: Shape = [groups, positions, row].into_iter().collect();
        let windows = if point {
            Data { strides: row_major(&all), ..x }
        } else {
            let n = groups * positions * row;
            let (range, _) = reach(&x, l.input_shape(0), size);
            let aligned =
                |count: usize| channels.is_multiple_of(count) && range.start.is_multiple_of(count * size);
            let count =
                [8, 4, 2].into_iter().filter(|count| count * size <= 16).find(|count| aligned(*count));
            let count = count.unwrap_or(1);
            let output = stream.alloc(n * size)?;
            let command = stream.command("im2col").read_range(&x.buffer, range.clone()).write(&output);
            if n == 0 {
                command.run(|_| Ok(()))?;
            } else {
                let n = n / count;
                let before = [self.input, self.output, self.taps, self.stride];
                let constants = Constants::default()
                    .sizes(before.as_flattened())
                    .offsets(self.low, 3, 0)
                    .sizes([self.dilation, self.spread].as_flattened())
                    .sizes(&[self.batch, channels / count, groups, n]);
                let kernel = Kernel::new(stream, TEXT, "im2col").of(Cuda::word_name(size * count));
                kernel.option(index_option(n)).elements(constants, n)?.encode(command)?;
            }
            Data::contiguous(output, &all)
        };
        // Weights are row-major by output channels of all groups: the right operand is their transpose.
        let transposed: Shape = [groups, row, outs].into_iter().collect();
        let strides = [(outs * row) as isize, 1, row as isize].into_iter().collect();
        let weight = Matrices::new(Data { strides, ..weight }, &transposed, 1);
        let shape = [groups, positions, outs];
        let what = Product { alpha: 1.0, beta: 0.0, added: None };
        let windows = Matrices::new(windows, &all, 1);
        let result = product(stream, &shape, dtype, windows, weight, what)?;
        if groups == 1 {
            return Ok(Some(Data { strides: row_major(l.shape()), ..result }));
        }
        // The groups of a position are contiguous in the output.
        let output = l.output()?;
        let strides = [outs as isize, (groups * outs) as isize, 1];
        let to = Target { buffer: &output, offset: 0, strides: &strides, partial: false };
        copy_to::<Cuda>(stream, &result, &shape, size, &to)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

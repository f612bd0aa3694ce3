//! Convolutions. Inputs have the axes batch, space, channels; weights output channels, space, and the
//! input channels of one group.

use smallvec::{SmallVec, smallvec};

use super::{Op, OpRef};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::rule::{Backward, Batch, Cotangents};
use crate::graph::{Array, Export, Record, Replay};
use crate::ops::readers::reader;
use crate::shape::{Shape, signed};

/// The parameters of a convolution. A list of one element is for all spatial axes.
#[derive(Debug, Clone)]
pub struct Conv {
    /// Positions from one output to the next.
    pub stride: Vec<usize>,
    /// Zeros before and after; negative padding crops the input.
    pub padding: Vec<(isize, isize)>,
    /// Distance of taps.
    pub kernel_dilation: Vec<usize>,
    /// Distance of the input's elements, with zeros in between.
    pub input_dilation: Vec<usize>,
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// Whether the weights are flipped, as in signal processing.
    pub flip: bool,
}

impl Default for Conv {
    fn default() -> Self {
        Conv {
            stride: vec![1],
            padding: vec![(0, 0)],
            kernel_dilation: vec![1],
            input_dilation: vec![1],
            groups: 1,
            flip: false,
        }
    }
}

/// Which part of a convolution of signals is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvolveMode {
    /// All of it.
    Full,
    /// The length of the longer signal, centred.
    Same,
    /// Where both overlap completely.
    Valid,
}

/// The checked shapes and parameters of a convolution.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Batch, positions and channels of the input.
    pub input: Shape,
    /// Output channels, taps, and input channels of one group.
    pub weight: Shape,
    /// Batch, positions and channels of the output.
    pub output: Shape,
    /// For each spatial axis.
    pub axes: SmallVec<[Axis; 3]>,
    /// Groups of channels that do not see each other.
    pub groups: usize,
}

/// A spatial axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Axis {
    /// Positions from one window to the next.
    pub stride: usize,
    /// Padding before the first element.
    pub low: isize,
    /// Padding after the last element as it was given; the last window may end before it.
    pub high: isize,
    /// Distance of taps.
    pub kernel_dilation: usize,
    /// Distance of the input's elements, with zeros in between.
    pub input_dilation: usize,
}

/// Inputs: the input and the weights.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Convolution(pub Geometry);

impl Op for Convolution {
    fn name(&self) -> &'static str {
        "conv"
    }

    fn export(&self) -> Export {
        let each = |of: fn(&Axis) -> isize| self.0.axes.iter().map(of).collect::<Vec<isize>>();
        Record::new("conv")
            .with("stride", &each(|axis| axis.stride as isize)[..])
            .with("low", &each(|axis| axis.low)[..])
            .with("high", &each(|axis| axis.high)[..])
            .with("kernel_dilation", &each(|axis| axis.kernel_dilation as isize)[..])
            .with("input_dilation", &each(|axis| axis.input_dilation as isize)[..])
            .with("groups", self.0.groups)
            .into()
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let cotangent = rule.cotangent()?;
        rule.each(|at| {
            Ok(Some(match at {
                0 => self.input_cotangent(&rule.inputs[1], &cotangent)?,
                _ => self.weight_cotangent(&rule.inputs[0], &cotangent)?,
            }))
        })
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        if rule.is_batched(1) {
            return if rule.size == 0 { rule.one_by_one() } else { self.vmap_weights(rule) };
        }
        // The new axis joins the batch.
        let joined = |shape: &Shape| -> Shape {
            std::iter::once(rule.size * shape[0]).chain(shape[1..].iter().copied()).collect()
        };
        let geometry =
            Geometry { input: joined(&self.0.input), output: joined(&self.0.output), ..self.0.clone() };
        let input = rule.front(0)?.reshape(&geometry.input)?;
        let shape = geometry.output.clone();
        let op = OpRef::new(Convolution(geometry));
        let out = Array::lazy(shape, rule.output.dtype(), op, smallvec![input, rule.inputs[1].clone()])?;
        Ok((out.reshape(&rule.shape())?, 0))
    }
}

impl Convolution {
    /// `vmap` with batched weights: more groups, or more output channels where all weights share one input.
    fn vmap_weights(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        let Geometry { input, weight, output, groups, .. } = &self.0;
        let (count, last) = (rule.size, output.len() - 1);
        let shared = !rule.is_batched(0) && *groups == 1;
        let times = |shape: &Shape, axis: usize| -> Shape {
            let mut shape = shape.clone();
            shape[axis] *= count;
            shape
        };
        let geometry = Geometry {
            input: if shared { input.clone() } else { times(input, last) },
            weight: times(weight, 0),
            output: times(output, last),
            groups: if shared { 1 } else { groups * count },
            axes: self.0.axes.clone(),
        };
        let x = if shared {
            rule.inputs[0].clone()
        } else {
            rule.full(0)?.moveaxis(0, last as isize)?.reshape(&geometry.input)?
        };
        let weights = rule.front(1)?.reshape(&geometry.weight)?;
        let mut apart = signed(output);
        apart.insert(last, count as isize);
        let shape = geometry.output.clone();
        let op = OpRef::new(Convolution(geometry));
        let out = Array::lazy(shape, rule.output.dtype(), op, smallvec![x, weights])?;
        Ok((out.reshape(&apart)?, last))
    }

    /// The cotangent dilated by the stride, convolved with the flipped weights, channels exchanged.
    fn input_cotangent(&self, weight: &Array, cotangent: &Array) -> Result<Array> {
        let Geometry { input, weight: taps, output, axes, groups } = &self.0;
        let padding = (0..axes.len())
            .map(|at| {
                let axis = &axes[at];
                let reach = (taps[at + 1] as isize - 1) * axis.kernel_dilation as isize;
                let low = reach - axis.low;
                let wanted = (input[at + 1] as isize - 1) * axis.input_dilation as isize + reach;
                (low, wanted - (output[at + 1] as isize - 1) * axis.stride as isize - low)
            })
            .collect();
        let conv = Conv {
            stride: axes.iter().map(|axis| axis.input_dilation).collect(),
            padding,
            kernel_dilation: axes.iter().map(|axis| axis.kernel_dilation).collect(),
            input_dilation: axes.iter().map(|axis| axis.stride).collect(),
            groups: *groups,
            flip: true,
        };
        cotangent.conv_padded(&exchange(weight, 0, *groups)?, &conv)
    }

    /// The input convolved with the cotangent, with batch and channels exchanged.
    fn weight_cotangent(&self, x: &Array, cotangent: &Array) -> Result<Array> {
        let Geometry { input, weight: taps, output, axes, groups } = &self.0;
        let padding = (0..axes.len())
            .map(|at| {
                let axis = &axes[at];
                let wanted = (taps[at + 1] as isize - 1) * axis.kernel_dilation as isize
                    + (output[at + 1] as isize - 1) * axis.stride as isize;
                (axis.low, wanted - (input[at + 1] as isize - 1) * axis.input_dilation as isize - axis.low)
            })
            .collect();
        let conv = Conv {
            stride: axes.iter().map(|axis| axis.kernel_dilation).collect(),
            padding,
            kernel_dilation: axes.iter().map(|axis| axis.stride).collect(),
            input_dilation: axes.iter().map(|axis| axis.input_dilation).collect(),
            groups: *groups,
            flip: false,
        };
        let last = cotangent.ndim() as isize - 1;
        let exchanged = exchange(x, last as usize, *groups)?;
        exchanged.conv_padded(&cotangent.swapaxes(0, last)?, &conv)?.swapaxes(0, last)
    }
}

/// Exchanges the first and the last axis, where the axis `grouped` keeps its groups outermost: `[g * a, ...,
/// b]` becomes `[g * b, ..., a]`, or `[a, ..., g * b]` becomes `[b, ..., g * a]`.
fn exchange(x: &Array, grouped: usize, groups: usize) -> Result<Array> {
    let last = x.ndim() - 1;
    if groups == 1 {
        return x.swapaxes(0, last as isize);
    }
    let (mut split, mut joined) = (signed(x.shape()), signed(x.shape()));
    split[grouped] /= groups as isize;
    (joined[0], joined[last]) = (split[last], split[0]);
    joined[grouped] *= groups as isize;
    split.insert(grouped, groups as isize);
    // The groups precede their axis; that axis and the one at the other end are exchanged.
    let parts = x.reshape(&split)?;
    let parts = if grouped == 0 {
        parts.swapaxes(1, last as isize + 1)?
    } else {
        parts.swapaxes(0, last as isize + 1)?
    };
    parts.reshape(&joined)
}

fn no_type(dtype: Dtype) -> Error {
    let what = "takes floats, and was given an array".into();
    Error::Type { op: "conv".into(), what, dtype }
}

/// One element for each axis.
fn each<T: Copy>(what: &str, list: &[T], rank: usize) -> Result<SmallVec<[T; 3]>> {
    match list {
        [one] => Ok(SmallVec::from_iter(std::iter::repeat_n(*one, rank))),
        list if list.len() == rank => Ok(list.iter().copied().collect()),
        list => Err(Error::shape("conv", format!("{} elements of {what} for {rank} axes", list.len()))),
    }
}

impl Array {
    /// The convolution of an input of one to three spatial axes with `weight`.
    ///
    /// ```
    /// use hesper::{Array, Conv};
    /// let x = Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[1, 4, 1])?;
    /// let w = Array::try_from_slice(&[1.0f32, 10.0], &[1, 2, 1])?;
    /// let y = x.conv_general(&w, &Conv::default())?;
    /// assert_eq!(y.to_vec::<f32>()?, [21.0, 32.0, 43.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn conv_general(&self, weight: &Array, conv: &Conv) -> Result<Array> {
        let rank = self.ndim().saturating_sub(2);
        let padding = each("padding", &conv.padding, rank)?;
        if padding.iter().all(|(low, high)| *low >= 0 && *high >= 0) {
            return self.conv_padded(weight, conv);
        }
        // Negative padding crops the input before it is dilated.
        let mut cut = self.clone();
        for (at, (low, high)) in padding.iter().enumerate() {
            let length = self.shape()[at + 1] as isize;
            let stop = length.saturating_add((*high).min(0)).max(0);
            cut = cut.slice_axis(at + 1, low.saturating_neg().clamp(0, length), stop, 1)?;
        }
        let padding = padding.iter().map(|(low, high)| ((*low).max(0), (*high).max(0))).collect();
        cut.conv_padded(weight, &Conv { padding, ..conv.clone() })
    }

    /// The convolution with padding as given: negative padding crops positions of the dilated input.
    fn conv_padded(&self, weight: &Array, conv: &Conv) -> Result<Array> {
        let fail = |what: &str| {
            let what = format!("{what}: input {:?} and weights {:?}", self.shape(), weight.shape());
            Err(Error::shape("conv", what).with_shapes([self, weight]))
        };
        let dtype = self.dtype().promote(weight.dtype());
        if !matches!(dtype, Dtype::Float32 | Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float64) {
            return Err(no_type(dtype));
        }
        if !(3..=5).contains(&self.ndim()) || self.ndim() != weight.ndim() {
            return fail("both need batch or output channels, one to three spatial axes, and channels");
        }
        let rank = self.ndim() - 2;
        let (channels, outs) = (self.shape()[rank + 1], weight.shape()[0]);
        let groups = conv.groups;
        if groups == 0 || !channels.is_multiple_of(groups) || !outs.is_multiple_of(groups) {
            return fail(&format!("{groups} groups do not divide the channels"));
        }
        if weight.shape()[rank + 1] != channels / groups {
            return fail(&format!("input channels in {groups} groups do not match"));
        }
        let stride = each("stride", &conv.stride, rank)?;
        let padding = each("padding", &conv.padding, rank)?;
        let kernel_dilation = each("kernel dilation", &conv.kernel_dilation, rank)?;
        let input_dilation = each("input dilation", &conv.input_dilation, rank)?;
        let mut output: Shape = smallvec![self.shape()[0]];
        let mut axes = SmallVec::new();
        for at in 0..rank {
            let axis = Axis {
                stride: stride[at],
                low: padding[at].0,
                high: padding[at].1,
                kernel_dilation: kernel_dilation[at],
                input_dilation: input_dilation[at],
            };
            if axis.stride == 0 || axis.kernel_dilation == 0 || axis.input_dilation == 0 {
                return fail("strides and dilations must be positive");
            }
            let (length, taps) = (self.shape()[at + 1] as i128, weight.shape()[at + 1] as i128);
            let spread = |count: i128, by: usize| (count - 1).max(0) * by as i128 + count.min(1);
            let seen = spread(length, axis.input_dilation) + padding[at].0 as i128 + padding[at].1 as i128
                - spread(taps, axis.kernel_dilation);
            if seen < 0 || taps == 0 || seen > isize::MAX as i128 / 4 {
                return fail(&format!("along spatial axis {at} the weights do not fit the padded input"));
            }
            output.push((seen / axis.stride as i128) as usize + 1);
            axes.push(axis);
        }
        output.push(outs);
        // All that such a window sees is padding.
        if self.shape()[1..=rank].contains(&0) {
            return Array::zeros(&output, dtype);
        }
        let spatial: SmallVec<[isize; 3]> = (1..=rank as isize).collect();
        let weight = if conv.flip { weight.flip(&spatial[..])? } else { weight.clone() };
        let geometry = Geometry {
            input: self.0.shape.clone(),
            weight: weight.0.shape.clone(),
            output: output.clone(),
            axes,
            groups,
        };
        let inputs = smallvec![self.astype(dtype)?, weight.astype(dtype)?];
        Array::lazy(output, dtype, OpRef::new(Convolution(geometry)), inputs)
    }

    /// [`conv_general`](Array::conv_general) with as many spatial axes as lengths are given.
    fn conv_nd<const N: usize>(
        &self,
        weight: &Array,
        stride: [usize; N],
        padding: [isize; N],
        dilation: [usize; N],
        groups: usize,
    ) -> Result<Array> {
        let conv = Conv {
            stride: stride.into(),
            padding: padding.map(|both| (both, both)).into(),
            kernel_dilation: dilation.into(),
            groups,
            ..Conv::default()
        };
        self.has_axes(N)?.conv_general(weight, &conv)
    }

    fn has_axes(&self, spatial: usize) -> Result<&Array> {
        if self.ndim() != spatial + 2 {
            let what = format!("{spatial} spatial axes expected, input {:?}", self.shape());
            return Err(Error::shape("conv", what).with_shapes([self]));
        }
        Ok(self)
    }

    /// A convolution over one spatial axis.
    ///
    /// ```
    /// use hesper::Array;
    /// let signal = Array::try_from_slice(&[1f32, 2.0, 4.0, 8.0], &[1, 4, 1])?; // batch, length, channels
    /// let difference = Array::try_from_slice(&[-1f32, 1.0], &[1, 2, 1])?; // out, width, in
    /// assert_eq!(signal.conv1d(&difference, 1, 0, 1, 1)?.to_vec::<f32>()?, [1.0, 2.0, 4.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn conv1d(
        &self,
        weight: &Array,
        stride: usize,
        padding: isize,
        dilation: usize,
        groups: usize,
    ) -> Result<Array> {
        self.conv_nd(weight, [stride], [padding], [dilation], groups)
    }

    /// A convolution over two spatial axes.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let images = Array::ones(&[1, 4, 4, 3], Dtype::Float32)?; // batch, height, width, channels
    /// let weight = Array::ones(&[8, 3, 3, 3], Dtype::Float32)?; // out, height, width, in
    /// let y = images.conv2d(&weight, [1, 1], [1, 1], [1, 1], 1)?;
    /// assert_eq!(y.shape(), [1, 4, 4, 8]);
    /// assert_eq!(y.max(())?.item::<f32>()?, 27.0);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn conv2d(
        &self,
        weight: &Array,
        stride: [usize; 2],
        padding: [isize; 2],
        dilation: [usize; 2],
        groups: usize,
    ) -> Result<Array> {
        self.conv_nd(weight, stride, padding, dilation, groups)
    }

    /// A convolution over three spatial axes.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let volume = Array::ones(&[1, 4, 4, 4, 2], Dtype::Float32)?;
    /// let weight = Array::ones(&[5, 2, 2, 2, 2], Dtype::Float32)?;
    /// assert_eq!(volume.conv3d(&weight, [2; 3], [0; 3], [1; 3], 1)?.shape(), [1, 2, 2, 2, 5]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn conv3d(
        &self,
        weight: &Array,
        stride: [usize; 3],
        padding: [isize; 3],
        dilation: [usize; 3],
        groups: usize,
    ) -> Result<Array> {
        self.conv_nd(weight, stride, padding, dilation, groups)
    }

    /// The transpose of a convolution by `stride`: the input is dilated by the stride, the weights are
    /// flipped.
    fn conv_transpose_nd<const N: usize>(
        &self,
        weight: &Array,
        stride: [usize; N],
        padding: [isize; N],
        dilation: [usize; N],
        output_padding: [isize; N],
        groups: usize,
    ) -> Result<Array> {
        self.has_axes(N)?;
        let padding = (0..N)
            .map(|at| {
                let taps = weight.shape().get(at + 1).copied().unwrap_or(1).max(1) as isize - 1;
                let low = taps.saturating_mul(dilation[at] as isize).saturating_sub(padding[at]);
                (low, low.saturating_add(output_padding[at]))
            })
            .collect();
        let conv = Conv {
            padding,
            kernel_dilation: dilation.into(),
            input_dilation: stride.into(),
            groups,
            flip: true,
            ..Conv::default()
        };
        self.conv_padded(weight, &conv)
    }

    /// A transposed convolution over one spatial axis.
    ///
    /// ```
    /// use hesper::Array;
    /// let x = Array::try_from_slice(&[1f32, 2.0], &[1, 2, 1])?;
    /// let weight = Array::try_from_slice(&[1f32, 10.0], &[1, 2, 1])?;
    /// let y = x.conv_transpose1d(&weight, 2, 0, 1, 0, 1)?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 10.0, 2.0, 20.0]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn conv_transpose1d(
        &self,
        weight: &Array,
        stride: usize,
        padding: isize,
        dilation: usize,
        output_padding: isize,
        groups: usize,
    ) -> Result<Array> {
        self.conv_transpose_nd(weight, [stride], [padding], [dilation], [output_padding], groups)
    }

    /// A transposed convolution over two spatial axes.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let x = Array::ones(&[1, 4, 4, 8], Dtype::Float32)?;
    /// let weight = Array::ones(&[3, 2, 2, 8], Dtype::Float32)?;
    /// let y = x.conv_transpose2d(&weight, [2; 2], [0; 2], [1; 2], [0; 2], 1)?;
    /// assert_eq!(y.shape(), [1, 8, 8, 3]); // twice as large
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn conv_transpose2d(
        &self,
        weight: &Array,
        stride: [usize; 2],
        padding: [isize; 2],
        dilation: [usize; 2],
        output_padding: [isize; 2],
        groups: usize,
    ) -> Result<Array> {
        self.conv_transpose_nd(weight, stride, padding, dilation, output_padding, groups)
    }

    /// A transposed convolution over three spatial axes.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let x = Array::ones(&[1, 2, 2, 2, 4], Dtype::Float32)?;
    /// let weight = Array::ones(&[1, 3, 3, 3, 4], Dtype::Float32)?;
    /// let y = x.conv_transpose3d(&weight, [1; 3], [0; 3], [1; 3], [0; 3], 1)?;
    /// assert_eq!(y.shape(), [1, 4, 4, 4, 1]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn conv_transpose3d(
        &self,
        weight: &Array,
        stride: [usize; 3],
        padding: [isize; 3],
        dilation: [usize; 3],
        output_padding: [isize; 3],
        groups: usize,
    ) -> Result<Array> {
        self.conv_transpose_nd(weight, stride, padding, dilation, output_padding, groups)
    }

    /// The convolution of two signals of one axis.
    ///
    /// ```
    /// use hesper::{ConvolveMode, array};
    /// let (x, box3) = (array![1.0, 2.0, 3.0, 4.0], array![1.0, 1.0, 1.0]);
    /// assert_eq!(x.convolve(&box3, ConvolveMode::Valid)?.to_vec::<f32>()?, [6.0, 9.0]);
    /// assert_eq!(x.convolve(&box3, ConvolveMode::Full)?.shape(), [6]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn convolve(&self, other: &Array, mode: ConvolveMode) -> Result<Array> {
        if self.ndim() != 1 || other.ndim() != 1 || self.size() == 0 || other.size() == 0 {
            let what =
                format!("signals need one axis and elements: {:?} and {:?}", self.shape(), other.shape());
            return Err(Error::shape("convolve", what).with_shapes([self, other]));
        }
        let (long, short) = if self.size() < other.size() { (other, self) } else { (self, other) };
        let more = short.size() as isize - 1;
        let padding = match mode {
            ConvolveMode::Full => (more, more),
            ConvolveMode::Same => (more - more / 2, more / 2),
            ConvolveMode::Valid => (0, 0),
        };
        let conv = Conv { padding: vec![padding], ..Conv::default() };
        let (long, short) = (long.reshape(&[1, -1, 1])?, short.flip(0)?.reshape(&[1, -1, 1])?);
        long.conv_general(&short, &conv)?.reshape(&[-1])
    }
}

reader!("conv", One(read));
fn read(replay: &Replay<'_>) -> Result<Array> {
    /// A bound for lengths and parameters: their sums and products do not overflow.
    const LIMIT: usize = 1 << 31;
    let [x, weight] = replay.inputs()?;
    let lengths = |name: &str| -> Result<Vec<usize>> {
        let list = replay.lengths(name)?.into_vec();
        if list.iter().all(|one| *one < LIMIT) {
            Ok(list)
        } else {
            Err(replay.wrong("parameters that are too large"))
        }
    };
    let (low, high) = (replay.axes("low")?, replay.axes("high")?);
    let padding: Vec<(isize, isize)> = low.iter().copied().zip(high.iter().copied()).collect();
    let small = |one: &isize| one.unsigned_abs() < LIMIT;
    if low.len() != high.len() || !low.iter().chain(&high).all(small) {
        return Err(replay.wrong("a padding out of range"));
    }
    let conv = Conv {
        stride: lengths("stride")?,
        padding,
        kernel_dilation: lengths("kernel_dilation")?,
        input_dilation: lengths("input_dilation")?,
        groups: replay.length("groups")?,
        flip: false,
    };
    if x.shape().iter().chain(weight.shape()).any(|length| *length >= LIMIT) {
        return Err(replay.wrong("inputs that are too large"));
    }
    x.conv_padded(weight, &conv)
}

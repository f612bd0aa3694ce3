//! Convolutions, channels last.

use hesper_core::{Array, Dtype};

use crate::error::{Error, Result};
use crate::init;
use crate::module::{Module, Parameter};

/// Sizes along `N` spatial axes: one for all, or one for each.
#[derive(Debug, Clone, Copy)]
pub struct Sizes<const N: usize>([usize; N]);

impl<const N: usize> From<usize> for Sizes<N> {
    fn from(size: usize) -> Self {
        Sizes([size; N])
    }
}

impl<const N: usize> From<[usize; N]> for Sizes<N> {
    fn from(sizes: [usize; N]) -> Self {
        Sizes(sizes)
    }
}

impl<const N: usize> Sizes<N> {
    pub(crate) fn get(self) -> [usize; N] {
        self.0
    }
}

/// The weight of a convolution, uniformly distributed within `sqrt(groups / (inputs * taps))`.
fn weight(inputs: usize, outputs: usize, kernel: &[usize], groups: usize) -> Result<Parameter> {
    let taps: usize = kernel.iter().product();
    if groups == 0
        || inputs == 0
        || !inputs.is_multiple_of(groups)
        || !outputs.is_multiple_of(groups)
        || taps == 0
    {
        return Err(Error::argument(format!(
            "cannot convolve {inputs} channels to {outputs} in {groups} groups with a kernel of {kernel:?}; channels must \
             be multiples of the groups, and sizes at least 1"
        )));
    }
    let bound = (groups as f64 / (inputs * taps) as f64).sqrt();
    let shape: Vec<usize> =
        std::iter::once(outputs).chain(kernel.iter().copied()).chain([inputs / groups]).collect();
    Ok(init::uniform_within(bound, &shape)?.into())
}

fn with_bias(y: Array, bias: Option<&Parameter>) -> Result<Array> {
    Ok(match bias {
        Some(bias) => y.add(bias.get())?,
        None => y,
    })
}

fn signed<const N: usize>(sizes: [usize; N]) -> [isize; N] {
    sizes.map(|size| size as isize)
}

macro_rules! convolutions {
    ($($name:ident $transposed:ident $rank:tt $axes:literal;)*) => {$(
        #[doc = concat!("A convolution of arrays of shape (batch, ", $axes, ", channels).")]
        ///
        /// ```
        /// use hesper::{Array, Dtype};
        /// use hesper_nn::Conv2d;
        /// let layer = Conv2d::new(3, 8, 3)?.with_padding(1).with_stride([2, 2]);
        /// assert_eq!(layer.forward(&Array::zeros(&[1, 28, 28, 3], Dtype::Float32)?)?.shape(), [1, 14, 14, 8]);
        /// let wide = Conv2d::new(3, 8, 3)?.with_dilation(2).without_bias(); // sees 5 by 5 elements
        /// assert_eq!(wide.forward(&Array::zeros(&[1, 28, 28, 3], Dtype::Float32)?)?.shape(), [1, 24, 24, 8]);
        /// # Ok::<(), hesper_nn::Error>(())
        /// ```
        #[derive(Module, Clone)]
        pub struct $name {
            weight: Parameter,
            bias: Option<Parameter>,
            stride: [usize; $rank],
            padding: [usize; $rank],
            dilation: [usize; $rank],
            groups: usize,
        }

        impl $name {
            /// A convolution from `inputs` to `outputs` channels. The weight starts uniformly distributed,
            /// the bias with zeros. Steps of one, no padding.
            pub fn new(inputs: usize, outputs: usize, kernel: impl Into<Sizes<$rank>>) -> Result<Self> {
                Self::grouped(inputs, outputs, kernel, 1)
            }

            /// The same in groups of channels: each output sees the inputs of its group only.
            ///
            /// ```
            /// # use hesper as _;
            /// use hesper_nn::{Conv2d, ModuleExt};
            /// assert_eq!(Conv2d::grouped(8, 8, 3, 8)?.count(), 8 * 9 + 8); // each channel by itself
            /// assert!(Conv2d::grouped(8, 8, 3, 3).is_err());
            /// # Ok::<(), hesper_nn::Error>(())
            /// ```
            pub fn grouped(
                inputs: usize,
                outputs: usize,
                kernel: impl Into<Sizes<$rank>>,
                groups: usize,
            ) -> Result<Self> {
                Ok(Self {
                    weight: weight(inputs, outputs, &kernel.into().get(), groups)?,
                    bias: Some(Array::zeros(&[outputs], Dtype::Float32)?.into()),
                    stride: [1; $rank],
                    padding: [0; $rank],
                    dilation: [1; $rank],
                    groups,
                })
            }

            /// Applies the layer.
            pub fn forward(&self, x: &Array) -> Result<Array> {
                let (stride, padding, dilation) = (self.stride, signed(self.padding), self.dilation);
                let y = convolutions!(@conv $rank x, &self.weight, stride, padding, dilation, self.groups)?;
                with_bias(y, self.bias.as_ref())
            }
        }

        convolutions!(@setters $name $rank "Sets the steps between outputs." "Sets the zero padding on each side of an axis.");

        #[doc = concat!("A transposed convolution of arrays of shape (batch, ", $axes, ", channels).")]
        ///
        /// ```
        /// use hesper::{Array, Dtype};
        /// use hesper_nn::ConvTranspose2d;
        /// let layer = ConvTranspose2d::new(8, 3, 2)?.with_stride(2).with_dilation(1).without_bias();
        /// assert_eq!(layer.forward(&Array::zeros(&[1, 14, 14, 8], Dtype::Float32)?)?.shape(), [1, 28, 28, 3]);
        /// # Ok::<(), hesper_nn::Error>(())
        /// ```
        #[derive(Module, Clone)]
        pub struct $transposed {
            weight: Parameter,
            bias: Option<Parameter>,
            stride: [usize; $rank],
            padding: [usize; $rank],
            dilation: [usize; $rank],
            output_padding: [usize; $rank],
        }

        impl $transposed {
            /// A transposed convolution from `inputs` to `outputs` channels. The weight starts uniformly
            /// distributed, the bias with zeros. Steps of one, no padding.
            pub fn new(inputs: usize, outputs: usize, kernel: impl Into<Sizes<$rank>>) -> Result<Self> {
                Ok(Self {
                    weight: weight(inputs, outputs, &kernel.into().get(), 1)?,
                    bias: Some(Array::zeros(&[outputs], Dtype::Float32)?.into()),
                    stride: [1; $rank],
                    padding: [0; $rank],
                    dilation: [1; $rank],
                    output_padding: [0; $rank],
                })
            }

            /// Sets the number of elements that are added at the end of each axis of the output.
            ///
            /// ```
            /// use hesper::{Array, Dtype};
            /// use hesper_nn::ConvTranspose2d;
            /// let layer = ConvTranspose2d::new(8, 3, 3)?.with_stride(2).with_padding(1).with_output_padding(1);
            /// assert_eq!(layer.forward(&Array::zeros(&[1, 7, 7, 8], Dtype::Float32)?)?.shape(), [1, 14, 14, 3]);
            /// # Ok::<(), hesper_nn::Error>(())
            /// ```
            pub fn with_output_padding(self, output_padding: impl Into<Sizes<$rank>>) -> Self {
                Self { output_padding: output_padding.into().get(), ..self }
            }

            /// Applies the layer.
            pub fn forward(&self, x: &Array) -> Result<Array> {
                let (stride, padding, dilation) = (self.stride, signed(self.padding), self.dilation);
                let more = signed(self.output_padding);
                let y = convolutions!(@transposed $rank x, &self.weight, stride, padding, dilation, more)?;
                with_bias(y, self.bias.as_ref())
            }
        }
        convolutions!(
            @setters $transposed $rank
            "Sets the steps between the inputs in the output."
            "Sets the number of elements that are cut off on each side of an axis."
        );
    )*};
    // The methods that both kinds share.
    (@setters $name:ident $rank:tt $stride:literal $padding:literal) => {
        impl $name {
            #[doc = $stride]
            pub fn with_stride(self, stride: impl Into<Sizes<$rank>>) -> Self {
                Self { stride: stride.into().get(), ..self }
            }

            #[doc = $padding]
            pub fn with_padding(self, padding: impl Into<Sizes<$rank>>) -> Self {
                Self { padding: padding.into().get(), ..self }
            }

            /// Sets the steps between taps.
            pub fn with_dilation(self, dilation: impl Into<Sizes<$rank>>) -> Self {
                Self { dilation: dilation.into().get(), ..self }
            }

            /// The same layer without its bias.
            pub fn without_bias(self) -> Self {
                Self { bias: None, ..self }
            }
        }
    };
    (@conv 1 $x:expr, $w:expr, $s:expr, $p:expr, $d:expr, $g:expr) => { $x.conv1d($w, $s[0], $p[0], $d[0], $g) };
    (@conv 2 $x:expr, $w:expr, $s:expr, $p:expr, $d:expr, $g:expr) => { $x.conv2d($w, $s, $p, $d, $g) };
    (@conv 3 $x:expr, $w:expr, $s:expr, $p:expr, $d:expr, $g:expr) => { $x.conv3d($w, $s, $p, $d, $g) };
    (@transposed 1 $x:expr, $w:expr, $s:expr, $p:expr, $d:expr, $o:expr) => {
        $x.conv_transpose1d($w, $s[0], $p[0], $d[0], $o[0], 1)
    };
    (@transposed 2 $x:expr, $w:expr, $s:expr, $p:expr, $d:expr, $o:expr) => {
        $x.conv_transpose2d($w, $s, $p, $d, $o, 1)
    };
    (@transposed 3 $x:expr, $w:expr, $s:expr, $p:expr, $d:expr, $o:expr) => {
        $x.conv_transpose3d($w, $s, $p, $d, $o, 1)
    };
}

convolutions! {
    Conv1d ConvTranspose1d 1 "length";
    Conv2d ConvTranspose2d 2 "height, width";
    Conv3d ConvTranspose3d 3 "depth, height, width";
}

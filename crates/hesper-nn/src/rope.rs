//! Rotary position embedding: pairs of elements are rotated by angles that grow with the position.

use hesper_core::ops::step::RotaryFrequencies;
use hesper_core::{Array, fast};

use crate::error::{Error, Result};
use crate::module::{Leaf, LeafMut, Module, Path};

/// How rotations are slowed down for contexts longer than that of training.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// Positions are divided by a factor.
    Linear(f32),
    /// Llama 3: slow rotations are slowed down, fast ones are kept, and those between are interpolated.
    Llama3 {
        /// The factor of slow rotations.
        factor: f32,
        /// Rotations with fewer turns in the original context are slow.
        low_freq_factor: f32,
        /// Rotations with more turns in the original context are fast.
        high_freq_factor: f32,
        /// The context length of training.
        original_context: f32,
    },
    /// YaRN: interpolates by the index of the pair, and scales queries and keys.
    Yarn {
        /// The factor of slow rotations.
        factor: f32,
        /// The context length of training.
        original_context: f32,
        /// Rotations with more turns in the original context are fast.
        beta_fast: f32,
        /// Rotations with fewer turns in the original context are slow.
        beta_slow: f32,
        /// The factor of queries and of keys; [`RopeScaling::yarn_attention_factor`] by default.
        attention_factor: f32,
    },
    /// A factor for the rotation of every pair.
    Factors(Vec<f32>),
}

impl RopeScaling {
    /// YaRN's factor of queries and keys: `0.1 * mscale * ln(factor) + 1`.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::RopeScaling;
    /// assert!((RopeScaling::yarn_attention_factor(4.0, 1.0) - 1.1386).abs() < 1e-4);
    /// ```
    pub fn yarn_attention_factor(factor: f32, mscale: f32) -> f32 {
        if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
    }
}

/// Rotates pairs of elements of every head by the position of their token.
///
/// ```
/// use hesper::{Dtype, random};
/// use hesper_nn::Rope;
/// let rope = Rope::new(8, false, 10000.0, None)?;
/// let heads = random::normal(&[1, 2, 4, 8], Dtype::Float32, 0.0, 1.0, None)?;
/// assert_eq!(rope.forward(&heads, 16)?.shape(), heads.shape());
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Rope {
    dims: usize,
    traditional: bool,
    base: f32,
    scale: f32,
    /// Positions per radian of each pair, if they are not powers of the base.
    periods: Option<Array>,
    attention_factor: f32,
    rotation: RotaryFrequencies,
    /// The arguments of [`Rope::new`], as text.
    arguments: String,
}

impl Module for Rope {
    fn visit(&self, path: &mut Path, f: &mut dyn FnMut(&str, Leaf<'_>)) {
        f(path.as_str(), Leaf::Setting(&self.arguments));
    }

    fn visit_mut(&mut self, _: &mut Path, _: &mut dyn FnMut(&str, LeafMut<'_>) -> Result<()>) -> Result<()> {
        Ok(())
    }
}

impl Rope {
    /// Rotates the first `dims` elements of a head. The elements of a pair are neighbours if `traditional`,
    /// and `dims / 2` apart otherwise.
    pub fn new(dims: usize, traditional: bool, base: f32, scaling: Option<&RopeScaling>) -> Result<Self> {
        if dims == 0 || !dims.is_multiple_of(2) {
            let what = format!("rotary embedding needs an even, positive number of dimensions, not {dims}");
            return Err(Error::InvalidArgument(what));
        }
        let rotation = RotaryFrequencies::new(dims, traditional, base, 1.0);
        let arguments = format!("{dims} dims, traditional {traditional}, base {base}, scaling {scaling:?}");
        let mut rope = Rope {
            dims,
            traditional,
            base,
            scale: 1.0,
            periods: None,
            attention_factor: 1.0,
            rotation,
            arguments,
        };
        let unscaled = |pair: usize| base.powf(2.0 * pair as f32 / dims as f32);
        let pairs = 0..dims / 2;
        let periods: Vec<f32> = match scaling {
            None => return Ok(rope),
            Some(RopeScaling::Linear(factor)) => {
                rope.scale = 1.0 / factor;
                rope.rotation = RotaryFrequencies::new(dims, traditional, base, rope.scale);
                return Ok(rope);
            }
            Some(RopeScaling::Factors(factors)) if factors.len() == dims / 2 => {
                pairs.map(|pair| unscaled(pair) * factors[pair]).collect()
            }
            Some(RopeScaling::Factors(factors)) => {
                let what = format!("expected {} rotation factors, found {}", dims / 2, factors.len());
                return Err(Error::InvalidArgument(what));
            }
            Some(RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context }) => {
                let scale =
                    |period| llama3(period, *factor, *low_freq_factor, *high_freq_factor, *original_context);
                pairs.map(|pair| scale(unscaled(pair))).collect()
            }
            Some(RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor }) => {
                rope.attention_factor = *attention_factor;
                let (low, high) = yarn_range(dims, base, *original_context, *beta_fast, *beta_slow);
                let interpolated = |pair: usize| {
                    let slowed = ((pair as f32 - low) / (high - low)).clamp(0.0, 1.0);
                    unscaled(pair) / (slowed / factor + (1.0 - slowed))
                };
                pairs.map(interpolated).collect()
            }
        };
        rope.rotation = RotaryFrequencies::with_periods(&periods, traditional, rope.scale);
        rope.periods = Some(Array::try_from_slice(&periods, &[periods.len()])?);
        Ok(rope)
    }

    /// The factor of queries and of keys.
    ///
    /// ```
    /// # use hesper as _;
    /// use hesper_nn::Rope;
    /// assert_eq!(Rope::new(8, false, 10000.0, None)?.attention_factor(), 1.0); // without a scaling
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn attention_factor(&self) -> f32 {
        self.attention_factor
    }

    /// The rotation for fused decode steps.
    pub(crate) fn rotation(&self) -> &RotaryFrequencies {
        &self.rotation
    }

    /// Rotates heads of shape (sequences, heads, tokens, head dimension). The first token is at position
    /// `offset`: one for all sequences, or an array with one for each.
    pub fn forward(&self, x: &Array, offset: impl Into<fast::Offset>) -> Result<Array> {
        let base = if self.periods.is_some() { None } else { Some(self.base) };
        Ok(fast::rope(x, self.dims, self.traditional, base, self.scale, offset, self.periods.as_ref())?)
    }
}

/// The range of pairs that YaRN interpolates: from the pair with `fast` turns in the original context to the
/// pair with `slow` turns.
fn yarn_range(dims: usize, base: f32, original: f32, fast: f32, slow: f32) -> (f32, f32) {
    let pair =
        |turns: f32| dims as f32 * (original / (turns * 2.0 * std::f32::consts::PI)).ln() / (2.0 * base.ln());
    let (low, high) = (pair(fast).floor().max(0.0), pair(slow).ceil().min(dims as f32 - 1.0));
    (low, if high == low { high + 0.001 } else { high })
}

fn llama3(period: f32, factor: f32, low: f32, high: f32, original: f32) -> f32 {
    let wavelength = 2.0 * std::f32::consts::PI * period;
    if wavelength < original / high {
        period
    } else if wavelength > original / low {
        period * factor
    } else {
        let smooth = (original / wavelength - low) / (high - low);
        period / ((1.0 - smooth) / factor + smooth)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn llama3_slows_slow_rotations_and_keeps_fast_ones() {
        let scaled = |period| llama3(period, 8.0, 1.0, 4.0, 8192.0);
        assert_eq!(scaled(10.0), 10.0);
        assert_eq!(scaled(1e5), 8e5);
        let between = scaled(600.0);
        assert!(between > 600.0 && between < 4800.0, "{between}");
    }

    /// Inverse frequencies and attention factors of `transformers` 5.22 for heads of 16 elements.
    #[test]
    fn frequencies_and_attention_factors_are_those_of_transformers() {
        let yarn = |original_context: f32, beta_fast: f32, beta_slow: f32, attention_factor: f32| {
            RopeScaling::Yarn { factor: 4.0, original_context, beta_fast, beta_slow, attention_factor }
        };
        let attention_factor = |mscale: f32| RopeScaling::yarn_attention_factor(4.0, mscale);
        let llama3 = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 8192.0,
        };
        let cases: [(f32, RopeScaling, [f32; 8], f32); 3] = [
            (
                1e4,
                yarn(32768.0, 32.0, 1.0, attention_factor(1.0)),
                [1.0, 0.31622776, 0.1, 0.03162278, 0.01, 0.002569351, 0.000625, 0.00013834966],
                1.1386294,
            ),
            (
                1e6,
                yarn(2048.0, 16.0, 2.0, attention_factor(0.7) / attention_factor(1.0)),
                [
                    1.0,
                    0.17782794,
                    0.019764237,
                    0.0014058533,
                    0.00025,
                    4.4456985e-5,
                    7.905694e-6,
                    1.4058534e-6,
                ],
                0.96347466,
            ),
            (
                5e5,
                llama3,
                [
                    1.0,
                    0.19392276,
                    0.03760603,
                    0.007292665,
                    0.000524846,
                    3.4281024e-5,
                    6.6478697e-6,
                    1.2891732e-6,
                ],
                1.0,
            ),
        ];
        for (base, scaling, steps, factor) in cases {
            let rope = Rope::new(16, false, base, Some(&scaling)).unwrap();
            let found = rope.attention_factor();
            assert!((found - factor).abs() < 1e-6, "{scaling:?}: {found}");
            let periods = rope.periods.unwrap().to_vec::<f32>().unwrap();
            for (period, step) in periods.iter().zip(steps) {
                assert!((period * step - 1.0).abs() < 1e-5, "{scaling:?}: {period} for {}", 1.0 / step);
            }
        }
    }
}

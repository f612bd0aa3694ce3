//! Rotary positions: pairs of numbers are turned by angles that grow with the position.

use hesper::{Array, fast};

use crate::error::{Error, Result};

/// How angles are changed for contexts longer than those of training.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// Positions are divided by a number.
    Linear(f32),
    /// Slow rotations are slowed down further, fast ones left as they are, and those in between blended.
    Llama3 {
        /// By how much slow rotations are slowed down.
        factor: f32,
        /// Rotations that turn fewer times in the original context are slow.
        low: f32,
        /// Those that turn more often are fast.
        high: f32,
        /// The context of training.
        original: f32,
    },
    /// The same by the number of the pair, and queries and keys are made a little longer.
    Yarn {
        /// By how much slow rotations are slowed down.
        factor: f32,
        /// The context of training.
        original: f32,
        /// Rotations that turn more often than this in it are fast.
        fast: f32,
        /// Those that turn less often are slow.
        slow: f32,
        /// What queries and keys are multiplied by; [`RopeScaling::yarn_gain`] where nothing else is known.
        gain: f32,
    },
    /// A number for every pair by which its rotation is slowed down.
    Factors(Vec<f32>),
}

impl RopeScaling {
    /// What YaRN multiplies queries and keys by for a factor: `0.1 weight ln(factor) + 1`.
    pub fn yarn_gain(factor: f32, weight: f32) -> f32 {
        if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
    }
}

/// Turns pairs of numbers of every head by their position.
#[derive(Debug, Clone)]
pub struct Rope {
    dims: usize,
    traditional: bool,
    base: f32,
    scale: f32,
    /// Positions for one radian of each pair, where they are no powers of the base.
    periods: Option<Array>,
    /// What queries and keys are multiplied by.
    gain: f32,
    turns: fast::Turns,
}

impl Rope {
    /// Turns the first `dims` numbers of a head. Pairs are neighbours if `traditional`, and `dims / 2` apart
    /// otherwise.
    pub fn new(dims: usize, traditional: bool, base: f32, scaling: Option<&RopeScaling>) -> Result<Self> {
        if dims == 0 || !dims.is_multiple_of(2) {
            return Err(Error::Setting(format!(
                "rotary positions need an even number of dimensions, not {dims}"
            )));
        }
        let turns = fast::Turns::new(dims, traditional, base, 1.0);
        let mut rope = Rope { dims, traditional, base, scale: 1.0, periods: None, gain: 1.0, turns };
        let own = |pair: usize| base.powf(2.0 * pair as f32 / dims as f32);
        let pairs = 0..dims / 2;
        let periods: Vec<f32> = match scaling {
            None => return Ok(rope),
            Some(RopeScaling::Linear(factor)) => {
                rope.scale = 1.0 / factor;
                rope.turns = fast::Turns::new(dims, traditional, base, rope.scale);
                return Ok(rope);
            }
            Some(RopeScaling::Factors(factors)) if factors.len() == dims / 2 => {
                pairs.map(|pair| own(pair) * factors[pair]).collect()
            }
            Some(RopeScaling::Factors(factors)) => {
                let given = factors.len();
                return Err(Error::Setting(format!("{given} rotation factors for {} pairs", dims / 2)));
            }
            Some(RopeScaling::Llama3 { factor, low, high, original }) => {
                pairs.map(|pair| llama3(own(pair), *factor, *low, *high, *original)).collect()
            }
            Some(RopeScaling::Yarn { factor, original, fast, slow, gain }) => {
                rope.gain = *gain;
                let (low, high) = yarn_range(dims, base, *original, *fast, *slow);
                let blend = |pair: usize| {
                    let slowed = ((pair as f32 - low) / (high - low)).clamp(0.0, 1.0);
                    own(pair) / (slowed / factor + (1.0 - slowed))
                };
                pairs.map(blend).collect()
            }
        };
        rope.turns = fast::Turns::with_periods(&periods, traditional, rope.scale);
        rope.periods = Some(Array::try_from_slice(&periods, &[periods.len()])?);
        Ok(rope)
    }

    /// What turned queries and keys are to be multiplied by, each.
    pub fn gain(&self) -> f32 {
        self.gain
    }

    /// The same for tokens whose heads lie side by side.
    pub fn turns(&self) -> &fast::Turns {
        &self.turns
    }

    /// Turns heads of shape (sequences, heads, tokens, width); the first token is at `offset`, which may
    /// be an array with a number for every sequence.
    pub fn forward(&self, x: &Array, offset: impl Into<fast::Offset>) -> Result<Array> {
        let base = if self.periods.is_some() { None } else { Some(self.base) };
        Ok(fast::rope(x, self.dims, self.traditional, base, self.scale, offset, self.periods.as_ref())?)
    }
}

/// The pairs between which rotations become slow: those that turn `fast` and `slow` times in the context of training.
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
    fn slow_rotations_are_slowed_and_fast_ones_kept() {
        let scaled = |period| llama3(period, 8.0, 1.0, 4.0, 8192.0);
        assert_eq!(scaled(10.0), 10.0);
        assert_eq!(scaled(1e5), 8e5);
        let between = scaled(600.0);
        assert!(between > 600.0 && between < 4800.0, "{between}");
    }

    /// What `transformers` 5.22 computes for heads of 16 numbers: by how much angles grow, and the gain.
    #[test]
    fn angles_and_gains_are_those_of_transformers() {
        let yarn = |original: f32, fast: f32, slow: f32, gain: f32| RopeScaling::Yarn {
            factor: 4.0,
            original,
            fast,
            slow,
            gain,
        };
        let gain = |weight: f32| RopeScaling::yarn_gain(4.0, weight);
        let llama3 = RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192.0 };
        let cases: [(f32, RopeScaling, [f32; 8], f32); 3] = [
            (
                1e4,
                yarn(32768.0, 32.0, 1.0, gain(1.0)),
                [1.0, 0.31622776, 0.1, 0.03162278, 0.01, 0.002569351, 0.000625, 0.00013834966],
                1.1386294,
            ),
            (
                1e6,
                yarn(2048.0, 16.0, 2.0, gain(0.7) / gain(1.0)),
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
        for (base, scaling, steps, gain) in cases {
            let rope = Rope::new(16, false, base, Some(&scaling)).unwrap();
            assert!((rope.gain() - gain).abs() < 1e-6, "{scaling:?}: {}", rope.gain());
            let periods = rope.periods.unwrap().to_vec::<f32>().unwrap();
            for (period, step) in periods.iter().zip(steps) {
                assert!((period * step - 1.0).abs() < 1e-5, "{scaling:?}: {period} for {}", 1.0 / step);
            }
        }
    }
}

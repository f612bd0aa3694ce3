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
    let pair = |turns: f32| {
        dims as f32 * (original / (turns * 2.0 * std::f32::consts::PI)).ln() / (2.0 * base.ln())
    };
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
}

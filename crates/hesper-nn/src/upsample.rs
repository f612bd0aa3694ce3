//! Resizing of signals, images and volumes, channels last.
//!
//! Linear and cubic interpolation are separable: each spatial axis is resized on its own, as a weighted sum
//! of rows gathered from the input.

use hesper_core::{Array, Dtype};

use crate::error::{Error, Result};
use crate::module::Module;

/// How new elements are interpolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpolation {
    /// The nearest element.
    Nearest,
    /// A weighted sum of two neighbours.
    Linear,
    /// A weighted sum of four neighbours.
    Cubic,
}

crate::settings!(Interpolation);

/// Resizes the spatial axes of an array of shape (batch, spatial axes ..., channels).
///
/// ```
/// use hesper::{Array, Dtype};
/// use hesper_nn::{Interpolation, Upsample};
/// let x = Array::ones(&[1, 2, 3, 1], Dtype::Float32)?;
/// assert_eq!(Upsample::new(&[2.0, 2.0], Interpolation::Linear)?.forward(&x)?.shape(), [1, 4, 6, 1]);
/// # Ok::<(), hesper_nn::Error>(())
/// ```
#[derive(Module, Clone)]
pub struct Upsample {
    scales: Vec<f64>,
    mode: Interpolation,
    align_corners: bool,
    antialias: bool,
}

impl Upsample {
    /// A layer with one scale for all spatial axes, or one for each.
    pub fn new(scales: &[f64], mode: Interpolation) -> Result<Self> {
        if scales.is_empty() || !scales.iter().all(|scale| *scale > 0.0 && scale.is_finite()) {
            let what =
                format!("cannot resize by {scales:?}; give one positive scale, or one for each spatial axis");
            return Err(Error::argument(what));
        }
        Ok(Upsample { scales: scales.to_vec(), mode, align_corners: false, antialias: false })
    }

    /// Aligns the first and the last elements of input and output.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// use hesper_nn::{Interpolation, Upsample};
    /// let x = Array::arange(0.0..2.0, Some(Dtype::Float32))?.reshape(&[1, 2, 1])?;
    /// let layer = Upsample::new(&[1.5], Interpolation::Linear)?.with_align_corners()?;
    /// assert_eq!(layer.forward(&x)?.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn with_align_corners(self) -> Result<Self> {
        Upsample { align_corners: true, ..self }.checked()
    }

    /// Widens the filters along axes that shrink.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// use hesper_nn::{Interpolation, Upsample};
    /// let x = Array::ones(&[1, 8, 8, 3], Dtype::Float32)?;
    /// let smaller = Upsample::new(&[0.5, 0.5], Interpolation::Linear)?.with_antialias()?;
    /// assert_eq!(smaller.forward(&x)?.shape(), [1, 4, 4, 3]);
    /// # Ok::<(), hesper_nn::Error>(())
    /// ```
    pub fn with_antialias(self) -> Result<Self> {
        Upsample { antialias: true, ..self }.checked()
    }

    fn checked(self) -> Result<Self> {
        if self.antialias && (self.align_corners || self.mode == Interpolation::Nearest) {
            let what =
                "cannot antialias with aligned corners or the nearest element; use linear or cubic alone";
            return Err(Error::argument(what));
        }
        Ok(self)
    }

    /// Applies the layer.
    pub fn forward(&self, x: &Array) -> Result<Array> {
        let spatial = x.ndim().saturating_sub(2);
        let scales = match &self.scales[..] {
            [all] => vec![*all; spatial],
            each => each.to_vec(),
        };
        if spatial == 0 || scales.len() != spatial {
            return Err(Error::argument(format!(
                "cannot resize an input of shape {:?} by {:?}; it needs a batch axis, a spatial axis for each scale and \
                 channels",
                x.shape(),
                self.scales
            )));
        }
        let mut x = x.clone();
        for (at, scale) in scales.into_iter().enumerate() {
            let axis = at + 1;
            let taps = self.taps(x.shape()[axis], scale);
            let mut shape = vec![1isize; x.ndim()];
            shape[axis] = -1;
            let mut sum: Option<Array> = None;
            for Tap { rows, weights } in taps {
                let mut part = x.take(Array::from_slice(&rows), Some(axis as isize))?;
                if let Some(weights) = weights {
                    let weights = Array::from_slice(&weights).astype(match x.dtype() {
                        Dtype::Float16 | Dtype::Bfloat16 => Dtype::Float32,
                        other => other,
                    })?;
                    part = part.multiply(weights.reshape(&shape)?)?;
                }
                sum = Some(match sum {
                    Some(sum) => sum.add(&part)?,
                    None => part,
                });
            }
            x = sum.unwrap_or(x);
        }
        Ok(x)
    }

    fn taps(&self, size: usize, scale: f64) -> Vec<Tap> {
        match self.mode {
            Interpolation::Nearest => vec![nearest(size, scale)],
            Interpolation::Linear if self.antialias => antialiased(size, scale, 1.0, |d| (1.0 - d).max(0.0)),
            Interpolation::Cubic if self.antialias => antialiased(size, scale, 2.0, |d| cubic(d, -0.5)),
            Interpolation::Linear => {
                let at = |p: &f32| p.clamp(0.0, size.saturating_sub(1) as f32);
                let positions: Vec<f32> = positions(size, scale, self.align_corners).iter().map(at).collect();
                let weights: Vec<f32> = positions.iter().map(|p| p - p.floor()).collect();
                vec![
                    Tap::new(size, positions.iter().map(|p| p.floor()), weights.iter().map(|w| 1.0 - w)),
                    Tap::new(size, positions.iter().map(|p| p.ceil()), weights.iter().copied()),
                ]
            }
            Interpolation::Cubic => {
                let positions = positions(size, scale, self.align_corners);
                let tap = |offset: i32| {
                    let rows = positions.iter().map(move |p| p.floor() + offset as f32);
                    let distances = positions.iter().map(move |p| (p - (p.floor() + offset as f32)).abs());
                    Tap::new(size, rows, distances.map(|distance| cubic(distance, -0.75)))
                };
                (-1..=2).map(tap).collect()
            }
        }
    }
}

/// The rows to gather for one tap of a filter, and their weights.
struct Tap {
    rows: Vec<i32>,
    weights: Option<Vec<f32>>,
}

impl Tap {
    fn new(size: usize, rows: impl Iterator<Item = f32>, weights: impl Iterator<Item = f32>) -> Self {
        let last = size.saturating_sub(1) as f32;
        Tap { rows: rows.map(|row| row.clamp(0.0, last) as i32).collect(), weights: Some(weights.collect()) }
    }
}

/// The positions in the input of the rows of the output.
fn positions(size: usize, scale: f64, align_corners: bool) -> Vec<f32> {
    let out = (scale * size as f64) as usize;
    let rows = (0..out).map(|row| row as f32);
    if align_corners {
        let step = if out > 1 { (size as f64 - 1.0) / (out as f64 - 1.0) } else { 0.0 };
        return rows.map(|row| row * step as f32).collect();
    }
    let step = 1.0 / scale;
    let start = ((out as f64 - 1.0) * step - size as f64 + 1.0) / 2.0;
    rows.map(|row| row * step as f32 - start as f32).collect()
}

fn nearest(size: usize, scale: f64) -> Tap {
    let out = (scale * size as f64) as usize;
    let ratio = (size as f64 / out.max(1) as f64) as f32;
    let row = |row: usize| match out > size {
        true => ((row as f32 + 0.5) * ratio - 0.5).round_ties_even() as i32,
        false => (row as f32 * ratio) as i32,
    };
    Tap { rows: (0..out).map(row).collect(), weights: None }
}

/// The weight of an element at distance `d` in cubic interpolation.
fn cubic(d: f32, a: f32) -> f32 {
    if d <= 1.0 {
        ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    } else if d < 2.0 {
        (((d - 5.0) * d + 8.0) * d - 4.0) * a
    } else {
        0.0
    }
}

/// Taps of a filter that is stretched if the axis shrinks. Rows outside the input have weight zero; the other
/// weights sum to one.
fn antialiased(size: usize, scale: f64, support: f64, kernel: impl Fn(f32) -> f32) -> Vec<Tap> {
    let positions = positions(size, scale, false);
    let stretch = (1.0 / scale).max(1.0);
    let reach = (support * stretch).ceil() as i32;
    let weight = |position: f32, offset: i32| {
        let row = position.floor() + offset as f32;
        let inside = row >= 0.0 && row < size as f32;
        if inside { kernel((position - row).abs() / stretch as f32) } else { 0.0 }
    };
    let total = |position: f32| match (-reach..=reach).map(|offset| weight(position, offset)).sum::<f32>() {
        total if total > 0.0 => total,
        _ => 1.0,
    };
    let tap = |offset: i32| {
        let rows = positions.iter().map(move |p| p.floor() + offset as f32);
        Tap::new(size, rows, positions.iter().map(|p| weight(*p, offset) / total(*p)))
    };
    (-reach..=reach).map(tap).collect()
}

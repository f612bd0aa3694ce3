//! Affine codes of one group of numbers.

use crate::simd::Float;

/// Quantizes a group, and returns its scale and bias: the element farthest from zero, and zero itself, are
/// represented exactly.
pub(crate) fn affine_group<T: Float>(x: &[T], bits: usize, codes: &mut [u8]) -> (f32, f32) {
    let bins = ((1 << bits) - 1) as f32;
    let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
    for v in x {
        low = low.min(v.to_f32());
        high = high.max(v.to_f32());
    }
    if bits == 1 {
        // With two codes both ends are represented exactly, and zero is not.
        let scale = (high - low).max(1e-7);
        for (c, v) in codes.iter_mut().zip(x) {
            *c = ((v.to_f32() - low) / scale).round_ties_even().clamp(0.0, bins) as u8;
        }
        return (scale, low);
    }
    let from_low = low.abs() > high.abs();
    let scale = ((high - low) / bins).max(1e-7);
    let scale = if from_low { scale } else { -scale };
    let edge = if from_low { low } else { high };
    let steps = (edge / scale).round_ties_even();
    let (scale, bias) = if steps == 0.0 { (scale, 0.0) } else { (edge / steps, edge) };
    for (c, v) in codes.iter_mut().zip(x) {
        *c = ((v.to_f32() - bias) / scale).round_ties_even().clamp(0.0, bins) as u8;
    }
    (scale, bias)
}

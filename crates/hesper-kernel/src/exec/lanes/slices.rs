//! Ops on slices of doubles, for hand-written kernels.

use super::{BLOCK, unary};
use crate::exec::level::SimdLevel;
use crate::ir::{Scalar, UnaryOp};

/// Applies an op to every element, with the bits that a kernel gives; an op that does not take floats changes
/// nothing.
pub fn map_doubles(op: UnaryOp, row: &mut [f64]) {
    let Some((f, _)) = unary(op, Scalar::F64, SimdLevel::detect()) else { return };
    let blocks = row.len() / BLOCK;
    let (whole, rest) = row.split_at_mut(blocks * BLOCK);
    let mut last = [0.0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    for (numbers, blocks) in [(whole, blocks), (&mut last, 1)] {
        let at: *mut u8 = numbers.as_mut_ptr().cast();
        // SAFETY: the function is for an available level, and the slice holds so many blocks of doubles,
        // which are operand and destination in one.
        unsafe { f(at, at, BLOCK * size_of::<f64>(), blocks) };
    }
    rest.copy_from_slice(&last[..rest.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::double;

    #[test]
    fn slices_of_every_length_are_mapped() {
        for n in [0, 1, 31, 32, 33, 70] {
            let x: Vec<f64> = (0..n).map(|i| f64::from(i) * 0.37 - 9.0).collect();
            let mut y = x.clone();
            map_doubles(UnaryOp::Exp, &mut y);
            let want: Vec<f64> = x.iter().map(|x| double::exp(*x)).collect();
            assert_eq!(y, want);
            map_doubles(UnaryOp::PopCount, &mut y);
            assert_eq!(y, want);
        }
    }
}

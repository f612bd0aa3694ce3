//! The derivative of RMS norm and layer norm, computed in `f32` and rounded once.
//!
//! Rows are taken in blocks. A block adds its rows' shares of the cotangents of weight and bias; the sums of
//! the blocks are added in order. Blocks depend on the number of rows alone, so results do not depend on the
//! number of threads.

use crate::error::{Mismatch, multiple, same};
use crate::par::{Par, Shared, chunks};
use crate::scratch::Scratch;
use crate::simd::{Float, Isa, Kernel, dispatch, load_lanes, store_lanes};

/// Fewest rows of a block.
const MIN_BLOCK_ROWS: usize = 16;
/// Most blocks: the memory of their sums is bounded.
const MAX_BLOCKS: usize = 64;
/// The widest vector: buffers are padded to its lanes.
const MAX_LANES: usize = 16;
/// Columns of weight and bias that a task adds up.
const COLUMNS: usize = 1024;

/// The inputs of the derivative of a norm.
#[derive(Clone, Copy, Debug)]
pub struct NormGradientInputs<'a, T> {
    /// Rows of the norm.
    pub x: &'a [T],
    /// The weight of the norm.
    pub weight: Option<&'a [T]>,
    /// The cotangent of the result.
    pub cotangent: &'a [T],
    /// Elements of a row.
    pub n: usize,
    /// What is added to the variance or to the mean of squares.
    pub eps: f32,
    /// Whether the mean of a row is subtracted: a layer norm.
    pub centred: bool,
}

/// The cotangents of rows, and of weight and bias where they are asked for.
pub fn norm_gradient<T: Float>(
    par: &dyn Par,
    inputs: NormGradientInputs<'_, T>,
    dx: &mut [T],
    vectors: [Option<&mut [T]>; 2],
) -> Result<(), Mismatch> {
    let NormGradientInputs { x, weight, cotangent, n, .. } = inputs;
    multiple("elements of the input", n, x.len())?;
    same("elements of the cotangent", x.len(), cotangent.len())?;
    same("elements of the result", x.len(), dx.len())?;
    for length in
        [weight.map(<[T]>::len), vectors[0].as_ref().map(|v| v.len()), vectors[1].as_ref().map(|v| v.len())]
    {
        same("elements of weight or bias", n, length.unwrap_or(n))?;
    }
    let rows = x.len().checked_div(n).unwrap_or(0);
    let block_rows = rows.div_ceil(MAX_BLOCKS).max(MIN_BLOCK_ROWS);
    let blocks = rows.div_ceil(block_rows);
    let padded = n.next_multiple_of(MAX_LANES);
    let summed = vectors.iter().any(Option::is_some);
    let mut sums = vec![0.0f32; if summed { blocks * 2 * padded } else { 0 }];
    let (to, all, simd) = (Shared::new(dx.as_mut_ptr()), Shared::new(sums.as_mut_ptr()), par.simd());
    chunks(par, rows, block_rows, |first, end| {
        let sums = summed.then(|| all.get().wrapping_add(first / block_rows * 2 * padded));
        dispatch(simd, Block { inputs: &inputs, first, end, padded, to, sums });
    });
    for (at, vector) in vectors.into_iter().enumerate() {
        let Some(vector) = vector else { continue };
        let to = Shared::new(vector.as_mut_ptr());
        chunks(par, n, COLUMNS, |first, end| {
            // SAFETY: the task's own elements.
            let to = unsafe { to.slice(first, end - first) };
            for (j, to) in to.iter_mut().enumerate() {
                let shares = sums.chunks_exact(padded).skip(at).step_by(2);
                *to = T::from_f32(shares.fold(0.0, |sum, share| sum + share[first + j]));
            }
        });
    }
    Ok(())
}

/// Rows `first..end`; their sums for weight and bias are `padded` elements each.
struct Block<'a, T> {
    inputs: &'a NormGradientInputs<'a, T>,
    first: usize,
    end: usize,
    padded: usize,
    to: Shared<T>,
    sums: Option<*mut f32>,
}

impl<T: Float> Kernel for Block<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let Block { inputs, first, end, padded, to, sums } = self;
        let NormGradientInputs { x, weight, cotangent, n, eps, centred } = *inputs;
        let buffer = Scratch::<f32>::new(2 * padded);
        // SAFETY: the buffer has `2 * padded` elements, of which those past a row stay zero.
        let (distances, weighted) = unsafe {
            buffer.ptr().write_bytes(0, 2 * padded);
            (buffer.ptr(), buffer.ptr().add(padded))
        };
        let length = n as f32;
        for row in first..end {
            let (x, g) = (&x[row * n..][..n], &cotangent[row * n..][..n]);
            // SAFETY: loads and stores of `m` elements at `j` end at `n`, whole vectors lie in the padded
            // buffers, and the rows of a block are its own.
            unsafe {
                let shift = s.splat(if centred { sum(s, x) / length } else { 0.0 });
                let (mut squares, mut along, mut total) = (s.zero(), s.zero(), s.zero());
                for j in (0..n).step_by(S::LANES) {
                    let m = (n - j).min(S::LANES);
                    store_lanes(s, distances.add(j), s.sub(load_lanes(s, x.as_ptr().add(j), m), shift), m);
                    let mut by = load_lanes(s, g.as_ptr().add(j), m);
                    if let Some(weight) = weight {
                        by = s.mul(by, load_lanes(s, weight.as_ptr().add(j), m));
                    }
                    s.store(weighted.add(j), by);
                    let distance = s.load(distances.add(j));
                    squares = s.fma(distance, distance, squares);
                    along = s.fma(by, distance, along);
                    total = s.add(total, by);
                }
                let scale = 1.0 / (s.reduce_add(squares) / length + eps).sqrt();
                let along = s.splat(scale * scale * (s.reduce_add(along) / length));
                let mean = s.splat(if centred { s.reduce_add(total) / length } else { 0.0 });
                let scale = s.splat(scale);
                for j in (0..n).step_by(S::LANES) {
                    let m = (n - j).min(S::LANES);
                    let distance = s.load(distances.add(j));
                    let rest = s.sub(s.sub(s.load(weighted.add(j)), mean), s.mul(distance, along));
                    store_lanes(s, to.get().add(row * n + j), s.mul(rest, scale), m);
                    if let Some(sums) = sums {
                        let (g, by) = (load_lanes(s, g.as_ptr().add(j), m), sums.add(j));
                        s.store(by, s.fma(g, s.mul(distance, scale), s.load(by)));
                        s.store(by.add(padded), s.add(g, s.load(by.add(padded))));
                    }
                }
            }
        }
    }
}

/// The sum of a row.
///
/// # Safety
/// The level of `s` was detected.
#[inline(always)]
unsafe fn sum<S: Isa, T: Float>(s: S, row: &[T]) -> f32 {
    let mut sums = [s.zero(); 4];
    let vectors = row.len() / S::LANES;
    for at in 0..vectors {
        // SAFETY: whole vectors of the row.
        let v = unsafe { T::load(s, row.as_ptr().add(at * S::LANES)) };
        sums[at % 4] = s.add(sums[at % 4], v);
    }
    let rest = &row[vectors * S::LANES..];
    let rest = rest.iter().fold(0.0, |sum, x| sum + x.to_f32());
    s.reduce_add(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))) + rest
}

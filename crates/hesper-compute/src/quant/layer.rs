//! The steps between two linear layers of a decoder, fused: a norm before the products, and after them the
//! residual add, or SwiGLU.
//!
//! A decode step of one token is a few hundred small products. A separate command for each pass over the
//! activations would cost as much as a product.

use super::columns::QuantColumns;
use hesper_types::math::sigmoid;

use super::gguf::{GgufMat, MAX_TILED_ROWS};
use super::gguf_dot::Tiles;
use super::int8::{self, ByteCodes, Rounded};
use super::{Activations, f32_panels, gguf_matmul};
use crate::error::{Mismatch, same};
use crate::mat::{MatMut, MatRef};
use crate::par::{Par, Shared, chunks, grain};
use crate::rows::norm::rms_norm;
use crate::scratch::Scratch;
use crate::simd::{Isa, Kernel, dispatch};

/// The epilogue of the products.
#[derive(Clone, Copy, Debug)]
pub enum LayerEpilogue<'a> {
    /// None; the products with the matrices are concatenated.
    Plain,
    /// Concatenated, then this residual of the shape of the result is added.
    AddResidual(&'a [f32]),
    /// `g * sigmoid(g) * u` for the products `g` with the first matrix and `u` with the second.
    SiluGate,
}

/// Products of rows with transposed matrices: `y = end(norm(x) w^T)`. Rows of `x` have the length of those of
/// the matrices; `norm` is the weight of an RMS norm and its epsilon.
///
/// A row has the same result alone and in a batch of up to 64, or of any size with rounded activations.
/// Products are those of [`gguf_matmul`].
pub fn gguf_layer(
    par: &dyn Par,
    x: &[f32],
    norm: Option<(&[f32], f32)>,
    matrices: &[GgufMat<'_>],
    end: LayerEpilogue<'_>,
    activations: Activations,
    y: &mut [f32],
) -> Result<(), Mismatch> {
    let Some(first) = matrices.first() else { return same("elements of the result", 0, y.len()) };
    let k = first.cols;
    for w in matrices {
        same("columns of the matrices", k, w.cols)?;
    }
    let gated = matches!(end, LayerEpilogue::SiluGate);
    if gated {
        same("matrices of a gate", 2, matrices.len())?;
        same("rows of the gated matrix", first.rows, matrices[1].rows)?;
    }
    let n = if gated { first.rows } else { matrices.iter().map(|w| w.rows).sum() };
    let m = x.len().checked_div(k).unwrap_or(0);
    same("elements of the activations", m * k, x.len())?;
    same("elements of the result", m * n, y.len())?;
    if let LayerEpilogue::AddResidual(other) = end {
        same("elements of the residual", y.len(), other.len())?;
    }
    if m == 0 || n == 0 {
        return Ok(());
    }
    let normed = Scratch::<f32>::new(if norm.is_some() { m * k } else { 0 });
    let x = match norm {
        None => x,
        Some((weight, eps)) => {
            // SAFETY: the buffer has that many elements, and the norm writes all of them.
            let to = unsafe { std::slice::from_raw_parts_mut(normed.ptr(), m * k) };
            rms_norm(par, &x, k, Some(weight), eps, to)?;
            to
        }
    };
    let x = MatRef::row_major(x, m, k)?;
    if activations == Activations::Int8 {
        if let Some(codes) = matrices.iter().map(ByteCodes::of_blocks).collect::<Option<Vec<_>>>() {
            rounded(par, x, matrices, &codes, end, y);
            return Ok(());
        }
        return each_product(par, m, matrices, end, y, |w, to| gguf_matmul(par, x, w, to, activations));
    }
    if m <= MAX_TILED_ROWS {
        few_rows(par, x, matrices, end, y);
        return Ok(());
    }
    each_product(par, m, matrices, end, y, |w, to| {
        f32_panels(par, x, QuantColumns::Blocks(*w), &to);
        Ok(())
    })
}

/// The products of rounded rows, a few rows of the matrices at a time.
fn rounded(
    par: &dyn Par,
    x: MatRef<'_, f32>,
    matrices: &[GgufMat<'_>],
    codes: &[ByteCodes<'_>],
    end: LayerEpilogue<'_>,
    y: &mut [f32],
) {
    let simd = par.simd();
    let m = x.rows;
    let n = y.len() / m;
    // Round the activations once for each rounding that the matrices need.
    let mut inputs: Vec<Rounded> = Vec::with_capacity(1);
    let mut which = Vec::with_capacity(matrices.len());
    for ByteCodes { rounding, .. } in codes {
        let rounding = *rounding;
        let known = inputs.iter().position(|x| x.rounding == rounding);
        which.push(known.unwrap_or_else(|| {
            inputs.push(Rounded::of(par, x, rounding));
            inputs.len() - 1
        }));
    }
    let to = Shared::new(y.as_mut_ptr());
    let chunk = int8::task_rows(par, n, &inputs[0]);
    let LayerEpilogue::SiluGate = end else {
        return chunks(par, n, chunk, |j0, j1| {
            let mut begin = 0;
            for ((w, codes), which) in matrices.iter().zip(codes).zip(&which) {
                let (from, until) = (j0.clamp(begin, begin + w.rows), j1.clamp(begin, begin + w.rows));
                int8::times(
                    simd,
                    &inputs[*which],
                    codes,
                    from - begin,
                    until - begin,
                    &mut |i, j, values| {
                        let at = i * n + begin + j;
                        // SAFETY: in the result, and this task alone writes it.
                        let part = unsafe { to.slice(at, values.len()) };
                        part.copy_from_slice(values);
                        if let LayerEpilogue::AddResidual(other) = end {
                            part.iter_mut().zip(&other[at..]).for_each(|(y, x)| *y += x);
                        }
                    },
                );
                begin += w.rows;
            }
        });
    };
    chunks(par, n, chunk, |j0, j1| {
        let (gates, up) = (Scratch::<f32>::new(WIDE_PIECE * m), Scratch::<f32>::new(WIDE_PIECE * m));
        let mut j = j0;
        while j < j1 {
            let until = (j + WIDE_PIECE).min(j1);
            for ((codes, which), to) in codes.iter().zip(&which).zip([gates.ptr(), up.ptr()]) {
                int8::times(simd, &inputs[*which], codes, j, until, &mut |i, at, values| {
                    let to = to.wrapping_add(i * WIDE_PIECE + at - j);
                    // SAFETY: a part of row `i` of the piece.
                    unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len()) };
                });
            }
            for i in 0..m {
                let (gate, up) =
                    (gates.ptr().wrapping_add(i * WIDE_PIECE), up.ptr().wrapping_add(i * WIDE_PIECE));
                // In the result, and this task alone writes it.
                let to = to.get().wrapping_add(i * n + j);
                dispatch(simd, Gate { gate, up, to, count: until - j });
            }
            j = until;
        }
    });
}

/// [`PIECE`] for rounded activations, which read rows of weights by panels.
const WIDE_PIECE: usize = 32;

/// The products of a few unrounded rows, some rows of the matrices at a time.
fn few_rows(
    par: &dyn Par,
    x: MatRef<'_, f32>,
    matrices: &[GgufMat<'_>],
    end: LayerEpilogue<'_>,
    y: &mut [f32],
) {
    let simd = par.simd();
    let (m, k) = (x.rows, x.cols);
    let n = y.len() / m;
    let x = &Tiles::of(simd, x);
    let to = Shared::new(y.as_mut_ptr());
    let LayerEpilogue::SiluGate = end else {
        let chunk = grain(par, n, (16384 / k / m).max(1));
        return chunks(par, n, chunk, |j0, j1| {
            let mut begin = 0;
            for w in matrices {
                let (from, until) = (j0.clamp(begin, begin + w.rows), j1.clamp(begin, begin + w.rows));
                x.times(simd, w, from - begin, until - begin, &mut |j, sums| {
                    for (i, sum) in sums.iter().enumerate() {
                        let at = i * n + begin + j;
                        let y =
                            if let LayerEpilogue::AddResidual(other) = end { sum + other[at] } else { *sum };
                        // SAFETY: in the result, and this task alone writes it.
                        unsafe { *to.get().add(at) = y };
                    }
                });
                begin += w.rows;
            }
        });
    };
    let chunk = grain(par, n, (8192 / k / m).max(1));
    chunks(par, n, chunk, |j0, j1| {
        let (gates, up) = (Scratch::<f32>::new(PIECE * m), Scratch::<f32>::new(PIECE * m));
        let mut j = j0;
        while j < j1 {
            let until = (j + PIECE).min(j1);
            for (w, to) in matrices.iter().zip([gates.ptr(), up.ptr()]) {
                x.times(simd, w, j, until, &mut |row, sums| {
                    // SAFETY: a row of the piece.
                    unsafe { std::ptr::copy_nonoverlapping(sums.as_ptr(), to.add((row - j) * m), m) };
                });
            }
            let count = (until - j) * m;
            dispatch(simd, Gate { gate: gates.ptr(), up: up.ptr(), to: gates.ptr(), count });
            for row in 0..until - j {
                for i in 0..m {
                    // SAFETY: in the result, and this task alone writes it.
                    unsafe { *to.get().add(i * n + j + row) = *gates.ptr().add(row * m + i) };
                }
            }
            j = until;
        }
    });
}

/// Rows of the matrices whose gates are computed before they are applied.
const PIECE: usize = 16;

/// One product after the other, then the epilogue.
fn each_product(
    par: &dyn Par,
    m: usize,
    matrices: &[GgufMat<'_>],
    end: LayerEpilogue<'_>,
    y: &mut [f32],
    product: impl Fn(&GgufMat<'_>, MatMut<'_, f32>) -> Result<(), Mismatch>,
) -> Result<(), Mismatch> {
    let n = y.len() / m;
    let gated = matches!(end, LayerEpilogue::SiluGate);
    let gates = Scratch::<f32>::new(if gated { y.len() } else { 0 });
    let mut begin = 0;
    for (number, w) in matrices.iter().enumerate() {
        let to = if gated && number == 0 { gates.ptr() } else { y.as_mut_ptr().wrapping_add(begin) };
        // SAFETY: columns of the result that no other task writes.
        product(w, unsafe { MatMut::from_raw(to, m, w.rows, n as isize, 1) })?;
        begin += if gated { 0 } else { w.rows };
    }
    let simd = par.simd();
    let (to, gates) = (Shared::new(y.as_mut_ptr()), Shared::new(gates.ptr()));
    let size = m * n;
    match end {
        LayerEpilogue::Plain => {}
        LayerEpilogue::AddResidual(other) => chunks(par, size, grain(par, size, 1 << 14), |a, b| {
            // SAFETY: this task's part of the result.
            let part = unsafe { to.slice(a, b - a) };
            part.iter_mut().zip(&other[a..b]).for_each(|(y, x)| *y += x);
        }),
        LayerEpilogue::SiluGate => chunks(par, size, grain(par, size, 1 << 12), |a, b| {
            let (gate, up) = (gates.get().wrapping_add(a), to.get().wrapping_add(a));
            dispatch(simd, Gate { gate, up, to: up, count: b - a });
        }),
    }
    Ok(())
}

/// `to = g * sigmoid(g) * u`; `to` may alias either.
struct Gate {
    gate: *const f32,
    up: *const f32,
    to: *mut f32,
    count: usize,
}

impl Kernel for Gate {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        let mut i = 0;
        while i < self.count {
            let n = (self.count - i).min(PIECE);
            // Copies, which do not overlap: the loop over them is vectorized.
            let (mut g, mut u) = ([0.0f32; PIECE], [0.0f32; PIECE]);
            // SAFETY: the gate has `count` elements at each pointer.
            unsafe {
                std::ptr::copy_nonoverlapping(self.gate.add(i), g.as_mut_ptr(), n);
                std::ptr::copy_nonoverlapping(self.up.add(i), u.as_mut_ptr(), n);
            }
            for (g, u) in g.iter_mut().zip(&u) {
                *g = *g * sigmoid(*g) * u;
            }
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(g.as_ptr(), self.to.add(i), n) };
            i += n;
        }
    }
}

//! How a KV cache stores the rows of a head, and how kernels read them.

use std::marker::PhantomData;

use super::{Heads, Job};
use crate::affine_group::affine_group;
use crate::simd::{Float, Isa};

/// How a KV cache stores rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// As `f32`.
    F32,
    /// As `f16`.
    F16,
    /// As `bf16`.
    Bf16,
    /// As codes with a scale and a bias for each group, in 32-bit words: all codes, the first lowest, then
    /// all scales, then all biases.
    Affine {
        /// Bits of a code: 4 or 8.
        bits: usize,
        /// Codes of a group: a multiple of 32.
        group: usize,
    },
}

impl RowFormat {
    /// The bytes of a unit of storage.
    pub(super) fn unit(self) -> usize {
        match self {
            RowFormat::F32 | RowFormat::Affine { .. } => 4,
            RowFormat::F16 | RowFormat::Bf16 => 2,
        }
    }

    /// The units of a row of `width` elements.
    pub(super) fn units(self, width: usize) -> usize {
        match self {
            RowFormat::Affine { bits, group } => width * bits / 32 + 2 * (width / group),
            _ => width,
        }
    }

    /// Stores a row.
    pub(super) fn write(self, row: &[f32], to: &mut [u8]) {
        match self {
            RowFormat::F32 => {
                to.chunks_exact_mut(4).zip(row).for_each(|(to, x)| to.copy_from_slice(&x.to_ne_bytes()));
            }
            RowFormat::F16 => to.chunks_exact_mut(2).zip(row).for_each(|(to, x)| {
                to.copy_from_slice(&half::f16::from_f32(*x).to_ne_bytes());
            }),
            RowFormat::Bf16 => to.chunks_exact_mut(2).zip(row).for_each(|(to, x)| {
                to.copy_from_slice(&half::bf16::from_f32(*x).to_ne_bytes());
            }),
            RowFormat::Affine { bits, group } => {
                let (codes, numbers) = to.split_at_mut(row.len() * bits / 8);
                let (scales, biases) = numbers.split_at_mut(row.len() / group * 4);
                let numbers = scales.chunks_exact_mut(4).zip(biases.chunks_exact_mut(4));
                let groups = row.chunks_exact(group).zip(codes.chunks_exact_mut(group * bits / 8));
                let mut each = vec![0u8; group];
                for ((x, codes), (scale, bias)) in groups.zip(numbers) {
                    let (s, b) = affine_group(x, bits, &mut each);
                    scale.copy_from_slice(&s.to_ne_bytes());
                    bias.copy_from_slice(&b.to_ne_bytes());
                    match bits {
                        4 => codes.iter_mut().zip(each.chunks_exact(2)).for_each(|(to, two)| {
                            *to = two[0] | two[1] << 4;
                        }),
                        _ => codes.copy_from_slice(&each),
                    }
                }
            }
        }
    }
}

/// How kernels read the stored rows of keys or values.
pub(super) trait RowReader: Sync {
    /// The type of the elements that are read.
    type Element: Float;
    /// Whether rows are unpacked to a buffer first.
    const UNPACKS: bool;

    /// The address of the row at `place` (sequence, head, row), the distance to the next row, and how many
    /// rows from it on, at most `count`, can be read. Rows that are unpacked are written to `to`.
    ///
    /// # Safety
    /// The rows are valid, and `to` has room for `count` rows of `width` elements if rows are unpacked.
    unsafe fn read<S: Isa>(
        s: S,
        job: &Job<'_>,
        heads: &Heads<()>,
        place: (usize, usize, usize),
        count: usize,
        width: usize,
        to: *mut f32,
    ) -> (*const Self::Element, isize, usize);
}

/// Floats, read in place.
pub(super) struct Dense<K>(PhantomData<K>);

impl<K: Float> RowReader for Dense<K> {
    type Element = K;
    const UNPACKS: bool = false;

    #[inline(always)]
    unsafe fn read<S: Isa>(
        _: S,
        job: &Job<'_>,
        heads: &Heads<()>,
        (b, head, i): (usize, usize, usize),
        count: usize,
        _: usize,
        _: *mut f32,
    ) -> (*const K, isize, usize) {
        let (row, run) = job.run_of_rows::<K>(heads, b, head, i);
        (row, heads.strides[2], run.min(count))
    }
}

/// Codes of `BITS` bits, unpacked to `f32`.
pub(super) struct Affine<const BITS: usize>;

impl<const BITS: usize> RowReader for Affine<BITS> {
    type Element = f32;
    const UNPACKS: bool = true;

    #[inline(always)]
    unsafe fn read<S: Isa>(
        s: S,
        job: &Job<'_>,
        heads: &Heads<()>,
        (b, head, i): (usize, usize, usize),
        count: usize,
        width: usize,
        to: *mut f32,
    ) -> (*const f32, isize, usize) {
        let (first, run) = job.run_of_rows::<u32>(heads, b, head, i);
        let count = run.min(count);
        let (words, groups) = (width * BITS / 32, width / job.group);
        for at in 0..count {
            // SAFETY: the caller's promise; groups are whole vectors.
            unsafe {
                let row = first.offset(at as isize * heads.strides[2]);
                let (codes, scales) = (row.cast::<u8>(), row.add(words).cast::<f32>());
                let to = to.add(at * width);
                for g in 0..groups {
                    let (scale, bias) = (s.splat(*scales.add(g)), s.splat(*scales.add(groups + g)));
                    let mut e = g * job.group;
                    while e < (g + 1) * job.group {
                        s.store(to.add(e), s.fma(s.codes::<BITS>(codes.add(e * BITS / 8)), scale, bias));
                        e += S::LANES;
                    }
                }
            }
        }
        (to, width as isize, count)
    }
}

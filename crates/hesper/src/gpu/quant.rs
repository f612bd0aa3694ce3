//! Products with affine codes on GPUs: a few rows of activations on tensor cores straight from the codes,
//! many rows by decoding the matrix once.
//!
//! How a product with a few rows is cut up among blocks and warps depends on its shape alone, and so do the bits of its
//! result.

use hesper_cuda::CudaShared;

use super::matmul::{Matrices, Product, product};
use super::{Constants, kernel, type_name};
use crate::Dtype;
use crate::array::Data;
use crate::error::Result;
use crate::eval::Lowering;
use crate::ops::native::reach;
use crate::shape::Shape;

const TEXT: &str = include_str!("quant.cuh");
/// Rows of activations up to which codes are read in place.
const FEW: usize = 64;
/// Blocks that keep a large device busy, one for each multiprocessor.
const BUSY: usize = 132;

/// Codes of so many bits in groups of so many.
#[derive(Clone, Copy)]
pub(crate) struct Affine {
    pub(crate) bits: usize,
    pub(crate) group: usize,
}

fn floats(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32)
}

/// Codes row by row, the first at a multiple of sixteen bytes.
fn codes(l: &Lowering<'_>, at: usize) -> Result<Data> {
    let data = l.row_major(at)?;
    if data.offset % 4 == 0 {
        return Ok(data);
    }
    let shape = l.input_shape(at);
    Ok(Data::contiguous(super::copy::copy(l.stream(), &data, shape, 4)?, shape))
}

impl Affine {
    /// Whether there are kernels for the parts, which are inputs from `at` on.
    fn fits(self, l: &Lowering<'_>, at: usize) -> bool {
        let scales = l.input_dtype(at + 1);
        floats(l.dtype())
            && floats(scales)
            && l.input_dtype(at + 2) == scales
            && matches!(self.bits, 1..=6 | 8)
    }

    /// The numbers that codes stand for; codes, scales and biases are inputs from `at` on.
    pub(crate) fn decode(self, l: &mut Lowering<'_>, at: usize) -> Result<Option<Data>> {
        if !self.fits(l, at) {
            return Ok(None);
        }
        l.bring()?;
        let groups = l.input_shape(at + 1);
        let mut shape: Shape = groups.into();
        if let Some(last) = shape.last_mut() {
            *last *= self.group;
        }
        self.decoded(l, at, &shape).map(Some)
    }

    fn decoded(self, l: &Lowering<'_>, at: usize, shape: &[usize]) -> Result<Data> {
        let n: usize = shape.iter().product();
        let (of, scale) = (l.dtype(), l.input_dtype(at + 1));
        let parts = [codes(l, at)?, l.row_major(at + 1)?, l.row_major(at + 2)?];
        let output = l.stream().alloc(n * of.size())?;
        let mut command = l.stream().encode("dequantize");
        for (number, part) in parts.iter().enumerate() {
            let (bytes, _) = reach(part, l.input_shape(at + number), l.input_dtype(at + number).size());
            command = command.read_range(&part.buffer, bytes);
        }
        let command = command.write(&output);
        if n == 0 {
            command.run(|_| Ok(()))?;
            return Ok(Data::contiguous(output, shape));
        }
        let entry = format!("decoded<{}, {}, {}>", type_name(of), type_name(scale), self.bits);
        let pipeline = kernel(l.stream(), TEXT, &entry, "")?;
        let constants = Constants::default().long(n as i64).int(self.group as i32);
        let blocks = n.div_ceil(8 * 256) as u64;
        command.constants(constants.bytes()).dispatch(&pipeline, [blocks * 256, 1, 1], [256, 1, 1])?;
        Ok(Data::contiguous(output, shape))
    }

    /// The product of the first input with codes, scales and biases behind it, or with their transpose.
    pub(crate) fn lower(self, l: &mut Lowering<'_>, transpose: bool) -> Result<Option<Data>> {
        if !self.fits(l, 1) || l.shape().len() > 8 {
            return Ok(None);
        }
        l.bring()?;
        let rank = l.shape().len();
        let n = l.shape()[rank - 1];
        let m: usize = l.shape()[..rank - 1].iter().product();
        if transpose && l.input_shape(1).len() == 2 && (1..=FEW).contains(&m) {
            let size = |at: usize| l.input_dtype(at).size();
            let k = l.input_shape(0)[rank - 1];
            if size(0) == 2
                && let Some(most) = shared_memory(l)
                && let Some(cut) = Cut::new(self, size(2), [m, n, k], most)
            {
                return self.few(l, [m, n, k], &cut).map(Some);
            }
        }
        let mut whole: Shape = l.input_shape(2).into();
        if let Some(last) = whole.last_mut() {
            *last *= self.group;
        }
        let decoded = self.decoded(l, 1, &whole)?;
        let x = Matrices::new(l.input(0).clone(), l.input_shape(0), rank - 2);
        let (decoded, shape) = if transpose {
            let mut strides = decoded.strides.clone();
            strides.swap(rank - 2, rank - 1);
            whole.swap(rank - 2, rank - 1);
            (Data { strides, ..decoded }, whole)
        } else {
            (decoded, whole)
        };
        let w = Matrices::new(decoded, &shape, rank - 2);
        let what = Product { alpha: 1.0, beta: 0.0, added: None };
        product(l.stream(), l.shape(), l.dtype(), x, w, what).map(Some)
    }

    fn few(self, l: &Lowering<'_>, [m, n, k]: [usize; 3], cut: &Cut) -> Result<Data> {
        let (of, scale) = (l.dtype(), l.input_dtype(2));
        // Rows of activations are read in words of sixteen bytes.
        let given = l.input(0);
        let whole = |number: isize| number >= 0 && number % 8 == 0;
        let shape = l.input_shape(0);
        let lies = shape.len() == 2 && given.strides[1] == 1 && (whole(given.strides[0]) || m == 1);
        let x = if lies { given.clone() } else { l.row_major(0)? };
        let x = match whole(x.offset) {
            true => x,
            false => Data::contiguous(super::copy::copy(l.stream(), &x, shape, of.size())?, shape),
        };
        let step = if m == 1 || shape.len() != 2 { k as isize } else { x.strides[0] };
        let parts = [codes(l, 1)?, aligned(l, 2)?, aligned(l, 3)?];
        let output = l.output()?;
        let (bytes, _) = reach(&x, shape, of.size());
        let mut command = l.stream().encode("quantized_matmul").read_range(&x.buffer, bytes);
        for (number, part) in parts.iter().enumerate() {
            let (bytes, _) = reach(part, l.input_shape(1 + number), l.input_dtype(1 + number).size());
            command = command.read_range(&part.buffer, bytes);
        }
        let (of, scale) = (type_name(of), type_name(scale));
        let entry = format!("{}<{of}, {scale}, {}, {}, {}>", cut.kernel, self.bits, self.group, cut.numbers);
        let pipeline = kernel(l.stream(), TEXT, &entry, &format!("shared {}", cut.shared))?;
        let constants = Constants::default().long(m as i64).long(n as i64).long(k as i64).long(step as i64);
        let threads = cut.warps * 32;
        let grid = [(n.div_ceil(16 * cut.rows) * threads) as u64, cut.over as u64, 1];
        command.write(&output).constants(constants.bytes()).dispatch(
            &pipeline,
            grid,
            [threads as u64, 1, 1],
        )?;
        Ok(Data::contiguous(output, l.shape()))
    }
}

/// Scales or biases row by row, the first at a multiple of sixteen bytes.
fn aligned(l: &Lowering<'_>, at: usize) -> Result<Data> {
    let data = l.row_major(at)?;
    let size = l.input_dtype(at).size();
    if (data.offset as usize * size).is_multiple_of(16) {
        return Ok(data);
    }
    let shape = l.input_shape(at);
    Ok(Data::contiguous(super::copy::copy(l.stream(), &data, shape, size)?, shape))
}

/// Bytes of shared memory that a block may have, on devices whose tensor cores know brain floats.
fn shared_memory(l: &Lowering<'_>) -> Option<usize> {
    let shared = l.stream().runtime().extension().and_then(|shared| shared.downcast::<CudaShared>().ok())?;
    let properties = shared.properties();
    (properties.capability >= (8, 0)).then_some(properties.max_shared as usize)
}

/// How a product with a few rows of activations is cut up.
#[derive(Debug, PartialEq, Eq)]
struct Cut {
    kernel: &'static str,
    /// The kernel's numbers behind bits and group.
    numbers: String,
    /// Tiles of sixteen rows of codes in a block; warps; blocks one behind the other for more activations.
    rows: usize,
    warps: usize,
    over: usize,
    shared: usize,
}

impl Cut {
    /// For codes with scales of `size` bytes and a device's shared memory; none if the shape does not fit.
    fn new(affine: Affine, size: usize, [m, n, k]: [usize; 3], most: usize) -> Option<Cut> {
        let Affine { bits, group } = affine;
        if !matches!(bits, 2 | 4 | 8) || (bits == 2 && group == 32) || n < 16 {
            return None;
        }
        // Bytes that a stage of sixteen rows takes, with a step between rows that keeps lanes in different banks.
        let stage = |chunk: usize| {
            let (codes, one) = (chunk * bits / 8, group * bits / 8);
            let step = if one >= 128 || (codes / one) % 2 == 1 { codes } else { codes + one };
            16 * step + 32 * (chunk / group * size)
        };
        // Scales of a chunk are copied in words of four to sixteen bytes.
        let fits = |chunk: &usize| {
            k.is_multiple_of(*chunk)
                && chunk.is_multiple_of(group)
                && (4..=16).contains(&(chunk / group * size))
        };
        // As few rounds of blocks as possible, of which a larger one does more at once.
        let tiles = n.div_ceil(16);
        let rows = [8, 7, 4, 2, 1]
            .into_iter()
            .filter(|rows| 16 * rows <= n)
            .min_by_key(|rows| tiles.div_ceil(*rows).div_ceil(BUSY) * (rows + 1))?;
        if m <= 8 {
            let chunk = [1024 / bits, 256, 128].into_iter().find(fits)?;
            let x_rows = if m == 1 { 2 } else { 8 };
            let splits = match (rows, bits) {
                (1, _) => 16,
                (2, _) => 8,
                (4, _) => 4,
                (7, 8) => 4,
                (7, _) if m > 1 => 3,
                _ => 2,
            };
            let shared = |stages: usize| {
                let all = rows * splits * stages * stage(chunk) + x_rows * (2 * k + 16) + k / group * 32;
                all.max(splits * 16 * rows * 9 * 4)
            };
            if let Some(stages) = [3, 2, 1].into_iter().find(|stages| shared(*stages) <= most) {
                let numbers = format!("{rows}, {splits}, {stages}, {chunk}, {x_rows}");
                let (warps, shared) = (rows * splits, shared(stages));
                return Some(Cut { kernel: "slim", numbers, rows, warps, over: 1, shared });
            }
        }
        let rows = rows.min(7);
        let chunk = [128, 256].into_iter().find(fits)?;
        let tiles = match m {
            0..=8 => 1,
            9..=16 => 2,
            _ if chunk > 128 => 2,
            _ => 4,
        };
        let warps = if tiles == 1 && chunk == 128 { 12 } else { 8 };
        let columns = 8 * tiles;
        let shared = |depth: usize| {
            let one = depth * stage(chunk) + columns * (chunk * 2 + 16) + chunk / group * columns * 4;
            (warps * one).max(warps * 16 * rows * (columns + 1) * 4)
        };
        let depth = [8, 6, 4, 2].into_iter().find(|depth| shared(*depth) <= most)?;
        let numbers = format!("{tiles}, {rows}, {warps}, {depth}, {chunk}");
        let over = m.div_ceil(columns);
        Some(Cut { kernel: "few", numbers, rows, warps, over, shared: shared(depth) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: Affine = Affine { bits: 4, group: 64 };
    const MOST: usize = 227 << 10;

    #[test]
    fn blocks_go_evenly_over_the_rows_of_codes() {
        let cut = |n: usize, m: usize| Cut::new(FOUR, 2, [m, n, 4096], MOST).unwrap();
        assert_eq!((cut(14336, 1).rows, cut(4096, 1).rows, cut(1024, 1).rows), (7, 2, 1));
        assert_eq!(
            (cut(14336, 1).kernel, cut(14336, 8).kernel, cut(14336, 9).kernel),
            ("slim", "slim", "few")
        );
        assert_eq!(cut(14336, 64).over, 2);
    }

    #[test]
    fn every_cut_fits_into_a_block() {
        let shapes = [(16usize, 512usize), (1000, 1024), (4096, 14336), (128256, 4096), (48, 28672)];
        for most in [99 << 10, MOST] {
            for affine in [2, 4, 8].map(|bits| [32, 64, 128].map(|group| Affine { bits, group })).concat() {
                for (m, (n, k)) in
                    [1usize, 2, 8, 9, 17, 33, 64].into_iter().flat_map(|m| shapes.map(|s| (m, s)))
                {
                    for size in [2usize, 4] {
                        let Some(cut) = Cut::new(affine, size, [m, n, k], most) else { continue };
                        assert!(cut.shared <= most && cut.warps <= 32 && 16 * cut.rows <= n, "{cut:?}");
                        assert!(cut.kernel == "slim" || cut.over * 32 >= m, "{cut:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_that_are_no_whole_chunks_are_left_to_decoding() {
        assert_eq!(Cut::new(FOUR, 2, [1, 4096, 4096 + 64], MOST), None);
        assert_eq!(Cut::new(FOUR, 2, [1, 15, 4096], MOST), None);
        assert_eq!(Cut::new(Affine { bits: 3, group: 64 }, 2, [1, 4096, 4096], MOST), None);
    }
}

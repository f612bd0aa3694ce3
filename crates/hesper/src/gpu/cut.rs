//! How products of a few rows of activations with codes are cut up among blocks and warps. It depends on their shape
//! and the device alone, and so do the bits of their results.
//!
//! `slim` keeps all activations in shared memory, `few` and `decoding` bring them as they go. The last one is
//! Hopper's.

use super::quant::Affine;

/// Rows of activations up to which codes are read in place, and those on Hopper.
const FEW: usize = 64;
const HOPPER: usize = 256;
/// Rows of activations up to which codes are asked for before the activations are there.
const EARLY: usize = 16;
/// Blocks that keep a large device busy, one for each multiprocessor.
const BUSY: usize = 132;

/// A kernel and its launch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) kernel: &'static str,
    /// The kernel's numbers behind bits and group.
    pub(super) numbers: String,
    /// Blocks; warps of each; blocks one behind the other for more activations.
    pub(super) blocks: usize,
    pub(super) warps: usize,
    pub(super) over: usize,
    /// Bytes of shared memory of a block.
    pub(super) shared: usize,
}

/// Codes in stages that warps copy ahead, with scales of so many bytes.
#[derive(Clone, Copy)]
struct Chunks {
    affine: Affine,
    size: usize,
    columns: usize,
}

impl Chunks {
    fn new(affine: Affine, size: usize, [_, n, columns]: [usize; 3]) -> Option<Self> {
        let Affine { bits, group } = affine;
        let known = matches!(bits, 2 | 4 | 8) && !(bits == 2 && group == 32) && n >= 16;
        known.then_some(Chunks { affine, size, columns })
    }

    /// Bytes that a stage of sixteen rows takes, with a step between rows that keeps lanes in different banks.
    fn stage(&self, chunk: usize) -> usize {
        let Affine { bits, group } = self.affine;
        let (codes, one) = (chunk * bits / 8, group * bits / 8);
        let step = if one >= 128 || (codes / one) % 2 == 1 { codes } else { codes + one };
        16 * step + 32 * (chunk / group * self.size)
    }

    /// Scales of a chunk are copied in words of four to sixteen bytes.
    fn fits(&self, chunk: usize) -> bool {
        self.columns.is_multiple_of(chunk)
            && chunk.is_multiple_of(self.affine.group)
            && (4..=16).contains(&(chunk / self.affine.group * self.size))
    }
}

/// Tiles of sixteen rows of codes in a block: as few rounds of blocks as possible, of which a larger one does more at
/// once.
fn rows(n: usize) -> Option<usize> {
    let tiles = n.div_ceil(16);
    let fits = [8, 7, 4, 2, 1].into_iter().filter(|rows| 16 * rows <= n);
    fits.min_by_key(|rows| tiles.div_ceil(*rows).div_ceil(BUSY) * (rows + 1))
}

impl Cut {
    /// For up to eight rows; none if they do not fit.
    pub(super) fn slim(affine: Affine, size: usize, shape: [usize; 3], most: usize) -> Option<Cut> {
        let chunks = Chunks::new(affine, size, shape)?;
        let [m, n, k] = shape;
        if m > 8 {
            return None;
        }
        let bits = affine.bits;
        let rows = rows(n)?;
        let chunk = [1024 / bits, 256, 128].into_iter().find(|chunk| chunks.fits(*chunk))?;
        let x_rows = if m == 1 { 1 } else { 8 };
        // Where blocks would come in several rounds a warp has whole rows, and a block twice as many. More than one block to a
        // multiprocessor would crowd those that are free first, where blocks begin early.
        let rounds = n.div_ceil(16 * rows).div_ceil(BUSY);
        let (rows, splits) = match (rows, bits) {
            (1, _) => (1, 16),
            (2, _) => (2, 8),
            (4, _) => (4, 4),
            (7 | 8, _) if rounds > 1 => (2 * rows, 1),
            (7, 8) => (7, 4),
            (7, _) if m > 1 => (7, 3),
            _ => (rows, 2),
        };
        let shared = |stages: usize| {
            let all =
                rows * splits * stages * chunks.stage(chunk) + x_rows * (2 * k + 16) + k / affine.group * 32;
            all.max(splits * 16 * rows * 9 * 4)
        };
        let deepest = if splits == 8 { 2 } else { 3 };
        let stages = [3, 2, 1].into_iter().find(|stages| *stages <= deepest && shared(*stages) <= most)?;
        let numbers = format!("{rows}, {splits}, {stages}, {chunk}, {x_rows}");
        let (blocks, warps) = (n.div_ceil(16 * rows), rows * splits);
        Some(Cut { kernel: "slim", numbers, blocks, warps, over: 1, shared: shared(stages) })
    }

    /// For up to 64 rows.
    pub(super) fn few(affine: Affine, size: usize, shape: [usize; 3], most: usize) -> Option<Cut> {
        let chunks = Chunks::new(affine, size, shape)?;
        let [m, n, _] = shape;
        if m > FEW {
            return None;
        }
        let rows = rows(n)?.min(7);
        let chunk = [128, 256].into_iter().find(|chunk| chunks.fits(*chunk))?;
        let tiles = match m {
            0..=8 => 1,
            9..=16 => 2,
            _ if chunk > 128 => 2,
            _ => 4,
        };
        let warps = if tiles == 1 && chunk == 128 { 12 } else { 8 };
        let columns = 8 * tiles;
        let shared = |depth: usize| {
            let one =
                depth * chunks.stage(chunk) + columns * (chunk * 2 + 16) + chunk / affine.group * columns * 4;
            (warps * one).max(warps * 16 * rows * (columns + 1) * 4)
        };
        let depth = [8, 6, 4, 2].into_iter().find(|depth| shared(*depth) <= most)?;
        let numbers = format!("{tiles}, {rows}, {warps}, {depth}, {chunk}");
        let (blocks, over) = (n.div_ceil(16 * rows), m.div_ceil(columns));
        Some(Cut { kernel: "few", numbers, blocks, warps, over, shared: shared(depth) })
    }

    /// For up to 256 rows on a device with so many multiprocessors; scales are of the activations' type.
    pub(super) fn hopper(affine: Affine, [m, n, k]: [usize; 3], most: usize, busy: usize) -> Option<Cut> {
        let Affine { bits, group } = affine;
        if !matches!(bits, 2 | 4 | 8) || m > HOPPER || n == 0 {
            return None;
        }
        let columns = [8, 16, 32, 64].into_iter().find(|columns| m <= *columns).unwrap_or(128);
        // A stage is as long as registers allow.
        let stage = |tiles: usize| {
            let long = columns <= 16 || (columns <= 64 && tiles < 4);
            let stages: &[usize] = if long { &[256, 128] } else { &[128] };
            let fits = |stage: &usize| k.is_multiple_of(*stage) && (4..=16).contains(&(stage / group * 2));
            stages.iter().copied().find(fits)
        };
        // Tiles of 64 rows, teams that share their columns in a block, and blocks of a cluster that do. Of larger
        // clusters not as many run at once as there is room for.
        let shapes = [(4, 1, 1), (2, 1, 1), (1, 2, 1), (1, 2, 2), (1, 2, 4)];
        // All have as many stages. A round of blocks begins and ends as slowly as so many columns of a tile are multiplied.
        const BEGINNING: usize = 1900;
        let work = |(tiles, teams, cut): (usize, usize, usize)| {
            let stage = stage(tiles).filter(|stage| (k / stage).is_multiple_of(cut * teams))?;
            let room = match cut {
                1 => busy,
                2 => busy - busy / 32,
                _ => busy - busy / 16,
            };
            let rounds = (n.div_ceil(64 * tiles) * cut).div_ceil(room);
            Some(rounds * (tiles * (k / stage).div_ceil(cut) * stage + BEGINNING))
        };
        let known = shapes.into_iter().filter(|(tiles, ..)| *tiles < 4 || columns <= 64);
        let (_, shape) =
            known.filter_map(|shape| Some((work(shape)?, shape))).min_by_key(|(work, _)| *work)?;
        let (tiles, teams, cut) = shape;
        let stage = stage(tiles)?;
        let ahead = teams + 2;
        let shared = |depth: usize| {
            let step = stage / 8 * bits + if (stage / 64) % 2 == 0 { 8 * bits } else { 0 };
            let codes = 4 * tiles * teams * depth * (16 * step + 32 * (stage / group * 2));
            let sums = teams * columns * (64 * tiles + 4) * 4;
            (codes + ahead * stage * 2 * columns).max(sums) + 1024 + 16 * ahead
        };
        let depth = [6, 5, 4, 3, 2].into_iter().find(|depth| shared(*depth) <= most)?;
        let numbers = format!("{columns}, {tiles}, {teams}, {cut}, {stage}, {depth}, {ahead}");
        let (blocks, over) = (n.div_ceil(64 * tiles) * cut, m.div_ceil(columns));
        let warps = 4 * (tiles * teams + 1);
        let kernel = if columns <= EARLY { "decoding_early" } else { "decoding" };
        Some(Cut { kernel, numbers, blocks, warps, over, shared: shared(depth) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: Affine = Affine { bits: 4, group: 64 };
    const MOST: usize = 227 << 10;

    #[test]
    fn blocks_go_evenly_over_the_rows_of_codes() {
        let slim = |n: usize| Cut::slim(FOUR, 2, [1, n, 4096], MOST).unwrap();
        assert_eq!((slim(14336).blocks, slim(4096).blocks, slim(1024).blocks), (128, 128, 64));
        assert_eq!((slim(28672).blocks, slim(28672).warps), (128, 14));
        let few = |m: usize| Cut::few(FOUR, 2, [m, 14336, 4096], MOST).unwrap();
        assert_eq!((few(9).blocks, few(9).over, few(64).over), (128, 1, 2));
        assert_eq!(Cut::few(FOUR, 2, [65, 14336, 4096], MOST), None);
    }

    #[test]
    fn narrow_products_are_cut_along_their_columns() {
        let cut = |m: usize, n: usize, k: usize| Cut::hopper(FOUR, [m, n, k], MOST, 132).unwrap();
        let blocks = |n: usize, k: usize| cut(16, n, k).blocks;
        assert_eq!((blocks(14336, 4096), blocks(28672, 4096), blocks(6144, 4096)), (112, 112, 96));
        assert_eq!((blocks(4096, 4096), blocks(4096, 14336), blocks(1024, 4096)), (128, 128, 64));
        assert!(cut(16, 4096, 4096).numbers.starts_with("16, 1, 2, 2, 256, "));
        assert!(cut(100, 14336, 4096).numbers.starts_with("128, 2, 1, 1, 128, "));
        assert_eq!((cut(128, 14336, 4096).over, cut(129, 14336, 4096).over), (1, 2));
        assert_eq!(Cut::hopper(FOUR, [257, 14336, 4096], MOST, 132), None);
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
                        let slim = Cut::slim(affine, size, [m, n, k], most);
                        let few = Cut::few(affine, size, [m, n, k], most);
                        let hopper = Cut::hopper(affine, [m, n, k], most, 132);
                        for cut in [slim, few, hopper].into_iter().flatten() {
                            assert!(cut.shared <= most && cut.warps <= 32 && cut.blocks > 0, "{cut:?}");
                            assert!(cut.kernel != "few" || cut.over * 32 >= m, "{cut:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn rows_that_are_no_whole_chunks_are_left_to_decoding() {
        for cut in [Cut::slim, Cut::few] {
            assert_eq!(cut(FOUR, 2, [1, 4096, 4096 + 64], MOST), None);
            assert_eq!(cut(FOUR, 2, [1, 15, 4096], MOST), None);
            assert_eq!(cut(Affine { bits: 3, group: 64 }, 2, [1, 4096, 4096], MOST), None);
        }
        assert_eq!(Cut::hopper(FOUR, [1, 4096, 4096 + 64], MOST, 132), None);
        assert_eq!(Cut::hopper(Affine { bits: 3, group: 64 }, [1, 4096, 4096], MOST, 132), None);
    }
}

//! The tiling of products of a few rows of activations with quantized matrices. It depends on shape and
//! device alone, and so do the bits of the results.
//!
//! `qmv` keeps all activations in shared memory; `qmm` and `qmm_sm90` stream them through it. `qmm_sm90` is
//! for Hopper.

use super::matmul::Affine;
use crate::chip::Chip;

/// The largest number of rows of activations of `qmm`.
const MAX_ROWS: usize = 64;
/// The largest number of rows of activations of `qmm_sm90`.
const MAX_ROWS_SM90: usize = 256;
/// The largest number of rows of activations for which codes are loaded before the kernel waits for the
/// activations.
const MAX_EARLY_ROWS: usize = 64;

/// A kernel and its launch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tiling {
    pub(crate) kernel: &'static str,
    /// The kernel's template arguments after bits and group.
    pub(crate) arguments: String,
    /// Length of the grid's first axis, over rows of codes.
    pub(crate) blocks: usize,
    /// Warps of a block.
    pub(crate) warps: usize,
    /// Length of the grid's second axis, over rows of activations.
    pub(crate) row_blocks: usize,
    /// Shared memory of a block, in bytes.
    pub(crate) shared: usize,
}

/// The pipeline stages of codes that warps copy ahead.
#[derive(Clone, Copy)]
pub(crate) struct Chunks {
    affine: Affine,
    /// Bytes of a scale.
    size: usize,
    columns: usize,
}

impl Chunks {
    fn new(affine: Affine, size: usize, [_, n, columns]: [usize; 3]) -> Option<Self> {
        let Affine { bits, group } = affine;
        let known = matches!(bits, 2 | 4 | 8) && !(bits == 2 && group == 32) && n >= 16;
        known.then_some(Chunks { affine, size, columns })
    }

    /// Bytes of a stage of sixteen rows, padded so that lanes read from different banks.
    fn stage(&self, chunk: usize) -> usize {
        let Affine { bits, group } = self.affine;
        let (codes, one) = (chunk * bits / 8, group * bits / 8);
        let step = if one >= 128 || (codes / one) % 2 == 1 { codes } else { codes + one };
        16 * step + 32 * (chunk / group * self.size)
    }

    /// Whether rows are whole chunks whose scales are copied in words of four to sixteen bytes.
    fn fits(&self, chunk: usize) -> bool {
        self.columns.is_multiple_of(chunk)
            && chunk.is_multiple_of(self.affine.group)
            && (4..=16).contains(&(chunk / self.affine.group * self.size))
    }
}

/// Tiles of sixteen rows of codes in a block: those with the fewest waves of blocks, weighted by the size of
/// a block.
fn row_tiles(n: usize, multiprocessors: usize) -> Option<usize> {
    let tiles = n.div_ceil(16);
    let fits = [8, 7, 4, 2, 1].into_iter().filter(|rows| 16 * rows <= n);
    fits.min_by_key(|rows| tiles.div_ceil(*rows).div_ceil(multiprocessors) * (rows + 1))
}

impl Tiling {
    /// `qmv`, for up to eight rows; `None` if they do not fit into shared memory.
    pub(crate) fn qmv(affine: Affine, size: usize, shape: [usize; 3], chip: &Chip) -> Option<Tiling> {
        let chunks = Chunks::new(affine, size, shape)?;
        let [m, n, k] = shape;
        if m > 8 {
            return None;
        }
        let bits = affine.bits;
        let rows = row_tiles(n, chip.multiprocessors)?;
        let chunk = [1024 / bits, 256, 128].into_iter().find(|chunk| chunks.fits(*chunk))?;
        let x_rows = if m == 1 { 1 } else { 8 };
        // With several waves of blocks a warp has whole rows, and a block twice as many. There is one block
        // to a multiprocessor: kernels that begin early would fill those that are free first.
        let waves = n.div_ceil(16 * rows).div_ceil(chip.multiprocessors);
        let (rows, splits) = match (rows, bits) {
            (1, _) => (1, 16),
            (2, _) => (2, 8),
            (4, _) => (4, 4),
            (7 | 8, _) if waves > 1 => (2 * rows, 1),
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
        let stages =
            [3, 2, 1].into_iter().find(|stages| *stages <= deepest && shared(*stages) <= chip.shared)?;
        let arguments = format!("{rows}, {splits}, {stages}, {chunk}, {x_rows}");
        let (blocks, warps) = (n.div_ceil(16 * rows), rows * splits);
        Some(Tiling { kernel: "qmv", arguments, blocks, warps, row_blocks: 1, shared: shared(stages) })
    }

    /// `qmm`, for up to 64 rows.
    pub(crate) fn qmm(affine: Affine, size: usize, shape: [usize; 3], chip: &Chip) -> Option<Tiling> {
        let chunks = Chunks::new(affine, size, shape)?;
        let [m, n, _] = shape;
        if m > MAX_ROWS {
            return None;
        }
        let rows = row_tiles(n, chip.multiprocessors)?.min(7);
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
        let depth = [8, 6, 4, 2].into_iter().find(|depth| shared(*depth) <= chip.shared)?;
        let arguments = format!("{tiles}, {rows}, {warps}, {depth}, {chunk}");
        let (blocks, row_blocks) = (n.div_ceil(16 * rows), m.div_ceil(columns));
        Some(Tiling { kernel: "qmm", arguments, blocks, warps, row_blocks, shared: shared(depth) })
    }

    /// `qmm_sm90`, for up to 256 rows on Hopper; scales have the activations' type.
    pub(crate) fn sm90(affine: Affine, shape: [usize; 3], chip: &Chip) -> Option<Tiling> {
        let [m, n, _] = shape;
        if !matches!(affine.bits, 2 | 4 | 8) || m > MAX_ROWS_SM90 || n == 0 {
            return None;
        }
        let widths: &[usize] = match m {
            0..=8 => &[8],
            9..=16 => &[16],
            17..=32 => &[32],
            33..=64 => &[64],
            _ => &[64, 128],
        };
        let blocks = widths.iter().flat_map(|columns| BlockShape::all(*columns));
        let known = blocks
            .filter_map(|block| Some((block.cost(affine, shape, chip)?, block.tiling(affine, shape, chip)?)));
        known.min_by_key(|(cost, _)| *cost).map(|(_, tiling)| tiling)
    }
}

/// How a block of `qmm_sm90` divides a product.
#[derive(Clone, Copy)]
struct BlockShape {
    /// Rows of activations.
    columns: usize,
    /// Tiles of 64 rows of codes.
    tiles: usize,
    /// Warpgroups that share the columns of a tile.
    teams: usize,
    /// Blocks of a cluster that share the columns of a tile.
    cut: usize,
}

impl BlockShape {
    /// The shapes for some rows of activations. With 64 and more rows a warpgroup keeps the tensor cores busy
    /// alone, and a second one would need its own activations in shared memory.
    fn all(columns: usize) -> impl Iterator<Item = BlockShape> {
        let shapes: &[(usize, usize, usize)] = match columns {
            0..=32 => &[(4, 1, 1), (2, 1, 1), (1, 2, 1), (1, 2, 2), (1, 2, 4)],
            64 => &[(4, 1, 1), (2, 1, 1), (2, 1, 2), (1, 1, 2), (1, 1, 4)],
            _ => &[(2, 1, 1), (2, 1, 2)],
        };
        shapes.iter().map(move |&(tiles, teams, cut)| BlockShape { columns, tiles, teams, cut })
    }

    /// Columns of codes of a stage: as many as registers allow.
    fn stage(self, group: usize, k: usize) -> Option<usize> {
        let long = self.columns <= 16 || (self.columns <= 64 && self.tiles < 4);
        let stages: &[usize] = if long { &[256, 128] } else { &[128] };
        let fits = |stage: &usize| k.is_multiple_of(*stage) && (4..=16).contains(&(stage / group * 2));
        stages.iter().copied().find(fits)
    }

    /// Blocks along the grid's axes.
    fn grid(self, m: usize, n: usize) -> (usize, usize) {
        (n.div_ceil(64 * self.tiles) * self.cut, m.div_ceil(self.columns))
    }

    /// The time of a product, in columns of a tile with up to 64 rows of activations, as measured on an H200.
    fn cost(self, affine: Affine, [m, n, k]: [usize; 3], chip: &Chip) -> Option<usize> {
        // The prologue and epilogue of a wave take as long as this many columns.
        const WAVE_OVERHEAD: usize = 1900;
        let stage = self.stage(affine.group, k)?;
        if !(k / stage).is_multiple_of(self.cut * self.teams) {
            return None;
        }
        // Fewer of the larger clusters fit at a time.
        let all = chip.multiprocessors;
        let room = match self.cut {
            1 => all,
            2 => all - all / 32,
            _ => all - all / 16,
        };
        let (blocks, row_blocks) = self.grid(m, n);
        let columns = self.tiles * (k / stage).div_ceil(self.cut) * stage;
        let columns = if self.columns > 64 { columns * 17 / 10 } else { columns };
        Some((blocks * row_blocks).div_ceil(room) * (columns + WAVE_OVERHEAD))
    }

    fn tiling(self, affine: Affine, [m, n, k]: [usize; 3], chip: &Chip) -> Option<Tiling> {
        let BlockShape { columns, tiles, teams, cut } = self;
        let Affine { bits, group } = affine;
        let stage = self.stage(group, k)?;
        let ahead = teams + 2;
        let shared = |depth: usize| {
            let step = stage / 8 * bits + if (stage / 64) % 2 == 0 { 8 * bits } else { 0 };
            let codes = 4 * tiles * teams * depth * (16 * step + 32 * (stage / group * 2));
            let sums = teams * columns * (64 * tiles + 4) * 4;
            (codes + ahead * stage * 2 * columns).max(sums) + 1024 + 16 * ahead
        };
        // Deeper rings are slower: by up to 40 % with 64 rows of activations on an H200.
        let depth = [3, 2].into_iter().find(|depth| shared(*depth) <= chip.shared)?;
        let arguments = format!("{columns}, {tiles}, {teams}, {cut}, {stage}, {depth}, {ahead}");
        let (blocks, row_blocks) = self.grid(m, n);
        let warps = 4 * (tiles * teams + 1);
        let kernel = if columns <= MAX_EARLY_ROWS { "qmm_sm90_early" } else { "qmm_sm90" };
        Some(Tiling { kernel, arguments, blocks, warps, row_blocks, shared: shared(depth) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: Affine = Affine { bits: 4, group: 64 };
    const H200: Chip = Chip { capability: (9, 0), multiprocessors: 132, shared: 227 << 10, cache: 60 << 20 };

    #[test]
    fn blocks_go_evenly_over_the_rows_of_codes() {
        let qmv = |n: usize| Tiling::qmv(FOUR, 2, [1, n, 4096], &H200).unwrap();
        assert_eq!((qmv(14336).blocks, qmv(4096).blocks, qmv(1024).blocks), (128, 128, 64));
        assert_eq!((qmv(28672).blocks, qmv(28672).warps), (128, 14));
        let qmm = |m: usize| Tiling::qmm(FOUR, 2, [m, 14336, 4096], &H200).unwrap();
        assert_eq!((qmm(9).blocks, qmm(9).row_blocks, qmm(64).row_blocks), (128, 1, 2));
        assert_eq!(Tiling::qmm(FOUR, 2, [65, 14336, 4096], &H200), None);
    }

    #[test]
    fn narrow_products_are_split_along_their_columns() {
        let tiling = |m: usize, n: usize, k: usize| Tiling::sm90(FOUR, [m, n, k], &H200).unwrap();
        let blocks = |n: usize, k: usize| tiling(16, n, k).blocks;
        assert_eq!((blocks(14336, 4096), blocks(28672, 4096), blocks(6144, 4096)), (112, 112, 96));
        assert_eq!((blocks(4096, 4096), blocks(4096, 14336), blocks(1024, 4096)), (128, 128, 64));
        assert!(tiling(16, 4096, 4096).arguments.starts_with("16, 1, 2, 2, 256, "));
        assert!(tiling(100, 14336, 4096).arguments.starts_with("128, 2, 1, 1, 128, "));
        assert_eq!((tiling(128, 14336, 4096).row_blocks, tiling(250, 14336, 4096).row_blocks), (1, 2));
        assert_eq!(Tiling::sm90(FOUR, [257, 14336, 4096], &H200), None);
        // More rows of activations: two tiles and a cluster of two, or twice the blocks.
        assert!(tiling(64, 6144, 4096).arguments.starts_with("64, 2, 1, 2, 256, 3, "));
        assert!(tiling(64, 4096, 14336).arguments.starts_with("64, 1, 1, 2, 256, 3, "));
        assert!(tiling(64, 28672, 4096).arguments.starts_with("64, 4, 1, 1, 128, 3, "));
        let split = tiling(128, 4096, 14336);
        assert!(split.arguments.starts_with("64, 2, 1, 2, 256, 3, ") && split.row_blocks == 2, "{split:?}");
    }

    #[test]
    fn every_tiling_fits_into_a_block() {
        let shapes = [(16usize, 512usize), (1000, 1024), (4096, 14336), (128256, 4096), (48, 28672)];
        for chip in [Chip { shared: 99 << 10, ..H200 }, H200] {
            for affine in [2, 4, 8].map(|bits| [32, 64, 128].map(|group| Affine { bits, group })).concat() {
                for (m, (n, k)) in
                    [1usize, 2, 8, 9, 17, 33, 64].into_iter().flat_map(|m| shapes.map(|s| (m, s)))
                {
                    for size in [2usize, 4] {
                        let qmv = Tiling::qmv(affine, size, [m, n, k], &chip);
                        let qmm = Tiling::qmm(affine, size, [m, n, k], &chip);
                        let sm90 = Tiling::sm90(affine, [m, n, k], &chip);
                        for tiling in [qmv, qmm, sm90].into_iter().flatten() {
                            let fits =
                                tiling.shared <= chip.shared && tiling.warps <= 32 && tiling.blocks > 0;
                            assert!(fits, "{tiling:?}");
                            assert!(tiling.kernel != "qmm" || tiling.row_blocks * 32 >= m, "{tiling:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn rows_that_are_not_whole_chunks_have_no_tiling() {
        for tiling in [Tiling::qmv, Tiling::qmm] {
            assert_eq!(tiling(FOUR, 2, [1, 4096, 4096 + 64], &H200), None);
            assert_eq!(tiling(FOUR, 2, [1, 15, 4096], &H200), None);
            assert_eq!(tiling(Affine { bits: 3, group: 64 }, 2, [1, 4096, 4096], &H200), None);
        }
        assert_eq!(Tiling::sm90(FOUR, [1, 4096, 4096 + 64], &H200), None);
        assert_eq!(Tiling::sm90(Affine { bits: 3, group: 64 }, [1, 4096, 4096], &H200), None);
    }
}

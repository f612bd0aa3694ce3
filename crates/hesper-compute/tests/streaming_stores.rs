//! Non-temporal stores give the same results as ordinary ones.

use hesper_compute::{
    AtLevel, Par, Simd, StridedView, Threads, copy_elements, layer_norm, rms_norm, softmax,
};

/// Enough rows for non-temporal stores, of a length that is not a multiple of a vector.
const ROWS: usize = 8200;
const LENGTH: usize = 1031;

/// Computes rows on an executor.
type Kernel<'a> = &'a dyn Fn(&dyn Par, &[f32], &mut [f32]);

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919) % 10_007) as f32 / 5000.0 - 1.0).collect()
}

/// Calls `f` at every level with results that are aligned to a cache line and not.
fn everywhere(count: usize, f: impl Fn(&dyn Par, &mut [f32])) -> Vec<Vec<f32>> {
    let mut all = vec![];
    for level in Simd::available() {
        for lead in [0, 3] {
            let mut room = vec![f32::NAN; count + 32];
            let line = room.as_ptr().align_offset(64) + lead;
            f(&AtLevel(Threads(2), level), &mut room[line..line + count]);
            all.push(room[line..line + count].to_vec());
        }
    }
    all
}

#[test]
fn norms_with_non_temporal_stores_match_those_with_ordinary_stores() {
    let x = numbers(ROWS * LENGTH);
    let (w, b) = (numbers(LENGTH), numbers(LENGTH));
    // Few enough rows for ordinary stores.
    let small = 1000 * LENGTH;
    let check = |what: &str, f: Kernel<'_>| {
        for (at, streamed) in everywhere(x.len(), |par, out| f(par, &x, out)).into_iter().enumerate() {
            let level = Simd::available()[at / 2];
            for (part, (x, streamed)) in x.chunks(small).zip(streamed.chunks(small)).enumerate() {
                let mut out = vec![f32::NAN; x.len()];
                f(&AtLevel(Threads(2), level), x, &mut out);
                assert!(out == streamed, "{what} at {level:?}, part {part}");
            }
        }
    };
    check("softmax", &|par, x, out| softmax(par, &x, LENGTH, out).unwrap());
    check("rms_norm", &|par, x, out| rms_norm(par, &x, LENGTH, Some(&w), 1e-5, out).unwrap());
    check("layer_norm", &|par, x, out| layer_norm(par, &x, LENGTH, Some(&w), Some(&b), 1e-5, out).unwrap());
}

#[test]
fn copies_with_non_temporal_stores_write_all_elements_and_no_others() {
    let (rows, columns) = (2064, 4112);
    let x = numbers(rows * columns);
    let transpose = |par: &dyn Par, out: &mut [f32]| {
        let from = StridedView { offset: 0, strides: &[1, columns as isize] };
        let to = StridedView { offset: 0, strides: &[rows as isize, 1] };
        copy_elements(par, &[columns, rows], &x, from, out, to).unwrap();
    };
    for got in everywhere(x.len(), transpose) {
        let wrong = (0..x.len()).find(|at| got[*at] != x[at % rows * columns + at / rows]);
        assert_eq!(wrong, None, "transposed");
    }
    let wide = columns as isize + 5;
    let place = |par: &dyn Par, out: &mut [f32]| {
        out.fill(-7.0);
        let from = StridedView { offset: 0, strides: &[columns as isize, 1] };
        let to = StridedView { offset: 2, strides: &[wide, 1] };
        copy_elements(par, &[rows, columns], &x, from, out, to).unwrap();
    };
    for got in everywhere(rows * wide as usize, place) {
        for (row, line) in got.chunks(wide as usize).enumerate() {
            assert_eq!(line[2..][..columns], x[row * columns..][..columns], "row {row}");
            assert!([line[0], line[1], line[columns + 2]] == [-7.0; 3], "beside row {row}");
        }
    }
}

#[test]
fn transposes_of_small_elements_move_every_element_at_every_level() {
    fn check<T: Copy + Send + Sync + PartialEq + 'static>(
        rows: usize,
        columns: usize,
        of: impl Fn(usize) -> T,
    ) {
        // The source begins at an odd element and has a gap after each row.
        let pitch = columns + 3;
        let x: Vec<T> = (0..rows * pitch + 1).map(&of).collect();
        for level in Simd::available() {
            for (lead, width) in [(0, rows), (1, rows + 1), (0, rows.next_multiple_of(64))] {
                let mut room = vec![of(0); columns * width + 128];
                let line = room.as_ptr().align_offset(64) + lead;
                let out = &mut room[line..line + columns * width];
                let from = StridedView { offset: 1, strides: &[1, pitch as isize] };
                let to = StridedView { offset: 0, strides: &[width as isize, 1] };
                copy_elements(&AtLevel(Threads(2), level), &[columns, rows], &x, from, out, to).unwrap();
                for (at, got) in out.iter().enumerate() {
                    let (column, row) = (at / width, at % width);
                    let want = if row < rows { of(1 + row * pitch + column) } else { of(0) };
                    assert!(*got == want, "{rows} x {columns} at {level:?}: row {row}, column {column}");
                }
            }
        }
    }
    for (rows, columns) in [(8, 8), (16, 33), (31, 64), (32, 32), (33, 65), (64, 96), (130, 70)] {
        check(rows, columns, |i| ((i * 40_503) >> 3) as u16);
        check(rows, columns, |i| (i * 167) as u8);
        check(rows, columns, |i| (i * 2_654_435_761) as u32);
    }
    // Enough bytes for non-temporal stores.
    check(4160, 4224, |i| ((i * 40_503) >> 3) as u16);
    // And lines that share cache sets.
    check(4096, 4224, |i| ((i * 40_503) >> 3) as u16);
    check(4096, 2112, |i| (i * 2_654_435_761) as u32);
}

//! The steps of decompositions on panels of rows, at every SIMD level.

use hesper_compute::{Lines, Simd, add_rows, eliminate, rows_times, solve_unit, symmetric_rows};

#[test]
fn sweeps_match_plain_loops_at_every_level() {
    // Multiples of an eighth: all sums are exact.
    let value = |at: usize| ((at * 37 % 61) as f64 - 30.0) / 8.0;
    for (n, stride) in [(1, 1), (2, 5), (7, 7), (16, 16), (19, 32), (45, 48), (70, 71)] {
        let a: Vec<f64> = (0..n * stride).map(value).collect();
        let x: Vec<f64> = (0..n).map(|at| value(at + 5)).collect();
        let at = |row: usize, column: usize| a[row * stride + column];
        for simd in Simd::available() {
            let narrow = |x: &[f64]| x.iter().map(|x| *x as f32).collect::<Vec<_>>();
            let (a32, x32) = (narrow(&a), narrow(&x));
            let mut y = vec![9.0; n];
            rows_times(simd, Lines::new(&a, stride, n, n), &x, &mut y);
            let want: Vec<f64> = (0..n).map(|row| (0..n).map(|i| at(row, i) * x[i]).sum()).collect();
            assert_eq!(y, want, "{n} {simd:?}");
            let mut y32 = narrow(&x);
            add_rows(simd, Lines::new(&a32, stride, n, n), &x32, &mut y32);
            let want: Vec<f64> =
                (0..n).map(|column| x[column] + (0..n).map(|i| at(i, column) * x[i]).sum::<f64>()).collect();
            assert_eq!(y32, narrow(&want), "{n} {simd:?}");
            // In two parts. Elements below the diagonal differ from those above: they must not be read.
            let upper = |i: usize, j: usize| at(i.min(j), i.max(j));
            let want: Vec<f64> = (0..n).map(|row| (0..n).map(|i| upper(row, i) * x[i]).sum()).collect();
            let (mut y, cut) = (vec![0.0; n], n / 3);
            symmetric_rows(simd, Lines::new(&a, stride, cut, n), 0, &x, &mut y);
            let rest = Lines::new(&a[cut * stride..], stride, n - cut, n);
            symmetric_rows(simd, rest, cut, &x, &mut y);
            assert_eq!(y, want, "{n} {simd:?}");
        }
    }
}

#[test]
fn lines_are_no_more_than_the_slice_holds() {
    assert_eq!(Lines::new(&[0.0f32; 7], 3, 9, 2).count(), 2);
    assert_eq!(Lines::new(&[0.0f32; 8], 3, 9, 2).count(), 3);
    assert_eq!(Lines::new(&[0.0f32; 1], 3, 9, 2).count(), 0);
    let mut y = [5.0f32; 3];
    rows_times(Simd::detect(), Lines::new(&[1.0; 2], 2, 3, 2), &[1.0, 1.0], &mut y);
    assert_eq!(y, [2.0, 5.0, 5.0]);
}

fn hash(at: usize) -> u64 {
    let x = (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[test]
fn columns_are_eliminated_as_by_plain_loops_at_every_level() {
    for (rows, columns, first, width) in
        [(1, 1, 0, 1), (5, 5, 0, 5), (40, 17, 0, 16), (33, 40, 16, 9), (20, 30, 3, 16), (9, 4, 4, 0)]
    {
        // Bits of a hash, so that no column is nearly a linear combination of others.
        let value = |at: usize| (hash(at) >> 40) as f64 / (1u64 << 20) as f64 - 8.0;
        let old: Vec<f64> = (0..rows * columns).map(value).collect();
        let (mut want, mut places) = (old.clone(), vec![]);
        for at in first..first + width {
            let size = |row: &usize| want[row * columns + at].abs();
            let pivot = (at..rows).rev().max_by(|a, b| size(a).total_cmp(&size(b))).unwrap();
            (0..columns).for_each(|j| want.swap(at * columns + j, pivot * columns + j));
            places.push(pivot as u32);
            for row in at + 1..rows {
                let l = want[row * columns + at] / want[at * columns + at];
                want[row * columns + at] = l;
                (at + 1..first + width).for_each(|j| want[row * columns + j] -= l * want[at * columns + j]);
            }
        }
        for simd in Simd::available() {
            let (mut a, mut swaps) = (old.clone(), vec![9; width]);
            eliminate(simd, &mut a, columns, first, &mut swaps);
            assert_eq!(swaps, places, "{rows} {columns} {first} {simd:?}");
            assert!(a.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-9), "{rows} {columns} {simd:?}");
            let mut a: Vec<f32> = old.iter().map(|x| *x as f32).collect();
            eliminate(simd, &mut a, columns, first, &mut swaps);
            assert!(a.iter().zip(&want).all(|(a, b)| (f64::from(*a) - b).abs() < 0.02), "{simd:?}");
        }
    }
}

#[test]
fn a_column_of_zeros_is_left_unchanged_and_tiny_pivots_divide() {
    let (mut a, mut swaps) = ([0.0f32, 1.0, 0.0, 2.0], [7; 2]);
    eliminate(Simd::detect(), &mut a, 2, 0, &mut swaps);
    assert_eq!((a, swaps), ([0.0, 1.0, 0.0, 2.0], [0, 1]));
    let tiny = f32::MIN_POSITIVE / 4.0;
    let mut a = [2.0 * tiny, 0.0, tiny, 1.0];
    eliminate(Simd::detect(), &mut a, 2, 0, &mut swaps);
    assert_eq!(a, [2.0 * tiny, 0.0, 0.5, 1.0]);
    eliminate::<f32>(Simd::detect(), &mut [], 0, 0, &mut swaps);
    let mut a = [f32::NAN; 4];
    eliminate(Simd::detect(), &mut a, 2, 0, &mut swaps);
    assert!(a[1].is_nan() && a[2].is_nan() && a[3].is_nan());
}

#[test]
fn unit_triangular_systems_are_solved_at_every_level() {
    for (n, count, stride) in [(1, 1, 1), (5, 3, 4), (16, 40, 41), (9, 16, 16)] {
        let l: Vec<f64> = (0..n * n).map(|at| ((at * 37 % 11) as f64 - 5.0) / 16.0).collect();
        let x: Vec<f64> = (0..n * stride).map(|at| ((at * 53 % 29) as f64 - 14.0) / 4.0).collect();
        let mut b = x.clone();
        for (i, j) in (0..n).rev().flat_map(|i| (0..i).map(move |j| (i, j))) {
            (0..count).for_each(|c| b[i * stride + c] += l[i * n + j] * x[j * stride + c]);
        }
        for simd in Simd::available() {
            let mut got = b.clone();
            solve_unit(simd, Lines::new(&l, n, n, n), &mut got, stride, count);
            assert!(got.iter().zip(&x).all(|(a, b)| (a - b).abs() < 1e-9), "{n} {count} {simd:?}");
        }
    }
    // `b` is too short for two rows: it is left unchanged.
    let mut b = [1.0f32; 3];
    solve_unit(Simd::detect(), Lines::new(&[0.5; 4], 2, 2, 2), &mut b, 2, 2);
    assert_eq!(b, [1.0; 3]);
}

//! Sorts and selections on every SIMD level against the standard library's.

use crate::common::{Rng, levels};
use half::{bf16, f16};
use hesper_compute::{Par, Serial, Sortable, argpartition, argsort, partition, sort};

fn check_sort<T: Sortable + PartialOrd + std::fmt::Debug>(make: impl Fn(&mut Rng) -> T) {
    let mut rng = Rng::new(4);
    // Around the sizes of vectors and networks, and long enough for all threads.
    for n in [1, 3, 16, 33, 100, 129, 257, 1000, 34_000] {
        let rows = if n < 1000 { 3 } else { 1 };
        let x: Vec<T> = (0..rows * n).map(|_| make(&mut rng)).collect();
        let order = |a: &T, b: &T| a.partial_cmp(b).unwrap();
        let k = n / 3;
        let (mut wanted, mut wanted_places) = (x.clone(), vec![0u32; x.len()]);
        for r in 0..rows {
            wanted[r * n..][..n].sort_by(order);
            let places = &mut wanted_places[r * n..][..n];
            places.iter_mut().enumerate().for_each(|(i, at)| *at = i as u32);
            places.sort_by(|a, b| order(&x[r * n + *a as usize], &x[r * n + *b as usize]));
        }
        for par in levels().iter().flat_map(|(one, many)| [one as &dyn Par, many]) {
            let (mut out, mut places) = (x.clone(), vec![0u32; x.len()]);
            sort(par, &x, n, &mut out).unwrap();
            assert_eq!(out, wanted);
            argsort(par, &x, n, &mut places).unwrap();
            assert_eq!(places, wanted_places);
            partition(par, &x, n, k, &mut out).unwrap();
            argpartition(par, &x, n, k, &mut places).unwrap();
            for r in 0..rows {
                let (row, want) = (&x[r * n..][..n], &wanted[r * n..][..n]);
                let (parted, from) = (&out[r * n..][..n], &places[r * n..][..n]);
                assert_eq!(parted[k], want[k]);
                assert!(
                    parted[..k].iter().all(|v| *v <= want[k]) && parted[k..].iter().all(|v| *v >= want[k])
                );
                assert!(row[from[k] as usize] == want[k]);
                let mut all = from.to_vec();
                all.sort_unstable();
                assert!(all.into_iter().eq(0..n as u32));
            }
        }
    }
}

#[test]
fn every_type_is_sorted_in_its_own_order() {
    check_sort::<f32>(|r| (r.float() * 100.0).round());
    check_sort::<f64>(|r| f64::from(r.float()));
    check_sort::<f16>(|r| f16::from_f32(r.float()));
    check_sort::<bf16>(|r| bf16::from_f32(r.float()));
    check_sort::<i8>(|r| r.bits() as i8);
    check_sort::<u16>(|r| r.bits() as u16);
    check_sort::<i32>(|r| r.bits() as i32);
    check_sort::<u32>(|r| r.bits() as u32);
    check_sort::<i64>(|r| r.bits() as i64);
    check_sort::<u64>(|r| r.bits());
}

#[test]
fn rows_of_few_or_extreme_values_are_sorted() {
    check_sort::<f32>(|_| 1.0);
    check_sort::<u32>(|r| u32::MAX - r.below(3) as u32);
    check_sort::<u16>(|r| u16::MAX - r.below(2) as u16);
    check_sort::<u64>(|r| u64::MAX - r.below(3) as u64);
    // Equal upper halves in all elements, and in long runs.
    check_sort::<i64>(|r| r.below(1000) as i64 - 500);
    check_sort::<i64>(|r| ((r.below(3) as i64 - 1) << 32) | r.below(9) as i64);
}

#[test]
fn rows_in_order_are_sorted_on_every_level() {
    for n in [300u32, 5000, 34_000] {
        let up: Vec<u32> = (0..n).collect();
        let down: Vec<u32> = (0..n).rev().collect();
        let organ: Vec<u32> = (0..n).map(|i| i.min(n - i)).collect();
        for x in [&up, &down, &organ] {
            let mut want = x.clone();
            want.sort_unstable();
            for par in levels().iter().flat_map(|(one, many)| [one as &dyn Par, many]) {
                let mut got = vec![0; x.len()];
                sort(par, x, x.len(), &mut got).unwrap();
                assert_eq!(got, want);
            }
        }
    }
}

#[test]
fn nans_are_sorted_last_and_zeros_are_equal() {
    let x = [f32::NAN, 1.0, -f32::NAN, f32::NEG_INFINITY, 0.0, -0.0, f32::INFINITY];
    let mut out = [0.0; 7];
    sort(&Serial, &x, 7, &mut out).unwrap();
    assert_eq!(out[..5], [f32::NEG_INFINITY, 0.0, 0.0, 1.0, f32::INFINITY]);
    assert!(out[5].is_nan() && out[6].is_nan());
    let mut at = [0; 7];
    argsort(&Serial, &x, 7, &mut at).unwrap();
    assert_eq!(at, [3, 4, 5, 1, 6, 0, 2]);
}

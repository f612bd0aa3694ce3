//! Small parts of kernels.

use half::{bf16, f16};
use hesper_compute::internals::{locate, root_of_unity, widen};
use hesper_compute::{AtLevel, Dim, Par, Serial, Simd, Threads, add_to, joined_axes, random_words};
use hesper_types::threefry;

#[test]
fn words_match_threefry_of_their_counters_at_every_level_and_count() {
    let key = [0x1234_5678, 0x9abc_def0];
    for count in [0usize, 1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 129, 1000, (1 << 15) + 1, (1 << 16) + 66] {
        let half = count.div_ceil(2);
        let mut want = vec![0; count];
        for i in 0..half {
            let other = if half + i < count { (half + i) as u32 } else { 0 };
            let [a, b] = threefry(key, [i as u32, other]);
            want[i] = a;
            if half + i < count {
                want[half + i] = b;
            }
        }
        for level in Simd::available() {
            for par in [&AtLevel(Serial, level) as &dyn Par, &AtLevel(Threads(2), level)] {
                let mut words = vec![0; count];
                random_words(par, key, &mut words);
                assert!(words == want, "{count} words at {level:?}");
            }
        }
    }
}

#[test]
fn elements_are_located_with_the_last_axis_fastest() {
    let dims = [(2, 100), (3, -10), (4, 1)].map(|(len, stride)| Dim { len, stride });
    assert_eq!([0, 23, 13].map(|at| locate(&dims, at)), [0, 83, 101]);
    assert_eq!(locate(&[], 0), 0);
}

#[test]
fn axes_of_length_one_leave_nothing_to_join() {
    assert_eq!(joined_axes(&[1, 1], [&[5, 7]]).count(), 0);
    assert_eq!(joined_axes(&[2, 8], [&[8, 1], &[16, 1]]).count(), 2);
    assert_eq!(joined_axes(&[4, 0], [&[0, 1]]).collect::<Vec<_>>(), [(0, [1])]);
}

#[test]
fn widen_matches_f16_for_every_bit_pattern() {
    for bits in 0..=u16::MAX {
        let (ours, theirs) = (widen(bits), half::f16::from_bits(bits).to_f32());
        assert!(
            ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
            "{bits:#06x}: {ours} and {theirs}"
        );
    }
}

#[test]
fn roots_are_exact_at_quarter_turns() {
    assert_eq!(
        [0, 4, 8, 12].map(|k| root_of_unity(k, 16)),
        [(1.0, -0.0), (-0.0, -1.0), (-1.0, 0.0), (0.0, 1.0)]
    );
    let (re, im) = root_of_unity(3, 16);
    let angle = -std::f64::consts::TAU * 3.0 / 16.0;
    assert!((re - angle.cos()).abs() < 1e-15 && (im - angle.sin()).abs() < 1e-15);
}

#[test]
fn sums_in_place_round_as_sums_of_halves_do() {
    // Every exponent and sign, infinities and NaN among them.
    let patterns: Vec<u16> = (0..4099u32).map(|i| ((i * 40_503) >> 2) as u16).collect();
    for level in Simd::available() {
        for count in [0, 1, 7, 8, 15, 16, 17, 33, 4099] {
            let (a, b) = (&patterns[..count], patterns.iter().rev().take(count));
            let (a, b): (Vec<f16>, Vec<f16>) =
                a.iter().zip(b).map(|(a, b)| (f16::from_bits(*a), f16::from_bits(*b))).unzip();
            let mut to = a.clone();
            add_to(level, &mut to, &b).unwrap();
            for (at, got) in to.iter().enumerate() {
                let want = a[at] + b[at];
                assert!(same(got.to_f32(), want.to_f32()), "{level:?}: {} + {} = {got}", a[at], b[at]);
            }
            let wide = |half: &f16| bf16::from_bits(half.to_bits());
            let (a, b): (Vec<bf16>, Vec<bf16>) = (a.iter().map(wide).collect(), b.iter().map(wide).collect());
            let mut to = a.clone();
            add_to(level, &mut to, &b).unwrap();
            for (at, got) in to.iter().enumerate() {
                let want = a[at] + b[at];
                assert!(same(got.to_f32(), want.to_f32()), "{level:?}: {} + {} = {got}", a[at], b[at]);
            }
        }
    }
    assert!(add_to(Simd::detect(), &mut [0.0f32], &[]).is_err());
}

/// Equal bits, or both NaN.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

//! Transposed arrays: reductions of all elements, copies, and positions of extremes, against their contiguous
//! copies and plain loops.

use crate::common::{Rng, levels};
use crate::rows::{Strided, along, check_moments, check_view};
use half::{bf16, f16};
use hesper_compute::{
    Axis, Dim, Float, Ordered, Par, ReduceInput, Reduction, SumOrder, arg_extreme, copy_strided, reduce,
};

/// Views of whole arrays whose elements are far from each other along the last axis.
fn transposed() -> Vec<Strided> {
    let matrix =
        |rows: usize, columns: usize| (vec![rows, columns], vec![1, rows as isize], 0, rows * columns);
    // Around vectors and tiles, blocks of 4096 and parts of 16384 elements, and lines that share cache sets.
    let mut all: Vec<Strided> = [
        (64, 1024),
        (129, 2048),
        (1030, 64),
        (300, 257),
        (17, 5000),
        (5000, 17),
        (40, 4109),
        (9, 16_384),
        (3, 40_000),
        (2000, 9),
    ]
    .map(|(rows, columns)| matrix(rows, columns))
    .into();
    // A batch, part of a matrix, and a reversed axis.
    all.push((vec![3, 70, 300], vec![21_000, 1, 70], 0, 63_000));
    all.push((vec![90, 500], vec![1, 128], 5, 64_000));
    all.push((vec![80, 500], vec![-1, 80], 79, 40_000));
    all.push((vec![80, 500], vec![1, -80], 499 * 80, 40_000));
    all
}

#[test]
fn all_elements_of_a_transposed_array_are_reduced_to_the_bits_of_its_copy() {
    let mut rng = Rng::new(53);
    for view in transposed() {
        let over = vec![true; view.0.len()];
        let x: Vec<f32> = (0..view.3).map(|_| rng.float() * 1.5).collect();
        check_view(&x, &view, &over);
        check_view(&x.iter().map(|v| bf16::from_f32(*v)).collect::<Vec<_>>(), &view, &over);
        check_view(&x.iter().map(|v| f16::from_f32(*v)).collect::<Vec<_>>(), &view, &over);
        check_view(&x.iter().map(|v| f64::from(*v)).collect::<Vec<_>>(), &view, &over);
        check_view(&x.iter().map(|v| [*v, v * 3.0 % 1.0]).collect::<Vec<_>>(), &view, &over);
        check_moments(&x, &view, &over);
        // Over the last axes only.
        check_view(&x, &view, &[vec![false], vec![true; over.len() - 1]].concat());
    }
}

#[test]
fn a_sum_of_a_transposed_array_is_nan_if_an_element_is() {
    for (view, at) in transposed().into_iter().zip([0, 1, 4095, 4096, 63].into_iter().cycle()) {
        let (shape, strides, offset, elements) = &view;
        let mut x = vec![0.5f32; *elements];
        let columns = shape[shape.len() - 1];
        let (row, column) = ((at / columns) as isize, (at % columns) as isize);
        let last = strides.len() - 1;
        let place = *offset as isize + row * strides[last - 1] + column * strides[last];
        x[place as usize] = f32::NAN;
        for (one, _) in levels() {
            let axes = shape.iter().zip(strides);
            let dims: Vec<Dim> = axes.map(|(len, stride)| Dim { len: *len, stride: *stride }).collect();
            let input = ReduceInput::new(&x, *offset, &[], &dims, Some(SumOrder::Rows)).unwrap();
            let mut sum = [0.0];
            reduce(&one, Reduction::Sum, &input, &mut sum).unwrap();
            assert!(sum[0].is_nan(), "{view:?}");
        }
    }
}

/// Transposes `lines` x `length` elements into lines that are `step` elements apart.
fn check_transpose<T: Copy + Send + Sync + PartialEq + std::fmt::Debug + 'static>(
    make: impl Fn(usize) -> T,
    [lines, length, step]: [usize; 3],
) {
    let from: Vec<T> = (0..lines * length).map(&make).collect();
    let kept = make(250);
    for (one, three) in levels() {
        for par in [&one as &dyn Par, &three] {
            let mut to = vec![kept; lines * step];
            let (strides, steps) = ([1, lines as isize], [step as isize, 1]);
            // SAFETY: the strides stay within the vectors.
            unsafe {
                copy_strided(par, &[lines, length], from.as_ptr(), &strides, to.as_mut_ptr(), &steps)
                    .unwrap();
            }
            for (line, to) in to.chunks_exact(step).enumerate() {
                let same = (0..length).all(|at| to[at] == from[at * lines + line]);
                assert!(same, "line {line} of {lines} x {length}, {step} apart, at {:?}", one.1);
                assert!(to[length..].iter().all(|x| *x == kept), "{lines} x {length}, {step} apart");
            }
        }
    }
}

#[test]
fn transposes_fill_lines_that_share_cache_sets() {
    for lines in [8, 15, 16, 17, 33, 64, 70, 130] {
        for length in [9, 16, 33, 128, 129, 300, 512, 1000, 1024] {
            for step in [1024, 1040] {
                check_transpose(|i| i as u16, [lines, length, step]);
                check_transpose(|i| i as u32, [lines, length, step]);
            }
            check_transpose(|i| i as u8, [lines, length, 2048]);
            check_transpose(|i| i as u64, [lines, length, 1024]);
        }
    }
}

fn check_positions<T: Ordered + Float>() {
    let mut rng = Rng::new(54);
    for n in [1, 31, 32, 33, 63, 64, 65, 100, 255, 256, 1000, 4097, 70_000] {
        for round in 0..6 {
            let mut x: Vec<f32> = (0..n).map(|_| (rng.float() * 20.0).round()).collect();
            match round {
                1 => x[n / 2] = f32::NAN,
                2 => x.fill(f32::NEG_INFINITY),
                3 => x.fill(f32::INFINITY),
                4 => (x[n / 3], x[n - 1]) = (f32::INFINITY, f32::NEG_INFINITY),
                5 => x.iter_mut().for_each(|x| *x = x.signum() * 0.0),
                _ => {}
            }
            let x: Vec<T> = x.into_iter().map(T::from_f32).collect();
            for max in [true, false] {
                let mut want = 0;
                for i in 1..n {
                    let (new, old) = (x[i].to_f32(), x[want].to_f32());
                    if !old.is_nan() && (new.is_nan() || if max { new > old } else { new < old }) {
                        want = i;
                    }
                }
                for (one, three) in levels() {
                    for par in [&one as &dyn Par, &three] {
                        let mut at = [u32::MAX];
                        along(&x, Axis::last(1, n), |x| arg_extreme(par, max, x, &mut at)).unwrap();
                        assert_eq!(at[0] as usize, want, "{n} {round} {max} {:?}", one.1);
                    }
                }
            }
        }
    }
}

#[test]
fn the_first_of_equal_extremes_is_found_in_every_float_type() {
    check_positions::<f32>();
    check_positions::<bf16>();
    check_positions::<f16>();
}

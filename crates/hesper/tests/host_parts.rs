//! Parts of the kernels of the CPU backend.

use hesper_backend_cpu::internals::{Cursor, Key, Update, exp, factor};
use hesper_core::shape::{Shape, row_major};
use smallvec::smallvec;

#[test]
fn exponentials_are_right_to_a_few_units_in_the_last_place() {
    for step in 0..9000 {
        let x = -(step as f32) * 0.0097;
        let (got, want) = (exp(x), f64::from(x).exp());
        assert!((f64::from(got) - want).abs() <= 4e-7 * want + 1.7e-38, "{x}: {got} and {want}");
    }
    assert_eq!(exp(0.0), 1.0);
    assert_eq!(exp(f32::NEG_INFINITY), 0.0);
    assert!(exp(f32::NAN).is_nan());
}

#[test]
fn keys_have_the_order_of_their_numbers() {
    let ordered = [f32::NEG_INFINITY, -2.0, -1e-40, 0.0, 1e-40, 0.5, 7.0, f32::INFINITY, f32::NAN];
    assert!(ordered.windows(2).all(|pair| pair[0].bits() < pair[1].bits()));
    assert_eq!((-0.0f32).bits(), 0.0f32.bits());
    assert_eq!((-f32::NAN).bits(), f32::NAN.bits());
    assert!(ordered[..8].iter().all(|x| f32::of(x.bits()) == *x));
    assert!((-5i8).bits() < 3i8.bits() && i8::of((-5i8).bits()) == -5);
    assert!([1.0f32, 2.0].bits() < [1.0f32, 3.0].bits());
}

#[test]
fn axes_that_an_update_covers_whole_join_the_one_before() {
    let shape: Shape = smallvec![2, 3, 4];
    let mut source = row_major(&shape);
    let sizes: Shape = smallvec![2, 2, 4];
    let mut update = Update {
        shape,
        starts: smallvec![0, 1, 0],
        steps: smallvec![1, 1, 1],
        strides: row_major(&sizes),
        sizes,
        offset: 0,
    };
    update.join(&mut source);
    assert_eq!(update.shape[..], [2, 12]);
    assert_eq!((update.starts[1], update.sizes[1]), (4, 8));
}

#[test]
fn lengths_are_split_into_two_factors_of_whole_blocks() {
    assert_eq!(factor(1 << 20), Some(1024));
    assert_eq!(factor(1 << 15), Some(128));
    assert_eq!(factor(1 << 10), None);
    assert_eq!(factor((1 << 20) + 1), None);
}

#[test]
fn a_cursor_started_at_an_element_equals_one_that_advanced_there() {
    let (shape, strides) = ([2usize, 3, 4], [1isize, -8, 2]);
    let mut walked = Cursor::new(&shape, [&strides], 0);
    for element in 0..24 {
        let started = Cursor::new(&shape, [&strides], element);
        assert_eq!((started.at, started.index()), (walked.at, walked.index()));
        walked.advance();
    }
    assert_eq!(walked.at, [0]);
}

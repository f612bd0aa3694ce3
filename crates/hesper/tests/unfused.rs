//! Ops that are kernels of their own: each layout the short way and the long way, and what evaluation holds meanwhile.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Mutex, MutexGuard};

use hesper::{Array, Dtype, eval, place};

/// Fusion and the counters of memory are the process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn numbers(shape: &[usize], from: f32) -> Array {
    let size = shape.iter().product::<usize>();
    let numbers: Vec<f32> = (0..size).map(|at| at as f32 * 0.75 + from).collect();
    Array::try_from_slice(&numbers, shape).unwrap()
}

/// What a pair of arrays gives with and without fusion, each asked twice: a kernel that is met for the first time goes
/// the long way.
fn same_either_way(left: &Array, right: &Array, what: &str) {
    let ask = || -> Vec<Vec<f32>> {
        let twice = |array: Array| array.to_vec::<f32>().unwrap();
        vec![
            twice(left + right),
            twice(right - left),
            twice(left * right + right),
            twice((left + left) * 2.0),
            twice(left.greater(right).unwrap().astype(Dtype::Float32).unwrap()),
            twice(left.exp().unwrap()),
        ]
    };
    let fused = ask();
    eval::set_fusion(false);
    let (first, again) = (ask(), ask());
    eval::set_fusion(true);
    assert_eq!(fused, first, "{what}");
    assert_eq!(fused, again, "{what}, kernels known");
}

#[test]
fn every_layout_gives_the_same_bits_alone_as_in_a_group() {
    let _alone = alone();
    let whole = numbers(&[4, 6], -3.0);
    let other = numbers(&[4, 6], 5.5);
    let one = numbers(&[1], 2.5);
    let number = Array::scalar(1.25, Dtype::Float32).unwrap();
    let part = numbers(&[40], 0.5).slice(&[3], &[9], &[1]).unwrap();
    let element = numbers(&[7], 1.0).slice(&[4], &[5], &[1]).unwrap();
    let turned = numbers(&[6, 4], 9.0).t().unwrap();
    eval([&whole, &other, &one, &part, &element, &turned]).unwrap();
    same_either_way(&whole, &other, "both whole");
    same_either_way(&whole, &one, "one element beside many");
    same_either_way(&one, &whole, "many beside one element");
    same_either_way(&one, &numbers(&[1], 7.0), "one element each");
    same_either_way(&element, &one, "one element that does not lie first");
    same_either_way(&whole, &element, "the same beside many");
    same_either_way(&whole, &number, "a number that the host knows");
    same_either_way(&number, &number, "numbers alone");
    same_either_way(&whole, &turned, "columns beside rows");
    same_either_way(&whole, &part, "a part, stretched");
    same_either_way(&part, &part, "an array beside itself");
    same_either_way(&numbers(&[0], 0.0), &one, "nothing");
}

#[test]
fn a_long_chain_of_ops_alone_is_right_and_holds_two_blocks() {
    let _alone = alone();
    eval::set_fusion(false);
    let start = numbers(&[256], 1.0);
    start.eval().unwrap();
    place::cpu().synchronize().unwrap();
    place::cpu().reset_peak();
    let before = place::cpu().counters().active;
    let mut x = start.clone();
    for _ in 0..1000 {
        x = x + 1.0;
    }
    x.eval().unwrap();
    let peak = place::cpu().counters().peak - before;
    eval::set_fusion(true);
    let expected: Vec<f32> = start.to_vec::<f32>().unwrap().iter().map(|x| x + 1000.0).collect();
    assert_eq!(x.to_vec::<f32>().unwrap(), expected);
    assert!(peak <= 2 * 1024, "{peak} bytes for a chain that needs two blocks of 1024");
}

#[test]
fn what_was_computed_before_is_let_go_when_its_last_reader_is_lowered() {
    let _alone = alone();
    let size = 1 << 18;
    let mut x = numbers(&[size], 0.0);
    x.eval().unwrap();
    place::cpu().synchronize().unwrap();
    place::cpu().clear_cache();
    place::cpu().reset_peak();
    let before = place::cpu().counters().active;
    for _ in 0..3 {
        x = x.sort(None).unwrap();
    }
    x.eval().unwrap();
    // What is sorted and the result; the first of them was there before.
    let peak = place::cpu().counters().peak - before;
    assert!(peak < 2 * 4 * size, "{peak} bytes beside those of the first array");
}

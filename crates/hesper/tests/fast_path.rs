//! Unfused ops: every layout on the fast path and the general path, and the memory that an evaluation holds.

use crate::alone;
use hesper::{Array, Dtype, eval, placement};

fn ramp(shape: &[usize], from: f32) -> Array {
    let size = shape.iter().product::<usize>();
    let numbers: Vec<f32> = (0..size).map(|at| at as f32 * 0.75 + from).collect();
    Array::try_from_slice(&numbers, shape).unwrap()
}

/// Checks that a pair of arrays gives the same bits with and without fusion. Each is evaluated twice, because
/// a kernel that is not cached takes the general path.
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
    let whole = ramp(&[4, 6], -3.0);
    let other = ramp(&[4, 6], 5.5);
    let one = ramp(&[1], 2.5);
    let number = Array::scalar(1.25, Dtype::Float32).unwrap();
    let part = ramp(&[40], 0.5).slice(&[3], &[9], &[1]).unwrap();
    let element = ramp(&[7], 1.0).slice(&[4], &[5], &[1]).unwrap();
    let transposed = ramp(&[6, 4], 9.0).t().unwrap();
    eval([&whole, &other, &one, &part, &element, &transposed]).unwrap();
    same_either_way(&whole, &other, "both whole");
    same_either_way(&whole, &one, "one element beside many");
    same_either_way(&one, &whole, "many beside one element");
    same_either_way(&one, &ramp(&[1], 7.0), "one element each");
    same_either_way(&element, &one, "one element that does not lie first");
    same_either_way(&whole, &element, "the same beside many");
    same_either_way(&whole, &number, "a number that the host knows");
    same_either_way(&number, &number, "numbers alone");
    same_either_way(&whole, &transposed, "columns beside rows");
    same_either_way(&whole, &part, "a part, stretched");
    same_either_way(&part, &part, "an array beside itself");
    same_either_way(&ramp(&[0], 0.0), &one, "nothing");
}

#[test]
fn a_long_chain_of_ops_alone_is_right_and_stays_in_one_block() {
    let _alone = alone();
    eval::set_fusion(false);
    let start = ramp(&[256], 1.0);
    start.eval().unwrap();
    placement::cpu().synchronize().unwrap();
    placement::cpu().reset_peak();
    let before = placement::cpu().counters().active;
    let mut x = start.clone();
    for _ in 0..1000 {
        x += 1.0;
    }
    x.eval().unwrap();
    let peak = placement::cpu().counters().peak - before;
    eval::set_fusion(true);
    let expected: Vec<f32> = start.to_vec::<f32>().unwrap().iter().map(|x| x + 1000.0).collect();
    assert_eq!(x.to_vec::<f32>().unwrap(), expected);
    assert!(peak <= 1024, "{peak} bytes for a chain whose results take each other's place");
}

/// The result of an op that is not fused, without another handle.
fn temporary(shape: &[usize]) -> Array {
    ramp(shape, 2.0).sort(None).unwrap()
}

#[test]
fn results_overwrite_inputs_at_their_last_use() {
    let _alone = alone();
    let size = 1 << 16;
    let (other, start) = (ramp(&[size], 1.0), ramp(&[size], 2.0));
    eval([&other, &start]).unwrap();
    let chains: [fn(Array, &Array) -> Array; 4] =
        [|x, _| x + 1.0, |x, other| (x * 2.0 + other).exp().unwrap(), |x, _| &x * &x, |x, other| other - x];
    for chain in chains {
        let held = start.sort(None).unwrap();
        let expected = chain(held.clone(), &other).to_vec::<f32>().unwrap();
        drop(held);
        placement::cpu().synchronize().unwrap();
        placement::cpu().clear_cache();
        placement::cpu().reset_peak();
        let before = placement::cpu().counters().active;
        let result = chain(start.sort(None).unwrap(), &other);
        result.eval().unwrap();
        let peak = placement::cpu().counters().peak - before;
        assert!(peak <= 4 * size, "{peak} bytes, where only what is sorted needs memory");
        assert_eq!(result.to_vec::<f32>().unwrap(), expected);
    }
}

#[test]
fn arrays_with_other_handles_or_later_readers_are_not_overwritten() {
    let _alone = alone();
    let plain = ramp(&[64], 2.0).to_vec::<f32>().unwrap();
    let plus = |by: f32| -> Vec<f32> { plain.iter().map(|x| x + by).collect() };
    // The program has a handle.
    let (held, result) = {
        let held = temporary(&[64]);
        (held.clone(), held + 1.0)
    };
    eval([&result, &held]).unwrap();
    assert_eq!((held.to_vec::<f32>().unwrap(), result.to_vec::<f32>().unwrap()), (plain.clone(), plus(1.0)));
    // Two ops of different shapes read it, in either order.
    let shared = temporary(&[64]);
    let (sum, result) = (shared.sum(()).unwrap(), &shared + 1.0);
    drop(shared);
    let both = &result + &sum;
    eval([&both, &result, &sum]).unwrap();
    assert_eq!(result.to_vec::<f32>().unwrap(), plus(1.0));
    assert_eq!(sum.item::<f32>().unwrap(), plain.iter().sum::<f32>());
    // Another view of it.
    let shared = temporary(&[64]);
    let reversed = shared.slice(&[-1], &[-65], &[-1]).unwrap();
    let result = shared + reversed;
    let expected: Vec<f32> = plain.iter().zip(plain.iter().rev()).map(|(x, y)| x + y).collect();
    assert_eq!(result.to_vec::<f32>().unwrap(), expected);
    // A small view does not keep a large allocation.
    let part = temporary(&[1 << 16]).slice(&[0], &[1], &[1]).unwrap() + 1.0;
    part.eval().unwrap();
    placement::cpu().synchronize().unwrap();
    let before = placement::cpu().counters().active;
    assert_eq!(part.to_vec::<f32>().unwrap(), [3.0]);
    drop(part);
    assert!(before - placement::cpu().counters().active <= 4096);
    // A derivative reads it again.
    let product = hesper::transform::value_and_grad(
        |x: &[Array]| {
            let y = x[0].sort(None)?;
            let z = y.multiply(&y)?;
            y.eval()?;
            Ok(vec![z.multiply(&y)?.sum(())?])
        },
        &[0],
    );
    let (_, gradients) = product(&[ramp(&[64], 2.0)]).unwrap();
    let cubes: Vec<f32> = plain.iter().map(|x| 3.0 * x * x).collect();
    let close = gradients[0]
        .to_vec::<f32>()
        .unwrap()
        .iter()
        .zip(&cubes)
        .all(|(x, y)| (x - y).abs() <= 1e-3 * y.abs());
    assert!(close);
}

#[test]
fn intermediates_are_freed_when_their_last_reader_is_lowered() {
    let _alone = alone();
    let size = 1 << 18;
    let mut x = ramp(&[size], 0.0);
    x.eval().unwrap();
    placement::cpu().synchronize().unwrap();
    placement::cpu().clear_cache();
    placement::cpu().reset_peak();
    let before = placement::cpu().counters().active;
    for _ in 0..3 {
        x = x.sort(None).unwrap();
    }
    x.eval().unwrap();
    // The sorted array and the result; the first was allocated before.
    let peak = placement::cpu().counters().peak - before;
    assert!(peak < 2 * 4 * size, "{peak} bytes beside those of the first array");
}

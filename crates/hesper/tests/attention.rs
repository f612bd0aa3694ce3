//! Attention and rotary positions against their definitions.

use hesper::fast::{AttentionMask, gated_delta_update, rope, scaled_dot_product_attention};
use hesper::identity::BitEq;
use hesper::ops::step::{
    Attend, Keep, PageRows, Pages, RotaryFrequencies, StepHeads, attend_token, keep_token,
};
use hesper::{Array, Dtype, select, transform};

/// Numbers that look random and are the same every time.
fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn array(shape: &[usize], seed: u32, dtype: Dtype) -> Array {
    let count = shape.iter().product();
    Array::try_from_slice(&noise(count, seed), shape).unwrap().astype(dtype).unwrap()
}

fn doubles(array: &Array) -> Vec<f64> {
    array.astype(Dtype::Float64).unwrap().to_vec::<f64>().unwrap()
}

/// What a query adds to the score of a key; `None` where it does not see it.
type Sees<'a> = &'a dyn Fn(usize, usize, usize, usize) -> Option<f64>;

fn reference(q: &Array, k: &Array, v: &Array, scale: f64, sees: Sees<'_>, sinks: Option<&[f64]>) -> Vec<f64> {
    let (qs, ks, vs) = (q.shape(), k.shape(), v.shape());
    let (q, k, v) = (doubles(q), doubles(k), doubles(v));
    let (width, depth) = (qs[3], vs[3]);
    let mut out = Vec::new();
    for b in 0..qs[0] {
        for h in 0..qs[1] {
            let shared = b * ks[1] + h / (qs[1] / ks[1]);
            for i in 0..qs[2] {
                let query = &q[((b * qs[1] + h) * qs[2] + i) * width..][..width];
                let scores: Vec<f64> = (0..ks[2])
                    .map(|j| {
                        let key = &k[(shared * ks[2] + j) * width..][..width];
                        let dot: f64 = query.iter().zip(key).map(|(a, b)| a * b).sum();
                        sees(b, h, i, j).map_or(f64::from(f32::MIN), |more| dot * scale + more)
                    })
                    .collect();
                let sink = sinks.map(|sinks| sinks[h]);
                let top = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().copied().chain(sink).map(|s| (s - top).exp()).sum();
                for e in 0..depth {
                    let weighed = scores
                        .iter()
                        .enumerate()
                        .map(|(j, score)| (score - top).exp() * v[(shared * vs[2] + j) * depth + e]);
                    out.push(weighed.sum::<f64>() / sum);
                }
            }
        }
    }
    out
}

fn close(given: &Array, wanted: &[f64], tolerance: f64, what: &str) {
    let given = doubles(given);
    assert_eq!(given.len(), wanted.len(), "{what}");
    for (at, (a, b)) in given.iter().zip(wanted).enumerate() {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{what}: element {at} is {a}, not {b}");
    }
}

const TYPES: [(Dtype, f64); 4] =
    [(Dtype::Float32, 2e-5), (Dtype::Float16, 2e-3), (Dtype::Bfloat16, 1.6e-2), (Dtype::Float64, 1e-10)];

#[test]
fn every_mask_type_and_grouping_agrees_with_the_definition() {
    for (dtype, tolerance) in TYPES {
        for (heads, shared, queries, keys) in [(4, 2, 3, 7), (2, 2, 1, 70), (4, 1, 33, 40), (3, 3, 5, 2)] {
            let q = array(&[2, heads, queries, 24], 1, dtype);
            let (k, v) = (array(&[2, shared, keys, 24], 2, dtype), array(&[2, shared, keys, 16], 3, dtype));
            let marks: Vec<bool> =
                noise(heads * queries * keys, 4).iter().map(|number| *number > -0.3).collect();
            let bytes: Vec<u8> = marks.iter().map(|mark| u8::from(*mark)).collect();
            let marked = Array::try_from_slice(&bytes, &[heads, queries, keys]).unwrap();
            let marked = marked.astype(Dtype::Bool).unwrap();
            let added = array(&[2, 1, 1, keys], 5, dtype);
            let numbers = doubles(&added);
            let sinks = array(&[heads], 6, dtype);
            let what = format!("{dtype}, {heads} heads on {shared}, {queries} queries, {keys} keys");
            let causal = |_: usize, _: usize, i: usize, j: usize| (j + queries <= i + keys).then_some(0.0);
            let by_marks =
                |_: usize, h: usize, i: usize, j: usize| marks[(h * queries + i) * keys + j].then_some(0.0);
            let by_numbers = |b: usize, _: usize, _: usize, j: usize| Some(numbers[b * keys + j]);
            let all = |_: usize, _: usize, _: usize, _: usize| Some(0.0);
            let masks: [(AttentionMask<'_>, Sees<'_>); 4] = [
                (AttentionMask::None, &all),
                (AttentionMask::Causal, &causal),
                (AttentionMask::Array(&marked), &by_marks),
                (AttentionMask::Array(&added), &by_numbers),
            ];
            for (mask, sees) in masks {
                let given = scaled_dot_product_attention(&q, &k, &v, 0.25, mask, None).unwrap();
                assert_eq!((given.shape(), given.dtype()), (&[2, heads, queries, 16][..], dtype));
                close(
                    &given,
                    &reference(&q, &k, &v, 0.25, sees, None),
                    tolerance,
                    &format!("{what}, {mask:?}"),
                );
                let given = scaled_dot_product_attention(&q, &k, &v, 0.25, mask, Some(&sinks)).unwrap();
                let wanted = reference(&q, &k, &v, 0.25, sees, Some(&doubles(&sinks)));
                close(&given, &wanted, tolerance, &format!("{what}, {mask:?}, sinks"));
            }
        }
    }
}

#[test]
fn slices_of_a_longer_cache_and_turned_heads_give_the_same_numbers() {
    // Heads as a projection makes them: beside each other in a row.
    let q = array(&[2, 3, 4, 8], 1, Dtype::Float32).transpose(&[0, 2, 1, 3]).unwrap();
    let (ks, vs) = (array(&[2, 2, 50, 8], 2, Dtype::Float32), array(&[2, 2, 50, 8], 3, Dtype::Float32));
    let part = |cache: &Array| cache.slice(&[0, 0, 10, 0], &[2, 2, 31, 8], &[1, 1, 1, 1]).unwrap();
    let (k, v) = (part(&ks), part(&vs));
    let given = scaled_dot_product_attention(&q, &k, &v, 0.5, AttentionMask::Causal, None).unwrap();
    let copied =
        |array: &Array| Array::try_from_slice(&array.to_vec::<f32>().unwrap(), array.shape()).unwrap();
    let causal = |_: usize, _: usize, i: usize, j: usize| (j + 3 <= i + 21).then_some(0.0);
    close(&given, &reference(&copied(&q), &copied(&k), &copied(&v), 0.5, &causal, None), 2e-5, "slices");
    // Rows that run backwards or across are copied first, and give the same.
    let across = copied(&k).swapaxes(-1, -2).unwrap();
    let across = copied(&across).swapaxes(-1, -2).unwrap();
    let again = scaled_dot_product_attention(&q, &across, &v, 0.5, AttentionMask::Causal, None).unwrap();
    assert_eq!(again.to_vec::<f32>().unwrap(), given.to_vec::<f32>().unwrap());
}

#[test]
fn empty_keys_give_zeros_and_what_does_not_fit_is_an_error() {
    let x = |shape: &[usize]| array(shape, 1, Dtype::Float32);
    let run = |q: &Array, k: &Array, v: &Array| {
        scaled_dot_product_attention(q, k, v, 1.0, AttentionMask::None, None)
    };
    let q = x(&[1, 2, 3, 4]);
    let none = run(&q, &x(&[1, 2, 0, 4]), &x(&[1, 2, 0, 5])).unwrap();
    assert_eq!(none.to_vec::<f32>().unwrap(), [0.0; 30]);
    assert_eq!(run(&x(&[1, 2, 0, 4]), &q, &q).unwrap().shape(), [1, 2, 0, 4]);
    for (k, v) in [
        (x(&[1, 2, 3, 5]), x(&[1, 2, 3, 4])),
        (x(&[1, 2, 3, 4]), x(&[1, 2, 4, 4])),
        (x(&[2, 2, 3, 4]), x(&[2, 2, 3, 4])),
        (x(&[1, 3, 3, 4]), x(&[1, 3, 3, 4])),
        (x(&[1, 0, 3, 4]), x(&[1, 0, 3, 4])),
        (x(&[2, 3, 4]), x(&[2, 3, 4])),
    ] {
        assert!(run(&q, &k, &v).is_err(), "{k:?} and {v:?}");
    }
    let ints = Array::zeros(&[1, 2, 3, 4], Dtype::Int32).unwrap();
    assert!(run(&ints, &ints, &ints).is_err());
    let half = q.astype(Dtype::Float16).unwrap();
    for mask in [x(&[3, 4]), x(&[1, 1, 1, 3, 3])] {
        let masked = scaled_dot_product_attention(&q, &q, &q, 1.0, AttentionMask::Array(&mask), None);
        assert!(masked.is_err(), "{mask:?}");
    }
    let wide = AttentionMask::Array(&q);
    assert!(scaled_dot_product_attention(&half, &half, &half, 1.0, wide, None).is_err());
    let sinks = x(&[3]);
    assert!(scaled_dot_product_attention(&q, &q, &q, 1.0, AttentionMask::None, Some(&sinks)).is_err());
}

fn turned(
    x: &Array,
    dims: usize,
    traditional: bool,
    scale: f64,
    starts: &[f64],
    step: &dyn Fn(usize) -> f64,
) -> Vec<f64> {
    let shape = x.shape();
    let (width, length) = (shape[shape.len() - 1], shape[shape.len() - 2]);
    let mut out = doubles(x);
    let each = out.len() / shape[0] / width;
    for (number, row) in out.chunks_mut(width).enumerate() {
        let position = ((number % length) as f64 + starts[number / each % starts.len()]) * scale;
        for pair in 0..dims / 2 {
            let (a, b) = if traditional { (2 * pair, 2 * pair + 1) } else { (pair, pair + dims / 2) };
            let (sin, cos) = (position * step(pair)).sin_cos();
            (row[a], row[b]) = (row[a] * cos - row[b] * sin, row[a] * sin + row[b] * cos);
        }
    }
    out
}

#[test]
fn rotary_positions_agree_with_their_definition() {
    for (dtype, tolerance) in
        [(Dtype::Float32, 2e-5), (Dtype::Float16, 2e-3), (Dtype::Bfloat16, 1.6e-2), (Dtype::Float64, 2e-5)]
    {
        for shape in [&[2, 5, 16][..], &[2, 3, 5, 16], &[1, 2, 2, 5, 16]] {
            let x = array(shape, 7, dtype);
            for (dims, traditional) in [(16, false), (16, true), (8, false), (10, true)] {
                let what = format!("{dtype}, {shape:?}, {dims} features, traditional: {traditional}");
                let step = |pair: usize| 1e4f64.powf(-(pair as f64) / (dims / 2) as f64);
                let given = rope(&x, dims, traditional, Some(1e4), 0.5, 11, None).unwrap();
                assert_eq!((given.shape(), given.dtype()), (shape, dtype));
                close(&given, &turned(&x, dims, traditional, 0.5, &[11.0], &step), tolerance, &what);
                let waves: Vec<f32> = (0..dims / 2).map(|pair| 1.0 + pair as f32).collect();
                let starts: Vec<i32> = (0..shape[0] as i32).map(|at| 3 * at + 1).collect();
                let wanted: Vec<f64> = starts.iter().map(|start| f64::from(*start)).collect();
                let offsets = Array::from_slice(&starts);
                let freqs = Array::from_slice(&waves);
                let given = rope(&x, dims, traditional, None, 1.0, &offsets, Some(&freqs)).unwrap();
                let step = |pair: usize| 1.0 / (1.0 + pair as f64);
                close(&given, &turned(&x, dims, traditional, 1.0, &wanted, &step), tolerance, &what);
            }
        }
    }
}

#[test]
fn rotary_positions_of_turned_heads_and_many_rows_agree_with_their_definition() {
    let x = array(&[2, 700, 3, 32], 8, Dtype::Float32).transpose(&[0, 2, 1, 3]).unwrap();
    let step = |pair: usize| 1e4f64.powf(-(pair as f64) / 16.0);
    let offset = Array::integer(5, Dtype::Int64).unwrap();
    let given = rope(&x, 32, false, Some(1e4), 1.0, &offset, None).unwrap();
    // Angles of hundreds keep four digits in single precision.
    close(&given, &turned(&x, 32, false, 1.0, &[5.0], &step), 2e-4, "turned heads");
    let across = x.swapaxes(-1, -2).unwrap().contiguous().unwrap().swapaxes(-1, -2).unwrap();
    let again = rope(&across, 32, false, Some(1e4), 1.0, 5, None).unwrap();
    assert_eq!(again.to_vec::<f32>().unwrap(), given.to_vec::<f32>().unwrap());
}

#[test]
fn rotary_positions_refuse_what_does_not_fit() {
    let x = array(&[2, 3, 8], 1, Dtype::Float32);
    let waves = Array::from_slice(&[1.0f32; 4]);
    let base = Some(1e4);
    assert!(rope(&x, 7, false, base, 1.0, 0, None).is_err());
    assert!(rope(&x, 0, false, base, 1.0, 0, None).is_err());
    assert!(rope(&x, 10, false, base, 1.0, 0, None).is_err());
    assert!(rope(&x, 8, false, base, 1.0, 0, Some(&waves)).is_err());
    assert!(rope(&x, 8, false, None, 1.0, 0, None).is_err());
    assert!(rope(&x, 6, false, None, 1.0, 0, Some(&waves)).is_err());
    assert!(rope(&x, 8, false, base, 1.0, Array::from_slice(&[1, 2, 3]), None).is_err());
    assert!(rope(&x, 8, false, base, 1.0, Array::from_slice(&[1.0f32]), None).is_err());
    let row = Array::from_slice(&[1.0f32; 8]);
    assert!(rope(&row, 8, false, base, 1.0, 0, None).is_err());
    let none = Array::zeros(&[2, 0, 8], Dtype::Float32).unwrap();
    assert_eq!(rope(&none, 8, false, base, 1.0, 0, None).unwrap().shape(), [2, 0, 8]);
}

/// The slope of a function's sum along each of some elements, by differences of doubles.
fn slopes(f: &dyn Fn(&Array) -> Array, at: &Array, elements: &[usize]) -> Vec<f64> {
    let start = doubles(at);
    let value = |element: usize, step: f64| {
        let mut moved = start.clone();
        moved[element] += step;
        let moved = Array::try_from_slice(&moved, at.shape()).unwrap();
        doubles(&f(&moved)).iter().enumerate().map(|(at, x)| x * (1.0 + (at % 5) as f64)).sum::<f64>()
    };
    elements.iter().map(|element| (value(*element, 1e-5) - value(*element, -1e-5)) / 2e-5).collect()
}

/// Compares the derivative of a function with differences.
fn check_slope(f: &dyn Fn(&Array) -> Array, at: &Array, tolerance: f64, what: &str) {
    let weighed = |x: &[Array]| {
        let y = f(&x[0]);
        let weights: Vec<f64> = (0..y.size()).map(|at| 1.0 + (at % 5) as f64).collect();
        let weights = Array::try_from_slice(&weights, y.shape())?.astype(y.dtype())?;
        Ok(vec![y.multiply(&weights)?.sum(())?])
    };
    let (_, given) = transform::gradient::<hesper::Error>(weighed, &[at.clone()], &[0]).unwrap();
    let given = doubles(&given[0]);
    let elements: Vec<usize> = (0..at.size()).step_by(at.size().div_ceil(12)).collect();
    let wide = at.astype(Dtype::Float64).unwrap();
    for (element, slope) in elements.iter().zip(slopes(f, &wide, &elements)) {
        let off = (given[*element] - slope).abs();
        assert!(off <= tolerance * (1.0 + slope.abs()), "{what}: {} for {slope}", given[*element]);
    }
}

#[test]
fn derivatives_of_attention_and_rotary_positions_are_those_of_differences() {
    let wide = |array: &Array, like: &Array| array.astype(like.dtype()).unwrap();
    let (q, k) = (array(&[1, 4, 3, 8], 1, Dtype::Float32), array(&[1, 2, 5, 8], 2, Dtype::Float32));
    let (v, mask) = (array(&[1, 2, 5, 4], 3, Dtype::Float32), array(&[3, 5], 4, Dtype::Float32));
    let run = |q: &Array, k: &Array, v: &Array, mask: AttentionMask<'_>| {
        scaled_dot_product_attention(q, k, v, 0.5, mask, None).unwrap()
    };
    let causal = AttentionMask::Causal;
    check_slope(&|x| run(x, &wide(&k, x), &wide(&v, x), causal), &q, 1e-3, "queries");
    check_slope(&|x| run(&wide(&q, x), x, &wide(&v, x), causal), &k, 1e-3, "keys");
    check_slope(&|x| run(&wide(&q, x), &wide(&k, x), x, causal), &v, 1e-3, "values");
    let masked = |x: &Array| run(&wide(&q, x), &wide(&k, x), &wide(&v, x), AttentionMask::Array(x));
    check_slope(&masked, &mask, 1e-3, "mask");
    for traditional in [false, true] {
        let turn = |x: &Array| rope(x, 6, traditional, Some(100.0), 1.0, 3, None).unwrap();
        check_slope(&turn, &q, 1e-3, "rope");
    }
}

/// Attention of other ops, where a bool mask is all that hides keys.
fn apart(q: &Array, k: &Array, v: &Array, scale: f32, mask: Option<&Array>) -> hesper::Result<Array> {
    let share = q.shape()[1] / k.shape()[1];
    let (k, v) = (k.repeat(share, Some(1))?, v.repeat(share, Some(1))?);
    let mut scores = q.matmul(&k.swapaxes(-1, -2)?)?.multiply(scale)?;
    if let Some(mask) = mask {
        let low = Array::scalar(f64::from(f32::MIN), scores.dtype())?;
        scores = if mask.dtype() == Dtype::Bool { select(mask, &scores, &low)? } else { scores.add(mask)? };
    }
    scores.softmax(-1)?.matmul(&v)
}

/// Whether a mask has a dtype that arrays of half precision refuse.
fn mask_is_wide(mask: &AttentionMask<'_>) -> bool {
    matches!(mask, AttentionMask::Array(mask) if mask.dtype() == Dtype::Float32)
}

#[test]
fn the_derivative_as_one_op_is_that_of_the_ops_apart() {
    // Blocks of queries, shared keys, queries that see no key, values of another length.
    for (number, [batch, heads, shared, queries, keys, width, depth]) in
        [[2, 4, 2, 5, 7, 8, 6], [1, 2, 2, 131, 150, 16, 16], [2, 3, 1, 9, 4, 5, 3], [1, 1, 1, 1, 1, 1, 1]]
            .into_iter()
            .enumerate()
    {
        let x = |heads, length, width, seed| array(&[batch, heads, length, width], seed, Dtype::Float32);
        let (q, k) = (x(heads, queries, width, 1), x(shared, keys, width, 2));
        let (v, weights) = (x(shared, keys, depth, 3), x(heads, queries, depth, 4));
        let sees = |i: usize, j: usize| i + keys >= j + queries;
        let causal: Vec<u8> = (0..queries * keys).map(|at| u8::from(sees(at / keys, at % keys))).collect();
        let bools = |marks: &[u8]| {
            Array::try_from_slice(marks, &[queries, keys]).unwrap().astype(Dtype::Bool).unwrap()
        };
        let causal = bools(&causal);
        let marks: Vec<u8> = noise(queries * keys, 5).iter().map(|x| u8::from(*x > -0.2)).collect();
        let marks = bools(&marks);
        let added = array(&[heads, queries, keys], 6, Dtype::Float32);
        let cases = [
            (AttentionMask::None, None),
            (AttentionMask::Causal, Some(&causal)),
            (AttentionMask::Array(&marks), Some(&marks)),
            (AttentionMask::Array(&added), Some(&added)),
        ];
        for (at, (mask, same)) in cases.into_iter().enumerate() {
            let fused = |x: &[Array]| {
                let y = scaled_dot_product_attention(&x[0], &x[1], &x[2], 0.7, mask, None)?;
                y.multiply(&weights)?.sum(())
            };
            let plain = |x: &[Array]| apart(&x[0], &x[1], &x[2], 0.7, same)?.multiply(&weights)?.sum(());
            let inputs = [q.clone(), k.clone(), v.clone()];
            let given = transform::grad(fused, &[0, 1, 2])(&inputs).unwrap();
            let wanted = transform::grad(plain, &[0, 1, 2])(&inputs).unwrap();
            let graph = transform::to_dot(&given);
            assert!(graph.contains("attention_gradient"), "{graph}");
            for (which, (given, wanted)) in given.iter().zip(&wanted).enumerate() {
                close(given, &doubles(wanted), 2e-5, &format!("case {number}, mask {at}, input {which}"));
            }
            if mask_is_wide(&mask) {
                continue;
            }
            let half: Vec<Array> = inputs.iter().map(|x| x.astype(Dtype::Float16).unwrap()).collect();
            let given = transform::grad(fused, &[0])(&half).unwrap();
            assert_eq!(given[0].dtype(), Dtype::Float16);
            close(&given[0], &doubles(&wanted[0]), 2e-2, &format!("case {number}, mask {at}, float16"));
        }
    }
}

#[test]
fn a_derivative_of_attention_can_be_differentiated_compiled_and_vectorized() {
    let x = array(&[1, 2, 3, 4], 7, Dtype::Float32);
    let of = |attend: &dyn Fn(&Array) -> hesper::Result<Array>| {
        let square = |x: &[Array]| attend(&x[0])?.square()?.sum(());
        let slope = |x: &[Array]| transform::grad(square, &[0])(x)?[0].square()?.sum(());
        transform::grad(slope, &[0])(&[x.clone()]).unwrap().remove(0)
    };
    let fused = |x: &Array| scaled_dot_product_attention(x, x, x, 0.5, AttentionMask::None, None);
    let wanted = of(&|x| apart(x, x, x, 0.5, None));
    close(&of(&fused), &doubles(&wanted), 1e-4, "the second derivative");
    let slope = move |x: &[Array]| transform::grad(move |x| fused(&x[0])?.square()?.sum(()), &[0])(x);
    let alone = slope(&[x.clone()]).unwrap();
    let compiled = transform::compile(slope)(&[x.clone()]).unwrap();
    assert_eq!(compiled[0].to_vec::<f32>().unwrap(), alone[0].to_vec::<f32>().unwrap());
    let both = hesper::stack(&[x.clone(), x.multiply(2.0).unwrap()], 0).unwrap();
    let rows = transform::vmap(slope, &[Some(0)], &[Some(0)])(&[both]).unwrap();
    assert_eq!(rows[0].shape(), [2, 1, 2, 3, 4]);
    close(&rows[0].take(0i64, Some(0)).unwrap(), &doubles(&alone[0]), 1e-6, "the first of two");
}

#[test]
fn attention_and_rotary_positions_over_one_axis_more_are_those_of_slices() {
    let q = array(&[3, 1, 4, 2, 8], 1, Dtype::Float32);
    let k = array(&[1, 2, 5, 8], 2, Dtype::Float32);
    let one = |q: &Array| {
        let turned = rope(q, 8, false, Some(100.0), 1.0, 3, None)?;
        scaled_dot_product_attention(&turned, &k, &k, 0.5, AttentionMask::Causal, None)
    };
    let all = transform::vmap(|x: &[Array]| Ok(vec![one(&x[0])?]), &[Some(0)], &[Some(0)]);
    let given = &all(std::slice::from_ref(&q)).unwrap()[0];
    let slices: Vec<Array> = (0..3).map(|at| one(&q.take(at, Some(0)).unwrap()).unwrap()).collect();
    let wanted = hesper::stack(&slices, 0).unwrap();
    assert_eq!(given.shape(), wanted.shape());
    close(given, &doubles(&wanted), 1e-5, "slices");
}

/// The gated delta rule, step by step.
fn remembered(
    [q, k, v, gamma, beta]: [&Array; 5],
    state: Option<&Array>,
    mask: Option<&[bool]>,
) -> (Vec<f64>, Vec<f64>) {
    let (ks, vs, each) = (k.shape().to_vec(), v.shape().to_vec(), gamma.ndim() == 4);
    let [q, k, v, gamma, beta] = [q, k, v, gamma, beta].map(doubles);
    let (length, kh, dk, vh, dv) = (ks[1], ks[2], ks[3], vs[2], vs[3]);
    let mut held = state.map_or_else(|| vec![0.0; ks[0] * vh * dv * dk], doubles);
    let mut out = vec![0.0; v.len()];
    for (step, h) in (0..ks[0] * length).flat_map(|step| (0..vh).map(move |h| (step, h))) {
        if mask.is_some_and(|mask| !mask[step]) {
            continue;
        }
        let at = step * vh + h;
        let line = (step * kh + h / (vh / kh)) * dk;
        for i in 0..dv {
            let row = &mut held[((step / length * vh + h) * dv + i) * dk..][..dk];
            for (j, x) in row.iter_mut().enumerate() {
                *x *= if each { gamma[at * dk + j] } else { gamma[at] };
            }
            let known: f64 = row.iter().zip(&k[line..]).map(|(a, b)| a * b).sum();
            let more = (v[at * dv + i] - known) * beta[at];
            row.iter_mut().zip(&k[line..]).for_each(|(x, k)| *x += more * k);
            out[at * dv + i] = row.iter().zip(&q[line..]).map(|(a, b)| a * b).sum();
        }
    }
    (out, held)
}

#[test]
fn the_gated_delta_rule_agrees_with_its_definition() {
    for (dtype, tolerance) in TYPES {
        for wide in [false, true] {
            let (q, k) = (array(&[2, 5, 2, 20], 1, dtype), array(&[2, 5, 2, 20], 2, dtype));
            let (v, state) = (array(&[2, 5, 4, 37], 3, dtype), array(&[2, 4, 37, 20], 4, Dtype::Float32));
            let gamma = array(if wide { &[2, 5, 4, 20] } else { &[2, 5, 4] }, 5, dtype);
            let beta = array(&[2, 5, 4], 6, dtype).multiply(0.25).unwrap();
            let marks = [true, false, true, true, true, true, true, false, false, true];
            let mask = Array::try_from_slice(&marks.map(u8::from), &[2, 5]).unwrap();
            let given = [&q, &k, &v, &gamma, &beta];
            for (state, mask, marks) in [(None, None, None), (Some(&state), Some(&mask), Some(&marks[..]))] {
                let (out, held) = gated_delta_update(&q, &k, &v, &gamma, &beta, state, mask).unwrap();
                let (wanted, left) = remembered(given, state, marks);
                let what = format!("{dtype}, decays for each feature: {wide}");
                close(&out, &wanted, 10.0 * tolerance, &what);
                close(&held, &left, 10.0 * tolerance, &what);
            }
        }
    }
    let q = array(&[1, 3, 1, 4], 1, Dtype::Float32);
    let one = Array::ones(&[1, 3, 1], Dtype::Float32).unwrap();
    assert!(gated_delta_update(&q, &q, &q, &one, &q, None, None).is_err());
    assert!(gated_delta_update(&q, &q, &q, &one, &one, Some(&q), None).is_err());
    let none = Array::zeros(&[1, 0, 1, 4], Dtype::Float32).unwrap();
    let steps = Array::zeros(&[1, 0, 1], Dtype::Float32).unwrap();
    let (out, held) = gated_delta_update(&none, &none, &none, &steps, &steps, None, None).unwrap();
    assert_eq!((out.shape(), held.to_vec::<f32>().unwrap()), (&[1, 0, 1, 4][..], vec![0.0; 16]));
}

#[test]
fn derivatives_of_the_gated_delta_rule_are_those_of_differences() {
    let (q, k) = (array(&[1, 3, 1, 4], 1, Dtype::Float32), array(&[1, 3, 1, 4], 2, Dtype::Float32));
    let (v, steps) = (array(&[1, 3, 2, 5], 3, Dtype::Float32), array(&[1, 3, 2], 4, Dtype::Float32));
    let wide = |array: &Array, like: &Array| array.astype(like.dtype()).unwrap();
    let run = |q: &Array, k: &Array, v: &Array, steps: &Array, state: bool| {
        let (out, held) = gated_delta_update(q, k, v, steps, steps, None, None).unwrap();
        if state { held } else { out }
    };
    for state in [false, true] {
        check_slope(&|x| run(&wide(&q, x), x, &wide(&v, x), &wide(&steps, x), state), &k, 1e-3, "keys");
        check_slope(&|x| run(&wide(&q, x), &wide(&k, x), x, &wide(&steps, x), state), &v, 1e-3, "values");
        check_slope(&|x| run(&wide(&q, x), &wide(&k, x), &wide(&v, x), x, state), &steps, 1e-3, "rates");
    }
}

#[test]
fn tokens_of_half_precision_are_kept_and_attend_like_those_of_single_precision() {
    let heads = StepHeads { queries: 4, keys: 2, width: 16 };
    let turns = RotaryFrequencies::new(16, false, 10_000.0, 1.0);
    let starts = [3, 0, 6];
    let both = |dtype: Dtype| {
        let tokens = array(&[3, 8 * 16], 1, Dtype::Bfloat16).astype(dtype).unwrap();
        let block = array(&[3, 4, 8, 16], 2, Dtype::Bfloat16).astype(dtype).unwrap();
        let kept = keep_token(&block, &tokens, &starts, None, heads, Some(&turns)).unwrap();
        let seen = attend_token(&tokens, &kept, &starts, None, heads, Some(&turns), 0.25, Some(4)).unwrap();
        assert_eq!((kept.dtype(), seen.dtype()), (dtype, dtype));
        [doubles(&kept), doubles(&seen)]
    };
    for (one, other) in both(Dtype::Float32).iter().zip(both(Dtype::Bfloat16)) {
        for (a, b) in one.iter().zip(other) {
            assert!((a - b).abs() < 0.02, "{a} and {b}");
        }
    }
    let tokens = array(&[3, 8 * 16], 1, Dtype::Float16);
    let block = array(&[3, 4, 8, 16], 2, Dtype::Float32);
    let error = keep_token(&block, &tokens, &starts, None, heads, None).unwrap_err();
    assert!(error.to_string().contains("the block float16, not a block of float32"), "{error}");
}

#[test]
fn a_step_over_pages_of_every_format_is_that_of_the_ops_it_stands_for() {
    let heads = StepHeads { queries: 6, keys: 2, width: 64 };
    let turns = RotaryFrequencies::new(64, false, 10_000.0, 1.0);
    // Pages of 8 rows in any order; the second sequence shares the first page, and behind the third there is
    // a page that is not read.
    let (starts, room) = ([13, 9, 0, 70], 8);
    let tables: Vec<Vec<u32>> =
        vec![vec![3, 5], vec![3, 1], vec![2, 900], vec![6, 7, 8, 9, 10, 11, 12, 13, 4]];
    let formats = [
        (PageRows::Exact, 1e-5),
        (PageRows::Half, 1e-5),
        (PageRows::Affine { bits: 8, group: 32 }, 1e-5),
        (PageRows::Affine { bits: 4, group: 32 }, 1e-5),
        (PageRows::Affine { bits: 4, group: 64 }, 1e-5),
    ];
    for dtype in [Dtype::Float32, Dtype::Bfloat16, Dtype::Float16] {
        for (rows, bound) in formats {
            let bound = if dtype == Dtype::Float32 { bound } else { 1e-2 };
            let pages = Pages { tables: tables.clone().into(), rows };
            let tokens = array(&[4, 10 * 64], 1, dtype);
            let pool = rows.encode(&array(&[14, 4, room, 64], 2, dtype)).unwrap();
            assert_eq!((pool.dtype(), pool.shape()[3]), (rows.dtype(dtype), rows.width(64)));
            for window in [None, Some(11)] {
                let kept = keep_token(&pool, &tokens, &starts, Some(&pages), heads, Some(&turns)).unwrap();
                let seen =
                    attend_token(&tokens, &kept, &starts, Some(&pages), heads, Some(&turns), 0.125, window);
                let seen = seen.unwrap();
                let keep = Keep {
                    heads,
                    starts: starts.to_vec(),
                    pages: Some(pages.clone()),
                    turns: Some(turns.clone()),
                };
                let plain = keep.composed(&[pool.clone(), tokens.clone()]).unwrap();
                let attend = Attend {
                    heads,
                    starts: starts.to_vec(),
                    pages: Some(pages.clone()),
                    turns: Some(turns.clone()),
                    scale: BitEq(0.125),
                    window: window.unwrap_or(usize::MAX),
                };
                let expected = attend.composed(&[tokens.clone(), plain.clone()]).unwrap();
                let values = |pool: &Array| doubles(&rows.decode(pool, 64, Dtype::Float32).unwrap());
                for (what, one, other) in
                    [("kept", values(&kept), values(&plain)), ("seen", doubles(&seen), doubles(&expected))]
                {
                    // A number at the edge between two codes may get either.
                    let bound = match rows {
                        PageRows::Affine { bits, .. } => bound + 2.5 / (1 << bits) as f64,
                        _ => bound,
                    };
                    let off = one.iter().zip(&other).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                    assert!(off <= bound, "{what}, {dtype}, {rows:?}, {window:?}: off by {off}");
                }
            }
        }
    }
    let pages = Pages { tables: tables.into(), rows: PageRows::Affine { bits: 3, group: 32 } };
    let pool = array(&[14, 4, room, 10], 2, Dtype::Float32);
    let tokens = array(&[4, 10 * 64], 1, Dtype::Float32);
    assert!(keep_token(&pool, &tokens, &starts, Some(&pages), heads, None).is_err());
}

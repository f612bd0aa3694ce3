//! Times reductions, scans and sorts beside a copy of the same memory and a plain loop, in one process.
//!
//! `cargo run --release -p hesper --example reduce_bench`

use std::time::Instant;

use hesper::{Array, Result};

const SIDE: usize = 4096;

/// The shortest of some runs, in milliseconds.
fn best(runs: usize, mut f: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut shortest = f64::INFINITY;
    for _ in 0..runs {
        let start = Instant::now();
        f()?;
        shortest = shortest.min(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(shortest)
}

fn main() -> Result<()> {
    let mut state = 1u32;
    let elements: Vec<f32> = (0..SIDE * SIDE)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        })
        .collect();
    let x = Array::try_from_slice(&elements, &[SIDE, SIDE])?;
    let million = Array::from_slice(&elements[..1 << 20]);

    let mut target = vec![0.0f32; elements.len()];
    let copy = best(5, || {
        target.copy_from_slice(std::hint::black_box(&elements));
        Ok(())
    })?;
    let plain = best(3, || {
        std::hint::black_box(elements.iter().sum::<f32>());
        Ok(())
    })?;
    let plain_sort = best(3, || {
        let mut row = elements[..1 << 20].to_vec();
        row.sort_unstable_by(f32::total_cmp);
        std::hint::black_box(&row);
        Ok(())
    })?;
    println!("{SIDE} x {SIDE} float32: copy {copy:.2} ms, plain sum {plain:.2} ms; times in copies");
    type Case<'a> = (&'a str, &'a dyn Fn() -> Result<Array>);
    let cases: [Case<'_>; 12] = [
        ("sum", &|| x.sum(())),
        ("sum over axis 0", &|| x.sum(0)),
        ("sum over axis 1", &|| x.sum(1)),
        ("sum of transposed over axis 0", &|| x.t()?.sum(0)),
        ("max over axis 1", &|| x.max(1)),
        ("variance", &|| x.var((), 0)),
        ("argmax over axis 1", &|| x.argmax(1)),
        ("argmax over axis 0", &|| x.argmax(0)),
        ("softmax over axis 1", &|| x.softmax(1)),
        ("softmax over axis 0", &|| x.softmax(0)),
        ("running sum over axis 1", &|| x.cumsum(Some(1), false, true)),
        ("running sum over axis 0", &|| x.cumsum(Some(0), false, true)),
    ];
    for (name, f) in cases {
        let time = best(5, || f()?.eval())?;
        println!("{name:32} {time:8.2} ms {:6.2}", time / copy);
    }
    let sort = best(5, || million.sort(Some(0))?.eval())?;
    let order = best(5, || million.argsort(Some(0))?.eval())?;
    println!("sort of 2^20 {sort:.2} ms, argsort {order:.2} ms, plain sort {plain_sort:.2} ms");
    Ok(())
}

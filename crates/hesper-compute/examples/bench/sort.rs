//! Sorts of a million elements, as one row and as many rows.

use half::f16;
use hesper_compute::{Par, Sortable, argsort, partition, sort};

use crate::measure::best;

fn time<T: Sortable>(par: &dyn Par, name: &str, x: &[T]) {
    let (mut out, mut indices) = (x.to_vec(), vec![0u32; x.len()]);
    for n in [x.len(), 1024, 128] {
        println!(
            "{name:4} {:6} x {n:7}: sort {:7.3} ms, argsort {:7.3} ms, partition {:7.3} ms",
            x.len() / n,
            best(|| sort(par, x, n, &mut out).unwrap()) * 1e3,
            best(|| argsort(par, x, n, &mut indices).unwrap()) * 1e3,
            best(|| partition(par, x, n, n / 2, &mut out).unwrap()) * 1e3,
        );
    }
}

pub fn run(par: &dyn Par) {
    println!("threads {}, simd {:?}", par.threads(), par.simd());
    let bits: Vec<u64> = (1..=1u64 << 20)
        .map(|i| {
            let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        })
        .collect();
    let floats: Vec<f32> = bits.iter().map(|b| (b >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect();
    time(par, "f32", &floats);
    time(par, "f64", &bits.iter().map(|b| *b as f64).collect::<Vec<_>>());
    time(par, "f16", &floats.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>());
    time(par, "i32", &bits.iter().map(|b| *b as i32).collect::<Vec<_>>());
    time(par, "u8", &bits.iter().map(|b| *b as u8).collect::<Vec<_>>());
}

//! Parts of decoders: GGUF blocks, decode steps, residual sums with norms.

use hesper::fast::rms_norm;
use hesper::ops::step::{PageRows, Pages, RotaryFrequencies, StepHeads, attend_token, keep_token};
use hesper::placement::{self, Device};
use hesper::{Array, Dtype, Error, PackedArray, PackedFormat, QuantMode, Split, concatenate, eval};

use crate::cases::{Cases, FLOATS, data, indices, sized, tolerance};

const FORMATS: [PackedFormat; 10] = [
    PackedFormat::Q4_0,
    PackedFormat::Q4_1,
    PackedFormat::Q5_0,
    PackedFormat::Q5_1,
    PackedFormat::Q8_0,
    PackedFormat::Q2_K,
    PackedFormat::Q3_K,
    PackedFormat::Q4_K,
    PackedFormat::Q5_K,
    PackedFormat::Q6_K,
];

/// Adds all cases.
pub fn add(cases: &mut Cases) {
    packed(cases);
    layers(cases);
    steps(cases);
    chains(cases);
    fresh_matrices(cases);
    clusters(cases);
    for dtype in FLOATS {
        cases.add(format!("sums with their norms {dtype}"), tolerance(dtype), move || {
            with_difference(|| {
                let mut all = Vec::new();
                for (rows, length) in [(1usize, 4096usize), (5, 576), (3, 40), (2, 8200)] {
                    let (x, y) = (data(&[rows, length], dtype, 1), data(&[rows, length], dtype, 2));
                    all.extend(add_norm(&x, &y, &data(&[length], dtype, 3))?);
                }
                Ok(all)
            })
        });
        cases.add(format!("gates beside what they multiply {dtype}"), tolerance(dtype), move || {
            let shapes = [vec![1usize, 28672], vec![3, 2, 80], vec![5, 26], vec![16]];
            with_difference(|| shapes.iter().map(|shape| silu_gate(&data(shape, dtype, 1))).collect())
        });
    }
}

/// A sum and its norm.
fn add_norm(x: &Array, y: &Array, weight: &Array) -> Result<[Array; 2], Error> {
    let sum = x.add(y)?;
    let normal = rms_norm(&sum, Some(weight), 1e-5)?;
    Ok([sum, normal])
}

/// `silu` of the first half of each row, times the second half.
fn silu_gate(both: &Array) -> Result<Array, Error> {
    gated(&both.split(Split::Sections(2), -1)?)
}

fn gated(parts: &[Array]) -> Result<Array, Error> {
    parts[0].multiply(parts[0].sigmoid()?)?.multiply(&parts[1])
}

/// The results of a graph, and for each whether any bit differs with fusion off.
fn with_difference(build: impl Fn() -> Result<Vec<Array>, Error>) -> Result<Vec<Array>, Error> {
    let mut fused = build()?;
    eval(&fused)?;
    eval::set_fusion(false);
    let alone = build().and_then(|alone| eval(&alone).map(|()| alone));
    eval::set_fusion(true);
    for (one, other) in fused.clone().iter().zip(alone?) {
        fused.push(one.not_equal(other)?.any(())?);
    }
    Ok(fused)
}

/// Blocks of random bytes with finite scales.
fn matrix(format: PackedFormat, rows: usize, cols: usize, seed: u64) -> Result<PackedArray, Error> {
    let size = format.block_bytes();
    let count = rows * cols / format.block_len();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes: Vec<u8> = (0..count * size)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    let halves: &[usize] = match format {
        PackedFormat::Q4_0 | PackedFormat::Q5_0 | PackedFormat::Q8_0 => &[0],
        PackedFormat::Q4_1 | PackedFormat::Q5_1 | PackedFormat::Q4_K | PackedFormat::Q5_K => &[0, 2],
        PackedFormat::Q2_K => &[80, 82],
        PackedFormat::Q3_K => &[108],
        PackedFormat::Q6_K => &[208],
        _ => &[],
    };
    for block in bytes.chunks_exact_mut(size) {
        for at in halves {
            // Scales between 1/64 and 2/64 of either sign.
            block[at + 1] = block[at + 1] & 0x80 | 0x24 | block[at + 1] & 3;
        }
    }
    PackedArray::new(&Array::from_slice(&bytes), format, &[rows, cols])
}

fn packed(cases: &mut Cases) {
    for format in FORMATS {
        cases.add(format!("numbers of blocks {format:?}"), 1e-6, move || {
            let w = matrix(format, 37, 512, 1)?;
            let list = indices(&[3, 5], 37, 2);
            Ok(vec![
                w.dequantize(Dtype::Float32)?,
                w.dequantize(Dtype::Bfloat16)?,
                w.rows(&list, Dtype::Float32)?,
                w.rows(&list.subtract(37)?, Dtype::Float16)?,
            ])
        });
        for dtype in FLOATS {
            cases.add(
                format!("products with blocks {format:?} {dtype}"),
                tolerance(dtype).max(2e-4),
                move || {
                    let mut all = Vec::new();
                    let shapes = [
                        (1usize, 70usize, 768usize),
                        (1, 4100, 512),
                        (2, 33, 16128),
                        (3, 130, 1280),
                        (7, 65, 2560),
                        (9, 70, 768),
                        (70, 200, 512),
                        (150, 64, 256),
                    ];
                    let few = [(1, 70, 768), (2, 3, 1280), (7, 17, 256), (9, 70, 256)];
                    for &(m, n, k) in sized(&shapes[..], &few[..]) {
                        let w = matrix(format, n, k, m as u64)?;
                        all.push(w.matmul(&data(&[m, k], dtype, 3))?);
                    }
                    Ok(all)
                },
            );
        }
    }
    cases.add("products with blocks of odd lengths", 5e-5, || {
        let w = matrix(PackedFormat::Q4_1, 100, 576, 1)?;
        let other = matrix(PackedFormat::Q4_0, 100, 96, 1)?;
        let x = data(&[40, 576], Dtype::Float32, 3);
        let turned = data(&[576, 5], Dtype::Float32, 4).t()?;
        Ok(vec![
            w.matmul(&x)?,
            w.matmul(&turned)?,
            other.matmul(&data(&[40, 96], Dtype::Float32, 5))?,
            other.matmul(&data(&[2, 3, 96], Dtype::Float32, 6))?,
        ])
    });
}

fn layers(cases: &mut Cases) {
    for m in [1usize, 3, 8, 9, 64, 100] {
        // Many rows: activations are rounded to 16 bits, and these values are nearly centred.
        let close = if m <= 64 { 2e-5 } else { 5e-4 };
        cases.add(format!("layers of blocks, {m} rows"), close, move || {
            let (m, [wide, key, value]) = sized((m, [770, 130, 129]), (m.min(9), [70, 34, 33]));
            let x = data(&[m, 768], Dtype::Float32, 1);
            let norm = data(&[768], Dtype::Float32, 2);
            let (q, k) =
                (matrix(PackedFormat::Q4_K, wide, 768, 3)?, matrix(PackedFormat::Q4_1, key, 768, 4)?);
            let (v, other) =
                (matrix(PackedFormat::Q6_K, value, 768, 5)?, matrix(PackedFormat::Q8_0, wide, 768, 6)?);
            let plus = data(&[m, wide], Dtype::Float32, 7);
            with_difference(|| {
                let normed = || rms_norm(&x, Some(&norm), 1e-5);
                let (first, second, third) = (normed()?, normed()?, normed()?);
                Ok(vec![
                    concatenate(&[q.matmul(&first)?, k.matmul(&first)?, v.matmul(&first)?], -1)?,
                    gated(&[q.matmul(&second)?, other.matmul(&second)?])?,
                    other.matmul(&x)?.add(&plus)?,
                    other.matmul(&third)?,
                    q.matmul(&x)?,
                    k.matmul(&x)?,
                ])
            })
        });
    }
}

fn steps(cases: &mut Cases) {
    for dtype in FLOATS {
        for (queries, keys, width) in
            [(9usize, 3usize, 64usize), (32, 8, 128), (14, 2, 64), (4, 4, 32), (4, 1, 256), (6, 2, 80)]
        {
            let name = format!("steps of tokens {dtype} {queries}/{keys} by {width}");
            cases.add(name, tolerance(dtype) * 4.0, move || {
                let (queries, keys) = sized((queries, keys), (2 * (queries / keys), 2));
                let heads = StepHeads { queries, keys, width };
                let mut all = Vec::new();
                let ragged: Vec<usize> = (0..20).map(|at| at * 37 % 290).collect();
                let all_starts = [
                    (vec![0usize], 4usize, None),
                    (vec![517], 600, None),
                    (vec![2999], 3000, None),
                    (vec![300; 17], 301, None),
                    (ragged, 300, None),
                    (vec![5, 250], 256, Some(100)),
                ];
                let few = vec![(vec![0], 4, None), (vec![57], 60, None), (vec![5, 50, 12], 56, Some(10))];
                for (starts, room, window) in sized(all_starts.to_vec(), few) {
                    let n = starts.len();
                    let tokens = data(&[n, (queries + 2 * keys) * width], dtype, 1);
                    let block = data(&[n, 2 * keys, room, width], dtype, 2);
                    let plain = RotaryFrequencies::new(width, false, 10_000.0, 1.0);
                    let part = RotaryFrequencies::new(width / 2, true, 500.0, 0.5);
                    for turns in [Some(&plain), Some(&part), None] {
                        let kept = keep_token(&block, &tokens, &starts, None, heads, turns)?;
                        let scale = (width as f32).powf(-0.5);
                        all.push(attend_token(&tokens, &kept, &starts, None, heads, turns, scale, window)?);
                        all.push(kept);
                    }
                }
                // Pages in mixed order, two of them shared by all sequences.
                let (sequences, longest) = sized((20, 290), (3, 40));
                let starts: Vec<usize> = (0..sequences).map(|at| 32 + at * 37 % longest).collect();
                let table = |at: usize| -> Vec<u32> {
                    let own = |page: usize| if page < 2 { page } else { 2 + (page * 20 + at) * 7 % 421 };
                    (0..=starts[at] / 16).map(|page| own(page) as u32).collect()
                };
                let tables: Vec<Vec<u32>> = (0..starts.len()).map(table).collect();
                let pages = Pages { tables: tables.into(), rows: PageRows::Exact };
                let tokens = data(&[starts.len(), (queries + 2 * keys) * width], dtype, 3);
                let pool = data(&[423, 2 * keys, 16, width], dtype, 4);
                let (turns, scale) =
                    (RotaryFrequencies::new(width, false, 10_000.0, 1.0), (width as f32).powf(-0.5));
                for window in [None, Some(50)] {
                    let (pages, turns) = (Some(&pages), Some(&turns));
                    let kept = keep_token(&pool, &tokens, &starts, pages, heads, turns)?;
                    all.push(attend_token(&tokens, &kept, &starts, pages, heads, turns, scale, window)?);
                    all.push(kept);
                }
                Ok(all)
            });
        }
    }
}

/// Chains of dependent launches must give the same result every time.
fn chains(cases: &mut Cases) {
    let (width, layers, rounds) = sized((1024, 6, 8), (128, 2, 2));
    for (bits, group) in [(None, 64usize), (Some(4usize), 64), (Some(4), 32), (Some(8), 128), (Some(2), 64)] {
        for m in [1usize, 5, 20] {
            let kind = bits.map_or("dense".to_string(), |bits| format!("{bits} bits of {group}"));
            cases.add(format!("chains of products, {kind}, {m} rows"), 4e-2, move || {
                let of = Dtype::Float16;
                let weight = |n: usize, k: usize, seed: u64| -> Result<Weight, Error> {
                    let w = data(&[n, k], of, seed).multiply(1.0 / (k as f32).sqrt())?;
                    let Some(bits) = bits else {
                        w.eval()?;
                        return Ok(Weight { dense: Some(w), codes: Vec::new(), bits: 0, group });
                    };
                    let codes = placement::with_device(Device::Cpu, || {
                        let (codes, scales, biases) =
                            w.quantize(Some(group), Some(bits), QuantMode::Affine)?;
                        Ok::<_, Error>(vec![Some(codes), Some(scales), biases])
                    })??;
                    Ok(Weight { dense: None, codes: codes.into_iter().flatten().collect(), bits, group })
                };
                let (wide, narrow) = (weight(4 * width, width, 1)?, weight(width, 2 * width, 2)?);
                let (norm, start) = (data(&[width], of, 3), data(&[m, width], of, 4));
                let mut all = Vec::new();
                for _ in 0..rounds {
                    let (mut sum, mut x) = (start.clone(), start.clone());
                    for _ in 0..layers {
                        let [next, normal] = add_norm(&sum, &x, &norm)?;
                        sum = next;
                        x = narrow.times(&silu_gate(&wide.times(&normal)?)?)?;
                    }
                    x.eval()?;
                    all.push(x.reshape(&[1, -1])?);
                }
                let every = concatenate(&all, 0)?;
                Ok(vec![
                    all.swap_remove(0),
                    every.not_equal(&every.slice(&[0, 0], &[1, i32::MAX as isize], &[1, 1])?)?,
                ])
            });
        }
    }
}

/// Matrices that are computed in the same submission, just before they are used.
fn fresh_matrices(cases: &mut Cases) {
    for dtype in [Dtype::Bfloat16, Dtype::Float32] {
        cases.add(format!("chains of products with new matrices {dtype}"), 4e-2, move || {
            let width = sized(1024, 96);
            let norm = data(&[width], dtype, 3);
            let mut all = Vec::new();
            for round in 0..sized(4, 1) {
                let (mut x, mut w) = (data(&[1, width], dtype, 1), data(&[width, width], dtype, 2 + round));
                for _ in 0..6 {
                    w = w.t()?.multiply(0.5)?.add(0.01)?;
                    let scale = norm.add(x.max(())?)?;
                    [_, x] = add_norm(&x, &x.matmul(&w.t()?)?, &scale)?;
                }
                x.eval()?;
                all.push(x);
            }
            Ok(all)
        });
    }
}

/// Submissions of one shape, first of kernels with clusters, then of others with odd numbers of blocks.
fn clusters(cases: &mut Cases) {
    cases.add("kernels in clusters, then others", 2e-2, || {
        let stream = placement::current_device().stream()?;
        let outputs = placement::with_stream(&stream, || -> Result<Vec<Array>, Error> {
            let (n, k) = sized((1024, 4096), (72, 128));
            let w = data(&[n, k], Dtype::Float16, 1);
            let (codes, scales, biases) =
                placement::with_device(Device::Cpu, || w.quantize(Some(64), Some(4), QuantMode::Affine))??;
            let (x, packed) = (data(&[16, k], Dtype::Float16, 2), matrix(PackedFormat::Q8_0, 70, 768, 1)?);
            let mut all = Vec::new();
            for round in 0..4u64 {
                let mode = (Some(64), Some(4), QuantMode::Affine);
                let product = |x: &Array| {
                    x.quantized_matmul(&codes, &scales, biases.as_ref(), true, mode.0, mode.1, mode.2)
                };
                let both = [product(&x)?, product(&x.negative()?.negative()?)?];
                hesper::eval(&both)?;
                all.extend(both);
                let y = data(&[1, 768], Dtype::Float32, round);
                let both = [packed.matmul(&y)?, packed.matmul(&y.negative()?.negative()?)?];
                hesper::eval(&both)?;
                all.extend(both);
            }
            Ok(all)
        })?;
        Ok(outputs)
    });
}

/// A dense or a quantized matrix.
struct Weight {
    dense: Option<Array>,
    codes: Vec<Array>,
    bits: usize,
    group: usize,
}

impl Weight {
    fn times(&self, x: &Array) -> Result<Array, Error> {
        match (&self.dense, &self.codes[..]) {
            (Some(dense), _) => x.matmul(&dense.t()?),
            (None, codes) => x.quantized_matmul(
                &codes[0],
                &codes[1],
                codes.get(2),
                true,
                Some(self.group),
                Some(self.bits),
                QuantMode::Affine,
            ),
        }
    }
}

//! Attention: every kernel of the device, every kind of mask, layouts of caches.

use hesper::fast::{AttentionMask, scaled_dot_product_attention as attention};
use hesper::{Array, Dtype, Error, transform};

use crate::cases::{CaseResult, Cases, FLOATS, data, sized, tolerance};

const HALVES: [Dtype; 2] = [Dtype::Bfloat16, Dtype::Float16];

/// Queries, keys and values.
fn operands(
    [batch, heads, kv_heads]: [usize; 3],
    queries: usize,
    keys: usize,
    width: usize,
    dtype: Dtype,
) -> [Array; 3] {
    [
        data(&[batch, heads, queries, width], dtype, 1),
        data(&[batch, kv_heads, keys, width], dtype, 2),
        data(&[batch, kv_heads, keys, width], dtype, 3),
    ]
}

fn scale(width: usize) -> f32 {
    1.0 / (width as f32).sqrt()
}

pub fn all(cases: &mut Cases) {
    small(cases);
    few_rows(cases);
    many_rows(cases);
    masks(cases);
    layouts(cases);
    single(cases);
    gradients(cases);
}

fn small(cases: &mut Cases) {
    for dtype in FLOATS {
        for (queries, keys, width) in
            [(1usize, 300usize, 128usize), (1, 5000, 64), (17, 130, 64), (64, 64, 128), (200, 200, 80)]
        {
            let name = format!("attention {dtype} {queries} of {keys} by {width}");
            cases.add(name, tolerance(dtype) * 4.0, move || {
                let (queries, keys) = sized((queries, keys), (queries.min(20), keys.min(70)));
                let [q, k, v] = operands([sized(2, 1), 8, 2], queries, keys, width, dtype);
                let mask = data(&[queries, keys], dtype, 4);
                let visible = data(&[queries, keys], Dtype::Float32, 5).greater(-1.0)?;
                let (scale, sinks) = (scale(width), data(&[8], dtype, 6));
                Ok(vec![
                    attention(&q, &k, &v, scale, AttentionMask::None, None)?,
                    attention(&q, &k, &v, scale, AttentionMask::Causal, None)?,
                    attention(&q, &k, &v, scale, AttentionMask::Array(&mask), None)?,
                    attention(&q, &k, &v, scale, AttentionMask::Array(&visible), None)?,
                    attention(&q, &k, &v, scale, AttentionMask::None, Some(&sinks))?,
                ])
            });
        }
    }
}

/// Few rows and many keys: split heads, whole heads, and heads that are divided unevenly among blocks.
fn few_rows(cases: &mut Cases) {
    for dtype in HALVES {
        for (batch, heads, kv_heads, queries, keys, width) in [
            (1usize, 8usize, 8usize, 1usize, 3001usize, 128usize),
            (1, 32, 8, 1, 517, 128),
            (3, 40, 2, 1, 700, 64),
            (20, 32, 8, 1, 129, 128),
            (64, 4, 4, 1, 65, 32),
            (33, 8, 4, 1, 90, 96),
            (1, 6, 2, 3, 1000, 80),
            (2, 5, 1, 7, 333, 256),
            (1, 4, 1, 1, 1, 128),
            (1, 14, 2, 2, 40, 112),
            (2, 6, 3, 9, 5, 48),
        ] {
            let name = format!(
                "attention {dtype} few rows {batch}x{heads}/{kv_heads} {queries} of {keys} by {width}"
            );
            cases.add(name, tolerance(dtype) * 4.0, move || {
                let (batch, keys) = sized((batch, keys), (batch.min(2), keys.min(60)));
                let [q, k, v] = operands([batch, heads, kv_heads], queries, keys, width, dtype);
                let (scale, sinks) = (scale(width), data(&[heads], dtype, 6));
                let visible = data(&[batch, 1, queries, keys], Dtype::Float32, 5).greater(0.0)?;
                let mut all = vec![
                    attention(&q, &k, &v, scale, AttentionMask::Causal, None)?,
                    attention(&q, &k, &v, scale, AttentionMask::None, Some(&sinks))?,
                    attention(&q, &k, &v, scale, AttentionMask::Array(&visible), Some(&sinks))?,
                ];
                // The same launch again must not see state of the first.
                all.push(attention(&q, &k, &v, scale, AttentionMask::Causal, None)?);
                Ok(all)
            });
        }
    }
}

/// Enough rows for the tiled kernels, with every supported width.
fn many_rows(cases: &mut Cases) {
    for (dtype, widths) in [
        (Dtype::Bfloat16, &[32usize, 48, 64, 80, 96, 112, 128, 160, 192, 256][..]),
        (Dtype::Float16, &[64, 128, 256]),
    ] {
        for &width in widths {
            let name = format!("attention {dtype} many rows by {width}");
            cases.add(name, tolerance(dtype) * 4.0, move || {
                let (queries, keys) = sized((512, 600), (20, 40));
                let [q, k, v] = operands([1, 8, 2], queries, keys, width, dtype);
                let sinks = data(&[8], dtype, 6);
                Ok(vec![
                    attention(&q, &k, &v, scale(width), AttentionMask::Causal, Some(&sinks))?,
                    attention(&q, &k, &v, scale(width), AttentionMask::None, None)?,
                ])
            });
        }
    }
    for (heads, kv_heads, queries, keys) in
        [(5usize, 1usize, 500usize, 777usize), (12, 12, 260, 259), (16, 2, 300, 301), (7, 7, 600, 400)]
    {
        let name = format!("attention many rows {heads}/{kv_heads} {queries} of {keys}");
        cases.add(name, tolerance(Dtype::Bfloat16) * 4.0, move || {
            let (queries, keys) = sized((queries, keys), (queries / 20, keys / 20));
            let [q, k, v] = operands([sized(2, 1), heads, kv_heads], queries, keys, 128, Dtype::Bfloat16);
            Ok(vec![
                attention(&q, &k, &v, scale(128), AttentionMask::Causal, None)?,
                attention(&q, &k, &v, -scale(128), AttentionMask::Causal, None)?,
                attention(&q, &k, &v, 0.0, AttentionMask::None, None)?,
            ])
        });
    }
}

fn masks(cases: &mut Cases) {
    for dtype in HALVES {
        for (name, keys) in [("even", 600usize), ("odd", 599)] {
            cases.add(
                format!("attention {dtype} masks of {name} length"),
                tolerance(dtype) * 4.0,
                move || {
                    let (rows, keys) = sized((512, keys), (20, keys / 20));
                    let [q, k, v] = operands([1, 8, 2], rows, keys, 128, dtype);
                    let masks = [
                        data(&[rows, keys], dtype, 4),
                        data(&[8, rows, keys], Dtype::Float32, 5).greater(-1.0)?,
                        data(&[1, 1, 1, keys], dtype, 6),
                        data(&[rows, 1], dtype, 7),
                        // A reversed mask, and one whose first queries see no key.
                        data(&[rows, keys], dtype, 8).slice(
                            &[0, keys as isize - 1],
                            &[rows as isize, -(keys as isize) - 1],
                            &[1, -1],
                        )?,
                        Array::arange(rows as i64, None)?
                            .reshape(&[rows as isize, 1])?
                            .greater(Array::arange(keys as i64, None)?.add(3)?)?,
                    ];
                    masks
                        .iter()
                        .map(|mask| attention(&q, &k, &v, scale(128), AttentionMask::Array(mask), None))
                        .collect()
                },
            );
        }
    }
}

/// Caches: parts of longer ones, interleaved heads, strided features.
fn layouts(cases: &mut Cases) {
    for dtype in HALVES {
        for queries in [1usize, 512] {
            cases.add(
                format!("attention {dtype} of views, {queries} queries"),
                tolerance(dtype) * 4.0,
                move || {
                    let queries = sized(queries, queries.min(20));
                    let long = |seed| -> Result<Array, Error> {
                        data(&[1, 2, 700, 128], dtype, seed).slice(
                            &[0, 0, 50, 0],
                            &[1, 2, 650, 128],
                            &[1, 1, 1, 1],
                        )
                    };
                    let together = |seed, length: usize, heads: usize| -> Result<Array, Error> {
                        data(&[1, length, heads, 128], dtype, seed).swapaxes(1, 2)
                    };
                    let turned = |seed| -> Result<Array, Error> {
                        data(&[1, 2, 128, 600], dtype, seed).swapaxes(2, 3)
                    };
                    let q = together(1, queries, 8)?;
                    let unaligned = data(&[1, 2, 600, 131], dtype, 9).slice(
                        &[0, 0, 0, 3],
                        &[1, 2, 600, 131],
                        &[1, 1, 1, 1],
                    )?;
                    let run =
                        |k: &Array, v: &Array| attention(&q, k, v, scale(128), AttentionMask::Causal, None);
                    let result: CaseResult = Ok(vec![
                        run(&long(2)?, &long(3)?)?,
                        run(&together(4, 600, 2)?, &together(5, 600, 2)?)?,
                        run(&turned(6)?, &turned(7)?)?,
                        run(&unaligned, &long(8)?)?,
                    ]);
                    result
                },
            );
        }
    }
}

/// Single precision: split keys, whole rows, odd widths, and unsupported ones.
fn single(cases: &mut Cases) {
    for (queries, keys, width) in [
        (1usize, 2000usize, 128usize),
        (3, 700, 36),
        (130, 140, 80),
        (150, 90, 256),
        (9, 33, 6),
        (40, 41, 100),
    ] {
        let name = format!("attention float32 {queries} of {keys} by {width}, all masks");
        cases.add(name, tolerance(Dtype::Float32) * 4.0, move || {
            let of = Dtype::Float32;
            let (queries, keys) = sized((queries, keys), (queries.min(20), keys.min(70)));
            let [q, k, v] = operands([2, 6, 2], queries, keys, width, of);
            let visible = data(&[2, 6, queries, keys], of, 5).greater(0.5)?;
            let (scale, sinks) = (scale(width), data(&[6], of, 6));
            let turned = k.swapaxes(2, 3)?.contiguous()?.swapaxes(2, 3)?;
            let added = data(&[queries, keys], of, 4);
            Ok(vec![
                attention(&q, &k, &v, scale, AttentionMask::Causal, Some(&sinks))?,
                attention(&q, &k, &v, scale, AttentionMask::Array(&added), None)?,
                attention(&q, &k, &v, scale, AttentionMask::Array(&visible), Some(&sinks))?,
                attention(&q, &turned, &v, scale, AttentionMask::None, None)?,
            ])
        });
    }
}

/// Cotangents of queries, keys and values: every type and width, shared heads, masks, views, rows that see no
/// key.
fn gradients(cases: &mut Cases) {
    for dtype in FLOATS {
        for (shape, queries, keys, width) in [
            ([2usize, 4usize, 4usize], 300usize, 300usize, 64usize),
            ([1, 8, 2], 130, 200, 128),
            ([1, 6, 2], 70, 33, 80),
            ([1, 4, 2], 500, 700, 96),
            ([2, 2, 2], 600, 400, 32),
            ([2, 3, 1], 65, 129, 16),
            ([1, 2, 2], 50, 60, 256),
            ([1, 2, 1], 20, 30, 12),
        ] {
            let name = format!(
                "attention gradient {dtype} {}/{} {queries} of {keys} by {width}",
                shape[1], shape[2]
            );
            // Cotangents of scores are rounded before they are multiplied; a few rows have large ones.
            let tolerance = tolerance(dtype) * if dtype == Dtype::Float32 { 4.0 } else { 16.0 };
            cases.add(name, tolerance, move || {
                let (queries, keys) = sized((queries, keys), (queries.min(20), keys.min(40)));
                let [q, k, v] = operands(shape, queries, keys, width, dtype);
                let added = data(&[queries, keys], dtype, 4);
                // The first query sees no key.
                let rows = Array::arange(queries as i64, None)?.reshape(&[-1, 1])?;
                let visible = data(&[queries, keys], Dtype::Float32, 5).greater(-1.0)?;
                let visible = visible.logical_and(rows.greater(0)?)?;
                let cotangent = data(&[shape[0], queries, shape[1], width], dtype, 6).swapaxes(1, 2)?;
                let mut all = Vec::new();
                for mask in [
                    AttentionMask::None,
                    AttentionMask::Causal,
                    AttentionMask::Array(&added),
                    AttentionMask::Array(&visible),
                ] {
                    let run =
                        |x: &[Array]| Ok(vec![attention(&x[0], &x[1], &x[2], scale(width), mask, None)?]);
                    let inputs = [q.clone(), k.clone(), v.clone()];
                    all.extend(transform::vjp(run, &inputs, std::slice::from_ref(&cotangent))?.1);
                }
                Ok(all)
            });
        }
    }
}

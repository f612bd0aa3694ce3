//! Cases of reductions, scans, and ops of rows.

use hesper::ops::domain::Domain;
use hesper::{Array, Axes, Dtype, axes, fast, transform};

use crate::cases::{CaseResult, Cases, FLOATS, data, dtypes, indices, sample, sized, tolerance};

/// Adds all cases.
pub fn add(cases: &mut Cases) {
    reductions(cases);
    rows(cases);
}

/// The cases of the tables of reductions and scans.
fn reduction_tables(cases: &mut Cases) {
    type Reduce = fn(&Array) -> CaseResult;
    let mut add = |name: &str, domain: Domain, f: Reduce| {
        for dtype in dtypes(domain).iter().copied() {
            cases.add(format!("{name} [{domain:?}] {dtype}"), tolerance(dtype) * 5.0, move || {
                let x = sample(domain, &[7, 5, 40], dtype, 1);
                let mut results = f(&x)?;
                results.extend(f(&x.transpose(&[1, 2, 0])?)?);
                Ok(results)
            });
        }
    };
    macro_rules! add_cases {
        ($($(#[doc = $doc:literal])+ $name:ident $(| $alias:ident)* ($signature:ident) = |$($x:ident),+| $body:expr;
            rust $example:literal => $shown:literal;
            $(python $args:literal => $result:literal $(, method $method:ident)?;)?
            cases $([$domain:ident])+;)*) => {
            $($(add(stringify!($name), Domain::$domain, add_cases!(@$signature $name));)+)*
        };
        (@axes $name:ident) => {
            |x| over().into_iter().map(|axes| x.$name(axes)).collect()
        };
        (@axis $name:ident) => {
            |x| [axes(0), axes(1), axes(2), axes(())].into_iter().map(|axis| x.$name(axis.keepdims())).collect()
        };
        (@spread $name:ident) => {
            |x| over().into_iter().map(|axes| x.$name(axes, 1)).collect()
        };
        (@scan $name:ident) => {
            |x| {
                let flags = [(false, true), (true, true), (false, false), (true, false)];
                let axes = [Some(0), Some(1), Some(2), None].into_iter().zip(flags);
                axes.map(|(axis, (reverse, inclusive))| x.$name(axis, reverse, inclusive)).collect()
            }
        };
    }
    hesper::reduction_ops!(add_cases);
    hesper::scan_ops!(add_cases);
}

/// Axes of an array of three, and whether they are kept.
fn over() -> [Axes; 4] {
    [axes([0, 1]), axes(1).keepdims(), axes(2), axes([0, 2]).keepdims()]
}

fn reductions(cases: &mut Cases) {
    reduction_tables(cases);
    let shapes: [&[usize]; 6] = [&[1000], &[37, 129], &[64, 2048], &[3, 50, 70], &[5, 3, 8], &[2, 70000]];
    for dtype in [
        Dtype::Float32,
        Dtype::Bfloat16,
        Dtype::Int32,
        Dtype::Uint8,
        Dtype::Float64,
        Dtype::Int64,
        Dtype::Bool,
    ] {
        let name = format!("reductions {dtype}");
        cases.add(name, tolerance(dtype), move || {
            let mut results = Vec::new();
            for shape in shapes {
                let x = data(shape, dtype, 9);
                let rank = shape.len() as isize;
                let mut over: Vec<Vec<isize>> = (0..rank).map(|axis| vec![axis]).collect();
                over.push((0..rank).collect());
                if rank == 3 {
                    over.extend([vec![0, 2], vec![1, 2], vec![0, 1]]);
                }
                for over in &over {
                    results.push(x.sum(over)?);
                    results.push(x.max(axes(over).keepdims())?);
                    results.push(x.min(over)?);
                    results.push(x.any(over)?);
                    results.push(x.all(over)?);
                    results.push(x.count_nonzero(over)?);
                }
            }
            Ok(results)
        });
    }
    for dtype in FLOATS {
        cases.add(format!("mean, var, std {dtype}"), tolerance(dtype), move || {
            let x = data(&[40, 70, 33], dtype, 11);
            Ok(vec![
                x.mean(1)?,
                x.var([0, 2], 0)?,
                x.std(axes(2).keepdims(), 1)?,
                x.transpose(&[2, 0, 1])?.sum(1)?,
                x.slice(&[0, 0, 0], &[40, 70, 33], &[1, 2, 1])?.sum(1)?,
            ])
        });
        cases.add(format!("argmax, argmin {dtype}"), 0.0, move || {
            let x = data(&[40, 700, 33], dtype, 12);
            Ok(vec![
                x.argmax(0)?,
                x.argmax(1)?,
                x.argmin(axes(2).keepdims())?,
                x.argmax(())?,
                x.flip(1)?.argmax(1)?,
            ])
        });
    }
    for dtype in [Dtype::Bfloat16, Dtype::Float16, Dtype::Float32, Dtype::Int32, Dtype::Uint8] {
        cases.add(format!("many rows and long ones {dtype}"), tolerance(dtype), move || {
            let mut all = Vec::new();
            let shapes = [[2200, 1032], [2113, 4160], [300, 20000], [3, 300000], [5000, 40]];
            for shape in sized(shapes, [[70, 132], [33, 1160], [3, 5000], [2, 20000], [500, 4]]) {
                // Few different values, so that extremes repeat.
                let x = data(&shape, dtype, 21).multiply(3.0)?.floor()?.astype(dtype)?;
                for axis in [0, 1] {
                    all.extend([x.sum(axis)?, x.max(axis)?]);
                    all.extend([x.argmax(axis)?, x.argmin(axes(axis).keepdims())?]);
                }
                all.extend([x.sum(())?, x.argmax(())?, x.argmin(())?]);
                let turned = x.flip(1)?;
                all.extend([turned.argmax(1)?, turned.max(0)?]);
            }
            Ok(all)
        });
    }
    cases.add("prod and complex", 1e-4, || {
        let x = data(&[9, 33], Dtype::Float32, 12);
        let z = data(&[9, 33], Dtype::Complex64, 13);
        Ok(vec![x.prod(0)?, z.sum(1)?, z.prod(0)?, z.max(())?])
    });
    cases.add("extremes with nan", 0.0, || {
        let x = data(&[20, 300], Dtype::Float32, 14);
        let y = hesper::select(&x.greater(1.99)?, &Array::scalar(f64::NAN, Dtype::Float32)?, &x)?;
        let mut all = vec![y.max(1)?, y.min(())?, y.argmax(1)?, y.argmin(0)?];
        let shape = sized([2200, 1032], [40, 132]);
        let low = Array::full(&shape, f64::NEG_INFINITY, Some(Dtype::Float32))?;
        for dtype in FLOATS {
            let x = data(&shape, Dtype::Float32, 15);
            let y = hesper::select(&x.greater(1.99)?, &Array::scalar(f64::NAN, Dtype::Float32)?, &x)?;
            let y = y.astype(dtype)?;
            all.extend([y.argmax(1)?, y.argmin(1)?, y.max(1)?]);
            all.push(low.astype(dtype)?.argmax(1)?);
        }
        Ok(all)
    });
}

fn rows(cases: &mut Cases) {
    for dtype in [Dtype::Float32, Dtype::Bfloat16, Dtype::Float16, Dtype::Float64] {
        for length in [1usize, 7, 64, 1000, 1024, 4096, 8192, 33000] {
            cases.add(format!("rows {dtype} {length}"), tolerance(dtype), move || {
                let x = data(&[sized(9, 2), length], dtype, 15);
                let (w, b) = (data(&[length], dtype, 16), data(&[length], dtype, 17));
                Ok(vec![
                    x.softmax(-1)?,
                    x.logsumexp(-1)?,
                    fast::rms_norm(&x, Some(&w), 1e-5)?,
                    fast::rms_norm(&x, None, 1e-5)?,
                    fast::layer_norm(&x, Some(&w), Some(&b), 1e-5)?,
                    fast::layer_norm(&x, None, None, 1e-5)?,
                ])
            });
        }
    }
    for dtype in FLOATS {
        for length in [1usize, 33, 64, 768, 1000, 4096, 8192, 33000] {
            // Sums over rows are compared with those of the host, which adds in another order.
            cases.add(format!("norm gradients {dtype} {length}"), tolerance(dtype) * 4.0, move || {
                let x = data(&[sized(2, 1), sized(301, 5), length], dtype, 21);
                let (w, b) = (data(&[length], dtype, 22), data(&[length], dtype, 23));
                let cotangent = [data(x.shape(), dtype, 24)];
                let layer = |x: &[Array]| Ok(vec![fast::layer_norm(&x[0], Some(&x[1]), Some(&x[2]), 1e-3)?]);
                let mut all = transform::vjp(layer, &[x.clone(), w.clone(), b], &cotangent)?.1;
                let rms = |x: &[Array]| Ok(vec![fast::rms_norm(&x[0], Some(&x[1]), 1e-3)?]);
                all.extend(transform::vjp(rms, &[x.clone(), w.clone()], &cotangent)?.1);
                // A weight that does not vary, no weight, and rows of a view.
                let frozen = |x: &[Array]| Ok(vec![fast::rms_norm(&x[0], Some(&w), 1e-3)?]);
                all.extend(transform::vjp(frozen, &[x.clone()], &cotangent)?.1);
                let turned = [cotangent[0].swapaxes(0, 1)?];
                let plain =
                    |x: &[Array]| Ok(vec![fast::layer_norm(&x[0].swapaxes(0, 1)?, None, None, 1e-3)?]);
                all.extend(transform::vjp(plain, &[x], &turned)?.1);
                Ok(all)
            });
        }
    }
    cases.add("softmax over other axes", 1e-5, || {
        let x = data(&[6, 17, 40], Dtype::Float32, 18);
        Ok(vec![x.softmax(0)?, x.softmax([1, 2])?, x.log_softmax(1)?])
    });
    for dtype in FLOATS {
        for length in [5usize, 40, 1000, 50304] {
            cases.add(format!("cross entropy gradient {dtype} {length}"), tolerance(dtype), move || {
                let x = data(&[sized(33, 3), length], dtype, 25);
                let targets = indices(&[x.shape()[0]], length, 2).subtract(1)?;
                let cotangent = [data(targets.shape(), Dtype::Float32, 26)];
                let run = |x: &[Array]| Ok(vec![fast::cross_entropy(&x[0], &targets)?]);
                Ok(transform::vjp(run, &[x], &cotangent)?.1)
            });
        }
    }
    cases.add("cross entropy", 1e-4, || {
        let x = data(&[33, 1000], Dtype::Float32, 19);
        Ok(vec![fast::cross_entropy(&x, &indices(&[33], 1000, 1))?])
    });
}

//! Graphs of any depth: built, evaluated, transformed, written, printed and dropped on small stacks.

use std::sync::Arc;
use std::thread;

use hesper::transform::{self, CustomFunction};
use hesper::{Array, Dtype, Result, eval, export};

/// Too deep for a stack frame per node.
const DEEP: usize = 1_000_000;
/// The same, for more expensive work.
const LONG: usize = 100_000;
/// The stack size of threads that other programs start can be this small.
const SMALL_STACK: usize = 128 << 10;

fn on_a_small_stack<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    match thread::Builder::new().stack_size(SMALL_STACK).spawn(f).unwrap().join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn one() -> Array {
    Array::from_slice(&[1.0f32])
}

/// `x / 2 + 1`, repeated; converges to 2.
fn chain(mut x: Array, length: usize) -> Result<Array> {
    for _ in 0..length / 2 {
        x = x.multiply(0.5)?.add(1.0)?;
    }
    Ok(x)
}

/// Each node is both inputs of the next.
fn diamonds(mut x: Array, length: usize) -> Result<Array> {
    for _ in 0..length {
        x = x.add(&x)?;
    }
    Ok(x)
}

/// Each pair of nodes reads the previous pair.
fn ladder(x: Array, length: usize) -> Result<Array> {
    let (mut a, mut b) = (x.clone(), x);
    for _ in 0..length / 2 {
        (a, b) = (a.maximum(&b)?, a.minimum(&b)?);
    }
    a.add(&b)
}

#[test]
fn graphs_of_a_million_nodes_are_dropped() {
    on_a_small_stack(|| {
        drop(chain(one(), DEEP).unwrap());
        drop(diamonds(one(), DEEP).unwrap());
        drop(ladder(one(), DEEP).unwrap());
    });
}

#[test]
fn graphs_are_dropped_from_the_middle_and_by_several_threads() {
    let x = one();
    let middle = diamonds(x.clone(), LONG).unwrap();
    let ends: Vec<Array> = (0..8).map(|_| diamonds(middle.clone(), LONG).unwrap()).collect();
    drop(middle);
    let threads = ends
        .into_iter()
        .map(|end| thread::Builder::new().stack_size(SMALL_STACK).spawn(move || drop(end)).unwrap());
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0]);
}

#[test]
fn wide_graphs_and_graphs_of_ops_with_several_outputs_are_dropped() {
    on_a_small_stack(|| {
        let x = one();
        let parts: Vec<Array> = (0..LONG).map(|_| x.add(1.0).unwrap()).collect();
        drop(hesper::stack(&parts, 0).unwrap());
        drop(parts);
        // Parts of one node, each the source of the next.
        let mut y = Array::zeros(&[2, 2], Dtype::Float32).unwrap();
        for _ in 0..10_000 {
            let (q, r) = hesper::linalg::qr(&y).unwrap();
            y = q.matmul(&r).unwrap();
        }
        drop(y);
    });
}

#[test]
fn runs_of_compiled_functions_are_dropped() {
    on_a_small_stack(|| {
        let f = transform::compile(|x| Ok(vec![x[0].multiply(0.5)?, x[0].add(&x[1])?]));
        let (mut a, mut b) = (one(), one());
        for _ in 0..LONG {
            let both = f(&[a, b]).unwrap();
            (a, b) = (both[0].clone(), both[1].clone());
        }
        drop((a, b));
    });
}

#[test]
fn values_captured_by_rules_and_constants_are_dropped_without_recursion() {
    on_a_small_stack(|| {
        let held = transform::vmap(
            |x| {
                let mut y = x[0].clone();
                for _ in 0..LONG {
                    // The rule captures the previous array, which is not an input of the call.
                    let before = y;
                    let captured = before.clone();
                    let f = CustomFunction::new(|x| Ok(vec![x[0].sin()?]))
                        .with_vjp(move |_, cotangents, _| Ok(vec![cotangents[0].multiply(&captured)?]));
                    y = f.call(&[x[0].clone()])?.remove(0);
                }
                Ok(vec![y])
            },
            &[Some(0)],
            &[Some(0)],
        )(&[one()])
        .unwrap();
        drop(held);
    });
}

#[test]
fn deep_graphs_are_evaluated() {
    on_a_small_stack(|| {
        assert_eq!(chain(one(), LONG).unwrap().item::<f32>().unwrap(), 2.0);
        assert_eq!(diamonds(one(), LONG).unwrap().item::<f32>().unwrap(), f32::INFINITY);
        assert_eq!(ladder(one(), LONG).unwrap().item::<f32>().unwrap(), 2.0);
    });
}

#[test]
fn deep_functions_are_transformed() {
    on_a_small_stack(|| {
        let x = [one().reshape::<isize>(&[]).unwrap()];
        let slope = transform::grad(|x| chain(x[0].clone(), LONG), &[0])(&x).unwrap();
        assert_eq!(slope[0].item::<f32>().unwrap(), 0.0);
        let slope = transform::grad(|x| ladder(x[0].clone(), LONG), &[0])(&x).unwrap();
        assert_eq!(slope[0].item::<f32>().unwrap(), 2.0);
        let (_, tangents) = transform::jvp(|x| Ok(vec![chain(x[0].clone(), LONG)?]), &x, &x).unwrap();
        assert_eq!(tangents[0].item::<f32>().unwrap(), 0.0);
        let whole = transform::vmap(|x| Ok(vec![chain(x[0].clone(), LONG)?]), &[Some(0)], &[Some(0)]);
        assert_eq!(whole(&[one()]).unwrap()[0].to_vec::<f32>().unwrap(), [2.0]);
        let compiled = transform::compile(|x| Ok(vec![chain(x[0].clone(), LONG)?]));
        assert_eq!(compiled(&x).unwrap()[0].item::<f32>().unwrap(), 2.0);
        let second = transform::grad(
            |x| Ok(transform::grad(|x| chain(x[0].clone(), 10_000), &[0])(x)?.remove(0)),
            &[0],
        );
        assert_eq!(second(&x).unwrap()[0].item::<f32>().unwrap(), 0.0);
    });
}

#[test]
fn chains_of_custom_and_checkpointed_functions_are_transformed() {
    on_a_small_stack(|| {
        let x = [one().reshape::<isize>(&[]).unwrap()];
        let f = Arc::new(
            CustomFunction::new(|x| Ok(vec![x[0].multiply(0.5)?.add(1.0)?]))
                .with_vjp(|_, cotangents, _| Ok(vec![cotangents[0].clone()])),
        );
        let own = f.clone();
        let many = move |x: &[Array]| -> Result<Array> {
            (0..10_000).try_fold(x[0].clone(), |x, _| Ok(own.call(&[x])?.remove(0)))
        };
        assert_eq!(transform::grad(many, &[0])(&x).unwrap()[0].item::<f32>().unwrap(), 1.0);
        let again = transform::checkpoint(|x| Ok(vec![x[0].multiply(0.5)?.add(1.0)?]));
        let many = move |x: &[Array]| -> Result<Array> {
            (0..1_000).try_fold(x[0].clone(), |x, _| Ok(again(&[x])?.remove(0)))
        };
        assert_eq!(transform::grad(many, &[0])(&x).unwrap()[0].item::<f32>().unwrap(), 0.0);
    });
}

#[test]
fn arrays_that_are_evaluated_while_they_are_differentiated_are_dropped() {
    on_a_small_stack(|| {
        let x = [one().reshape::<isize>(&[]).unwrap()];
        let slope = transform::grad(
            |x| {
                let mut y = x[0].clone();
                for _ in 0..100 {
                    y = chain(y, LONG / 100)?;
                    y.eval()?;
                }
                Ok(y)
            },
            &[0],
        )(&x);
        assert_eq!(slope.unwrap()[0].item::<f32>().unwrap(), 0.0);
    });
}

#[test]
fn deep_functions_are_exported_and_imported() {
    let path = std::env::temp_dir().join(format!("hesper-deep-{}", std::process::id()));
    let file = path.clone();
    on_a_small_stack(move || {
        export::export_function(&file, |x| Ok(vec![chain(x[0].clone(), LONG)?]), &[one()], false).unwrap();
        let f = export::import_function(&file).unwrap();
        assert_eq!(f.call(&[one()], &[]).unwrap()[0].item::<f32>().unwrap(), 2.0);
    });
    std::fs::remove_file(path).unwrap();
}

#[test]
fn deep_graphs_are_written_as_text() {
    on_a_small_stack(|| {
        let y = diamonds(one(), LONG).unwrap();
        assert_eq!(transform::to_dot(std::slice::from_ref(&y)).matches("shape=ellipse").count(), 1);
        assert!(format!("{y:?}").contains("lazy"));
        let sum = y.sum(()).unwrap();
        assert!(eval::why_apart(&y, &sum).is_none() || eval::why_apart(&y, &sum).is_some());
    });
}

//! Compiled functions give the numbers of the functions that they were made of.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hesper::transform::{self, compile};
use hesper::{Array, CustomKernel, Dtype, Result, axes, concatenate, select};

/// Numbers that look random, from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % sides
    }
}

fn numbers(seed: usize, shape: &[usize]) -> Array {
    let count: usize = shape.iter().product();
    let list: Vec<f32> = (0..count).map(|at| ((at * 37 + seed * 101) % 64) as f32 / 32.0 - 1.0).collect();
    Array::try_from_slice(&list, shape).unwrap()
}

/// A function of two matrices of four rows and columns, made of ops that a seed chooses.
fn program(seed: u64, inputs: &[Array]) -> Result<Vec<Array>> {
    let mut dice = Dice(seed);
    let mut list: Vec<Array> = inputs.to_vec();
    for _ in 0..4 + dice.roll(24) {
        let a = list[dice.roll(list.len())].clone();
        let b = list[dice.roll(list.len())].clone();
        list.push(match dice.roll(22) {
            0 => a.add(&b)?,
            1 => a.multiply(&b)?,
            2 => a.subtract(0.25)?,
            3 => a.tanh()?,
            4 => a.sigmoid()?,
            5 => a.t()?,
            6 => a.slice(&[3, 0], &[-9, 4], &[-1, 1])?,
            7 => a.sum(axes(1).keepdims())?.multiply(0.1)?.add(&b)?,
            8 => a.max(axes(0).keepdims())?.maximum(&b)?,
            9 => a.matmul(&b)?.multiply(0.1)?,
            10 => a.softmax(-1)?,
            11 => select(&a.greater(&b)?, &a, &b)?,
            12 => a.reshape(&[2, 8])?.reshape(&[4, 4])?,
            13 => a.slice_update(&b.slice(&[0, 0], &[2, 4], &[1, 1])?, &[1, 0], &[3, 4], &[1, 1])?,
            14 => {
                concatenate(&[a.slice(&[0, 0], &[2, 4], &[1, 1])?, b.slice(&[2, 0], &[4, 4], &[1, 1])?], 0)?
            }
            15 => a.cumsum(Some(1), false, true)?.multiply(0.25)?,
            16 => a.astype(Dtype::Float16)?.multiply(2)?.astype(Dtype::Float32)?.multiply(0.5)?,
            17 => a.take(Array::from_slice(&[2, 0, 1, 1]), Some(0))?,
            18 => a.sort(Some(1))?,
            19 => a.square()?.negative()?.exp()?,
            20 => Array::eye(4, 4, 0, Dtype::Float32)?.add(&a)?,
            _ => a.multiply(numbers(3, &[4, 4]))?,
        });
    }
    let count = 1 + dice.roll(3);
    Ok((0..count).map(|_| list[dice.roll(list.len())].clone()).collect())
}

fn same(one: &[Array], other: &[Array], what: &str) {
    assert_eq!(one.len(), other.len(), "{what}");
    for (number, (a, b)) in one.iter().zip(other).enumerate() {
        assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()), "{what}");
        let bits = |x: &Array| x.read_bytes(<[u8]>::to_vec).unwrap();
        assert_eq!(bits(a), bits(b), "{what}, output {number}");
    }
}

#[test]
fn generated_programs_give_the_same_bits_compiled_and_not() {
    for seed in 0..600 {
        let f = compile(move |x| program(seed, x));
        for turn in 0..2 {
            let mut inputs = [numbers(1 + turn, &[4, 4]), numbers(2, &[4, 4])];
            if turn == 1 {
                // Other strides under the same signature.
                inputs[1] = inputs[1].t().unwrap().eval().map(|()| inputs[1].t().unwrap()).unwrap();
            }
            same(&program(seed, &inputs).unwrap(), &f(&inputs).unwrap(), &format!("seed {seed}"));
        }
    }
}

#[test]
fn derivatives_and_compilation_nest_either_way() {
    for seed in 0..60 {
        let inputs = [numbers(1, &[4, 4]), numbers(2, &[4, 4])];
        let value = move |x: &[Array]| program(seed, x)?[0].mean(());
        let plain = transform::grad(value, &[0, 1])(&inputs).unwrap();
        let inner = compile(move |x| Ok(vec![value(x)?]));
        let outside = transform::grad(move |x| Ok(inner(x)?.remove(0)), &[0, 1])(&inputs).unwrap();
        let inside = compile(move |x| transform::grad(value, &[0, 1])(x))(&inputs).unwrap();
        for (one, others) in plain.iter().zip(outside.iter().zip(&inside)) {
            for other in [others.0, others.1] {
                let far = (one - other).abs().unwrap().max(()).unwrap().item::<f32>().unwrap();
                assert!(far < 1e-5, "seed {seed}: {far}");
            }
        }
    }
}

#[test]
fn slices_and_compilation_nest_either_way() {
    let f = |x: &[Array]| Ok(vec![x[0].multiply(&x[1])?.sum(0)?.tanh()?]);
    let inputs = [numbers(1, &[3, 4, 4]), numbers(2, &[4, 4])];
    let axes = [Some(0), None];
    let plain = transform::vmap(f, &axes, &[Some(0)])(&inputs).unwrap();
    let inner = compile(f);
    same(&plain, &transform::vmap(inner, &axes, &[Some(0)])(&inputs).unwrap(), "compiled inside");
    let outer = compile(transform::vmap(f, &axes, &[Some(0)]));
    same(&plain, &outer(&inputs).unwrap(), "compiled outside");
}

#[test]
fn a_function_is_called_once_for_each_signature() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let f = compile(move |x| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(vec![x[0].add(1)?])
    });
    for _ in 0..3 {
        f(&[numbers(1, &[4])]).unwrap();
    }
    f(&[numbers(1, &[5])]).unwrap();
    f(&[numbers(1, &[4]).astype(Dtype::Float16).unwrap()]).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

#[test]
fn results_of_earlier_calls_stay_and_threads_share_a_function() {
    let f = compile(|x| Ok(vec![x[0].multiply(2)?.sum(axes(1).keepdims())?.add(&x[0])?]));
    let first = f(&[numbers(1, &[8, 8])]).unwrap();
    let before = first[0].to_vec::<f32>().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let f = &f;
            scope.spawn(move || {
                for turn in 0..50 {
                    let input = numbers(thread * 50 + turn, &[8, 8]);
                    let expected = (&input * 2).sum(axes(1).keepdims()).unwrap().add(&input).unwrap();
                    same(&f(&[input]).unwrap(), &[expected], "in threads");
                }
            });
        }
    });
    assert_eq!(first[0].to_vec::<f32>().unwrap(), before);
}

#[test]
fn a_compiled_function_may_go_while_its_work_is_under_way() {
    let outputs = {
        let f = compile(|x| Ok(vec![x[0].matmul(&x[0])?.tanh()?]));
        let outputs = f(&[numbers(1, &[128, 128])]).unwrap();
        hesper::async_eval(&outputs).unwrap();
        outputs
    };
    let x = numbers(1, &[128, 128]);
    same(&outputs, &[x.matmul(&x).unwrap().tanh().unwrap()], "dropped");
}

#[test]
fn what_a_function_captures_from_a_derivative_under_way_has_its_part_in_it() {
    let slope = transform::grad(
        |w| {
            let captured = w[0].clone();
            let f = compile(move |x| Ok(vec![x[0].multiply(&captured)?]));
            f(&[numbers(1, &[3])])?[0].sum(())
        },
        &[0],
    );
    let expected = numbers(1, &[3]).sum(()).unwrap().item::<f32>().unwrap();
    let found = slope(&[Array::scalar(2.0, Dtype::Float32).unwrap()]).unwrap();
    assert_eq!(found[0].item::<f32>().unwrap(), expected);
}

#[test]
fn a_function_without_shapes_is_called_once_for_each_number_of_axes() {
    let cache = transform::Cache::<()>::shapeless();
    let calls = AtomicUsize::new(0);
    let call = |x: Array, f: fn(&Array) -> Result<Array>| -> Result<Array> {
        let traced = |arguments: &[Array]| {
            calls.fetch_add(1, Ordering::Relaxed);
            Ok::<_, hesper::Error>((vec![f(&arguments[0])?], ()))
        };
        Ok(cache.call(&[], &[x], traced)?.0.remove(0))
    };
    let centered: fn(&Array) -> Result<Array> = |x| x.subtract(x.mean(())?)?.reshape_literal(&[-1, 2]);
    for rows in [1, 3, 2, 3] {
        let x = numbers(rows, &[rows, 4]);
        let wanted = x.subtract(x.mean(()).unwrap()).unwrap();
        let found = call(x, centered).unwrap();
        assert_eq!(found.shape(), [rows * 2, 2]);
        same(&[found.reshape(&[-1]).unwrap()], &[wanted.reshape(&[-1]).unwrap()], "other shapes");
    }
    call(numbers(1, &[4]), centered).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);

    // Lengths that were numbers of the caller's stay as they are.
    let cache = transform::Cache::<()>::shapeless();
    let call =
        |x: Array| cache.call(&[], &[x], |x| Ok::<_, hesper::Error>((vec![x[0].reshape_literal(&[4])?], ())));
    assert_eq!(call(numbers(1, &[2, 2])).unwrap().0[0].shape(), [4]);
    assert_eq!(call(numbers(1, &[4, 1])).unwrap().0[0].shape(), [4]);
    let error = call(numbers(1, &[3, 2])).unwrap_err().to_string();
    assert!(error.contains("reshape") && error.contains("[[3, 2]]"), "{error}");
}

#[test]
fn an_array_of_a_trace_that_has_ended_has_no_value() {
    let kept = std::sync::Mutex::new(None);
    let f = compile(|x| {
        *kept.lock().unwrap() = Some(x[0].add(1)?);
        Ok(x.to_vec())
    });
    f(&[numbers(1, &[2])]).unwrap();
    let kept = kept.lock().unwrap().take().unwrap();
    assert!(matches!(kept.eval(), Err(hesper::Error::Stale(_))));
}

#[test]
fn an_evaluation_while_a_function_is_compiled_is_an_error() {
    let f = compile(|x| {
        x[0].eval()?;
        Ok(x.to_vec())
    });
    let error = f(&[numbers(1, &[2])]).unwrap_err().to_string();
    assert!(error.contains("compile"), "{error}");
}

#[test]
fn equal_ops_are_done_once_and_custom_kernels_take_part() {
    let source = "uint i = thread_position_in_grid.x; out[i] = x[i] * 2.0f;";
    let kernel = CustomKernel::new("twice", &["x"], &["out"], source).unwrap();
    let f = move |x: &[Array]| {
        let twice = kernel.call(&[x[0].add(1)?]).grid([4, 1, 1]).threadgroup([4, 1, 1]);
        let twice = twice.output(&[4], Dtype::Float32).run()?.remove(0);
        Ok(vec![twice.add(x[0].add(1)?)?, x[0].exp()?.add(x[0].exp()?)?])
    };
    let inputs = [numbers(1, &[4])];
    let expected = f(&inputs).unwrap();
    same(&compile(f)(&inputs).unwrap(), &expected, "custom kernel");
}

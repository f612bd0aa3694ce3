//! Arrays: ops, views, evaluation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hesper::{Array, CustomKernel, Dtype, Error, async_eval, axes, eval, placement};

fn grid(rows: usize, cols: usize) -> Array {
    let elements: Vec<f32> = (0..rows * cols).map(|at| at as f32).collect();
    Array::try_from_slice(&elements, &[rows, cols]).unwrap()
}

#[test]
fn ops_compute_element_by_element() {
    let x = Array::from_slice(&[1.0f32, 2.0, 3.0]);
    let y = Array::from_slice(&[10.0f32, 20.0, 30.0]);
    assert_eq!((&x + &y).to_vec::<f32>().unwrap(), [11.0, 22.0, 33.0]);
    assert_eq!((&x * 2.0 - 1.0).to_vec::<f32>().unwrap(), [1.0, 3.0, 5.0]);
    assert_eq!((&y / &x).to_vec::<f32>().unwrap(), [10.0, 10.0, 10.0]);
    assert_eq!((-&x).to_vec::<f32>().unwrap(), [-1.0, -2.0, -3.0]);
    assert_eq!(x.less(2.5).unwrap().astype(Dtype::Uint8).unwrap().to_vec::<u8>().unwrap(), [1, 1, 0]);
}

#[test]
fn types_promote_and_scalars_take_the_type_of_the_array() {
    let i = Array::from_slice(&[1i32, 2]);
    let h = i.astype(Dtype::Float16).unwrap();
    assert_eq!((&i + 1).dtype(), Dtype::Int32);
    assert_eq!((&i + 1.5).dtype(), Dtype::Float32);
    assert_eq!((&h + 1.5).dtype(), Dtype::Float16);
    assert_eq!((&h + &i).dtype(), Dtype::Float16);
    assert_eq!(i.divide(2).unwrap().to_vec::<f32>().unwrap(), [0.5, 1.0]);
    assert_eq!(i.exp().unwrap().dtype(), Dtype::Float32);
    assert!(matches!(h.bitwise_and(&i), Err(Error::Type { .. })));
}

#[test]
fn shapes_broadcast_and_errors_show_them() {
    let column = Array::try_from_slice(&[1.0f32, 2.0, 3.0], &[3, 1]).unwrap();
    let row = Array::try_from_slice(&[10.0f32, 20.0], &[1, 2]).unwrap();
    assert_eq!((&column + &row).to_vec::<f32>().unwrap(), [11.0, 21.0, 12.0, 22.0, 13.0, 23.0]);
    let error = column.add(grid(2, 2)).unwrap_err().to_string();
    assert!(error.contains("add") && error.contains("[3, 1]") && error.contains("[2, 2]"), "{error}");
}

#[test]
fn views_share_memory_and_compute_right() {
    let x = grid(3, 4);
    let t = x.t().unwrap();
    assert_eq!(t.shape(), [4, 3]);
    assert_eq!((&t + 0.0).to_vec::<f32>().unwrap()[..4], [0.0, 4.0, 8.0, 1.0]);
    let every_other = x.slice(&[2, 3], &[-4, -5], &[-1, -2]).unwrap();
    assert_eq!(every_other.shape(), [3, 2]);
    assert_eq!(every_other.to_vec::<f32>().unwrap(), [11.0, 9.0, 7.0, 5.0, 3.0, 1.0]);
    let flat = t.reshape(&[-1]).unwrap();
    assert_eq!(flat.to_vec::<f32>().unwrap()[..5], [0.0, 4.0, 8.0, 1.0, 5.0]);
    let stretched = x.slice(&[0, 0], &[1, 4], &[1, 1]).unwrap().broadcast_to(&[2, 3, 4]).unwrap();
    assert_eq!(stretched.to_vec::<f32>().unwrap().len(), 24);
    assert_eq!(stretched.sum(()).unwrap().item::<f32>().unwrap(), 36.0);
}

#[test]
fn deep_views_of_many_axes_are_indexed_right() {
    let shape = [2usize, 3, 2, 2, 3];
    let elements: Vec<i32> = (0..72).collect();
    let x = Array::try_from_slice(&elements, &shape).unwrap();
    let t = x.transpose(&[4, 2, 0, 3, 1]).unwrap();
    let doubled = (&t + &t).to_vec::<i32>().unwrap();
    let mut expected = Vec::new();
    for e in 0..3 {
        for c in 0..2 {
            for a in 0..2 {
                for d in 0..2 {
                    for b in 0..3 {
                        expected.push(2 * (((((a * 3 + b) * 2 + c) * 2 + d) * 3) + e));
                    }
                }
            }
        }
    }
    assert_eq!(doubled, expected);
}

#[test]
fn reductions_and_products() {
    let x = grid(3, 4);
    assert_eq!(x.sum(0).unwrap().to_vec::<f32>().unwrap(), [12.0, 15.0, 18.0, 21.0]);
    assert_eq!(x.sum(axes(-1).keepdims()).unwrap().shape(), [3, 1]);
    assert_eq!(x.mean(()).unwrap().item::<f32>().unwrap(), 5.5);
    assert_eq!(x.max(1).unwrap().to_vec::<f32>().unwrap(), [3.0, 7.0, 11.0]);
    let product = x.matmul(&x.t().unwrap()).unwrap();
    assert_eq!(product.to_vec::<f32>().unwrap(), [14.0, 38.0, 62.0, 38.0, 126.0, 214.0, 62.0, 214.0, 366.0]);
    let vector = Array::from_slice(&[1.0f32, 0.0, 0.0, 1.0]);
    assert_eq!(x.matmul(&vector).unwrap().to_vec::<f32>().unwrap(), [3.0, 11.0, 19.0]);
    assert!(x.matmul(&x).is_err());
}

#[test]
fn empty_and_zero_dimensional_arrays_work_everywhere() {
    let empty = Array::try_from_slice::<f32>(&[], &[0, 3]).unwrap();
    assert_eq!((&empty + 1.0).exp().unwrap().to_vec::<f32>().unwrap(), [0f32; 0]);
    assert_eq!(empty.sum(0).unwrap().to_vec::<f32>().unwrap(), [0.0; 3]);
    assert!(empty.max(()).is_err());
    let number = Array::scalar(3.0, Dtype::Float32).unwrap();
    assert_eq!((&number * &number).item::<f32>().unwrap(), 9.0);
    assert_eq!(number.reshape(&[1, 1]).unwrap().shape(), [1, 1]);
    assert_eq!(number.item::<f32>().unwrap(), 3.0);
}

/// A chain gives the same bits fused and op by op, for every element-wise op and several types.
#[test]
fn fused_equals_unfused_bit_for_bit() {
    let elements: Vec<f32> = (0..1000).map(|at| (at as f32 - 500.0) / 37.0).collect();
    let chain = |dtype: Dtype| -> Vec<u8> {
        let x = Array::from_slice(&elements).astype(dtype).unwrap();
        let y = (x.tanh().unwrap() * &x + x.sigmoid().unwrap()).abs().unwrap();
        let z = (y.sqrt().unwrap().exp().unwrap() / (&y + 1.5)).maximum(&x).unwrap() - x.sin().unwrap();
        z.read_bytes(<[u8]>::to_vec).unwrap()
    };
    for dtype in [Dtype::Float32, Dtype::Float16, Dtype::Bfloat16, Dtype::Float64] {
        let fused = chain(dtype);
        hesper::eval::set_fusion(false);
        let single = chain(dtype);
        hesper::eval::set_fusion(true);
        assert_eq!(fused, single, "{dtype}");
    }
}

#[test]
fn an_intermediate_with_a_handle_is_computed_once_and_stored_by_its_group() {
    let x = Array::from_slice(&[1.0f32, 2.0]);
    let held = &x + 1.0;
    let result = &held * 3.0;
    result.eval().unwrap();
    assert!(held.is_evaluated(), "it was an output of the same kernel");
    assert_eq!(held.to_vec::<f32>().unwrap(), [2.0, 3.0]);
    assert_eq!(result.to_vec::<f32>().unwrap(), [6.0, 9.0]);
}

#[test]
fn graphs_of_a_million_nodes_build_evaluate_and_drop_without_recursion() {
    let mut x = Array::from_slice(&[0.0f32]);
    for _ in 0..1_000_000 {
        x = &x + 1.0;
    }
    assert_eq!(x.item::<f32>().unwrap(), 1_000_000.0);
    let mut never = Array::from_slice(&[0.0f32]);
    for _ in 0..1_000_000 {
        never = &never + 1.0;
    }
    drop(never);
}

#[test]
fn async_eval_gives_one_submission_for_each_stream() {
    // Streams of its own: a submission also reports faults of other commands on its stream.
    let (x, stream) = (Array::from_slice(&[1.0f32; 64]), || placement::Device::Cpu.stream().unwrap());
    let here: Vec<Array> = placement::with_stream(&stream(), || (0..8).map(|at| &x + at as f32).collect());
    let there = placement::with_stream(&stream(), || x.exp()).unwrap();
    let submissions = async_eval(here.iter().chain([&there])).unwrap();
    assert_eq!(submissions.len(), 2);
    submissions.iter().for_each(|submission| submission.wait().unwrap());
    assert_eq!(here[7].to_vec::<f32>().unwrap(), [8.0; 64]);
}

#[test]
fn threads_that_evaluate_parts_of_one_graph_get_right_numbers() {
    for _ in 0..50 {
        let x = Array::from_slice(&[1.0f32; 64]);
        let shared = (&x * 2.0).sum(axes(()).keepdims()).unwrap();
        let outs: Vec<Array> = (0..8).map(|at| &shared + at as f32).collect();
        let wrong = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for (at, out) in outs.iter().enumerate() {
                let wrong = wrong.clone();
                scope.spawn(move || {
                    let value = out.item::<f32>().unwrap();
                    wrong.fetch_add(usize::from(value != 128.0 + at as f32), Ordering::SeqCst);
                });
            }
        });
        assert_eq!(wrong.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn streams_are_ordered_by_the_arrays_that_they_exchange() {
    let streams: Vec<_> = (0..3).map(|_| placement::cpu().stream().unwrap()).collect();
    let mut x = Array::from_slice(&[1.0f32; 1000]);
    for step in 0..60 {
        x = placement::with_stream(&streams[step % 3], || &x + 1.0);
        if step % 4 == 0 {
            async_eval([&x]).unwrap();
        }
    }
    assert_eq!(x.to_vec::<f32>().unwrap(), [61.0f32; 1000]);
}

const LAYER: &str = "
    uint row = thread_position_in_grid.x;
    T sum = 0;
    for (int k = 0; k < N; ++k) sum += T(w[row * N + k]) * T(x[k]);
    out[row] = sum;
";

/// Twelve layers call one kernel by one name with different weights, as arrays of their own and as
/// slices of one stacked buffer.
#[test]
fn layers_with_one_kernel_and_different_weights_are_not_confused() {
    const N: usize = 16;
    let kernel = CustomKernel::new("fused_layer", &["x", "w"], &["out"], LAYER).unwrap();
    let stacked: Vec<f32> = (0..12 * N * N).map(|at| ((at * 7919) % 13) as f32 / 16.0 - 0.35).collect();
    let all = Array::try_from_slice(&stacked, &[12, N, N]).unwrap();
    let apply = |x: &Array, w: &Array| {
        let call = kernel.call(&[x.clone(), w.clone()]).grid([N as u64, 1, 1]).threadgroup([8, 1, 1]);
        let call = call.template_dtype("T", Dtype::Float32).template_int("N", N as i32);
        call.output(&[N], Dtype::Float32).run().unwrap().remove(0)
    };
    let start = vec![1.0f32; N];
    let (mut a, mut b) = (Array::from_slice(&start), Array::from_slice(&start));
    let mut expected = start;
    for layer in 0..12 {
        let weights = &stacked[layer * N * N..(layer + 1) * N * N];
        a = apply(&a, &Array::try_from_slice(weights, &[N, N]).unwrap());
        let at = layer as isize;
        b = apply(&b, &all.slice(&[at, 0, 0], &[at + 1, N as isize, N as isize], &[1, 1, 1]).unwrap());
        expected = weights
            .chunks(N)
            .map(|row| row.iter().zip(&expected).fold(0.0f32, |sum, (w, x)| sum + w * x))
            .collect();
    }
    eval([&a, &b]).unwrap();
    assert_eq!(a.to_vec::<f32>().unwrap(), expected);
    assert_eq!(b.to_vec::<f32>().unwrap(), expected);
}

#[test]
fn one_kernel_name_with_several_types_and_texts_in_one_evaluation() {
    let twice = "out[thread_position_in_grid.x] = x[thread_position_in_grid.x] * 2;";
    let thrice = "out[thread_position_in_grid.x] = x[thread_position_in_grid.x] * 3;";
    let numbers = Array::from_slice(&[1.0f32, 2.0, 4.0]);
    let mut results = Vec::new();
    for dtype in [Dtype::Float16, Dtype::Float32, Dtype::Int32, Dtype::Float16] {
        for (source, factor) in [(twice, 2.0), (thrice, 3.0)] {
            let kernel = CustomKernel::new("same_name", &["x"], &["out"], source).unwrap();
            let call = kernel.call(&[numbers.astype(dtype).unwrap()]).grid([3, 1, 1]).threadgroup([2, 1, 1]);
            let out = call.output(&[3], dtype).run().unwrap().remove(0);
            results.push((out.astype(Dtype::Float32).unwrap(), factor));
        }
    }
    eval(results.iter().map(|(out, _)| out)).unwrap();
    for (out, factor) in results {
        assert_eq!(out.to_vec::<f32>().unwrap(), [factor, 2.0 * factor, 4.0 * factor]);
    }
}

#[test]
fn a_bad_kernel_is_an_error_with_its_line_and_later_work_succeeds() {
    let broken = CustomKernel::new("broken", &["x"], &["out"], "out[0] = x[0] +;").unwrap();
    let x = Array::from_slice(&[1.0f32]);
    let error =
        broken.call(std::slice::from_ref(&x)).output(&[1], Dtype::Float32).run().unwrap_err().to_string();
    assert!(error.contains("broken") && error.contains('^'), "{error}");
    let outside = CustomKernel::new("outside", &["x"], &["out"], "out[5] = x[0];").unwrap();
    let call =
        |checked| outside.call(std::slice::from_ref(&x)).output(&[1], Dtype::Float32).checked(checked).run();
    let found = call(true).unwrap()[0].eval().unwrap_err().to_string();
    assert!(found.contains("outside") && found.contains("body:1:1"), "{found}");
    let found = call(false).unwrap()[0].eval().unwrap_err().to_string();
    assert!(found.contains("outside") && found.contains("out"), "{found}");
    let zero = outside.call(std::slice::from_ref(&x)).grid([0, 1, 1]).output(&[1], Dtype::Float32).run();
    assert!(zero.unwrap_err().to_string().contains("no threads"));
    assert_eq!((&x + 1.0).item::<f32>().unwrap(), 2.0);
}

/// Weights that are mapped from a file, bound to fused and custom kernels from several threads, before
/// and after evaluation.
#[test]
fn mapped_memory_is_bound_to_fused_and_custom_kernels_from_many_threads() {
    let bytes: Vec<u8> = (0..64u32).flat_map(|at| (at as f32).to_ne_bytes()).collect();
    let weights = Array::adopt(bytes, "a mapped file", Dtype::Float32, &[64]).unwrap();
    let kernel = CustomKernel::new(
        "scale",
        &["w"],
        &["out"],
        "out[thread_position_in_grid.x] = w[thread_position_in_grid.x] * 2;",
    )
    .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (weights, kernel) = (&weights, &kernel);
            scope.spawn(move || {
                if thread % 2 == 0 {
                    weights.eval().unwrap();
                }
                for _ in 0..20 {
                    let fused = (weights + 1.0) * 2.0;
                    let call = kernel.call(std::slice::from_ref(weights)).grid([64, 1, 1]);
                    let custom = call.threadgroup([32, 1, 1]).output(&[64], Dtype::Float32).run().unwrap();
                    let difference = (&fused - &custom[0]).to_vec::<f32>().unwrap();
                    assert_eq!(difference, [2.0f32; 64]);
                }
            });
        }
    });
}

#[test]
fn sixty_four_tasks_with_custom_kernels_and_dropped_temporaries_get_right_results() {
    let kernel = CustomKernel::new(
        "step",
        &["x"],
        &["out"],
        "uint i = thread_position_in_grid.x; out[i] = simd_sum(x[i]) + x[i];",
    )
    .unwrap();
    std::thread::scope(|scope| {
        for task in 0..64 {
            let kernel = &kernel;
            scope.spawn(move || {
                let mut x = Array::from_slice(&[task as f32 / 64.0; 32]);
                let mut expected = task as f32 / 64.0;
                for step in 0..10 {
                    let temporary = &x * 0.03;
                    let call = kernel.call(&[temporary]).grid([32, 1, 1]).threadgroup([32, 1, 1]);
                    x = call.output(&[32], Dtype::Float32).run().unwrap().remove(0);
                    if step % 3 == 0 {
                        async_eval([&x]).unwrap();
                    }
                    expected = (expected * 0.03) * 32.0 + expected * 0.03;
                }
                for value in x.to_vec::<f32>().unwrap() {
                    assert!((value - expected).abs() <= expected.abs() * 1e-5, "{value} {expected}");
                }
            });
        }
    });
}

#[test]
fn the_reason_why_two_ops_are_not_fused_is_reported() {
    use hesper::eval::{Apart, why_apart};
    let x = Array::from_slice(&[1.0f32, 2.0]);
    let y = x.exp().unwrap();
    assert_eq!(why_apart(&x, &y), Some(Apart::Computed(0)));
    assert_eq!(why_apart(&y, &x.add(1).unwrap()), Some(Apart::Unrelated));
    let wide = y.add(Array::zeros(&[3, 2], Dtype::Float32).unwrap()).unwrap();
    assert_eq!(why_apart(&y, &wide), Some(Apart::Shapes(vec![2], vec![3, 2])));
    let both = y.subtract(y.sum(()).unwrap()).unwrap();
    assert_eq!(why_apart(&y, &both), Some(Apart::OtherReader("sum")));
    let mut long = y.clone();
    for _ in 0..100 {
        long = long.add(1).unwrap();
    }
    assert_eq!(why_apart(&y, &long), Some(Apart::Full));
}

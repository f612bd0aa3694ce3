//! Custom kernels on arrays.

use hesper::{Array, CustomKernel, Dtype};

#[test]
fn inputs_with_strides_shapes_and_scalars_reach_the_kernel() {
    let source = "
        uint i = thread_position_in_grid.x;
        uint at = elem_to_loc(i, x_shape, x_strides, x_ndim);
        out[i] = x[at] * scale;
    ";
    let strided =
        CustomKernel::with_options("scale", &["x", "scale"], &["out"], source, "", false, false).unwrap();
    let numbers: Vec<f32> = (0..12).map(|at| at as f32).collect();
    let x = Array::try_from_slice(&numbers, &[3, 4]).unwrap().t().unwrap();
    let scale = Array::scalar(10.0, Dtype::Float32).unwrap();
    let call = strided.call(&[x.clone(), scale]).grid([12, 1, 1]).threadgroup([5, 1, 1]);
    let out = call.output(&[4, 3], Dtype::Float32).run().unwrap();
    let expected: Vec<f32> = x.to_vec::<f32>().unwrap().iter().map(|x| x * 10.0).collect();
    assert_eq!(out[0].to_vec::<f32>().unwrap(), expected);
}

#[test]
fn atomic_outputs_start_from_their_initial_value() {
    let kernel = CustomKernel::with_options(
        "histogram",
        &["x"],
        &["bins"],
        "atomic_fetch_add_explicit(&bins[x[thread_position_in_grid.x]], 1u, memory_order_relaxed);",
        "",
        true,
        true,
    )
    .unwrap();
    let numbers: Vec<u32> = (0..1000).map(|at| (at * at) % 7).collect();
    let call = kernel.call(&[Array::from_slice(&numbers)]).grid([1000, 1, 1]).threadgroup([64, 1, 1]);
    let bins = call.output(&[7], Dtype::Uint32).init_value(5.0).run().unwrap();
    let mut expected = [5u32; 7];
    numbers.iter().for_each(|number| expected[*number as usize] += 1);
    assert_eq!(bins[0].to_vec::<u32>().unwrap(), expected);
}

#[test]
fn several_outputs_of_several_types_come_from_one_call() {
    let source = "uint i = thread_position_in_grid.x; half_of[i] = x[i] / 2; odd[i] = x[i] % 2 != 0;";
    let kernel = CustomKernel::new("split", &["x"], &["half_of", "odd"], source).unwrap();
    let x = Array::from_slice(&[3i32, 4, 7]);
    let call = kernel.call(&[x]).grid([3, 1, 1]).threadgroup([3, 1, 1]);
    let out = call.output(&[3], Dtype::Int32).output(&[3, 1], Dtype::Bool).run().unwrap();
    assert_eq!(out[0].to_vec::<i32>().unwrap(), [1, 2, 3]);
    let odd = out[1].astype(Dtype::Int32).unwrap();
    assert_eq!((odd.shape(), odd.to_vec::<i32>().unwrap()), (&[3, 1][..], vec![1, 0, 1]));
}

#[test]
fn invalid_launches_are_refused_at_the_call() {
    let kernel = CustomKernel::new("k", &["x"], &["out"], "out[0] = x[0];").unwrap();
    let x = Array::from_slice(&[1.0f32]);
    let call = || kernel.call(std::slice::from_ref(&x)).output(&[1], Dtype::Float32);
    for (grid, group) in [([0, 1, 1], [1, 1, 1]), ([1, 1, 1], [0, 1, 1]), ([1, 1, 1], [2048, 1, 1])] {
        assert!(call().grid(grid).threadgroup(group).run().is_err(), "{grid:?} {group:?}");
    }
    assert!(kernel.call(&[]).output(&[1], Dtype::Float32).run().is_err(), "an input is missing");
    assert!(kernel.call(std::slice::from_ref(&x)).run().is_err(), "an output is missing");
    assert!(CustomKernel::new("k", &["x"], &[], "").is_err(), "no outputs at all");
    assert!(CustomKernel::new("k", &["x", "x"], &["out"], "").is_err(), "a name twice");
    assert!(call().output(&[1 << 40, 1 << 40], Dtype::Float32).run().is_err(), "too many outputs, too large");
}

#[test]
fn a_call_with_too_many_inputs_is_refused_although_the_kernel_is_known() {
    let kernel = CustomKernel::new("one", &["x"], &["out"], "out[0] = x[0];").unwrap();
    let x = Array::from_slice(&[1.0f32, 2.0]);
    let call = |inputs: &[Array]| kernel.call(inputs).output(&[1], Dtype::Float32).run();
    assert_eq!(call(&[x.clone()]).unwrap()[0].to_vec::<f32>().unwrap(), [1.0]);
    assert!(call(&[x.clone(), x]).is_err());
}

/// One launch of a kernel over one output.
fn launched(kernel: &CustomKernel, inputs: &[Array], threads: u64, size: usize) -> Array {
    let call = kernel.call(inputs).grid([threads, 1, 1]).threadgroup([32, 1, 1]);
    call.output(&[size], Dtype::Float32).run().unwrap().swap_remove(0)
}

#[test]
fn a_write_out_of_range_fails_that_launch_and_nothing_else() {
    let source = "uint i = thread_position_in_grid.x;\nfloat v = x[i] * 2;\nout[i + 1] = v;";
    let kernel = CustomKernel::new("shifted", &["x"], &["out"], source).unwrap();
    let x = Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0]);
    let (before, bad) = (x.add(1.0).unwrap(), launched(&kernel, std::slice::from_ref(&x), 4, 4));
    let after = x.multiply(bad.add(0.0).unwrap()).unwrap();
    hesper::async_eval([&before, &bad, &after]).ok();
    let error = bad.to_vec::<f32>().unwrap_err().to_string();
    for part in ["shifted", "body:3", "`out` (16 bytes)", "index 4 of 4"] {
        assert!(error.contains(part), "no {part:?} in {error}");
    }
    // Retrying fails again, and so do arrays computed from it.
    assert_eq!(bad.to_vec::<f32>().unwrap_err().to_string(), error);
    assert!(after.to_vec::<f32>().unwrap_err().to_string().contains("shifted"));
    // Other arrays are valid, and the kernel can be launched again.
    assert_eq!(before.to_vec::<f32>().unwrap(), [2.0, 3.0, 4.0, 5.0]);
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    let good = launched(&kernel, std::slice::from_ref(&x), 3, 4);
    assert_eq!(good.to_vec::<f32>().unwrap()[1..], [2.0, 4.0, 6.0]);
}

#[test]
fn a_read_out_of_range_gives_zero() {
    let source = "uint i = thread_position_in_grid.x; out[i] = x[i * 2] + 1;";
    let kernel = CustomKernel::new("far", &["x"], &["out"], source).unwrap();
    let out = launched(&kernel, &[Array::from_slice(&[1.0f32, 2.0, 3.0, 4.0])], 4, 4);
    assert_eq!(out.to_vec::<f32>().unwrap(), [2.0, 4.0, 1.0, 1.0]);
}

#[test]
fn an_unchecked_kernel_drops_writes_without_a_report() {
    let source = "uint i = thread_position_in_grid.x; out[i + 1] = x[i];";
    let checked = CustomKernel::new("shifted", &["x"], &["out"], source).unwrap();
    let x = Array::from_slice(&[1.0f32, 2.0, 3.0]);
    let unchecked = checked.clone().unchecked();
    let call = unchecked.call(std::slice::from_ref(&x)).grid([3, 1, 1]).threadgroup([3, 1, 1]);
    let out = call.init_value(9.0).output(&[3], Dtype::Float32).run().unwrap();
    assert_eq!(out[0].to_vec::<f32>().unwrap(), [9.0, 1.0, 2.0]);
    // The two are different kernels.
    assert!(launched(&checked, &[x], 3, 3).to_vec::<f32>().is_err());
}

#[test]
fn all_outputs_of_a_launch_fail_together_and_large_launches_name_the_first_index() {
    let source = "uint i = thread_position_in_grid.x; a[i] = 1; b[i * 3] = 2;";
    let kernel = CustomKernel::new("two", &[], &["a", "b"], source).unwrap();
    let n = 200_000usize;
    let call = kernel.call(&[]).grid([n as u64, 1, 1]).threadgroup([256, 1, 1]);
    let both = call.output(&[n], Dtype::Float32).output(&[n], Dtype::Float32).run().unwrap();
    for out in &both {
        let error = out.to_vec::<f32>().unwrap_err().to_string();
        assert!(error.contains("`b`") && error.contains("index 200001 of 200000"), "{error}");
    }
}

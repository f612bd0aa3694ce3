//! Custom kernels as they are written, on the simulated Metal: the text reaches the device's compiler with a
//! signature around it, and nothing is checked.

use crate::alone;

use hesper::metal::sim::{Call, ErrorCode, Failure, SimBuilder, SimMetal, language};
use hesper::metal::simulated;
use hesper::{Array, CustomKernel, Dtype, Error, placement};
use hesper_runtime::Stream;
use hesper_runtime::sim::Simulated;

/// Runs a program on a simulated Metal, and asserts that no op ran on the host.
fn on_metal<R>(builder: SimBuilder, program: impl FnOnce(&SimMetal) -> R) -> R {
    let metal = builder.compiler(language::compiler()).build();
    let runtime = simulated(&metal).unwrap();
    let stream: Stream = runtime.stream().unwrap();
    let before = placement::fallbacks();
    let result = placement::with_stream(&stream, || program(&metal));
    assert_eq!(placement::fallbacks(), before);
    let _ = runtime.synchronize();
    drop((stream, runtime));
    metal.drain();
    assert_eq!(metal.misuse(), [] as [String; 0]);
    assert_eq!(metal.violations(), []);
    result
}

/// `out[i] = BODY` for the elements of `x`.
fn element_wise(name: &str, body: &str) -> CustomKernel {
    let text = format!("uint i = thread_position_in_grid.x;\nout[i] = {body};");
    CustomKernel::new(name, &["x"], &["out"], &text).unwrap().as_written()
}

fn run(kernel: &CustomKernel, x: &Array) -> Result<Vec<f32>, Error> {
    let n = x.size();
    let call = kernel.call(std::slice::from_ref(x)).grid([n as u64, 1, 1]).threadgroup([4, 1, 1]);
    call.output(&[n], x.dtype()).run()?[0].astype(Dtype::Float32)?.to_vec::<f32>()
}

fn numbers(count: usize) -> Array {
    Array::from_slice(&(0..count).map(|at| at as f32 - 3.5).collect::<Vec<f32>>())
}

#[test]
fn a_signature_binds_everything_that_the_text_names() {
    let _alone = alone();
    let header = "template <typename U> U twice(U v) { return v + v; }\n#define OFFSET 1";
    let body = "
        uint i = thread_position_in_grid.x;
        if (i >= threads_per_grid.x) { return; }
        auto at = elem_to_loc(i, x_shape, x_strides, x_ndim);
        T v = FLAG ? T(twice(x[at])) : T(x[at]);
        out[i] = v + T(a) + T(small[OFFSET]) + T(N);";
    let all = |dtype: Dtype, written: bool| -> Result<Vec<f32>, Error> {
        let inputs = ["x", "a", "small"];
        let mut kernel =
            CustomKernel::with_options("all names", &inputs, &["out"], body, header, false, false)?;
        if written {
            kernel = kernel.as_written();
        }
        let x = numbers(24).astype(dtype)?.reshape(&[4, 6])?.swapaxes(0, 1)?;
        let inputs = [x, Array::scalar(0.5, Dtype::Float32)?, Array::from_slice(&[7i32, 2])];
        let call = kernel.call(&inputs).grid([24, 1, 1]).threadgroup([8, 1, 1]);
        let call = call.template_dtype("T", dtype).template_int("N", -3).template_bool("FLAG", true);
        let out = call.output(&[24], dtype).run()?;
        out[0].astype(Dtype::Float32)?.to_vec()
    };
    for dtype in [Dtype::Float32, Dtype::Float16, Dtype::Bfloat16, Dtype::Int32, Dtype::Uint8] {
        let expected = all(dtype, false).unwrap();
        assert_eq!(on_metal(SimMetal::builder(1), |_| all(dtype, true).unwrap()), expected, "{dtype}");
    }
    let counted = on_metal(SimMetal::builder(2), |_| {
        let text =
            "atomic_fetch_add_explicit(&count[thread_position_in_grid.x % 2], 3, memory_order_relaxed);";
        let kernel = CustomKernel::with_options("count", &[], &["count"], text, "", true, true).unwrap();
        let kernel = kernel.as_written();
        let call = kernel.call(&[]).grid([9, 1, 1]).threadgroup([4, 1, 1]).init_value(10.0);
        call.output(&[2], Dtype::Int32).run().unwrap()[0].to_vec::<i32>().unwrap()
    });
    assert_eq!(counted, [25, 22]);
}

#[test]
fn the_text_reaches_the_compiler_as_it_is_written() {
    let _alone = alone();
    let kernel = element_wise("as it is", "x[i] /* a comment */ * 2");
    let (x, n) = (numbers(8), 8);
    let call = kernel.call(std::slice::from_ref(&x)).grid([n, 1, 1]).threadgroup([4, 1, 1]);
    let text = call.output(&[8], Dtype::Float32).text();
    assert!(
        text.contains("uint i = thread_position_in_grid.x;\nout[i] = x[i] /* a comment */ * 2;"),
        "{text}"
    );
    assert!(text.contains("const device float* x [[buffer(0)]]"), "{text}");
    assert_eq!(on_metal(SimMetal::builder(1), |_| run(&kernel, &x).unwrap())[7], 7.0);
    // Without the checks of the kernel language, a write outside is a fault of the command buffer.
    let error = on_metal(SimMetal::builder(1), |_| {
        let error = run(&element_wise("past", "out[i + 99999] = x[i]"), &x).unwrap_err().to_string();
        assert_eq!(run(&kernel, &x).unwrap().len(), 8, "the device goes on");
        error
    });
    assert!(error.contains("outside of its buffers") && error.contains("past:2"), "{error}");
    // What a kernel does not write is zero, and no earlier owner's bytes.
    let text = "uint i = thread_position_in_grid.x; if (i < 4) { out[i] = 1; }";
    let part = CustomKernel::new("part", &["x"], &["out"], text).unwrap().as_written();
    let out = on_metal(SimMetal::builder(1), |_| run(&part, &x).unwrap());
    assert_eq!(out, [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn a_text_that_the_compiler_refuses_is_reported_with_its_own_lines_and_can_be_corrected() {
    let _alone = alone();
    let x = numbers(8);
    on_metal(SimMetal::builder(1), |_| {
        let bad = element_wise("broken", "metal::expp(x[i])");
        let call = bad.call(std::slice::from_ref(&x)).grid([8, 1, 1]).threadgroup([8, 1, 1]);
        // Only the compiler reads the text, when the output is evaluated.
        let lazy = call.output(&[8], Dtype::Float32).run().unwrap();
        for _ in 0..2 {
            let error = lazy[0].to_vec::<f32>().unwrap_err().to_string();
            assert!(error.contains("broken:2:17: error: ") && error.contains("expp"), "{error}");
        }
        let body = "out[thread_position_in_grid.x] = f(x[0]);";
        let header = "// a comment\nfloat f(float x) { return x + undeclared; }";
        let kernel =
            CustomKernel::with_options("headed", &["x"], &["out"], body, header, true, false).unwrap();
        let error = run(&kernel.as_written(), &x).unwrap_err().to_string();
        assert!(error.contains("headed, header:2:31: error: "), "{error}");
        assert_eq!(run(&element_wise("broken", "metal::abs(x[i])"), &x).unwrap()[0], 3.5);
    });
}

#[test]
fn a_compiler_that_fails_once_is_asked_again() {
    let _alone = alone();
    let x = numbers(8);
    for call in [Call::Library, Call::Pipeline] {
        on_metal(SimMetal::builder(1).fail(Failure::Nth(call, 0)), |_| {
            let kernel = element_wise("twice", "2 * x[i]");
            let error = run(&kernel, &x).unwrap_err().to_string();
            assert!(error.contains("twice") && error.contains("interrupted"), "{error}");
            assert_eq!(run(&kernel, &x).unwrap()[7], 7.0);
        });
    }
    on_metal(SimMetal::builder(1), |metal| {
        let kernel = element_wise("twice", "2 * x[i]");
        metal.set_outage(Some(ErrorCode::Timeout));
        assert!(run(&kernel, &x).unwrap_err().to_string().contains("ran for too long"));
        metal.set_outage(None);
        assert_eq!(run(&kernel, &x).unwrap()[7], 7.0);
    });
}

#[test]
fn kernels_of_one_name_are_told_apart_by_their_texts_and_types() {
    let _alone = alone();
    let x = numbers(16);
    on_metal(SimMetal::builder(1), |_| {
        let (double, negative) = (element_wise("layer", "2 * x[i]"), element_wise("layer", "-x[i]"));
        let half = x.astype(Dtype::Float16).unwrap();
        for _ in 0..2 {
            assert_eq!(run(&double, &x).unwrap()[1], -5.0);
            assert_eq!(run(&negative, &x).unwrap()[1], 2.5);
            assert_eq!(run(&double, &half).unwrap()[1], -5.0);
        }
        // The same text through the kernel language is another kernel, too.
        let checked = CustomKernel::new("layer", &["x"], &["out"], "out[thread_position_in_grid.x] = 1;");
        assert_eq!(run(&checked.unwrap(), &x).unwrap()[1], 1.0);
    });
}

#[test]
fn other_devices_and_the_sanitizer_run_the_text_through_the_kernel_language() {
    let _alone = alone();
    let x = numbers(8);
    let kernel = element_wise("twice", "2 * x[i]");
    assert_eq!(run(&kernel, &x).unwrap()[7], 7.0);
    // No report of a write outside, as of an unchecked kernel.
    assert_eq!(run(&element_wise("past", "0; out[i + 99] = x[i]"), &x).unwrap(), [0.0; 8]);
    let error = run(&element_wise("broken", "metal::expp(x[i])"), &x).unwrap_err().to_string();
    assert!(error.contains("broken") && error.contains("body:2:17"), "{error}");
    let past = element_wise("past", "0; out[i + 99] = x[i]");
    let metal = hesper::metal::simulation(1);
    let runtime = simulated(&metal).unwrap();
    let stream = runtime.stream().unwrap();
    let error = placement::with_stream(&stream, || {
        let call = past.call(std::slice::from_ref(&x)).grid([8, 1, 1]).threadgroup([8, 1, 1]);
        let out = call.output(&[8], Dtype::Float32).checked(true).run().unwrap();
        out[0].to_vec::<f32>().unwrap_err().to_string()
    });
    assert!(error.contains("past") && error.contains("body:2"), "{error}");
}

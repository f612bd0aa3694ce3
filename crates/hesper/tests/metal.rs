//! The Metal backend on the simulated Metal: texts are parsed, and run by the reference interpreter with its
//! sanitizer.

use crate::alone;
use std::sync::MutexGuard;

use hesper::fast::{self, AttentionMask};
use hesper::metal::sim::{ErrorCode, Failure, SimBuilder, SimMetal, language};
use hesper::metal::{simulated, simulation};

use hesper::ops::step::{PageRows, Pages, RotaryFrequencies, StepHeads, attend_token, keep_token};
use hesper::{
    Array, Conv, CustomKernel, Dtype, Error, PackedArray, PackedFormat, QuantMode, backend, placement, random,
};
use hesper_runtime::sim::Simulated;
use hesper_runtime::{Runtime, Stream};

/// A runtime on a simulated Metal.
struct World {
    _alone: MutexGuard<'static, ()>,
    metal: SimMetal,
    runtime: Runtime,
    stream: Stream,
}

impl World {
    fn new(seed: u64) -> World {
        let _alone = alone();
        let metal = simulation(seed);
        let runtime = simulated(&metal).unwrap();
        let stream = runtime.stream().unwrap();
        World { _alone, metal, runtime, stream }
    }

    fn on<R>(&self, f: impl FnOnce() -> R) -> R {
        placement::with_stream(&self.stream, f)
    }

    /// Ends everything and asserts that Metal's rules were kept.
    fn end(self) {
        let World { _alone, metal, runtime, stream } = self;
        let _ = runtime.synchronize();
        drop((stream, runtime));
        metal.drain();
        assert_eq!(metal.misuse(), [] as [String; 0]);
        assert_eq!(metal.violations(), []);
    }
}

fn fallbacks(op: &str) -> u64 {
    placement::fallbacks().into_iter().find(|(name, _)| *name == op).map_or(0, |(_, count)| count)
}

fn numbers(count: usize) -> Array {
    let elements: Vec<f32> = (0..count).map(|at| (at * 37 % 101) as f32 / 50.0 - 1.0).collect();
    Array::from_slice(&elements)
}

#[test]
fn a_mixed_program_gives_the_host_s_results_under_any_schedule() {
    let program = || -> Result<Vec<f32>, Error> {
        let x = numbers(60).reshape(&[6, 10])?;
        let y = x.multiply(2.0)?.add(0.5)?.matmul(&x.swapaxes(0, 1)?)?.softmax(-1)?;
        y.add(x.sum(hesper::axes(1).keepdims())?)?.sort(Some(-1))?.to_vec::<f32>()
    };
    let expected = program().unwrap();
    for seed in 0..5 {
        let world = World::new(seed);
        assert_eq!(backend::of_stream(&world.stream).unwrap().name(), "metal");
        let found = world.on(|| program().unwrap());
        assert!(world.runtime.counters().encoded > 0);
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5, "{found} for {expected}, seed {seed}");
        }
        world.end();
    }
}

#[test]
fn a_dropped_write_of_a_custom_kernel_is_an_error_that_names_the_line() {
    let world = World::new(1);
    let text = "uint i = thread_position_in_grid.x;\nout[i + index[0]] = x[i];";
    let kernel = CustomKernel::new("shifted", &["x", "index"], &["out"], text).unwrap();
    let run = |by: i32| {
        world.on(|| {
            let inputs = [numbers(8), Array::from_slice(&[by])];
            let call = kernel.call(&inputs).grid([8, 1, 1]).threadgroup([8, 1, 1]);
            call.output(&[8], Dtype::Float32).run().unwrap()[0].to_vec::<f32>()
        })
    };
    assert_eq!(run(0).unwrap(), numbers(8).to_vec::<f32>().unwrap());
    let error = run(5).unwrap_err().to_string();
    assert!(error.contains("shifted") && error.contains('2'), "{error}");
    // The device goes on.
    assert_eq!(run(0).unwrap(), numbers(8).to_vec::<f32>().unwrap());
    world.end();
}

/// Inputs of fewer than eight elements are in constant memory, which Metal binds at multiples of four bytes.
#[test]
fn a_small_view_in_constant_memory_is_bound_where_metal_takes_it() {
    let world = World::new(1);
    let text = "uint i = thread_position_in_grid.x; out[i] = x[i] + y[0];";
    let kernel = CustomKernel::new("offsets", &["x", "y"], &["out"], text).unwrap();
    let sum = || {
        let x = data(&[20], Dtype::Float16, 1);
        let views = [x.slice(&[3], &[8], &[1]).unwrap(), x.slice(&[7], &[8], &[1]).unwrap()];
        let call = kernel.call(&views).grid([5, 1, 1]).threadgroup([5, 1, 1]);
        let out = call.output(&[5], Dtype::Float16).run().unwrap();
        out[0].astype(Dtype::Float32).unwrap().to_vec::<f32>().unwrap()
    };
    assert_eq!(world.on(sum), sum());
    world.end();
}

#[test]
fn float64_and_kernels_of_many_arrays_are_left_to_the_host_and_counted() {
    let world = World::new(2);
    let before = fallbacks("fused kernel");
    let double = world.on(|| {
        let x = Array::from_slice(&[1.0f64, 2.0]).multiply(3.0).unwrap();
        x.to_vec::<f64>().unwrap()
    });
    assert_eq!(double, [3.0, 6.0]);
    assert!(fallbacks("fused kernel") > before);
    let before = fallbacks("fused kernel");
    let sum = world.on(|| {
        let arrays: Vec<Array> = (0..40).map(|at| Array::from_slice(&[at as f32, 1.0])).collect();
        hesper::eval(&arrays).unwrap();
        let sum = arrays.iter().skip(1).try_fold(arrays[0].clone(), |sum, one| sum.add(one)).unwrap();
        sum.to_vec::<f32>().unwrap()
    });
    assert_eq!(sum, [780.0, 40.0]);
    assert!(fallbacks("fused kernel") > before);
    world.end();
}

/// Each failure of a command buffer reaches the arrays that it computes and those that depend on them. The
/// program goes on, and asks again when the cause is gone.
#[test]
fn arrays_of_a_failed_command_buffer_fail_and_the_program_asks_again() {
    let causes = [
        (ErrorCode::Timeout, "ran for too long"),
        (ErrorCode::PageFault, "outside of its buffers"),
        (ErrorCode::OutOfMemory, "no memory"),
        (ErrorCode::NotPermitted, "background"),
    ];
    for (code, part) in causes {
        let world = World::new(5);
        world.on(|| {
            let x = numbers(64).reshape(&[8, 8]).unwrap();
            let product = || x.matmul(&x).and_then(|y| y.add(1.0));
            let before = product().unwrap();
            hesper::eval(std::slice::from_ref(&before)).unwrap();
            world.metal.set_outage(Some(code));
            let lost = product().unwrap();
            let error = lost.to_vec::<f32>().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
            let error = lost.sum(()).and_then(|sum| sum.item::<f32>()).unwrap_err().to_string();
            assert!(error.contains(part), "what depends on it: {error}");
            // What was computed before, and the host, are as they were.
            let expected = before.to_vec::<f32>().unwrap();
            let host =
                placement::with_device(placement::Device::Cpu, || numbers(3).add(1.0)).unwrap().unwrap();
            assert_eq!(host.to_vec::<f32>().unwrap().len(), 3);
            world.metal.set_outage(None);
            assert_eq!(product().unwrap().to_vec::<f32>().unwrap(), expected);
        });
        world.end();
    }
}

/// Whatever call Metal refuses and whatever command buffer fails: each result is right or an error, and the
/// whole program, asked for again, is right.
#[test]
fn a_mixed_program_goes_on_after_a_failure_at_each_position() {
    let _alone = alone();
    let text = "uint i = thread_position_in_grid.x; out[i] = 2 * x[i] + 1;";
    let kernel = CustomKernel::new("affine", &["x"], &["out"], text).unwrap();
    let program = |streams: &[Stream; 2]| -> Vec<Result<Vec<f32>, Error>> {
        let arrays = || -> Result<Vec<Array>, Error> {
            let x = numbers(24).reshape(&[4, 6])?;
            let y = placement::with_stream(&streams[0], || x.matmul(&x.swapaxes(0, 1)?)?.softmax(-1))?;
            placement::with_stream(&streams[1], || {
                let z = y.cumsum(Some(1), false, true)?.sort(Some(-1))?;
                let call = kernel.call(std::slice::from_ref(&z)).grid([16, 1, 1]).threadgroup([16, 1, 1]);
                let mut custom = call.output(&[4, 4], Dtype::Float32).run()?;
                Ok(vec![y.clone(), z, custom.remove(0)])
            })
        };
        match arrays() {
            Ok(arrays) => arrays.iter().rev().map(|array| array.to_vec::<f32>()).collect(),
            Err(error) => vec![Err(error)],
        }
    };
    let run = |builder: SimBuilder, what: &str, wanted: Option<&Vec<Vec<f32>>>| {
        let metal = builder.compiler(language::compiler()).build();
        let runtime = simulated(&metal).unwrap();
        let stream = || runtime.stream().or_else(|_| runtime.stream()).unwrap();
        let streams = [stream(), stream()];
        let first = program(&streams);
        let calls = metal.calls();
        let again: Result<Vec<Vec<f32>>, Error> = program(&streams).into_iter().collect();
        let again = again.unwrap_or_else(|error| panic!("{what}: asked again: {error}"));
        let wanted = wanted.unwrap_or(&again).clone();
        assert_eq!(again, wanted, "{what}: asked again");
        let failed = first.iter().any(Result::is_err);
        for (found, wanted) in first.iter().zip(&wanted) {
            assert!(found.as_ref().is_ok_and(|found| found == wanted) || found.is_err(), "{what}: {found:?}");
        }
        runtime.synchronize().unwrap();
        drop((streams, runtime));
        metal.drain();
        assert_eq!(metal.misuse(), [] as [String; 0], "{what}");
        assert_eq!(metal.violations(), [], "{what}");
        assert_eq!(metal.alive(), [] as [String; 0], "{what}");
        (wanted, calls, failed)
    };
    let (wanted, calls, failed) = run(SimMetal::builder(1), "no failure", None);
    assert!(!failed && calls > 20, "{calls} calls");
    let mut lost = 0;
    for at in 0..calls {
        let builder = SimMetal::builder(at).fail(Failure::Any(at));
        lost += usize::from(run(builder, &format!("call {at}"), Some(&wanted)).2);
    }
    // One for each stream.
    for at in 0..2 {
        let builder = SimMetal::builder(at).fault(at, ErrorCode::Timeout).late(at);
        lost += usize::from(run(builder, &format!("command buffer {at}"), Some(&wanted)).2);
    }
    assert!(lost > 8, "{lost} runs lost a result");
}

/// Numbers between -1 and 1, of a shape and type.
fn data(shape: &[usize], dtype: Dtype, seed: usize) -> Array {
    let count: usize = shape.iter().product();
    let elements: Vec<f32> =
        (0..count).map(|at| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect();
    Array::try_from_slice(&elements, shape).unwrap().astype(dtype).unwrap()
}

/// Asserts that a program gives the host's results on Metal, in each type, and that no op falls back to the
/// host.
fn agree(program: impl Fn(Dtype) -> Result<Vec<Array>, Error>) {
    let world = World::new(3);
    for (dtype, tolerance) in [(Dtype::Float32, 2e-5), (Dtype::Bfloat16, 2e-2), (Dtype::Float16, 4e-3)] {
        let elements = |array: &Array| array.astype(Dtype::Float32).unwrap().to_vec::<f32>().unwrap();
        let host: Vec<Vec<f32>> = program(dtype).unwrap().iter().map(elements).collect();
        let before = placement::fallbacks();
        let there = world.on(|| {
            let made = program(dtype).unwrap();
            hesper::eval(&made).unwrap();
            made
        });
        assert_eq!(placement::fallbacks(), before, "{dtype}");
        for (number, (host, there)) in host.iter().zip(&there).enumerate() {
            let there = elements(there);
            assert_eq!(host.len(), there.len());
            for (at, (host, there)) in host.iter().zip(&there).enumerate() {
                let close = (host - there).abs() <= tolerance * (1.0 + host.abs())
                    || host == there
                    || host.is_nan() && there.is_nan();
                assert!(close, "{dtype}: element {at} of result {number}: {there} for {host}");
            }
        }
    }
    world.end();
}

#[test]
fn products_agree() {
    agree(|dtype| {
        let x = |shape: &[usize], seed| data(shape, dtype, seed);
        Ok(vec![
            x(&[70, 33], 1).matmul(&x(&[33, 65], 2))?,
            x(&[9, 20], 1).matmul(&x(&[7, 20], 2).swapaxes(0, 1)?)?,
            x(&[20, 9], 1).swapaxes(0, 1)?.matmul(&x(&[20, 7], 2))?,
            x(&[1, 130], 1).matmul(&x(&[130, 37], 2))?,
            x(&[3, 130], 1).matmul(&x(&[37, 130], 2).swapaxes(0, 1)?)?,
            x(&[2, 1, 5, 12], 1).matmul(&x(&[3, 12, 6], 2))?,
            x(&[24], 3).addmm(&x(&[10, 8], 1), &x(&[8, 24], 2), 0.5, 2.0)?,
            x(&[2, 24], 3).addmm(&x(&[2, 8], 1), &x(&[8, 24], 2), 0.5, 2.0)?,
            x(&[4, 0], 1).matmul(&x(&[0, 3], 2))?,
        ])
    });
}

/// Complex numbers have no `simdgroup_matrix`.
#[test]
fn products_and_scans_of_complex_numbers_agree() {
    agree(|_| {
        let x = |shape: &[usize], seed: usize| -> Result<Array, Error> {
            let parts = [shape, &[2]].concat();
            data(&parts, Dtype::Float32, seed).view(Dtype::Complex64)?.reshape(&hesper::shape::signed(shape))
        };
        let (a, b) = (x(&[2, 19, 33], 1)?, x(&[33, 18], 2)?);
        let all = [
            a.matmul(&b)?,
            x(&[5, 20], 1)?.swapaxes(0, 1)?.matmul(&x(&[3, 5], 2)?.swapaxes(0, 1)?)?,
            x(&[1, 7], 3)?.matmul(&x(&[7, 1], 4)?)?,
            x(&[19, 18], 7)?.addmm(&x(&[19, 33], 5)?, &b, 0.5, 2.0)?,
            x(&[2, 300], 5)?.cumsum(Some(1), true, false)?,
            x(&[2, 40], 5)?.cumprod(Some(1), false, false)?,
            x(&[2, 5, 3], 6)?.cumprod(Some(1), false, true)?,
        ];
        all.iter().map(|one| one.view(Dtype::Float32)).collect()
    });
}

/// By the real part, then by the imaginary one; NaN is last.
#[test]
fn sorts_and_extremes_of_complex_numbers_agree() {
    agree(|_| {
        // Few different parts, so that many elements are equal in one of them or in both.
        let x = |shape: &[usize], seed: usize| -> Result<Array, Error> {
            let parts = data(&[shape, &[2]].concat(), Dtype::Float32, seed).multiply(3.0)?.round(0)?;
            // Both parts are NaN: the host's extremes of a number with one such part depend on the order.
            let nan = Array::scalar(f64::NAN, Dtype::Float32)?;
            let parts = hesper::select(&parts.slice_axis(shape.len(), 0, 1, 1)?.equal(3.0)?, &nan, &parts)?;
            parts.view(Dtype::Complex64)?.reshape(&hesper::shape::signed(shape))
        };
        let row = x(&[90], 4)?.sort(None)?;
        let complex = [
            x(&[3, 70], 1)?.sort(Some(-1))?,
            x(&[1, 1500], 2)?.sort(Some(-1))?,
            x(&[20, 3], 3)?.sort(Some(0))?,
            x(&[2, 300], 5)?.cummax(Some(1), false, true)?,
            x(&[2, 40, 3], 6)?.cummin(Some(1), true, true)?,
        ];
        let mut all = complex.iter().map(|one| one.view(Dtype::Float32)).collect::<Result<Vec<_>, _>>()?;
        all.push(x(&[2, 1200], 7)?.argsort(Some(-1))?);
        all.push(row.searchsorted(&x(&[40], 8)?, false)?);
        all.push(row.searchsorted(&x(&[40], 8)?, true)?);
        Ok(all)
    });
}

#[test]
fn quantized_products_agree() {
    for (bits, group) in [(4, 32), (8, 64), (3, 32), (6, 64)] {
        let parts = |dtype| data(&[40, 128], dtype, 1).quantize(Some(group), Some(bits), QuantMode::Affine);
        let codes: Vec<_> =
            [Dtype::Float32, Dtype::Bfloat16, Dtype::Float16].map(|dtype| parts(dtype).unwrap()).into();
        agree(|dtype| {
            let at = [Dtype::Float32, Dtype::Bfloat16, Dtype::Float16]
                .iter()
                .position(|one| *one == dtype)
                .unwrap();
            let (q, scales, biases) = &codes[at];
            let (group, bits) = (Some(group), Some(bits));
            let product = |rows: usize, width: usize, transpose: bool| {
                let x = data(&[rows, width], dtype, 2);
                x.quantized_matmul(q, scales, biases.as_ref(), transpose, group, bits, QuantMode::Affine)
            };
            let whole = q.dequantize(scales, biases.as_ref(), group, bits, QuantMode::Affine, None)?;
            Ok(vec![whole, product(1, 128, true)?, product(9, 128, true)?, product(3, 40, false)?])
        });
    }
}

#[test]
fn attention_agrees() {
    agree(|dtype| {
        let attend = |queries: usize, keys: usize, width: usize, causal: bool, sinks: bool| {
            let q = data(&[1, 4, queries, width], dtype, 1);
            let (k, v) = (data(&[1, 2, keys, width], dtype, 2), data(&[1, 2, keys, width], dtype, 3));
            let mask = if causal { AttentionMask::Causal } else { AttentionMask::None };
            let sinks = sinks.then(|| data(&[4], dtype, 4));
            fast::scaled_dot_product_attention(&q, &k, &v, 0.3, mask, sinks.as_ref())
        };
        let (q, k) = (data(&[2, 1, 20, 8], dtype, 1), data(&[2, 1, 24, 8], dtype, 2));
        let bools = data(&[20, 24], Dtype::Float32, 5).greater(0.0)?;
        let added = data(&[20, 24], dtype, 6);
        let masked = |mask: &Array| fast::scaled_dot_product_attention(&q, &k, &k, 0.5, mask, None);
        Ok(vec![
            attend(1, 37, 40, false, false)?,
            attend(3, 20, 64, true, true)?,
            attend(40, 40, 16, true, false)?,
            attend(12, 21, 64, false, true)?,
            attend(20, 9, 8, true, false)?,
            masked(&bools)?,
            masked(&added)?,
        ])
    });
}

#[test]
fn attention_over_many_keys_is_split_and_agrees() {
    agree(|dtype| {
        let (q, k) = (data(&[1, 1, 1, 8], dtype, 1), data(&[1, 1, 2500, 8], dtype, 2));
        let sinks = data(&[1], dtype, 4);
        let attend = |sinks: Option<&Array>| {
            fast::scaled_dot_product_attention(&q, &k, &k, 1.0, AttentionMask::None, sinks)
        };
        Ok(vec![attend(None)?, attend(Some(&sinks))?])
    });
}

#[test]
fn rows_reductions_and_scans_agree() {
    agree(|dtype| {
        let x = data(&[3, 5, 70], dtype, 1);
        let (weight, bias) = (data(&[70], dtype, 2), data(&[70], dtype, 3));
        let long = data(&[2, 4200], dtype, 4);
        let nan =
            Array::from_slice(&[1.0f32, f32::NAN, f32::NEG_INFINITY, 0.0]).reshape(&[2, 2])?.astype(dtype)?;
        Ok(vec![
            x.softmax(-1)?,
            long.softmax(-1)?,
            nan.softmax(-1)?,
            x.logsumexp(-1)?,
            nan.logsumexp(-1)?,
            fast::rms_norm(&x, Some(&weight), 1e-5)?,
            fast::layer_norm(&x, Some(&weight), Some(&bias), 1e-5)?,
            x.sum(0)?,
            x.max(hesper::axes(2).keepdims())?,
            nan.min(())?,
            x.var([1, 2], 1)?,
            long.argmax(1)?,
            long.sum(())?.multiply(1e-2)?,
            x.all(1)?,
            x.cumsum(Some(2), true, false)?,
            x.cummax(Some(1), false, true)?,
            x.logcumsumexp(Some(2), false, true)?,
        ])
    });
}

#[test]
fn indexing_agrees() {
    agree(|dtype| {
        let x = data(&[6, 8, 5], dtype, 1);
        let at = Array::from_slice(&[1i32, -1, 4, 1]);
        let along = Array::from_slice(&[0i32, 5, 2, -2, 3, 3, 1, 0]).reshape(&[1, 8, 1])?;
        Ok(vec![
            x.take(&at, Some(0))?,
            x.take(&at, Some(2))?,
            x.take_along_axis(&along, Some(0))?,
            x.transpose(&[2, 1, 0])?.contiguous()?,
            x.transpose(&[2, 1, 0])?.take(&at, Some(1))?,
            hesper::concatenate(&[x.clone(), x.flip(1)?], 1)?,
        ])
    });
}

#[test]
fn convolutions_rope_and_sorts_agree() {
    agree(|dtype| {
        let image = data(&[2, 9, 7, 4], dtype, 1);
        let (weight, grouped) = (data(&[6, 3, 2, 4], dtype, 2), data(&[6, 3, 2, 2], dtype, 3));
        let x = data(&[2, 3, 4, 12], dtype, 4);
        let row = data(&[1, 1200], dtype, 5);
        Ok(vec![
            image.conv_general(&weight, &Conv::default())?,
            image.conv_general(&grouped, &Conv { groups: 2, ..Conv::default() })?,
            fast::rope(&x, 8, false, Some(10000.0), 1.0, 3, None)?,
            fast::rope(&x, 12, true, Some(100.0), 0.5, 0, None)?,
            row.sort(Some(-1))?,
            row.argsort(Some(-1))?,
            data(&[6, 9], dtype, 6).sort(Some(0))?,
        ])
    });
}

#[test]
fn random_bits_agree() {
    agree(|_| {
        let key = random::key(7)?;
        Ok(vec![random::uniform(0.0, 1.0, &[101], Dtype::Float32, Some(&key))?])
    });
}

#[test]
fn fourier_transforms_and_ops_made_of_others_agree() {
    agree(|dtype| {
        let x = data(&[3, 60], dtype, 1);
        let real = x.astype(Dtype::Float32)?;
        let spectrum = hesper::fft::rfft(&real, None, -1, Default::default())?;
        let back = hesper::fft::irfft(&spectrum, Some(60), -1, Default::default())?;
        // Longer than a threadgroup holds: transforms of its factors.
        let long = data(&[1, 4096], Dtype::Float32, 2);
        let long = hesper::fft::rfft(&long, None, -1, Default::default())?.abs()?.slice_axis(1, 0, 8, 1)?;
        let square = data(&[5, 4, 4], dtype, 3);
        let order = Array::from_slice(&[2u32, 0, 4]);
        let products = square.take(order.clone(), Some(0))?.matmul(&square.take(order, Some(0))?)?;
        Ok(vec![back, long, products, x.diag(0)?, data(&[7], dtype, 4).diag(-1)?])
    });
}

#[test]
fn floating_point_codes_agree() {
    for (group, bits, mode) in
        [(32, 4, QuantMode::Mxfp4), (32, 8, QuantMode::Mxfp8), (16, 4, QuantMode::Nvfp4)]
    {
        agree(|dtype| {
            let (group, bits) = (Some(group), Some(bits));
            let (codes, scales, _) = data(&[24, 64], dtype, 1).quantize(group, bits, mode)?;
            let whole = codes.dequantize(&scales, None, group, bits, mode, Some(dtype))?;
            let x = data(&[2, 64], dtype, 2);
            let product = x.quantized_matmul(&codes, &scales, None, true, group, bits, mode)?;
            Ok(vec![codes.view(Dtype::Uint8)?, scales, whole, product])
        });
    }
}

/// More axes than kernels take, into a target with gaps: the host makes the update contiguous.
#[test]
fn updates_of_many_axes_agree() {
    agree(|dtype| {
        let x = data(&[3; 9], dtype, 1);
        let update = data(&[2; 9], dtype, 2);
        Ok(vec![x.slice_update(&update, &[0; 9], &[3; 9], &[2; 9])?])
    });
}

#[test]
fn scatters_agree_with_equal_indices_in_order() {
    agree(|dtype| {
        let x = data(&[9, 6, 5], dtype, 1);
        let rows = [Array::from_slice(&[1i32, -1, 4, 1, 1])];
        let both = [rows[0].clone(), Array::from_slice(&[0u32, 3, 3, 0, 5])];
        let (slices, cells) = (data(&[5, 1, 6, 5], dtype, 2), data(&[5, 1, 1, 5], dtype, 3));
        Ok(vec![
            x.scatter(&rows, &slices, &[0])?,
            x.scatter_add(&rows, &slices, &[0])?,
            x.scatter_prod(&rows, &slices, &[0])?,
            x.scatter_max(&rows, &slices, &[0])?,
            x.scatter_min(&rows, &slices, &[0])?,
            x.scatter(&both, &cells, &[0, 1])?,
            x.transpose(&[2, 1, 0])?.scatter_add(&both[1..], &data(&[5, 1, 6, 9], dtype, 4), &[0])?,
        ])
    });
}

/// More points than all pairs of are compared: keys are sorted.
#[test]
fn scatters_of_many_points_agree() {
    let points: Vec<i32> = (0..1300).map(|at| at * 37 % 90 - 30).collect();
    agree(|dtype| {
        let at = Array::from_slice(&points);
        let x = data(&[60], dtype, 1);
        Ok(vec![
            x.scatter(&[at.clone()], &data(&[1300, 1], dtype, 2), &[0])?,
            x.scatter_add(&[at.clone()], &data(&[1300, 1], dtype, 3).multiply(0.01)?, &[0])?,
            x.put_along_axis(&at, &data(&[1300], dtype, 4), Some(0))?,
        ])
    });
}

#[test]
fn updates_along_an_axis_appends_and_searches_agree() {
    agree(|dtype| {
        let x = data(&[5, 7, 3], dtype, 1);
        let at = Array::from_slice(&[6i32, 0, -7, 6, 2, 2]).reshape(&[1, 2, 3])?;
        let at = hesper::concatenate(&[at.clone(), at.add(1)?, at.clone(), at.clone(), at], 0)?;
        let values = data(&[5, 2, 3], dtype, 2);
        let mut block = Array::zeros(&[2, 3, 4, 8], dtype)?;
        for step in 0..3 {
            block = fast::append(&block, &data(&[2, 3, 1, 8], dtype, step), &[step, 0], 4)?;
        }
        let grown = fast::append(&block, &data(&[2, 3, 2, 8], dtype, 9), &[3, 1], 6)?;
        let row = data(&[150], dtype, 3).sort(None)?;
        let places = [row.searchsorted(&x, false)?, row.searchsorted(&x, true)?];
        let nan = Array::from_slice(&[f32::NAN, 0.0, -0.0]).astype(dtype)?;
        Ok(vec![
            x.put_along_axis(&at, &values, Some(1))?,
            x.scatter_add_axis(&at, &values, 1)?,
            x.put_along_axis(&Array::from_slice(&[3i64, -1]), &data(&[2], dtype, 4), None)?,
            grown,
            places[0].clone(),
            places[1].subtract(&places[0])?,
            row.searchsorted(&nan, false)?,
        ])
    });
}

/// Blocks of bytes that follow from a seed, with finite scales.
fn blocks(format: PackedFormat, rows: usize, cols: usize, seed: u64) -> Result<PackedArray, Error> {
    let size = format.block_bytes();
    let halves: &[usize] = match format {
        PackedFormat::Q4_0 | PackedFormat::Q5_0 | PackedFormat::Q8_0 => &[0],
        PackedFormat::Q2_K => &[80, 82],
        PackedFormat::Q3_K => &[108],
        PackedFormat::Q6_K => &[208],
        _ => &[0, 2],
    };
    let byte = |at: usize| ((at as u64 * 2_654_435_761 + seed * 40_503) >> 7) as u8;
    let mut bytes: Vec<u8> = (0..rows * cols / format.block_len() * size).map(byte).collect();
    for block in bytes.chunks_exact_mut(size) {
        // Scales from 1/64 to 1/32 of either sign.
        halves.iter().for_each(|at| block[at + 1] = block[at + 1] & 0x83 | 0x24);
    }
    PackedArray::new(&Array::from_slice(&bytes), format, &[rows, cols])
}

#[test]
fn gguf_blocks_agree() {
    use PackedFormat::{Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0};
    for format in [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K] {
        agree(|dtype| {
            let w = blocks(format, 7, 512, 1)?;
            let list = Array::from_slice(&[3i32, -1, 0, 99]).reshape(&[2, 2])?;
            Ok(vec![
                w.dequantize(dtype)?,
                w.rows(&list, dtype)?,
                w.matmul(&data(&[1, 512], dtype, 2).multiply(0.1)?)?,
                w.matmul(&data(&[2, 3, 512], dtype, 3).multiply(0.1)?)?,
                // More rows: the matrix is dequantized, to half precision for half precision.
                w.matmul(&data(&[9, 512], dtype, 4).multiply(0.01)?)?,
            ])
        });
    }
}

#[test]
fn decode_steps_agree_and_write_the_cache_in_place() {
    agree(|dtype| {
        let mut all = Vec::new();
        for (queries, keys, width) in [(4usize, 2usize, 32usize), (3, 1, 48), (2, 2, 6)] {
            let heads = StepHeads { queries, keys, width };
            let tokens = data(&[3, (queries + 2 * keys) * width], dtype, 1);
            let starts = [0usize, 19, 7];
            let block = data(&[3, 2 * keys, 20, width], dtype, 2);
            let pool = data(&[9, 2 * keys, 5, width], dtype, 3);
            let tables = vec![vec![8u32], vec![1, 0, 5, 2], vec![1, 7]];
            let pages = Pages { tables: tables.into(), rows: PageRows::Exact };
            let plain = RotaryFrequencies::new(width, false, 10_000.0, 1.0);
            let part = RotaryFrequencies::new(width / 2, true, 500.0, 0.5);
            for (turns, window) in [(Some(&plain), None), (Some(&part), Some(4)), (None, None)] {
                for (cache, pages) in [(&block, None), (&pool, Some(&pages))] {
                    let kept = keep_token(cache, &tokens, &starts, pages, heads, turns)?;
                    all.push(attend_token(&tokens, &kept, &starts, pages, heads, turns, 0.2, window)?);
                    all.push(kept);
                }
            }
        }
        Ok(all)
    });
    let world = World::new(1);
    world.on(|| {
        let heads = StepHeads { queries: 1, keys: 1, width: 4 };
        let mut block = Array::zeros(&[1, 2, 64, 4], Dtype::Float32).unwrap().contiguous().unwrap();
        hesper::eval(std::slice::from_ref(&block)).unwrap();
        let before = world.runtime.counters().encoded;
        for step in 0..32 {
            let tokens = data(&[1, 12], Dtype::Float32, step);
            block = keep_token(&block, &tokens, &[step], None, heads, None).unwrap();
            hesper::eval(std::slice::from_ref(&block)).unwrap();
        }
        // A copy of the block would be one more command.
        assert_eq!(world.runtime.counters().encoded - before, 32);
    });
    world.end();
}

#[test]
fn recurrent_updates_and_losses_agree() {
    agree(|dtype| {
        let x = |shape: &[usize], seed| data(shape, dtype, seed);
        let (q, k, v) = (x(&[2, 3, 2, 40], 1), x(&[2, 3, 2, 40], 2), x(&[2, 3, 4, 5], 3));
        let k = k.multiply(0.1)?;
        let float = |shape: &[usize], seed| data(shape, Dtype::Float32, seed).abs();
        let (decay, rate, state) = (float(&[2, 3, 4], 4)?, float(&[2, 3, 4], 5)?, float(&[2, 4, 5, 40], 6)?);
        let each = float(&[2, 3, 4, 40], 7)?;
        let marks = Array::from_slice(&[1u8, 0, 1, 1, 1, 0]).reshape(&[2, 3])?.astype(Dtype::Bool)?;
        let (one, first) = fast::gated_delta_update(&q, &k, &v, &decay, &rate, None, None)?;
        let (two, second) = fast::gated_delta_update(&q, &k, &v, &each, &rate, Some(&state), Some(&marks))?;
        let targets = Array::from_slice(&[3i32, 0, -1]);
        Ok(vec![one, first, two, second, fast::cross_entropy(&x(&[3, 70], 8), &targets)?])
    });
}

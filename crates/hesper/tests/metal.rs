//! The Metal backend on the simulated Metal: texts are parsed, and run by the reference interpreter with its sanitizer.

use crate::alone;
use std::sync::MutexGuard;

use hesper::fast::{self, AttentionMask};
use hesper::metal::{sim::SimMetal, simulated, simulation};
use hesper::{Array, Conv, CustomKernel, Dtype, Error, QuantMode, backend, placement, random};
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

/// Numbers between -1 and 1, of a shape and type.
fn data(shape: &[usize], dtype: Dtype, seed: usize) -> Array {
    let count: usize = shape.iter().product();
    let elements: Vec<f32> =
        (0..count).map(|at| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1001.0 - 1.0).collect();
    Array::try_from_slice(&elements, shape).unwrap().astype(dtype).unwrap()
}

/// Asserts that a program gives the host's results on Metal, in each type, and that no op falls back to the host.
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
        let masked = |mask: &Array| fast::scaled_dot_product_attention(&q, &k, &k, 0.5, mask.into(), None);
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

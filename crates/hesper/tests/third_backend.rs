//! A device that is unknown to the array crate: its backend is in this test. Every op of the table runs on
//! it, by its kernels or by falling back to the host.

use crate::alone;
use crate::table;
use std::sync::Once;

use crate::reference::{Reference, ReferenceBackend};
use hesper::backend::{self, BackendKind};
use hesper::{Array, Dtype, Tolerance, placement};
use hesper_runtime::{Runtime, Stream};

fn opened() -> (Runtime, Stream) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| backend::register(&ReferenceBackend));
    let runtime = Runtime::builder(Reference::new()).validate(true).build();
    let stream = runtime.stream().unwrap();
    (runtime, stream)
}

fn fallbacks(op: &str) -> u64 {
    placement::fallbacks().into_iter().find(|(name, _)| *name == op).map_or(0, |(_, count)| count)
}

#[test]
fn a_runtime_finds_the_backend_that_drives_its_device() {
    let _alone = alone();
    let (_runtime, stream) = opened();
    let found = backend::of_stream(&stream).unwrap();
    assert_eq!((found.name(), found.kind()), ("reference", BackendKind::Gpu));
    assert_eq!(
        backend::of_stream(&placement::default_stream(placement::Device::Cpu).unwrap()).unwrap().name(),
        "cpu"
    );
}

#[test]
fn fused_kernels_and_products_run_on_the_device_and_other_ops_fall_back() {
    let _alone = alone();
    let (runtime, stream) = opened();
    let (a, b) = (table::numbers(1, &[5, 7], Dtype::Float32), table::numbers(2, &[7, 3], Dtype::Float32));
    let compute = || -> hesper::Result<Array> {
        let product = a.multiply(2.0)?.add(1.0)?.matmul(&b)?;
        product.softmax(-1)?.sort(Some(-1))
    };
    let expected = compute().unwrap().to_vec::<f32>().unwrap();
    let (products, sorts) = (fallbacks("matmul"), fallbacks("sort"));
    let found = placement::with_stream(&stream, || compute().unwrap().to_vec::<f32>().unwrap());
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-5, "{found} for {expected}");
    }
    assert_eq!(fallbacks("matmul"), products, "matmul has a kernel");
    assert!(fallbacks("sort") > sorts, "sort has none");
    assert!(runtime.counters().encoded > 0);
    assert!(runtime.validation().unwrap().violations().is_empty());
}

#[test]
fn a_failure_on_the_host_is_not_reported_with_later_work_of_the_device() {
    let _alone = alone();
    let (_runtime, stream) = opened();
    let zeros = Array::zeros(&[2, 2], Dtype::Float32).unwrap();
    assert!(hesper::linalg::inv(&zeros).and_then(|inverse| hesper::eval([&inverse])).is_err());
    let later = placement::with_stream(&stream, || Array::ones(&[2], Dtype::Float32)?.add(1.0)).unwrap();
    for submission in hesper::async_eval([&later]).unwrap() {
        submission.wait().unwrap();
    }
}

#[test]
fn every_op_of_the_table_runs_on_it() {
    let _alone = alone();
    let (runtime, stream) = opened();
    for (group, cases) in table::groups() {
        for case in cases {
            let host = (case.function)(&case.inputs).unwrap();
            let there = placement::with_stream(&stream, || {
                let made = (case.function)(&case.inputs)?;
                hesper::eval(&made)?;
                Ok::<_, hesper::Error>(made)
            });
            let there = there.unwrap_or_else(|error| panic!("{group}: {}: {error}", case.name));
            for (host, there) in host.iter().zip(&there) {
                assert_eq!((host.shape(), host.dtype()), (there.shape(), there.dtype()), "{}", case.name);
                let loose = Tolerance { relative: 1e-4, absolute: 1e-5, equal_nan: true };
                let close = host.allclose(there, loose).unwrap();
                let exact = host.dtype() == Dtype::Bool;
                let same = if exact { host.array_equal(there, true).unwrap() } else { close };
                let same = same.astype(Dtype::Uint8).unwrap().item::<u8>().unwrap();
                assert_eq!(same, 1, "{group}: {}", case.name);
            }
        }
    }
    assert!(runtime.validation().unwrap().violations().is_empty());
}

#[test]
fn a_value_that_two_kernels_read_is_computed_by_both() {
    let _alone = alone();
    let (runtime, stream) = opened();
    let x = table::numbers(3, &[9, 11], Dtype::Float32);
    let compute = || -> hesper::Result<[Array; 2]> {
        let shared = x.multiply(0.5)?.exp()?;
        Ok([shared.add(1.0)?, shared.multiply(&x)?])
    };
    let expected = compute().unwrap().map(|y| y.to_vec::<f32>().unwrap());
    placement::with_stream(&stream, || {
        x.negative().unwrap().eval().unwrap(); // moves `x` to the device
        let made = compute().unwrap();
        let before = runtime.counters().encoded;
        hesper::eval(&made).unwrap();
        assert_eq!(runtime.counters().encoded - before, 2, "two kernels, none for what they share");
        for (made, expected) in made.iter().zip(&expected) {
            assert_eq!(&made.to_vec::<f32>().unwrap(), expected);
        }
    });
}

#[test]
fn a_step_that_fails_behind_one_that_computed_the_same_value_is_made_again() {
    let _alone = alone();
    let (runtime, stream) = opened();
    let x = table::numbers(4, &[64, 1024], Dtype::Float32);
    x.eval().unwrap();
    let compute = || -> hesper::Result<[Array; 2]> {
        let shared = x.multiply(0.5)?.exp()?;
        Ok([shared.add(1.0)?, shared.multiply(&x)?])
    };
    let expected = compute().unwrap().map(|y| y.to_vec::<f32>().unwrap());
    placement::with_stream(&stream, || {
        // The copy of `x` on the device and one result fit; then the other one, too.
        let made = compute().unwrap();
        let mut failed = 0;
        for blocks in 1..8 {
            runtime.set_memory_limit(blocks * 4 * x.size() + 4096);
            match hesper::eval(&made) {
                Ok(()) => break,
                Err(error) => {
                    assert!(error.to_string().contains("memory"), "{error}");
                    failed += 1;
                }
            }
        }
        assert!(failed > 1, "memory ran out behind the first step, too");
        for (made, expected) in made.iter().zip(&expected) {
            assert_eq!(&made.to_vec::<f32>().unwrap(), expected);
        }
    });
}

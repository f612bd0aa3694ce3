//! Every op on the simulated device: late, in any order that is allowed, on poisoned memory, and with fused kernels run
//! by the reference interpreter. The numbers are the host's, bit for bit.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod table;

use std::sync::Arc;

use hesper::{Array, place, transform};
use hesper_kernel::interp;
use hesper_kernel::ir::{Kernel, ParamKind};
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_runtime::sim::Sim;
use hesper_runtime::{Dispatch, PipelineSource, Runtime, View};
use table::{Case, like};

/// Runs a kernel of the kernel language as its reference interpreter does.
fn interpret(source: &PipelineSource, dispatch: &Dispatch, views: &mut [View<'_>]) -> Result<(), String> {
    let kernel = source.payload.as_ref().and_then(|payload| payload.downcast_ref::<Kernel>());
    let kernel = kernel.ok_or_else(|| format!("{} is no kernel of the language", source.language))?;
    let mut views = views.iter_mut();
    let mut constants: &[u8] = &dispatch.constants;
    let mut list = Vec::new();
    for param in &kernel.params {
        list.push(match &param.kind {
            ParamKind::Value(ty) => {
                let size = ty.size() as usize;
                let bytes = constants.get(..size).ok_or("a constant is missing")?;
                constants = constants.get(size.next_multiple_of(8)..).unwrap_or_default();
                Arg::read(bytes)
            }
            ParamKind::Buffer { .. } => {
                let view = views.next().ok_or("a buffer is missing")?;
                if view.access().writes() {
                    Arg::write(view.bytes_mut().map_err(|error| error.message)?)
                } else {
                    Arg::read(view.bytes().map_err(|error| error.message)?)
                }
            }
        });
    }
    let mut bindings = Bindings::new(list).map_err(|error| error.to_string())?;
    let launch = Launch::new(dispatch.grid, dispatch.threadgroup).map_err(|error| error.to_string())?;
    interp::run(kernel, &launch, &mut bindings, &interp::Options::default())
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// Shapes, types and bytes.
fn bits(arrays: &[Array]) -> Vec<(Vec<usize>, hesper::Dtype, Vec<u8>)> {
    let one =
        |array: &Array| (array.shape().to_vec(), array.dtype(), array.read_bytes(<[u8]>::to_vec).unwrap());
    arrays.iter().map(one).collect()
}

/// What a case gives, and its cotangents where it is smooth.
fn all(case: &Case) -> hesper::Result<Vec<Array>> {
    let outputs = (case.function)(&case.inputs)?;
    if !case.smooth {
        return Ok(outputs);
    }
    let cotangents: Vec<Array> = outputs.iter().map(|y| like(80, y)).collect();
    let (_, pulled) = transform::vjp(&case.function, &case.inputs, &cotangents)?;
    Ok(outputs.into_iter().chain(pulled).collect())
}

fn under_seeds(group: &str, seeds: std::ops::Range<u64>) {
    let cases = table::group(group);
    let expected: Vec<_> = cases.iter().map(|case| bits(&all(case).unwrap())).collect();
    for seed in seeds {
        let sim = Sim::builder(seed).executor(Arc::new(interpret)).batch(1 + seed as usize % 7).build();
        let runtime = Runtime::builder(sim.clone()).validate(true).build();
        let streams = [runtime.stream().unwrap(), runtime.stream().unwrap()];
        for (number, (case, expected)) in cases.iter().zip(&expected).enumerate() {
            // Two streams take turns, so that memory goes from one to the other.
            let stream = &streams[(number + seed as usize) % 2];
            let found = place::with_stream(stream, || all(case).map(|arrays| bits(&arrays)));
            let found = found.unwrap_or_else(|error| panic!("{} under seed {seed}: {error}", case.name));
            assert_eq!(&found, expected, "{} under seed {seed}", case.name);
        }
        runtime.synchronize().unwrap();
        assert!(sim.violations().is_empty(), "seed {seed}: {:?}", sim.violations());
        let report = runtime.validation().unwrap();
        assert!(report.violations().is_empty(), "seed {seed}: {:?}", report.violations());
        assert!(sim.calls() > cases.len() as u64, "the cases ran on the device");
    }
}

#[test]
fn element_wise_ops_give_the_same_bits_on_the_simulated_device() {
    under_seeds("element-wise", 0..3);
}

#[test]
fn movements_give_the_same_bits_on_the_simulated_device() {
    under_seeds("movement", 3..6);
}

#[test]
fn reductions_give_the_same_bits_on_the_simulated_device() {
    under_seeds("reductions", 6..9);
}

#[test]
fn products_give_the_same_bits_on_the_simulated_device() {
    under_seeds("products", 9..11);
}

#[test]
fn matrices_give_the_same_bits_on_the_simulated_device() {
    under_seeds("matrices", 11..14);
}

#[test]
fn attention_quantization_and_kernels_give_the_same_bits_on_the_simulated_device() {
    under_seeds("others", 14..17);
}

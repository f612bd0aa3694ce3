//! Every op on the simulated device: delayed, in any allowed order, on poisoned memory, and with fused
//! kernels run by the reference interpreter. The results are those of the host, bit for bit.

use crate::table;
use std::sync::Arc;

use crate::sim::interpret;
use crate::table::{Case, like};
use hesper::{Array, placement, transform};
use hesper_runtime::Runtime;
use hesper_runtime::sim::{Failure, Rng, Sim};

/// Shapes, types and bytes.
type Bits = Vec<(Vec<usize>, hesper::Dtype, Vec<u8>)>;

fn bits(arrays: &[Array]) -> hesper::Result<Bits> {
    let one = |array: &Array| {
        let bytes = array.read_bytes(<[u8]>::to_vec)?;
        Ok((array.shape().to_vec(), array.dtype(), bytes))
    };
    arrays.iter().map(one).collect()
}

/// The results of a case, and its cotangents if it is differentiable.
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
    let expected: Vec<_> = cases.iter().map(|case| bits(&all(case).unwrap()).unwrap()).collect();
    for seed in seeds {
        let sim = Sim::builder(seed).executor(Arc::new(interpret)).batch(1 + seed as usize % 7).build();
        let runtime = Runtime::builder(sim.clone()).validate(true).build();
        let streams = [runtime.stream().unwrap(), runtime.stream().unwrap()];
        for (number, (case, expected)) in cases.iter().zip(&expected).enumerate() {
            // Two streams alternate, so that memory moves from one to the other.
            let stream = &streams[(number + seed as usize) % 2];
            let found = placement::with_stream(stream, || bits(&all(case)?));
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

/// One call of the device fails: the case that made it fails, and no other result changes.
#[test]
fn a_call_that_fails_is_an_error_of_the_op_that_made_it() {
    let (mut cases, mut others) = (table::group("reductions"), table::group("products"));
    cases.append(&mut others);
    let expected: Vec<_> = cases.iter().map(|case| bits(&all(case).unwrap()).unwrap()).collect();
    let run = |failure: Option<u64>| {
        let mut builder = Sim::builder(failure.unwrap_or(0)).executor(Arc::new(interpret));
        if let Some(number) = failure {
            builder = builder.fail(Failure::Any(number));
        }
        let sim = builder.build();
        let runtime = Runtime::builder(sim.clone()).validate(true).build();
        let stream = runtime.stream();
        let Ok(stream) = stream else { return (sim.calls(), 1) };
        let mut failed = 0;
        // Inputs are copied to each device again.
        for (case, expected) in cases.iter().zip(&expected) {
            match placement::with_stream(&stream, || bits(&all(case)?)) {
                Ok(found) => assert_eq!(&found, expected, "{} after call {failure:?} failed", case.name),
                Err(_) => failed += 1,
            }
        }
        assert!(sim.violations().is_empty(), "call {failure:?}: {:?}", sim.violations());
        (sim.calls(), failed)
    };
    let (calls, failed) = run(None);
    assert_eq!(failed, 0);
    let mut rng = Rng::new(5);
    let mut seen = 0;
    for _ in 0..24 {
        let (_, failed) = run(Some(rng.below(calls as usize) as u64));
        assert!(failed <= 2, "{failed} cases failed by one call");
        seen += failed;
    }
    assert!(seen > 0, "no call that failed was noticed");
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

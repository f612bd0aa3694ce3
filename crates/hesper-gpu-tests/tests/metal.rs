//! The Metal backend on the simulated Metal: texts are parsed, and run by the reference interpreter with its sanitizer.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use hesper::metal::{sim::SimMetal, simulated, simulation};
use hesper::{Array, CustomKernel, Dtype, Error, backend, placement};
use hesper_runtime::sim::Simulated;
use hesper_runtime::{Runtime, Stream};

/// A runtime on a simulated Metal.
struct World {
    metal: SimMetal,
    runtime: Runtime,
    stream: Stream,
}

impl World {
    fn new(seed: u64) -> World {
        let metal = simulation(seed);
        let runtime = simulated(&metal).unwrap();
        let stream = runtime.stream().unwrap();
        World { metal, runtime, stream }
    }

    fn on<R>(&self, f: impl FnOnce() -> R) -> R {
        placement::with_stream(&self.stream, f)
    }

    /// Ends everything and asserts that Metal's rules were kept.
    fn end(self) {
        let World { metal, runtime, stream } = self;
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

/// A share of the op suite. `HESPER_METAL_SHARE=1/1` runs all of it.
#[test]
fn ops_agree_with_the_host() {
    let share = std::env::var("HESPER_METAL_SHARE").unwrap_or_else(|_| "3/16".into());
    let check = env!("CARGO_BIN_EXE_hesper-ops-gpu-check");
    let output = Command::new(check).args(["check", "", &share]).env("HESPER_METAL", "sim").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<&str> = text.lines().filter(|line| line.starts_with("FAIL")).collect();
    assert!(output.status.success() && failed.is_empty(), "{failed:#?}\n{}", tail(&text));
    assert!(text.contains("Apple M1 (simulated)"), "{}", tail(&text));
}

fn tail(text: &str) -> &str {
    let start = text.len().saturating_sub(2000);
    text.get(start..).unwrap_or(text)
}

#[test]
fn a_mixed_program_gives_the_host_s_results_under_any_schedule() {
    let program = || -> Result<Vec<f32>, Error> {
        let x = numbers(60).reshape(&[6, 10])?;
        let y = x.multiply(2.0)?.add(0.5)?.matmul(&x.t()?)?.softmax(-1)?;
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

#[test]
fn hesper_metal_sim_makes_the_simulation_the_gpu() {
    let check = env!("CARGO_BIN_EXE_hesper-ops-gpu-check");
    let run = |value: &str| {
        let output = Command::new(check).args(["check", "no such case"]).env("HESPER_METAL", value).output();
        String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
    };
    assert!(run("sim").contains("Apple M1 (simulated)"));
    assert!(!run("").contains("simulated"));
}

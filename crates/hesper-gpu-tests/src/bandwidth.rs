//! The bandwidth of `y = a x + b` over 64M floats, and of a copy inside of the device.

use hesper_cuda::compiler::Compiler;
use hesper_kernel::cuda::{Options, emit};
use hesper_kernel::custom::{Binding, CallInfo, CustomKernel, InputInfo, KernelDtype};
use hesper_kernel::ir::Scalar;
use hesper_kernel::launch::Launch;

use crate::gpu::{self, Gpu, LaunchError};
use hesper_gpu_tests::job::Job;

const COUNT: u64 = 64 << 20;

fn job(body: &str, per_thread: u64) -> Result<Job, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let kernel =
        CustomKernel::new("axpb", &["x", "a", "b"], &["y"], body, "", true, false).map_err(|e| text(&e))?;
    let f32 = KernelDtype::Scalar(Scalar::F32);
    let one = InputInfo { dtype: f32, ndim: 0, size: 1 };
    let call = CallInfo {
        inputs: vec![InputInfo { dtype: f32, ndim: 1, size: COUNT }, one, one],
        template: Vec::new(),
        output_dtypes: vec![f32],
    };
    let special = kernel.specialise(&call).map_err(|e| text(&e))?;
    let args = special
        .bindings
        .iter()
        .map(|b| match b {
            Binding::Input(0) | Binding::Output(_) => vec![0; COUNT as usize * 4],
            _ => 2.0f32.to_le_bytes().to_vec(),
        })
        .collect();
    let elements = vec![None; special.bindings.len()];
    let launch = Launch::linear(COUNT / per_thread, 256).map_err(|e| text(&e))?;
    Ok(Job { kernel: special.kernel, launch, args, elements })
}

/// Prints the bandwidths.
pub fn measure(gpu: &Gpu, compiler: &Compiler) {
    let scalar = "uint i = thread_position_in_grid.x; y[i] = a * x[i] + b;";
    let vector = "uint i = thread_position_in_grid.x; \
        device float4* to = (device float4*)y; const device float4* from = (const device float4*)x; \
        to[i] = a * from[i] + b;";
    let (plain, checked) = (Options::default(), Options { bounds: true, ..Options::default() });
    for (name, body, per_thread, options) in [
        ("float", scalar, 1, plain),
        ("float, checked", scalar, 1, checked),
        ("float4", vector, 4, plain),
        ("float4, checked", vector, 4, checked),
    ] {
        let outcome = job(body, per_thread).and_then(|job| {
            let source = emit(&job.kernel, &options);
            let code = gpu::compile(compiler, &source)?;
            gpu.time(&job, &source, &code, COUNT as usize * 4).map_err(|e| match e {
                LaunchError::Failed(why) => why,
                LaunchError::Hangs => "hangs".to_string(),
            })
        });
        match outcome {
            Ok((ms, copy)) => {
                let rate = |ms: f32| COUNT as f64 * 8.0 / f64::from(ms) / 1e6;
                println!(
                    "bandwidth of a*x+b over 64M floats by {name}: {:.0} GB/s ({ms:.3} ms), copy {:.0} GB/s, ratio {:.2}",
                    rate(ms),
                    rate(copy),
                    copy / ms
                );
            }
            Err(e) => println!("FAIL bandwidth {name}: {e}"),
        }
    }
}

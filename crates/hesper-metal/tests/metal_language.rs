//! Metal texts on the simulated GPU, run by the kernel language's reference interpreter.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use hesper_kernel::front::compile_file;
use hesper_kernel::interp;
use hesper_kernel::ir::{Kernel, ParamKind};
use hesper_kernel::launch::{Arg, Bindings, Launch as KernelLaunch};
use hesper_metal::sim::{Launch, SimFunction, SimMetal, SimText};
use hesper_runtime::PipelineSource;
use support::{World, options};

fn compile(text: &SimText<'_>) -> Option<Result<SimFunction, String>> {
    let kernels = match compile_file("program_source", text.text) {
        Ok(compiled) => compiled.kernels,
        Err(error) => return Some(Err(error.to_string())),
    };
    let kernel = Arc::new(kernels.into_iter().find(|kernel| kernel.name == text.entry)?);
    let run = move |launch: &Launch<'_>| interpret(&kernel, launch);
    Some(Ok(SimFunction { run: Arc::new(run), divisible: false }))
}

fn interpret(kernel: &Kernel, launch: &Launch<'_>) -> Result<(), String> {
    let mut arguments = Vec::new();
    for (index, param) in kernel.params.iter().enumerate() {
        arguments.push(match (&param.kind, launch.raw(index)) {
            (ParamKind::Buffer { access, .. }, Ok((address, len))) => {
                // SAFETY: the range is inside of a live buffer, and one dispatch runs at a time.
                unsafe { Arg::from_raw(address, len as u64, access.writes()) }
            }
            _ => Arg::read(launch.constants()),
        });
    }
    let mut bindings = Bindings::new(arguments).map_err(|error| error.to_string())?;
    let size = KernelLaunch::new(launch.grid, launch.threadgroup).map_err(|error| error.to_string())?;
    interp::run(kernel, &size, &mut bindings, &interp::Options::default())
        .map(|_| ())
        .map_err(|error| error.to_string())
}

#[test]
fn a_metal_text_computes_what_it_says() {
    const TEXT: &str = "
        kernel void scale(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                          constant float& factor [[buffer(2)]], uint at [[thread_position_in_grid]]) {
            out[at] = x[at] * factor;
        }
        kernel void sums(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                         uint lane [[thread_index_in_simdgroup]], uint at [[thread_position_in_grid]]) {
            float sum = simd_sum(x[at]);
            if (lane == 0) { out[at / 32] = sum; }
        }";
    for seed in 0..10 {
        let world = World::with(SimMetal::builder(seed).compiler(Arc::new(compile)), options());
        let stream = world.runtime.stream().unwrap();
        let pipeline = |entry: &str| {
            let source = PipelineSource::new("sums of squares", "metal", TEXT);
            world.runtime.pipeline(&source.specialised(format!("entry {entry}").as_str())).unwrap()
        };
        let elements: Vec<f32> = (0..64).map(|at| at as f32).collect();
        let x = world.runtime.upload(&elements).unwrap();
        let (scaled, sums) = (stream.alloc(256).unwrap(), stream.alloc(8).unwrap());
        let scale = stream.encode("scale").read(&x).write(&scaled).constants(&0.5f32.to_le_bytes());
        scale.dispatch(&pipeline("scale"), [64, 1, 1], [32, 1, 1]).unwrap();
        let sum = stream.encode("sums").read(&scaled).write(&sums);
        sum.dispatch(&pipeline("sums"), [64, 1, 1], [64, 1, 1]).unwrap();
        let expected = [(0..32).sum::<u32>() as f32 / 2.0, (32..64).sum::<u32>() as f32 / 2.0];
        assert_eq!(sums.read().unwrap().as_slice::<f32>().unwrap(), expected, "seed {seed}");
        drop((x, scaled, sums, stream));
        world.end("language");
    }
}

/// The texts of copies and clears are compiled by Metal on an Apple machine only; here they pass through the front end
/// and give the bytes that the simulation's own kernels give.
#[test]
fn the_texts_of_copies_and_clears_are_right() {
    let text = include_str!("../src/builtins.metal");
    let kernels = compile_file("builtins.metal", text).unwrap().kernels;
    let find = |name: &str| kernels.iter().find(|kernel| kernel.name == name).unwrap();
    for width in [16usize, 4, 1] {
        let from: Vec<u8> = (0..80).collect();
        let mut to = vec![0xaa; 80];
        let launch = KernelLaunch::new([(64 / width) as u64, 1, 1], [8, 1, 1]).unwrap();
        let arguments = vec![Arg::read(&from), Arg::write(&mut to)];
        let run = |name: &str, arguments: Vec<Arg<'_>>| {
            let mut bindings = Bindings::new(arguments).unwrap();
            let report =
                interp::run(find(name), &launch, &mut bindings, &interp::Options::checked()).unwrap();
            assert!(report.is_clean(), "{name}: {report:?}");
        };
        run(&format!("hesper_copy_{width}"), arguments);
        assert_eq!((&to[..64], &to[64..]), (&from[..64], &[0xaa; 16][..]));
        run(&format!("hesper_clear_{width}"), vec![Arg::write(&mut to)]);
        assert_eq!((&to[..64], &to[64..]), (&[0; 64][..], &[0xaa; 16][..]));
    }
}

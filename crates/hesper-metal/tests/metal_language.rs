//! Metal texts on the simulated GPU, run by the kernel language's reference interpreter.

use crate::support::{World, options};
use hesper_kernel::front::compile_file;
use hesper_kernel::interp;
use hesper_kernel::launch::{Arg, Bindings, Launch as KernelLaunch};
use hesper_metal::edge::{ErrorCode, LibraryOptions, Metal, PipelineRequest};
use hesper_metal::sim::{SimMetal, language};
use hesper_runtime::sim::Simulated;
use hesper_runtime::{PipelineSource, Rule};

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
        let world = World::with(SimMetal::builder(seed).compiler(language::compiler()), options());
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

#[test]
fn a_finding_of_the_sanitizer_is_a_fault_of_the_dispatch() {
    const TEXT: &str = "
        kernel void past(device float* out [[buffer(0)]], uint at [[thread_position_in_grid]]) {
            out[at + 64] = 1.0f;
        }";
    let world = World::with(SimMetal::builder(1).compiler(language::compiler()), options());
    let stream = world.runtime.stream().unwrap();
    let source = PipelineSource::new("past", "metal", TEXT).specialised("entry past");
    let pipeline = world.runtime.pipeline(&source).unwrap();
    let out = stream.alloc(256).unwrap();
    stream.encode("past").write(&out).dispatch(&pipeline, [64, 1, 1], [32, 1, 1]).unwrap();
    let error = out.read().map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("past"), "{error}");
    drop((out, stream, pipeline));
    world.end("sanitizer");
}

#[test]
fn constant_memory_at_an_odd_offset_is_refused_as_metal_refuses_it() {
    const TEXT: &str = "
        kernel void first(constant half* x [[buffer(0)]], device float* out [[buffer(1)]],
                          uint at [[thread_position_in_grid]]) { out[at] = float(x[at]); }";
    let world = World::with(SimMetal::builder(1).compiler(language::compiler()), options());
    let stream = world.runtime.stream().unwrap();
    let source = PipelineSource::new("first", "metal", TEXT).specialised("entry first");
    let pipeline = world.runtime.pipeline(&source).unwrap();
    let x = world.runtime.upload(&[0x3c00u16; 8]).unwrap();
    let run = |start: usize| {
        let out = stream.alloc(8).unwrap();
        let command = stream.encode("first").read_range(&x, start..start + 4).write(&out);
        command.dispatch(&pipeline, [2, 1, 1], [2, 1, 1]).unwrap();
        out.read().map(|read| read.as_slice::<f32>().unwrap().to_vec()).map_err(|error| error.to_string())
    };
    assert_eq!(run(4), Ok(vec![1.0; 2]));
    let error = run(2).unwrap_err();
    assert!(error.contains("constant memory is bound at the offset 2"), "{error}");
    drop((x, stream, pipeline));
    world.end("constant memory");
}

/// A null binding is what the first of the founding failures dereferenced.
#[test]
fn a_kernel_without_one_of_its_buffers_is_a_page_fault() {
    const TEXT: &str = "
        kernel void add(device const float* x [[buffer(0)]], device const float* y [[buffer(1)]],
                        device float* out [[buffer(2)]], uint at [[thread_position_in_grid]]) {
            out[at] = x[at] + y[at];
        }";
    let metal = SimMetal::builder(1).compiler(language::compiler()).build();
    let queue = metal.new_queue(4).unwrap();
    let library = metal.library_from_source(TEXT, &LibraryOptions::default()).unwrap();
    let request = PipelineRequest { label: "add", library, entry: "add", constants: &[], max_threads: None };
    let buffer = metal.new_buffer(64).unwrap().0;
    let (sender, receiver) = std::sync::mpsc::channel();
    // SAFETY: every object is alive; that a buffer is null is what the simulation reports.
    unsafe {
        let (pipeline, _) = metal.pipeline(&request, None).unwrap();
        let commands = metal.command_buffer(queue, "test").unwrap();
        let encoder = metal.compute_encoder(commands).unwrap();
        metal.set_pipeline(encoder, pipeline);
        metal.set_buffer(encoder, Some(buffer), 0, 0);
        metal.set_buffer(encoder, None, 0, 1);
        metal.set_buffer(encoder, Some(buffer), 32, 2);
        metal.dispatch(encoder, [8, 1, 1], [8, 1, 1]);
        metal.end_encoding(encoder);
        metal.on_completed(commands, Box::new(move |outcome| sender.send(outcome).unwrap()));
        metal.commit(commands);
        metal.drain();
    }
    let error = receiver.try_recv().unwrap().unwrap_err();
    assert!(error.code == ErrorCode::PageFault && error.message.contains("buffer 1 is null"), "{error:?}");
    assert_eq!(metal.violations()[0].rule, Rule::Materialised);
}

/// Bindings have the indices 0, 1, ...: a text that skips one reads a null buffer, as it does on Metal.
#[test]
fn a_kernel_gets_the_buffers_of_the_indices_that_it_names() {
    const TEXT: &str = "
        kernel void copy(device float* out [[buffer(LAST)]], device const float* x [[buffer(0)]],
                         uint at [[thread_position_in_grid]]) { out[at] = x[at]; }";
    let world = World::with(SimMetal::builder(1).compiler(language::compiler()), options());
    let stream = world.runtime.stream().unwrap();
    let x = world.runtime.upload(&[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    let run = |last: u32| {
        let source = PipelineSource::new("copy", "metal", TEXT);
        let source = source.specialised(format!("entry copy\ndefine LAST={last}").as_str());
        let pipeline = world.runtime.pipeline(&source).unwrap();
        let out = stream.alloc(16).unwrap();
        stream.encode("copy").read(&x).write(&out).dispatch(&pipeline, [4, 1, 1], [4, 1, 1]).unwrap();
        out.read().map(|read| read.as_slice::<f32>().unwrap().to_vec()).map_err(|error| error.to_string())
    };
    assert_eq!(run(1), Ok(vec![1.0, 2.0, 3.0, 4.0]));
    let error = run(2).unwrap_err();
    assert!(error.contains("buffer 2 is null"), "{error}");
}

/// Threadgroup memory that a kernel declares counts towards the limit of the GPU.
#[test]
fn a_kernel_with_too_much_threadgroup_memory_is_refused_before_it_runs() {
    const TEXT: &str = "
        kernel void reversed(device float* x [[buffer(0)]], uint at [[thread_position_in_threadgroup]]) {
            threadgroup float cells[2048];
            cells[at] = x[at];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            x[at] = cells[31 - at];
        }";
    let small = SimMetal::builder(1).properties(|gpu| gpu.threadgroup_memory = 4096);
    let world = World::with(small.compiler(language::compiler()), options());
    let source = PipelineSource::new("reversed", "metal", TEXT).specialised("entry reversed");
    let error = world.runtime.pipeline(&source).unwrap_err().to_string();
    assert!(error.contains("8192 bytes of threadgroup memory") && error.contains("has 4096"), "{error}");
    world.end("threadgroup memory");
}

/// A threadgroup argument has the length that the host sets, and no other.
#[test]
fn a_threadgroup_argument_has_the_length_of_the_specialisation() {
    const TEXT: &str = "
        kernel void reversed(device float* x [[buffer(0)]], threadgroup float* cells [[threadgroup(0)]],
                             constant uint& last [[buffer(1)]], uint at [[thread_position_in_threadgroup]]) {
            cells[last - at] = x[at];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            x[at] = cells[at + last - 31];
        }";
    let world = World::with(SimMetal::builder(1).compiler(language::compiler()), options());
    let stream = world.runtime.stream().unwrap();
    let run = |threadgroup: &str, last: u32| {
        let source = PipelineSource::new("reversed", "metal", TEXT);
        let source = source.specialised(format!("entry reversed\n{threadgroup}").as_str());
        let pipeline = world.runtime.pipeline(&source).unwrap();
        let x = world.runtime.upload(&(0..32).map(|at| at as f32).collect::<Vec<f32>>()).unwrap();
        let command = stream.encode("reversed").read_write(&x).constants(&last.to_le_bytes());
        command.dispatch(&pipeline, [32, 1, 1], [32, 1, 1]).unwrap();
        x.read().map(|read| read.as_slice::<f32>().unwrap().to_vec()).map_err(|error| error.to_string())
    };
    let reversed: Vec<f32> = (0..32).rev().map(|at| at as f32).collect();
    assert_eq!(run("threadgroup 128", 31), Ok(reversed.clone()));
    assert_eq!(run("threadgroup 256", 63), Ok(reversed));
    let error = run("threadgroup 128", 63).unwrap_err();
    assert!(error.contains("cells") && error.contains("128 bytes"), "{error}");
    let error = run("", 31).unwrap_err();
    assert!(error.contains("threadgroup argument 0 has no length"), "{error}");
    drop(stream);
    world.end("threadgroup argument");
}

/// The texts of copies and clears are compiled by Metal on an Apple machine only; here they pass through the
/// front end and give the bytes that the simulation's own kernels give.
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

/// Values of function constants come with the pipeline; each set of them is a pipeline of its own.
#[test]
fn function_constants_specialise_a_text() {
    const TEXT: &str = "
        #ifndef OFFSET
        #error no OFFSET
        #endif
        constant uint stride [[function_constant(0)]];
        constant float scale [[function_constant(1)]];
        constant bool has_bias [[function_constant(2)]];
        constant bool biased = is_function_constant_defined(has_bias) && has_bias;
        constant float factor = is_function_constant_defined(scale) ? scale : 1.0f;
        kernel void pick(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                         device const float* bias [[buffer(2), function_constant(biased)]],
                         uint at [[thread_position_in_grid]]) {
            float v = x[at * stride] * factor + OFFSET;
            if (biased) { v += bias[at]; }
            out[at] = v;
        }";
    let world = World::with(SimMetal::builder(1).compiler(language::compiler()), options());
    let stream = world.runtime.stream().unwrap();
    let x = world.runtime.upload(&(0..8).map(|at| at as f32).collect::<Vec<f32>>()).unwrap();
    let bias = world.runtime.upload(&[100.0f32; 4]).unwrap();
    let run = |constants: &str, biased: bool| {
        let source = PipelineSource::new("pick", "metal", TEXT);
        let source = source.specialised(format!("entry pick\ndefine OFFSET=0.5f\n{constants}").as_str());
        let pipeline = world.runtime.pipeline(&source).map_err(|error| error.to_string())?;
        let out = stream.alloc(16).unwrap();
        let mut command = stream.encode("pick").read(&x).write(&out);
        if biased {
            command = command.read(&bias);
        }
        command.dispatch(&pipeline, [4, 1, 1], [4, 1, 1]).map_err(|error| error.to_string())?;
        let read = out.read().map_err(|error| error.to_string())?;
        Ok::<Vec<f32>, String>(read.as_slice::<f32>().unwrap().to_vec())
    };
    assert_eq!(run("constant 0 uint 2", false), Ok(vec![0.5, 2.5, 4.5, 6.5]));
    assert_eq!(run("constant 0 uint 1\nconstant 1 float 10", false), Ok(vec![0.5, 10.5, 20.5, 30.5]));
    assert_eq!(run("constant 0 uint 1\nconstant 2 bool true", true), Ok(vec![100.5, 101.5, 102.5, 103.5]));
    // A constant that the kernel needs, and one of another type.
    let error = run("constant 1 float 2", false).unwrap_err();
    assert!(error.contains("`pick` needs values of the function constants `stride` (0)"), "{error}");
    let error = run("constant 0 int 2", false).unwrap_err();
    assert!(error.contains("`stride` (0) is a `uint`, its value a `int`"), "{error}");
    drop((x, bias, stream));
    world.end("function constants");
}

/// A copy by the SIMD group takes place when its event is waited for, and no earlier.
#[test]
fn an_asynchronous_copy_is_used_after_its_wait() {
    let text = |wait: &str| {
        format!(
            "kernel void staged(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                                uint lane [[thread_index_in_simdgroup]]) {{
                threadgroup float tile[64];
                simdgroup_event event;
                event.async_copy(tile, x, 64);
                {wait}
                out[lane] = tile[2 * lane] + tile[2 * lane + 1];
                simdgroup_event::wait(1, &event);
            }}"
        )
    };
    let world = World::with(SimMetal::builder(1).compiler(language::compiler()), options());
    let stream = world.runtime.stream().unwrap();
    let x = world.runtime.upload(&(0..64).map(|at| at as f32).collect::<Vec<f32>>()).unwrap();
    let run = |wait: &str| {
        let source = PipelineSource::new("staged", "metal", text(wait).as_str()).specialised("entry staged");
        let pipeline = world.runtime.pipeline(&source).unwrap();
        let out = stream.alloc(128).unwrap();
        let command = stream.encode("staged").read(&x).write(&out);
        command.dispatch(&pipeline, [32, 1, 1], [32, 1, 1]).unwrap();
        out.read().map(|read| read.as_slice::<f32>().unwrap().to_vec()).map_err(|error| error.to_string())
    };
    let sums: Vec<f32> = (0..32).map(|lane| (4 * lane + 1) as f32).collect();
    assert_eq!(run("simdgroup_event::wait(1, &event);"), Ok(sums));
    for barrier in ["", "simdgroup_barrier(mem_flags::mem_threadgroup);"] {
        let error = run(barrier).unwrap_err();
        assert!(error.contains("while an asynchronous copy writes it"), "{error}");
    }
    drop((x, stream));
    world.end("asynchronous copy");
}

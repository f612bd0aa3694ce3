//! The Metal device on the simulated edge: opening, compiling, memory, native commands, archives, captures.

use std::path::PathBuf;
use std::sync::Arc;

use crate::support::{LEN, MappedFile, World, bytes, elements, mixed, options, read, source};
use hesper_metal::sim::{Call, Failure, SimBuilder, SimMetal, language};
use hesper_metal::{MetalDevice, MetalError, MetalOptions, MetalText};
use hesper_runtime::{Error, PipelineSource};

#[cfg(not(target_vendor = "apple"))]
#[test]
fn without_metal_opening_is_a_typed_error() {
    let error = MetalDevice::open(MetalOptions::default()).err().unwrap();
    assert!(matches!(error, MetalError::NoDevice(_)), "{error}");
    assert!(error.to_string().contains("Apple"), "{error}");
    // Asking again gives the same answer, and the process has the device that there is.
    assert_eq!(MetalDevice::open(MetalOptions::default()).err().unwrap().to_string(), error.to_string());
    assert!(!hesper_metal::is_available());
    assert_works(SimMetal::builder(1));
}

/// A device opens and computes.
fn assert_works(builder: SimBuilder) {
    let world = World::new(builder);
    let stream = world.runtime.stream().unwrap();
    let x = world.runtime.upload(&elements(1)).unwrap();
    assert_eq!(read(&world.mix(&stream, "mix 1", &[&x]).unwrap()).unwrap(), mixed(1, &[&elements(1)]));
    drop((x, stream));
    world.end("a device that works");
}

#[test]
fn a_gpu_without_the_needed_family_is_refused_by_name() {
    for (family, unified, part) in
        [(0, true, "no Apple GPU"), (6, true, "family 6"), (7, false, "a memory of its own")]
    {
        let builder = SimMetal::builder(1).properties(|properties| {
            properties.name = "Test GPU".into();
            properties.apple_family = family;
            properties.unified_memory = unified;
        });
        let error = MetalDevice::on(builder.build().edge(), options()).err().unwrap();
        assert!(matches!(error, MetalError::Family { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("Test GPU") && text.contains(part) && text.contains("M1"), "{text}");
        assert_works(SimMetal::builder(1).properties(|properties| properties.apple_family = 9));
    }
}

#[test]
fn the_device_states_its_capabilities() {
    let world = World::new(SimMetal::builder(1));
    let info = world.runtime.info();
    assert!(info.unified_memory && info.native_commands);
    assert_eq!((info.kind, info.simd_width, info.shared_memory), ("metal", 32, 32 << 10));
    assert_eq!((info.max_threads_per_group, info.total_memory), (1024, 1 << 30));
}

#[test]
fn a_text_that_the_compiler_refuses_is_reported_with_its_label_and_line() {
    let world = World::new(SimMetal::builder(1).compiler(language::compiler()));
    let compile = |label: &'static str, text: &str, specialisation: &str| {
        let source = PipelineSource::new(label, "metal", text).specialised(specialisation);
        world.runtime.pipeline(&source).unwrap_err().to_string()
    };
    let error = compile("scale", "kernel void scale() {\n  flaot x = 1;\n}\n", "entry scale");
    assert!(error.contains("scale:2:3: error: ") && error.contains("flaot"), "{error}");
    let text = "#line 1 \"prelude.metal\"\nstruct Walk {};\n#line 1 \"gemm.metal\"\n\nkernel void gemm() { tile(); }\n";
    let error = compile("gemm<half>", text, "entry gemm");
    assert!(error.contains("gemm.metal:2:22: error: ") && error.contains("gemm<half>"), "{error}");
    let error = compile("scale", "kernel void scaled() {}", "entry scale");
    assert!(error.contains("no kernel `scale`") && error.contains("scaled"), "{error}");
    let error = compile("scale", "kernel void scale() {}", "entries scale");
    assert!(error.contains("line 1 of the specialisation"), "{error}");
    let error = compile("big", "mix 1", "entry mix\nthreadgroup 65536");
    assert!(error.contains("65536 bytes of threadgroup memory"), "{error}");
    let foreign = PipelineSource::new("fused", "kernel", "an IR");
    let error = world.runtime.pipeline(&foreign).unwrap_err().to_string();
    assert!(error.contains("language kernel") && error.contains("printer"), "{error}");
    // The program corrects its text and asks again.
    let stream = world.runtime.stream().unwrap();
    let x = world.runtime.upload(&elements(1)).unwrap();
    let y = world.mix(&stream, "mix 1", &[&x]).unwrap();
    assert_eq!(read(&y).unwrap(), mixed(1, &[&elements(1)]));
    drop((x, y, stream));
    world.end("compile");
}

#[test]
fn a_gpu_with_other_simd_groups_is_refused_before_a_kernel_runs() {
    let world = World::new(SimMetal::builder(1).simd_width(16));
    let error = world.runtime.pipeline(&source("mix 1")).unwrap_err().to_string();
    assert!(error.contains("SIMD groups of 16") && error.contains("groups of 32"), "{error}");
    world.end("SIMD width");
}

#[test]
fn a_printer_turns_other_languages_into_metal_text() {
    let printer = |source: &PipelineSource| match (source.language, source.text.as_str()) {
        ("kernel", "bad") => Some(Err("no printer for doubles".to_string())),
        ("kernel", text) => {
            Some(Ok(MetalText { text: text.into(), specialisation: "entry mix".into(), report: None }))
        }
        _ => None,
    };
    let options = MetalOptions { printer: Some(Arc::new(printer)), ..options() };
    let world = World::with(SimMetal::builder(1), options);
    let stream = world.runtime.stream().unwrap();
    let x = world.runtime.upload(&elements(1)).unwrap();
    let out = stream.alloc(4 * LEN).unwrap();
    let pipeline = world.runtime.pipeline(&PipelineSource::new("fused", "kernel", "mix 4")).unwrap();
    let size = [LEN as u64, 1, 1];
    stream.encode("fused").read(&x).write(&out).constants(&[0; 4]).dispatch(&pipeline, size, size).unwrap();
    assert_eq!(read(&out).unwrap(), mixed(4, &[&elements(1)]));
    let error = world.runtime.pipeline(&PipelineSource::new("fused", "kernel", "bad")).unwrap_err();
    assert!(error.to_string().contains("doubles"), "{error}");
    assert!(world.runtime.pipeline(&PipelineSource::new("fused", "cuda", "mix 4")).is_err());
}

#[test]
fn a_dispatch_that_metal_cannot_run_fails_alone() {
    let world = World::new(SimMetal::builder(1));
    let stream = world.runtime.stream().unwrap();
    let x = world.runtime.upload(&elements(1)).unwrap();
    let small = source("mix 1").specialised("entry mix\nmax_threads 8");
    let small = world.runtime.pipeline(&small).unwrap();
    let plain = world.runtime.pipeline(&source("mix 1")).unwrap();
    let one = [1; 3];
    let fails = |constants: usize, bound: usize, grid: [u64; 3], group: [u64; 3], part: &str| {
        let out = stream.alloc(4 * LEN).unwrap();
        let pipeline = if group == one { &plain } else { &small };
        let mut command = stream.encode("bad").constants(&vec![0; constants]);
        for _ in 0..bound {
            command = command.read(&x);
        }
        command.write(&out).dispatch(pipeline, grid, group).unwrap();
        let good = world.mix(&stream, "mix 1", &[&x]).unwrap();
        let error = out.read().err().unwrap().to_string();
        assert!(error.contains("bad") && error.contains(part), "{error}");
        assert_eq!(read(&good).unwrap(), mixed(1, &[&elements(1)]));
    };
    fails(4, 1, [24, 1, 1], [24, 1, 1], "the kernel allows 8");
    fails(5000, 1, one, one, "4096; bind a buffer");
    fails(4, 31, one, one, "Metal has 31 buffers");
    fails(4, 1, [1 << 33, 1, 1], one, "32 bits");
    drop((x, small, plain, stream));
    world.end("dispatch");
}

#[test]
fn copies_and_clears_of_every_alignment_are_exact() {
    let world = World::new(SimMetal::builder(1));
    let stream = world.runtime.stream().unwrap();
    let data: Vec<u8> = (0..200).map(|at| at as u8 + 1).collect();
    let from = world.runtime.upload(&data).unwrap();
    for (start, target, len) in [(0, 0, 64), (4, 8, 20), (3, 1, 7), (16, 32, 160), (0, 5, 0), (1, 0, 199)] {
        let to = stream.alloc(200).unwrap();
        stream.encode("clear").write(&to).clear().unwrap();
        let range = target..target + len;
        let copy = stream.encode("copy").read_range(&from, start..start + len);
        copy.write_range(&to, range.clone()).copy().unwrap();
        let mut expected = vec![0; 200];
        expected[range].copy_from_slice(&data[start..start + len]);
        assert_eq!(to.read().unwrap().bytes(), expected, "{start} {target} {len}");
    }
    drop((from, stream));
    world.end("copies");
}

#[test]
fn native_commands_run_between_kernels_on_memory_in_place() {
    for seed in 0..100 {
        let world = World::new(SimMetal::builder(seed));
        let streams = [world.runtime.stream().unwrap(), world.runtime.stream().unwrap()];
        let mut expected = elements(1);
        let mut x = world.runtime.upload(&expected).unwrap();
        for step in 0..12u32 {
            let stream = &streams[step as usize / 2 % 2];
            if step % 3 == 1 {
                let out = stream.alloc(4 * LEN).unwrap();
                let add = stream.encode("add").read(&x).write(&out).run(move |native| {
                    let [from, to] = native.take()?;
                    for (to, from) in to.as_mut_slice::<u32>()?.iter_mut().zip(from.as_slice::<u32>()?) {
                        *to = from.wrapping_add(step);
                    }
                    Ok(())
                });
                add.unwrap();
                x = out;
                expected.iter_mut().for_each(|x| *x = x.wrapping_add(step));
            } else {
                x = world.mix(stream, "mix 2", &[&x]).unwrap();
                expected = mixed(2, &[&expected]);
            }
        }
        assert_eq!(read(&x).unwrap(), expected, "seed {seed}");
        drop((x, streams));
        world.end("native");
    }
}

#[test]
fn a_native_command_that_panics_fails_alone() {
    let world = World::new(SimMetal::builder(1));
    let stream = world.runtime.stream().unwrap();
    let out = stream.alloc(8).unwrap();
    stream.encode("panics").write(&out).run(|_| panic!("index out of bounds")).unwrap();
    assert!(out.read().err().unwrap().to_string().contains("index out of bounds"));
    let x = world.runtime.upload(&elements(1)).unwrap();
    let good = world.mix(&stream, "mix 1", &[&x]).unwrap();
    assert_eq!(read(&good).unwrap(), mixed(1, &[&elements(1)]));
    drop((out, x, good, stream));
    world.end("panic");
}

#[test]
fn mapped_memory_is_bound_in_place_from_a_page_on_and_copied_below() {
    let small = |properties: &mut hesper_metal::edge::Properties| properties.max_buffer = 1 << 20;
    let world = World::new(SimMetal::builder(1).properties(small));
    let stream = world.runtime.stream().unwrap();
    let placed = |len: usize, mapped: bool| {
        let mut file = bytes(&elements(2));
        file.resize(len, 0);
        // Most allocations do not start at a page.
        let address = file.as_ptr().addr();
        let buffer = match mapped {
            true => world.runtime.adopt(MappedFile(file), "a file").unwrap(),
            false => world.runtime.adopt(file, "a vector").unwrap(),
        };
        let y = world.mix(&stream, "mix 1", &[&buffer]).unwrap();
        assert_eq!(read(&y).unwrap(), mixed(1, &[&elements(2)]), "{len} bytes");
        let fits = (address % 4096 + len).next_multiple_of(4096) <= 1 << 20;
        (buffer.read().unwrap().bytes().as_ptr().addr() == address, fits)
    };
    let in_place = |len, mapped| placed(len, mapped).0;
    assert!(in_place(4096, true) && in_place(9000, true) && in_place(100_000, true));
    assert!(!in_place(4095, true) && !in_place(200, true));
    // Metal takes no memory of an allocator, and no buffer above its limit.
    assert!(!in_place(100_000, false));
    let (in_place, fits) = placed(1 << 20, true);
    assert_eq!(in_place, fits);
    drop(stream);
    world.end("import");
}

#[test]
fn memory_that_metal_cannot_map_is_copied() {
    let world = World::new(SimMetal::builder(1).fail(Failure::Nth(Call::NewBufferNoCopy, 0)));
    let stream = world.runtime.stream().unwrap();
    let mut file = bytes(&elements(2));
    file.resize(9000, 0);
    let buffer = world.runtime.adopt(MappedFile(file), "a file").unwrap();
    let y = world.mix(&stream, "mix 1", &[&buffer]).unwrap();
    assert_eq!(read(&y).unwrap(), mixed(1, &[&elements(2)]));
    drop((buffer, y, stream));
    world.end("copied import");
}

#[test]
fn the_working_set_and_the_number_of_buffers_are_limits() {
    let few = |properties: &mut hesper_metal::edge::Properties| {
        properties.recommended_working_set = 1 << 20;
        properties.max_buffers = 8;
    };
    let world = World::new(SimMetal::builder(1).properties(few));
    let error = world.runtime.alloc(2 << 20).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    let mut held: Vec<_> = (0..8).map(|_| world.runtime.alloc(1024).unwrap()).collect();
    let error = world.runtime.alloc(2048).unwrap_err();
    assert!(error.to_string().contains("8 buffers"), "{error}");
    // What the pool keeps is given up for another size.
    held.pop();
    world.runtime.alloc(2048).unwrap();
}

#[test]
fn under_memory_pressure_the_pool_is_freed_and_work_goes_on() {
    let world = World::new(SimMetal::builder(1));
    let stream = world.runtime.stream().unwrap();
    let x = world.runtime.upload(&elements(1)).unwrap();
    drop(world.runtime.alloc(1 << 20).unwrap());
    assert!(world.runtime.counters().cached >= 1 << 20);
    world.metal.press();
    let y = world.mix(&stream, "mix 1", &[&x]).unwrap();
    assert_eq!(read(&y).unwrap(), mixed(1, &[&elements(1)]));
    assert!(world.runtime.counters().cached < 1 << 20);
    drop(world.runtime.alloc(1 << 20).unwrap());
    stream.synchronize().unwrap();
    assert!(world.runtime.counters().cached >= 1 << 20, "the pool is used again");
    // A finished submission frees it, too, without an allocation.
    world.metal.press();
    let in_place = world.runtime.pipeline(&source("mix 2")).unwrap();
    let size = [LEN as u64, 1, 1];
    stream.encode("update").read_write(&y).constants(&[0; 4]).dispatch(&in_place, size, size).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(world.runtime.counters().cached, 0);
}

#[test]
fn the_wired_limit_is_set_while_other_threads_end_their_streams() {
    for seed in 0..100 {
        let world = World::new(SimMetal::builder(seed));
        let device = world.device();
        let streams: Vec<_> = (0..64).map(|_| world.runtime.stream().unwrap()).collect();
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                streams.into_iter().rev().for_each(drop);
            });
            start.wait();
            assert_eq!(device.set_wired_limit(1 << 20), Some(0));
        });
        drop(device);
        world.end("wired limit");
    }
}

#[test]
fn resident_buffers_stay_below_the_wired_limit() {
    let world = World::new(SimMetal::builder(1));
    let device = world.device();
    let _stream = world.runtime.stream().unwrap();
    let old = world.runtime.alloc(1024).unwrap();
    assert_eq!(device.counters().resident_bytes, 0);
    assert_eq!(device.set_wired_limit(4096), Some(0));
    assert_eq!(world.metal.resident(), 1);
    let more: Vec<_> = (0..8).map(|_| world.runtime.alloc(1024).unwrap()).collect();
    assert_eq!((world.metal.resident(), device.counters().resident_bytes), (4, 4096));
    drop((old, more));
    world.runtime.clear_cache();
    assert_eq!((world.metal.resident(), device.counters().buffer_bytes), (0, 0));
    let _kept = world.runtime.alloc(1024).unwrap();
    assert_eq!(device.set_wired_limit(0), Some(4096));
    assert_eq!(world.metal.resident(), 0);
    let without = World::new(SimMetal::builder(1).fail(Failure::Nth(Call::ResidencySet, 0)));
    assert_eq!(without.device().set_wired_limit(4096), None, "a system without residency sets");
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hesper-metal-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_second_start_takes_pipelines_from_archives_keyed_by_content() {
    let folder = Folder::new("archives");
    let start = |texts: &[&str]| {
        let world =
            World::with(SimMetal::builder(1), MetalOptions { cache: Some(folder.0.clone()), ..options() });
        for text in texts {
            let pipeline = world.runtime.pipeline(&source(text)).unwrap();
            drop(pipeline);
        }
        let counters = world.device().counters();
        // Into its archive, and not once more.
        assert_eq!(world.metal.compilations(), counters.compiled);
        world.end("archives");
        (counters.compiled, counters.from_archive)
    };
    assert_eq!(start(&["mix 1", "mix 2"]), (2, 0));
    assert_eq!(start(&["mix 1", "mix 2", "mix 3"]), (1, 2));
    for path in folder.files().iter().filter(|path| path.extension().is_some_and(|end| end != "key")) {
        std::fs::write(path, "damaged").unwrap();
    }
    assert_eq!(start(&["mix 1", "mix 2", "mix 3"]), (3, 0), "damaged archives are misses");
    assert_eq!(start(&["mix 1", "mix 2", "mix 3"]), (0, 3), "and are replaced");
}

#[test]
fn a_capture_runs_until_it_is_dropped() {
    let world = World::new(SimMetal::builder(1).fail(Failure::Nth(Call::Capture, 2)));
    let folder = Folder::new("capture");
    std::fs::create_dir_all(&folder.0).unwrap();
    let device = world.device();
    let path = folder.0.join("one.gputrace");
    let capture = device.capture(&path).unwrap();
    let error = device.capture(&path).err().unwrap().to_string();
    assert!(error.contains("another capture"), "{error}");
    drop(capture);
    drop(device.capture(&path).unwrap());
    let error = device.capture(&path).err().unwrap().to_string();
    assert!(error.contains("MTL_CAPTURE_ENABLED") && error.contains("one.gputrace"), "{error}");
}

#[test]
fn barriers_are_encoded_only_between_dependent_commands() {
    let world = World::with(SimMetal::builder(1), MetalOptions { batch: 64, ..options() });
    let stream = world.runtime.stream().unwrap();
    let x = world.runtime.upload(&elements(1)).unwrap();
    let first: Vec<_> = (0..8).map(|_| world.mix(&stream, "mix 1", &[&x]).unwrap()).collect();
    let second: Vec<_> = first.iter().map(|y| world.mix(&stream, "mix 1", &[y]).unwrap()).collect();
    stream.synchronize().unwrap();
    let counters = world.device().counters();
    assert_eq!(counters.command_buffers, 1);
    assert!(counters.barriers <= 2, "{counters:?}");
    drop((first, second));
}

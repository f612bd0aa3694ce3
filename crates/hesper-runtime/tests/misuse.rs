//! Invalid input is refused with an error that names it, and leaves everything usable.

use hesper_runtime::sim::Sim;
use hesper_runtime::{Error, PipelineSource, Runtime};

#[test]
fn zero_size_buffers_are_real() {
    for unified in [true, false] {
        let runtime = Runtime::new(Sim::builder(1).unified_memory(unified).build());
        let stream = runtime.stream().unwrap();
        let empty = runtime.upload::<u8>(&[]).unwrap();
        assert!(empty.is_empty() && empty.read().unwrap().bytes().is_empty());
        let out = stream.alloc(0).unwrap();
        stream.encode("nothing").read(&empty).write(&out).copy().unwrap();
        assert!(out.read().unwrap().bytes().is_empty());
        let foreign = runtime.adopt(Vec::new(), "nothing").unwrap();
        assert!(foreign.read().unwrap().bytes().is_empty());
    }
}

#[test]
fn sizes_that_overflow_are_refused() {
    let runtime = Runtime::new(Sim::new(1));
    for size in [usize::MAX, usize::MAX - 63, (isize::MAX as usize) + 1, 1 << 50] {
        let error = runtime.alloc(size).unwrap_err();
        assert!(matches!(error, Error::SizeOverflow { .. }), "{error}");
    }
    assert!(matches!(runtime.alloc(1 << 40), Err(Error::OutOfMemory { .. })));
    runtime.alloc(16).unwrap();
}

#[test]
#[allow(clippy::reversed_empty_ranges)]
fn ranges_outside_of_a_buffer_are_refused() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let buffer = runtime.upload(&[0u8; 10]).unwrap();
    for (start, end) in [(0, 11), (10, 11), (5, 4), (usize::MAX, usize::MAX)] {
        let error = stream.encode("reads").read_range(&buffer, start..end).run(|_| Ok(())).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
        assert!(error.to_string().contains("reads") && error.to_string().contains("10 bytes"), "{error}");
    }
    stream.encode("reads").read_range(&buffer, 10..10).run(|_| Ok(())).unwrap();
    let error = stream.encode("reads").read_range(&buffer, ..=usize::MAX).run(|_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
}

#[test]
fn a_buffer_or_pipeline_of_another_device_is_refused() {
    let (mine, theirs) = (Runtime::new(Sim::new(1)), Runtime::new(Sim::new(2)));
    let stream = mine.stream().unwrap();
    let foreign = theirs.upload(&[1u8]).unwrap();
    let error = stream.encode("mixes").read(&foreign).run(|_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::ForeignDevice { .. }), "{error}");
    let pipeline = theirs.pipeline(&PipelineSource::new("k", "mix", "mix 1")).unwrap();
    let error = stream.encode("mixes").dispatch(&pipeline, [1; 3], [1; 3]).unwrap_err();
    assert!(matches!(error, Error::ForeignDevice { .. }), "{error}");
}

#[test]
fn reading_what_nothing_has_filled_is_refused() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let fresh = stream.alloc_labelled(8, "scores").unwrap();
    let error = stream.encode("softmax").read(&fresh).run(|_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::Unfilled { .. }), "{error}");
    assert!(error.to_string().contains("scores") && error.to_string().contains("softmax"), "{error}");
    assert!(matches!(fresh.read(), Err(Error::Unfilled { .. })));
}

#[test]
fn overlapping_bindings_are_refused_if_one_writes() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let buffer = runtime.upload(&[0u8; 16]).unwrap();
    let overlapping = stream.encode("shift").read_range(&buffer, 0..9).write_range(&buffer, 8..16);
    assert!(matches!(overlapping.run(|_| Ok(())), Err(Error::Aliased { .. })));
    stream.encode("halves").read_range(&buffer, 0..8).write_range(&buffer, 8..16).copy().unwrap();
    stream.encode("twice").read(&buffer).read_range(&buffer, 3..5).run(|_| Ok(())).unwrap();
}

#[test]
fn launches_that_make_no_sense_are_refused() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let pipeline = runtime.pipeline(&PipelineSource::new("k", "mix", "mix 1")).unwrap();
    for (grid, group) in [
        ([0, 1, 1], [1, 1, 1]),
        ([1, 1, 1], [1, 0, 1]),
        ([1, 1, 1], [2048, 1, 1]),
        ([1, 1, 1], [u64::MAX, u64::MAX, 2]),
        ([u64::MAX, 2, 1], [1, 1, 1]),
    ] {
        let error = stream.encode("k").dispatch(&pipeline, grid, group).unwrap_err();
        assert!(matches!(error, Error::Launch { .. }), "{error}");
    }
    let buffer = runtime.upload(&[0u8; 4]).unwrap();
    assert!(matches!(stream.encode("copy").read(&buffer).copy(), Err(Error::Launch { .. })));
}

#[test]
fn a_guard_keeps_commands_from_racing_with_it() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let buffer = runtime.upload(&[1u8; 8]).unwrap();
    let fill = || stream.encode("fill").write(&buffer).run(|_| Ok(()));
    let look = || stream.encode("look").read(&buffer).run(|_| Ok(()));
    let reading = buffer.read().unwrap();
    let error = fill().unwrap_err();
    assert!(matches!(error, Error::HostAccess { guard: "read", .. }), "{error}");
    assert!(matches!(buffer.write(), Err(Error::HostAccess { .. })), "it would wait for itself");
    look().unwrap();
    let second = buffer.read().unwrap();
    drop((reading, second));
    fill().unwrap();
    let writing = buffer.write().unwrap();
    assert!(matches!(look(), Err(Error::HostAccess { guard: "write", .. })));
    assert!(matches!(buffer.read(), Err(Error::HostAccess { .. })));
    writing.finish().unwrap();
    look().unwrap();
}

#[test]
fn guards_that_threads_take_and_drop_at_once_leave_no_count_behind() {
    let runtime = Runtime::new(Sim::new(1));
    let buffer = runtime.upload(&[1u8; 64]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..5000).for_each(|_| assert_eq!(buffer.read().unwrap().bytes()[0], 1)));
        }
    });
    // A guard that is still counted would refuse this for ever.
    buffer.write().unwrap().bytes_mut().fill(2);
    assert_eq!(buffer.read().unwrap().bytes(), [2; 64]);
}

#[test]
fn a_native_command_may_not_wait() {
    for seed in 0..10 {
        let runtime = Runtime::new(Sim::new(seed));
        let stream = runtime.stream().unwrap();
        let (own, inner_stream) = (runtime.upload(&[1u8; 8]).unwrap(), stream.clone());
        let out = stream.alloc(8).unwrap();
        let captured = own.clone();
        stream
            .encode("waits")
            .read(&own)
            .write(&out)
            .run(move |_| {
                let guard = captured.read();
                assert!(matches!(guard, Err(Error::InsideCommand { .. })));
                assert!(matches!(inner_stream.synchronize(), Err(Error::InsideCommand { .. })));
                Ok(())
            })
            .unwrap();
        out.read().unwrap();
    }
}

#[test]
fn a_closed_stream_finishes_its_work_and_takes_no_more() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let (input, out) = (runtime.upload(&[1u8; 8]).unwrap(), stream.alloc(8).unwrap());
    stream.encode("copy").read(&input).write(&out).copy().unwrap();
    stream.close();
    let error = stream.encode("late").read(&input).run(|_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::StreamClosed { .. }), "{error}");
    assert_eq!(out.read().unwrap().bytes(), [1u8; 8]);
    stream.commit().unwrap().wait().unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn a_view_gives_what_was_bound_and_nothing_else() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let (input, out) = (runtime.upload(&[1u32, 2, 3]).unwrap(), stream.alloc(12).unwrap());
    stream
        .encode("views")
        .read_range(&input, 4..12)
        .write(&out)
        .run(|native| {
            assert_eq!(native.views().len(), 2);
            assert!(native.take::<3>().is_err());
            let [from, to] = native.take()?;
            assert_eq!(from.as_slice::<u32>()?, [2, 3]);
            assert!(from.as_slice::<u64>().is_err() || from.len() % 8 == 0);
            assert!(from.bytes_mut().is_err(), "bound to read");
            to.as_mut_slice::<u32>()?.fill(9);
            Ok(())
        })
        .unwrap();
    assert_eq!(out.read().unwrap().as_slice::<u32>(), Some(&[9u32, 9, 9][..]));
    assert!(out.read().unwrap().as_slice::<u64>().is_none(), "twelve bytes are no u64s");
}

#[test]
fn a_kernel_that_does_not_compile_is_an_error_for_every_caller_and_is_tried_again() {
    use hesper_runtime::sim::{Call, Failure};
    let runtime = Runtime::new(Sim::builder(1).fail(Failure::Nth(Call::Compile, 0)).build());
    let source = PipelineSource::new("broken", "mix", "mix 1");
    let error = runtime.pipeline(&source).unwrap_err();
    assert!(error.to_string().contains("compile"), "{error}");
    runtime.pipeline(&source).expect("the failure was not the kernel's, and is not remembered");
}

#[test]
fn everything_can_be_dropped_in_any_order() {
    for order in 0..24u32 {
        let sim = Sim::new(u64::from(order));
        let runtime = Runtime::builder(sim.clone()).validate(true).build();
        let report = runtime.validation().unwrap();
        let stream = runtime.stream().unwrap();
        let input = runtime.upload(&[4u8; 64]).unwrap();
        let out = stream.alloc(64).unwrap();
        let pipeline = runtime.pipeline(&PipelineSource::new("k", "mix", "mix 1")).unwrap();
        stream.encode("k").read(&input).write(&out).dispatch(&pipeline, [16, 1, 1], [16, 1, 1]).unwrap();
        let mut things: Vec<Box<dyn std::any::Any>> =
            vec![Box::new(runtime), Box::new(stream), Box::new(input), Box::new(out), Box::new(pipeline)];
        let mut rank = order;
        while !things.is_empty() {
            let at = rank as usize % things.len();
            rank /= things.len() as u32;
            drop(things.remove(at));
        }
        while sim.step() {}
        assert!(sim.is_empty(), "order {order}");
        assert_eq!(report.violations(), [], "order {order}");
    }
}

#[test]
fn pipelines_are_found_by_content_and_bounded_in_number() {
    let runtime = Runtime::new(Sim::new(1));
    for text in 0..8000 {
        let source = PipelineSource::new("one name", "mix", format!("mix {text}").as_str());
        let first = runtime.pipeline(&source).unwrap();
        let again = runtime.pipeline(&source).unwrap();
        assert!(std::sync::Arc::ptr_eq(&first, &again));
        let other = runtime.pipeline(&source.clone().specialised("half")).unwrap();
        assert!(!std::sync::Arc::ptr_eq(&first, &other), "same text, other specialisation");
    }
    let counters = runtime.counters().pipelines;
    assert!(counters.count <= 1024 && counters.evicted >= 14_000, "{counters:?}");
    assert_eq!((counters.compiled, counters.hits), (16_000, 8000));
}

#[test]
fn the_trace_is_json_with_the_recorded_events() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    runtime.trace().start();
    let out = stream.alloc(8).unwrap();
    stream.encode("say \"hi\"\n").write(&out).run(|_| Ok(())).unwrap();
    drop(out.read().unwrap());
    let json = runtime.trace().stop();
    for needle in
        ["\"traceEvents\":[", "say \\\"hi\\\"\\u000a", "\"cat\":\"run\"", "submission 1", "allocate"]
    {
        assert!(json.contains(needle), "{needle} is not in {json}");
    }
    assert_eq!(json.matches('{').count(), json.matches('}').count());
    assert!(!runtime.trace().is_on());
}

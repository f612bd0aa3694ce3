//! The simulated Metal rejects what Metal's validation layer rejects, and names it.

use std::sync::mpsc::Receiver;

use hesper_metal::edge::{
    Buffer, CommandBuffer, CommandError, Encoder, LibraryOptions, Metal, Pipeline, PipelineRequest, Queue,
};
use hesper_metal::sim::SimMetal;
use hesper_runtime::Rule;
use hesper_runtime::sim::Simulated;

/// An encoder with everything that a dispatch needs.
struct Fixture {
    metal: SimMetal,
    queue: Queue,
    commands: CommandBuffer,
    encoder: Encoder,
    pipeline: Pipeline,
    buffer: Buffer,
}

fn fixture() -> Fixture {
    let metal = SimMetal::builder(1).build();
    let queue = metal.new_queue(4).unwrap();
    let library = metal.library_from_source("mix 1", &LibraryOptions::default()).unwrap();
    let request =
        PipelineRequest { label: "mix", library, entry: "mix", constants: &[], max_threads: Some(64) };
    let (buffer, _) = metal.new_buffer(64).unwrap();
    // SAFETY: every object was made above and is alive.
    unsafe {
        let (pipeline, _) = metal.pipeline(&request, None).unwrap();
        let commands = metal.command_buffer(queue, "test").unwrap();
        let encoder = metal.compute_encoder(commands).unwrap();
        Fixture { metal, queue, commands, encoder, pipeline, buffer }
    }
}

impl Fixture {
    /// Encodes one dispatch and ends the encoder. Its outcome arrives once it was committed and has run.
    ///
    /// # Safety
    /// As for the calls of the edge; the simulation names what is violated on purpose.
    unsafe fn encode_one(&self) -> Receiver<Result<(), CommandError>> {
        let (sender, receiver) = std::sync::mpsc::channel();
        // SAFETY: upheld by the caller.
        unsafe {
            self.metal.set_pipeline(self.encoder, self.pipeline);
            self.metal.set_buffer(self.encoder, Some(self.buffer), 0, 0);
            self.metal.dispatch(self.encoder, [4, 1, 1], [4, 1, 1]);
            self.metal.end_encoding(self.encoder);
            self.metal.on_completed(self.commands, Box::new(move |outcome| sender.send(outcome).unwrap()));
        }
        receiver
    }
}

fn assert_misuse(bench: &Fixture, part: &str) {
    let found = bench.metal.misuse();
    assert!(found.iter().any(|what| what.contains(part)), "{part:?} is not among {found:?}");
}

/// Calls the simulated Metal on purpose in ways that Metal does not allow.
macro_rules! misuse {
    ($name:ident, $part:expr, |$b:ident| $calls:block) => {
        #[test]
        fn $name() {
            let $b = fixture();
            // SAFETY: violated on purpose where the test says so; the simulation reports it.
            unsafe { $calls }
            assert_misuse(&$b, $part);
        }
    };
}

misuse!(encoding_after_the_end_of_an_encoder, "after endEncoding", |b| {
    b.metal.end_encoding(b.encoder);
    b.metal.set_pipeline(b.encoder, b.pipeline);
});

misuse!(dispatching_after_the_end_of_an_encoder, "after endEncoding", |b| {
    b.metal.set_pipeline(b.encoder, b.pipeline);
    b.metal.end_encoding(b.encoder);
    b.metal.dispatch(b.encoder, [1; 3], [1; 3]);
});

misuse!(committing_twice, "committed twice", |b| {
    b.metal.end_encoding(b.encoder);
    b.metal.commit(b.commands);
    b.metal.commit(b.commands);
});

misuse!(committing_with_an_open_encoder, "committed before endEncoding", |b| {
    b.metal.commit(b.commands);
});

misuse!(releasing_an_open_encoder, "released before endEncoding", |b| {
    b.metal.release(b.encoder.into());
});

misuse!(a_second_encoder, "open encoder", |b| {
    assert!(b.metal.compute_encoder(b.commands).is_none());
});

misuse!(a_dispatch_without_a_pipeline, "without a pipeline", |b| {
    b.metal.dispatch(b.encoder, [1; 3], [1; 3]);
});

misuse!(a_threadgroup_that_is_too_large, "of 64 at most", |b| {
    b.metal.set_pipeline(b.encoder, b.pipeline);
    b.metal.dispatch(b.encoder, [65, 1, 1], [65, 1, 1]);
});

misuse!(an_unbound_buffer_index, "is not bound", |b| {
    b.metal.set_pipeline(b.encoder, b.pipeline);
    b.metal.set_buffer(b.encoder, Some(b.buffer), 0, 1);
    b.metal.dispatch(b.encoder, [1; 3], [1; 3]);
});

misuse!(an_offset_outside_of_the_buffer, "is not inside", |b| {
    b.metal.set_buffer(b.encoder, Some(b.buffer), 64, 0);
});

misuse!(too_many_bytes, "setBytes", |b| {
    b.metal.set_bytes(b.encoder, &[0; 4097], 0);
});

misuse!(an_event_that_goes_backwards, "goes from 5 to 4", |b| {
    let event = b.metal.new_event().unwrap();
    b.metal.set_event_value(event, 5);
    b.metal.set_event_value(event, 4);
});

misuse!(a_handler_after_the_commit, "addCompletedHandler after commit", |b| {
    b.metal.end_encoding(b.encoder);
    b.metal.commit(b.commands);
    b.metal.on_completed(b.commands, Box::new(|_| {}));
});

misuse!(a_second_handler, "second completed handler", |b| {
    b.metal.end_encoding(b.encoder);
    b.metal.on_completed(b.commands, Box::new(|_| {}));
    b.metal.on_completed(b.commands, Box::new(|_| {}));
});

misuse!(a_fence_that_is_waited_for_behind_its_update, "behind updateFence", |b| {
    let fence = b.metal.new_fence().unwrap();
    b.metal.update_fence(b.encoder, fence);
    b.metal.wait_fence(b.encoder, fence);
});

misuse!(a_buffer_that_is_released_while_it_is_resident, "member of a residency set", |b| {
    let set = b.metal.new_residency_set().unwrap();
    b.metal.set_resident(set, &[b.buffer], true);
    b.metal.release(b.buffer.into());
});

misuse!(a_residency_set_of_a_released_queue, "addResidencySet", |b| {
    let (set, queue) = (b.metal.new_residency_set().unwrap(), b.metal.new_queue(1).unwrap());
    b.metal.release(queue.into());
    b.metal.use_residency_set(queue, set);
});

misuse!(threadgroup_memory_at_an_index_that_does_not_exist, "setThreadgroupMemoryLength", |b| {
    b.metal.set_threadgroup_memory(b.encoder, 16, 31);
});

misuse!(more_threadgroup_memory_than_the_gpu_has, "bytes of threadgroup memory", |b| {
    b.metal.set_pipeline(b.encoder, b.pipeline);
    b.metal.set_buffer(b.encoder, Some(b.buffer), 0, 0);
    b.metal.set_threadgroup_memory(b.encoder, 32 << 10, 0);
    b.metal.set_threadgroup_memory(b.encoder, 16, 1);
    b.metal.dispatch(b.encoder, [1; 3], [1; 3]);
});

misuse!(a_signal_inside_of_an_encoder, "while an encoder is open", |b| {
    let event = b.metal.new_event().unwrap();
    b.metal.encode_signal(b.commands, event, 1);
});

misuse!(releasing_twice, "released twice", |b| {
    b.metal.release(b.buffer.into());
    b.metal.release(b.buffer.into());
});

misuse!(more_command_buffers_than_the_queue_takes, "Metal blocks", |b| {
    for _ in 0..4 {
        b.metal.command_buffer(b.queue, "one more").unwrap();
    }
});

#[test]
fn a_buffer_of_no_bytes_or_too_many() {
    let b = fixture();
    assert!(b.metal.new_buffer(0).is_none() && b.metal.new_buffer((1 << 29) + 1).is_none());
    assert_misuse(&b, "newBuffer: 0 bytes");
    assert_misuse(&b, "newBuffer: 536870913 bytes");
}

misuse!(encoding_outside_of_an_autorelease_pool, "setBytes outside of an autorelease pool", |b| {
    b.metal.pooled(&mut || {
        b.metal.set_pipeline(b.encoder, b.pipeline);
    });
    assert_eq!(b.metal.misuse(), [] as [String; 0]);
    b.metal.set_bytes(b.encoder, &[0; 4], 0);
});

misuse!(a_fence_that_nothing_has_updated, "which nothing has updated", |b| {
    let fence = b.metal.new_fence().unwrap();
    b.metal.pooled(&mut || {
        b.metal.wait_fence(b.encoder, fence);
        b.metal.update_fence(b.encoder, fence);
        b.metal.end_encoding(b.encoder);
    });
    b.metal.commit(b.commands);
});

misuse!(host_memory_that_is_no_pages, "no whole pages", |b| {
    let bytes = [0u8; 16];
    assert!(b.metal.new_buffer_no_copy(std::ptr::NonNull::from(&bytes).cast(), 16).is_none());
});

#[test]
fn an_object_that_is_destroyed_while_a_command_buffer_needs_it_is_named() {
    for (committed, pipeline) in [(false, false), (true, false), (true, true)] {
        let b = fixture();
        // SAFETY: violated on purpose: the object is released too early.
        unsafe {
            let receiver = b.encode_one();
            if committed {
                b.metal.commit(b.commands);
            }
            if pipeline {
                b.metal.release(b.pipeline.into());
            } else {
                b.metal.release(b.buffer.into());
            }
            let rule = if pipeline { Rule::Identity } else { Rule::Retention };
            let found = b.metal.violations();
            assert!(
                found.iter().any(|found| found.rule == rule && found.what.contains("needs it")),
                "{found:?}"
            );
            b.metal.drain();
            if committed {
                let error = receiver.try_recv().unwrap().unwrap_err();
                assert_eq!(error.code, hesper_metal::edge::ErrorCode::InvalidResource);
            }
            assert!(b.metal.alive().iter().any(|name| *name == format!("command queue {}", b.queue.0)));
        }
    }
}

/// The memory of a released buffer is returned, and nothing that names the buffer touches it.
#[test]
fn a_released_buffer_holds_no_memory_and_its_use_is_an_error() {
    let b = fixture();
    assert_eq!(b.metal.held_bytes(), 64);
    // SAFETY: violated on purpose: the buffer is named after its release.
    unsafe {
        b.metal.release(b.buffer.into());
        assert_eq!(b.metal.held_bytes(), 0);
        let receiver = b.encode_one();
        b.metal.commit(b.commands);
        b.metal.drain();
        let error = receiver.try_recv().unwrap().unwrap_err();
        assert_eq!(error.code, hesper_metal::edge::ErrorCode::InvalidResource);
    }
    let error = b.metal.access_on_host(&mut [b.buffer].into_iter()).unwrap_err();
    assert!(error.contains("after it was released"), "{error}");
    let named = b.metal.violations().into_iter().filter(|found| found.rule == Rule::Retention);
    assert_eq!(named.count(), 3, "named by the encoder, used by the GPU, used by the host");
}

/// A program that allocates and drops holds what is alive, and no more.
#[test]
fn memory_of_dropped_buffers_is_returned() {
    let world = crate::support::World::new(SimMetal::builder(1));
    for _ in 0..64 {
        let buffer = world.runtime.alloc(1 << 20).unwrap();
        assert!(world.metal.held_bytes() < 2 << 20);
        drop(buffer);
        world.runtime.clear_cache();
    }
    assert_eq!(world.metal.held_bytes(), 0);
    world.end("dropped buffers");
}

//! Hostile schedules: completions that arrive last, refused objects and failures in the middle of several
//! streams. What does not depend on the failure is right, what does is an error, and nothing hangs.

use crate::support::{World, elements, mixed, options, read};
use hesper_metal::MetalOptions;
use hesper_metal::sim::{Call, ErrorCode, Failure, SimBuilder, SimMetal};
use hesper_runtime::{Buffer, Error, Stream};

/// Four streams, of which the third reads what the first and the second compute, each in command buffers of
/// its own. The fourth depends on nothing.
struct Program {
    streams: Vec<Stream>,
    results: Vec<Result<Buffer, Error>>,
    expected: Vec<Vec<u32>>,
}

const STEPS: u32 = 5;

fn start(world: &World) -> Result<Program, Error> {
    let streams: Vec<Stream> = (0..4).map(|_| world.runtime.stream()).collect::<Result<_, _>>()?;
    let x = world.runtime.upload(&elements(1))?;
    let mut results: Vec<Result<Buffer, Error>> = vec![Ok(x.clone()); 4];
    let mut expected = vec![elements(1); 4];
    for step in 0..STEPS {
        let text = format!("mix {}", step % 3);
        for at in [0, 1, 3] {
            results[at] = results[at].clone().and_then(|from| world.mix(&streams[at], &text, &[&from]));
            expected[at] = mixed(step % 3, &[&expected[at]]);
            // Refused work is asked for again by the next submission.
            let _ = streams[at].commit();
        }
        let (one, two) = (results[0].clone(), results[1].clone());
        results[2] = one.and_then(|one| {
            let two = two?;
            world.mix(&streams[2], &text, &[&one, &two, &results[2].clone()?])
        });
        expected[2] = mixed(step % 3, &[&expected[0], &expected[1], &expected[2]]);
        let _ = streams[2].commit();
    }
    Ok(Program { streams, results, expected })
}

impl Program {
    /// The streams whose results are right, and those that failed; a wrong one fails the test.
    fn finish(self, what: &str) -> [bool; 4] {
        let mut right = [false; 4];
        // The one that depends on the others first: it waits for all of them.
        for at in [2, 0, 1, 3] {
            if let Ok(found) = self.results[at].clone().and_then(|buffer| read(&buffer)) {
                assert_eq!(found, self.expected[at], "{what}: stream {at}");
                right[at] = true;
            }
        }
        drop(self.streams);
        right
    }
}

/// Runs the program, then once more, which has to succeed, and ends the world.
fn run(builder: SimBuilder, options: MetalOptions, what: &str) -> Option<[bool; 4]> {
    let world = World::with(builder, options);
    let right = start(&world).ok().map(|program| program.finish(what));
    let again = start(&world).unwrap_or_else(|error| panic!("{what}: asked again: {error}"));
    assert_eq!(again.finish(what), [true; 4], "{what}: asked again");
    world.end(what);
    right
}

#[test]
fn a_completion_that_arrives_last_delays_its_own_stream_alone() {
    for late in 0..20 {
        let world = World::with(SimMetal::builder(late).late(late), options());
        let program = start(&world).unwrap();
        assert_eq!(program.finish(&format!("late {late}")), [true; 4]);
        world.end("late completion");
    }
    // The fourth stream ends while the completions of the others are kept back.
    let held = (0..20).filter(|number| number % 4 != 2).fold(SimMetal::builder(5), SimBuilder::late);
    let world = World::with(held, options());
    let Program { streams, results, expected } = start(&world).unwrap();
    let independent = results[3].clone().unwrap();
    assert_eq!(read(&independent).unwrap(), expected[3]);
    for (result, expected) in results.iter().zip(&expected).take(3) {
        assert_eq!(read(result.as_ref().unwrap()).unwrap(), *expected);
    }
    drop((streams, results, independent));
    world.end("held completions");
}

#[test]
fn memory_is_kept_until_the_completion_that_arrives_last() {
    let world = World::with(SimMetal::builder(3).late(0), options());
    let stream = world.runtime.stream().unwrap();
    let x = world.runtime.upload(&elements(1)).unwrap();
    let y = world.mix(&stream, "mix 1", &[&x]).unwrap();
    drop(x);
    stream.commit().unwrap();
    let other = world.runtime.stream().unwrap();
    for _ in 0..8 {
        // Takes the memory of the dropped input, were it in the pool.
        let z = world.runtime.upload(&elements(9)).unwrap();
        let z = world.mix(&other, "mix 2", &[&z]).unwrap();
        assert_eq!(read(&z).unwrap(), mixed(2, &[&elements(9)]));
        world.runtime.clear_cache();
    }
    assert_eq!(read(&y).unwrap(), mixed(1, &[&elements(1)]));
    drop((y, stream, other));
    world.end("kept memory");
}

#[test]
fn a_failure_in_the_middle_of_several_streams_spares_the_independent_ones() {
    for seed in 0..6 {
        let mut spoiled = 0;
        for number in 0..20 {
            let what = format!("seed {seed}, command buffer {number}");
            // The failed one and its neighbour complete last.
            let builder = SimMetal::builder(seed).fault(number, ErrorCode::PageFault);
            let builder = builder.late(number).late(number + 1);
            let right = run(builder, options(), &what).unwrap();
            let failed = right.iter().filter(|right| !**right).count();
            // One stream, and the one that reads it.
            assert!(failed <= 2, "{what}: {right:?}");
            spoiled += failed;
        }
        assert!(spoiled > 10, "seed {seed}: {spoiled} results were lost");
    }
}

#[test]
fn refused_encoders_command_buffers_and_pipelines_fail_what_needs_them() {
    let mut lost = 0;
    for call in [Call::ComputeEncoder, Call::CommandBuffer, Call::Pipeline, Call::Library, Call::NewEvent] {
        for nth in 0..8 {
            let what = format!("{call:?} {nth}");
            let builder = SimMetal::builder(nth).fail(Failure::Nth(call, nth)).late(nth);
            let right = run(builder, options(), &what);
            lost += right.map_or(4, |right| right.iter().filter(|right| !**right).count());
        }
    }
    assert!(lost > 10, "{lost} results were lost");
}

#[test]
fn everything_at_once_is_right_or_an_error() {
    for seed in 0..40 {
        let mut builder = SimMetal::builder(seed).refuse(5).late(seed % 20).late(3);
        for number in (seed % 4..20).step_by(4) {
            builder = builder.fault(number, ErrorCode::Timeout);
        }
        let what = format!("seed {seed}");
        let world = World::with(builder, MetalOptions { batch: 3, ..options() });
        if let Ok(program) = start(&world) {
            program.finish(&what);
        }
        world.end(&what);
    }
}

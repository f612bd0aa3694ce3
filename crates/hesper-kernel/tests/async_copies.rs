//! Asynchronous copies: what they copy, and what the sanitizer reports about accesses before the wait.

use hesper_kernel::exec::{Cancel, Program};
use hesper_kernel::front::compile_file;
use hesper_kernel::interp::{self, FindingKind, Options, Report};
use hesper_kernel::ir::Kernel;
use hesper_kernel::launch::{Arg, Bindings, Launch};

const N: usize = 96;

/// A kernel with `tile` in threadgroup memory, two events and a body.
fn kernel(body: &str) -> Kernel {
    let text = format!(
        "kernel void staged(device float* x [[buffer(0)]], device float* out [[buffer(1)]],
                            uint at [[thread_position_in_threadgroup]], uint simd [[simdgroup_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {{
            threadgroup float tile[{N}];
            simdgroup_event events[2];
            {body}
        }}"
    );
    compile_file("staged.metal", &text).unwrap_or_else(|error| panic!("{error}")).kernels.remove(0)
}

fn input() -> Vec<f32> {
    (0..N).map(|at| at as f32 + 1.0).collect()
}

fn bytes(elements: &[f32]) -> Vec<u8> {
    elements.iter().flat_map(|element| element.to_ne_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|chunk| f32::from_ne_bytes(chunk.try_into().unwrap())).collect()
}

/// Runs a body by one threadgroup with the sanitizer; the findings, `x` and `out`.
fn run(threads: u64, body: &str) -> (Report, Vec<f32>, Vec<f32>) {
    let kernel = kernel(body);
    let (mut x, mut out) = (bytes(&input()), vec![0; 4 * N]);
    let launch = Launch::new([threads, 1, 1], [threads, 1, 1]).unwrap();
    let mut bindings = Bindings::new(vec![Arg::write(&mut x), Arg::write(&mut out)]).unwrap();
    let report = interp::run(&kernel, &launch, &mut bindings, &Options::checked()).unwrap();
    (report, floats(&x), floats(&out))
}

/// The result of a body without findings; the bytecode of the CPU gives the same.
fn clean(threads: u64, body: &str) -> Vec<f32> {
    let (report, x, out) = run(threads, body);
    assert!(report.is_clean(), "{body}: {:?}", report.findings);
    let (mut x2, mut out2) = (bytes(&input()), vec![0; 4 * N]);
    let launch = Launch::new([threads, 1, 1], [threads, 1, 1]).unwrap();
    let bindings = Bindings::new(vec![Arg::write(&mut x2), Arg::write(&mut out2)]).unwrap();
    let program = Program::compile(&kernel(body)).unwrap();
    program.run(&bindings, &launch, &Cancel::new()).unwrap();
    assert_eq!((x, &out), (floats(&x2), &floats(&out2)), "{body}: on the CPU");
    out
}

/// The one finding of a body.
fn finding(threads: u64, body: &str) -> String {
    let (report, ..) = run(threads, body);
    assert!(!report.is_clean(), "{body}: nothing was found");
    report.findings[0].to_string()
}

#[test]
fn rows_tiles_and_edges_are_copied() {
    let out = clean(
        32,
        "events[0].async_copy(tile, x, 70); simdgroup_event::wait(1, events);
         for (uint i = lane; i < 70; i += 32) out[i] = tile[i];",
    );
    assert_eq!((out[0], out[69], out[70]), (1.0, 70.0, 0.0));
    // A tile of 5 columns and 4 rows out of rows of 10; what lies outside of 3 x 2 is zero, or the edge.
    let tile = |mode: &str| {
        clean(
            32,
            &format!(
                "events[0].async_copy(tile, 8, ushort2(5, 4), x, 10, ushort2(3, 2), false, {mode});
                 simdgroup_event::wait(1, events);
                 if (lane < 20) out[lane] = tile[lane / 5 * 8 + lane % 5];"
            ),
        )
    };
    let zeros = tile("simdgroup_async_copy_clamp_mode::clamp_to_zero");
    assert_eq!(zeros[..10], [1.0, 2.0, 3.0, 0.0, 0.0, 11.0, 12.0, 13.0, 0.0, 0.0]);
    assert_eq!(zeros[10..20], [0.0; 10]);
    let edges = tile("simdgroup_async_copy_clamp_mode::clamp_to_edge");
    assert_eq!(edges[5..15], [11.0, 12.0, 13.0, 13.0, 13.0, 11.0, 12.0, 13.0, 13.0, 13.0]);
    // Back to device memory, by the function.
    let out = clean(
        32,
        "tile[lane] = 2 * x[lane]; simdgroup_barrier(mem_flags::mem_threadgroup);
         events[0] = simdgroup_async_copy(out, tile, 32); wait_simdgroup_events(1, events);",
    );
    assert_eq!((out[0], out[31], out[32]), (2.0, 64.0, 0.0));
}

#[test]
fn other_simd_groups_see_a_copy_behind_the_wait_and_a_barrier() {
    let body = |order: &str| {
        format!(
            "if (simd == 0) {{ events[0].async_copy(tile, x, 64); {} }} {}
             out[at] = tile[63 - at];",
            if order == "wait, barrier" { "simdgroup_event::wait(1, events);" } else { "" },
            match order {
                "wait, barrier" => "threadgroup_barrier(mem_flags::mem_threadgroup);",
                _ =>
                    "threadgroup_barrier(mem_flags::mem_threadgroup);
                     if (simd == 0) { simdgroup_event::wait(1, events); }",
            }
        )
    };
    assert_eq!(clean(64, &body("wait, barrier"))[0], 64.0);
    // The barrier orders what came before it. The copy is complete at the wait, which the others do not see.
    let found = finding(64, &body("barrier, wait"));
    assert!(found.contains("race: read of threadgroup memory `tile`"), "{found}");
}

#[test]
fn accesses_between_a_copy_and_its_wait_are_races() {
    let wait = "simdgroup_event::wait(1, events);";
    // Of the destination, also by the lane that copies the element, and behind any barrier.
    for order in [
        "",
        "simdgroup_barrier(mem_flags::mem_threadgroup);",
        "threadgroup_barrier(mem_flags::mem_threadgroup);",
    ] {
        for access in ["out[lane] = tile[lane];", "tile[lane] = 1;"] {
            let found = finding(32, &format!("events[0].async_copy(tile, x, 32); {order} {access} {wait}"));
            assert!(found.contains("`tile` while an asynchronous copy writes it"), "{found}");
            assert!(found.contains("the copy's write") && found.contains("staged.metal:6"), "{found}");
        }
    }
    // Writing the source; reading it is not one.
    let found = finding(32, &format!("events[0].async_copy(tile, x, 32); x[lane] = 0; {wait}"));
    assert!(found.contains("`x` while an asynchronous copy reads it"), "{found}");
    clean(32, &format!("events[0].async_copy(tile, x, 32); out[lane] = x[lane]; {wait}"));
    // Two copies to one place.
    let found = finding(
        32,
        "events[0].async_copy(tile, x, 32); events[1].async_copy(tile, x, 32); simdgroup_event::wait(2, events);",
    );
    assert!(found.contains("write of threadgroup memory `tile` while"), "{found}");
    // The wait for one event is not the wait for the other.
    let two = "events[0].async_copy(tile, x, 32); events[1].async_copy(tile + 32, x, 32); ";
    clean(32, &format!("{two} {wait} out[lane] = tile[lane]; simdgroup_event::wait(2, events);"));
    let found =
        finding(32, &format!("{two} {wait} out[lane] = tile[32 + lane]; simdgroup_event::wait(2, events);"));
    assert!(found.contains("`tile` while"), "{found}");
}

#[test]
fn a_copy_needs_its_wait_and_all_lanes() {
    let (report, ..) = run(32, "events[0].async_copy(tile, x, 32);");
    let kinds = |report: &Report| report.findings.iter().map(|found| found.kind.clone()).collect::<Vec<_>>();
    assert!(matches!(kinds(&report)[..], [FindingKind::CopyNotAwaited { .. }]), "{report:?}");
    let (report, ..) =
        run(32, "if (lane < 16) { events[0].async_copy(tile, x, 32); simdgroup_event::wait(1, events); }");
    assert!(matches!(kinds(&report)[0], FindingKind::DivergentBarrier { .. }), "{report:?}");
    // Waiting for an event without a copy is allowed.
    clean(32, "simdgroup_event::wait(2, events); out[lane] = x[lane];");
}

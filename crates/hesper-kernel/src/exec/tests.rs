//! The executor against the interpreter on random kernels.

use super::*;
use crate::interp::{self, FindingKind};
use crate::ir::Kernel;
use crate::launch::{Arg, Bindings, Launch};
use crate::testing::{GROUP, random_kernel};

fn input() -> Vec<u8> {
    let special = [0.0f32, -0.0, 1.5, -2.25, 1e30, -1e-30, f32::INFINITY, 3.0];
    (0..64).flat_map(|i| (special[i % 8] + i as f32).to_le_bytes()).collect()
}

/// Output and histogram of a launch.
fn launch(threads: u64, run: impl FnOnce(&mut Bindings<'_>, &Launch)) -> (Vec<u8>, Vec<u8>) {
    let input = input();
    let mut output = vec![0u8; threads as usize * 16];
    let mut histogram = vec![0u8; 64];
    let args = vec![Arg::read(&input), Arg::write(&mut output), Arg::write(&mut histogram)];
    let mut bindings = Bindings::new(args).unwrap();
    run(&mut bindings, &Launch::linear(threads, GROUP).unwrap());
    (output, histogram)
}

fn interpreted(kernel: &Kernel, threads: u64) -> (Vec<u8>, Vec<u8>) {
    launch(threads, |b, l| {
        interp::run(kernel, l, b, &interp::Options::default()).unwrap();
    })
}

/// Whether the sanitizer finds a write out of bounds.
fn has_bad_write(kernel: &Kernel, threads: u64) -> bool {
    let mut found = false;
    launch(threads, |b, l| {
        let options = interp::Options { max_findings: usize::MAX, ..interp::Options::checked() };
        let report = interp::run(kernel, l, b, &options).unwrap();
        found = report.findings.iter().any(|finding| match &finding.kind {
            FindingKind::OutOfBounds { access, .. } => access.writes(),
            _ => false,
        });
    });
    found
}

/// The memory after a launch. The launch must fail exactly if it drops a write (`drops`, if known).
fn executed(kernel: &Kernel, level: SimdLevel, threads: u64, drops: Option<bool>) -> (Vec<u8>, Vec<u8>) {
    let program = Program::compile_for(kernel, level).unwrap();
    launch(threads, |b, l| match program.run(b, l, &Cancel::new()) {
        Ok(()) => assert_ne!(drops, Some(true), "a dropped write was not noticed\n{kernel}"),
        Err(ExecError::Dropped(found)) => assert_ne!(drops, Some(false), "{found}\n{kernel}"),
        Err(error) => panic!("{error}"),
    })
}

/// Whether two words agree, taking all NaNs (of f32 and f16) for equal.
fn same_word(a: u32, b: u32) -> bool {
    let nan = |x: u32| f32::from_bits(x).is_nan() || (x as u16 & 0x7fff) > 0x7c00;
    a == b || (nan(a) && nan(b))
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
}

fn assert_same(seed: u64, what: &str, want: &(Vec<u8>, Vec<u8>), got: &(Vec<u8>, Vec<u8>), kernel: &Kernel) {
    let (w, g) = (words(&want.0), words(&got.0));
    for (i, (w, g)) in w.iter().zip(&g).enumerate() {
        assert!(
            same_word(*w, *g),
            "seed {seed}, {what}: thread {} word {}: {w:#x} {g:#x}\n{kernel}",
            i / 4,
            i % 4
        );
    }
    assert_eq!(want.1, got.1, "seed {seed}, {what}: histogram");
}

#[test]
fn random_kernels_give_the_interpreters_results_at_every_level() {
    for seed in 0..1500 {
        let kernel = random_kernel(seed);
        let threads = [1, 31, 48, 100, 250][seed as usize % 5];
        let want = interpreted(&kernel, threads);
        // The sanitizer is slow.
        let drops = seed.is_multiple_of(12).then(|| has_bad_write(&kernel, threads));
        for level in SimdLevel::all().into_iter().filter(|l| l.is_available()) {
            let got = executed(&kernel, level, threads, drops);
            assert_same(seed, &format!("{level:?}"), &want, &got, &kernel);
        }
    }
}

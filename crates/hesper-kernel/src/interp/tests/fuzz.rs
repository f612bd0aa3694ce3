//! Random kernels run without panics, give the same results in both modes, and cause no false findings.

use super::*;
use crate::testing::{GROUP, Random, random_kernel};

const THREADS: u64 = 100;

fn input() -> Vec<u8> {
    let xs: Vec<f32> = (0..64).map(|i| (i as f32 - 20.0) * 0.37).collect();
    bytes(&xs, f32::to_ne_bytes)
}

fn outcome(k: &Kernel, options: &Options<'_>) -> (Vec<u8>, Vec<u8>, Result<Report, RunError>) {
    let input = input();
    let mut output = vec![0; THREADS as usize * 16];
    let mut histogram = vec![0; 64];
    let args = vec![Data::In(&input), Data::Out(&mut output), Data::Out(&mut histogram)];
    let report = run_with(k, linear(THREADS, GROUP), args, options);
    (output, histogram, report)
}

#[test]
fn random_kernels_run_alike_checked_and_unchecked_and_never_race() {
    let mut interesting = 0;
    for seed in 0..300 {
        let k = random_kernel(seed);
        let (a, b, _) = outcome(&k, &Options::default());
        let (c, d, report) = outcome(&k, &Options::checked());
        assert!(a == c && b == d, "seed {seed}\n{k}");
        for f in report.unwrap().findings {
            let fine = matches!(
                f.kind,
                FindingKind::OutOfBounds { .. }
                    | FindingKind::InactiveLane { .. }
                    | FindingKind::DivisionByZero { .. }
                    | FindingKind::Uninitialised { .. }
            );
            assert!(fine, "seed {seed}: {f}\n{k}");
        }
        interesting += usize::from(a.iter().any(|&x| x != 0));
    }
    assert!(interesting > 150, "only {interesting} kernels do anything");
}

#[test]
fn damaged_kernels_are_refused_or_run_but_never_panic() {
    let options = Options { max_iterations: 2000, ..Options::checked() };
    let (mut refused, mut ran) = (0, 0);
    for seed in 0..400 {
        let mut k = random_kernel(seed % 40);
        let mut r = Random::new(seed + 1000);
        for _ in 0..1 + r.below(3) {
            damage(&mut k, &mut r);
        }
        // Printing must survive, too.
        assert!(!k.to_string().is_empty());
        match outcome(&k, &options).2 {
            Err(RunError::Kernel(_)) => refused += 1,
            _ => ran += 1,
        }
    }
    assert!(refused > 50 && ran > 50, "{refused} refused, {ran} ran");
}

/// Changes one thing about a kernel, well formed or not.
fn damage(k: &mut Kernel, r: &mut Random) {
    let block = r.below(k.blocks.len());
    let n = k.blocks[block].insts.len();
    if n == 0 {
        return;
    }
    let (i, j) = (r.below(n), r.below(n));
    match r.below(6) {
        0 => k.blocks[block].insts.swap(i, j),
        1 => {
            k.blocks[block].insts.remove(i);
        }
        2 => {
            let copy = k.blocks[block].insts[j];
            k.blocks[block].insts[i].op = copy.op;
        }
        3 => {
            let v = r.below(k.values.len());
            let w = r.below(k.values.len());
            k.values[v].ty = k.values[w].ty;
        }
        4 => {
            let v = ValueId(r.below(k.values.len() + 2) as u32);
            let inst = &mut k.blocks[block].insts[i];
            match &mut inst.op {
                Op::Unary(_, a) | Op::Convert(a) => *a = v,
                Op::Binary(_, a, _) | Op::Compare(_, a, _) => *a = v,
                Op::Load { ptr, .. } | Op::Store { ptr, .. } => *ptr = v,
                Op::If { cond, .. } => *cond = v,
                _ => inst.result = Some(v),
            }
        }
        _ => {
            let to = BlockId(r.below(k.blocks.len() + 1) as u32);
            match &mut k.blocks[block].insts[i].op {
                Op::If { then, .. } => *then = to,
                Op::Loop { body, .. } => *body = to,
                op => *op = Op::Break,
            }
        }
    }
}

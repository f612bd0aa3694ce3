//! The whole corpus on the fast executor: at every SIMD level, on two threads, against the
//! references and against the reference interpreter.

use crate::support;
use hesper_corpus::{Case, cases, run_cases};
use hesper_kernel::exec::{Cancel, Program, SimdLevel};
use hesper_kernel::ir::Kernel;

/// Two threads that take tasks in turn.
fn two_threads(n: usize, f: &(dyn Fn(usize) + Sync)) {
    std::thread::scope(|s| {
        for t in 0..2 {
            s.spawn(move || (t..n).step_by(2).for_each(f));
        }
    });
}

/// Compiles a case and runs it on the executor.
fn run_at(case: &Case, level: SimdLevel, parallel: bool) -> Result<Vec<Vec<u8>>, String> {
    run_with(case, parallel, &|kernel| Program::compile_for(kernel, level).map_err(|e| e.to_string()))
}

/// Runs a case as `compile` compiles it.
fn run_with(
    case: &Case,
    parallel: bool,
    compile: &dyn Fn(&Kernel) -> Result<Program, String>,
) -> Result<Vec<Vec<u8>>, String> {
    support::run_bound(case, |kernel, launch, bindings| {
        let (program, cancel) = (compile(kernel)?, Cancel::new());
        let outcome = if parallel {
            program.run_parallel(&bindings, launch, &cancel, &two_threads)
        } else {
            program.run(&bindings, launch, &cancel)
        };
        outcome.map_err(|e| e.to_string())
    })
}

#[test]
fn every_kernel_of_the_corpus_computes_its_reference_at_every_level() {
    for level in SimdLevel::all().into_iter().filter(|l| l.is_available()) {
        let report = run_cases(&cases(), &mut |c: &Case| run_at(c, level, false));
        assert!(report.is_clean(), "{level:?}: {report}");
    }
}

#[test]
fn every_kernel_of_the_corpus_computes_its_reference_on_two_threads() {
    let report = run_cases(&cases(), &mut |c: &Case| run_at(c, SimdLevel::detect(), true));
    assert!(report.is_clean(), "{report}");
}

#[test]
fn kernels_without_atomics_give_the_interpreters_bytes() {
    let mut wrong = Vec::new();
    for case in cases() {
        let uses_atomics =
            case.atomic_outputs || case.source.contains("atomic") || case.header.contains("atomic");
        if uses_atomics {
            continue;
        }
        let want = support::run(&case).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let got = run_at(&case, SimdLevel::detect(), false).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        for (i, (w, g)) in want.iter().zip(&got).enumerate() {
            if let Some(at) = w.iter().zip(g).position(|(w, g)| w != g) {
                wrong.push(format!("{}: output {i} differs from byte {at}", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn kernels_that_become_machine_code_give_the_bytecodes_bytes() {
    use std::cell::Cell;
    for level in crate::jit::levels() {
        let mut compiled = 0;
        for case in cases() {
            let became = Cell::new(false);
            let got = run_with(&case, false, &|kernel| {
                let program = Program::compile_for(kernel, level).map_err(|e| e.to_string())?;
                became.set(program.is_machine_code());
                if became.get() { Ok(program) } else { Err("bytecode".into()) }
            });
            if !became.get() {
                println!("{level:?}: {} stays bytecode", case.name);
                continue;
            }
            compiled += 1;
            let want = run_with(&case, false, &|kernel| {
                Program::compile_bytecode(kernel, level).map_err(|e| e.to_string())
            });
            assert_eq!(want, got, "{} at {level:?}", case.name);
        }
        println!("{level:?}: {compiled} kernels are machine code");
        assert!(compiled >= 10, "only {compiled} kernels became machine code");
    }
}

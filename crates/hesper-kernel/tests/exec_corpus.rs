//! The whole corpus on the fast executor: at every SIMD level, on two threads, against the
//! references and against the reference interpreter.

mod support;

use hesper_corpus::{Case, cases, run_cases};
use hesper_kernel::custom::Binding;
use hesper_kernel::exec::{Cancel, Program, SimdLevel};
use hesper_kernel::ir::Kernel;
use hesper_kernel::launch::{Arg, Bindings, Launch};

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
    let mut case = case.clone();
    for i in &mut case.inputs {
        if i.array.strides.iter().any(|s| *s < 0) {
            i.array = i.array.contiguous();
        }
    }
    let special = support::compile(&case)?;
    let inputs = case.bound_inputs();
    let shapes: Vec<Vec<u8>> =
        inputs.iter().map(|a| a.shape.iter().flat_map(|n| (*n as i32).to_le_bytes()).collect()).collect();
    let strides: Vec<Vec<u8>> =
        inputs.iter().map(|a| a.strides.iter().flat_map(|n| (*n).to_le_bytes()).collect()).collect();
    let ndims: Vec<[u8; 4]> = inputs.iter().map(|a| (a.shape.len() as i32).to_le_bytes()).collect();
    let mut outputs: Vec<Vec<u8>> = (0..case.outputs.len()).map(|i| case.initial_output(i, 0)).collect();
    let mut free: Vec<Option<&mut Vec<u8>>> = outputs.iter_mut().map(Some).collect();
    let mut args = Vec::new();
    for b in &special.bindings {
        args.push(match b {
            Binding::Input(i) => {
                Arg::read(&inputs[*i].storage[inputs[*i].offset * inputs[*i].dtype.size()..])
            }
            Binding::Shape(i) => Arg::read(&shapes[*i]),
            Binding::Strides(i) => Arg::read(&strides[*i]),
            Binding::Ndim(i) => Arg::read(&ndims[*i]),
            Binding::Output(i) => Arg::write(free[*i].take().ok_or("an output is bound twice")?),
        });
    }
    let bindings = Bindings::new(args).map_err(|e| e.to_string())?;
    let three = |v: [usize; 3]| v.map(|x| x as u64);
    let launch = Launch::new(three(case.grid), three(case.threadgroup)).map_err(|e| e.to_string())?;
    let program = compile(&special.kernel)?;
    let cancel = Cancel::new();
    if parallel {
        program.run_parallel(&bindings, &launch, &cancel, &two_threads).map_err(|e| e.to_string())?;
    } else {
        program.run(&bindings, &launch, &cancel).map_err(|e| e.to_string())?;
    }
    drop(bindings);
    Ok(outputs)
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
    let wanted = std::env::var_os("HESPER_JIT").is_none_or(|v| v != "0");
    let native = cfg!(all(target_arch = "x86_64", any(unix, windows), not(miri)));
    for level in [SimdLevel::Avx2, SimdLevel::Avx512] {
        if !(wanted && native && level.is_available()) {
            continue;
        }
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

//! Accesses out of range on the CPU: reads give zero, writes are dropped and fail the launch, neighbours stay
//! untouched.

use hesper_corpus::outside::{GROUP, Outside, THREADS, indices, outside_cases};
use hesper_kernel::bounds::Violation;
use hesper_kernel::custom::{Binding, CallInfo, CustomKernel, InputInfo, KernelDtype, Specialised};
use hesper_kernel::exec::{Cancel, ExecError, Program, SimdLevel};
use hesper_kernel::interp::{self, FindingKind};
use hesper_kernel::ir::{Kernel, Scalar};
use hesper_kernel::launch::{Arg, Bindings, Launch};

/// Bytes on both sides of an output.
const GUARD: usize = 4096;
const BYTES: usize = THREADS * 4;

fn specialise(case: &Outside) -> Specialised {
    let outputs = ["out", "other"];
    let kernel = CustomKernel::new(
        case.name,
        &["x", "indices"],
        &outputs,
        case.source,
        case.header,
        true,
        case.atomic,
    );
    let input = |s| InputInfo { dtype: KernelDtype::Scalar(s), ndim: 1, size: THREADS as u64 };
    let call = CallInfo {
        inputs: vec![input(Scalar::F32), input(Scalar::I32)],
        template: Vec::new(),
        output_dtypes: vec![KernelDtype::Scalar(Scalar::F32); 2],
    };
    kernel.unwrap().specialise(&call).unwrap()
}

/// Runs a kernel over outputs between guard bytes, which must not change; gives the outputs.
fn run<T>(special: &Specialised, f: impl FnOnce(&mut Bindings<'_>, &Launch) -> T) -> ([Vec<u8>; 2], T) {
    let x: Vec<u8> = (0..THREADS).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let at: Vec<u8> = indices().iter().flat_map(|i| i.to_le_bytes()).collect();
    let mut memory = vec![0xabu8; 3 * GUARD + 2 * BYTES];
    let (first, second) = memory.split_at_mut(GUARD + BYTES + GUARD / 2);
    let outputs = [&mut first[GUARD..GUARD + BYTES], &mut second[GUARD / 2..GUARD / 2 + BYTES]];
    let mut outputs = outputs.map(|output| {
        output.fill(0);
        Some(output)
    });
    let args = special.bindings.iter().map(|binding| match *binding {
        Binding::Input(0) => Arg::read(&x),
        Binding::Input(_) => Arg::read(&at),
        Binding::Output(i) => Arg::write(outputs[i].take().unwrap()),
        _ => Arg::read(&[]),
    });
    let mut bindings = Bindings::new(args.collect()).unwrap();
    let launch = Launch::linear(THREADS as u64, GROUP as u64).unwrap();
    let outcome = f(&mut bindings, &launch);
    drop(bindings);
    let starts = [GUARD, 2 * GUARD + BYTES];
    let outputs = starts.map(|start| memory[start..start + BYTES].to_vec());
    for start in starts {
        memory[start..start + BYTES].fill(0xab);
    }
    assert!(memory.iter().all(|byte| *byte == 0xab), "a neighbour was written");
    (outputs, outcome)
}

type Compile = Box<dyn Fn(&Kernel) -> Program>;

fn executors() -> Vec<(String, Compile)> {
    let mut all: Vec<(String, Compile)> = Vec::new();
    for level in SimdLevel::all().into_iter().filter(|level| level.is_available()) {
        all.push((
            format!("bytecode at {level:?}"),
            Box::new(move |k| Program::compile_bytecode(k, level).unwrap()),
        ));
        all.push((
            format!("the best code at {level:?}"),
            Box::new(move |k| Program::compile_for(k, level).unwrap()),
        ));
    }
    all
}

#[test]
fn every_kind_of_access_out_of_range_is_harmless_and_writes_are_reported() {
    let mut machine_code = 0;
    for case in outside_cases() {
        let special = specialise(&case);
        let (want, _) = run(&special, |bindings, launch| {
            interp::run(&special.kernel, launch, bindings, &interp::Options::default()).unwrap()
        });
        let (_, report) = run(&special, |bindings, launch| {
            interp::run(&special.kernel, launch, bindings, &interp::Options::checked()).unwrap()
        });
        let found = |writes: bool| {
            report.findings.iter().any(|finding| match &finding.kind {
                FindingKind::OutOfBounds { access, .. } => access.writes() == writes,
                _ => false,
            })
        };
        assert_eq!(found(true), case.fails.is_some(), "{}: {report:?}", case.name);
        for (name, compile) in executors() {
            let program = compile(&special.kernel);
            machine_code += usize::from(program.is_machine_code());
            let (outputs, outcome) = run(&special, |b, launch| program.run(b, launch, &Cancel::new()));
            assert_eq!(outputs, want, "{} by {name}", case.name);
            let text = match (&outcome, case.fails) {
                (Ok(()), None) => continue,
                (Err(ExecError::Dropped(violation)), Some(_)) => violation.to_string(),
                _ => panic!("{} by {name}: {outcome:?}", case.name),
            };
            let (place, memory) = case.fails.unwrap();
            for part in [case.name, place, memory] {
                assert!(text.contains(part), "{} by {name}: no {part:?} in {text}", case.name);
            }
            // Again, and then ignoring dropped writes.
            let (again, repeated) = run(&special, |b, launch| program.run(b, launch, &Cancel::new()));
            assert_eq!((again, repeated), (outputs, outcome), "{} by {name}", case.name);
            let program = program.ignore_dropped_writes();
            let (outputs, outcome) = run(&special, |b, launch| program.run(b, launch, &Cancel::new()));
            assert_eq!((outputs, outcome), (want.clone(), Ok(())), "{} by {name}", case.name);
        }
    }
    let wanted = !crate::jit::levels().is_empty();
    assert!(machine_code > 4 || !wanted, "{machine_code} kernels were machine code");
}

#[test]
fn a_write_through_a_null_pointer_names_its_address_space() {
    for (space, memory) in [("device", "device"), ("threadgroup", "threadgroup"), ("thread", "thread")] {
        let source = format!(
            "{space} float* nowhere = nullptr;\nif (indices[0] > 99) {{ nowhere = nullptr; }}\n*nowhere = x[0];\nout[0] = 1;\nother[0] = 1;"
        );
        let kernel =
            CustomKernel::new("null", &["x", "indices"], &["out", "other"], &source, "", true, false);
        let input = |s| InputInfo { dtype: KernelDtype::Scalar(s), ndim: 1, size: THREADS as u64 };
        let call = CallInfo {
            inputs: vec![input(Scalar::F32), input(Scalar::I32)],
            template: Vec::new(),
            output_dtypes: vec![KernelDtype::Scalar(Scalar::F32); 2],
        };
        let special = kernel.unwrap().specialise(&call).unwrap();
        let wanted = format!("write through a null pointer to {memory} memory");
        for (name, compile) in executors() {
            let program = compile(&special.kernel);
            let (_, outcome) = run(&special, |b, launch| program.run(b, launch, &Cancel::new()));
            let text = outcome.unwrap_err().to_string();
            assert!(text.contains(&wanted), "{space} by {name}: {text}");
        }
        // The report of a GPU's launch: the number of the instruction, and object 0.
        let found = (1..1000).find_map(|number| Violation::reported(&special.kernel, &[number, 0, 0, 0]));
        assert!(found.unwrap().to_string().contains(&wanted), "{space}");
    }
}

#[test]
fn the_failure_of_the_first_task_is_reported_in_any_order() {
    let case = outside_cases().into_iter().find(|case| case.name == "write_past_the_end").unwrap();
    let kernel = specialise(&case).kernel;
    let program = Program::compile(&kernel).unwrap();
    let n = 200_000u64;
    let launch = Launch::linear(n, 64).unwrap();
    let (x, at) = (vec![0u8; 4 * n as usize], vec![0u8; BYTES]);
    let backwards = |count: usize, body: &(dyn Fn(usize) + Sync)| (0..count).rev().for_each(body);
    let mut texts = Vec::new();
    for len in [400_000, 400_000, 0] {
        let (mut out, mut other) = (vec![0u8; len], vec![0u8; 4 * n as usize]);
        let parameters = kernel.params.iter().map(|p| p.name.as_str()).collect::<Vec<_>>();
        let mut buffers = [Some(Arg::write(&mut out)), Some(Arg::write(&mut other))];
        let args = parameters.iter().map(|name| match *name {
            "x" => Arg::read(&x),
            "indices" => Arg::read(&at),
            "out" => buffers[0].take().unwrap(),
            _ => buffers[1].take().unwrap(),
        });
        let bindings = Bindings::new(args.collect()).unwrap();
        let outcome = program.run_parallel(&bindings, &launch, &Cancel::new(), &backwards);
        texts.push(outcome.unwrap_err().to_string());
    }
    assert_eq!(texts[0], texts[1]);
    assert!(texts[0].contains("index 100000 of 100000"), "{}", texts[0]);
    assert!(texts[2].contains("index 1 of 0"), "{}", texts[2]);
}

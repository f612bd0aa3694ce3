//! Metal text on the reference interpreter: printed, parsed by the front end and run, with and without bounds, it gives
//! the bytes of the kernel that it was printed from.

// The helpers of these tests are tests themselves.
#![allow(clippy::unwrap_used)]

#[path = "support/samples.rs"]
mod samples;
mod support;

use hesper_corpus::{Case, cases};
use hesper_kernel::bounds::Violation;
use hesper_kernel::front::compile_file;
use hesper_kernel::interp::{self, FindingKind};
use hesper_kernel::ir::*;
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_kernel::metal::{EmitError, MetalSource, Options, Slot, emit};
use hesper_kernel::testing::{GROUP, random_kernel};
use samples::{THREADS, build, is_nan, packed, samples};

const PLAIN: Options = Options { bounds: false, zero_memory: true };
const BOUNDED: Options = Options { bounds: true, zero_memory: true };

/// The printed text as a kernel.
fn parsed(source: &MetalSource) -> Kernel {
    let compiled = compile_file("printed.metal", &source.text);
    let mut compiled = compiled.unwrap_or_else(|e| panic!("{e}\n{}", source.text));
    assert_eq!(compiled.kernels.len(), 1, "{}", source.text);
    compiled.kernels.remove(0)
}

fn interpret(kernel: &Kernel, launch: &Launch, args: Vec<Arg<'_>>, checked: bool) -> Result<(), String> {
    let options = interp::Options { checked, ..interp::Options::default() };
    let mut bindings = Bindings::new(args).map_err(|e| e.to_string())?;
    let report = interp::run(kernel, launch, &mut bindings, &options).map_err(|e| e.to_string())?;
    match report.findings.first() {
        Some(finding) => Err(format!("{finding}")),
        None => Ok(()),
    }
}

/// Runs the printed text of a kernel over its arguments; the report of dropped writes.
fn round_trip(
    kernel: &Kernel,
    options: &Options,
    launch: &Launch,
    args: Vec<Arg<'_>>,
    checked: bool,
) -> Result<[u64; 4], String> {
    let source = emit(kernel, options).map_err(|e| e.to_string())?;
    let printed = parsed(&source);
    let lengths: Vec<u8> = source
        .slots
        .iter()
        .filter_map(|slot| if let Slot::Buffer(i) = slot { Some(args[*i as usize].len()) } else { None })
        .flat_map(u64::to_le_bytes)
        .collect();
    let mut report = [0u8; 32];
    let mut args: Vec<Option<Arg<'_>>> = args.into_iter().map(Some).collect();
    let mut report_arg = Some(Arg::write(&mut report));
    let bound = source
        .slots
        .iter()
        .map(|slot| match *slot {
            Slot::Buffer(i) | Slot::Value(i) => args[i as usize].take().unwrap(),
            Slot::Lengths => Arg::read(&lengths),
            Slot::Report => report_arg.take().unwrap(),
        })
        .collect();
    interpret(&printed, launch, bound, checked).map_err(|e| format!("{e}\n{}", source.text))?;
    Ok(std::array::from_fn(|i| u64::from_le_bytes(std::array::from_fn(|k| report[8 * i + k]))))
}

/// Runs a kernel and its text in both modes over copies of `memory`, which has a part for each parameter.
fn agree(kernel: &Kernel, launch: &Launch, memory: &[Vec<u8>], same: &dyn Fn(&[u8], &[u8]) -> bool) {
    let writes = |i: usize| match kernel.params[i].kind {
        ParamKind::Buffer { access, .. } => access.writes(),
        ParamKind::Value(_) => false,
    };
    let with = |run: &dyn Fn(Vec<Arg<'_>>) -> Result<(), String>| {
        let mut memory = memory.to_vec();
        let args = memory.iter_mut().enumerate();
        let args = args.map(|(i, m)| if writes(i) { Arg::write(m) } else { Arg::read(m) }).collect();
        run(args).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
        memory
    };
    let want = with(&|args| interpret(kernel, launch, args, false));
    for options in [PLAIN, BOUNDED] {
        let got = with(&|args| round_trip(kernel, &options, launch, args, false).map(|_| ()));
        for (i, (want, got)) in want.iter().zip(&got).enumerate() {
            if !same(want, got) {
                let at = want.iter().zip(got).position(|(w, g)| w != g);
                let text = emit(kernel, &options).unwrap().text;
                panic!("{}: {}: byte {at:?} differs with {options:?}\n{text}", kernel.name, kernel.params[i].name);
            }
        }
    }
}

/// One operation, all NaNs being equal; false where the IR has no such operation.
fn check(types: &[Scalar], op: &dyn Fn(&mut Builder, &[ValueId]) -> ValueId) -> bool {
    let Some((kernel, out)) = build(types, false, op) else {
        return false;
    };
    let mut memory: Vec<Vec<u8>> =
        types.iter().enumerate().map(|(k, &s)| packed(s, &samples(s, k as u64))).collect();
    let size = out.size() as usize;
    memory.push(vec![0; THREADS * size]);
    let launch = Launch::linear(THREADS as u64, 64).unwrap();
    agree(&kernel, &launch, &memory, &|want, got| {
        want.chunks(size).zip(got.chunks(size)).all(|(w, g)| w == g || (is_nan(out, w) && is_nan(out, g)))
    });
    true
}

fn scalars() -> impl Iterator<Item = Scalar> {
    Scalar::ALL.into_iter().filter(|s| *s != Scalar::F64)
}

#[test]
fn operations_of_one_and_two_operands_agree() {
    let mut done = 0;
    for s in scalars() {
        for &op in UnaryOp::ALL {
            done += usize::from(check(&[s], &|b, x| b.unary(op, x[0])));
        }
        for &op in BinaryOp::ALL {
            done += usize::from(check(&[s, op.right(s)], &|b, x| b.binary(op, x[0], x[1])));
        }
    }
    assert!(done > 350, "only {done} combinations exist");
}

#[test]
fn operations_of_three_operands_comparisons_and_choices_agree() {
    for s in scalars() {
        for &op in TernaryOp::ALL {
            check(&[s, s, s], &|b, x| b.ternary(op, x[0], x[1], x[2]));
        }
        for &op in CmpOp::ALL {
            check(&[s, s], &|b, x| b.compare(op, x[0], x[1]));
        }
        assert!(check(&[Scalar::Bool, s, s], &|b, x| b.select(x[0], x[1], x[2])));
    }
}

#[test]
fn conversions_and_bitcasts_agree() {
    for from in scalars() {
        for to in scalars().filter(|&t| t != from) {
            assert!(check(&[from], &|b, x| b.convert(x[0], to)), "{from} to {to}");
            if from.size() == to.size() && from != Scalar::Bool && to != Scalar::Bool {
                assert!(check(&[from], &|b, x| b.bitcast(x[0], to.into())), "{from} to {to}");
            }
        }
    }
    for (part, lanes) in [(Scalar::U8, 4), (Scalar::I16, 2), (Scalar::F16, 2)] {
        check(&[Scalar::U32], &|b, x| {
            let v = b.bitcast(x[0], Type::Vec(part, lanes));
            b.extract(v, lanes - 1)
        });
        check(&[part, part], &|b, x| {
            let parts: Vec<ValueId> = (0..lanes as usize).map(|i| x[i % 2]).collect();
            let v = b.compose(&parts);
            b.bitcast(v, Type::U32)
        });
    }
}

#[test]
fn operations_of_groups_agree() {
    use ShuffleKind::*;
    for group in [Group::Simd, Group::Quad] {
        for s in scalars() {
            for &op in ReduceOp::ALL {
                check(&[s], &|b, x| b.group_reduce(group, op, x[0]));
            }
            for (op, inclusive) in [(ReduceOp::Sum, true), (ReduceOp::Product, false)] {
                check(&[s], &|b, x| b.group_scan(group, op, inclusive, x[0]));
            }
            check(&[s], &|b, x| b.group_broadcast_first(group, x[0]));
            for kind in [Lane, Up, Down, Xor, RotateUp, RotateDown] {
                check(&[s, Scalar::I16], &|b, x| b.group_shuffle(group, kind, x[0], x[1]));
            }
        }
        let bool = Scalar::Bool;
        assert!(check(&[bool], &|b, x| b.group_ballot(group, x[0])));
        assert!(check(&[bool], &|b, x| b.group_all(group, x[0])));
        assert!(check(&[bool], &|b, x| b.group_any(group, x[0])));
        assert!(check(&[bool], &|b, _| b.group_is_first(group)));
        assert!(check(&[bool], &|b, _| b.group_active_mask(group)));
    }
}

#[test]
fn random_kernels_agree() {
    let input: Vec<u8> = (0..64).flat_map(|i| (i as f32 * 0.75 - 9.0).to_le_bytes()).collect();
    for seed in 0..60 {
        let kernel = random_kernel(seed);
        let threads = 2 * GROUP + 19;
        let launch = Launch::linear(threads, GROUP).unwrap();
        let memory = [input.clone(), vec![0; threads as usize * 16], vec![0; 64]];
        agree(&kernel, &launch, &memory, &|want, got| want == got);
    }
}

/// The arguments of a case again.
fn rebound<'a>(bindings: &'a Bindings<'a>) -> Vec<Arg<'a>> {
    let again = |arg: &Arg<'_>| {
        // SAFETY: the same memory under the same conditions; nothing else uses it while `bindings` is borrowed.
        unsafe { Arg::from_raw(arg.ptr(), arg.len(), arg.is_writable()) }
    };
    bindings.args().iter().map(again).collect()
}

#[test]
fn the_text_of_every_kernel_of_the_corpus_gives_the_kernels_bytes() {
    let mut wrong = Vec::new();
    let mut done = 0;
    for case in cases() {
        let want = support::run(&case).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        for (options, checked) in [(PLAIN, true), (PLAIN, false), (BOUNDED, false)] {
            let clean = || support::run_with(&case, &interp::Options::checked()).is_ok();
            if checked && !clean() {
                continue;
            }
            let got = support::run_bound(&case, |kernel, launch, bindings| {
                let report = round_trip(kernel, &options, launch, rebound(&bindings), checked)?;
                if report == [0; 4] { Ok(()) } else { Err(format!("a write was dropped: {report:?}")) }
            });
            match got {
                Ok(got) if got == want => done += 1,
                Ok(_) => wrong.push(format!("{} {options:?}: the bytes differ", case.name)),
                Err(e) => wrong.push(format!("{} {options:?} checked {checked}: {e}", case.name)),
            }
        }
    }
    println!("{done} runs agree");
    let shown: Vec<String> = wrong.iter().map(|w| w.chars().take(1500).collect()).collect();
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), shown.join("\n"));
}

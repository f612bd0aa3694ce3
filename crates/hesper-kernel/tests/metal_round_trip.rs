//! Metal text on the reference interpreter: printed, parsed by the front end and run, with and without
//! bounds, it gives the bytes of the kernel that it was printed from.

// The helpers of these tests are tests themselves.

use crate::samples::{THREADS, build, is_nan, packed, samples};
use crate::support;
use hesper_corpus::cases;
use hesper_kernel::bounds::Violation;
use hesper_kernel::front::compile_file;
use hesper_kernel::interp::{self, FindingKind};
use hesper_kernel::ir::*;
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_kernel::metal::{EmitError, MetalSource, Options, Slot, emit};
use hesper_kernel::testing::{GROUP, Random, random_kernel};

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
    let mut constants = Vec::new();
    for (arg, param) in args.iter().zip(&kernel.params) {
        if matches!(param.kind, ParamKind::Value(_)) {
            // SAFETY: the argument borrows these bytes, and nothing writes them.
            constants.extend_from_slice(unsafe { std::slice::from_raw_parts(arg.ptr(), arg.len() as usize) });
            constants.resize(constants.len().next_multiple_of(8), 0);
        }
    }
    for (arg, param) in args.iter().zip(&kernel.params) {
        if matches!(param.kind, ParamKind::Buffer { .. }) && options.bounds {
            constants.extend(arg.len().to_le_bytes());
        }
    }
    let mut report = [0u8; 32];
    let mut args: Vec<Option<Arg<'_>>> = args.into_iter().map(Some).collect();
    let mut report_arg = Some(Arg::write(&mut report));
    let bound = source
        .slots
        .iter()
        .map(|slot| match *slot {
            Slot::Buffer(i) => args[i as usize].take().unwrap(),
            Slot::Constants => Arg::read(&constants),
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
                panic!(
                    "{}: {}: byte {at:?} differs with {options:?}\n{text}",
                    kernel.name, kernel.params[i].name
                );
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
    let mut done = 0;
    for seed in 0..24 {
        let kernel = random_kernel(seed);
        if matches!(emit(&kernel, &PLAIN), Err(EmitError::Double { .. })) {
            continue;
        }
        done += 1;
        let threads = 2 * GROUP + 19;
        let launch = Launch::linear(threads, GROUP).unwrap();
        let memory = [input.clone(), vec![0; threads as usize * 16], vec![0; 64]];
        agree(&kernel, &launch, &memory, &|want, got| want == got);
    }
    assert!(done > 5, "only {done} kernels have no f64");
}

/// Functions of f32 that compute in f64, which Metal does in integers.
#[test]
fn functions_that_compute_in_f64_agree_on_many_operands() {
    use {BinaryOp as B, UnaryOp as U};
    let count = 160;
    let mut random = Random::new(7);
    let mut floats = |exponents: u32| -> Vec<u8> {
        let mut bits = || {
            let bits = random.next() as u32;
            // Half of them near one, where functions are not constant.
            let exponent = 127 - exponents / 2 + (bits >> 23 & 0xff) % exponents;
            if bits & 1 == 0 { bits } else { bits & 0x807f_ffff | exponent << 23 }
        };
        (0..count).flat_map(|_| bits().to_le_bytes()).collect()
    };
    let unary = [
        U::Exp10,
        U::Expm1,
        U::Log2,
        U::Log10,
        U::Log1p,
        U::Sinh,
        U::Cosh,
        U::Asinh,
        U::Acosh,
        U::Atanh,
        U::Cbrt,
        U::Sin,
        U::Tan,
        U::SinPi,
        U::CosPi,
        U::TanPi,
        U::Asin,
        U::Acos,
        U::Atan,
        U::Erfc,
        U::ErfInv,
        U::Lgamma,
    ];
    let binary = [B::Pow, B::Atan2, B::IeeeRem, B::Rem, B::Hypot];
    let same = |want: &[u8], got: &[u8]| {
        let nan = |x: &[u8]| is_nan(Scalar::F32, x);
        want.chunks(4).zip(got.chunks(4)).all(|(w, g)| w == g || (nan(w) && nan(g)))
    };
    let launch = Launch::linear(count, 256).unwrap();
    let mut run = |arity: usize, op: &dyn Fn(&mut Builder, &[ValueId]) -> ValueId| {
        let (kernel, _) = build(&vec![Scalar::F32; arity], false, op).unwrap();
        let mut memory: Vec<Vec<u8>> = (0..arity).map(|_| floats(12)).collect();
        memory.push(vec![0; count as usize * 4]);
        agree(&kernel, &launch, &memory, &same);
    };
    for op in unary {
        run(1, &|b, x| b.unary(op, x[0]));
    }
    for op in binary {
        run(2, &|b, x| b.binary(op, x[0], x[1]));
    }
}

/// A kernel of the dialect.
fn kernel(text: &str) -> Kernel {
    compile_file("test.metal", text).unwrap_or_else(|e| panic!("{e}")).kernels.remove(0)
}

#[test]
fn lanes_that_leave_loops_early_take_no_part_in_sums() {
    let kernel = kernel(
        "kernel void divergent(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            float total = 0;
            for (uint n = 0; n < 9; n++) {
                if (n > i % 7) break;
                if ((n & 1) == 1) {
                    if (i == 13) return;
                    if (simd_sum(1u) > 9) continue;
                }
                total += simd_sum(float(n) * 0.1f) + simd_prefix_inclusive_sum(0.3f) + quad_sum(0.7f);
            }
            y[i] = total + simd_max(total);
        }",
    );
    let launch = Launch::linear(75, 48).unwrap();
    agree(&kernel, &launch, &[vec![0; 75 * 4]], &|want, got| want == got);
}

#[test]
fn a_write_out_of_range_is_dropped_and_reported() {
    let kernel = kernel(
        "kernel void beyond(device float* y [[buffer(0)]], device const float* x [[buffer(1)]],
                            uint i [[thread_position_in_grid]]) {
            y[i] = x[i + 4] + 1;
        }",
    );
    let launch = Launch::linear(6, 32).unwrap();
    let (mut y, x) = (vec![0u8; 5 * 4], vec![0u8; 6 * 4]);
    let args = vec![Arg::write(&mut y), Arg::read(&x)];
    let report = round_trip(&kernel, &BOUNDED, &launch, args, true).unwrap();
    let violation = Violation::reported(&kernel, &report).unwrap();
    assert!(
        matches!(&violation.kind, FindingKind::OutOfBounds { memory, offset: 20, .. } if memory.name == "y"),
        "{violation}"
    );
    assert!(y.chunks(4).all(|v| v == 1f32.to_le_bytes()), "reads beyond give zero: {y:?}");
}

#[test]
fn the_dialect_has_specialisations_by_the_result() {
    let kernel = kernel(
        "template <class T> T limited(float x) { return T(x); }
         template <> uchar limited(float x) { return uchar(x > 9 ? 9 : x); }
         kernel void k(device float* y [[buffer(0)]]) { y[0] = limited<uchar>(70.0f) + limited<int>(3.5f); }",
    );
    let mut y = vec![0u8; 4];
    interpret(&kernel, &Launch::linear(1, 1).unwrap(), vec![Arg::write(&mut y)], true).unwrap();
    assert_eq!(y, 12f32.to_le_bytes());
}

/// A second check of types, address spaces and declarations: clang, with declarations in place of Metal's
/// library.
#[test]
fn clang_accepts_the_texts_where_it_is_installed() {
    use std::process::{Command, Stdio};
    if Command::new("clang").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("clang is not installed");
        return;
    }
    let mut texts: Vec<String> = Vec::new();
    for options in [PLAIN, BOUNDED] {
        for case in cases() {
            texts.push(emit(&support::compile(&case).unwrap().kernel, &options).unwrap().text);
        }
        texts.extend((0..10).filter_map(|seed| Some(emit(&random_kernel(seed), &options).ok()?.text)));
    }
    for s in [Scalar::F32, Scalar::BF16, Scalar::I64] {
        let one = |op: UnaryOp| build(&[s], false, &|b, x| b.unary(op, x[0]));
        let two = |op: BinaryOp| build(&[s, op.right(s)], false, &|b, x| b.binary(op, x[0], x[1]));
        let kernels = UnaryOp::ALL
            .iter()
            .filter_map(|op| one(*op))
            .chain(BinaryOp::ALL.iter().filter_map(|op| two(*op)));
        texts.extend(kernels.map(|(kernel, _)| emit(&kernel, &PLAIN).unwrap().text));
    }
    let shim = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/shim");
    for text in texts {
        // A C++ function holds no variable of another address space, but for static ones.
        let mut text = text.replace("  threadgroup uint4 ", "  static threadgroup uint4 ");
        for vector in ["uchar2", "uchar4", "ushort2", "ushort4", "uint2", "uint4", "ulong2"] {
            text = text.replace(&format!("{vector}("), &format!("make<{vector}>("));
        }
        let mut clang = Command::new("clang")
            .args([
                "-fsyntax-only",
                "-target",
                "arm64-apple-macos",
                "-std=c++14",
                "-nostdinc",
                "-I",
                shim,
                "-x",
                "c++",
                "-",
            ])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut clang.stdin.take().unwrap(), text.as_bytes()).unwrap();
        let out = clang.wait_with_output().unwrap();
        assert!(out.status.success(), "{}\n{text}", String::from_utf8_lossy(&out.stderr));
    }
}

/// The arguments of a case again.
fn rebound<'a>(bindings: &'a Bindings<'a>) -> Vec<Arg<'a>> {
    let again = |arg: &Arg<'_>| {
        // SAFETY: the same memory under the same conditions; nothing else uses it while `bindings` is
        // borrowed.
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
        // The sanitizer is for kernels that it finds nothing in.
        let clean = support::run_with(&case, &interp::Options::checked()).is_ok();
        for (options, checked) in [(PLAIN, clean), (BOUNDED, false)] {
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

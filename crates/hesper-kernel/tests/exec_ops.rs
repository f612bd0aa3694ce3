//! Every operation on every type that has it, on the executor at every SIMD level, against the
//! reference interpreter, bit for bit (all NaNs count as equal).

// The helpers of these tests are tests themselves.

use crate::samples::{THREADS, build, is_nan, packed, samples};
use hesper_kernel::exec::{Cancel, Program, SimdLevel};
use hesper_kernel::interp;
use hesper_kernel::ir::*;
use hesper_kernel::launch::{Arg, Bindings, Launch};

fn check(name: &str, types: &[Scalar], op: &dyn Fn(&mut Builder, &[ValueId]) -> ValueId) -> bool {
    for uniform in [false, true] {
        let Some((kernel, out)) = build(types, uniform, op) else {
            return false;
        };
        let inputs: Vec<Vec<u8>> =
            types.iter().enumerate().map(|(k, &s)| packed(s, &samples(s, k as u64))).collect();
        let launch = Launch::linear(THREADS as u64, 64).unwrap();
        let run = |f: &dyn Fn(&mut Bindings<'_>)| {
            let mut y = vec![0u8; THREADS * out.size() as usize];
            let mut args: Vec<Arg<'_>> = inputs.iter().map(|x| Arg::read(x)).collect();
            args.push(Arg::write(&mut y));
            f(&mut Bindings::new(args).unwrap());
            y
        };
        let want = run(&|b| {
            interp::run(&kernel, &launch, b, &interp::Options::default()).unwrap();
        });
        for level in SimdLevel::all().into_iter().filter(|l| l.is_available()) {
            let program = Program::compile_for(&kernel, level).unwrap();
            let got = run(&|b| program.run(b, &launch, &Cancel::new()).unwrap());
            let size = out.size() as usize;
            for (i, (w, g)) in want.chunks(size).zip(got.chunks(size)).enumerate() {
                let same = w == g || (is_nan(out, w) && is_nan(out, g));
                let bits: Vec<String> = types
                    .iter()
                    .enumerate()
                    .map(|(k, &s)| format!("{:#x}", samples(s, k as u64)[i]))
                    .collect();
                assert!(
                    same,
                    "{name} of {types:?} at {level:?}, uniform {uniform}: {bits:?} gives {g:x?}, not {w:x?}"
                );
            }
        }
    }
    true
}

#[test]
fn one_operand_operations_agree() {
    let mut done = 0;
    for &op in UnaryOp::ALL {
        for s in Scalar::ALL {
            done += usize::from(check(&format!("{op:?}"), &[s], &|b, x| b.unary(op, x[0])));
        }
    }
    assert!(done > 200, "only {done} combinations exist");
}

#[test]
fn two_operand_operations_agree() {
    let mut done = 0;
    for &op in BinaryOp::ALL {
        for s in Scalar::ALL {
            let types = [s, op.right(s)];
            done += usize::from(check(&format!("{op:?}"), &types, &|b, x| b.binary(op, x[0], x[1])));
        }
    }
    assert!(done > 200, "only {done} combinations exist");
}

#[test]
fn three_operand_operations_and_comparisons_agree() {
    for s in Scalar::ALL {
        for &op in TernaryOp::ALL {
            check(&format!("{op:?}"), &[s, s, s], &|b, x| b.ternary(op, x[0], x[1], x[2]));
        }
        for &op in CmpOp::ALL {
            check(&format!("{op:?}"), &[s, s], &|b, x| b.compare(op, x[0], x[1]));
        }
        check("select", &[Scalar::Bool, s, s], &|b, x| b.select(x[0], x[1], x[2]));
    }
    // A product and a sum in one pass, both ways round.
    let f = Scalar::F32;
    check("a*b+c", &[f, f, f], &|b, x| {
        let p = b.mul(x[0], x[1]);
        b.add(p, x[2])
    });
    check("c-a*b", &[f, f, f], &|b, x| {
        let p = b.mul(x[0], x[1]);
        b.sub(x[2], p)
    });
    check("a*b-c", &[f, f, f], &|b, x| {
        let p = b.mul(x[0], x[1]);
        b.sub(p, x[2])
    });
}

#[test]
fn conversions_and_bitcasts_agree() {
    for from in Scalar::ALL {
        for to in Scalar::ALL.into_iter().filter(|&t| t != from) {
            assert!(check("convert", &[from], &|b, x| b.convert(x[0], to)), "{from} to {to}");
            if from.size() == to.size() && from != Scalar::Bool && to != Scalar::Bool {
                assert!(check("bitcast", &[from], &|b, x| b.bitcast(x[0], to.into())), "{from} to {to}");
            }
        }
    }
    // Across sizes: four bytes of a word, two halves of it, and back.
    for (part, lanes) in [(Scalar::U8, 4), (Scalar::I16, 2), (Scalar::F16, 2)] {
        check("split", &[Scalar::U32], &|b, x| {
            let v = b.bitcast(x[0], Type::Vec(part, lanes));
            b.extract(v, lanes - 1)
        });
        check("join", &[part, part], &|b, x| {
            let parts: Vec<ValueId> = (0..lanes as usize).map(|i| x[i % 2]).collect();
            let v = b.compose(&parts);
            b.bitcast(v, Type::U32)
        });
    }
}

#[test]
fn operations_of_groups_agree() {
    for s in Scalar::ALL {
        for group in [Group::Simd, Group::Quad] {
            for &op in ReduceOp::ALL {
                check(&format!("reduce {op:?}"), &[s], &|b, x| b.group_reduce(group, op, x[0]));
                for inclusive in [false, true] {
                    check(&format!("scan {op:?}"), &[s], &|b, x| b.group_scan(group, op, inclusive, x[0]));
                }
            }
            check("first", &[s], &|b, x| b.group_broadcast_first(group, x[0]));
            for kind in [
                ShuffleKind::Lane,
                ShuffleKind::Up,
                ShuffleKind::Down,
                ShuffleKind::Xor,
                ShuffleKind::RotateUp,
                ShuffleKind::RotateDown,
            ] {
                for by in [Scalar::U32, Scalar::I32, Scalar::U16, Scalar::I16] {
                    check(&format!("{kind:?}"), &[s, by], &|b, x| b.group_shuffle(group, kind, x[0], x[1]));
                }
            }
        }
    }
    for group in [Group::Simd, Group::Quad] {
        let bool = Scalar::Bool;
        assert!(check("ballot", &[bool], &|b, x| b.group_ballot(group, x[0])));
        assert!(check("all", &[bool], &|b, x| b.group_all(group, x[0])));
        assert!(check("any", &[bool], &|b, x| b.group_any(group, x[0])));
        assert!(check("is first", &[bool], &|b, _| b.group_is_first(group)));
        assert!(check("active", &[bool], &|b, _| b.group_active_mask(group)));
    }
}

//! Machine code against the bytecode: the same bytes from every straight-line kernel, whatever
//! its layout, length, alignment and bounds; and the kernels that stay bytecode.

use crate::jit::{assert_same, floats, levels, map, programs, run_map, try_map};
use hesper_kernel::exec::{Cancel, ExecError, Program};
use hesper_kernel::ir::*;
use hesper_kernel::launch::{Arg, Bindings, Launch};

#[test]
fn values_beyond_the_registers_live_in_memory() {
    // All terms are computed before the first is used, with and without calls between them.
    for call in [false, true] {
        let kernel = map(Type::F32, Type::F32, |b, x| {
            let terms: Vec<ValueId> = (0..70)
                .map(|i| {
                    let k = b.f32(i as f32 * 0.25 + 0.5);
                    let t = b.mul(x, k);
                    if call && i % 16 == 0 { b.unary(UnaryOp::Tanh, t) } else { t }
                })
                .collect();
            let mut sum = terms[69];
            for (i, t) in terms.iter().enumerate() {
                sum = if i % 3 == 0 { b.sub(sum, *t) } else { b.add(sum, *t) };
                let product = b.mul(terms[(i * 31) % 70], *t);
                sum = b.binary(BinaryOp::Max, sum, product);
            }
            sum
        });
        let launch = Launch::linear(999, 64).unwrap();
        for level in levels() {
            let (native, bytecode) = programs(&kernel, level);
            let want = run_map(&bytecode, &floats(999), 999 * 4, &launch);
            let got = run_map(&native, &floats(999), 999 * 4, &launch);
            assert_eq!(want, got, "{level:?}, calls {call}");
        }
    }
}

#[test]
fn every_bit_pattern_of_the_16_bit_floats_survives_a_copy() {
    let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let launch = Launch::linear(1 << 16, 256).unwrap();
    for ty in [Type::F16, Type::BF16] {
        let copy = map(ty, ty, |_, x| x);
        let back = map(ty, ty, |b, x| {
            let wide = b.convert(x, Scalar::F32);
            b.convert(wide, ty.scalar().unwrap())
        });
        for level in levels() {
            assert_eq!(run_map(&programs(&copy, level).0, &all, all.len(), &launch), all, "{ty} {level:?}");
            let (native, bytecode) = programs(&back, level);
            let want = run_map(&bytecode, &all, all.len(), &launch);
            let got = run_map(&native, &all, all.len(), &launch);
            assert_same(ty.scalar().unwrap(), &want, &got, &|| format!("{ty} {level:?}"));
        }
    }
}

#[test]
fn every_rounding_to_16_bits_is_the_bytecodes() {
    // All upper halves with lower halves around the ties.
    let bits = (0..=u16::MAX).flat_map(|h| {
        [0u32, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001].map(|l| u32::from(h) << 16 | l)
    });
    let input: Vec<u8> = bits.flat_map(u32::to_le_bytes).collect();
    let n = input.len() / 4;
    let launch = Launch::linear(n as u64, 256).unwrap();
    for to in [Scalar::F16, Scalar::BF16, Scalar::I32, Scalar::U32, Scalar::I8, Scalar::U16] {
        let kernel = map(Type::F32, to.into(), |b, x| b.convert(x, to));
        for level in levels() {
            let (native, bytecode) = programs(&kernel, level);
            let want = run_map(&bytecode, &input, n * to.size() as usize, &launch);
            let got = run_map(&native, &input, n * to.size() as usize, &launch);
            assert_same(to, &want, &got, &|| format!("f32 to {to} at {level:?}"));
        }
    }
}

#[test]
fn large_outputs_are_complete_at_every_alignment() {
    // Beyond 16 MiB stores go past the caches, which asks for aligned addresses.
    let bytes = 17 << 20;
    let period = floats(1001);
    let input = period.repeat(2 * bytes / period.len() + 1);
    let mut memory = vec![0u8; bytes + 128];
    let byte = Type::Scalar(Scalar::U8);
    for (from, to) in
        [(Type::F32, Type::F32), (Type::F32, Type::BF16), (byte, Type::BOOL), (Type::F32, Type::F64)]
    {
        let kernel = map(from, to, |b, x| {
            let y = b.add(x, x);
            b.convert(y, to.scalar().unwrap())
        });
        let n = bytes / to.size() as usize;
        let launch = Launch::linear(n as u64, 1024).unwrap();
        let input = &input[..n * from.size() as usize];
        for level in levels() {
            let (native, bytecode) = programs(&kernel, level);
            let few = (period.len() as u64) / from.size();
            let once = few as usize * to.size() as usize;
            let once = run_map(&bytecode, &period, once, &Launch::linear(few, 64).unwrap());
            let want = once.repeat(bytes / once.len() + 1);
            for shift in [0, 4, 61] {
                memory.fill(0xee);
                let out = &mut memory[shift..shift + bytes];
                let bindings = Bindings::new(vec![Arg::read(input), Arg::write(out)]).unwrap();
                native.run(&bindings, &launch, &Cancel::new()).unwrap();
                drop(bindings);
                let what = format!("{from} to {to} at {level:?}, shifted by {shift}");
                assert!(memory[shift..shift + bytes] == want[..bytes], "{what}");
                let outside = [&memory[..shift], &memory[shift + bytes..]].concat();
                assert!(outside.iter().all(|&b| b == 0xee), "{what}");
            }
        }
    }
}

#[test]
fn a_buffer_updated_in_place_gets_each_thread_its_own_value() {
    let build = |ahead: i64| {
        let mut b = Builder::new("in_place");
        let p = b.buffer("p", Space::Device, Type::F32, Access::ReadWrite);
        let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
        let i = b.convert(i, Scalar::I64);
        let by = b.i64(ahead);
        let j = b.add(i, by);
        let x = b.load_index(p, j, Type::F32);
        let one = b.f32(1.0);
        let y = b.add(x, one);
        b.store_index(p, i, y);
        b.finish().unwrap()
    };
    // In place; from the other half; from the neighbour, which another thread may have written.
    for ahead in [0, 500, 1] {
        let kernel = build(ahead);
        for level in levels() {
            let (native, bytecode) = programs(&kernel, level);
            let run = |p: &Program| {
                let mut data = floats(1000);
                let bindings = Bindings::new(vec![Arg::write(&mut data)]).unwrap();
                let launch = Launch::linear(500, 64).unwrap();
                p.run(&bindings, &launch, &Cancel::new()).unwrap();
                drop(bindings);
                data
            };
            assert_eq!(run(&bytecode), run(&native), "{ahead} ahead, {level:?}");
        }
    }
}

#[test]
fn vectors_of_a_buffer_are_split_into_their_components() {
    let ty = Type::Vec(Scalar::F32, 4);
    let kernel = map(ty, ty, |b, x| {
        let y = b.shuffle(x, &[3, 0, 2, 1]);
        let p = b.mul(x, y);
        b.add(p, y)
    });
    for level in levels() {
        let (native, bytecode) = programs(&kernel, level);
        // The last vector lies partly outside: it reads zero and is not written.
        for (n, size) in [(100, 100 * 16), (37, 37 * 16), (9, 9 * 16 - 4)] {
            let input = &floats(400)[..size];
            let launch = Launch::linear(n, 32).unwrap();
            let want = try_map(&bytecode, input, size, &launch);
            assert_eq!(want, try_map(&native, input, size, &launch), "{n} vectors at {level:?}");
            assert_eq!(want.1.is_err(), !size.is_multiple_of(16), "{:?}", want.1);
        }
    }
}

#[test]
fn pairs_of_floats_are_taken_where_they_lie() {
    // y[i] = (x[a i + c].y - x[i].x, x[i].y * x[a i + c].x), in a buffer of its own or in place.
    let ty = Type::Vec(Scalar::F32, 2);
    let build = |step: i64, ahead: i64, in_place: bool| {
        let mut b = Builder::new("pairs");
        let src = b.buffer("src", Space::Device, ty, Access::Read);
        let dst = b.buffer("dst", Space::Device, ty, Access::ReadWrite);
        let i = b.builtin64(Builtin::ThreadPositionInGrid, 0);
        let i = b.convert(i, Scalar::I64);
        let (by, more) = (b.i64(step), b.i64(ahead));
        let j = b.mul(i, by);
        let j = b.add(j, more);
        let u = b.load_index(if in_place { dst } else { src }, i, ty);
        let v = b.load_index(src, j, ty);
        let crossed = b.shuffle(v, &[1, 0]);
        let (difference, product) = (b.sub(crossed, u), b.mul(u, crossed));
        let x = b.extract(difference, 0);
        let y = b.extract(product, 1);
        let z = b.compose(&[x, y]);
        b.store_index(dst, i, z);
        b.finish().unwrap()
    };
    for (step, ahead, in_place) in [(1, 0, false), (1, 3, true), (2, 1, true), (-1, 70, false), (1, 60, true)]
    {
        let kernel = build(step, ahead, in_place);
        for level in levels() {
            let (native, bytecode) = programs(&kernel, level);
            for n in [1, 7, 15, 16, 17, 33, 48, 70, 600] {
                let run = |p: &Program| {
                    let (input, mut output) = (floats(160), floats(1200));
                    let bindings = Bindings::new(vec![Arg::read(&input), Arg::write(&mut output)]).unwrap();
                    p.run(&bindings, &Launch::linear(n, 64).unwrap(), &Cancel::new()).unwrap();
                    drop(bindings);
                    output
                };
                assert_eq!(run(&bytecode), run(&native), "{step} {ahead} {in_place}, {n} at {level:?}");
            }
        }
    }
}

#[test]
fn many_short_rows_of_every_length_give_the_bytecodes_bytes() {
    // z[r, c] = cast(x[r, c] + column[r]) + row[c], with a function called and without.
    let build = |to: Scalar, call: bool| {
        let mut b = Builder::new("rows");
        let x = b.buffer("x", Space::Device, Type::F32, Access::Read);
        let small = b.buffer("small", Space::Device, Type::F32, Access::Read);
        let z = b.buffer("z", Space::Device, Type::Scalar(to), Access::ReadWrite);
        let [c, r, p] = [0, 1, 2].map(|axis| {
            let at = b.builtin64(Builtin::ThreadPositionInGrid, axis);
            b.convert(at, Scalar::I64)
        });
        let [nx, ny] = [0, 1].map(|axis| {
            let n = b.builtin64(Builtin::ThreadsPerGrid, axis);
            b.convert(n, Scalar::I64)
        });
        let plane = b.mul(p, ny);
        let row = b.add(plane, r);
        let before = b.mul(row, nx);
        let linear = b.add(before, c);
        let u = b.load_index(x, linear, Type::F32);
        let column = b.load_index(small, row, Type::F32);
        let along = b.load_index(small, c, Type::F32);
        let sum = b.add(u, column);
        let sum = if call { b.unary(UnaryOp::Tanh, sum) } else { sum };
        let sum = b.add(sum, along);
        let sum = b.convert(sum, to);
        b.store_index(z, linear, sum);
        b.finish().unwrap()
    };
    for (to, call) in [
        (Scalar::F32, false),
        (Scalar::F16, false),
        (Scalar::I8, false),
        (Scalar::I16, false),
        (Scalar::F32, true),
    ] {
        let kernel = build(to, call);
        for level in levels() {
            let (native, bytecode) = programs(&kernel, level);
            for nx in (1..=35).chain([47, 64, 65, 129]) {
                let grid = [nx, 5, 3];
                let count = (nx * 15) as usize;
                // No byte to spare in what is read, some in what is written.
                let run = |p: &Program| {
                    let (x, small) = (floats(count), floats(129));
                    let mut z = vec![7u8; count * to.size() as usize + 64];
                    let args = vec![Arg::read(&x), Arg::read(&small), Arg::write(&mut z)];
                    let bindings = Bindings::new(args).unwrap();
                    let launch = Launch::new(grid, [nx, 1, 1]).unwrap();
                    p.run_parallel(&bindings, &launch, &Cancel::new(), &|n, f| (0..n).for_each(f)).unwrap();
                    drop(bindings);
                    z
                };
                assert_eq!(run(&bytecode), run(&native), "{to:?} rows of {nx} at {level:?}");
            }
        }
    }
}

#[test]
fn short_rows_whose_third_axis_counts_through_several_axes_give_the_bytecodes_bytes() {
    // out[z, y, c] += x[strides . (z % 3, z / 3 % 2, z / 6, y, c)] + column[y]. With `shared`, `x` is `out`.
    let build = |shared: bool, column: bool| {
        let mut b = Builder::new("axes");
        let out = b.buffer("out", Space::Device, Type::F32, Access::ReadWrite);
        let x = if shared { out } else { b.buffer("x", Space::Device, Type::F32, Access::Read) };
        let values: Vec<ValueId> =
            (0..7).map(|i| b.value_param(format!("n{i}"), Type::Scalar(Scalar::I64))).collect();
        let [c, y, z] = [0, 1, 2].map(|axis| {
            let at = b.builtin64(Builtin::ThreadPositionInGrid, axis);
            b.convert(at, Scalar::I64)
        });
        let first = b.binary(BinaryOp::Rem, z, values[0]);
        let rest = b.div(z, values[0]);
        let second = b.binary(BinaryOp::Rem, rest, values[1]);
        let third = b.div(rest, values[1]);
        let mut index = b.add(values[2], c);
        for (position, stride) in [first, second, third, y].into_iter().zip(&values[3..]) {
            let step = b.mul(position, *stride);
            index = b.add(index, step);
        }
        let [nx, ny] = [0, 1].map(|axis| {
            let n = b.builtin64(Builtin::ThreadsPerGrid, axis);
            b.convert(n, Scalar::I64)
        });
        let plane = b.mul(z, ny);
        let row = b.add(plane, y);
        let before = b.mul(row, nx);
        let linear = b.add(before, c);
        let old = b.load_index(out, linear, Type::F32);
        let mut sum = b.load_index(x, index, Type::F32);
        if column && !shared {
            let own = b.load_index(x, row, Type::F32);
            sum = b.add(sum, own);
        }
        let sum = b.add(sum, old);
        b.store_index(out, linear, sum);
        b.finish().unwrap()
    };
    for (shared, column) in [(false, false), (false, true), (true, false)] {
        let kernel = build(shared, column);
        for level in levels() {
            let (native, bytecode) = programs(&kernel, level);
            for nx in [8, 16, 33, 64] {
                // Two lengths of axes, the offset, the strides. The last rows of the third and fourth lie
                // outside of what is read.
                let n = nx as i64;
                for (grid, values) in [
                    ([nx, 2, 12], [3, 2, 0, 2 * n, 6 * n, 12 * n, n]),
                    ([nx, 2, 13], [3, 2, 18 * n, -2 * n, n, 0, 7]),
                    ([nx, 4, 12], [3, 2, 0, 4 * n, 12 * n, 48 * n, n]),
                    ([nx, 1, 12], [1, 6, -n, n, 0, 3 * n, 0]),
                ] {
                    let run = |p: &Program| {
                        let threads = grid.iter().product::<u64>() as usize;
                        let (x, mut out) = (floats(24 * nx as usize), floats(threads));
                        let bytes = values.map(|value: i64| value.to_le_bytes());
                        let mut args = vec![Arg::write(&mut out)];
                        if !shared {
                            args.push(Arg::read(&x));
                        }
                        args.extend(bytes.iter().map(|value| Arg::read(value)));
                        let bindings = Bindings::new(args).unwrap();
                        let launch = Launch::new(grid, [nx, 1, 1]).unwrap();
                        // Tasks that begin in the middle of the grid.
                        let parallel = |n: usize, f: &(dyn Fn(usize) + Sync)| (0..n).rev().for_each(f);
                        p.run_parallel(&bindings, &launch, &Cancel::new(), &parallel).unwrap();
                        drop(bindings);
                        out
                    };
                    let what = format!("{grid:?} {values:?} shared {shared} column {column} at {level:?}");
                    // Threads have no order: in one buffer each has to read what it writes.
                    if !shared || values[3..] == [2 * n, 6 * n, 12 * n, n] {
                        assert_eq!(run(&bytecode), run(&native), "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn indices_that_wrap_around_their_type_are_left_to_the_bytecode() {
    let mut b = Builder::new("wrap");
    let src = b.buffer("src", Space::Device, Type::F32, Access::Read);
    let dst = b.buffer("dst", Space::Device, Type::F32, Access::ReadWrite);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let far = b.u32(u32::MAX - 49);
    let j = b.add(i, far);
    let x = b.load_index(src, j, Type::F32);
    b.store_index(dst, i, x);
    let kernel = b.finish().unwrap();
    let launch = Launch::linear(100, 64).unwrap();
    for level in levels() {
        let (native, _) = programs(&kernel, level);
        let got = run_map(&native, &floats(100), 400, &launch);
        assert_eq!(got[..200], [0; 200], "{level:?}");
        assert_eq!(got[200..], floats(100)[..200], "{level:?}");
    }
}

#[test]
fn kernels_that_are_not_straight_lines_stay_bytecode() {
    let mut b = Builder::new("loop");
    let dst = b.buffer("dst", Space::Device, Type::U32, Access::ReadWrite);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let (zero, one) = (b.u32(0), b.u32(1));
    let v = b.var_init("v", zero);
    b.for_range(zero, i, one, |b, j| {
        let at = b.get(v);
        let sum = b.add(at, j);
        b.set(v, sum);
    });
    let sum = b.get(v);
    b.store_index(dst, i, sum);
    let looping = b.finish().unwrap();

    let gather = map(Type::U32, Type::U32, |b, x| {
        let p = b.param_ptr(0);
        b.load_index(p, x, Type::U32)
    });

    let mut b = Builder::new("grouped");
    let dst = b.buffer("dst", Space::Device, Type::U32, Access::ReadWrite);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let j = b.builtin(Builtin::ThreadIndexInThreadgroup, 0);
    b.store_index(dst, i, j);
    let grouped = b.finish().unwrap();

    for kernel in [looping, gather, grouped] {
        assert!(!Program::compile(&kernel).unwrap().is_machine_code(), "{kernel}");
    }
}

/// The number of memory mappings of this process; 0 if the system does not list them.
fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count())
}

#[test]
fn machine_code_counts_and_goes_with_its_program() {
    let kernel = map(Type::F32, Type::F32, |b, x| b.unary(UnaryOp::Exp, x));
    for level in levels() {
        let (native, bytecode) = programs(&kernel, level);
        assert!(native.size_bytes() >= bytecode.size_bytes() + 4096);
        let before = mappings();
        for _ in 0..500 {
            drop(Program::compile_for(&kernel, level).unwrap());
        }
        assert!(mappings() < before + 400, "code outlives its program");
        assert!(Program::compile_for(&kernel, level).unwrap().is_machine_code());
    }
}

#[test]
fn the_environment_switches_machine_code_off() {
    const CHILD: &str = "HESPER_JIT_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let kernel = map(Type::F32, Type::F32, |b, x| b.add(x, x));
        assert!(!Program::compile(&kernel).unwrap().is_machine_code());
        return;
    }
    let test = "exec_jit::the_environment_switches_machine_code_off";
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env(CHILD, "1")
        .env("HESPER_JIT", "0")
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

#[test]
fn a_launch_of_machine_code_can_be_cancelled() {
    let kernel = map(Type::F32, Type::F32, |b, x| b.add(x, x));
    for level in levels() {
        let (native, _) = programs(&kernel, level);
        let (x, mut y) = (floats(1000), vec![0u8; 4000]);
        let bindings = Bindings::new(vec![Arg::read(&x), Arg::write(&mut y)]).unwrap();
        let cancel = Cancel::new();
        cancel.cancel();
        let launch = Launch::linear(1000, 64).unwrap();
        let r = native.run(&bindings, &launch, &cancel);
        assert_eq!(r, Err(ExecError::Cancelled("map".into())));
    }
}

/// `y[r, c] = x[r, c] * 2` for the threads that a condition on their position lets through.
fn guarded(form: usize) -> Kernel {
    let mut b = Builder::new("guarded");
    let src = b.buffer("src", Space::Device, Type::F32, Access::Read);
    let dst = b.buffer("dst", Space::Device, Type::F32, Access::ReadWrite);
    let (w, h) = (b.value_param("w", Type::U32), b.value_param("h", Type::U32));
    let [c, r] = [0, 1].map(|axis| b.builtin(Builtin::ThreadPositionInGrid, axis));
    let width = b.builtin(Builtin::ThreadsPerGrid, 0);
    let row = b.mul(r, width);
    let i = b.add(row, c);
    let body = |b: &mut Builder| {
        let x = b.load_index(src, i, Type::F32);
        let y = b.add(x, x);
        b.store_index(dst, i, y);
    };
    let left = |b: &mut Builder, from_right: bool| {
        let far = b.sub(w, c);
        let far = b.convert(far, Scalar::I32);
        let two = b.i32(2);
        if from_right { b.compare(CmpOp::Le, far, two) } else { b.compare(CmpOp::Gt, two, far) }
    };
    match form {
        0 | 1 => {
            let out = if form == 0 { b.compare(CmpOp::Ge, c, w) } else { left(&mut b, true) };
            b.if_(out, |b| b.return_());
            body(&mut b);
        }
        2 | 3 => {
            let inside = if form == 2 { b.compare(CmpOp::Le, c, w) } else { left(&mut b, false) };
            b.if_(inside, body);
        }
        4 => {
            let (x, y) = (b.compare(CmpOp::Ge, c, w), b.compare(CmpOp::Ge, r, h));
            let out = b.binary(BinaryOp::Or, x, y);
            b.if_(out, |b| b.return_());
            body(&mut b);
        }
        5 => {
            let (x, y) = (b.compare(CmpOp::Lt, c, w), b.compare(CmpOp::Lt, h, r));
            let inside = b.binary(BinaryOp::And, x, y);
            b.if_(inside, body);
        }
        _ => {
            let any = b.compare(CmpOp::Gt, w, h);
            let none = b.unary(UnaryOp::Not, any);
            b.if_(none, |b| b.return_());
            let x = b.compare(CmpOp::Gt, h, c);
            b.if_(x, body);
        }
    }
    b.finish().unwrap()
}

#[test]
fn threads_that_their_position_leaves_out_store_nothing() {
    for form in 0..7 {
        let kernel = guarded(form);
        for level in levels() {
            let (native, bytecode) = programs(&kernel, level);
            for (grid, w, h) in [
                ([100, 1, 1], 100u32, 1u32),
                ([100, 1, 1], 77, 3),
                ([100, 1, 1], 0, 0),
                ([100, 1, 1], u32::MAX, 0),
                ([37, 9, 1], 20, 5),
                ([37, 9, 1], 1000, 8),
                ([1, 9, 1], 1, 2),
            ] {
                let launch = Launch::new(grid, [16, 1, 1]).unwrap();
                let n: u64 = grid.iter().product();
                let run = |program: &Program| {
                    let (x, mut y) = (floats(n as usize), vec![0x11u8; n as usize * 4]);
                    let (w, h) = (w.to_le_bytes(), h.to_le_bytes());
                    let args = vec![Arg::read(&x), Arg::write(&mut y), Arg::read(&w), Arg::read(&h)];
                    program.run(&Bindings::new(args).unwrap(), &launch, &Cancel::new()).unwrap();
                    y
                };
                assert_eq!(run(&bytecode), run(&native), "form {form}, {grid:?}, {w} by {h}, {level:?}");
            }
        }
    }
}

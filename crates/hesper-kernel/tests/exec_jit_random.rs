//! Machine code against the bytecode: random straight-line kernels of all types, layouts, lengths,
//! alignments and bounds, and every conversion.

use crate::jit;
use crate::jit::{assert_same, levels, map, programs, run_map};
use hesper_kernel::exec::Cancel;
use hesper_kernel::interp;
use hesper_kernel::ir::*;
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_kernel::testing::Random;

/// Bits of a type: special values and random ones.
fn sample(s: Scalar, r: &mut Random) -> u64 {
    let special = [
        0.0f32,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -2.5,
        3.5,
        1e-8,
        1e30,
        -1e38,
        1e-42,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        65504.0,
        65520.0,
        2147483648.0,
        4294967296.0,
        -2147483648.0,
        127.5,
        -129.0,
    ];
    let doubles = [
        0.0f64,
        -0.0,
        1.0,
        -1.5,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        5e-324,
        1e-310,
        1e300,
        -1e19,
        9.223372036854775e18,
        9223372036854775808.0,
        18446744073709551616.0,
        4294967295.9,
        4294967296.0,
        -2147483648.9,
        2147483647.5,
        65519.99999999999,
        1.0000000596046448,
        0.49999999999999994,
    ];
    let x = r.pick(&special);
    let raw = r.next();
    let plain = (r.below(2000) as f32 - 1000.0) / 64.0;
    match (r.below(3), s) {
        (_, Scalar::Bool) => raw & 1,
        (0, Scalar::F64) => r.pick(&doubles).to_bits(),
        (1, Scalar::F64) => f64::from(plain).to_bits(),
        (0, Scalar::F32) => u64::from(x.to_bits()),
        (0, Scalar::F16) => u64::from(half::f16::from_f32(x).to_bits()),
        (0, Scalar::BF16) => u64::from(half::bf16::from_f32(x).to_bits()),
        (1, Scalar::F32) => u64::from(plain.to_bits()),
        (1, Scalar::F16) => u64::from(half::f16::from_f32(plain).to_bits()),
        (1, Scalar::BF16) => u64::from(half::bf16::from_f32(plain).to_bits()),
        (0, _) => {
            let edge = [
                0u64,
                1,
                u64::MAX,
                1 << 31,
                (1 << 31) - 1,
                1 << 7,
                1 << 15,
                31,
                32,
                63,
                64,
                1 << 63,
                (1 << 63) - 1,
                (1 << 53) + 1,
                (1 << 24) + 1,
            ];
            r.pick(&edge) & (u64::MAX >> (64 - s.bits()))
        }
        _ => raw & (u64::MAX >> (64 - s.bits())),
    }
}

/// The types of a kernel: all of them, or only those of up to 32 bits, which are the first.
fn scalars(seed: u64) -> &'static [Scalar] {
    if seed.is_multiple_of(2) { &SCALARS } else { &SCALARS[..10] }
}

const SCALARS: [Scalar; 13] = [
    Scalar::F32,
    Scalar::F16,
    Scalar::BF16,
    Scalar::I32,
    Scalar::U32,
    Scalar::Bool,
    Scalar::I8,
    Scalar::U8,
    Scalar::I16,
    Scalar::U16,
    Scalar::F64,
    Scalar::I64,
    Scalar::U64,
];

/// How an input of a generated kernel is found: its stride along x, by the kernel or by argument.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Inner {
    Fixed(i64),
    Argument(i64),
}

struct Input {
    scalar: Scalar,
    inner: Inner,
    /// Strides along y and z, and offset.
    outer: [i64; 2],
    offset: i64,
}

struct Generated {
    kernel: Kernel,
    inputs: Vec<Input>,
    /// Values passed by value: type and bits.
    values: Vec<(Scalar, u64)>,
    outputs: Vec<Scalar>,
}

/// A random straight-line kernel over a grid, all of which should become machine code.
fn generate(seed: u64, grid: [u64; 3]) -> Generated {
    let all = scalars(seed);
    let mut r = Random::new(seed);
    let mut b = Builder::new(format!("straight_{seed}"));
    let position: Vec<ValueId> = (0..3)
        .map(|axis| {
            let x = b.builtin64(Builtin::ThreadPositionInGrid, axis);
            b.convert(x, Scalar::I64)
        })
        .collect();
    let count: Vec<ValueId> = (0..2)
        .map(|axis| {
            let x = b.builtin64(Builtin::ThreadsPerGrid, axis);
            b.convert(x, Scalar::I64)
        })
        .collect();
    let row = b.mul(position[2], count[1]);
    let row = b.add(row, position[1]);
    let row = b.mul(row, count[0]);
    let linear = b.add(row, position[0]);

    let mut g =
        Generated { kernel: b.kernel().clone(), inputs: Vec::new(), values: Vec::new(), outputs: Vec::new() };
    let mut pool: Vec<ValueId> = Vec::new();
    for k in 0..1 + r.below(4) {
        let scalar = r.pick(all);
        let inner = r.pick(&[
            Inner::Fixed(1),
            Inner::Fixed(1),
            Inner::Fixed(0),
            Inner::Argument(1),
            Inner::Argument(0),
            Inner::Argument(3),
            Inner::Argument(-2),
        ]);
        let by = match inner {
            Inner::Fixed(by) | Inner::Argument(by) => by,
        };
        let outer = [r.below(40) as i64, r.below(5) as i64];
        let behind = if by < 0 { -by * grid[0] as i64 } else { 0 };
        let offset = r.below(4) as i64 + behind;
        let mut index = b.i64(offset);
        if inner == Inner::Fixed(1) {
            index = b.add(index, position[0]);
        } else if let Inner::Argument(by) = inner {
            let stride = b.value_param(format!("stride{k}"), Type::I64);
            g.values.push((Scalar::I64, by as u64));
            let step = b.mul(position[0], stride);
            index = b.add(index, step);
        }
        for (axis, by) in outer.iter().enumerate() {
            let by = b.i64(*by);
            let step = b.mul(position[axis + 1], by);
            index = b.add(index, step);
        }
        let p = b.buffer(format!("x{k}"), Space::Device, scalar.into(), Access::Read);
        g.values.push((scalar, u64::MAX));
        pool.push(b.load_index(p, index, scalar.into()));
        g.inputs.push(Input { scalar, inner, outer, offset });
    }
    for k in 0..r.below(3) {
        let scalar = r.pick(all);
        let bits = sample(scalar, &mut r);
        g.values.push((scalar, bits));
        pool.push(b.value_param(format!("k{k}"), scalar.into()));
    }
    if r.below(3) == 0 {
        let to = r.pick(all);
        pool.push(b.convert(linear, to));
    }
    for _ in 0..3 + r.below(30) {
        let a = r.pick(&pool);
        let v = operation(&mut b, &mut r, all, &pool, a);
        pool.push(v);
    }
    for k in 0..1 + r.below(3) {
        let value = pool[pool.len() - 1 - r.below(4.min(pool.len()))];
        let s = b.ty(value).scalar().unwrap();
        let p = b.buffer(format!("y{k}"), Space::Device, s.into(), Access::ReadWrite);
        b.store_index(p, linear, value);
        g.outputs.push(s);
    }
    g.kernel = b.finish().unwrap();
    g
}

/// A new value, computed from values of the pool.
fn operation(b: &mut Builder, r: &mut Random, all: &[Scalar], pool: &[ValueId], a: ValueId) -> ValueId {
    let s = b.ty(a).scalar().unwrap();
    let same: Vec<ValueId> = pool.iter().copied().filter(|&v| b.ty(v) == b.ty(a)).collect();
    let (x, y) = (r.pick(&same), r.pick(&same));
    match r.below(8) {
        0 => {
            let to = r.pick(all);
            b.convert(a, to)
        }
        1 => {
            let every = [CmpOp::Eq, CmpOp::Ne, CmpOp::Lt, CmpOp::Le, CmpOp::Gt, CmpOp::Ge];
            let cmp = r.pick(if s == Scalar::Bool { &every[..2] } else { &every });
            let c = b.compare(cmp, a, x);
            b.select(c, x, y)
        }
        2 if s.is_float() => {
            use UnaryOp::*;
            b.unary(r.pick(&[IsNan, IsInf, IsFinite, IsNormal, SignBit]), a)
        }
        3 if s != Scalar::Bool => {
            let op = r.pick(&[TernaryOp::Fma, TernaryOp::Clamp]);
            b.ternary(op, a, x, y)
        }
        4 if s.is_float() => {
            use UnaryOp::*;
            let op = r.pick(&[
                Neg, Abs, Sign, Floor, Ceil, Round, Rint, Trunc, Fract, Sqrt, Rsqrt, Exp, Log, Tanh, Sigmoid,
                Sin, Erf,
            ]);
            b.unary(op, a)
        }
        4 if s.is_int() => {
            let op = r.pick(&[UnaryOp::Neg, UnaryOp::Not, UnaryOp::Abs, UnaryOp::Sign]);
            b.unary(op, a)
        }
        4 => b.unary(UnaryOp::Not, a),
        _ => {
            use BinaryOp::*;
            let op = match s {
                Scalar::Bool => r.pick(&[And, Or, Xor]),
                s if s.is_float() => {
                    r.pick(&[Add, Sub, Mul, Div, Min, Max, MinNan, MaxNan, Pow, Fdim, CopySign])
                }
                Scalar::I32 | Scalar::U32 | Scalar::I64 | Scalar::U64 => {
                    r.pick(&[Add, Sub, Mul, Div, Rem, Min, Max, And, Or, Xor, Shl, Shr, MulHi, Rotate])
                }
                _ => r.pick(&[Add, Sub, Mul, Min, Max, And, Or, Xor, Shl, Shr]),
            };
            b.binary(op, a, x)
        }
    }
}

/// Outputs of a program, each between guard bytes that must not change.
fn run(
    g: &Generated,
    grid: [u64; 3],
    data: &[Vec<u8>],
    shift: usize,
    f: &dyn Fn(&mut Bindings<'_>, &Launch),
) -> Vec<Vec<u8>> {
    const GUARD: usize = 192;
    let threads: u64 = grid.iter().product();
    let sizes: Vec<usize> = g.outputs.iter().map(|s| threads as usize * s.size() as usize).collect();
    let mut outputs: Vec<Vec<u8>> = sizes.iter().map(|n| vec![0xc3u8; GUARD + n + GUARD]).collect();
    let values: Vec<Vec<u8>> =
        g.values.iter().map(|(s, bits)| bits.to_le_bytes()[..s.size() as usize].to_vec()).collect();
    let mut args = Vec::new();
    let (mut inputs, mut values, mut outs) = (data.iter(), values.iter(), outputs.iter_mut().zip(&sizes));
    for param in &g.kernel.params {
        args.push(match param.kind {
            ParamKind::Value(_) => Arg::read(values.next().unwrap()),
            ParamKind::Buffer { access: Access::Read, .. } => {
                values.next().unwrap();
                Arg::read(&inputs.next().unwrap()[shift..])
            }
            ParamKind::Buffer { .. } => {
                let (out, n) = outs.next().unwrap();
                Arg::write(&mut out[GUARD - shift..GUARD - shift + n])
            }
        });
    }
    let launch = Launch::new(grid, [grid[0].clamp(1, 64), 1, 1]).unwrap();
    f(&mut Bindings::new(args).unwrap(), &launch);
    outputs
        .iter()
        .zip(&sizes)
        .map(|(out, n)| {
            let inner = GUARD - shift..GUARD - shift + n;
            assert!(out[..inner.start].iter().chain(&out[inner.end..]).all(|&x| x == 0xc3));
            out[inner].to_vec()
        })
        .collect()
}

/// The bytes of an input, large enough for the grid, or short by `cut` elements.
fn bytes(input: &Input, grid: [u64; 3], cut: usize, shift: usize, r: &mut Random) -> Vec<u8> {
    let by = match input.inner {
        Inner::Fixed(by) | Inner::Argument(by) => by.max(0),
    };
    let last = |n: u64| n.max(1) as i64 - 1;
    let far =
        input.offset + by * last(grid[0]) + input.outer[0] * last(grid[1]) + input.outer[1] * last(grid[2]);
    let n = (far as usize + 1).saturating_sub(cut);
    let size = input.scalar.size() as usize;
    let elements = (0..n).flat_map(|_| sample(input.scalar, r).to_le_bytes()[..size].to_vec());
    std::iter::repeat_n(0, shift).chain(elements).collect()
}

fn check_generated(seed: u64, cut: usize) {
    let mut r = Random::new(seed ^ 0x5eed);
    let nx = r.below(101) as u64;
    let grid = r.pick(&[[nx, 1, 1], [nx, 1, 1], [nx, 3, 1], [nx, 2, 3], [nx * 11, 1, 1]]);
    let g = generate(seed, grid);
    let shift = r.below(5);
    let data: Vec<Vec<u8>> = g.inputs.iter().map(|i| bytes(i, grid, cut, shift, &mut r)).collect();
    let reference = (seed.is_multiple_of(16)).then(|| {
        run(&g, grid, &data, shift, &|b, l| {
            interp::run(&g.kernel, l, b, &interp::Options::default()).unwrap();
        })
    });
    for level in levels() {
        let (native, bytecode) = programs(&g.kernel, level);
        let want = run(&g, grid, &data, shift, &|b, l| bytecode.run(b, l, &Cancel::new()).unwrap());
        let got = run(&g, grid, &data, shift, &|b, l| native.run(b, l, &Cancel::new()).unwrap());
        let spread = run(&g, grid, &data, shift, &|b, l| {
            native.run_parallel(b, l, &Cancel::new(), &|n, f| (0..n).for_each(f)).unwrap();
        });
        for (i, s) in g.outputs.iter().enumerate() {
            let what = || format!("seed {seed}, output {i}, {level:?}, grid {grid:?}\n{}", g.kernel);
            assert_same(*s, &want[i], &got[i], &what);
            assert_eq!(got[i], spread[i], "run and run_parallel differ: {}", what());
            if let Some(reference) = &reference {
                assert_same(*s, &reference[i], &got[i], &what);
            }
        }
    }
}

#[test]
fn random_straight_line_kernels_give_the_bytecodes_bytes() {
    for seed in 0..1200 {
        check_generated(seed, 0);
    }
}

#[test]
fn random_kernels_over_short_buffers_read_zero_beyond_them() {
    for seed in 10_000..10_300 {
        check_generated(seed, 7);
    }
}

#[test]
fn every_conversion_gives_the_bytecodes_bytes() {
    let mut r = Random::new(77);
    let n = 700;
    let launch = Launch::linear(n, 64).unwrap();
    for from in SCALARS {
        let size = from.size() as usize;
        let input: Vec<u8> =
            (0..n).flat_map(|_| sample(from, &mut r).to_le_bytes()[..size].to_vec()).collect();
        for to in SCALARS {
            let kernel = map(from.into(), to.into(), |b, x| b.convert(x, to));
            for level in levels() {
                let (native, bytecode) = programs(&kernel, level);
                let want = run_map(&bytecode, &input, n as usize * to.size() as usize, &launch);
                let got = run_map(&native, &input, n as usize * to.size() as usize, &launch);
                assert_same(to, &want, &got, &|| format!("{from} to {to} at {level:?}"));
            }
        }
    }
}

#[test]
fn complex_numbers_become_machine_code_on_64_bit_words() {
    // z = x * x, each a word with the real part in its low half.
    let kernel = map(Type::U64, Type::U64, |b, x| {
        let half = b.u64(32);
        let upper = b.binary(BinaryOp::Shr, x, half);
        let [re, im] = [x, upper].map(|bits| {
            let bits = b.convert(bits, Scalar::U32);
            b.bitcast(bits, Type::F32)
        });
        let (squares, others) = (b.mul(re, re), b.mul(im, im));
        let real = b.sub(squares, others);
        let product = b.mul(re, im);
        let imaginary = b.add(product, product);
        let [real, imaginary] = [real, imaginary].map(|part| {
            let bits = b.bitcast(part, Type::U32);
            b.convert(bits, Scalar::U64)
        });
        let upper = b.binary(BinaryOp::Shl, imaginary, half);
        b.binary(BinaryOp::Or, real, upper)
    });
    for level in levels() {
        let (native, bytecode) = programs(&kernel, level);
        for n in [1u64, 3, 4, 7, 8, 9, 31, 100, 1000] {
            let input = &jit::floats(2000)[..n as usize * 8];
            let launch = Launch::linear(n, 64).unwrap();
            let want = run_map(&bytecode, input, input.len(), &launch);
            assert_eq!(want, run_map(&native, input, input.len(), &launch), "{n} at {level:?}");
        }
    }
}

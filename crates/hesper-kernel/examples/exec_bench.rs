//! Bandwidth and throughput of the CPU executor, beside a plain copy and hand-written loops in
//! the same process, on two threads.
//!
//! `cargo run --release -p hesper-kernel --example exec_bench`

use std::hint::black_box;
use std::time::Instant;

use hesper_kernel::exec::{Cancel, Program};
use hesper_kernel::ir::*;
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_kernel::math;

const THREADS: usize = 2;

/// Runs tasks on two threads.
fn parallel(n: usize, f: &(dyn Fn(usize) + Sync)) {
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                loop {
                    let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if i >= n {
                        break;
                    }
                    f(i);
                }
            });
        }
    });
}

/// The best of a few runs, in seconds.
fn best(mut f: impl FnMut()) -> f64 {
    f();
    (0..7)
        .map(|_| {
            let t = Instant::now();
            f();
            t.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

fn bytes<T>(x: &[T]) -> &[u8] {
    // SAFETY: plain numbers, read as bytes.
    unsafe { std::slice::from_raw_parts(x.as_ptr().cast(), size_of_val(x)) }
}

fn bytes_mut<T>(x: &mut [T]) -> &mut [u8] {
    // SAFETY: plain numbers, any bytes are valid.
    unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().cast(), size_of_val(x)) }
}

/// A hand-written loop over chunks on two threads.
fn by_hand<T: Sync, U: Send>(x: &[T], y: &mut [U], f: impl Fn(&[T], &mut [U]) + Sync) {
    let chunk = x.len().div_ceil(THREADS);
    std::thread::scope(|s| {
        for (x, y) in x.chunks(chunk).zip(y.chunks_mut(chunk)) {
            let f = &f;
            s.spawn(move || f(x, y));
        }
    });
}

/// A kernel of one input and one output, element by element.
fn map(name: &str, from: Type, to: Type, body: impl FnOnce(&mut Builder, ValueId) -> ValueId) -> Kernel {
    let mut b = Builder::new(name);
    let src = b.buffer("src", Space::Device, from, Access::Read);
    let dst = b.buffer("dst", Space::Device, to, Access::ReadWrite);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let x = b.load_index(src, i, from);
    let y = body(&mut b, x);
    b.store_index(dst, i, y);
    b.finish().expect("a well-formed kernel")
}

fn time_kernel<T, U>(kernel: &Kernel, x: &[T], y: &mut [U], threads: u64) -> f64 {
    let program = Program::compile(kernel).expect("a verified kernel");
    let bindings = Bindings::new(vec![Arg::read(bytes(x)), Arg::write(bytes_mut(y))]).expect("no overlap");
    let launch = Launch::linear(threads, 256).expect("a small group");
    let cancel = Cancel::new();
    best(|| program.run_parallel(&bindings, &launch, &cancel, &parallel).expect("the kernel runs"))
}

fn row(name: &str, seconds: f64, bytes: usize, reference: f64, what: &str) {
    println!(
        "{name:36} {:8.2} ms {:7.1} GB/s   {:5.2} x {what}",
        seconds * 1e3,
        bytes as f64 / seconds / 1e9,
        reference / seconds
    );
}

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let wants = |name: &str| only.is_empty() || name.contains(&only);
    println!("SIMD level {:?}, {THREADS} threads", hesper_kernel::exec::SimdLevel::detect());

    if wants("compile") {
        let kernel = map("compile", Type::F32, Type::F32, gate);
        let n = 2000;
        let t = Instant::now();
        for _ in 0..n {
            black_box(Program::compile(black_box(&kernel)).expect("a verified kernel"));
        }
        let program = Program::compile(&kernel).expect("a verified kernel");
        println!(
            "compile of {} instructions: {:.1} us, {} bytes",
            kernel.inst_count(),
            t.elapsed().as_secs_f64() / f64::from(n) * 1e6,
            program.size_bytes()
        );
    }
    if wants("cache") {
        cached();
    }
    if wants("tiny") {
        tiny();
    }
    if wants("rows") {
        rows();
    }
    if wants("memory") {
        memory();
    }
    if wants("adam") {
        adam();
    }
    if wants("gate") {
        elementwise();
    }
    if wants("cast") {
        casts();
    }
    if wants("broadcast") {
        broadcast();
    }
    if wants("compute") {
        compute();
    }
    if wants("group") {
        groups();
    }
}

/// In the second-level cache, on one thread: the executor's own cost.
fn cached() {
    let n = 1 << 16;
    let x: Vec<f32> = (0..n).map(|i| (i % 1000) as f32 * 0.001).collect();
    let mut y = vec![0f32; n];
    type Body = fn(&mut Builder, ValueId) -> ValueId;
    let kernels: [(&str, Body); 5] = [
        ("y = x", |_, x| x),
        ("y = x + x", |b, x| b.add(x, x)),
        ("y = a*x + b", |b, x| {
            let (two, three) = (b.f32(2.0), b.f32(3.0));
            let p = b.mul(x, two);
            b.add(p, three)
        }),
        ("sqrt(x)", |b, x| b.unary(UnaryOp::Sqrt, x)),
        ("tanh(x*a+b)*sigmoid(x)+x", gate),
    ];
    for (name, body) in kernels {
        let program = Program::compile(&map(name, Type::F32, Type::F32, body)).expect("a verified kernel");
        let args = vec![Arg::read(bytes(&x)), Arg::write(bytes_mut(&mut y))];
        let bindings = Bindings::new(args).expect("no overlap");
        let launch = Launch::linear(n as u64, 256).expect("a small group");
        let cancel = Cancel::new();
        let t = best(|| {
            for _ in 0..20 {
                program.run(&bindings, &launch, &cancel).expect("the kernel runs");
            }
        }) / 20.0;
        println!("in cache: {name:30} {:.3} ns per element", t / n as f64 * 1e9);
    }
}

/// A launch of one thread: what a launch costs by itself.
fn tiny() {
    for (name, call) in [("y = a*x + b", false), ("tanh(x*a+b)*sigmoid(x)+x", true)] {
        let kernel = map(name, Type::F32, Type::F32, |b, x| {
            if call {
                return gate(b, x);
            }
            let (two, three) = (b.f32(2.0), b.f32(3.0));
            let p = b.mul(x, two);
            b.add(p, three)
        });
        let program = Program::compile(&kernel).expect("a verified kernel");
        let (x, mut y) = ([1f32], [0f32]);
        let args = vec![Arg::read(bytes(&x)), Arg::write(bytes_mut(&mut y))];
        let bindings = Bindings::new(args).expect("no overlap");
        let launch = Launch::linear(1, 1).expect("a small group");
        let cancel = Cancel::new();
        let n = 20_000;
        let t = best(|| {
            for _ in 0..n {
                program.run_parallel(&bindings, &launch, &cancel, &parallel).expect("the kernel runs");
            }
        });
        println!("one element: {name:30} {:.0} ns per launch", t / f64::from(n) * 1e9);
    }
}

/// `z[r, c] = x[r, c] + row[c]` over grids of rows, on one thread.
fn rows() {
    let n = 1u64 << 18;
    let mut b = Builder::new("rows");
    let x = b.buffer("x", Space::Device, Type::F32, Access::Read);
    let row = b.buffer("row", Space::Device, Type::F32, Access::Read);
    let z = b.buffer("z", Space::Device, Type::F32, Access::ReadWrite);
    let offset = b.value_param("offset", Type::I64);
    let stride = b.value_param("stride", Type::I64);
    let [c, r] = [0, 1].map(|axis| {
        let at = b.builtin64(Builtin::ThreadPositionInGrid, axis);
        b.convert(at, Scalar::I64)
    });
    let width = b.builtin64(Builtin::ThreadsPerGrid, 0);
    let width = b.convert(width, Scalar::I64);
    let before = b.mul(r, width);
    let linear = b.add(before, c);
    let step = b.mul(r, stride);
    let at = b.add(offset, step);
    let at = b.add(at, c);
    let u = b.load_index(x, linear, Type::F32);
    let v = b.load_index(row, at, Type::F32);
    let sum = b.add(u, v);
    b.store_index(z, linear, sum);
    let program = Program::compile(&b.finish().expect("a well-formed kernel")).expect("a verified kernel");
    let (data, mut out) = (vec![1f32; n as usize + 4096], vec![0f32; n as usize + 4096]);
    let zero = 0i64.to_le_bytes();
    for width in [3, 8, 16, 32, 64, 100, 256, 1024] {
        let args = vec![
            Arg::read(bytes(&data)),
            Arg::read(bytes(&data)),
            Arg::write(bytes_mut(&mut out)),
            Arg::read(&zero),
            Arg::read(&zero),
        ];
        let bindings = Bindings::new(args).expect("no overlap");
        let launch = Launch::new([width, n / width, 1], [width, 1, 1]).expect("a small group");
        let cancel = Cancel::new();
        let t = best(|| program.run(&bindings, &launch, &cancel).expect("the kernel runs"));
        println!("rows of {width:4}: {:.2} ns per element", t / n as f64 * 1e9);
    }
}

/// An Adam update: four inputs, three outputs, twelve operations.
fn adam() {
    let n = 16 << 20;
    let mut b = Builder::new("adam");
    let inputs = ["p", "g", "m", "v"].map(|n| b.buffer(n, Space::Device, Type::F32, Access::Read));
    let outputs = ["p1", "m1", "v1"].map(|n| b.buffer(n, Space::Device, Type::F32, Access::ReadWrite));
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let [p, g, m, v] = inputs.map(|x| b.load_index(x, i, Type::F32));
    let [b1, c1, b2, c2, rate, eps] = [0.9, 0.1, 0.999, 0.001, 1e-3, 1e-8].map(|k| b.f32(k));
    let (x, y) = (b.mul(m, b1), b.mul(g, c1));
    let m = b.add(x, y);
    let square = b.mul(g, g);
    let (x, y) = (b.mul(v, b2), b.mul(square, c2));
    let v = b.add(x, y);
    let root = b.unary(UnaryOp::Sqrt, v);
    let (below, above) = (b.add(root, eps), b.mul(m, rate));
    let step = b.div(above, below);
    let p = b.sub(p, step);
    for (out, value) in outputs.into_iter().zip([p, m, v]) {
        b.store_index(out, i, value);
    }
    let program = Program::compile(&b.finish().expect("a well-formed kernel")).expect("a verified kernel");
    let x: Vec<Vec<f32>> = (0..4).map(|k| (0..n).map(|i| ((i + k) % 1000) as f32 * 1e-3).collect()).collect();
    let mut y = vec![vec![0f32; n]; 3];
    let mut args: Vec<Arg<'_>> = x.iter().map(|x| Arg::read(bytes(x))).collect();
    args.extend(y.iter_mut().map(|y| Arg::write(bytes_mut(y))));
    let bindings = Bindings::new(args).expect("no overlap");
    let launch = Launch::linear(n as u64, 256).expect("a small group");
    let cancel = Cancel::new();
    let mut z = vec![0f32; n];
    let times = rounds(
        8,
        &mut [&mut || by_hand(&x[0], &mut z, |x, y| y.copy_from_slice(x)), &mut || {
            program.run_parallel(&bindings, &launch, &cancel, &parallel).expect("the kernel runs");
        }],
    );
    row("Adam of 16M f32, kernel", times[1], n * 28, times[0] * 3.5, "copy of as many bytes");
    println!("Adam: {:.2} ns per element", times[1] / n as f64 * 1e9);
}

/// Rounds of all candidates in turn, so that noise hits all alike; the best of each.
fn rounds(n: usize, candidates: &mut [&mut dyn FnMut()]) -> Vec<f64> {
    let mut best = vec![f64::INFINITY; candidates.len()];
    for _ in 0..n {
        for (best, f) in best.iter_mut().zip(candidates.iter_mut()) {
            let t = Instant::now();
            f();
            *best = best.min(t.elapsed().as_secs_f64());
        }
    }
    best
}

fn memory() {
    let n = 64 << 20;
    let x: Vec<f32> = (0..n).map(|i| (i % 1000) as f32).collect();
    let (mut y, mut z, mut w, mut v) = (vec![0f32; n], vec![0f32; n], vec![0f32; n], vec![0f32; n]);
    let saxpy = map("saxpy", Type::F32, Type::F32, |b, x| {
        let (two, three) = (b.f32(2.0), b.f32(3.0));
        let p = b.mul(x, two);
        b.add(p, three)
    });
    let saxpy = Program::compile(&saxpy).expect("a verified kernel");
    let same = Program::compile(&map("copy", Type::F32, Type::F32, |_, x| x)).expect("a verified kernel");
    let launch = Launch::linear(n as u64, 256).expect("a small group");
    let cancel = Cancel::new();
    let bind = |y| Bindings::new(vec![Arg::read(bytes(&x)), Arg::write(bytes_mut(y))]).expect("no overlap");
    let (saxpy_args, same_args) = (bind(&mut z), bind(&mut w));
    let times = rounds(
        12,
        &mut [
            &mut || by_hand(&x, &mut y, |x, y| y.copy_from_slice(x)),
            &mut || {
                by_hand(&x, &mut v, |x, y| {
                    for (y, x) in y.iter_mut().zip(x) {
                        *y = 2.0 * x + 3.0;
                    }
                })
            },
            &mut || {
                saxpy.run_parallel(&saxpy_args, &launch, &cancel, &parallel).expect("the kernel runs");
            },
            &mut || {
                same.run_parallel(&same_args, &launch, &cancel, &parallel).expect("the kernel runs");
            },
        ],
    );
    drop((saxpy_args, same_args));
    assert_eq!(z[12345], 2.0 * x[12345] + 3.0);
    let names = ["copy of 64M f32", "y = a*x + b by hand", "y = a*x + b, kernel", "y = x, kernel"];
    for (name, t) in names.iter().zip(&times) {
        row(name, *t, n * 8, times[0], "copy");
    }
}

/// `tanh(x*a+b)*sigmoid(x)+x`.
fn gate(b: &mut Builder, x: ValueId) -> ValueId {
    let (k, c) = (b.f32(1.5), b.f32(0.25));
    let p = b.mul(x, k);
    let p = b.add(p, c);
    let t = b.unary(UnaryOp::Tanh, p);
    let s = b.unary(UnaryOp::Sigmoid, x);
    let m = b.mul(t, s);
    b.add(m, x)
}

fn elementwise() {
    let n = 16 << 20;
    let x: Vec<f32> = (0..n).map(|i| (i % 2000) as f32 * 0.004 - 4.0).collect();
    let mut y = vec![0f32; n];
    let hand = best(|| {
        by_hand(&x, &mut y, |x, y| {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = math::tanh(x * 1.5 + 0.25) * math::sigmoid(x) + x;
            }
        })
    });
    let kernel = map("gate", Type::F32, Type::F32, gate);
    let ours = time_kernel(&kernel, &x, &mut y, n as u64);
    assert_eq!(
        y[777].to_bits(),
        (math::tanh(x[777] * 1.5 + 0.25) * math::sigmoid(x[777]) + x[777]).to_bits()
    );
    row("tanh(x*a+b)*sigmoid(x)+x by hand", hand, n * 8, hand, "hand (baseline SIMD)");
    row("tanh(x*a+b)*sigmoid(x)+x, kernel", ours, n * 8, hand, "hand (baseline SIMD)");
    for op in [
        UnaryOp::Exp,
        UnaryOp::Log,
        UnaryOp::Sin,
        UnaryOp::Erf,
        UnaryOp::Tanh,
        UnaryOp::Sigmoid,
        UnaryOp::Sqrt,
    ] {
        let kernel = map("unary", Type::F32, Type::F32, |b, x| b.unary(op, x));
        let ours = time_kernel(&kernel, &x, &mut y, n as u64);
        row(&format!("{op:?}, kernel"), ours, n * 8, hand, "hand gate");
    }
}

fn casts() {
    let n = 32 << 20;
    let x = vec![0x3c01u16; n];
    let mut y = vec![0f32; n];
    let mut z = vec![0u16; n];
    let copy = best(|| by_hand(&x, &mut z, |x, y| y.copy_from_slice(x)));
    row("copy of 32M 16-bit", copy, n * 4, copy, "copy");
    let widen = map("widen", Type::F16, Type::F32, |b, x| b.convert(x, Scalar::F32));
    row("f16 -> f32, kernel", time_kernel(&widen, &x, &mut y, n as u64), n * 6, copy, "16-bit copy");
    let narrow = map("narrow", Type::F32, Type::BF16, |b, x| b.convert(x, Scalar::BF16));
    row("f32 -> bf16, kernel", time_kernel(&narrow, &y, &mut z, n as u64), n * 6, copy, "16-bit copy");
    let narrow = map("narrow", Type::F32, Type::F16, |b, x| b.convert(x, Scalar::F16));
    row("f32 -> f16, kernel", time_kernel(&narrow, &y, &mut z, n as u64), n * 6, copy, "16-bit copy");
    let half = map("half", Type::F16, Type::F16, |b, x| {
        let p = b.mul(x, x);
        b.add(p, x)
    });
    row("f16: x*x + x, kernel", time_kernel(&half, &x, &mut z, n as u64), n * 4, copy, "16-bit copy");
}

/// `z[r, c] = x[r, c] + row[c] * column[r]` with index arithmetic, and its transpose.
fn broadcast() {
    let (rows, columns) = (4096u32, 4096u32);
    let n = (rows * columns) as usize;
    let x = vec![1f32; n];
    let mut y = vec![0f32; n];
    let copy = best(|| by_hand(&x, &mut y, |x, y| y.copy_from_slice(x)));
    row("copy of 16M f32", copy, n * 8, copy, "copy");
    for (name, transposed) in [("x + row*column, flat index", false), ("transpose, flat index", true)] {
        let kernel = map_index(name, columns, transposed);
        row(name, time_kernel(&kernel, &x, &mut y, n as u64), n * 8, copy, "copy");
    }
}

fn map_index(name: &str, columns: u32, transposed: bool) -> Kernel {
    let mut b = Builder::new(name);
    let src = b.buffer("src", Space::Device, Type::F32, Access::Read);
    let dst = b.buffer("dst", Space::Device, Type::F32, Access::ReadWrite);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let n = b.u32(columns);
    let (r, c) = (b.div(i, n), b.binary(BinaryOp::Rem, i, n));
    let y = if transposed {
        let p = b.mul(c, n);
        let at = b.add(p, r);
        b.load_index(src, at, Type::F32)
    } else {
        let x = b.load_index(src, i, Type::F32);
        let row = b.load_index(src, c, Type::F32);
        let column = b.load_index(src, r, Type::F32);
        let p = b.mul(row, column);
        b.add(x, p)
    };
    b.store_index(dst, i, y);
    b.finish().expect("a well-formed kernel")
}

/// Many multiply-adds per element: how far from the vector peak.
fn compute() {
    let n = 4 << 20;
    let x: Vec<f32> = (0..n).map(|i| (i % 100) as f32 * 0.01).collect();
    let mut y = vec![0f32; n];
    let steps = 64;
    let hand = best(|| {
        by_hand(&x, &mut y, |x, y| {
            for (y, &x) in y.iter_mut().zip(x) {
                let mut v = x;
                for _ in 0..steps {
                    v = v * 0.999 + x;
                }
                *y = v;
            }
        })
    });
    let kernel = map("horner", Type::F32, Type::F32, |b, x| {
        let v = b.var_init("v", x);
        let (zero, end, one, k) = (b.u32(0), b.u32(steps), b.u32(1), b.f32(0.999));
        b.for_range(zero, end, one, |b, _| {
            let at = b.get(v);
            let p = b.mul(at, k);
            let s = b.add(p, x);
            b.set(v, s);
        });
        b.get(v)
    });
    let ours = time_kernel(&kernel, &x, &mut y, n as u64);
    let flops = |s: f64| n as f64 * f64::from(steps) * 2.0 / s / 1e9;
    println!("horner of {steps} steps by hand (baseline SIMD): {:.1} GFLOP/s", flops(hand));
    println!("horner of {steps} steps, kernel loop: {:.1} GFLOP/s, {:.2} x hand", flops(ours), hand / ours);
}

/// Row sums with `simd_sum`, threadgroups of 32, and through threadgroup memory with groups of 256.
fn groups() {
    let (rows, columns) = (4096u64, 4096u64);
    let n = (rows * columns) as usize;
    let x = vec![1f32; n];
    let mut y = vec![0f32; rows as usize];
    let hand = best(|| {
        by_hand(&x, &mut y, |x, y| {
            for (y, x) in y.iter_mut().zip(x.chunks(columns as usize)) {
                let mut lanes = [0f32; 32];
                for x in x.chunks_exact(32) {
                    lanes.iter_mut().zip(x).for_each(|(l, x)| *l += x);
                }
                *y = lanes.iter().sum();
            }
        })
    });
    row("row sums by hand", hand, n * 4, hand, "hand");
    for width in [32u64, 256] {
        let kernel = row_sum(columns as u32, width as u32);
        let program = Program::compile(&kernel).expect("a verified kernel");
        let bindings =
            Bindings::new(vec![Arg::read(bytes(&x)), Arg::write(bytes_mut(&mut y))]).expect("no overlap");
        let launch = Launch::linear(rows * width, width).expect("a small group");
        let cancel = Cancel::new();
        let ours =
            best(|| program.run_parallel(&bindings, &launch, &cancel, &parallel).expect("the kernel runs"));
        drop(bindings);
        assert_eq!(y[17], columns as f32);
        row(&format!("row sums, kernel, groups of {width}"), ours, n * 4, hand, "hand");
    }
}

fn row_sum(columns: u32, width: u32) -> Kernel {
    let mut b = Builder::new("row_sum");
    let src = b.buffer("src", Space::Device, Type::F32, Access::Read);
    let dst = b.buffer("dst", Space::Device, Type::F32, Access::ReadWrite);
    let row = b.builtin(Builtin::ThreadgroupPositionInGrid, 0);
    let lane = b.builtin(Builtin::ThreadIndexInThreadgroup, 0);
    let n = b.u32(columns);
    let base = b.mul(row, n);
    let zero = b.f32(0.0);
    let acc = b.var_init("acc", zero);
    let step = b.u32(width);
    b.for_range(lane, n, step, |b, i| {
        let at = b.add(base, i);
        let x = b.load_index(src, at, Type::F32);
        let a = b.get(acc);
        let s = b.add(a, x);
        b.set(acc, s);
    });
    let a = b.get(acc);
    let mut total = b.group_reduce(Group::Simd, ReduceOp::Sum, a);
    if width > 32 {
        let tile = b.threadgroup_var("tile", 32 * 4, 4);
        let tile = b.threadgroup_ptr(tile);
        let simd = b.builtin(Builtin::SimdgroupIndexInThreadgroup, 0);
        b.store_index(tile, simd, total);
        b.barrier(Scope::Threadgroup, MemFlags::THREADGROUP);
        let in_simd = b.builtin(Builtin::ThreadIndexInSimdgroup, 0);
        let part = b.load_index(tile, in_simd, Type::F32);
        total = b.group_reduce(Group::Simd, ReduceOp::Sum, part);
    }
    let first = b.u32(0);
    let is_first = b.compare(CmpOp::Eq, lane, first);
    b.if_(is_first, |b| b.store_index(dst, row, total));
    b.finish().expect("a well-formed kernel")
}

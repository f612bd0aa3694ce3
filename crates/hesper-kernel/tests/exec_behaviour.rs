//! What the executor promises beyond numbers: memory safety, cancellation, independence of the
//! split into ranges and of the shape of the launch.

// The helpers of these tests are tests themselves.

use std::time::{Duration, Instant};

use hesper_kernel::exec::{Cancel, ExecError, Program};
use hesper_kernel::interp;
use hesper_kernel::ir::*;
use hesper_kernel::launch::{Arg, Bindings, Launch, LaunchError};

fn floats(n: usize) -> Vec<u8> {
    (0..n).flat_map(|i| (i as f32 + 1.0).to_le_bytes()).collect()
}

fn words(x: &[u8]) -> Vec<u32> {
    x.chunks(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect()
}

/// The kernel's one output, after `input`, from the interpreter and from the executor.
fn both(kernel: &Kernel, launch: &Launch, input: &[u8], output: usize) -> (Vec<u8>, Vec<u8>) {
    let run = |f: &dyn Fn(&mut Bindings<'_>)| {
        let mut y = vec![0u8; output];
        f(&mut Bindings::new(vec![Arg::read(input), Arg::write(&mut y)]).unwrap());
        y
    };
    let want = run(&|b| {
        interp::run(kernel, launch, b, &interp::Options::default()).unwrap();
    });
    let program = Program::compile(kernel).unwrap();
    let got = run(&|b| program.run(b, launch, &Cancel::new()).unwrap());
    (want, got)
}

fn assert_agrees(kernel: &Kernel, launch: &Launch, input: &[u8], output: usize) {
    let (want, got) = both(kernel, launch, input, output);
    assert_eq!(words(&want), words(&got), "{launch:?}\n{kernel}");
}

/// Begins a kernel of one float input and one word output.
fn begin(name: &str) -> (Builder, ValueId, ValueId) {
    let mut b = Builder::new(name);
    let src = b.buffer("src", Space::Device, Type::F32, Access::Read);
    let dst = b.buffer("dst", Space::Device, Type::U32, Access::ReadWrite);
    (b, src, dst)
}

#[test]
fn accesses_out_of_bounds_read_zero_and_write_nothing() {
    // Offsets before, across and after the buffers: contiguous, strided and scattered.
    for (shift, stride) in [(0i64, 1i64), (-7, 1), (90, 1), (0, 3), (250, -3), (-(1 << 40), 1 << 33), (3, 0)]
    {
        for scattered in [false, true] {
            let (mut b, src, dst) = begin("bounds");
            let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
            let i = b.convert(i, Scalar::I64);
            let (s, k) = (b.i64(stride), b.i64(shift));
            let p = b.mul(i, s);
            let mut at = b.add(p, k);
            if scattered {
                let flip = b.i64(5);
                at = b.binary(BinaryOp::Xor, at, flip);
            }
            let x = b.load_index(src, at, Type::F32);
            let y = b.add(x, x);
            b.store_index(dst, at, y);
            let kernel = b.finish().unwrap();
            let program = Program::compile(&kernel).unwrap();
            // The buffers lie inside larger ones whose other bytes must stay.
            let (data, guard) = (floats(100), 512);
            let mut memory = vec![0xabu8; guard + 400 + guard];
            memory[guard..guard + 400].fill(0);
            let launch = Launch::linear(200, 64).unwrap();
            {
                let mut want = vec![0u8; 400];
                let mut bindings = Bindings::new(vec![Arg::read(&data), Arg::write(&mut want)]).unwrap();
                interp::run(&kernel, &launch, &mut bindings, &interp::Options::default()).unwrap();
                drop(bindings);
                let inner = &mut memory[guard..guard + 400];
                let bindings = Bindings::new(vec![Arg::read(&data), Arg::write(inner)]).unwrap();
                let outcome = program.run(&bindings, &launch, &Cancel::new());
                drop(bindings);
                // The first write that was dropped, thread by thread.
                let flip = if scattered { 5 } else { 0 };
                let places = (0..200i64).map(|i| i.wrapping_mul(stride).wrapping_add(shift) ^ flip);
                match places.into_iter().find(|at| !(0..100).contains(at)) {
                    None => outcome.unwrap(),
                    Some(at) => {
                        let text = outcome.unwrap_err().to_string();
                        let part = format!("`dst` (400 bytes): index {at} of 100");
                        assert!(text.contains("kernel bounds: write of 4 bytes"), "{text}");
                        assert!(text.contains(&part), "{part} is not in {text}");
                    }
                }
                if stride != 0 {
                    assert_eq!(
                        words(&want),
                        words(&memory[guard..guard + 400]),
                        "{shift} {stride} {scattered}"
                    );
                }
            }
            assert!(memory[..guard].iter().chain(&memory[guard + 400..]).all(|&x| x == 0xab));
        }
    }
}

#[test]
fn a_runaway_kernel_can_be_cancelled() {
    let (mut b, _, dst) = begin("forever");
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    b.begin_loop();
    b.store_index(dst, i, i);
    b.end_loop();
    let program = Program::compile(&b.finish().unwrap()).unwrap();
    let (data, mut out) = (floats(4), vec![0u8; 4096]);
    let bindings = Bindings::new(vec![Arg::read(&data), Arg::write(&mut out)]).unwrap();
    let cancel = Cancel::new();
    let start = Instant::now();
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            cancel.cancel();
        });
        let launch = Launch::linear(1 << 20, 256).unwrap();
        let r = program.run(&bindings, &launch, &cancel);
        assert_eq!(r, Err(ExecError::Cancelled("forever".into())));
    });
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn indices_that_wrap_inside_a_block_of_lanes_wrap_lane_by_lane() {
    for (scalar, start) in [(Scalar::U32, 0xffff_ffc0u64), (Scalar::I32, 0x7fff_ffe0)] {
        for factor in [1u64, 3] {
            let (mut b, src, dst) = begin("wrap");
            let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
            let i = b.convert(i, scalar);
            let (s, f) = (b.constant(scalar, start), b.constant(scalar, factor));
            let p = b.mul(i, f);
            let w = b.add(p, s);
            // Back near zero as a 64-bit number, differently on either side of the wrap.
            let wide = b.convert(w, Scalar::I64);
            let modulus = b.i64(61);
            let r = b.binary(BinaryOp::Rem, wide, modulus);
            let x = b.load_index(src, r, Type::F32);
            let big = b.compare(CmpOp::Gt, w, s);
            let other = b.convert(w, Scalar::F32);
            let y = b.select(big, x, other);
            let y = b.bitcast(y, Type::U32);
            let at = b.builtin(Builtin::ThreadPositionInGrid, 0);
            b.store_index(dst, at, y);
            let kernel = b.finish().unwrap();
            assert_agrees(&kernel, &Launch::linear(300, 64).unwrap(), &floats(61), 1200);
        }
    }
}

#[test]
fn every_builtin_agrees_on_partial_groups_of_every_shape() {
    use Builtin::*;
    let all = [
        ThreadPositionInGrid,
        ThreadgroupPositionInGrid,
        ThreadPositionInThreadgroup,
        ThreadsPerThreadgroup,
        DispatchThreadsPerThreadgroup,
        ThreadgroupsPerGrid,
        ThreadsPerGrid,
        ThreadIndexInThreadgroup,
        SimdgroupIndexInThreadgroup,
        ThreadIndexInSimdgroup,
        ThreadsPerSimdgroup,
        SimdgroupsPerThreadgroup,
        DispatchSimdgroupsPerThreadgroup,
        QuadgroupIndexInThreadgroup,
        ThreadIndexInQuadgroup,
        QuadgroupsPerThreadgroup,
        DispatchQuadgroupsPerThreadgroup,
    ];
    let shapes = [
        ([1, 1, 1], [1, 1, 1]),
        ([70, 1, 1], [32, 1, 1]),
        ([5, 7, 3], [2, 4, 2]),
        ([33, 9, 2], [16, 4, 1]),
        ([3, 100, 1], [3, 10, 1]),
        ([300, 3, 2], [64, 2, 2]),
        ([1000, 1, 1], [1000, 1, 1]),
        ([2, 2, 600], [1, 1, 100]),
    ];
    for (grid, threadgroup) in shapes {
        let launch = Launch::new(grid, threadgroup).unwrap();
        for what in all {
            for wide in [false, true] {
                let (mut b, _, dst) = begin("builtin");
                let [x, y, z] = [0, 1, 2].map(|a| b.builtin(ThreadPositionInGrid, a));
                let [nx, ny] = [0, 1].map(|a| b.builtin(ThreadsPerGrid, a));
                let row = b.mul(z, ny);
                let row = b.add(row, y);
                let row = b.mul(row, nx);
                let i = b.add(row, x);
                let mut sum = b.u32(0);
                for axis in 0..if what.has_axes() { 3 } else { 1 } {
                    let v = if wide { b.builtin64(what, axis) } else { b.builtin(what, axis) };
                    let v = b.convert(v, Scalar::U32);
                    let k = b.u32(1000);
                    let s = b.mul(sum, k);
                    sum = b.add(s, v);
                }
                b.store_index(dst, i, sum);
                let kernel = b.finish().unwrap();
                assert_agrees(&kernel, &launch, &floats(1), launch.threads() as usize * 4);
            }
        }
    }
}

#[test]
fn ranges_of_threadgroups_add_up_to_the_launch() {
    let (mut b, src, dst) = begin("sum");
    let row = b.builtin(Builtin::ThreadgroupPositionInGrid, 0);
    let lane = b.builtin(Builtin::ThreadIndexInThreadgroup, 0);
    let n = b.builtin(Builtin::ThreadsPerThreadgroup, 0);
    let width = b.u32(40);
    let base = b.mul(row, width);
    let at = b.add(base, lane);
    let x = b.load_index(src, at, Type::F32);
    let total = b.group_reduce(Group::Simd, ReduceOp::Sum, x);
    let total = b.convert(total, Scalar::U32);
    let y = b.add(total, n);
    b.store_index(dst, at, y);
    let kernel = b.finish().unwrap();
    let program = Program::compile(&kernel).unwrap();
    let launch = Launch::linear(410, 40).unwrap();
    let data = floats(410);
    let (want, whole) = both(&kernel, &launch, &data, 410 * 4);
    assert_eq!(words(&want), words(&whole));
    let mut split = vec![0u8; 410 * 4];
    let bindings = Bindings::new(vec![Arg::read(&data), Arg::write(&mut split)]).unwrap();
    for range in [7..11, 0..1, 3..7, 1..3, 11..99] {
        program.run_groups(range, &bindings, &launch, &Cancel::new()).unwrap();
    }
    drop(bindings);
    assert_eq!(words(&want), words(&split));
}

#[test]
fn uniform_factors_survive_a_sum_in_the_same_pass() {
    // The factors come from memory the kernel may write, so they are uniform but not constant.
    let (mut b, src, dst) = begin("factors");
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let (one, two) = (b.u32(1), b.u32(2));
    let a = b.load_index(dst, one, Type::F32);
    let c = b.load_index(dst, two, Type::F32);
    let x = b.load_index(src, i, Type::F32);
    let p = b.mul(a, c);
    let y = b.add(p, x);
    let y = b.convert(y, Scalar::U32);
    b.store_index(dst, i, y);
    assert_agrees(&b.finish().unwrap(), &Launch::linear(512, 64).unwrap(), &floats(512), 2048);
}

#[test]
fn large_outputs_written_past_the_caches_are_complete() {
    // A start that is not aligned, a partial last block, and a buffer above the threshold.
    let n = (17 << 20) / 4 + 13;
    let (mut b, src, dst) = begin("large");
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let one = b.u32(1);
    let at = b.add(i, one);
    let x = b.load_index(src, at, Type::F32);
    let y = b.convert(x, Scalar::U32);
    b.store_index(dst, at, y);
    let program = Program::compile(&b.finish().unwrap()).unwrap();
    let data: Vec<u8> = (0..n).flat_map(|i| ((i % 1000) as f32).to_le_bytes()).collect();
    let mut out = vec![0u8; n * 4];
    let bindings = Bindings::new(vec![Arg::read(&data), Arg::write(&mut out)]).unwrap();
    let launch = Launch::linear(n as u64 - 1, 256).unwrap();
    let two = |n: usize, f: &(dyn Fn(usize) + Sync)| {
        std::thread::scope(|s| {
            for t in 0..2 {
                s.spawn(move || (t..n).step_by(2).for_each(f));
            }
        });
    };
    program.run_parallel(&bindings, &launch, &Cancel::new(), &two).unwrap();
    drop(bindings);
    assert!(words(&out).iter().enumerate().all(|(i, &w)| w == if i == 0 { 0 } else { (i % 1000) as u32 }));
}

#[test]
fn atomics_of_many_threads_lose_nothing() {
    let mut b = Builder::new("histogram");
    let dst = b.buffer("dst", Space::Device, Type::U32, Access::Atomic);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let seven = b.u32(7);
    let bin = b.binary(BinaryOp::Rem, i, seven);
    let p = b.ptr_offset(dst, bin, 4);
    let one = b.u32(1);
    b.atomic(AtomicOp::Add, p, one);
    let q = b.ptr_add(dst, 28);
    let x = b.f32(0.5);
    b.atomic(AtomicOp::Add, q, x);
    let program = Program::compile(&b.finish().unwrap()).unwrap();
    let n = 70_000u64;
    let mut out = vec![0u32; 8];
    // SAFETY: plain words as bytes, aligned for the atomics.
    let bytes = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<u8>(), 32) };
    let bindings = Bindings::new(vec![Arg::write(bytes)]).unwrap();
    let launch = Launch::linear(n, 64).unwrap();
    let groups = launch.group_count();
    std::thread::scope(|s| {
        for t in 0..4 {
            let (program, bindings, launch) = (&program, &bindings, &launch);
            s.spawn(move || {
                let range = groups * t / 4..groups * (t + 1) / 4;
                program.run_groups(range, bindings, launch, &Cancel::new()).unwrap();
            });
        }
    });
    drop(bindings);
    assert_eq!(out[..7], [10_000; 7]);
    assert_eq!(f32::from_bits(out[7]), n as f32 * 0.5);
}

#[test]
fn thread_memory_keeps_its_bytes_whatever_the_size_of_the_access() {
    let (mut b, src, dst) = begin("bytes");
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let var = b.thread_var("a", 24, 8);
    let a = b.thread_ptr(var);
    let x = b.load_index(src, i, Type::F32);
    let three = b.u32(3);
    let at = b.binary(BinaryOp::And, i, three);
    b.store_index(a, at, x);
    let odd = b.ptr_add(a, 3);
    let odd = b.ptr_offset(odd, at, 1);
    let h = b.convert(x, Scalar::F16);
    b.store_aligned(odd, h, 1);
    let far = b.ptr_add(a, 16);
    let wide = b.convert(i, Scalar::U64);
    b.store(far, wide);
    let back = b.load_aligned(odd, Type::U32, 1);
    let v = b.load_aligned(a, Type::Vec(Scalar::U16, 4), 2);
    let v = b.convert(v, Scalar::U32);
    let mut sum = back;
    for lane in 0..4 {
        let e = b.extract(v, lane);
        let k = b.u32(31);
        let s = b.mul(sum, k);
        sum = b.add(s, e);
    }
    let outside = b.ptr_add(a, 22);
    let zero = b.load_aligned(outside, Type::U32, 1);
    let sum = b.add(sum, zero);
    b.store_index(dst, i, sum);
    assert_agrees(&b.finish().unwrap(), &Launch::linear(150, 64).unwrap(), &floats(150), 600);
}

#[test]
fn pointers_may_differ_between_lanes_be_null_and_travel_through_variables() {
    let (mut b, src, dst) = begin("pointers");
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let tile = b.threadgroup_var("tile", 256, 4);
    let tile = b.threadgroup_ptr(tile);
    let lane = b.builtin(Builtin::ThreadIndexInThreadgroup, 0);
    b.store_index(tile, lane, lane);
    b.barrier(Scope::Threadgroup, MemFlags::THREADGROUP);
    let var = b.var("p", Type::Ptr(Space::Device));
    let (one, zero) = (b.u32(1), b.u32(0));
    let bit = b.binary(BinaryOp::And, i, one);
    let odd = b.compare(CmpOp::Eq, bit, one);
    b.if_(odd, |b| {
        let p = b.ptr_offset(src, i, 4);
        b.set(var, p);
    });
    let p = b.get(var);
    let null = b.null(Space::Device);
    let is_null = b.compare(CmpOp::Eq, p, null);
    let x = b.load(p, Type::U32);
    let moved = b.ptr_offset(p, one, 4);
    let still_null = b.compare(CmpOp::Eq, moved, null);
    let diff = b.ptr_diff(moved, p, 4);
    let either = b.select(odd, src, dst);
    let y = b.load(either, Type::U32);
    let (n, s) = (b.convert(is_null, Scalar::U32), b.convert(still_null, Scalar::U32));
    let d = b.convert(diff, Scalar::U32);
    let t = b.load_index(tile, zero, Type::U32);
    let mut sum = x;
    for v in [n, s, d, y, t] {
        let k = b.u32(17);
        let m = b.mul(sum, k);
        sum = b.add(m, v);
    }
    b.barrier(Scope::Threadgroup, MemFlags::ALL);
    let off = b.u32(64);
    let at = b.add(i, off);
    b.store_index(dst, at, sum);
    assert_agrees(&b.finish().unwrap(), &Launch::linear(128, 64).unwrap(), &floats(128), 1024);
}

#[test]
fn launches_that_do_not_fit_are_refused_and_empty_ones_do_nothing() {
    let (mut b, _, dst) = begin("refused");
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    b.store_index(dst, i, i);
    let program = Program::compile(&b.finish().unwrap()).unwrap();
    let (data, out) = (floats(1), vec![0u8; 4]);
    let launch = Launch::linear(1, 1).unwrap();
    let read_only = Bindings::new(vec![Arg::read(&data), Arg::read(&out)]).unwrap();
    let r = program.run(&read_only, &launch, &Cancel::new());
    assert!(matches!(r, Err(ExecError::Launch(LaunchError::ReadOnly { index: 1, .. }))), "{r:?}");
    let few = Bindings::new(vec![Arg::read(&data)]).unwrap();
    let r = program.run(&few, &launch, &Cancel::new());
    assert!(matches!(r, Err(ExecError::Launch(LaunchError::Count { .. }))), "{r:?}");
    let large = Launch { grid: [1, 1, 1], threadgroup: [64, 64, 1] };
    let mut out = vec![0u8; 4];
    let good = Bindings::new(vec![Arg::read(&data), Arg::write(&mut out)]).unwrap();
    let r = program.run(&good, &large, &Cancel::new());
    assert!(matches!(r, Err(ExecError::Launch(LaunchError::Threadgroup(_)))), "{r:?}");
    let empty = Launch::new([0, 5, 1], [1, 1, 1]).unwrap();
    assert_eq!(program.run(&good, &empty, &Cancel::new()), Ok(()));
    assert!(program.size_bytes() > 0);
}

//! Helpers of the tests that compare machine code with the bytecode.
#![allow(dead_code, reason = "each test file uses a part of it")]

use hesper_kernel::exec::{Cancel, ExecError, Program, SimdLevel};
use hesper_kernel::ir::*;
use hesper_kernel::launch::{Arg, Bindings, Launch};

/// The levels that have machine code here; none where it is switched off.
pub fn levels() -> Vec<SimdLevel> {
    let wanted = std::env::var_os("HESPER_JIT").is_none_or(|v| v != "0") && !cfg!(miri);
    let with_code: &[SimdLevel] = if cfg!(all(target_arch = "x86_64", any(unix, windows))) {
        &[SimdLevel::Avx2, SimdLevel::Avx512]
    } else if cfg!(all(target_arch = "aarch64", any(target_os = "linux", target_os = "macos"))) {
        // NEON is part of the architecture.
        &[SimdLevel::Plain]
    } else {
        &[]
    };
    with_code.iter().copied().filter(|l| wanted && l.is_available()).collect()
}

/// Both programs of a kernel at a level; the first must be machine code.
pub fn programs(kernel: &Kernel, level: SimdLevel) -> (Program, Program) {
    let native = Program::compile_for(kernel, level).unwrap();
    assert!(native.is_machine_code(), "not machine code at {level:?}:\n{kernel}");
    (native, Program::compile_bytecode(kernel, level).unwrap())
}

pub fn is_nan(s: Scalar, x: &[u8]) -> bool {
    match s {
        Scalar::F16 => half::f16::from_le_bytes([x[0], x[1]]).is_nan(),
        Scalar::BF16 => half::bf16::from_le_bytes([x[0], x[1]]).is_nan(),
        Scalar::F32 => f32::from_le_bytes([x[0], x[1], x[2], x[3]]).is_nan(),
        Scalar::F64 => f64::from_le_bytes(x.try_into().unwrap()).is_nan(),
        _ => false,
    }
}

/// Asserts that two buffers of a type agree, all NaNs being equal.
pub fn assert_same(s: Scalar, want: &[u8], got: &[u8], what: &dyn Fn() -> String) {
    if want == got {
        return;
    }
    let size = s.size() as usize;
    for (i, (w, g)) in want.chunks(size).zip(got.chunks(size)).enumerate() {
        assert!(w == g || (is_nan(s, w) && is_nan(s, g)), "element {i}: {g:x?}, not {w:x?}: {}", what());
    }
}

/// `y[i] = f(x[i])` over one axis.
pub fn map(from: Type, to: Type, f: impl FnOnce(&mut Builder, ValueId) -> ValueId) -> Kernel {
    let mut b = Builder::new("map");
    let src = b.buffer("src", Space::Device, from, Access::Read);
    let dst = b.buffer("dst", Space::Device, to, Access::ReadWrite);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let x = b.load_index(src, i, from);
    let y = f(&mut b, x);
    b.store_index(dst, i, y);
    b.finish().unwrap()
}

pub fn run_map(program: &Program, input: &[u8], output: usize, launch: &Launch) -> Vec<u8> {
    let (y, outcome) = try_map(program, input, output, launch);
    outcome.unwrap();
    y
}

/// The output, and how the launch ended.
pub fn try_map(
    program: &Program,
    input: &[u8],
    output: usize,
    launch: &Launch,
) -> (Vec<u8>, Result<(), ExecError>) {
    let mut y = vec![0u8; output];
    let bindings = Bindings::new(vec![Arg::read(input), Arg::write(&mut y)]).unwrap();
    let outcome = program.run(&bindings, launch, &Cancel::new());
    drop(bindings);
    (y, outcome)
}

pub fn floats(n: usize) -> Vec<u8> {
    (0..n).flat_map(|i| (i as f32 * 0.37 - 5.0).to_le_bytes()).collect()
}

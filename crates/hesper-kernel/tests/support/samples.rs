//! Operands and kernels for the tests of single operations.

use hesper_kernel::ir::*;

/// More than one block of lanes, and a partial one.
pub const THREADS: usize = 100;

/// Interesting bits of a type, one for each thread; `salt` gives another order.
pub fn samples(s: Scalar, salt: u64) -> Vec<u64> {
    let floats = [
        0.0f64,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -2.5,
        3.5,
        1e-3,
        -7.25,
        100.0,
        65504.0,
        1e-8,
        1e30,
        -1e38,
        1e-42,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        12345.678,
        -0.999,
        2.0,
        33.0,
        1e5,
        -1e7,
    ];
    let ints = [
        0u64,
        1,
        2,
        3,
        5,
        7,
        31,
        32,
        63,
        127,
        128,
        255,
        256,
        32767,
        32768,
        65535,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x7fff_ffff_ffff_ffff,
        0x8000_0000_0000_0000,
        u64::MAX,
        u64::MAX - 6,
        1_000_000_007,
    ];
    let mut state = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..THREADS)
        .map(|i| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = if salt == 0 { i } else { (state >> 20) as usize } % floats.len();
            let random = i >= 72;
            match s {
                Scalar::Bool => state >> 40 & 1,
                Scalar::F64 if random => f64::from_bits(state).to_bits(),
                Scalar::F64 => floats[at].to_bits(),
                Scalar::F32 if random => u64::from(state as u32),
                Scalar::F32 => u64::from((floats[at] as f32).to_bits()),
                Scalar::F16 if random => u64::from(state as u16),
                Scalar::F16 => u64::from(half::f16::from_f64(floats[at]).to_bits()),
                Scalar::BF16 if random => u64::from(state as u16),
                Scalar::BF16 => u64::from(half::bf16::from_f64(floats[at]).to_bits()),
                _ => (if random { state } else { ints[at] }) & (u64::MAX >> (64 - s.bits())),
            }
        })
        .collect()
}

/// Bits of a type as memory.
pub fn packed(s: Scalar, bits: &[u64]) -> Vec<u8> {
    bits.iter().flat_map(|b| b.to_le_bytes()[..s.size() as usize].to_vec()).collect()
}

/// Whether the bytes of a value are a NaN.
pub fn is_nan(s: Scalar, x: &[u8]) -> bool {
    match s {
        Scalar::F16 => half::f16::from_le_bytes([x[0], x[1]]).is_nan(),
        Scalar::BF16 => half::bf16::from_le_bytes([x[0], x[1]]).is_nan(),
        Scalar::F32 => f32::from_le_bytes([x[0], x[1], x[2], x[3]]).is_nan(),
        Scalar::F64 => f64::from_le_bytes(std::array::from_fn(|i| x[i])).is_nan(),
        _ => false,
    }
}

/// Builds `out[i] = op(a[i], b[i], c[i])`; the last operand is loaded uniformly if asked. `None`
/// where the IR has no such operation.
pub fn build(
    types: &[Scalar],
    uniform: bool,
    op: &dyn Fn(&mut Builder, &[ValueId]) -> ValueId,
) -> Option<(Kernel, Scalar)> {
    let mut b = Builder::new("op");
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let mut values = Vec::new();
    for (k, &s) in types.iter().enumerate() {
        let p = b.buffer(format!("x{k}"), Space::Device, s.into(), Access::Read);
        let five = b.u32(5);
        let at = if uniform && k + 1 == types.len() { five } else { i };
        values.push(b.load_index(p, at, s.into()));
    }
    let y = op(&mut b, &values);
    let out = b.ty(y).scalar()?;
    let p = b.buffer("out", Space::Device, out.into(), Access::ReadWrite);
    b.store_index(p, i, y);
    Some((b.finish().ok()?, out))
}

//! The small floats of quantized formats, decoded and encoded.

/// The sixteen values of E2M1.
pub(super) const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// 0 to 15, for integer codes.
pub(super) const COUNT: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0];

/// The 256 values of E4M3.
pub(super) static E4M3: [f32; 256] = e4m3_table();

const fn e4m3_table() -> [f32; 256] {
    let mut t = [0.0; 256];
    let mut i = 0;
    while i < 256 {
        let (e, m) = ((i >> 3) & 15, (i & 7) as f32);
        // 2^(e - 7) from its bits; the smallest exponent is subnormal.
        let power = f32::from_bits(((if e == 0 { 1 } else { e as u32 }) + 120) << 23);
        let x = if e == 0 { m * 0.125 * power } else { (1.0 + m * 0.125) * power };
        let x = if i & 0x7f == 0x7f { f32::NAN } else { x };
        t[i] = if i >= 128 { -x } else { x };
        i += 1;
    }
    t
}

/// Decodes E4M3.
#[inline(always)]
pub(super) fn e4m3(b: u8) -> f32 {
    E4M3[usize::from(b)]
}

/// Decodes a power of two (E8M0); the last code becomes infinity.
#[inline(always)]
pub(super) fn e8m0(b: u8) -> f32 {
    if b == 0 { f32::from_bits(1 << 22) } else { f32::from_bits(u32::from(b) << 23) }
}

/// The nearest E4M3, ties to even, clamped to its largest value.
pub(super) fn to_e4m3(x: f32) -> u8 {
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    if x.is_nan() {
        return 0x7f | sign;
    }
    let a = x.abs().min(448.0);
    // Steps of 2^-9 below 2^-6, of an eighth of the power of two above.
    let exp = (a.to_bits() >> 23) as i32 - 127;
    let step = f32::from_bits(((exp.max(-6) - 3 + 127) as u32) << 23);
    let n = (a / step).round_ties_even() as u32;
    let code = if exp < -6 { n } else { ((exp + 6) as u32) * 8 + n };
    sign | code.min(0x7e) as u8
}

/// The smallest power of two that is at least `x`, as E8M0.
pub(super) fn to_e8m0(x: f32) -> u8 {
    if !x.is_finite() {
        return 0xff;
    }
    if x <= 0.0 {
        // A group of zeros: any scale is valid; MLX uses one.
        return 127;
    }
    (x.log2().ceil().clamp(-127.0, 127.0) as i32 + 127) as u8
}

/// The nearest E2M1; ties go towards zero, as in MLX.
pub(super) fn to_e2m1(x: f32) -> u8 {
    let middles = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
    let code = middles.iter().filter(|m| x.abs() > **m).count() as u8;
    if x < 0.0 && code > 0 { code | 8 } else { code }
}

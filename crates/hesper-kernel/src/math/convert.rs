//! Conversions to and from the 16-bit floats, and from wide integers, rounded once.

use half::f16;

/// f16 bits to f32.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

/// f32 to the nearest f16.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> u16 {
    f16::from_f32(x).to_bits()
}

/// bf16 bits to f32.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// f32 to the nearest bf16.
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let even = (bits >> 16) & 1;
    let rounded = (bits.wrapping_add(0x7fff + even) >> 16) as u16;
    // A NaN keeps its upper bits and becomes quiet.
    if x.is_nan() { (bits >> 16) as u16 | 0x0040 } else { rounded }
}

/// f64 to f32, rounded to odd: a second rounding to a narrower type is then right.
#[inline(always)]
fn to_odd(x: f64) -> f32 {
    let near = x as f32;
    let back = f64::from(near);
    if back == x || near.is_nan() {
        return near;
    }
    // Towards zero, then the last bit set.
    let bits = near.to_bits();
    let cut = if back.abs() > x.abs() { bits - 1 } else { bits };
    f32::from_bits(cut | 1)
}

/// f64 to the nearest f16.
pub fn f64_to_f16(x: f64) -> u16 {
    f32_to_f16(to_odd(x))
}

/// f64 to the nearest bf16.
pub fn f64_to_bf16(x: f64) -> u16 {
    f32_to_bf16(to_odd(x))
}

/// A magnitude in at most 48 significant bits, the dropped ones sticking to the last.
fn sticky(m: u64) -> f64 {
    if m < 1 << 48 { m as f64 } else { (((m >> 16) | u64::from(m & 0xffff != 0)) as f64) * 65536.0 }
}

/// i64 to the nearest f16.
pub fn i64_to_f16(x: i64) -> u16 {
    f64_to_f16(signed(x))
}

/// i64 to the nearest bf16.
pub fn i64_to_bf16(x: i64) -> u16 {
    f64_to_bf16(signed(x))
}

/// u64 to the nearest f16.
pub fn u64_to_f16(x: u64) -> u16 {
    f64_to_f16(sticky(x))
}

/// u64 to the nearest bf16.
pub fn u64_to_bf16(x: u64) -> u16 {
    f64_to_bf16(sticky(x))
}

fn signed(x: i64) -> f64 {
    let m = sticky(x.unsigned_abs());
    if x < 0 { -m } else { m }
}

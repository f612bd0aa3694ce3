//! Arithmetic on compile-time constants, with the wrapping and rounding of the IR.

use super::value::ConstValue;
use crate::front::ast::BinOp;
use crate::ir::Scalar;

/// Wraps an integer into a type.
pub(crate) fn wrap(v: i64, s: Scalar) -> i64 {
    match s {
        Scalar::Bool => i64::from(v != 0),
        Scalar::I8 => i64::from(v as i8),
        Scalar::I16 => i64::from(v as i16),
        Scalar::I32 => i64::from(v as i32),
        Scalar::U8 => i64::from(v as u8),
        Scalar::U16 => i64::from(v as u16),
        Scalar::U32 => i64::from(v as u32),
        _ => v,
    }
}

/// Rounds a float into a type.
pub(crate) fn round(v: f64, s: Scalar) -> f64 {
    match s {
        Scalar::F16 => half::f16::from_f64(v).to_f64(),
        Scalar::BF16 => half::bf16::from_f64(v).to_f64(),
        Scalar::F32 => f64::from(v as f32),
        _ => v,
    }
}

/// Value conversion: float to integer truncates and saturates, NaN gives 0.
pub(crate) fn convert(v: ConstValue, from: Scalar, to: Scalar) -> ConstValue {
    match v {
        ConstValue::Int(i) if to.is_float() => ConstValue::Float(match (from, to) {
            (Scalar::U64, Scalar::F32) => f64::from(i as u64 as f32),
            (_, Scalar::F32) => f64::from(i as f32),
            (Scalar::U64, _) => round(i as u64 as f64, to),
            _ => round(i as f64, to),
        }),
        ConstValue::Int(i) => ConstValue::Int(wrap(i, to)),
        ConstValue::Float(f) if to.is_float() => ConstValue::Float(round(f, to)),
        ConstValue::Float(f) => ConstValue::Int(match to {
            Scalar::Bool => i64::from(f != 0.0),
            Scalar::I8 => i64::from(f as i8),
            Scalar::I16 => i64::from(f as i16),
            Scalar::I32 => i64::from(f as i32),
            Scalar::U8 => i64::from(f as u8),
            Scalar::U16 => i64::from(f as u16),
            Scalar::U32 => i64::from(f as u32),
            Scalar::U64 => f as u64 as i64,
            _ => f as i64,
        }),
    }
}

/// The bits of a constant in the low bits of a word, as the IR wants them.
pub(crate) fn bits(v: ConstValue, s: Scalar) -> u64 {
    match v {
        ConstValue::Int(i) if s.is_float() => bits(ConstValue::Float(i as f64), s),
        ConstValue::Int(i) => match s.bits() {
            64 => i as u64,
            n => (i as u64) & ((1u64 << n) - 1),
        },
        ConstValue::Float(f) => match s {
            Scalar::F16 => u64::from(half::f16::from_f64(f).to_bits()),
            Scalar::BF16 => u64::from(half::bf16::from_f64(f).to_bits()),
            Scalar::F64 => f.to_bits(),
            _ => u64::from((f as f32).to_bits()),
        },
    }
}

/// The constant with these bits.
pub(crate) fn from_bits(bits: u64, s: Scalar) -> ConstValue {
    match s {
        Scalar::F16 => ConstValue::Float(half::f16::from_bits(bits as u16).to_f64()),
        Scalar::BF16 => ConstValue::Float(half::bf16::from_bits(bits as u16).to_f64()),
        Scalar::F32 => ConstValue::Float(f64::from(f32::from_bits(bits as u32))),
        Scalar::F64 => ConstValue::Float(f64::from_bits(bits)),
        _ => ConstValue::Int(wrap(bits as i64, s)),
    }
}

/// `a op b`, both of type `s`; none where it is undefined (division by zero).
pub(crate) fn binary(op: BinOp, a: ConstValue, b: ConstValue, s: Scalar) -> Option<ConstValue> {
    if let (ConstValue::Float(x), ConstValue::Float(y)) = (a, b) {
        // Sums, products and quotients of floats are exact enough in f64 to round once to any narrower type.
        let v = match op {
            BinOp::Add => x + y,
            BinOp::Sub => x - y,
            BinOp::Mul => x * y,
            BinOp::Div => x / y,
            _ => return compare(op, x.partial_cmp(&y)),
        };
        return Some(ConstValue::Float(round(v, s)));
    }
    let (ConstValue::Int(x), ConstValue::Int(y)) = (a, b) else { return None };
    let unsigned = s.is_unsigned_int();
    let shift = (y as u32) & (s.bits() - 1);
    let v = match op {
        BinOp::Add => x.wrapping_add(y),
        BinOp::Sub => x.wrapping_sub(y),
        BinOp::Mul => x.wrapping_mul(y),
        BinOp::Div | BinOp::Rem if y == 0 => return None,
        BinOp::Div if unsigned => ((x as u64) / (y as u64)) as i64,
        BinOp::Rem if unsigned => ((x as u64) % (y as u64)) as i64,
        BinOp::Div => x.wrapping_div(y),
        BinOp::Rem => x.wrapping_rem(y),
        BinOp::Shl => x.wrapping_shl(shift),
        BinOp::Shr if unsigned => ((x as u64) >> shift) as i64,
        BinOp::Shr => x >> shift,
        BinOp::And => x & y,
        BinOp::Or => x | y,
        BinOp::Xor => x ^ y,
        BinOp::LogicalAnd => i64::from(x != 0 && y != 0),
        BinOp::LogicalOr => i64::from(x != 0 || y != 0),
        _ => {
            let order = if unsigned { (x as u64).cmp(&(y as u64)) } else { x.cmp(&y) };
            return compare(op, Some(order));
        }
    };
    Some(ConstValue::Int(wrap(v, s)))
}

fn compare(op: BinOp, order: Option<std::cmp::Ordering>) -> Option<ConstValue> {
    use std::cmp::Ordering::*;
    let v = match op {
        BinOp::Eq => order == Some(Equal),
        BinOp::Ne => order != Some(Equal),
        BinOp::Lt => order == Some(Less),
        BinOp::Le => matches!(order, Some(Less | Equal)),
        BinOp::Gt => order == Some(Greater),
        BinOp::Ge => matches!(order, Some(Greater | Equal)),
        _ => return None,
    };
    Some(ConstValue::Int(i64::from(v)))
}

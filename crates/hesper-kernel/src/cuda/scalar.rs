//! Scalar expressions: one operation of one scalar type as C++.
//!
//! Operands are texts that may be repeated and need no parentheses (names, or names with a
//! component).

use crate::ir::{BinaryOp, CmpOp, Scalar, TernaryOp, TestOp, Type, UnaryOp};

/// The names of vector components.
pub(super) const COMPONENTS: [&str; 4] = ["x", "y", "z", "w"];

/// The C++ name of a type; pointers are the emitter's business.
pub(super) fn type_name(ty: Type) -> String {
    match ty {
        Type::Vec(s, n) => format!("vec{n}<{}>", s.name()),
        Type::Scalar(s) => s.name().to_string(),
        Type::Ptr(_) => "address".to_string(),
    }
}

/// A constant of these bits.
pub(super) fn constant(s: Scalar, bits: u64) -> String {
    match s {
        Scalar::Bool => (bits != 0).to_string(),
        Scalar::I8 => format!("(i8){}", bits as i8),
        Scalar::I16 => format!("(i16){}", bits as i16),
        Scalar::I32 if bits as i32 == i32::MIN => "(i32)0x80000000u".to_string(),
        Scalar::I32 => (bits as i32).to_string(),
        Scalar::I64 if bits as i64 == i64::MIN => "(i64)0x8000000000000000ull".to_string(),
        Scalar::I64 => format!("{}ll", bits as i64),
        Scalar::U8 | Scalar::U16 => format!("({}){bits}", s.name()),
        Scalar::U32 => format!("{bits}u"),
        Scalar::U64 => format!("{bits}ull"),
        Scalar::F16 => format!("f16{{{bits:#06x}}}"),
        Scalar::BF16 => format!("bf16{{{bits:#06x}}}"),
        Scalar::F32 => format!("f32_of({:#010x}u /* {:?} */)", bits, f32::from_bits(bits as u32)),
        Scalar::F64 => format!("f64_of({:#018x}ull /* {:?} */)", bits, f64::from_bits(bits)),
    }
}

fn narrow(s: Scalar) -> bool {
    matches!(s, Scalar::F16 | Scalar::BF16)
}

/// A float operand in the type it is computed in.
fn wide(s: Scalar, a: &str) -> String {
    if narrow(s) { format!("to_f32({a})") } else { a.to_string() }
}

/// A computed float rounded to its type.
fn rounded(s: Scalar, text: String) -> String {
    if narrow(s) { format!("to_{}({text})", s.name()) } else { text }
}

/// The quick form of a function, for types that are computed in single precision and rounded.
pub(super) fn fast_unary(op: UnaryOp, s: Scalar) -> Option<&'static str> {
    match op {
        _ if !narrow(s) => None,
        UnaryOp::Exp => Some("fast_exp_of"),
        UnaryOp::Sigmoid => Some("fast_sigmoid_of"),
        UnaryOp::Tanh if s == Scalar::BF16 => Some("fast_tanh_of_bf16"),
        UnaryOp::Tanh => Some("fast_tanh_of"),
        _ => None,
    }
}

/// The quick form of an operation on halves: the same bits, without a way through single precision.
pub(super) fn fast_binary(op: BinaryOp, s: Scalar) -> Option<&'static str> {
    match op {
        _ if !narrow(s) => None,
        BinaryOp::Add => Some("fast_add"),
        BinaryOp::Sub => Some("fast_sub"),
        BinaryOp::Mul => Some("fast_mul"),
        _ => None,
    }
}

/// A function of single precision, rounded.
pub(super) fn through_single(function: &str, s: Scalar, a: &str) -> String {
    rounded(s, format!("{function}({})", wide(s, a)))
}

/// A one-operand operation.
pub(super) fn unary(op: UnaryOp, s: Scalar, a: &str) -> String {
    use UnaryOp as U;
    let t = s.name();
    if s.is_float() {
        let sign = |bits: &str, operator: &str| format!("{t}{{(u16)({a}.b {operator} {bits})}}");
        return match op {
            U::Neg if narrow(s) => sign("0x8000u", "^"),
            U::Abs if narrow(s) => sign("0x7fffu", "&"),
            _ => rounded(s, format!("{}({})", float_function(op), wide(s, a))),
        };
    }
    match op {
        U::Not if s == Scalar::Bool => format!("!{a}"),
        U::Not => format!("({t})~{a}"),
        U::Neg => format!("ineg({a})"),
        U::Abs if s.is_unsigned_int() => a.to_string(),
        U::Abs => format!("iabs({a})"),
        U::Sign => format!("isign({a})"),
        U::PopCount => format!("ipopcount({a})"),
        U::Clz => format!("iclz({a})"),
        U::Ctz => format!("ictz({a})"),
        U::ReverseBits => format!("ireverse({a})"),
        // The verifier keeps float functions away from integers.
        _ => a.to_string(),
    }
}

fn float_function(op: UnaryOp) -> &'static str {
    use UnaryOp as U;
    match op {
        U::Neg => "neg_of",
        U::Abs => "abs_of",
        U::Sign => "fsign",
        U::Sqrt => "sqrt_of",
        U::Rsqrt => "rsqrt_of",
        U::Cbrt => "cbrt_of",
        U::Exp => "exp_of",
        U::Exp2 => "exp2_of",
        U::Exp10 => "exp10_of",
        U::Expm1 => "expm1_of",
        U::Log => "log_of",
        U::Log2 => "log2_of",
        U::Log10 => "log10_of",
        U::Log1p => "log1p_of",
        U::Sin => "sin_of",
        U::Cos => "cos_of",
        U::Tan => "tan_of",
        U::SinPi => "sin_pi_of",
        U::CosPi => "cos_pi_of",
        U::TanPi => "tan_pi_of",
        U::Asin => "asin_of",
        U::Acos => "acos_of",
        U::Atan => "atan_of",
        U::Sinh => "sinh_of",
        U::Cosh => "cosh_of",
        U::Tanh => "tanh_of",
        U::Asinh => "asinh_of",
        U::Acosh => "acosh_of",
        U::Atanh => "atanh_of",
        U::Erf => "erf_of",
        U::Erfc => "erfc_of",
        U::ErfInv => "erf_inv_of",
        U::Lgamma => "lgamma_of",
        U::Floor => "floor_of",
        U::Ceil => "ceil_of",
        U::Round => "round_of",
        U::Rint => "rint_of",
        U::Trunc => "trunc_of",
        U::Fract => "fract_of",
        U::FrexpMant => "frexp_mant",
        U::Sigmoid => "sigmoid_of",
        // Of integers only.
        U::Not | U::PopCount | U::Clz | U::Ctz | U::ReverseBits => "",
    }
}

/// A two-operand operation.
pub(super) fn binary(op: BinaryOp, s: Scalar, a: &str, b: &str) -> String {
    use BinaryOp as B;
    let t = s.name();
    if s.is_float() {
        if narrow(s) && op == B::NextAfter {
            let nan = if s == Scalar::F16 { "0x7e00" } else { "0x7fc0" };
            return format!("next_after_16({a}, {b}, {t}{{{nan}}})");
        }
        if narrow(s) && op == B::CopySign {
            return format!("{t}{{(u16)(({a}.b & 0x7fffu) | ({b}.b & 0x8000u))}}");
        }
        let (x, y) = (wide(s, a), if op == B::Ldexp { b.to_string() } else { wide(s, b) });
        let call = |f: &str| format!("{f}({x}, {y})");
        let text = match op {
            B::Add => format!("{x} + {y}"),
            B::Sub => format!("{x} - {y}"),
            B::Mul => format!("{x} * {y}"),
            B::Div => format!("{x} / {y}"),
            B::Rem => call("fmod_of"),
            B::Min => call("fmin_of"),
            B::Max => call("fmax_of"),
            B::MinNan => call("fmin_nan"),
            B::MaxNan => call("fmax_nan"),
            B::Pow => call("pow_of"),
            B::Atan2 => call("atan2_of"),
            B::IeeeRem => call("ieee_rem_of"),
            B::CopySign => call("copysign_of"),
            B::NextAfter => call("next_after_of"),
            B::Fdim => call("fdim_of"),
            B::Hypot => call("hypot_of"),
            B::Ldexp => call("ldexp_of"),
            // Of integers only.
            _ => x,
        };
        return rounded(s, text);
    }
    let direct = matches!(s, Scalar::U32 | Scalar::U64);
    let call = |f: &str| format!("{f}({a}, {b})");
    match op {
        B::Add if direct => format!("{a} + {b}"),
        B::Sub if direct => format!("{a} - {b}"),
        B::Mul if direct => format!("{a} * {b}"),
        B::Add => call("iadd"),
        B::Sub => call("isub"),
        B::Mul => call("imul"),
        B::Div => call("idiv"),
        B::Rem => call("irem"),
        B::Min | B::MinNan => call("imin"),
        B::Max | B::MaxNan => call("imax"),
        B::And => format!("({t})({a} & {b})"),
        B::Or => format!("({t})({a} | {b})"),
        B::Xor => format!("({t})({a} ^ {b})"),
        B::Shl => call("ishl"),
        B::Shr => call("ishr"),
        B::Rotate => call("irotate"),
        B::MulHi => call("imulhi"),
        B::AddSat => call("iadd_sat"),
        B::SubSat => call("isub_sat"),
        B::AbsDiff => call("iabsdiff"),
        B::Hadd => call("ihadd"),
        B::Rhadd => call("irhadd"),
        // Of floats only.
        _ => a.to_string(),
    }
}

/// A three-operand operation.
pub(super) fn ternary(op: TernaryOp, s: Scalar, a: &str, b: &str, c: &str) -> String {
    match (op, s.is_float()) {
        (TernaryOp::Fma, true) => {
            rounded(s, format!("fma_of({}, {}, {})", wide(s, a), wide(s, b), wide(s, c)))
        }
        (TernaryOp::Fma, false) => format!("iadd(imul({a}, {b}), {c})"),
        // Rounding between the two would change nothing: both give one of their operands.
        (TernaryOp::Clamp, true) => {
            rounded(s, format!("fmin_of(fmax_of({}, {}), {})", wide(s, a), wide(s, b), wide(s, c)))
        }
        (TernaryOp::Clamp, false) => format!("imin(imax({a}, {b}), {c})"),
    }
}

/// The C++ operator of a comparison.
pub(super) fn compare_operator(op: CmpOp) -> &'static str {
    match op {
        CmpOp::Eq => "==",
        CmpOp::Ne => "!=",
        CmpOp::Lt => "<",
        CmpOp::Le => "<=",
        CmpOp::Gt => ">",
        CmpOp::Ge => ">=",
    }
}

/// A comparison.
pub(super) fn compare(op: CmpOp, s: Scalar, a: &str, b: &str) -> String {
    format!("{} {} {}", wide(s, a), compare_operator(op), wide(s, b))
}

/// A classification.
pub(super) fn test(op: TestOp, s: Scalar, a: &str) -> String {
    match op {
        TestOp::IsNan => format!("is_nan({})", wide(s, a)),
        TestOp::IsInf => format!("is_inf({})", wide(s, a)),
        TestOp::IsFinite => format!("is_finite({})", wide(s, a)),
        // f16's subnormals are normal in f32.
        TestOp::IsNormal if s == Scalar::F16 => format!("is_normal({a})"),
        TestOp::IsNormal => format!("is_normal({})", wide(s, a)),
        // A conversion need not keep the sign of a NaN.
        TestOp::SignBit if narrow(s) => format!("{a}.b >> 15 != 0"),
        TestOp::SignBit => format!("sign_bit({})", wide(s, a)),
    }
}

/// The exponent of `frexp`.
pub(super) fn frexp_exp(s: Scalar, a: &str) -> String {
    format!("frexp_exp({})", wide(s, a))
}

/// A value conversion.
pub(super) fn convert(from: Scalar, to: Scalar, a: &str) -> String {
    let t = to.name();
    if from == to {
        return a.to_string();
    }
    if to == Scalar::Bool {
        return if from.is_float() {
            format!("{} != ({})0", wide(from, a), if from == Scalar::F64 { "f64" } else { "f32" })
        } else {
            format!("{a} != ({})0", from.name())
        };
    }
    if from.is_float() {
        return match (from, to) {
            (Scalar::F64, Scalar::F16 | Scalar::BF16) => format!("to_{t}(to_odd({a}))"),
            (_, Scalar::F16 | Scalar::BF16) => format!("to_{t}({})", wide(from, a)),
            (_, Scalar::F32 | Scalar::F64) => format!("({t}){}", wide(from, a)),
            (Scalar::F64, _) => format!("sat_int<{t}>({a})"),
            _ => format!("sat_int_f32<{t}>({})", wide(from, a)),
        };
    }
    match to {
        // Exact in f32 first.
        Scalar::F16 | Scalar::BF16 if from.bits() <= 16 => format!("to_{t}((f32){a})"),
        Scalar::F16 | Scalar::BF16 => format!("to_{t}(to_odd(sticky({a})))"),
        _ => format!("({t}){a}"),
    }
}

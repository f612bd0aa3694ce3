//! Scalar expressions: one operation of one scalar type as C++.
//!
//! Operands are texts that may be repeated and need no parentheses (names, or names with a
//! component).

use crate::ir::registry::{binary_ops, ternary_ops, unary_ops};
use crate::ir::{BinaryOp, CmpOp, Scalar, TernaryOp, Type, UnaryOp};

/// The names of vector components.
pub(crate) const COMPONENTS: [&str; 4] = ["x", "y", "z", "w"];

/// The C++ name of a type; the emitter names pointers.
pub(crate) fn type_name(ty: Type) -> String {
    match ty {
        Type::Vec(s, n) => format!("vec{n}<{}>", s.name()),
        Type::Scalar(s) => s.name().to_string(),
        Type::Ptr(_) => "address".to_string(),
    }
}

/// A constant of these bits.
pub(crate) fn constant(s: Scalar, bits: u64) -> String {
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

/// A float operand in the type it is computed in.
fn wide(s: Scalar, a: &str) -> String {
    if s.is_half() { format!("to_f32({a})") } else { a.to_string() }
}

/// A computed float rounded to its type.
fn rounded(s: Scalar, text: String) -> String {
    if s.is_half() { format!("to_{}({text})", s.name()) } else { text }
}

/// Which types a text of the registry is for. The fast forms are for
/// [`Options::fast_half`](crate::cuda::Options::fast_half).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TypeForm {
    FastF16,
    FastBf16,
    FastHalf,
    /// Single precision, with the bits of the other form.
    FastF32,
    F16,
    Bf16,
    Half,
    /// Every float; 16-bit ones compute in f32 and are rounded.
    Float,
    Bool,
    /// Integers whose C++ arithmetic already wraps, without promotion.
    Word,
    Unsigned,
    Int,
    /// Integers and `Bool`.
    Bits,
}

impl TypeForm {
    fn fits(self, s: Scalar, fast: bool) -> bool {
        match self {
            TypeForm::FastF16 => fast && s == Scalar::F16,
            TypeForm::FastBf16 => fast && s == Scalar::BF16,
            TypeForm::FastHalf => fast && s.is_half(),
            TypeForm::FastF32 => fast && s == Scalar::F32,
            TypeForm::F16 => s == Scalar::F16,
            TypeForm::Bf16 => s == Scalar::BF16,
            TypeForm::Half => s.is_half(),
            TypeForm::Float => s.is_float(),
            TypeForm::Bool => s == Scalar::Bool,
            TypeForm::Word => matches!(s, Scalar::U32 | Scalar::U64),
            TypeForm::Unsigned => s.is_unsigned_int(),
            TypeForm::Int => s.is_int(),
            TypeForm::Bits => !s.is_float(),
        }
    }
}

/// The text of an op on a type, with its operands as `$a`, `$b` and `$c`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template {
    pub text: &'static str,
    pub scalar: Scalar,
    form: TypeForm,
    result: Scalar,
}

impl Template {
    fn find(templates: &[(TypeForm, &'static str)], scalar: Scalar, result: Scalar, fast: bool) -> Template {
        let found = templates.iter().find(|(form, _)| form.fits(scalar, fast));
        // The verifier keeps ops away from types they do not take.
        let (form, text) = found.copied().unwrap_or((TypeForm::Bits, "$a"));
        Template { text, scalar, form, result }
    }

    /// The text with operands, each with its type, filled in.
    pub fn fill(&self, operands: &[(&str, Scalar)]) -> String {
        let mut text = self.text.replace("$t", self.scalar.name());
        for (name, (operand, s)) in ["$a", "$b", "$c"].iter().zip(operands) {
            let operand = if self.form == TypeForm::Float { wide(*s, operand) } else { operand.to_string() };
            text = text.replace(name, &operand);
        }
        if self.form == TypeForm::Float { rounded(self.result, text) } else { text }
    }
}

macro_rules! templates {
    ($Op:ident $name:ident |$op:ident, $s:ident| $result:expr;
     $($group:ident { $($(#[$doc:meta])* $Name:ident {
        eval $eval:tt text { $($form:ident $text:literal),* } $(device $device:literal)? builtins $builtins:tt
     })* })*) => {
        /// The text of an op on a type.
        pub(crate) fn $name($op: $Op, $s: Scalar, fast: bool) -> Template {
            let templates: &[(TypeForm, &str)] = match $op { $($($Op::$Name => &[$((TypeForm::$form, $text)),*],)*)* };
            Template::find(templates, $s, $result, fast)
        }
    };
}
unary_ops!(templates UnaryOp unary |op, s| op.result(s););
binary_ops!(templates BinaryOp binary |op, s| s;);
ternary_ops!(templates TernaryOp ternary |op, s| s;);

macro_rules! device_texts {
    ($($group:ident { $($(#[$doc:meta])* $Name:ident {
        eval $eval:tt text $text:tt $(device $device:literal)? builtins $builtins:tt
    })* })*) => { &[$($($($device,)?)*)*] };
}

/// The functions that entries of the registry define.
pub(crate) const DEVICE_TEXTS: [&[&str]; 3] =
    [unary_ops!(device_texts), binary_ops!(device_texts), ternary_ops!(device_texts)];

/// A comparison.
pub(crate) fn compare(op: CmpOp, s: Scalar, a: &str, b: &str) -> String {
    format!("{} {} {}", wide(s, a), op.operator(), wide(s, b))
}

/// A value conversion.
pub(crate) fn convert(from: Scalar, to: Scalar, a: &str) -> String {
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
        // Exact in f32.
        Scalar::F16 | Scalar::BF16 if from.bits() <= 16 => format!("to_{t}((f32){a})"),
        Scalar::F16 | Scalar::BF16 => format!("to_{t}(to_odd(sticky({a})))"),
        _ => format!("({t}){a}"),
    }
}

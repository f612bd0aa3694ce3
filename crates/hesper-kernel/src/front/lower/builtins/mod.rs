//! The library: its functions and constants, by name.
//!
//! Functions that are one op come from the [registry](crate::ir::registry). Any other is one line in
//! [`FUNCTIONS`]; what it does is in `math`, `groups` or `memory`. Names are the same under `metal::`,
//! `fast::` and `precise::`, since there is one implementation of each.

mod groups;
mod math;
mod memory;

use super::call::Arg;
use super::value::{ConstValue, ExprResult, RValue, ValueRepr};
use super::*;
use crate::ir::registry::{atomic_ops, binary_ops, ternary_ops, unary_ops};
use crate::ir::{AtomicOp, BinaryOp, Operands, ReduceOp, Scalar, ShuffleKind, TernaryOp, UnaryOp, operands};

/// An op of the registry.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ScalarOp {
    Unary(UnaryOp),
    Binary(BinaryOp),
    Ternary(TernaryOp),
}

impl ScalarOp {
    fn arity(self) -> usize {
        match self {
            ScalarOp::Unary(_) => 1,
            ScalarOp::Binary(_) => 2,
            ScalarOp::Ternary(_) => 3,
        }
    }
}

/// What a library function does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    /// An op of the registry, and the operands that arguments are converted to.
    Op(ScalarOp, Operands),
    /// A function that is not one op; see `math`.
    MathFunction(math::MathFunction),
    /// Lanes of a SIMD group (`simd_`) or quad (`quad_`).
    Reduce(ReduceOp),
    Scan(ReduceOp, bool),
    Shuffle(ShuffleKind),
    Group(groups::GroupFunction),
    /// Atomics.
    AtomicRmw(AtomicOp),
    Memory(memory::MemoryFunction),
}

use groups::GroupFunction as G;
use math::MathFunction as M;
use memory::MemoryFunction as A;

/// The functions of a table of the registry.
macro_rules! functions {
    ($kind:ident $Op:ident; $($group:ident { $($(#[$doc:meta])* $Name:ident {
        eval $eval:tt text $text:tt $(device $device:literal)? builtins [$($builtin:ident $(($as:ident))?),*]
    })* })*) => {
        &[$($($(
            (stringify!($builtin), Function::Op(ScalarOp::$kind($Op::$Name), taken!($group $($as)?))),
        )*)*)*]
    };
}
macro_rules! taken {
    ($group:ident) => {
        operands!($group)
    };
    ($group:ident $as:ident) => {
        operands!($as)
    };
}
macro_rules! atomic_functions {
    ($($(#[$doc:meta])* $Name:ident $(= $Binary:ident)?, $cuda:literal [$($builtin:ident),*];)*) => {
        &[$($((stringify!($builtin), Function::AtomicRmw(AtomicOp::$Name)),)*)*]
    };
}

/// All functions but those of SIMD groups and quads, whose names begin with `simd_` or `quad_`.
const TABLES: [&[(&str, Function)]; 5] = [
    unary_ops!(functions Unary UnaryOp;),
    binary_ops!(functions Binary BinaryOp;),
    ternary_ops!(functions Ternary TernaryOp;),
    atomic_ops!(atomic_functions),
    FUNCTIONS,
];

/// Functions that are not one op of the registry.
const FUNCTIONS: &[(&str, Function)] = &[
    ("all", Function::MathFunction(M::All)),
    ("any", Function::MathFunction(M::Any)),
    ("saturate", Function::MathFunction(M::Saturate)),
    ("mix", Function::MathFunction(M::Mix)),
    ("step", Function::MathFunction(M::Step)),
    ("smoothstep", Function::MathFunction(M::Smoothstep)),
    ("select", Function::MathFunction(M::Select)),
    ("mad24", Function::MathFunction(M::MulAdd)),
    ("madhi", Function::MathFunction(M::MulHiAdd)),
    ("madsat", Function::MathFunction(M::MulAddSat)),
    ("max3", Function::MathFunction(M::Max3)),
    ("min3", Function::MathFunction(M::Min3)),
    ("median3", Function::MathFunction(M::Median3)),
    ("fmax3", Function::MathFunction(M::Max3)),
    ("fmin3", Function::MathFunction(M::Min3)),
    ("fmedian3", Function::MathFunction(M::Median3)),
    ("dot", Function::MathFunction(M::Dot)),
    ("cross", Function::MathFunction(M::Cross)),
    ("length", Function::MathFunction(M::Length)),
    ("length_squared", Function::MathFunction(M::LengthSquared)),
    ("distance", Function::MathFunction(M::Distance)),
    ("distance_squared", Function::MathFunction(M::DistanceSquared)),
    ("normalize", Function::MathFunction(M::Normalize)),
    ("reflect", Function::MathFunction(M::Reflect)),
    ("refract", Function::MathFunction(M::Refract)),
    ("faceforward", Function::MathFunction(M::Faceforward)),
    ("recip", Function::MathFunction(M::Recip)),
    ("isordered", Function::MathFunction(M::IsOrdered)),
    ("isunordered", Function::MathFunction(M::IsUnordered)),
    ("isequal", Function::MathFunction(M::Compare(BinOp::Eq))),
    ("isnotequal", Function::MathFunction(M::Compare(BinOp::Ne))),
    ("isgreater", Function::MathFunction(M::Compare(BinOp::Gt))),
    ("isgreaterequal", Function::MathFunction(M::Compare(BinOp::Ge))),
    ("isless", Function::MathFunction(M::Compare(BinOp::Lt))),
    ("islessequal", Function::MathFunction(M::Compare(BinOp::Le))),
    ("ilogb", Function::MathFunction(M::Ilogb)),
    ("frexp", Function::MathFunction(M::Frexp)),
    ("modf", Function::MathFunction(M::Modf)),
    ("sincos", Function::MathFunction(M::Sincos)),
    ("extract_bits", Function::MathFunction(M::ExtractBits)),
    ("insert_bits", Function::MathFunction(M::InsertBits)),
    ("pack_float_to_unorm4x8", Function::MathFunction(M::Pack { signed: false, bits: 8 })),
    ("pack_float_to_snorm4x8", Function::MathFunction(M::Pack { signed: true, bits: 8 })),
    ("pack_float_to_unorm2x16", Function::MathFunction(M::Pack { signed: false, bits: 16 })),
    ("pack_float_to_snorm2x16", Function::MathFunction(M::Pack { signed: true, bits: 16 })),
    ("pack_half_to_unorm4x8", Function::MathFunction(M::Pack { signed: false, bits: 8 })),
    ("pack_half_to_snorm4x8", Function::MathFunction(M::Pack { signed: true, bits: 8 })),
    ("pack_half_to_unorm2x16", Function::MathFunction(M::Pack { signed: false, bits: 16 })),
    ("pack_half_to_snorm2x16", Function::MathFunction(M::Pack { signed: true, bits: 16 })),
    ("unpack_unorm4x8_to_float", Function::MathFunction(M::Unpack { signed: false, bits: 8, half: false })),
    ("unpack_snorm4x8_to_float", Function::MathFunction(M::Unpack { signed: true, bits: 8, half: false })),
    ("unpack_unorm2x16_to_float", Function::MathFunction(M::Unpack { signed: false, bits: 16, half: false })),
    ("unpack_snorm2x16_to_float", Function::MathFunction(M::Unpack { signed: true, bits: 16, half: false })),
    ("unpack_unorm4x8_to_half", Function::MathFunction(M::Unpack { signed: false, bits: 8, half: true })),
    ("unpack_snorm4x8_to_half", Function::MathFunction(M::Unpack { signed: true, bits: 8, half: true })),
    ("unpack_unorm2x16_to_half", Function::MathFunction(M::Unpack { signed: false, bits: 16, half: true })),
    ("unpack_snorm2x16_to_half", Function::MathFunction(M::Unpack { signed: true, bits: 16, half: true })),
    ("threadgroup_barrier", Function::Memory(A::ThreadgroupBarrier)),
    ("simdgroup_barrier", Function::Memory(A::SimdgroupBarrier)),
    ("atomic_thread_fence", Function::Memory(A::Fence)),
    // `simdgroup_event` of the library uses these.
    ("__hesper_async_begin", Function::Memory(A::AsyncBegin)),
    ("__hesper_async_end", Function::Memory(A::AsyncEnd)),
    ("__hesper_async_wait", Function::Memory(A::AsyncWait)),
    ("atomic_load_explicit", Function::Memory(A::Load)),
    ("atomic_store_explicit", Function::Memory(A::Store)),
    ("atomic_compare_exchange_weak_explicit", Function::Memory(A::CompareExchange)),
    ("atomic_compare_exchange_strong_explicit", Function::Memory(A::CompareExchange)),
    ("simdgroup_load", Function::Group(G::MatrixLoad)),
    ("simdgroup_store", Function::Group(G::MatrixStore)),
    ("simdgroup_multiply", Function::Group(G::MatrixMultiply)),
    ("simdgroup_multiply_accumulate", Function::Group(G::MatrixMultiplyAccumulate)),
    ("make_filled_simdgroup_matrix", Function::Group(G::MatrixFilled)),
    ("make_uniform", Function::Group(G::Uniform)),
    ("get_lane_id", Function::Group(G::Lane)),
];

/// Functions of SIMD groups and quads, without their prefix.
const GROUP_FUNCTIONS: &[(&str, Function)] = &[
    ("sum", Function::Reduce(ReduceOp::Sum)),
    ("product", Function::Reduce(ReduceOp::Product)),
    ("min", Function::Reduce(ReduceOp::Min)),
    ("max", Function::Reduce(ReduceOp::Max)),
    ("and", Function::Reduce(ReduceOp::And)),
    ("or", Function::Reduce(ReduceOp::Or)),
    ("xor", Function::Reduce(ReduceOp::Xor)),
    ("prefix_inclusive_sum", Function::Scan(ReduceOp::Sum, true)),
    ("prefix_exclusive_sum", Function::Scan(ReduceOp::Sum, false)),
    ("prefix_inclusive_product", Function::Scan(ReduceOp::Product, true)),
    ("prefix_exclusive_product", Function::Scan(ReduceOp::Product, false)),
    ("shuffle", Function::Shuffle(ShuffleKind::Lane)),
    ("broadcast", Function::Shuffle(ShuffleKind::Lane)),
    ("shuffle_up", Function::Shuffle(ShuffleKind::Up)),
    ("shuffle_down", Function::Shuffle(ShuffleKind::Down)),
    ("shuffle_xor", Function::Shuffle(ShuffleKind::Xor)),
    ("shuffle_rotate_up", Function::Shuffle(ShuffleKind::RotateUp)),
    ("shuffle_rotate_down", Function::Shuffle(ShuffleKind::RotateDown)),
    ("shuffle_and_fill_up", Function::Group(G::FillUp)),
    ("shuffle_and_fill_down", Function::Group(G::FillDown)),
    ("broadcast_first", Function::Group(G::BroadcastFirst)),
    ("ballot", Function::Group(G::Ballot)),
    ("all", Function::Group(G::All)),
    ("any", Function::Group(G::Any)),
    ("is_first", Function::Group(G::IsFirst)),
    ("active_threads_mask", Function::Group(G::ActiveMask)),
];

fn find(name: &str) -> Option<(Function, crate::ir::Group)> {
    use crate::ir::Group;
    if let Some((_, f)) = TABLES.iter().copied().flatten().find(|(n, _)| *n == name) {
        return Some((*f, Group::Simd));
    }
    let (rest, group) = match name.strip_prefix("simd_") {
        Some(r) => (r, Group::Simd),
        None => (name.strip_prefix("quad_")?, Group::Quad),
    };
    GROUP_FUNCTIONS.iter().find(|(n, _)| *n == rest).map(|(_, f)| (*f, group))
}

/// Whether the library has a function of this name.
pub(super) fn is_function(name: &str) -> bool {
    find(name).is_some()
}

/// Names of functions, for suggestions.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    const SIMD: [&str; 12] = [
        "simd_sum",
        "simd_max",
        "simd_min",
        "simd_product",
        "simd_shuffle",
        "simd_shuffle_down",
        "simd_shuffle_up",
        "simd_shuffle_xor",
        "simd_broadcast",
        "simd_ballot",
        "simd_prefix_exclusive_sum",
        "simd_prefix_inclusive_sum",
    ];
    TABLES.iter().copied().flatten().map(|(n, _)| *n).chain(SIMD)
}

/// Whether a function may be speculated: it is cheap and has no effects.
pub(super) fn is_cheap(name: &str) -> bool {
    matches!(
        name,
        "abs"
            | "fabs"
            | "min"
            | "max"
            | "fmin"
            | "fmax"
            | "clamp"
            | "floor"
            | "ceil"
            | "isnan"
            | "isinf"
            | "isfinite"
            | "select"
            | "fma"
            | "popcount"
            | "clz"
            | "ctz"
            | "sqrt"
    )
}

/// A constant of the library.
pub(super) enum Constant {
    /// A float.
    F(f64),
    /// A half.
    H(f64),
    /// A bfloat.
    B(f64),
    /// An integer.
    I(i64, Scalar),
}

impl Constant {
    pub(super) fn value(&self) -> RValue {
        match self {
            Constant::F(v) => RValue::float(Scalar::F32, *v),
            Constant::H(v) => RValue::float(Scalar::F16, *v),
            Constant::B(v) => RValue::float(Scalar::BF16, *v),
            Constant::I(v, s) => {
                RValue { ty: Ty::Scalar(*s), val: ValueRepr::Const(Rc::new([ConstValue::Int(*v)])) }
            }
        }
    }
}

use std::f64::consts as m;

/// Constants by name.
pub(super) const CONSTANTS: &[(&str, Constant)] = &[
    ("INFINITY", Constant::F(f64::INFINITY)),
    ("HUGE_VALF", Constant::F(f64::INFINITY)),
    ("HUGE_VALH", Constant::H(f64::INFINITY)),
    ("NAN", Constant::F(f64::NAN)),
    ("MAXFLOAT", Constant::F(f32::MAX as f64)),
    ("FLT_MAX", Constant::F(f32::MAX as f64)),
    ("FLT_MIN", Constant::F(f32::MIN_POSITIVE as f64)),
    ("FLT_EPSILON", Constant::F(f32::EPSILON as f64)),
    ("MAXHALF", Constant::H(65504.0)),
    ("HALF_MAX", Constant::H(65504.0)),
    ("HALF_MIN", Constant::H(6.103515625e-5)),
    ("HALF_EPSILON", Constant::H(9.765625e-4)),
    ("BFLT_MAX", Constant::B(3.3895313892515355e38)),
    ("BFLT_MIN", Constant::B(1.1754943508222875e-38)),
    ("BFLT_EPSILON", Constant::B(0.0078125)),
    ("M_E_F", Constant::F(m::E)),
    ("M_LOG2E_F", Constant::F(m::LOG2_E)),
    ("M_LOG10E_F", Constant::F(m::LOG10_E)),
    ("M_LN2_F", Constant::F(m::LN_2)),
    ("M_LN10_F", Constant::F(m::LN_10)),
    ("M_PI_F", Constant::F(m::PI)),
    ("M_PI_2_F", Constant::F(m::FRAC_PI_2)),
    ("M_PI_4_F", Constant::F(m::FRAC_PI_4)),
    ("M_1_PI_F", Constant::F(m::FRAC_1_PI)),
    ("M_2_PI_F", Constant::F(m::FRAC_2_PI)),
    ("M_2_SQRTPI_F", Constant::F(m::FRAC_2_SQRT_PI)),
    ("M_SQRT2_F", Constant::F(m::SQRT_2)),
    ("M_SQRT1_2_F", Constant::F(m::FRAC_1_SQRT_2)),
    ("M_PI", Constant::F(m::PI)),
    ("M_E_H", Constant::H(m::E)),
    ("M_LOG2E_H", Constant::H(m::LOG2_E)),
    ("M_LN2_H", Constant::H(m::LN_2)),
    ("M_PI_H", Constant::H(m::PI)),
    ("M_PI_2_H", Constant::H(m::FRAC_PI_2)),
    ("M_SQRT2_H", Constant::H(m::SQRT_2)),
    ("CHAR_BIT", Constant::I(8, Scalar::I32)),
    ("CHAR_MAX", Constant::I(127, Scalar::I8)),
    ("CHAR_MIN", Constant::I(-128, Scalar::I8)),
    ("SCHAR_MAX", Constant::I(127, Scalar::I8)),
    ("SCHAR_MIN", Constant::I(-128, Scalar::I8)),
    ("UCHAR_MAX", Constant::I(255, Scalar::U8)),
    ("SHRT_MAX", Constant::I(i16::MAX as i64, Scalar::I16)),
    ("SHRT_MIN", Constant::I(i16::MIN as i64, Scalar::I16)),
    ("USHRT_MAX", Constant::I(u16::MAX as i64, Scalar::U16)),
    ("INT_MAX", Constant::I(i32::MAX as i64, Scalar::I32)),
    ("INT_MIN", Constant::I(i32::MIN as i64, Scalar::I32)),
    ("UINT_MAX", Constant::I(u32::MAX as i64, Scalar::U32)),
    ("LONG_MAX", Constant::I(i64::MAX, Scalar::I64)),
    ("LONG_MIN", Constant::I(i64::MIN, Scalar::I64)),
    ("ULONG_MAX", Constant::I(-1, Scalar::U64)),
    ("memory_order_relaxed", Constant::I(0, Scalar::U32)),
    ("memory_order_acquire", Constant::I(2, Scalar::U32)),
    ("memory_order_release", Constant::I(3, Scalar::U32)),
    ("memory_order_acq_rel", Constant::I(4, Scalar::U32)),
    ("memory_order_seq_cst", Constant::I(5, Scalar::U32)),
    ("thread_scope_simdgroup", Constant::I(1, Scalar::U32)),
    ("thread_scope_threadgroup", Constant::I(2, Scalar::U32)),
    ("thread_scope_device", Constant::I(3, Scalar::U32)),
];

/// `mem_flags::x`, `memory_order::x`, `thread_scope::x`.
pub(super) fn flag(owner: &str, name: &str) -> Option<RValue> {
    let v = match (owner, name) {
        ("mem_flags", "mem_none") => 0,
        ("mem_flags", "mem_device") => 1,
        ("mem_flags", "mem_threadgroup") => 2,
        ("mem_flags", "mem_device_and_threadgroup") => 3,
        ("mem_flags", "mem_texture" | "mem_threadgroup_imageblock" | "mem_object_data") => 0,
        ("memory_order" | "thread_scope", _) => {
            let full = match owner {
                "memory_order" => format!("memory_order_{name}"),
                _ => format!("thread_scope_{name}"),
            };
            let found = CONSTANTS.iter().find(|(n, _)| **n == *full || *n == name)?;
            return Some(found.1.value());
        }
        _ => return None,
    };
    Some(RValue::int(Scalar::U32, v))
}

impl<'a> Lower<'a> {
    /// Whether a library function would take the arguments without converting them.
    pub(super) fn builtin_takes(&self, name: &str, args: &[Arg<'a>]) -> bool {
        let Some((f, _)) = find(name) else { return false };
        let types: Option<Vec<Ty>> = args
            .iter()
            .map(|a| match a {
                Arg::Value(x, _) => Some(x.ty().decayed()),
                Arg::List(_) => None,
            })
            .collect();
        let Some(types) = types else { return false };
        let float = |t: &Ty| t.scalar().is_some_and(Scalar::is_float);
        let same = types.iter().all(|t| *t == types[0] && t.is_arithmetic());
        match f {
            Function::Op(op, operands) => {
                types.len() == op.arity() && same && (operands != Operands::Float || float(&types[0]))
            }
            _ => same,
        }
    }

    /// Calls a library function.
    pub(super) fn builtin_call(
        &mut self,
        p: &'a Path,
        args: Vec<Arg<'a>>,
        span: Span,
    ) -> LowerResult<ExprResult> {
        let seg = p.last();
        let name: &str = &seg.name;
        let Some((f, group)) = find(name) else { return Err(Fail::Reported) };
        self.at(span);
        let one = |l: &mut Self, args: &[Arg<'a>]| l.values(name, args, 1..=1, span).map(|mut v| v.remove(0));
        Ok(ExprResult::Value(match f {
            Function::Op(op, operands) => {
                let v = self.values(name, &args, op.arity()..=op.arity(), span)?;
                self.scalar_op(op, operands, v, name, span)?
            }
            Function::MathFunction(m) => return self.math(m, name, args, span),
            Function::Reduce(op) => {
                let v = one(self, &args)?;
                self.reduce(group, op, v, name, span)?
            }
            Function::Scan(op, inclusive) => {
                let v = one(self, &args)?;
                self.scan(group, op, inclusive, v, name, span)?
            }
            Function::Shuffle(kind) => {
                let v = self.values(name, &args, 2..=2, span)?;
                self.shuffle(group, kind, v, name, span)?
            }
            Function::Group(g) => return self.group_call(g, group, seg, args, span),
            Function::AtomicRmw(op) => self.atomic_rmw(op, name, &args, span)?,
            Function::Memory(m) => self.memory_call(m, name, args, span)?,
        }))
    }

    /// The values of the arguments; their number is checked.
    fn values(
        &mut self,
        name: &str,
        args: &[Arg<'a>],
        count: std::ops::RangeInclusive<usize>,
        span: Span,
    ) -> LowerResult<Vec<RValue>> {
        if !count.contains(&args.len()) {
            let wanted = if count.start() == count.end() {
                format!("{}", count.start())
            } else {
                format!("{} to {}", count.start(), count.end())
            };
            let text = format!("`{name}` takes {wanted} argument(s), {} given", args.len());
            return fail(ErrorKind::Call, span, text);
        }
        let mut out = Vec::new();
        for a in args {
            match a {
                Arg::Value(x, s) => {
                    let mut v = self.rvalue_of(x.clone(), *s)?;
                    if let Ty::Struct(id) = v.ty
                        && let Some(c) = self.conversion_operator(id, &v, &Ty::FLOAT, *s)?
                    {
                        v = c;
                    }
                    out.push(v);
                }
                Arg::List(e) => {
                    return fail(ErrorKind::Call, e.span, format!("`{name}` takes no initialiser list"));
                }
            }
        }
        Ok(out)
    }

    fn wrong_argument<T>(&self, name: &str, ty: &Ty, wanted: &str, span: Span) -> LowerResult<T> {
        fail(ErrorKind::Call, span, format!("`{name}` takes {wanted}, found `{}`", self.type_name(ty)))
    }

    /// `numeric_limits<T>::name()`
    pub(super) fn numeric_limit(
        &mut self,
        targs: &'a [TemplateArg],
        seg: &Segment,
        span: Span,
    ) -> LowerResult<RValue> {
        let [arg] = targs else { return fail(ErrorKind::Template, span, "`numeric_limits` takes one type") };
        let types::TArg::Type(ty) = self.template_arg(arg)? else {
            return fail(ErrorKind::Template, span, "`numeric_limits` takes a type");
        };
        let Ty::Scalar(s) = ty else {
            let name = self.type_name(&ty);
            return fail(ErrorKind::Type, span, format!("`{name}` has no numeric limits"));
        };
        let float = |max: f64, tiny: f64, epsilon: f64| match &*seg.name {
            "max" => Some(max),
            "lowest" => Some(-max),
            "min" => Some(tiny),
            "infinity" => Some(f64::INFINITY),
            "quiet_NaN" | "signaling_NaN" => Some(f64::NAN),
            "epsilon" => Some(epsilon),
            _ => None,
        };
        let value = match s {
            Scalar::F32 => float(f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE), f64::from(f32::EPSILON)),
            Scalar::F16 => float(65504.0, 6.103515625e-5, 9.765625e-4),
            Scalar::BF16 => float(3.3895313892515355e38, 1.1754943508222875e-38, 0.0078125),
            _ => {
                let bits = s.bits();
                let v = match (&*seg.name, s) {
                    ("max", Scalar::Bool) => Some(1),
                    ("max", Scalar::U64) => Some(-1),
                    ("max", _) if s.is_signed_int() => Some((1i64 << (bits - 2)) - 1 + (1i64 << (bits - 2))),
                    ("max", _) => Some((1i64 << bits) - 1),
                    ("min" | "lowest", _) if s.is_signed_int() => Some(-1i64 << (bits - 1)),
                    ("min" | "lowest" | "epsilon" | "infinity" | "quiet_NaN", _) => Some(0),
                    _ => None,
                };
                return match v {
                    Some(v) => Ok(RValue::int(s, v)),
                    None => {
                        fail(ErrorKind::Name, seg.span, format!("`numeric_limits` has no `{}`", seg.name))
                    }
                };
            }
        };
        match value {
            Some(v) => Ok(RValue::float(s, v)),
            None => fail(ErrorKind::Name, seg.span, format!("`numeric_limits` has no `{}`", seg.name)),
        }
    }

    /// Member functions of built-in types.
    pub(super) fn builtin_method(
        &mut self,
        base: ExprResult,
        name: &str,
        args: Vec<Arg<'a>>,
        span: Span,
    ) -> LowerResult<ExprResult> {
        match (base.ty().clone(), name) {
            (Ty::Matrix(s), "thread_elements") if args.is_empty() => Ok(match base {
                ExprResult::Object(lv) => ExprResult::Object(value::LValue { ty: Ty::Vector(s, 2), ..lv }),
                ExprResult::Value(v) => ExprResult::Value(RValue { ty: Ty::Vector(s, 2), val: v.val }),
            }),
            (Ty::Array(_, n), "size") if args.is_empty() => {
                Ok(ExprResult::Value(RValue::int(Scalar::U64, n as i64)))
            }
            (Ty::Array(..), "data") if args.is_empty() => Ok(ExprResult::Value(self.rvalue_of(base, span)?)),
            (Ty::Scalar(Scalar::U64), "all" | "any") if args.is_empty() => {
                let v = self.rvalue_of(base, span)?;
                let id = self.ir(&v);
                if name == "any" {
                    let zero = self.b.u64(0);
                    let id = self.b.compare(crate::ir::CmpOp::Ne, id, zero);
                    return Ok(ExprResult::Value(RValue::ir(Ty::BOOL, id)));
                }
                let mask = self.b.group_active_mask(crate::ir::Group::Simd);
                let mask = self.b.convert(mask, Scalar::U64);
                let id = self.b.compare(crate::ir::CmpOp::Eq, id, mask);
                Ok(ExprResult::Value(RValue::ir(Ty::BOOL, id)))
            }
            (ty, _) => {
                let text = format!("`{}` has no member function `{name}`", self.type_name(&ty));
                fail(ErrorKind::Name, span, text)
            }
        }
    }
}

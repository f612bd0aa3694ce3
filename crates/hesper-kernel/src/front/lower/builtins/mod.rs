//! The library: its functions and constants, by name.
//!
//! A function is one line in [`FUNCTIONS`]; what it does is in `math`, `groups` or `memory`. Names are the same
//! under `metal::`, `fast::` and `precise::`, since there is one implementation of each.

mod groups;
mod math;
mod memory;

use super::call::Arg;
use super::value::{Cv, Ex, Rv, Val};
use super::*;
use crate::ir::{AtomicOp, BinaryOp, ReduceOp, Scalar, ShuffleKind, TestOp, UnaryOp};

/// What a library function does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fun {
    /// A float function of one argument.
    Float1(UnaryOp),
    /// A float function of two arguments.
    Float2(BinaryOp),
    /// Any number, one argument.
    Number1(UnaryOp),
    /// Any numbers, two arguments.
    Number2(BinaryOp),
    /// Integers, one argument.
    Int1(UnaryOp),
    /// Integers, two arguments.
    Int2(BinaryOp),
    /// A classification.
    Test(TestOp),
    /// Something with rules of its own, see `math`.
    Math(math::Math),
    /// Lanes of a SIMD group (`simd_`) or quad (`quad_`).
    Reduce(ReduceOp),
    Scan(ReduceOp, bool),
    Shuffle(ShuffleKind),
    Group(groups::GroupFun),
    /// Atomics.
    AtomicRmw(AtomicOp),
    Memory(memory::Memory),
}

use groups::GroupFun as G;
use math::Math as M;
use memory::Memory as A;

/// All functions but those of SIMD groups and quads, whose names begin with `simd_` or `quad_`.
const FUNCTIONS: &[(&str, Fun)] = &[
    ("abs", Fun::Number1(UnaryOp::Abs)),
    ("fabs", Fun::Float1(UnaryOp::Abs)),
    ("sign", Fun::Number1(UnaryOp::Sign)),
    ("acos", Fun::Float1(UnaryOp::Acos)),
    ("acosh", Fun::Float1(UnaryOp::Acosh)),
    ("asin", Fun::Float1(UnaryOp::Asin)),
    ("asinh", Fun::Float1(UnaryOp::Asinh)),
    ("atan", Fun::Float1(UnaryOp::Atan)),
    ("atanh", Fun::Float1(UnaryOp::Atanh)),
    ("cbrt", Fun::Float1(UnaryOp::Cbrt)),
    ("ceil", Fun::Float1(UnaryOp::Ceil)),
    ("cos", Fun::Float1(UnaryOp::Cos)),
    ("cosh", Fun::Float1(UnaryOp::Cosh)),
    ("cospi", Fun::Float1(UnaryOp::CosPi)),
    ("erf", Fun::Float1(UnaryOp::Erf)),
    ("erfc", Fun::Float1(UnaryOp::Erfc)),
    ("erfinv", Fun::Float1(UnaryOp::ErfInv)),
    ("exp", Fun::Float1(UnaryOp::Exp)),
    ("exp2", Fun::Float1(UnaryOp::Exp2)),
    ("exp10", Fun::Float1(UnaryOp::Exp10)),
    ("expm1", Fun::Float1(UnaryOp::Expm1)),
    ("expm1f", Fun::Float1(UnaryOp::Expm1)),
    ("floor", Fun::Float1(UnaryOp::Floor)),
    ("fract", Fun::Float1(UnaryOp::Fract)),
    ("lgamma", Fun::Float1(UnaryOp::Lgamma)),
    ("log", Fun::Float1(UnaryOp::Log)),
    ("log2", Fun::Float1(UnaryOp::Log2)),
    ("log10", Fun::Float1(UnaryOp::Log10)),
    ("log1p", Fun::Float1(UnaryOp::Log1p)),
    ("rint", Fun::Float1(UnaryOp::Rint)),
    ("nearbyint", Fun::Float1(UnaryOp::Rint)),
    ("round", Fun::Float1(UnaryOp::Round)),
    ("rsqrt", Fun::Float1(UnaryOp::Rsqrt)),
    ("sin", Fun::Float1(UnaryOp::Sin)),
    ("sinh", Fun::Float1(UnaryOp::Sinh)),
    ("sinpi", Fun::Float1(UnaryOp::SinPi)),
    ("sqrt", Fun::Float1(UnaryOp::Sqrt)),
    ("tan", Fun::Float1(UnaryOp::Tan)),
    ("tanh", Fun::Float1(UnaryOp::Tanh)),
    ("tanpi", Fun::Float1(UnaryOp::TanPi)),
    ("trunc", Fun::Float1(UnaryOp::Trunc)),
    ("atan2", Fun::Float2(BinaryOp::Atan2)),
    ("copysign", Fun::Float2(BinaryOp::CopySign)),
    ("fdim", Fun::Float2(BinaryOp::Fdim)),
    ("fmax", Fun::Float2(BinaryOp::Max)),
    ("fmin", Fun::Float2(BinaryOp::Min)),
    ("fmod", Fun::Float2(BinaryOp::Rem)),
    ("hypot", Fun::Float2(BinaryOp::Hypot)),
    ("nextafter", Fun::Float2(BinaryOp::NextAfter)),
    ("pow", Fun::Float2(BinaryOp::Pow)),
    ("powr", Fun::Float2(BinaryOp::Pow)),
    ("remainder", Fun::Float2(BinaryOp::IeeeRem)),
    ("divide", Fun::Float2(BinaryOp::Div)),
    ("max", Fun::Number2(BinaryOp::Max)),
    ("min", Fun::Number2(BinaryOp::Min)),
    ("absdiff", Fun::Int2(BinaryOp::AbsDiff)),
    ("addsat", Fun::Int2(BinaryOp::AddSat)),
    ("subsat", Fun::Int2(BinaryOp::SubSat)),
    ("hadd", Fun::Int2(BinaryOp::Hadd)),
    ("rhadd", Fun::Int2(BinaryOp::Rhadd)),
    ("mulhi", Fun::Int2(BinaryOp::MulHi)),
    ("mul24", Fun::Int2(BinaryOp::Mul)),
    ("rotate", Fun::Int2(BinaryOp::Rotate)),
    ("clz", Fun::Int1(UnaryOp::Clz)),
    ("ctz", Fun::Int1(UnaryOp::Ctz)),
    ("popcount", Fun::Int1(UnaryOp::PopCount)),
    ("reverse_bits", Fun::Int1(UnaryOp::ReverseBits)),
    ("isfinite", Fun::Test(TestOp::IsFinite)),
    ("isinf", Fun::Test(TestOp::IsInf)),
    ("isnan", Fun::Test(TestOp::IsNan)),
    ("isnormal", Fun::Test(TestOp::IsNormal)),
    ("signbit", Fun::Test(TestOp::SignBit)),
    ("all", Fun::Math(M::All)),
    ("any", Fun::Math(M::Any)),
    ("clamp", Fun::Math(M::Clamp)),
    ("saturate", Fun::Math(M::Saturate)),
    ("mix", Fun::Math(M::Mix)),
    ("step", Fun::Math(M::Step)),
    ("smoothstep", Fun::Math(M::Smoothstep)),
    ("select", Fun::Math(M::Select)),
    ("fma", Fun::Math(M::Fma)),
    ("mad", Fun::Math(M::Fma)),
    ("mad24", Fun::Math(M::MulAdd)),
    ("madhi", Fun::Math(M::MulHiAdd)),
    ("madsat", Fun::Math(M::MulAddSat)),
    ("max3", Fun::Math(M::Max3)),
    ("min3", Fun::Math(M::Min3)),
    ("median3", Fun::Math(M::Median3)),
    ("fmax3", Fun::Math(M::Max3)),
    ("fmin3", Fun::Math(M::Min3)),
    ("fmedian3", Fun::Math(M::Median3)),
    ("dot", Fun::Math(M::Dot)),
    ("cross", Fun::Math(M::Cross)),
    ("length", Fun::Math(M::Length)),
    ("length_squared", Fun::Math(M::LengthSquared)),
    ("distance", Fun::Math(M::Distance)),
    ("distance_squared", Fun::Math(M::DistanceSquared)),
    ("normalize", Fun::Math(M::Normalize)),
    ("reflect", Fun::Math(M::Reflect)),
    ("refract", Fun::Math(M::Refract)),
    ("faceforward", Fun::Math(M::Faceforward)),
    ("recip", Fun::Math(M::Recip)),
    ("isordered", Fun::Math(M::IsOrdered)),
    ("isunordered", Fun::Math(M::IsUnordered)),
    ("isequal", Fun::Math(M::Compare(BinOp::Eq))),
    ("isnotequal", Fun::Math(M::Compare(BinOp::Ne))),
    ("isgreater", Fun::Math(M::Compare(BinOp::Gt))),
    ("isgreaterequal", Fun::Math(M::Compare(BinOp::Ge))),
    ("isless", Fun::Math(M::Compare(BinOp::Lt))),
    ("islessequal", Fun::Math(M::Compare(BinOp::Le))),
    ("ldexp", Fun::Math(M::Ldexp)),
    ("ilogb", Fun::Math(M::Ilogb)),
    ("frexp", Fun::Math(M::Frexp)),
    ("modf", Fun::Math(M::Modf)),
    ("sincos", Fun::Math(M::Sincos)),
    ("extract_bits", Fun::Math(M::ExtractBits)),
    ("insert_bits", Fun::Math(M::InsertBits)),
    ("pack_float_to_unorm4x8", Fun::Math(M::Pack { signed: false, bits: 8 })),
    ("pack_float_to_snorm4x8", Fun::Math(M::Pack { signed: true, bits: 8 })),
    ("pack_float_to_unorm2x16", Fun::Math(M::Pack { signed: false, bits: 16 })),
    ("pack_float_to_snorm2x16", Fun::Math(M::Pack { signed: true, bits: 16 })),
    ("pack_half_to_unorm4x8", Fun::Math(M::Pack { signed: false, bits: 8 })),
    ("pack_half_to_snorm4x8", Fun::Math(M::Pack { signed: true, bits: 8 })),
    ("pack_half_to_unorm2x16", Fun::Math(M::Pack { signed: false, bits: 16 })),
    ("pack_half_to_snorm2x16", Fun::Math(M::Pack { signed: true, bits: 16 })),
    ("unpack_unorm4x8_to_float", Fun::Math(M::Unpack { signed: false, bits: 8, half: false })),
    ("unpack_snorm4x8_to_float", Fun::Math(M::Unpack { signed: true, bits: 8, half: false })),
    ("unpack_unorm2x16_to_float", Fun::Math(M::Unpack { signed: false, bits: 16, half: false })),
    ("unpack_snorm2x16_to_float", Fun::Math(M::Unpack { signed: true, bits: 16, half: false })),
    ("unpack_unorm4x8_to_half", Fun::Math(M::Unpack { signed: false, bits: 8, half: true })),
    ("unpack_snorm4x8_to_half", Fun::Math(M::Unpack { signed: true, bits: 8, half: true })),
    ("unpack_unorm2x16_to_half", Fun::Math(M::Unpack { signed: false, bits: 16, half: true })),
    ("unpack_snorm2x16_to_half", Fun::Math(M::Unpack { signed: true, bits: 16, half: true })),
    ("threadgroup_barrier", Fun::Memory(A::ThreadgroupBarrier)),
    ("simdgroup_barrier", Fun::Memory(A::SimdgroupBarrier)),
    ("atomic_thread_fence", Fun::Memory(A::Fence)),
    ("atomic_fetch_add_explicit", Fun::AtomicRmw(AtomicOp::Add)),
    ("atomic_fetch_sub_explicit", Fun::AtomicRmw(AtomicOp::Sub)),
    ("atomic_fetch_min_explicit", Fun::AtomicRmw(AtomicOp::Min)),
    ("atomic_fetch_max_explicit", Fun::AtomicRmw(AtomicOp::Max)),
    ("atomic_fetch_and_explicit", Fun::AtomicRmw(AtomicOp::And)),
    ("atomic_fetch_or_explicit", Fun::AtomicRmw(AtomicOp::Or)),
    ("atomic_fetch_xor_explicit", Fun::AtomicRmw(AtomicOp::Xor)),
    ("atomic_min_explicit", Fun::AtomicRmw(AtomicOp::Min)),
    ("atomic_max_explicit", Fun::AtomicRmw(AtomicOp::Max)),
    ("atomic_exchange_explicit", Fun::AtomicRmw(AtomicOp::Exchange)),
    ("atomic_load_explicit", Fun::Memory(A::Load)),
    ("atomic_store_explicit", Fun::Memory(A::Store)),
    ("atomic_compare_exchange_weak_explicit", Fun::Memory(A::CompareExchange)),
    ("atomic_compare_exchange_strong_explicit", Fun::Memory(A::CompareExchange)),
    ("simdgroup_load", Fun::Group(G::MatrixLoad)),
    ("simdgroup_store", Fun::Group(G::MatrixStore)),
    ("simdgroup_multiply", Fun::Group(G::MatrixMultiply)),
    ("simdgroup_multiply_accumulate", Fun::Group(G::MatrixMultiplyAccumulate)),
    ("make_filled_simdgroup_matrix", Fun::Group(G::MatrixFilled)),
    ("make_uniform", Fun::Group(G::Uniform)),
    ("get_lane_id", Fun::Group(G::Lane)),
];

/// Functions of SIMD groups and quads, without their prefix.
const GROUP_FUNCTIONS: &[(&str, Fun)] = &[
    ("sum", Fun::Reduce(ReduceOp::Sum)),
    ("product", Fun::Reduce(ReduceOp::Product)),
    ("min", Fun::Reduce(ReduceOp::Min)),
    ("max", Fun::Reduce(ReduceOp::Max)),
    ("and", Fun::Reduce(ReduceOp::And)),
    ("or", Fun::Reduce(ReduceOp::Or)),
    ("xor", Fun::Reduce(ReduceOp::Xor)),
    ("prefix_inclusive_sum", Fun::Scan(ReduceOp::Sum, true)),
    ("prefix_exclusive_sum", Fun::Scan(ReduceOp::Sum, false)),
    ("prefix_inclusive_product", Fun::Scan(ReduceOp::Product, true)),
    ("prefix_exclusive_product", Fun::Scan(ReduceOp::Product, false)),
    ("shuffle", Fun::Shuffle(ShuffleKind::Lane)),
    ("broadcast", Fun::Shuffle(ShuffleKind::Lane)),
    ("shuffle_up", Fun::Shuffle(ShuffleKind::Up)),
    ("shuffle_down", Fun::Shuffle(ShuffleKind::Down)),
    ("shuffle_xor", Fun::Shuffle(ShuffleKind::Xor)),
    ("shuffle_rotate_up", Fun::Shuffle(ShuffleKind::RotateUp)),
    ("shuffle_rotate_down", Fun::Shuffle(ShuffleKind::RotateDown)),
    ("shuffle_and_fill_up", Fun::Group(G::FillUp)),
    ("shuffle_and_fill_down", Fun::Group(G::FillDown)),
    ("broadcast_first", Fun::Group(G::BroadcastFirst)),
    ("ballot", Fun::Group(G::Ballot)),
    ("all", Fun::Group(G::All)),
    ("any", Fun::Group(G::Any)),
    ("is_first", Fun::Group(G::IsFirst)),
    ("active_threads_mask", Fun::Group(G::ActiveMask)),
];

fn find(name: &str) -> Option<(Fun, crate::ir::Group)> {
    use crate::ir::Group;
    if let Some((_, f)) = FUNCTIONS.iter().find(|(n, _)| *n == name) {
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
    FUNCTIONS.iter().map(|(n, _)| *n).chain(SIMD)
}

/// Whether a function is so cheap and free of effects that it may run where its result is not needed.
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
    pub(super) fn value(&self) -> Rv {
        match self {
            Constant::F(v) => Rv::float(Scalar::F32, *v),
            Constant::H(v) => Rv::float(Scalar::F16, *v),
            Constant::B(v) => Rv::float(Scalar::BF16, *v),
            Constant::I(v, s) => Rv { ty: Ty::Scalar(*s), val: Val::Const(Rc::new([Cv::I(*v)])) },
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
pub(super) fn flag(owner: &str, name: &str) -> Option<Rv> {
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
    Some(Rv::int(Scalar::U32, v))
}

impl<'a> Lower<'a> {
    /// Whether a library function would take the arguments without converting them.
    pub(super) fn builtin_takes(&self, name: &str, args: &[Arg<'a>]) -> bool {
        let Some((f, _)) = find(name) else { return false };
        let types: Option<Vec<Ty>> = args
            .iter()
            .map(|a| match a {
                Arg::Ex(x, _) => Some(x.ty().decayed()),
                Arg::List(_) => None,
            })
            .collect();
        let Some(types) = types else { return false };
        let float = |t: &Ty| t.scalar().is_some_and(Scalar::is_float);
        let same = types.iter().all(|t| *t == types[0] && t.is_arithmetic());
        match f {
            Fun::Float1(_) | Fun::Test(_) => types.len() == 1 && float(&types[0]),
            Fun::Float2(_) => types.len() == 2 && same && float(&types[0]),
            Fun::Number1(_) | Fun::Int1(_) => types.len() == 1 && same,
            Fun::Number2(_) | Fun::Int2(_) => types.len() == 2 && same,
            _ => same,
        }
    }

    /// Calls a library function.
    pub(super) fn builtin_call(&mut self, p: &'a Path, args: Vec<Arg<'a>>, span: Span) -> R<Ex> {
        let seg = p.last();
        let name: &str = &seg.name;
        let Some((f, group)) = find(name) else { return Err(Fail::Reported) };
        self.at(span);
        let one = |l: &mut Self, args: &[Arg<'a>]| l.values(name, args, 1..=1, span).map(|mut v| v.remove(0));
        Ok(Ex::R(match f {
            Fun::Float1(op) => {
                let v = one(self, &args)?;
                self.float1(op, v, name, span)?
            }
            Fun::Float2(op) => {
                let v = self.values(name, &args, 2..=2, span)?;
                self.float2(op, v, name, span)?
            }
            Fun::Number1(op) => {
                let v = one(self, &args)?;
                self.number1(op, v, name, span)?
            }
            Fun::Number2(op) => {
                let v = self.values(name, &args, 2..=2, span)?;
                self.number2(op, v, name, span)?
            }
            Fun::Int1(op) => {
                let v = one(self, &args)?;
                self.int1(op, v, name, span)?
            }
            Fun::Int2(op) => {
                let v = self.values(name, &args, 2..=2, span)?;
                self.int2(op, v, name, span)?
            }
            Fun::Test(op) => {
                let v = one(self, &args)?;
                self.test(op, v, name, span)?
            }
            Fun::Math(m) => return self.math(m, name, args, span),
            Fun::Reduce(op) => {
                let v = one(self, &args)?;
                self.reduce(group, op, v, name, span)?
            }
            Fun::Scan(op, inclusive) => {
                let v = one(self, &args)?;
                self.scan(group, op, inclusive, v, name, span)?
            }
            Fun::Shuffle(kind) => {
                let v = self.values(name, &args, 2..=2, span)?;
                self.shuffle(group, kind, v, name, span)?
            }
            Fun::Group(g) => return self.group_call(g, group, seg, args, span),
            Fun::AtomicRmw(op) => self.atomic_rmw(op, name, &args, span)?,
            Fun::Memory(m) => self.memory_call(m, name, args, span)?,
        }))
    }

    /// The values of the arguments; their number is checked.
    fn values(
        &mut self,
        name: &str,
        args: &[Arg<'a>],
        count: std::ops::RangeInclusive<usize>,
        span: Span,
    ) -> R<Vec<Rv>> {
        if !count.contains(&args.len()) {
            let wanted = if count.start() == count.end() {
                format!("{}", count.start())
            } else {
                format!("{} to {}", count.start(), count.end())
            };
            let text = format!("`{name}` takes {wanted} argument(s), {} given", args.len());
            return fail(Kind::Call, span, text);
        }
        let mut out = Vec::new();
        for a in args {
            match a {
                Arg::Ex(x, s) => {
                    let mut v = self.rvalue_of(x.clone(), *s)?;
                    if let Ty::Struct(id) = v.ty
                        && let Some(c) = self.conversion_operator(id, &v, &Ty::FLOAT, *s)?
                    {
                        v = c;
                    }
                    out.push(v);
                }
                Arg::List(e) => {
                    return fail(Kind::Call, e.span, format!("`{name}` takes no initialiser list"));
                }
            }
        }
        Ok(out)
    }

    fn wrong_argument<T>(&self, name: &str, ty: &Ty, wanted: &str, span: Span) -> R<T> {
        fail(Kind::Call, span, format!("`{name}` takes {wanted}, found `{}`", self.type_name(ty)))
    }

    /// `numeric_limits<T>::name()`
    pub(super) fn numeric_limit(&mut self, targs: &'a [TemplateArg], seg: &Segment, span: Span) -> R<Rv> {
        let [arg] = targs else { return fail(Kind::Template, span, "`numeric_limits` takes one type") };
        let types::TArg::Type(ty) = self.template_arg(arg)? else {
            return fail(Kind::Template, span, "`numeric_limits` takes a type");
        };
        let Ty::Scalar(s) = ty else {
            let name = self.type_name(&ty);
            return fail(Kind::Type, span, format!("`{name}` has no numeric limits"));
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
                    Some(v) => Ok(Rv::int(s, v)),
                    None => fail(Kind::Name, seg.span, format!("`numeric_limits` has no `{}`", seg.name)),
                };
            }
        };
        match value {
            Some(v) => Ok(Rv::float(s, v)),
            None => fail(Kind::Name, seg.span, format!("`numeric_limits` has no `{}`", seg.name)),
        }
    }

    /// Member functions of built-in types.
    pub(super) fn builtin_method(&mut self, base: Ex, name: &str, args: Vec<Arg<'a>>, span: Span) -> R<Ex> {
        match (base.ty().clone(), name) {
            (Ty::Matrix(s), "thread_elements") if args.is_empty() => Ok(match base {
                Ex::L(lv) => Ex::L(value::Lv { ty: Ty::Vector(s, 2), ..lv }),
                Ex::R(v) => Ex::R(Rv { ty: Ty::Vector(s, 2), val: v.val }),
            }),
            (Ty::Array(_, n), "size") if args.is_empty() => Ok(Ex::R(Rv::int(Scalar::U64, n as i64))),
            (Ty::Array(..), "data") if args.is_empty() => Ok(Ex::R(self.rvalue_of(base, span)?)),
            (Ty::Scalar(Scalar::U64), "all" | "any") if args.is_empty() => {
                let v = self.rvalue_of(base, span)?;
                let id = self.ir(&v);
                if name == "any" {
                    let zero = self.b.u64(0);
                    let id = self.b.compare(crate::ir::CmpOp::Ne, id, zero);
                    return Ok(Ex::R(Rv::ir(Ty::BOOL, id)));
                }
                let mask = self.b.group_active_mask(crate::ir::Group::Simd);
                let mask = self.b.convert(mask, Scalar::U64);
                let id = self.b.compare(crate::ir::CmpOp::Eq, id, mask);
                Ok(Ex::R(Rv::ir(Ty::BOOL, id)))
            }
            (ty, _) => {
                let text = format!("`{}` has no member function `{name}`", self.type_name(&ty));
                fail(Kind::Name, span, text)
            }
        }
    }
}

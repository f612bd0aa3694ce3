//! The prelude: the language's semantics as CUDA C++, in sections that a kernel asks for.

use crate::ir::{BinaryOp, Kernel, Op, Scalar, UnaryOp};

use super::analysis::needs_lanes;
use super::scalar::fast_unary;

/// Sections in the order of the text; each may rely on those before it that are always there
/// and on those [`sections`] adds with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Section {
    Ptx,
    Core,
    Fast,
    Thread,
    Int,
    Float,
    Math,
    Trig,
    Special,
    Double,
    Simd,
    Atomic,
    Bounds,
}

impl Section {
    pub fn text(self) -> &'static str {
        match self {
            Section::Ptx => include_str!("prelude/ptx.cuh"),
            Section::Core => include_str!("prelude/core.cuh"),
            Section::Fast => include_str!("prelude/fast.cuh"),
            Section::Thread => include_str!("prelude/thread.cuh"),
            Section::Int => include_str!("prelude/int.cuh"),
            Section::Float => include_str!("prelude/float.cuh"),
            Section::Math => include_str!("prelude/math.cuh"),
            Section::Trig => include_str!("prelude/trig.cuh"),
            Section::Special => include_str!("prelude/special.cuh"),
            Section::Double => include_str!("prelude/double.cuh"),
            Section::Simd => include_str!("prelude/simd.cuh"),
            Section::Atomic => include_str!("prelude/atomic.cuh"),
            Section::Bounds => include_str!("prelude/bounds.cuh"),
        }
    }
}

/// The sections a kernel needs, in order.
pub(super) fn sections(kernel: &Kernel, bounds: bool, fast: bool) -> Vec<Section> {
    use Section::*;
    let mut wanted = vec![Ptx, Core, Thread, Int, Float];
    if fast {
        wanted.push(Fast);
    }
    if bounds {
        wanted.push(Bounds);
    }
    for op in kernel.blocks.iter().flat_map(|b| &b.insts).map(|i| &i.op) {
        let of_double = |v| kernel.ty(v).scalar() == Some(Scalar::F64);
        match *op {
            Op::Unary(f, a) => match unary(f) {
                Some(_) if of_double(a) => wanted.push(Double),
                Some(_) if fast && kernel.ty(a).scalar().is_some_and(|s| fast_unary(f, s).is_some()) => {}
                Some(section) => wanted.push(section),
                None => {}
            },
            Op::Binary(f, a, _) => match binary(f) {
                Some(_) if of_double(a) => wanted.push(Double),
                Some(section) => wanted.push(section),
                None => {}
            },
            Op::AtomicRmw { .. }
            | Op::AtomicLoad { .. }
            | Op::AtomicStore { .. }
            | Op::AtomicCompareExchange { .. } => wanted.push(Atomic),
            ref op if needs_lanes(op) => wanted.push(Simd),
            _ => {}
        }
    }
    if wanted.contains(&Special) {
        wanted.push(Trig);
    }
    if wanted.contains(&Trig) {
        wanted.push(Math);
    }
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

/// The section that defines a function, if it is not of those always there.
fn unary(f: UnaryOp) -> Option<Section> {
    use UnaryOp as U;
    Some(match f {
        U::Exp
        | U::Exp2
        | U::Exp10
        | U::Expm1
        | U::Log
        | U::Log2
        | U::Log10
        | U::Log1p
        | U::Sinh
        | U::Cosh
        | U::Tanh
        | U::Asinh
        | U::Acosh
        | U::Atanh
        | U::Cbrt
        | U::Sigmoid => Section::Math,
        U::Sin | U::Cos | U::Tan | U::SinPi | U::CosPi | U::TanPi | U::Asin | U::Acos | U::Atan => {
            Section::Trig
        }
        U::Erf | U::Erfc | U::ErfInv | U::Lgamma => Section::Special,
        _ => return None,
    })
}

fn binary(f: BinaryOp) -> Option<Section> {
    use BinaryOp as B;
    match f {
        B::Pow | B::IeeeRem | B::NextAfter | B::Hypot | B::Ldexp => Some(Section::Math),
        B::Atan2 => Some(Section::Trig),
        _ => None,
    }
}

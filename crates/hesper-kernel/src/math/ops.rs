//! The types of the registry's ops: [`unary`], [`binary`], [`ternary`] and [`compare`] have one for each op,
//! generic over the scalar type, and a `visit` that finds it.

use std::marker::PhantomData;

use super::int::Integer;
use super::op::*;
use super::*;
use crate::ir::registry::{binary_ops, compare_ops, reduce_ops, ternary_ops, unary_ops};
use crate::ir::{BinaryOp, CmpOp, ReduceOp, Scalar, TernaryOp, UnaryOp};

/// The result's native type by the group of an op.
macro_rules! result {
    (test $t:ty) => {
        u8
    };
    (exponent $t:ty) => {
        i32
    };
    ($group:ident $t:ty) => {
        $t
    };
}

/// The native type of the right operand by the group of an op.
macro_rules! right {
    (scale $t:ty) => {
        i32
    };
    ($group:ident $t:ty) => {
        $t
    };
}

/// Whether a result that was computed in f32 still has to be rounded to a 16-bit type.
macro_rules! rounds_half {
    (test $($half:tt)?) => {
        false
    };
    (exponent $($half:tt)?) => {
        false
    };
    ($group:ident) => {
        true
    };
    ($group:ident $half:tt) => {
        false
    };
}

/// The type of a function of f16 or bf16.
macro_rules! half_type {
    ($Name:ident $H:ident fused) => { Rounded<$Name<f32>, $H> };
    ($Name:ident $H:ident { $($own:tt)* }) => { $Name<$H> };
    ($Name:ident $H:ident $(exact)?) => { $Name<f32> };
}

/// Implements a function for the integer types.
macro_rules! ints {
    ($implement:ident $Name:ident $($function:tt)*) => {
        ints!(@ $implement $Name ($($function)*) i8 i16, i16 i32, i32 i64, i64 i128, u8 u16, u16 u32, u32 u64, u64 u128);
    };
    (@ $implement:ident $Name:ident $function:tt $($t:ident $wide:ident),+) => {
        $(ints!(@@ $implement $Name $t $wide $function);)+
    };
    (@@ $implement:ident $Name:ident $t:ident $wide:ident ($($function:tt)*)) => {
        $implement!($Name<$t>, $t, $t => $t, {
            #[allow(dead_code)]
            type T = $t;
            #[allow(dead_code)]
            type Wide = $wide;
        }, $($function)*);
    };
}

macro_rules! visit_ints {
    ($s:ident, $v:ident, $Name:ident) => {
        match $s {
            Scalar::I8 => return Some($v.narrow::<$Name<i8>>()),
            Scalar::I16 => return Some($v.narrow::<$Name<i16>>()),
            Scalar::I32 => return Some($v.visit::<$Name<i32>>()),
            Scalar::I64 => return Some($v.visit::<$Name<i64>>()),
            Scalar::U8 => return Some($v.narrow::<$Name<u8>>()),
            Scalar::U16 => return Some($v.narrow::<$Name<u16>>()),
            Scalar::U32 => return Some($v.visit::<$Name<u32>>()),
            Scalar::U64 => return Some($v.visit::<$Name<u64>>()),
            _ => {}
        }
    };
}

macro_rules! visit_floats {
    ($s:ident, $v:ident, $visit:ident, $Name:ident $($half:tt)?) => {
        match $s {
            Scalar::F16 => return Some($v.$visit::<half_type!($Name F16 $($half)?)>()),
            Scalar::BF16 => return Some($v.$visit::<half_type!($Name Bf16 $($half)?)>()),
            Scalar::F32 => return Some($v.$visit::<$Name<f32>>()),
            Scalar::F64 => return Some($v.$visit::<$Name<f64>>()),
            _ => {}
        }
    };
}

/// Drops its argument: names a repetition without using it.
macro_rules! only_if {
    ($given:tt $($then:tt)*) => { $($then)* };
}

/// Ops of one operand.
pub(crate) mod unary {
    use super::*;

    macro_rules! implement {
        ($Op:ty, $a:ty, $b:ty => $r:ty, { $($items:tt)* }, |$x:ident| $full:expr $(; $quick:expr, $left_out:expr)?) => {
            impl Op1 for $Op {
                type A = $a;
                type R = $r;
                $(
                    const QUICK: bool = true;
                    #[inline(always)]
                    fn quick($x: $a) -> ($r, bool) {
                        $quick
                    }
                    #[inline(always)]
                    fn is_left_out($x: $a) -> bool {
                        $left_out
                    }
                )?
                #[inline(always)]
                fn core($x: $a) -> $r {
                    $($items)*
                    <$r>::from($full)
                }
            }
        };
        ($Op:ty, $a:ty, $b:ty => $r:ty, { $($items:tt)* }, |$x:ident| $full:expr, $core:expr, $rare:expr
         $(; $quick:expr, $left_out:expr)?) => {
            impl Op1 for $Op {
                type A = $a;
                type R = $r;
                $(
                    const QUICK: bool = true;
                    #[inline(always)]
                    fn quick($x: $a) -> ($r, bool) {
                        $quick
                    }
                    #[inline(always)]
                    fn is_left_out($x: $a) -> bool {
                        $left_out
                    }
                )?
                const RARE: bool = true;
                #[inline(always)]
                fn core($x: $a) -> $r {
                    $core
                }
                #[inline(always)]
                fn is_rare($x: $a) -> bool {
                    $rare
                }
                #[inline(always)]
                fn full($x: $a) -> $r {
                    $full
                }
            }
        };
    }

    macro_rules! halves {
        ($group:ident $Name:ident { f16 |$x:ident| $f16:expr; bf16 |$y:ident| $bf16:expr; }) => {
            implement!($Name<F16>, f32, f32 => result!($group f32), {}, |$x| $f16);
            implement!($Name<Bf16>, f32, f32 => result!($group f32), {}, |$y| $bf16);
        };
        ($group:ident $Name:ident $how:ident) => {};
    }

    macro_rules! op {
        ($group:ident $Name:ident {
            $(bool |$p:ident| $bool:expr;)?
            $(int |$i:ident| $int:expr;)?
            $(f32 |$x:ident| $f32:expr $(, vector($core32:expr, unless $rare32:expr))?
              $(, quick($quick:expr, unless $left_out:expr))?;
              f64 |$y:ident| $f64:expr $(, vector($core64:expr, unless $rare64:expr))?;
              $(half $half:tt;)?)?
        }) => {
            pub(crate) struct $Name<T>(PhantomData<T>);
            $(implement!($Name<bool>, u8, u8 => u8, {}, |$p| $bool);)?
            $(ints!(implement $Name |$i| $int);)?
            $(
                implement!($Name<f32>, f32, f32 => result!($group f32), {}, |$x| $f32 $(, $core32, $rare32)? $(; $quick, $left_out)?);
                implement!($Name<f64>, f64, f64 => result!($group f64), {}, |$y| $f64 $(, $core64, $rare64)?);
                $(halves!($group $Name $half);)?
            )?
            impl $Name<()> {
                const ROUNDS_HALF: bool = rounds_half!($group $($($half)?)?);
                fn visit<V: Visit1>(s: Scalar, v: V) -> Option<V::Out> {
                    $(only_if! { $p if s == Scalar::Bool { return Some(v.visit::<$Name<bool>>()) } })?
                    $(only_if! { $i visit_ints!(s, v, $Name) })?
                    $(only_if! { $x visit_floats!(s, v, visit, $Name $($half)?) })?
                    None
                }
            }
        };
    }

    macro_rules! ops {
        ($($group:ident { $($(#[$doc:meta])* $Name:ident {
            eval $eval:tt text $text:tt $(device $device:literal)? builtins $builtins:tt
        })* })*) => {
            $($(op!($group $Name $eval);)*)*

            /// The function of an op on a scalar type; `None` if the op does not take the type.
            pub(crate) fn visit<V: Visit1>(op: UnaryOp, s: Scalar, v: V) -> Option<V::Out> {
                match op { $($(UnaryOp::$Name => $Name::visit(s, v),)*)* }
            }

            /// Whether the result on f16 and bf16 still has to be rounded to the type.
            pub(crate) fn rounds_half(op: UnaryOp) -> bool {
                match op { $($(UnaryOp::$Name => $Name::ROUNDS_HALF,)*)* }
            }
        };
    }
    unary_ops!(ops);
}

/// Ops of two operands.
pub(crate) mod binary {
    use super::*;

    macro_rules! implement {
        ($Op:ty, $a:ty, $b:ty => $r:ty, { $($items:tt)* }, |$x:ident, $y:ident| $full:expr $(; $quick:expr, $left_out:expr)?) => {
            impl Op2 for $Op {
                type A = $a;
                type B = $b;
                type R = $r;
                $(
                    const QUICK: bool = true;
                    #[inline(always)]
                    fn quick($x: $a, $y: $b) -> ($r, bool) {
                        $quick
                    }
                    #[inline(always)]
                    fn is_left_out($x: $a, $y: $b) -> bool {
                        $left_out
                    }
                )?
                #[inline(always)]
                fn core($x: $a, $y: $b) -> $r {
                    $($items)*
                    $full
                }
            }
        };
        ($Op:ty, $a:ty, $b:ty => $r:ty, { $($items:tt)* }, |$x:ident, $y:ident| $full:expr, $core:expr, $rare:expr
         $(; $quick:expr, $left_out:expr)?) => {
            impl Op2 for $Op {
                type A = $a;
                type B = $b;
                type R = $r;
                $(
                    const QUICK: bool = true;
                    #[inline(always)]
                    fn quick($x: $a, $y: $b) -> ($r, bool) {
                        $quick
                    }
                    #[inline(always)]
                    fn is_left_out($x: $a, $y: $b) -> bool {
                        $left_out
                    }
                )?
                const RARE: bool = true;
                #[inline(always)]
                fn core($x: $a, $y: $b) -> $r {
                    $core
                }
                #[inline(always)]
                fn is_rare($x: $a, $y: $b) -> bool {
                    $rare
                }
                #[inline(always)]
                fn full($x: $a, $y: $b) -> $r {
                    $full
                }
            }
        };
    }

    macro_rules! halves {
        ($Name:ident { f16 |$x:ident, $y:ident| $f16:expr; bf16 |$z:ident, $w:ident| $bf16:expr; }) => {
            implement!($Name<F16>, f32, f32 => f32, {}, |$x, $y| $f16);
            implement!($Name<Bf16>, f32, f32 => f32, {}, |$z, $w| $bf16);
        };
        ($Name:ident $how:ident) => {};
    }

    macro_rules! visit_group {
        (scale $s:ident, $v:ident, $Name:ident $($half:tt)?) => { visit_floats!($s, $v, mixed, $Name $($half)?) };
        ($group:ident $s:ident, $v:ident, $Name:ident $($half:tt)?) => { visit_floats!($s, $v, visit, $Name $($half)?) };
    }

    macro_rules! op {
        ($group:ident $Name:ident {
            $(bool |$p:ident, $q:ident| $bool:expr;)?
            $(int |$i:ident, $j:ident| $int:expr $(, vector($core:expr, unless $rare:expr))?;)?
            $(f32 |$x:ident, $y:ident| $f32:expr $(, vector($core32:expr, unless $rare32:expr))?
              $(, quick($quick:expr, unless $left_out:expr))?;
              f64 |$z:ident, $w:ident| $f64:expr $(, vector($core64:expr, unless $rare64:expr))?;
              $(half $half:tt;)?)?
        }) => {
            pub(crate) struct $Name<T>(PhantomData<T>);
            $(implement!($Name<bool>, u8, u8 => u8, {}, |$p, $q| $bool);)?
            $(ints!(implement $Name |$i, $j| $int $(, $core, $rare)?);)?
            $(
                implement!($Name<f32>, f32, right!($group f32) => f32, {}, |$x, $y| $f32 $(, $core32, $rare32)? $(; $quick, $left_out)?);
                implement!($Name<f64>, f64, right!($group f64) => f64, {}, |$z, $w| $f64 $(, $core64, $rare64)?);
                $(halves!($Name $half);)?
            )?
            impl $Name<()> {
                const ROUNDS_HALF: bool = rounds_half!($group $($($half)?)?);
                fn visit<V: Visit2>(s: Scalar, v: V) -> Option<V::Out> {
                    $(only_if! { $p if s == Scalar::Bool { return Some(v.visit::<$Name<bool>>()) } })?
                    $(only_if! { $i visit_ints!(s, v, $Name) })?
                    $(only_if! { $x visit_group!($group s, v, $Name $($half)?) })?
                    None
                }
            }
        };
    }

    macro_rules! ops {
        ($($group:ident { $($(#[$doc:meta])* $Name:ident {
            eval $eval:tt text $text:tt $(device $device:literal)? builtins $builtins:tt
        })* })*) => {
            $($(op!($group $Name $eval);)*)*

            /// The function of an op on a scalar type; `None` if the op does not take the type.
            pub(crate) fn visit<V: Visit2>(op: BinaryOp, s: Scalar, v: V) -> Option<V::Out> {
                match op { $($(BinaryOp::$Name => $Name::visit(s, v),)*)* }
            }

            /// Whether the result on f16 and bf16 still has to be rounded to the type.
            pub(crate) fn rounds_half(op: BinaryOp) -> bool {
                match op { $($(BinaryOp::$Name => $Name::ROUNDS_HALF,)*)* }
            }
        };
    }
    binary_ops!(ops);

    macro_rules! reductions {
        ($($(#[$doc:meta])* $Name:ident = $Binary:ident, $cuda:literal;)*) => {
            /// As [`visit`], of the op that joins two lanes of a reduction.
            pub(crate) fn visit_reduce<V: Visit2>(op: ReduceOp, s: Scalar, v: V) -> Option<V::Out> {
                match op { $(ReduceOp::$Name => $Binary::visit(s, v),)* }
            }
        };
    }
    reduce_ops!(reductions);
}

/// Ops of three operands.
pub(crate) mod ternary {
    use super::*;

    macro_rules! implement {
        ($Op:ty, $a:ty, $b:ty => $r:ty, { $($items:tt)* }, |$x:ident, $y:ident, $z:ident| $full:expr) => {
            impl Op3 for $Op {
                type A = $a;
                type B = $b;
                type R = $r;
                #[inline(always)]
                fn full($x: $a, $y: $b, $z: $b) -> $r {
                    $($items)*
                    $full
                }
            }
        };
    }

    macro_rules! op {
        ($group:ident $Name:ident {
            $(int |$i:ident, $j:ident, $k:ident| $int:expr;)?
            $(f32 |$x:ident, $y:ident, $z:ident| $f32:expr;
              f64 |$u:ident, $v:ident, $w:ident| $f64:expr;
              half $half:tt;)?
        }) => {
            pub(crate) struct $Name<T>(PhantomData<T>);
            $(ints!(implement $Name |$i, $j, $k| $int);)?
            $(
                implement!($Name<f32>, f32, f32 => f32, {}, |$x, $y, $z| $f32);
                implement!($Name<f64>, f64, f64 => f64, {}, |$u, $v, $w| $f64);
            )?
            impl $Name<()> {
                fn visit<V: Visit3>(s: Scalar, v: V) -> Option<V::Out> {
                    $(only_if! { $i visit_ints!(s, v, $Name) })?
                    $(only_if! { $x visit_floats!(s, v, visit, $Name $half) })?
                    None
                }
            }
        };
    }

    macro_rules! ops {
        ($($group:ident { $($(#[$doc:meta])* $Name:ident {
            eval $eval:tt text $text:tt $(device $device:literal)? builtins $builtins:tt
        })* })*) => {
            $($(op!($group $Name $eval);)*)*

            /// The function of an op on a scalar type; `None` if the op does not take the type. Results on
            /// f16 and bf16 are rounded to the type.
            pub(crate) fn visit<V: Visit3>(op: TernaryOp, s: Scalar, v: V) -> Option<V::Out> {
                match op { $($(TernaryOp::$Name => $Name::visit(s, v),)*)* }
            }
        };
    }
    ternary_ops!(ops);
}

/// Comparisons.
pub(crate) mod compare {
    use super::*;

    macro_rules! ops {
        ($($(#[$doc:meta])* $Name:ident $operator:tt;)*) => {
            $(
                pub(crate) struct $Name<T>(PhantomData<T>);
                impl<T: Native + PartialOrd> Op2 for $Name<T> {
                    type A = T;
                    type B = T;
                    type R = u8;
                    #[inline(always)]
                    fn core(a: T, b: T) -> u8 {
                        u8::from(a $operator b)
                    }
                }
            )*

            /// The function of a comparison on a scalar type.
            pub(crate) fn visit<V: Visit2>(op: CmpOp, s: Scalar, v: V) -> V::Out {
                match op {
                    $(CmpOp::$Name => match s {
                        Scalar::Bool | Scalar::U8 => v.mixed::<$Name<u8>>(),
                        Scalar::I8 => v.mixed::<$Name<i8>>(),
                        Scalar::I16 => v.mixed::<$Name<i16>>(),
                        Scalar::I32 => v.mixed::<$Name<i32>>(),
                        Scalar::I64 => v.mixed::<$Name<i64>>(),
                        Scalar::U16 => v.mixed::<$Name<u16>>(),
                        Scalar::U32 => v.mixed::<$Name<u32>>(),
                        Scalar::U64 => v.mixed::<$Name<u64>>(),
                        Scalar::F16 | Scalar::BF16 | Scalar::F32 => v.mixed::<$Name<f32>>(),
                        Scalar::F64 => v.mixed::<$Name<f64>>(),
                    },)*
                }
            }
        };
    }
    compare_ops!(ops);
}

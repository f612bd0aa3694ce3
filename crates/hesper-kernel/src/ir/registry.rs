//! The registry of scalar ops: one entry per op, from which all code about it is generated.
//!
//! A table is a macro. It passes its entries, after any arguments of the caller, to a second macro that the
//! caller names:
//!
//! | generated code | where |
//! |---|---|
//! | the variants of [`UnaryOp`](super::UnaryOp) and its siblings, their type rules | `ir/ops.rs` |
//! | the interpreter's evaluation, constant folding, the executor's lane functions | `math/ops.rs` |
//! | the CUDA and Metal text and the sections of the prelude that it needs | `cpp/scalar.rs` |
//! | the functions of the kernel language | `front/lower/builtins` |
//!
//! Ops are grouped by type rule: operands are a `number` (not `Bool`), `bits` (an integer or `Bool`),
//! an `int` or a `float`, and the result has the operands' type. A `test` takes a float to a `Bool`,
//! an `exponent` takes one to an `I32`, a `scale` takes a float and an `I32` to a float.
//!
//! An entry has these fields, in this order:
//!
//! * `eval`: the value by scalar type. `int` stands for all eight integer types, and its expression may name
//!   the type at hand `T` and the type of twice its width `Wide`. Names are those of [`crate::math`].
//!   `vector(core, unless rare)` computes all lanes by `core`, which vectorises, and then recomputes the
//!   lanes where `rare` holds by the full expression. `quick(pass, unless left out)` first computes a block
//!   by a pass of [`crate::math::quick`], and again by the expressions before if a lane is unsure or left
//!   out. `half` says how f16 and bf16, which compute in f32, get their result: rounded in a second pass (the
//!   default), `exact` (no rounding needed), `fused` (rounded in the same pass), or by expressions of their
//!   own.
//! * `text`: C++ expressions over `$a`, `$b`, `$c` and the type's name `$t`, for CUDA and Metal alike. The
//!   first whose form fits the type is used. `Float` computes 16-bit floats in f32. Fast forms are for CUDA
//!   only.
//! * `device`, optional: the C++ functions that `text` names, where the prelude has none. Metal drops
//!   overloads for f64.
//! * `builtins`: functions of the kernel language; in parentheses the operands that a function
//!   converts to, where they are not those of the op.

/// Ops of one operand.
macro_rules! unary_ops {
    ($consumer:ident $($args:tt)*) => { $consumer! {
        $($args)*
        number {
            /// Negation: wraps for integers (also unsigned), flips the sign bit of floats.
            Neg {
                eval { int |x| x.wrapping_neg(); f32 |x| -x; f64 |x| -x; half exact; }
                text { Half "$t{(u16)($a.b ^ 0x8000u)}", Float "neg_of($a)", Int "ineg($a)" }
                builtins []
            }
            /// Absolute value; wraps for the least integer; clears the sign bit of floats.
            Abs {
                eval { int |x| x.magnitude(); f32 |x| x.abs(); f64 |x| x.abs(); half exact; }
                text {
                    Half "$t{(u16)($a.b & 0x7fffu)}", Float "abs_of($a)", Unsigned "$a", Int "iabs($a)"
                }
                builtins [abs, fabs(float)]
            }
            /// -1, 0 or 1 of the operand's type; floats keep a zero as it is and give 0 for NaN.
            Sign {
                eval { int |x| x.sign(); f32 |x| sign_f32(x); f64 |x| sign_f64(x); half exact; }
                text { Float "fsign($a)", Int "isign($a)" }
                builtins [sign]
            }
        }
        bits {
            /// Bitwise complement of integers, logical not of `Bool`.
            Not {
                eval { bool |x| x ^ 1; int |x| !x; }
                text { Bool "!$a", Int "($t)~$a" }
                builtins []
            }
        }
        int {
            /// Number of one bits.
            PopCount {
                eval { int |x| x.count_ones() as T; }
                text { Int "ipopcount($a)" }
                builtins [popcount]
            }
            /// Leading zero bits; the width for 0.
            Clz {
                eval { int |x| x.leading_zeros() as T; }
                text { Int "iclz($a)" }
                builtins [clz]
            }
            /// Trailing zero bits; the width for 0.
            Ctz {
                eval { int |x| x.trailing_zeros() as T; }
                text { Int "ictz($a)" }
                builtins [ctz]
            }
            /// The bits in reverse order.
            ReverseBits {
                eval { int |x| x.reverse_bits(); }
                text { Int "ireverse($a)" }
                builtins [reverse_bits]
            }
        }
        float {
            /// Square root, correctly rounded.
            Sqrt {
                eval { f32 |x| x.sqrt(); f64 |x| x.sqrt(); }
                text { Float "sqrt_of($a)" }
                builtins [sqrt]
            }
            /// `1 / sqrt(x)`: the division and the root each rounded.
            Rsqrt {
                eval { f32 |x| 1.0 / x.sqrt(); f64 |x| 1.0 / x.sqrt(); }
                text { Float "rsqrt_of($a)" }
                builtins [rsqrt]
            }
            /// Cube root.
            Cbrt {
                eval { f32 |x| cbrt(x); f64 |x| x.cbrt(); }
                text { Float "cbrt_of($a)" }
                builtins [cbrt]
            }
            /// `e^x`.
            Exp {
                eval { f32 |x| exp(x); f64 |x| double::exp(x); }
                text { FastHalf "to_$t(fast_exp_of(to_f32($a)))", Float "exp_of($a)" }
                builtins [exp]
            }
            /// `2^x`.
            Exp2 {
                eval { f32 |x| exp2(x); f64 |x| double::exp2(x); }
                text { FastHalf "to_$t(exp2f(to_f32($a)))", Float "exp2_of($a)" }
                builtins [exp2]
            }
            /// `10^x`.
            Exp10 {
                eval { f32 |x| exp10(x); f64 |x| double::exp10(x); }
                text { FastHalf "to_$t(exp10f(to_f32($a)))", Float "exp10_of($a)" }
                builtins [exp10]
            }
            /// `e^x - 1`.
            Expm1 {
                eval {
                    f32 |x| expm1(x), quick(quick::expm1(x), unless quick::expm1_leaves_out(x));
                    f64 |x| double::exp_m1(x);
                }
                text {
                    FastHalf "to_$t(expm1f(to_f32($a)))", FastF32 "expm1_quick_of($a)",
                    Float "expm1_of($a)"
                }
                builtins [expm1, expm1f]
            }
            /// Natural logarithm.
            Log {
                eval { f32 |x| log(x); f64 |x| double::log(x); }
                text { FastHalf "to_$t(logf(to_f32($a)))", Float "log_of($a)" }
                builtins [log]
            }
            /// Base-2 logarithm.
            Log2 {
                eval {
                    f32 |x| log2(x), quick(quick::log2(x), unless quick::log_leaves_out(x));
                    f64 |x| double::log2(x);
                }
                text {
                    FastHalf "to_$t(log2f(to_f32($a)))", FastF32 "log2_quick_of($a)",
                    Float "log2_of($a)"
                }
                builtins [log2]
            }
            /// Base-10 logarithm.
            Log10 {
                eval {
                    f32 |x| log10(x), quick(quick::log10(x), unless quick::log_leaves_out(x));
                    f64 |x| x.log10();
                }
                text {
                    FastHalf "to_$t(log10f(to_f32($a)))", FastF32 "log10_quick_of($a)",
                    Float "log10_of($a)"
                }
                builtins [log10]
            }
            /// `log(1 + x)`.
            Log1p {
                eval {
                    f32 |x| log1p(x), quick(quick::log1p(x), unless quick::log1p_leaves_out(x));
                    f64 |x| double::log_1p(x);
                }
                text {
                    FastHalf "to_$t(log1pf(to_f32($a)))", FastF32 "log1p_quick_of($a)",
                    Float "log1p_of($a)"
                }
                builtins [log1p]
            }
            /// Sine.
            Sin {
                eval {
                    f32 |x| sin(x), vector(sin_core(x), unless x.abs() > TRIG_LIMIT);
                    f64 |x| double::sin64(x), vector(double::sin_core64(x), unless x.abs() > double::TRIG_LIMIT64);
                }
                text { FastHalf "to_$t(sinf(to_f32($a)))", Float "sin_of($a)" }
                builtins [sin]
            }
            /// Cosine.
            Cos {
                eval {
                    f32 |x| cos(x), vector(cos_core(x), unless x.abs() > TRIG_LIMIT);
                    f64 |x| double::cos64(x), vector(double::cos_core64(x), unless x.abs() > double::TRIG_LIMIT64);
                }
                text { FastHalf "to_$t(cosf(to_f32($a)))", Float "cos_of($a)" }
                builtins [cos]
            }
            /// Tangent.
            Tan {
                eval {
                    f32 |x| tan(x), vector(tan_core(x), unless x.abs() > TRIG_LIMIT),
                        quick(quick::tan(x), unless quick::tan_leaves_out(x));
                    f64 |x| double::tan64(x), vector(double::tan_core64(x), unless x.abs() > double::TRIG_LIMIT64);
                }
                text {
                    FastHalf "to_$t(tanf(to_f32($a)))", FastF32 "tan_quick_of($a)",
                    Float "tan_of($a)"
                }
                builtins [tan]
            }
            /// `sin(pi x)`.
            SinPi {
                eval { f32 |x| sin_pi(x); f64 |x| double::sin_pi(x); }
                text { Float "sin_pi_of($a)" }
                builtins [sinpi]
            }
            /// `cos(pi x)`.
            CosPi {
                eval { f32 |x| cos_pi(x); f64 |x| double::cos_pi(x); }
                text { Float "cos_pi_of($a)" }
                builtins [cospi]
            }
            /// `tan(pi x)`.
            TanPi {
                eval { f32 |x| tan_pi(x); f64 |x| double::sin_pi(x) / double::cos_pi(x); }
                text { Float "tan_pi_of($a)" }
                builtins [tanpi]
            }
            /// Arc sine.
            Asin {
                eval {
                    f32 |x| asin(x), quick(quick::asin(x), unless quick::asin_leaves_out(x));
                    f64 |x| double::asin(x);
                }
                text {
                    FastHalf "to_$t(asinf(to_f32($a)))", FastF32 "asin_quick_of($a)",
                    Float "asin_of($a)"
                }
                builtins [asin]
            }
            /// Arc cosine.
            Acos {
                eval {
                    f32 |x| acos(x), quick(quick::acos(x), unless quick::asin_leaves_out(x));
                    f64 |x| double::acos(x);
                }
                text {
                    FastHalf "to_$t(acosf(to_f32($a)))", FastF32 "acos_quick_of($a)",
                    Float "acos_of($a)"
                }
                builtins [acos]
            }
            /// Arc tangent.
            Atan {
                eval {
                    f32 |x| atan(x), quick(quick::atan(x), unless quick::atan_leaves_out(x));
                    f64 |x| double::atan(x);
                }
                text {
                    FastHalf "to_$t(atanf(to_f32($a)))", FastF32 "atan_quick_of($a)",
                    Float "atan_of($a)"
                }
                builtins [atan]
            }
            /// Hyperbolic sine.
            Sinh {
                eval {
                    f32 |x| sinh(x), quick(quick::sinh(x), unless quick::sinh_leaves_out(x));
                    f64 |x| double::sinh(x);
                }
                text {
                    FastHalf "to_$t(sinhf(to_f32($a)))", FastF32 "sinh_quick_of($a)",
                    Float "sinh_of($a)"
                }
                builtins [sinh]
            }
            /// Hyperbolic cosine.
            Cosh {
                eval {
                    f32 |x| cosh(x), quick(quick::cosh(x), unless quick::sinh_leaves_out(x));
                    f64 |x| double::cosh(x);
                }
                text {
                    FastHalf "to_$t(coshf(to_f32($a)))", FastF32 "cosh_quick_of($a)",
                    Float "cosh_of($a)"
                }
                builtins [cosh]
            }
            /// Hyperbolic tangent.
            Tanh {
                eval { f32 |x| tanh(x); f64 |x| double::tanh(x); }
                text {
                    FastF16 "to_$t(fast_tanh_of(to_f32($a)))", FastBf16 "to_$t(fast_tanh_of_bf16(to_f32($a)))",
                    Float "tanh_of($a)"
                }
                builtins [tanh]
            }
            /// Inverse hyperbolic sine.
            Asinh {
                eval { f32 |x| asinh(x); f64 |x| double::asinh(x); }
                text {
                    FastHalf "to_$t(asinhf(to_f32($a)))", FastF32 "asinh_quick_of($a)",
                    Float "asinh_of($a)"
                }
                builtins [asinh]
            }
            /// Inverse hyperbolic cosine.
            Acosh {
                eval { f32 |x| acosh(x); f64 |x| double::acosh(x); }
                text {
                    FastHalf "to_$t(acoshf(to_f32($a)))", FastF32 "acosh_quick_of($a)",
                    Float "acosh_of($a)"
                }
                builtins [acosh]
            }
            /// Inverse hyperbolic tangent.
            Atanh {
                eval {
                    f32 |x| atanh(x), quick(quick::atanh(x), unless quick::atanh_leaves_out(x));
                    f64 |x| double::atanh(x);
                }
                text {
                    FastHalf "to_$t(atanhf(to_f32($a)))", FastF32 "atanh_quick_of($a)",
                    Float "atanh_of($a)"
                }
                builtins [atanh]
            }
            /// The error function.
            Erf {
                eval { f32 |x| erf(x); f64 |x| double::erf(x); }
                text { FastHalf "to_$t(fast_erf_of(to_f32($a)))", Float "erf_of($a)" }
                builtins [erf]
            }
            /// `1 - erf(x)`.
            Erfc {
                eval { f32 |x| erfc(x); f64 |x| double::erfc(x); }
                text { FastHalf "to_$t(erfcf(to_f32($a)))", Float "erfc_of($a)" }
                builtins [erfc]
            }
            /// Inverse of the error function.
            ErfInv {
                eval { f32 |x| erf_inv(x); f64 |x| double::erf_inv(x); }
                text {
                    FastHalf "to_$t(erfinvf(to_f32($a)))", FastF32 "erf_inv_quick_of($a)",
                    Float "erf_inv_of($a)"
                }
                builtins [erfinv]
            }
            /// Natural logarithm of the absolute value of the gamma function.
            Lgamma {
                eval { f32 |x| lgamma(x); f64 |x| double::lgamma(x); }
                text { Float "lgamma_of($a)" }
                builtins [lgamma]
            }
            /// Largest integer not above.
            Floor {
                eval { f32 |x| x.floor(); f64 |x| x.floor(); half exact; }
                text { Float "floor_of($a)" }
                builtins [floor]
            }
            /// Smallest integer not below.
            Ceil {
                eval { f32 |x| x.ceil(); f64 |x| x.ceil(); half exact; }
                text { Float "ceil_of($a)" }
                builtins [ceil]
            }
            /// Nearest integer, halves away from zero.
            Round {
                eval { f32 |x| round_f32(x); f64 |x| round_f64(x); half exact; }
                text { Float "round_of($a)" }
                builtins [round]
            }
            /// Nearest integer, halves to even.
            Rint {
                eval { f32 |x| x.round_ties_even(); f64 |x| x.round_ties_even(); half exact; }
                text { Float "rint_of($a)" }
                builtins [rint, nearbyint]
            }
            /// Towards zero.
            Trunc {
                eval { f32 |x| x.trunc(); f64 |x| x.trunc(); half exact; }
                text { Float "trunc_of($a)" }
                builtins [trunc]
            }
            /// `x - floor(x)`, below 1.
            Fract {
                eval { f32 |x| fract_f32(x); f64 |x| fract_f64(x); }
                text { Float "fract_of($a)" }
                builtins [fract]
            }
            /// The mantissa of C's `frexp`: in `[0.5, 1)`, or `x` itself for zero, infinity and NaN.
            FrexpMant {
                eval { f32 |x| frexp_f32(x).0; f64 |x| frexp_f64(x).0; half exact; }
                text { Float "frexp_mant($a)" }
                builtins []
            }
            /// `1 / (1 + e^-x)`.
            Sigmoid {
                eval { f32 |x| sigmoid(x); f64 |x| double::sigmoid(x); }
                text { FastHalf "to_$t(fast_sigmoid_of(to_f32($a)))", Float "sigmoid_of($a)" }
                builtins []
            }
        }
        test {
            /// Not a number.
            IsNan {
                eval { f32 |x| x.is_nan(); f64 |x| x.is_nan(); }
                text { Float "is_nan($a)" }
                builtins [isnan]
            }
            /// Plus or minus infinity.
            IsInf {
                eval { f32 |x| x.is_infinite(); f64 |x| x.is_infinite(); }
                text { Float "is_inf($a)" }
                builtins [isinf]
            }
            /// Neither infinite nor NaN.
            IsFinite {
                eval { f32 |x| x.is_finite(); f64 |x| x.is_finite(); }
                text { Float "is_finite($a)" }
                builtins [isfinite]
            }
            /// Neither zero, subnormal, infinite nor NaN.
            IsNormal {
                eval {
                    f32 |x| x.is_normal(); f64 |x| x.is_normal();
                    // Subnormals of f16 are normal in f32.
                    half { f16 |x| x.abs() >= F16_MIN_POSITIVE && x.is_finite(); bf16 |x| x.is_normal(); };
                }
                text { F16 "is_normal($a)", Float "is_normal($a)" }
                builtins [isnormal]
            }
            /// The sign bit is set.
            SignBit {
                eval { f32 |x| x.is_sign_negative(); f64 |x| x.is_sign_negative(); }
                // A conversion need not keep the sign of a NaN.
                text { Half "$a.b >> 15 != 0", Float "sign_bit($a)" }
                builtins [signbit]
            }
        }
        exponent {
            /// The exponent of C's `frexp`: `x = m * 2^e` with `m` of [`UnaryOp::FrexpMant`]; 0 for zero,
            /// infinity and NaN.
            FrexpExp {
                eval { f32 |x| frexp_f32(x).1; f64 |x| frexp_f64(x).1; }
                text { Float "frexp_exp($a)" }
                builtins []
            }
        }
    } };
}

/// Ops of two operands.
macro_rules! binary_ops {
    ($consumer:ident $($args:tt)*) => { $consumer! {
        $($args)*
        number {
            /// Sum.
            Add {
                eval { int |a, b| a.wrapping_add(b); f32 |a, b| a + b; f64 |a, b| a + b; half fused; }
                text { FastHalf "fast_add($a, $b)", Float "$a + $b", Word "$a + $b", Int "iadd($a, $b)" }
                builtins []
            }
            /// Difference.
            Sub {
                eval { int |a, b| a.wrapping_sub(b); f32 |a, b| a - b; f64 |a, b| a - b; half fused; }
                text { FastHalf "fast_sub($a, $b)", Float "$a - $b", Word "$a - $b", Int "isub($a, $b)" }
                builtins []
            }
            /// Product.
            Mul {
                eval { int |a, b| a.wrapping_mul(b); f32 |a, b| a * b; f64 |a, b| a * b; half fused; }
                text { FastHalf "fast_mul($a, $b)", Float "$a * $b", Word "$a * $b", Int "imul($a, $b)" }
                builtins [mul24(int)]
            }
            /// Quotient; integers truncate towards zero; by zero gives 0 (error in checked mode), and
            /// `MIN / -1` wraps.
            Div {
                eval {
                    int |a, b| a.quotient(b), vector(a.float_quotient(b), unless a.exceeds_floats(b));
                    f32 |a, b| a / b; f64 |a, b| a / b; half fused;
                }
                text { Float "$a / $b", Int "idiv($a, $b)" }
                builtins [divide(float)]
            }
            /// Remainder with the sign of the dividend (C's `%` and `fmod`); integers by zero give 0
            /// (error in checked mode).
            Rem {
                eval {
                    int |a, b| a.remainder(b), vector(a.float_remainder(b), unless a.exceeds_floats(b));
                    f32 |a, b| fmod(a, b), vector(fmod_core(a, b), unless fmod_is_rare(a, b));
                    f64 |a, b| a % b;
                }
                text { Float "fmod_of($a, $b)", Int "irem($a, $b)" }
                builtins [fmod(float)]
            }
            /// Smaller; for floats the operand that is a number if the other is NaN, and -0 < +0.
            Min {
                eval { int |a, b| a.min(b); f32 |a, b| min_f32(a, b); f64 |a, b| min_f64(a, b); half exact; }
                text { Float "fmin_of($a, $b)", Int "imin($a, $b)" }
                builtins [min, fmin(float)]
            }
            /// Larger; for floats the operand that is a number if the other is NaN, and -0 < +0.
            Max {
                eval { int |a, b| a.max(b); f32 |a, b| max_f32(a, b); f64 |a, b| max_f64(a, b); half exact; }
                text { Float "fmax_of($a, $b)", Int "imax($a, $b)" }
                builtins [max, fmax(float)]
            }
            /// Smaller; NaN if either float is NaN.
            MinNan {
                eval {
                    int |a, b| a.min(b); f32 |a, b| min_nan_f32(a, b); f64 |a, b| min_nan_f64(a, b);
                    half exact;
                }
                text { Float "fmin_nan($a, $b)", Int "imin($a, $b)" }
                builtins []
            }
            /// Larger; NaN if either float is NaN.
            MaxNan {
                eval {
                    int |a, b| a.max(b); f32 |a, b| max_nan_f32(a, b); f64 |a, b| max_nan_f64(a, b);
                    half exact;
                }
                text { Float "fmax_nan($a, $b)", Int "imax($a, $b)" }
                builtins []
            }
        }
        bits {
            /// Bitwise and; logical on `Bool`.
            And {
                eval { bool |a, b| a & b; int |a, b| a & b; }
                text { Bits "($t)($a & $b)" }
                builtins []
            }
            /// Bitwise or; logical on `Bool`.
            Or {
                eval { bool |a, b| a | b; int |a, b| a | b; }
                text { Bits "($t)($a | $b)" }
                builtins []
            }
            /// Bitwise exclusive or; logical on `Bool`.
            Xor {
                eval { bool |a, b| a ^ b; int |a, b| a ^ b; }
                text { Bits "($t)($a ^ $b)" }
                builtins []
            }
        }
        int {
            /// Left shift by a count of the same type, taken modulo the width.
            Shl {
                eval { int |a, b| a.wrapping_shl(b as u32); }
                text { Int "ishl($a, $b)" }
                builtins []
            }
            /// Right shift, arithmetic for signed integers; count as for `Shl`.
            Shr {
                eval { int |a, b| a.wrapping_shr(b as u32); }
                text { Int "ishr($a, $b)" }
                builtins []
            }
            /// Left rotation; count as for `Shl`.
            Rotate {
                eval { int |a, b| a.rotate_left(b as u32 & (T::BITS - 1)); }
                text { Int "irotate($a, $b)" }
                builtins [rotate]
            }
            /// The upper half of the full product.
            MulHi {
                eval { int |a, b| ((a as Wide * b as Wide) >> T::BITS) as T; }
                text { Int "imulhi($a, $b)" }
                builtins [mulhi]
            }
            /// Saturating sum.
            AddSat {
                eval { int |a, b| a.saturating_add(b); }
                text { Int "iadd_sat($a, $b)" }
                builtins [addsat]
            }
            /// Saturating difference.
            SubSat {
                eval { int |a, b| a.saturating_sub(b); }
                text { Int "isub_sat($a, $b)" }
                builtins [subsat]
            }
            /// `|a - b|` without overflow; of signed integers wrapped into the type.
            AbsDiff {
                eval { int |a, b| a.abs_diff(b) as T; }
                text { Int "iabsdiff($a, $b)" }
                builtins [absdiff]
            }
            /// `(a + b) >> 1` without overflow.
            Hadd {
                eval { int |a, b| (a & b).wrapping_add((a ^ b) >> 1); }
                text { Int "ihadd($a, $b)" }
                builtins [hadd]
            }
            /// `(a + b + 1) >> 1` without overflow.
            Rhadd {
                eval { int |a, b| (a | b).wrapping_sub((a ^ b) >> 1); }
                text { Int "irhadd($a, $b)" }
                builtins [rhadd]
            }
        }
        float {
            /// `a^b`.
            Pow {
                eval {
                    f32 |a, b| pow(a, b), quick(quick::pow(a, b), unless quick::pow_leaves_out(a, b));
                    f64 |a, b| double::pow(a, b), vector(double::pow_core(a, b), unless double::pow_is_rare(a, b));
                }
                text {
                    FastHalf "to_$t(powf(to_f32($a), to_f32($b)))", FastF32 "pow_quick_of($a, $b)",
                    Float "pow_of($a, $b)"
                }
                builtins [pow, powr]
            }
            /// The angle of the point `(x = b, y = a)`.
            Atan2 {
                eval {
                    f32 |a, b| atan2(a, b), quick(quick::atan2(a, b), unless quick::atan2_leaves_out(a, b));
                    f64 |a, b| a.atan2(b);
                }
                text {
                    FastHalf "to_$t(atan2f(to_f32($a), to_f32($b)))", FastF32 "atan2_quick_of($a, $b)",
                    Float "atan2_of($a, $b)"
                }
                builtins [atan2]
            }
            /// IEEE remainder: `a - n b` with `n` the nearest integer to `a / b`, halves to even.
            IeeeRem {
                eval { f32 |a, b| ieee_rem(a, b); f64 |a, b| double::ieee_rem(a, b); }
                text { Float "ieee_rem_of($a, $b)" }
                builtins [remainder]
            }
            /// `a` with the sign of `b`.
            CopySign {
                eval { f32 |a, b| a.copysign(b); f64 |a, b| a.copysign(b); half exact; }
                text { Half "$t{(u16)(($a.b & 0x7fffu) | ($b.b & 0x8000u))}", Float "copysign_of($a, $b)" }
                builtins [copysign]
            }
            /// The next float of the type from `a` towards `b`.
            NextAfter {
                eval {
                    f32 |a, b| next_after(a, b); f64 |a, b| double::next_after(a, b);
                    half { f16 |a, b| next_after_f16(a, b); bf16 |a, b| next_after_bf16(a, b); };
                }
                text {
                    F16 "next_after_16($a, $b, $t{0x7e00})", Bf16 "next_after_16($a, $b, $t{0x7fc0})",
                    Float "next_after_of($a, $b)"
                }
                builtins [nextafter]
            }
            /// `a - b` if positive, else 0; NaN if either is NaN.
            Fdim {
                eval { f32 |a, b| fdim_f32(a, b); f64 |a, b| fdim_f64(a, b); }
                text { Float "fdim_of($a, $b)" }
                builtins [fdim]
            }
            /// `sqrt(a^2 + b^2)` without undue overflow.
            Hypot {
                eval { f32 |a, b| hypot(a, b); f64 |a, b| a.hypot(b); }
                text { Float "hypot_of($a, $b)" }
                device "\
HESPER_FN f32 hypot_of(f32 a, f32 b) {
  const f64 x = (f64)a, y = (f64)b;
  const f32 r = (f32)sqrt_of(x * x + y * y);
  return is_inf(a) || is_inf(b) ? f32_of(0x7f800000u) : r;
}
HESPER_FN f64 hypot_of(f64 a, f64 b) { return hypot(a, b); }
"
                builtins [hypot]
            }
        }
        scale {
            /// `a * 2^b`, correctly rounded; `b` is an `I32` of `a`'s shape.
            Ldexp {
                eval { f32 |a, n| ldexp(a, n); f64 |a, n| double::ldexp(a, n); }
                text { Float "ldexp_of($a, $b)" }
                builtins [ldexp]
            }
        }
    } };
}

/// Ops of three operands.
macro_rules! ternary_ops {
    ($consumer:ident $($args:tt)*) => { $consumer! {
        $($args)*
        number {
            /// `a * b + c`: floats rounded once (f16 and bf16: fused in f32, then rounded to the type);
            /// integers wrap.
            Fma {
                eval {
                    int |a, b, c| a.wrapping_mul(b).wrapping_add(c);
                    f32 |a, b, c| a.mul_add(b, c); f64 |a, b, c| a.mul_add(b, c); half fused;
                }
                text { Float "fma_of($a, $b, $c)", Int "iadd(imul($a, $b), $c)" }
                builtins [fma(float), mad(float)]
            }
            /// `min(max(a, b), c)` with [`BinaryOp::Min`] and [`BinaryOp::Max`].
            Clamp {
                eval {
                    int |a, b, c| a.max(b).min(c);
                    f32 |a, b, c| min_f32(max_f32(a, b), c); f64 |a, b, c| min_f64(max_f64(a, b), c);
                    half exact;
                }
                text { Float "fmin_of(fmax_of($a, $b), $c)", Int "imin(imax($a, $b), $c)" }
                builtins [clamp]
            }
        }
    } };
}

/// Comparisons: the operator, in Rust and in C++ alike.
macro_rules! compare_ops {
    ($consumer:ident $($args:tt)*) => { $consumer! {
        $($args)*
        /// Equal.
        Eq ==;
        /// Not equal.
        Ne !=;
        /// Less.
        Lt <;
        /// Less or equal.
        Le <=;
        /// Greater.
        Gt >;
        /// Greater or equal.
        Ge >=;
    } };
}

/// Reductions and scans over the lanes of a group: the op that joins two lanes, and its name in the prelude.
macro_rules! reduce_ops {
    ($consumer:ident $($args:tt)*) => { $consumer! {
        $($args)*
        /// Sum.
        Sum = Add, "op_add";
        /// Product.
        Product = Mul, "op_mul";
        /// [`BinaryOp::Min`].
        Min = Min, "op_min";
        /// [`BinaryOp::Max`].
        Max = Max, "op_max";
        /// Bitwise and.
        And = And, "op_and";
        /// Bitwise or.
        Or = Or, "op_or";
        /// Bitwise exclusive or.
        Xor = Xor, "op_xor";
    } };
}

/// Atomic updates: the op that computes the new value from the old one and the operand, its name in the
/// prelude, and the functions of the language.
macro_rules! atomic_ops {
    ($consumer:ident $($args:tt)*) => { $consumer! {
        $($args)*
        /// Replace.
        Exchange, "exchange" [atomic_exchange_explicit];
        /// Add, wrapping.
        Add = Add, "add" [atomic_fetch_add_explicit];
        /// Subtract, wrapping.
        Sub = Sub, "sub" [atomic_fetch_sub_explicit];
        /// [`BinaryOp::Min`].
        Min = Min, "min" [atomic_fetch_min_explicit, atomic_min_explicit];
        /// [`BinaryOp::Max`].
        Max = Max, "max" [atomic_fetch_max_explicit, atomic_max_explicit];
        /// Bitwise and.
        And = And, "and" [atomic_fetch_and_explicit];
        /// Bitwise or.
        Or = Or, "or" [atomic_fetch_or_explicit];
        /// Bitwise exclusive or.
        Xor = Xor, "xor" [atomic_fetch_xor_explicit];
    } };
}

pub(crate) use {atomic_ops, binary_ops, compare_ops, reduce_ops, ternary_ops, unary_ops};

//! Derivatives of element-wise primitives, which are the same in both directions: what a change of one input
//! makes of the output, and the reverse.

use hesper::{Array, Dtype, select};

use super::{Node, complex};
use crate::primitives::Argument;

/// A number beside an array.
fn number(value: f64, like: &Array) -> hesper::Result<Array> {
    Array::scalar(value, like.dtype())
}

/// What a change `t` of input `at` comes to. `None` without a rule.
pub fn rule(node: &Node, t: &Array, at: usize, reverse: bool) -> hesper::Result<Option<Array>> {
    let (x, y) = (node.x(), node.y());
    let one = || number(1.0, x);
    let [a, b] = [x, node.inputs.get(1).unwrap_or(x)];
    let first = at == 0;
    let conjugated = |by: Array| if reverse && complex(&by) { by.conjugate() } else { Ok(by) };
    let times = |by: hesper::Result<Array>| t.multiply(conjugated(by?)?);
    let marks = |mark: hesper::Result<Array>| t.multiply(mark?.astype(t.dtype())?);
    let flag = || matches!(node.primitive.flag(0), Some(true));
    Ok(Some(match node.name() {
        "Abs" if complex(x) => {
            let sign = x.sign()?;
            if reverse { t.multiply(sign)? } else { t.multiply(sign.conjugate()?)?.real()? }
        }
        "Abs" => times(x.sign())?,
        "ArcCos" => times(one()?.subtract(x.square()?)?.rsqrt()?.negative())?,
        "ArcSin" => times(one()?.subtract(x.square()?)?.rsqrt())?,
        "ArcCosh" => times(x.square()?.subtract(one()?)?.rsqrt())?,
        "ArcSinh" => times(x.square()?.add(one()?)?.rsqrt())?,
        "ArcTan" => t.divide(one()?.add(x.square()?)?)?,
        "ArcTanh" => t.divide(one()?.subtract(x.square()?)?)?,
        "Cos" => times(x.sin()?.negative())?,
        "Sin" => times(x.cos())?,
        "Tan" => t.divide(x.cos()?.square()?)?,
        "Cosh" => times(x.sinh())?,
        "Sinh" => times(x.cosh())?,
        "Tanh" => t.divide(x.cosh()?.square()?)?,
        "Exp" => times(Ok(y.clone()))?,
        "Expm1" if reverse => times(y.add(one()?))?,
        "Expm1" => times(x.exp())?,
        "Erf" => {
            let scaled = number(std::f64::consts::FRAC_2_SQRT_PI, x)?.multiply(t)?;
            scaled.multiply(x.square()?.negative()?.exp()?)?
        }
        "ErfInv" => {
            let scaled = number(1.0 / std::f64::consts::FRAC_2_SQRT_PI, x)?.multiply(t)?;
            scaled.multiply(y.square()?.exp()?)?
        }
        "Log" => {
            let quotient = t.divide(x)?;
            match node.primitive.int(0) {
                Some(0) => number(f64::from(1.0 / std::f32::consts::LN_2), x)?.multiply(quotient)?,
                Some(1) => number(f64::from(1.0 / std::f32::consts::LN_10), x)?.multiply(quotient)?,
                _ => quotient,
            }
        }
        "Log1p" => t.divide(one()?.add(x)?)?,
        "Negative" => t.negative()?,
        "Sigmoid" => times(y.multiply(one()?.subtract(y)?))?,
        "Sqrt" if flag() => number(-0.5, x)?.multiply(t)?.multiply(y.divide(x)?)?,
        "Sqrt" => number(0.5, x)?.multiply(t)?.divide(y)?,
        "Square" => x.multiply(number(2.0, x)?.multiply(t)?)?,
        "Conjugate" => t.conjugate()?,
        "AsType" => t.astype(if reverse { x.dtype() } else { y.dtype() })?,
        "Add" => t.clone(),
        "Subtract" if first => t.clone(),
        "Subtract" => t.negative()?,
        "Multiply" => {
            let other = if first { b } else { a };
            if reverse { conjugated(other.clone())?.multiply(t)? } else { t.multiply(other)? }
        }
        "Divide" if first => t.divide(b)?,
        "Divide" => t.multiply(a)?.divide(b.square()?)?.negative()?,
        "Maximum" => marks(if first { a.greater(b) } else { a.less_equal(b) })?,
        "Minimum" => marks(if first { a.less(b) } else { a.greater_equal(b) })?,
        "Power" if first => times(a.power(b.subtract(number(1.0, b)?)?)?.multiply(b))?,
        "Power" => {
            let zero = number(0.0, y)?;
            times(select(&y.astype(Dtype::Bool)?, a.log()?.multiply(y)?, zero))?
        }
        "LogAddExp" => {
            let share = a.subtract(b)?.sigmoid()?;
            times(if first { Ok(share) } else { one()?.subtract(share) })?
        }
        "Remainder" if first => t.clone(),
        "Remainder" => a.divide(b)?.floor()?.multiply(t)?.negative()?,
        "ArcTan2" if reverse => {
            let quotient = t.divide(a.square()?.add(b.square()?)?)?;
            if first { b.multiply(quotient)? } else { a.negative()?.multiply(quotient)? }
        }
        "Select" if first => if reverse { x.zeros_like() } else { y.zeros_like() }?,
        "Select" => {
            let mark = if at == 1 { a.clone() } else { a.logical_not()? };
            mark.astype(t.dtype())?.multiply(t)?
        }
        name if is_flat(name) => if reverse { node.inputs[at].zeros_like() } else { y.zeros_like() }?,
        _ => return Ok(None),
    }))
}

/// Whether the output is places of elements, which nothing is differentiated by.
pub fn is_place(name: &str) -> bool {
    matches!(name, "ArgReduce" | "ArgSort" | "ArgPartition")
}

/// Whether the output does not change with its inputs.
pub fn is_flat(name: &str) -> bool {
    const FLAT: &[&str] = &[
        "Ceil",
        "Floor",
        "Round",
        "Sign",
        "FloorDivide",
        "Equal",
        "NotEqual",
        "Less",
        "LessEqual",
        "Greater",
        "GreaterEqual",
        "LogicalAnd",
        "LogicalOr",
        "LogicalNot",
        "BitwiseBinary",
        "BitwiseInvert",
        "ArgReduce",
        "ArgSort",
        "ArgPartition",
    ];
    FLAT.contains(&name)
}

/// The numbers of a list argument.
pub fn ints(argument: Option<&Argument>) -> &[i64] {
    match argument {
        Some(Argument::Value(hesper::export::Value::Ints(list)) | Argument::Shape(list)) => list,
        _ => &[],
    }
}

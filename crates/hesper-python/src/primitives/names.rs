//! The names of MLX's primitives for ops, and the arguments of element-wise ones.

use hesper::export::Value;

use super::{Argument, int};

/// Element-wise ops and the arguments of their primitives.
pub const ELEMENTWISE: &[(&str, &str, &[Fixed])] = &[
    ("abs", "Abs", &[]),
    ("negative", "Negative", &[]),
    ("sign", "Sign", &[]),
    ("square", "Square", &[]),
    ("sqrt", "Sqrt", &[Fixed::Bool(false)]),
    ("rsqrt", "Sqrt", &[Fixed::Bool(true)]),
    ("exp", "Exp", &[]),
    ("expm1", "Expm1", &[]),
    ("log", "Log", &[Fixed::Int(2)]),
    ("log2", "Log", &[Fixed::Int(0)]),
    ("log10", "Log", &[Fixed::Int(1)]),
    ("log1p", "Log1p", &[]),
    ("sin", "Sin", &[]),
    ("cos", "Cos", &[]),
    ("tan", "Tan", &[]),
    ("sinh", "Sinh", &[]),
    ("cosh", "Cosh", &[]),
    ("tanh", "Tanh", &[]),
    ("arcsin", "ArcSin", &[]),
    ("arccos", "ArcCos", &[]),
    ("arctan", "ArcTan", &[]),
    ("arcsinh", "ArcSinh", &[]),
    ("arccosh", "ArcCosh", &[]),
    ("arctanh", "ArcTanh", &[]),
    ("arctan2", "ArcTan2", &[]),
    ("erf", "Erf", &[]),
    ("erfinv", "ErfInv", &[]),
    ("sigmoid", "Sigmoid", &[]),
    ("floor", "Floor", &[]),
    ("ceil", "Ceil", &[]),
    ("rint", "Round", &[]),
    ("conjugate", "Conjugate", &[]),
    ("real", "Real", &[]),
    ("imag", "Imag", &[]),
    ("add", "Add", &[]),
    ("subtract", "Subtract", &[]),
    ("multiply", "Multiply", &[]),
    ("divide", "Divide", &[]),
    ("floor_divide", "FloorDivide", &[]),
    ("remainder", "Remainder", &[]),
    ("maximum", "Maximum", &[]),
    ("minimum", "Minimum", &[]),
    ("power", "Power", &[]),
    ("logaddexp", "LogAddExp", &[]),
    ("equal", "Equal", &[Fixed::Bool(false)]),
    ("not_equal", "NotEqual", &[]),
    ("less", "Less", &[]),
    ("less_equal", "LessEqual", &[]),
    ("greater", "Greater", &[]),
    ("greater_equal", "GreaterEqual", &[]),
    ("logical_and", "LogicalAnd", &[]),
    ("logical_or", "LogicalOr", &[]),
    ("logical_not", "LogicalNot", &[]),
    ("bitwise_and", "BitwiseBinary", &[Fixed::Int(0)]),
    ("bitwise_or", "BitwiseBinary", &[Fixed::Int(1)]),
    ("bitwise_xor", "BitwiseBinary", &[Fixed::Int(2)]),
    ("left_shift", "BitwiseBinary", &[Fixed::Int(3)]),
    ("right_shift", "BitwiseBinary", &[Fixed::Int(4)]),
    ("bitwise_invert", "BitwiseInvert", &[]),
    ("where", "Select", &[]),
];

/// An argument that is always the same.
#[derive(Clone, Copy)]
pub enum Fixed {
    Bool(bool),
    Int(i64),
}

impl From<Fixed> for Argument {
    fn from(fixed: Fixed) -> Self {
        match fixed {
            Fixed::Bool(value) => Argument::Value(Value::Bool(value)),
            Fixed::Int(value) => int(value),
        }
    }
}

/// The name of the primitive for an op, or the op's name in MLX's spelling.
pub fn name(op: &str) -> String {
    if let Some((_, name, _)) = ELEMENTWISE.iter().find(|(own, ..)| *own == op) {
        return (*name).into();
    }
    match op {
        "astype" => "AsType".into(),
        "broadcast_to" => "Broadcast".into(),
        "sum" | "prod" | "max" | "min" | "all" | "any" => "Reduce".into(),
        "argmax" | "argmin" => "ArgReduce".into(),
        "cumsum" | "cumprod" | "cummax" | "cummin" | "logcumsumexp" => "Scan".into(),
        "addmm" => "AddMM".into(),
        "rms_norm" => "RMSNorm".into(),
        "rope" => "RoPE".into(),
        "attention" => "ScaledDotProductAttention".into(),
        "gather_qmm" => "GatherQMM".into(),
        "segmented_mm" => "SegmentedMM".into(),
        "searchsorted" => "SearchSorted".into(),
        name => name
            .split('_')
            .flat_map(|word| {
                let mut letters = word.chars();
                letters.next().into_iter().flat_map(char::to_uppercase).chain(letters.collect::<Vec<char>>())
            })
            .collect(),
    }
}

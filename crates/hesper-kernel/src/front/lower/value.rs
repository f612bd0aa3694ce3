//! The results of expressions: values, objects, and compile-time constants.
//!
//! An object whose address is not taken lives in IR variables (structs and small arrays part by part) or is a
//! plain value bound to a name; the others live in memory.

use crate::front::ast::DeclId;
use crate::front::types::Ty;
use crate::ir::{Scalar, Space, ValueId, VarId};
use std::cell::RefCell;
use std::rc::Rc;

/// A compile-time number. Integers are kept wrapped to their type, `ulong` as its bits; `bool` is 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ConstValue {
    /// An integer or bool.
    Int(i64),
    /// A float, exactly representable in its type.
    Float(f64),
}

/// How a value is represented.
#[derive(Clone, Debug)]
pub(crate) enum ValueRepr {
    /// No value.
    Void,
    /// A constant scalar, or the components of a constant vector.
    Const(Rc<[ConstValue]>),
    /// An IR value.
    Ir(ValueId),
    /// The fields of a struct or the elements of an array.
    Parts(Rc<Vec<RValue>>),
    /// A lambda; its type says which.
    Lambda,
    /// `nullptr`
    Null,
}

/// A value with its type.
#[derive(Clone, Debug)]
pub(crate) struct RValue {
    pub ty: Ty,
    pub val: ValueRepr,
}

impl RValue {
    pub fn ir(ty: Ty, v: ValueId) -> RValue {
        RValue { ty, val: ValueRepr::Ir(v) }
    }

    pub fn void() -> RValue {
        RValue { ty: Ty::Void, val: ValueRepr::Void }
    }

    /// A constant integer of a scalar type, wrapped into it.
    pub fn int(s: Scalar, v: i64) -> RValue {
        RValue {
            ty: Ty::Scalar(s),
            val: ValueRepr::Const(Rc::new([super::consts::convert(ConstValue::Int(v), Scalar::I64, s)])),
        }
    }

    pub fn bool(v: bool) -> RValue {
        RValue::int(Scalar::Bool, i64::from(v))
    }

    pub fn float(s: Scalar, v: f64) -> RValue {
        RValue {
            ty: Ty::Scalar(s),
            val: ValueRepr::Const(Rc::new([super::consts::convert(ConstValue::Float(v), Scalar::F64, s)])),
        }
    }

    pub fn parts(ty: Ty, parts: Vec<RValue>) -> RValue {
        RValue { ty, val: ValueRepr::Parts(Rc::new(parts)) }
    }

    /// The constant scalar, if it is one.
    pub fn as_const(&self) -> Option<ConstValue> {
        match &self.val {
            ValueRepr::Const(c) if c.len() == 1 => Some(c[0]),
            _ => None,
        }
    }

    /// The constant as an integer.
    pub fn as_int(&self) -> Option<i64> {
        match self.as_const()? {
            ConstValue::Int(v) => Some(v),
            ConstValue::Float(_) => None,
        }
    }

    /// Whether the condition is known.
    pub fn as_bool(&self) -> Option<bool> {
        match self.as_const()? {
            ConstValue::Int(v) => Some(v != 0),
            ConstValue::Float(v) => Some(v != 0.0),
        }
    }

    /// Whether all of it is known at compile time.
    pub fn is_const(&self) -> bool {
        match &self.val {
            ValueRepr::Const(_) | ValueRepr::Void | ValueRepr::Null | ValueRepr::Lambda => true,
            ValueRepr::Ir(_) => false,
            ValueRepr::Parts(p) => p.iter().all(RValue::is_const),
        }
    }
}

/// Where an object lives.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    /// None: the object is a name for a value.
    Value(RValue),
    /// An IR variable.
    Var(VarId),
    /// Each field or element in storage of its own.
    Parts(Rc<Vec<Storage>>),
    /// A variable of a function that runs at compile time.
    Cell(Rc<RefCell<RValue>>),
    /// Memory.
    Mem { ptr: ValueId, space: Space },
    /// Some components of a vector.
    Swizzle { base: Box<LValue>, lanes: Vec<u8> },
    /// One component of a vector, chosen at run time.
    Lane { base: Box<LValue>, index: ValueId },
}

/// An object: its storage and type.
#[derive(Clone, Debug)]
pub(crate) struct LValue {
    pub ty: Ty,
    pub storage: Storage,
    pub is_const: bool,
    /// The variable that the object is (part of), whose storage may have to change.
    pub decl: Option<DeclId>,
}

impl LValue {
    /// A name for a value.
    pub fn value(v: RValue) -> LValue {
        LValue { ty: v.ty.clone(), storage: Storage::Value(v), is_const: false, decl: None }
    }
}

/// The result of an expression.
#[derive(Clone, Debug)]
pub(crate) enum ExprResult {
    Object(LValue),
    Value(RValue),
}

impl ExprResult {
    pub fn ty(&self) -> &Ty {
        match self {
            ExprResult::Object(l) => &l.ty,
            ExprResult::Value(r) => &r.ty,
        }
    }
}

/// The storage that a variable needs; each use may need more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StorageClass {
    /// A name for its initial value.
    Value,
    /// IR variables.
    Var,
    /// Memory: its address is taken.
    Memory,
}

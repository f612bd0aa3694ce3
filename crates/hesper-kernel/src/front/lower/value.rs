//! What an expression gives: values, places, and compile-time constants.
//!
//! A place says where an object lives. Objects that nobody points at live in IR variables (structs and small
//! arrays part by part) or are plain values bound to a name; only what needs an address lives in memory.

use crate::front::ast::DeclId;
use crate::front::types::Ty;
use crate::ir::{Scalar, Space, ValueId, VarId};
use std::cell::RefCell;
use std::rc::Rc;

/// A compile-time number. Integers are kept wrapped to their type, `ulong` as its bits; `bool` is 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cv {
    /// An integer or bool.
    I(i64),
    /// A float, exactly representable in its type.
    F(f64),
}

/// What a value is made of.
#[derive(Clone, Debug)]
pub(crate) enum Val {
    /// No value.
    Void,
    /// A constant scalar, or the components of a constant vector.
    Const(Rc<[Cv]>),
    /// An IR value.
    Ir(ValueId),
    /// The fields of a struct or the elements of an array.
    Parts(Rc<Vec<Rv>>),
    /// A lambda; its type says which.
    Lambda,
    /// `nullptr`
    Null,
}

/// A value with its type.
#[derive(Clone, Debug)]
pub(crate) struct Rv {
    pub ty: Ty,
    pub val: Val,
}

impl Rv {
    pub fn ir(ty: Ty, v: ValueId) -> Rv {
        Rv { ty, val: Val::Ir(v) }
    }

    pub fn void() -> Rv {
        Rv { ty: Ty::Void, val: Val::Void }
    }

    /// A constant integer of a scalar type, wrapped into it.
    pub fn int(s: Scalar, v: i64) -> Rv {
        Rv { ty: Ty::Scalar(s), val: Val::Const(Rc::new([super::consts::convert(Cv::I(v), Scalar::I64, s)])) }
    }

    pub fn bool(v: bool) -> Rv {
        Rv::int(Scalar::Bool, i64::from(v))
    }

    pub fn float(s: Scalar, v: f64) -> Rv {
        Rv { ty: Ty::Scalar(s), val: Val::Const(Rc::new([super::consts::convert(Cv::F(v), Scalar::F64, s)])) }
    }

    pub fn parts(ty: Ty, parts: Vec<Rv>) -> Rv {
        Rv { ty, val: Val::Parts(Rc::new(parts)) }
    }

    /// The constant scalar, if it is one.
    pub fn as_const(&self) -> Option<Cv> {
        match &self.val {
            Val::Const(c) if c.len() == 1 => Some(c[0]),
            _ => None,
        }
    }

    /// The constant as an integer.
    pub fn as_int(&self) -> Option<i64> {
        match self.as_const()? {
            Cv::I(v) => Some(v),
            Cv::F(_) => None,
        }
    }

    /// Whether the condition is known.
    pub fn as_bool(&self) -> Option<bool> {
        match self.as_const()? {
            Cv::I(v) => Some(v != 0),
            Cv::F(v) => Some(v != 0.0),
        }
    }

    /// Whether all of it is known at compile time.
    pub fn is_const(&self) -> bool {
        match &self.val {
            Val::Const(_) | Val::Void | Val::Null | Val::Lambda => true,
            Val::Ir(_) => false,
            Val::Parts(p) => p.iter().all(Rv::is_const),
        }
    }
}

/// Where an object lives.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Nowhere: a name for a value.
    Value(Rv),
    /// An IR variable.
    Var(VarId),
    /// Each field or element in a place of its own.
    Parts(Rc<Vec<Place>>),
    /// A variable of a function that runs at compile time.
    Cell(Rc<RefCell<Rv>>),
    /// Memory.
    Mem { ptr: ValueId, space: Space },
    /// Some components of a vector.
    Swizzle { base: Box<Lv>, lanes: Vec<u8> },
    /// One component of a vector, chosen at run time.
    Lane { base: Box<Lv>, index: ValueId },
}

/// A place with its type.
#[derive(Clone, Debug)]
pub(crate) struct Lv {
    pub ty: Ty,
    pub place: Place,
    pub is_const: bool,
    /// The variable that the place is (part of), whose storage may have to change.
    pub decl: Option<DeclId>,
}

impl Lv {
    /// A name for a value.
    pub fn value(v: Rv) -> Lv {
        Lv { ty: v.ty.clone(), place: Place::Value(v), is_const: false, decl: None }
    }
}

/// An expression's result: an object or a value.
#[derive(Clone, Debug)]
pub(crate) enum Ex {
    L(Lv),
    R(Rv),
}

impl Ex {
    pub fn ty(&self) -> &Ty {
        match self {
            Ex::L(l) => &l.ty,
            Ex::R(r) => &r.ty,
        }
    }
}

/// How a variable must be stored; each use may demand more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Storage {
    /// A name for its initial value.
    Value,
    /// IR variables.
    Var,
    /// Memory, since something points at it.
    Memory,
}

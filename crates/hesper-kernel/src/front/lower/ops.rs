//! Operators on scalars, vectors and pointers.

use super::convert::{common_scalar, promoted};
use super::value::{ConstValue, RValue, ValueRepr};
use super::*;
use crate::ir::{BinaryOp, CmpOp, Op, Scalar, Type, UnaryOp};

impl<'a> Lower<'a> {
    /// `-x`, `+x`, `!x`, `~x`
    pub(super) fn unary_op(&mut self, op: UnOp, v: RValue, span: Span) -> LowerResult<RValue> {
        let Some(s) = v.ty.scalar() else {
            if op == UnOp::Not && matches!(v.ty, Ty::Pointer(_) | Ty::Struct(_)) {
                let b = self.truth(v, span)?;
                return self.unary_op(op, b, span);
            }
            let text = format!("operator `{}` does not work on `{}`", op.text(), self.type_name(&v.ty));
            return fail(ErrorKind::Type, span, text);
        };
        if op == UnOp::Not {
            let v = self.convert_scalar(v, Scalar::Bool);
            return Ok(self.map(v, |c| ConstValue::Int(i64::from(c == ConstValue::Int(0))), UnaryOp::Not));
        }
        let to = if v.ty.is_vector() { s } else { promoted(s) };
        if op == UnOp::BitNot && (s.is_float() || (s == Scalar::Bool && v.ty.is_vector())) {
            let text = format!("operator `~` does not work on `{}`", self.type_name(&v.ty));
            return fail(ErrorKind::Type, span, text);
        }
        let v = self.convert_scalar(v, to);
        Ok(match op {
            UnOp::Neg => self.map(
                v,
                |c| match c {
                    ConstValue::Int(i) => ConstValue::Int(consts::wrap(i.wrapping_neg(), to)),
                    ConstValue::Float(f) => ConstValue::Float(-f),
                },
                UnaryOp::Neg,
            ),
            UnOp::BitNot => self.map(
                v,
                |c| match c {
                    ConstValue::Int(i) => ConstValue::Int(consts::wrap(!i, to)),
                    c => c,
                },
                UnaryOp::Not,
            ),
            _ => v,
        })
    }

    fn map(&mut self, v: RValue, f: impl Fn(ConstValue) -> ConstValue, op: UnaryOp) -> RValue {
        match &v.val {
            ValueRepr::Const(c) => {
                let c: Vec<ConstValue> = c.iter().map(|x| f(*x)).collect();
                RValue { ty: v.ty, val: ValueRepr::Const(c.into()) }
            }
            _ => {
                let id = self.ir(&v);
                let id = self.b.unary(op, id);
                RValue::ir(v.ty, id)
            }
        }
    }

    fn operands_do_not_fit<T>(&self, op: BinOp, a: &Ty, b: &Ty, span: Span) -> LowerResult<T> {
        let (a, b) = (self.type_name(a), self.type_name(b));
        fail(ErrorKind::Type, span, format!("operator `{}` does not work on `{a}` and `{b}`", op.text()))
    }

    /// The type that both operands of an arithmetic operator are brought to.
    pub(super) fn common_type(&self, a: &Ty, b: &Ty) -> Option<Ty> {
        let (s, t) = (a.scalar()?, b.scalar()?);
        Some(match (a.is_vector(), b.is_vector()) {
            (false, false) => Ty::Scalar(common_scalar(s, t)),
            (true, true) => {
                if a.lanes() != b.lanes() || s != t {
                    return None;
                }
                Ty::Vector(s, a.lanes())
            }
            // The scalar takes the type of the components; a float would lose its fraction in integers.
            (true, false) if t.is_float() && !s.is_float() => return None,
            (false, true) if s.is_float() && !t.is_float() => return None,
            (true, false) => Ty::Vector(s, a.lanes()),
            (false, true) => Ty::Vector(t, b.lanes()),
        })
    }

    /// `a op b` for all binary operators but the short-circuit ones.
    pub(super) fn binary_op(&mut self, op: BinOp, a: RValue, b: RValue, span: Span) -> LowerResult<RValue> {
        if matches!(a.ty, Ty::Pointer(_) | Ty::Null) || matches!(b.ty, Ty::Pointer(_) | Ty::Null) {
            return self.pointer_op(op, a, b, span);
        }
        if a.ty == Ty::Error || b.ty == Ty::Error {
            return Err(Fail::Reported);
        }
        if matches!(op, BinOp::Shl | BinOp::Shr) {
            return self.shift(op, a, b, span);
        }
        if matches!(op, BinOp::LogicalAnd | BinOp::LogicalOr) {
            let (a, b) = (self.truth(a, span)?, self.truth(b, span)?);
            return Ok(self.arith(op, Scalar::Bool, a, b));
        }
        let Some(ty) = self.common_type(&a.ty, &b.ty) else {
            return self.operands_do_not_fit(op, &a.ty, &b.ty, span);
        };
        let Some(s) = ty.scalar() else { return Err(Fail::Reported) };
        let int_only = matches!(op, BinOp::Rem | BinOp::And | BinOp::Or | BinOp::Xor);
        if int_only && s.is_float() {
            let d = self.operands_do_not_fit::<()>(op, &a.ty, &b.ty, span);
            let Err(Fail::Diag(d)) = d else { return Err(Fail::Reported) };
            let help = if op == BinOp::Rem { "use `fmod`" } else { "use `as_type` to work on the bits" };
            return Err(Fail::Diag(Box::new(d.help(help))));
        }
        if ty.is_vector() && s == Scalar::Bool && !int_only && !op.is_comparison() {
            return self.operands_do_not_fit(op, &a.ty, &b.ty, span);
        }
        let a = self.convert(a, &ty, false, span)?;
        let b = self.convert(b, &ty, false, span)?;
        if matches!(op, BinOp::Div | BinOp::Rem) && !s.is_float() && b.as_int() == Some(0) {
            self.warn(ErrorKind::Constant, span, "division by zero".into());
        }
        Ok(self.arith(op, s, a, b))
    }

    /// Both operands have the scalar `s` and one shape.
    fn arith(&mut self, op: BinOp, s: Scalar, a: RValue, b: RValue) -> RValue {
        let lanes = a.ty.lanes();
        let result = if op.is_comparison() { Ty::of(Scalar::Bool, lanes) } else { Ty::of(s, lanes) };
        if let (ValueRepr::Const(x), ValueRepr::Const(y)) = (&a.val, &b.val) {
            let folded: Option<Vec<ConstValue>> =
                x.iter().zip(y.iter()).map(|(p, q)| consts::binary(op, *p, *q, s)).collect();
            if let Some(c) = folded {
                return RValue { ty: result, val: ValueRepr::Const(c.into()) };
            }
        }
        if let Some(v) = self.identity(op, &a, &b) {
            return v;
        }
        let (x, y) = (self.ir(&a), self.ir(&b));
        let id = match op {
            BinOp::Add => self.b.binary(BinaryOp::Add, x, y),
            BinOp::Sub => self.b.binary(BinaryOp::Sub, x, y),
            BinOp::Mul => self.b.binary(BinaryOp::Mul, x, y),
            BinOp::Div => self.b.binary(BinaryOp::Div, x, y),
            BinOp::Rem => self.b.binary(BinaryOp::Rem, x, y),
            BinOp::Shl => self.b.binary(BinaryOp::Shl, x, y),
            BinOp::Shr => self.b.binary(BinaryOp::Shr, x, y),
            BinOp::And | BinOp::LogicalAnd => self.b.binary(BinaryOp::And, x, y),
            BinOp::Or | BinOp::LogicalOr => self.b.binary(BinaryOp::Or, x, y),
            BinOp::Xor => self.b.binary(BinaryOp::Xor, x, y),
            BinOp::Eq => self.b.compare(CmpOp::Eq, x, y),
            BinOp::Ne => self.b.compare(CmpOp::Ne, x, y),
            BinOp::Lt => self.b.compare(CmpOp::Lt, x, y),
            BinOp::Le => self.b.compare(CmpOp::Le, x, y),
            BinOp::Gt => self.b.compare(CmpOp::Gt, x, y),
            BinOp::Ge => self.b.compare(CmpOp::Ge, x, y),
        };
        RValue::ir(result, id)
    }

    /// Integer operations with 0 or 1 that change nothing.
    fn identity(&mut self, op: BinOp, a: &RValue, b: &RValue) -> Option<RValue> {
        let (x, y) = (a.as_int(), b.as_int());
        match op {
            BinOp::Add | BinOp::Or | BinOp::Xor if y == Some(0) => Some(a.clone()),
            BinOp::Add | BinOp::Or | BinOp::Xor if x == Some(0) => Some(b.clone()),
            BinOp::Sub | BinOp::Shl | BinOp::Shr if y == Some(0) => Some(a.clone()),
            BinOp::Mul | BinOp::Div if y == Some(1) => Some(a.clone()),
            BinOp::Mul if x == Some(1) => Some(b.clone()),
            BinOp::LogicalAnd if x == Some(1) => Some(b.clone()),
            BinOp::LogicalAnd if y == Some(1) => Some(a.clone()),
            BinOp::LogicalOr if x == Some(0) => Some(b.clone()),
            BinOp::LogicalOr if y == Some(0) => Some(a.clone()),
            _ => None,
        }
    }

    fn shift(&mut self, op: BinOp, a: RValue, b: RValue, span: Span) -> LowerResult<RValue> {
        let (Some(s), Some(t)) = (a.ty.scalar(), b.ty.scalar()) else {
            return self.operands_do_not_fit(op, &a.ty, &b.ty, span);
        };
        let shapes = a.ty.lanes() == b.ty.lanes() || !b.ty.is_vector();
        if s.is_float() || t.is_float() || !shapes {
            return self.operands_do_not_fit(op, &a.ty, &b.ty, span);
        }
        let to = if a.ty.is_vector() { s } else { promoted(s) };
        let a = self.convert_scalar(a, to);
        let b = self.convert_scalar(b, to);
        let b = if b.ty.is_vector() { b } else { self.splat(&b, a.ty.lanes()) };
        Ok(self.arith(op, to, a, b))
    }

    fn pointer_op(&mut self, op: BinOp, a: RValue, b: RValue, span: Span) -> LowerResult<RValue> {
        match (&a.ty, &b.ty) {
            (Ty::Pointer(p), t) if matches!(op, BinOp::Add | BinOp::Sub) && is_index(t) => {
                let p = p.clone();
                self.pointer_offset(&a, &p.pointee, &b, op == BinOp::Sub, span)
            }
            (t, Ty::Pointer(p)) if op == BinOp::Add && is_index(t) => {
                let p = p.clone();
                self.pointer_offset(&b, &p.pointee, &a, false, span)
            }
            (Ty::Pointer(p), Ty::Pointer(q))
                if op == BinOp::Sub && p.pointee == q.pointee && p.space == q.space =>
            {
                let size = self.size_of(&p.pointee, span)?;
                let (x, y) = (self.ir(&a), self.ir(&b));
                let id = self.b.ptr_diff(x, y, size as i64);
                Ok(RValue::ir(Ty::Scalar(Scalar::I64), id))
            }
            (Ty::Pointer(p), Ty::Pointer(q)) if op.is_comparison() && p.space == q.space => {
                Ok(self.compare_pointers(op, &a, &b))
            }
            (Ty::Pointer(_), Ty::Null) if op.is_comparison() => {
                let b = RValue { ty: a.ty.clone(), val: ValueRepr::Null };
                Ok(self.compare_pointers(op, &a, &b))
            }
            (Ty::Null, Ty::Pointer(_)) if op.is_comparison() => {
                let a = RValue { ty: b.ty.clone(), val: ValueRepr::Null };
                Ok(self.compare_pointers(op, &a, &b))
            }
            (Ty::Pointer(_), _) | (_, Ty::Pointer(_))
                if matches!(op, BinOp::LogicalAnd | BinOp::LogicalOr) =>
            {
                let (a, b) = (self.truth(a, span)?, self.truth(b, span)?);
                Ok(self.arith(op, Scalar::Bool, a, b))
            }
            _ => self.operands_do_not_fit(op, &a.ty, &b.ty, span),
        }
    }

    fn compare_pointers(&mut self, op: BinOp, a: &RValue, b: &RValue) -> RValue {
        let op = match op {
            BinOp::Eq => CmpOp::Eq,
            BinOp::Ne => CmpOp::Ne,
            BinOp::Lt => CmpOp::Lt,
            BinOp::Le => CmpOp::Le,
            BinOp::Gt => CmpOp::Gt,
            _ => CmpOp::Ge,
        };
        let (x, y) = (self.ir(a), self.ir(b));
        let id = self.b.push(Op::Compare(op, x, y), Type::BOOL);
        RValue::ir(Ty::BOOL, id)
    }

    /// `p + i` or `p - i`
    pub(super) fn pointer_offset(
        &mut self,
        p: &RValue,
        pointee: &Ty,
        i: &RValue,
        minus: bool,
        span: Span,
    ) -> LowerResult<RValue> {
        if *pointee == Ty::Void {
            return fail(ErrorKind::Type, span, "arithmetic on a `void` pointer; cast it first");
        }
        let size = self.size_of(pointee, span)? as i64;
        let stride = if minus { -size } else { size };
        let ptr = self.ir(p);
        let id = match i.as_int() {
            Some(n) => self.b.ptr_add(ptr, n.wrapping_mul(stride)),
            None => {
                let index = self.index_value(i);
                self.b.ptr_offset(ptr, index, stride)
            }
        };
        Ok(RValue::ir(p.ty.clone(), id))
    }
}

fn is_index(t: &Ty) -> bool {
    matches!(t, Ty::Scalar(s) | Ty::Enum(_, s) if !s.is_float())
}

//! Conversions between types, implicit and explicit.

use super::value::{ConstValue, ExprResult, RValue, ValueRepr};
use super::*;
use crate::front::types::Pointer;
use crate::ir::{CmpOp, Scalar, Space, Type};

/// How well an argument fits a parameter; smaller is better.
pub(crate) type Rank = u32;

impl<'a> Lower<'a> {
    /// How an implicit conversion ranks; none if there is none.
    pub(super) fn rank(&self, from: &Ty, to: &Ty) -> Option<Rank> {
        let from = from.decayed();
        let to = to.decayed();
        if from == to {
            return Some(0);
        }
        match (&from, &to) {
            (Ty::Error, _) | (_, Ty::Error) => Some(0),
            (Ty::Scalar(a), Ty::Scalar(b)) => Some(scalar_rank(*a, *b)),
            (Ty::Enum(_, a), Ty::Scalar(b)) => Some(scalar_rank(*a, *b).max(1)),
            (Ty::Scalar(a), Ty::Vector(b, _)) => Some(10 + scalar_rank(*a, *b)),
            (Ty::Pointer(a), Ty::Pointer(b)) => pointer_rank(a, b),
            (Ty::Array(t, _), Ty::Pointer(b)) => {
                let fits = **t == b.pointee || b.pointee == Ty::Void;
                fits.then_some(0)
            }
            (Ty::Null, Ty::Pointer(_)) => Some(1),
            (Ty::Pointer(_), Ty::Scalar(Scalar::Bool)) => Some(5),
            (Ty::Struct(id), _) => {
                let ops = self.find_methods(*id, "operator T");
                (!ops.is_empty() && to.is_arithmetic()).then_some(20)
            }
            (_, Ty::Struct(id)) => self.has_converting_constructor(*id).then_some(20),
            _ => None,
        }
    }

    fn has_converting_constructor(&self, id: crate::front::types::StructId) -> bool {
        let decl = self.struct_info(id).decl;
        decl.methods.iter().any(|m| m.ret.is_none() && m.name == decl.name && !m.params.is_empty())
    }

    /// Converts a value to a type; `explicit` allows what only a cast may do.
    pub(super) fn convert(&mut self, v: RValue, to: &Ty, explicit: bool, span: Span) -> LowerResult<RValue> {
        let to = to.decayed();
        if v.ty == to {
            return Ok(v);
        }
        match (&v.ty, &to) {
            (Ty::Error, _) | (_, Ty::Error) => return Err(Fail::Reported),
            (_, Ty::Void) if explicit => return Ok(RValue::void()),
            (Ty::Scalar(_) | Ty::Enum(..), Ty::Scalar(s)) => return Ok(self.convert_scalar(v, *s)),
            (Ty::Scalar(_) | Ty::Enum(..), Ty::Enum(_, s)) if explicit => {
                let mut out = self.convert_scalar(v, *s);
                out.ty = to;
                return Ok(out);
            }
            (Ty::Scalar(_), Ty::Vector(s, n)) => {
                let one = self.convert_scalar(v, *s);
                return Ok(self.splat(&one, *n));
            }
            (Ty::Vector(_, n), Ty::Vector(s, m)) if n == m && explicit => {
                return Ok(self.convert_scalar(v, *s));
            }
            (Ty::Null, Ty::Pointer(_)) => return Ok(RValue { ty: to, val: ValueRepr::Null }),
            (Ty::Scalar(_), Ty::Pointer(_)) if v.as_int() == Some(0) => {
                return Ok(RValue { ty: to, val: ValueRepr::Null });
            }
            (Ty::Pointer(a), Ty::Pointer(b)) => {
                let (a, b) = (a.clone(), b.clone());
                return self.convert_pointer(v, &a, &b, explicit, span);
            }
            (Ty::Pointer(_), Ty::Scalar(Scalar::Bool)) => {
                let id = self.ir(&v);
                let Type::Ptr(space) = self.b.ty(id) else { return Err(Fail::Reported) };
                let null = self.b.null(space);
                let ne = self.b.compare(CmpOp::Ne, id, null);
                return Ok(RValue::ir(Ty::BOOL, ne));
            }
            (Ty::Struct(from), _) if to.is_arithmetic() => {
                if let Some(r) = self.conversion_operator(*from, &v, &to, span)? {
                    return self.convert(r, &to, explicit, span);
                }
            }
            (_, Ty::Struct(id)) if self.has_converting_constructor(*id) => {
                return self.construct_struct(*id, vec![ExprResult::Value(v)], span);
            }
            (Ty::Pointer(_), Ty::Scalar(s)) if s.is_int() => {
                return fail(ErrorKind::Unsupported, span, "pointers cannot be converted to integers here");
            }
            _ => {}
        }
        let convertible = v.ty.is_vector() && v.ty.lanes() == to.lanes() && !explicit;
        let (from, to) = (self.type_name(&v.ty), self.type_name(&to));
        let mut d = Diagnostic::error(ErrorKind::Type, span, format!("expected `{to}`, found `{from}`"));
        if convertible {
            d = d.help(format!("vectors convert explicitly: write `{to}(...)`"));
        }
        Err(Fail::Diag(Box::new(d)))
    }

    fn convert_pointer(
        &mut self,
        v: RValue,
        a: &Rc<Pointer>,
        b: &Rc<Pointer>,
        explicit: bool,
        span: Span,
    ) -> LowerResult<RValue> {
        let space = b.space.or(a.space);
        let to = Ty::pointer(b.pointee.clone(), space, b.is_const);
        if a.space.is_some() && b.space.is_some() && a.space != b.space {
            let (from, to) = (self.type_name(&v.ty), self.type_name(&to));
            let text = format!("expected `{to}`, found `{from}`: the address spaces differ");
            let mut d = Diagnostic::error(ErrorKind::Type, span, text);
            if (a.space, b.space) == (Some(Space::Constant), Some(Space::Device)) {
                d = d.help("inputs with fewer than 8 elements are in constant memory; `auto` takes either");
            }
            return Err(Fail::Diag(Box::new(d)));
        }
        if !explicit {
            let same =
                a.pointee == b.pointee || b.pointee == Ty::Void || has_same_storage(&a.pointee, &b.pointee);
            if !same {
                let (from, to) = (self.type_name(&v.ty), self.type_name(&to));
                let d = Diagnostic::error(ErrorKind::Type, span, format!("expected `{to}`, found `{from}`"))
                    .help("pointers to different types convert with a cast");
                return Err(Fail::Diag(Box::new(d)));
            }
            // Constant memory cannot be written, so dropping `const` is harmless there.
            if a.is_const && !b.is_const && space != Some(Space::Constant) {
                let (from, to) = (self.type_name(&v.ty), self.type_name(&to));
                let text = format!("expected `{to}`, found `{from}`: `const` would be lost");
                return fail(ErrorKind::Type, span, text);
            }
        }
        Ok(RValue { ty: to, val: v.val })
    }

    /// Scalars, enumerations and vectors: each component converted by value.
    pub(super) fn convert_scalar(&mut self, v: RValue, s: Scalar) -> RValue {
        let ty = Ty::of(s, v.ty.lanes());
        let Some(from) = v.ty.scalar() else { return v };
        match &v.val {
            ValueRepr::Const(c) => {
                let c: Vec<ConstValue> = c.iter().map(|x| consts::convert(*x, from, s)).collect();
                RValue { ty, val: ValueRepr::Const(c.into()) }
            }
            _ => {
                let id = self.ir(&v);
                let id = self.b.convert(id, s);
                RValue::ir(ty, id)
            }
        }
    }

    pub(super) fn splat(&mut self, v: &RValue, n: u8) -> RValue {
        if n == 1 {
            return v.clone();
        }
        let s = v.ty.scalar().unwrap_or(Scalar::F32);
        match v.as_const() {
            Some(c) => RValue { ty: Ty::of(s, n), val: ValueRepr::Const(vec![c; usize::from(n)].into()) },
            None => {
                let id = self.ir(v);
                let id = self.b.splat(id, n);
                RValue::ir(Ty::of(s, n), id)
            }
        }
    }

    /// A condition: anything that converts to `bool`.
    pub(super) fn truth(&mut self, v: RValue, span: Span) -> LowerResult<RValue> {
        if v.ty.is_vector() {
            let text = format!("a condition must be a scalar, found `{}`", self.type_name(&v.ty));
            let d = Diagnostic::error(ErrorKind::Type, span, text).help("use `all(...)` or `any(...)`");
            return Err(Fail::Diag(Box::new(d)));
        }
        self.convert(v, &Ty::BOOL, false, span)
    }

    /// The bits of a value as another type of the same size.
    pub(super) fn bitcast(&mut self, v: RValue, to: &Ty, span: Span) -> LowerResult<RValue> {
        let to = to.decayed();
        if v.ty == to {
            return Ok(v);
        }
        let (Some(from_ir), Some(to_ir)) = (v.ty.ir(), to.ir()) else {
            let (from, to) = (self.type_name(&v.ty), self.type_name(&to));
            return fail(ErrorKind::Type, span, format!("the bits of `{from}` cannot be read as `{to}`"));
        };
        // A 3-vector has the size of a 4-vector in memory, but only three components to reinterpret.
        if from_ir.is_ptr() || to_ir.is_ptr() || from_ir.size() != to_ir.size() {
            let (from, to) = (self.type_name(&v.ty), self.type_name(&to));
            let text = format!(
                "`{from}` ({} bytes) cannot be read as `{to}` ({} bytes)",
                from_ir.size(),
                to_ir.size()
            );
            return fail(ErrorKind::Type, span, text);
        }
        if let (Some(c), Some(a), Ty::Scalar(b)) = (v.as_const(), v.ty.scalar(), &to) {
            let c = consts::from_bits(consts::bits(c, a), *b);
            return Ok(RValue { ty: to, val: ValueRepr::Const(Rc::new([c])) });
        }
        let id = self.ir(&v);
        let id = self.b.bitcast(id, to_ir);
        Ok(RValue::ir(to, id))
    }
}

/// The type both operands of an arithmetic operator are converted to.
pub(crate) fn common_scalar(a: Scalar, b: Scalar) -> Scalar {
    if a.is_float() || b.is_float() {
        return match (a.is_float(), b.is_float()) {
            (true, false) => a,
            (false, true) => b,
            _ if a == b => a,
            _ => Scalar::F32,
        };
    }
    let (a, b) = (promoted(a), promoted(b));
    if a == b {
        return a;
    }
    match a.size().cmp(&b.size()) {
        std::cmp::Ordering::Less => b,
        std::cmp::Ordering::Greater => a,
        std::cmp::Ordering::Equal => {
            if a.is_unsigned_int() {
                a
            } else {
                b
            }
        }
    }
}

/// Integer promotion: types narrower than `int` become `int`.
pub(crate) fn promoted(s: Scalar) -> Scalar {
    match s {
        Scalar::Bool | Scalar::I8 | Scalar::U8 | Scalar::I16 | Scalar::U16 => Scalar::I32,
        s => s,
    }
}

fn scalar_rank(from: Scalar, to: Scalar) -> Rank {
    if from == to {
        return 0;
    }
    let promotes = (promoted(from) == to && !from.is_float())
        || (matches!(from, Scalar::F16 | Scalar::BF16) && to == Scalar::F32);
    match (promotes, from.is_float() == to.is_float()) {
        (true, _) => 1,
        (_, true) if to != Scalar::Bool => 2,
        _ => 3,
    }
}

fn pointer_rank(a: &Pointer, b: &Pointer) -> Option<Rank> {
    if a.space.is_some() && b.space.is_some() && a.space != b.space {
        return None;
    }
    if a.is_const && !b.is_const && a.space != Some(Space::Constant) {
        return None;
    }
    let cost = u32::from(a.is_const != b.is_const);
    if a.pointee == b.pointee {
        return Some(cost);
    }
    if b.pointee == Ty::Void {
        return Some(4);
    }
    None
}

/// Whether two types have the same storage: an enumeration and its integer.
fn has_same_storage(a: &Ty, b: &Ty) -> bool {
    matches!((a, b), (Ty::Enum(_, s), Ty::Scalar(t)) | (Ty::Scalar(s), Ty::Enum(_, t)) if s == t)
}

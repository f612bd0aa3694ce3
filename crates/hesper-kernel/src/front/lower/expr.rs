//! Expressions.

use super::scope::Entity;
use super::value::{ConstValue, ExprResult, LValue, RValue, Storage, ValueRepr};
use super::*;
use crate::front::lexer::{FloatSuffix, IntSuffix};
use crate::ir::{Scalar, Space};

impl<'a> Lower<'a> {
    /// Lowers an expression to an object or value.
    pub(super) fn expr(&mut self, e: &'a Expr) -> LowerResult<ExprResult> {
        self.enter(e.span)?;
        let r = self.expr_inner(e);
        self.leave();
        r
    }

    /// The value of an expression; arrays become pointers.
    pub(super) fn rvalue(&mut self, e: &'a Expr) -> LowerResult<RValue> {
        let x = self.expr(e)?;
        self.rvalue_of(x, e.span)
    }

    /// The type of an expression that is not evaluated: the operand of `decltype` or `sizeof`.
    pub(super) fn expr_type(&mut self, e: &'a Expr) -> LowerResult<Ty> {
        let mark = self.b.mark();
        let ty = self.expr(e)?.ty().clone();
        self.b.rewind(mark);
        Ok(ty)
    }

    /// A compile-time value.
    pub(super) fn const_value(&mut self, e: &'a Expr) -> LowerResult<RValue> {
        self.const_mode += 1;
        let v = self.rvalue(e);
        self.const_mode -= 1;
        let v = v?;
        if v.is_const() {
            return Ok(v);
        }
        fail(ErrorKind::Constant, e.span, "this must be known at compile time")
    }

    /// A compile-time integer.
    pub(super) fn const_int(&mut self, e: &'a Expr) -> LowerResult<i64> {
        let v = self.const_value(e)?;
        match v.as_int() {
            Some(i) => Ok(i),
            None => {
                let text = format!("expected an integer constant, found `{}`", self.type_name(&v.ty));
                fail(ErrorKind::Constant, e.span, text)
            }
        }
    }

    fn expr_inner(&mut self, e: &'a Expr) -> LowerResult<ExprResult> {
        let span = e.span;
        Ok(match &e.kind {
            ExprKind::Int { value, suffix, decimal } => {
                ExprResult::Value(int_literal(*value, *suffix, *decimal))
            }
            ExprKind::Float(v, suffix) => ExprResult::Value(match suffix {
                FloatSuffix::Float => RValue::float(Scalar::F32, *v),
                FloatSuffix::Half => RValue::float(Scalar::F16, *v),
                FloatSuffix::Bfloat => RValue::float(Scalar::BF16, *v),
            }),
            ExprKind::Bool(v) => ExprResult::Value(RValue::bool(*v)),
            ExprKind::Char(c) => ExprResult::Value(RValue::int(Scalar::I8, i64::from(*c))),
            ExprKind::Str(_) => {
                return fail(ErrorKind::Unsupported, span, "strings are not part of the kernel language");
            }
            ExprKind::NullPtr => ExprResult::Value(RValue { ty: Ty::Null, val: ValueRepr::Null }),
            ExprKind::Name(p) => self.name(p)?,
            ExprKind::This => match self.frames.last().and_then(|f| f.this.clone()) {
                Some(lv) => {
                    // `this->` and `*this` do not get here; any other use takes the address.
                    let (ptr, space) = self.address(&lv, span)?;
                    ExprResult::Value(RValue::ir(Ty::pointer(lv.ty.clone(), Some(space), lv.is_const), ptr))
                }
                None => return fail(ErrorKind::Name, span, "`this` outside of a member function"),
            },
            ExprKind::Unary(op, inner) => self.unary_expr(*op, inner, span)?,
            ExprKind::Binary(op, a, b) => self.binary_expr(*op, a, b, span)?,
            ExprKind::Assign(op, a, b) => self.assign(*op, a, b, span)?,
            ExprKind::Ternary(c, a, b) => self.ternary(c, a, b, span)?,
            ExprKind::Comma(a, b) => {
                self.expr(a)?;
                self.expr(b)?
            }
            ExprKind::Call(f, args) => {
                self.at(span);
                self.call(f, args, span)?
            }
            ExprKind::Index(base, index) => {
                let b = self.expr(base)?;
                if let Ty::Struct(id) = b.ty() {
                    let id = *id;
                    return self.method_call(b, id, "operator[]", None, std::slice::from_ref(&**index), span);
                }
                let i = self.rvalue(index)?;
                self.at(span);
                // `2[p]` is legal C++ for `p[2]`, but almost surely a mistake.
                self.index(b, &i, span)?
            }
            ExprKind::Member { base, arrow, member } => {
                let b = self.member_base(base, *arrow)?;
                self.at(span);
                self.static_or_field(b, &member.name, member.span)?
            }
            ExprKind::TypeMember(t, seg) => {
                let ty = self.resolve_type(t)?.ty;
                let Ty::Struct(id) = ty else {
                    let name = self.type_name(&ty);
                    return fail(ErrorKind::Type, seg.span, format!("`{name}` has no members"));
                };
                self.struct_value(id, seg)?
            }
            ExprKind::Cast(kind, ty, inner) => self.cast(*kind, ty, inner, span)?,
            ExprKind::Construct { ty, args, braces } => {
                let ty = self.constructed_type(ty)?;
                ExprResult::Value(self.construct(&ty, args, *braces, span)?)
            }
            ExprKind::InitList(_) => {
                return fail(ErrorKind::Type, span, "an initialiser list needs a type here: write `T{...}`");
            }
            ExprKind::SizeofType(t) => {
                let ty = self.resolve_type(t)?.ty;
                ExprResult::Value(RValue::int(Scalar::U64, self.size_of(&ty, t.span)? as i64))
            }
            ExprKind::AlignofType(t) => {
                let ty = self.resolve_type(t)?.ty;
                ExprResult::Value(RValue::int(Scalar::U64, i64::from(self.align_of(&ty))))
            }
            ExprKind::SizeofExpr(inner) => {
                let ty = self.expr_type(inner)?;
                ExprResult::Value(RValue::int(Scalar::U64, self.size_of(&ty, inner.span)? as i64))
            }
            ExprKind::Lambda(l) => {
                let this = self.frames.last().and_then(|f| f.this.clone());
                let mut scope = self.scope.clone();
                if !l.by_value.is_empty() || l.all_by_value {
                    scope = self.capture(l, span)?;
                }
                let Some(frame) = self.frames.last() else {
                    return fail(ErrorKind::Unsupported, span, "a lambda outside of a function");
                };
                let assigned = frame.assigned;
                self.lambdas.push(LambdaInfo { lambda: l, scope, this, assigned });
                let id = self.lambdas.len() as u32 - 1;
                ExprResult::Value(RValue { ty: Ty::Lambda(id), val: ValueRepr::Lambda })
            }
        })
    }

    /// Copies what a lambda captures by value.
    fn capture(&mut self, l: &'a Lambda, span: Span) -> LowerResult<Rc<Scope<'a>>> {
        let scope = Scope::new(Some(self.scope.clone()));
        let names: Vec<Name> = if l.all_by_value { self.scope.visible() } else { l.by_value.clone() };
        for name in names {
            let Some((Entity::Object(lv), _)) = self.scope.lookup(&name) else { continue };
            // Arrays and memory are not copied: the copy would differ only if they change before the call.
            if matches!(lv.storage, Storage::Var(_)) {
                let v = self.load(&lv, span)?;
                let mut copy = LValue::value(v);
                copy.is_const = true;
                scope.insert(&name, Entity::Object(copy));
            }
        }
        Ok(scope)
    }

    fn constructed_type(&mut self, t: &'a TypeSyntax) -> LowerResult<Ty> {
        let r = self.resolve_type(t)?;
        if r.auto {
            return fail(ErrorKind::Type, t.span, "`auto` cannot be constructed");
        }
        Ok(r.ty)
    }

    // ---- names ----

    /// The object before `.` or `->`.
    pub(super) fn member_base(&mut self, base: &'a Expr, arrow: bool) -> LowerResult<ExprResult> {
        if arrow && matches!(base.kind, ExprKind::This) {
            return match self.frames.last().and_then(|f| f.this.clone()) {
                Some(lv) => Ok(ExprResult::Object(lv)),
                None => fail(ErrorKind::Name, base.span, "`this` outside of a member function"),
            };
        }
        let b = self.expr(base)?;
        if !arrow {
            return Ok(b);
        }
        if !matches!(b.ty(), Ty::Pointer(_) | Ty::Array(..)) {
            let text = format!("`->` needs a pointer, found `{}`", self.type_name(b.ty()));
            let d = Diagnostic::error(ErrorKind::Type, base.span, text).help("use `.`");
            return Err(Fail::Diag(Box::new(d)));
        }
        let ptr = self.rvalue_of(b, base.span)?;
        self.deref(&ptr, base.span)
    }

    fn static_or_field(&mut self, base: ExprResult, name: &Name, span: Span) -> LowerResult<ExprResult> {
        if let Ty::Struct(id) = base.ty() {
            let scope = self.struct_info(*id).scope.clone();
            if let Some(Entity::Static(sid, i)) = scope.local(name) {
                return Ok(ExprResult::Object(self.static_member(sid, i, span)?));
            }
        }
        self.member(base, name, span)
    }

    fn unary_expr(&mut self, op: UnOp, inner: &'a Expr, span: Span) -> LowerResult<ExprResult> {
        match op {
            UnOp::Deref if matches!(inner.kind, ExprKind::This) => self.member_base(inner, true),
            UnOp::Deref => {
                let x = self.expr(inner)?;
                if let Ty::Struct(id) = x.ty() {
                    let id = *id;
                    return self.method_call(x, id, "operator*", None, &[], span);
                }
                let p = self.rvalue_of(x, inner.span)?;
                self.at(span);
                self.deref(&p, span)
            }
            UnOp::AddressOf => {
                let x = self.expr(inner)?;
                let ExprResult::Object(lv) = x else {
                    return fail(ErrorKind::Type, span, "the address of a value cannot be taken");
                };
                self.at(span);
                let (ptr, space) = self.address(&lv, span)?;
                let is_const = lv.is_const || space == Space::Constant;
                Ok(ExprResult::Value(RValue::ir(Ty::pointer(lv.ty.clone(), Some(space), is_const), ptr)))
            }
            UnOp::PreInc | UnOp::PreDec | UnOp::PostInc | UnOp::PostDec => self.step(op, inner, span),
            _ => {
                let x = self.expr(inner)?;
                if let Ty::Struct(id) = x.ty() {
                    let (id, name) = (*id, format!("operator{}", op.text()));
                    if !self.find_methods(id, &name).is_empty() {
                        return self.method_call(x, id, &name, None, &[], span);
                    }
                    if let Some(r) = self.operator_call(&name, vec![x.clone()], span)? {
                        return Ok(r);
                    }
                }
                let v = self.rvalue_of(x, inner.span)?;
                self.at(span);
                Ok(ExprResult::Value(self.unary_op(op, v, span)?))
            }
        }
    }

    fn step(&mut self, op: UnOp, inner: &'a Expr, span: Span) -> LowerResult<ExprResult> {
        let x = self.expr(inner)?;
        let ExprResult::Object(lv) = x else {
            return fail(ErrorKind::Type, span, format!("`{}` needs a variable", op.text()));
        };
        self.at(span);
        let old = self.load(&lv, inner.span)?;
        let binop = if matches!(op, UnOp::PreInc | UnOp::PostInc) { BinOp::Add } else { BinOp::Sub };
        let one = RValue::int(Scalar::I32, 1);
        let new = self.binary_op(binop, old.clone(), one, span)?;
        let new = self.convert(new, &lv.ty, true, span)?;
        self.store(&lv, &new, span)?;
        Ok(match op {
            UnOp::PreInc | UnOp::PreDec => ExprResult::Object(lv),
            _ => ExprResult::Value(old),
        })
    }

    fn binary_expr(&mut self, op: BinOp, a: &'a Expr, b: &'a Expr, span: Span) -> LowerResult<ExprResult> {
        if matches!(op, BinOp::LogicalAnd | BinOp::LogicalOr) {
            return Ok(ExprResult::Value(self.short_circuit(op, a, b, span)?));
        }
        let x = self.expr(a)?;
        // A value read from a variable must not change when the right side assigns it.
        let x = match x {
            ExprResult::Object(ref lv) if !matches!(lv.ty, Ty::Struct(_) | Ty::Array(..)) => {
                ExprResult::Value(self.load(lv, a.span)?)
            }
            x => x,
        };
        let y = self.expr(b)?;
        self.at(span);
        self.binary_values(op, x, y, span)
    }

    /// An operator on evaluated operands, overloaded ones included.
    pub(super) fn binary_values(
        &mut self,
        op: BinOp,
        x: ExprResult,
        y: ExprResult,
        span: Span,
    ) -> LowerResult<ExprResult> {
        if matches!(x.ty(), Ty::Struct(_)) || matches!(y.ty(), Ty::Struct(_)) {
            let name = format!("operator{}", op.text());
            if let Some(r) = self.operator_call(&name, vec![x.clone(), y.clone()], span)? {
                return Ok(r);
            }
        }
        let (mut x, mut y) = (self.rvalue_of(x, span)?, self.rvalue_of(y, span)?);
        for v in [&mut x, &mut y] {
            if let Ty::Struct(id) = v.ty
                && let Some(converted) = self.conversion_operator(id, &v.clone(), &Ty::FLOAT, span)?
            {
                *v = converted;
            }
        }
        Ok(ExprResult::Value(self.binary_op(op, x, y, span)?))
    }

    fn short_circuit(&mut self, op: BinOp, a: &'a Expr, b: &'a Expr, span: Span) -> LowerResult<RValue> {
        let x = self.rvalue(a)?;
        if x.ty.is_vector() {
            let text = format!("operator `{}` does not work on `{}`", op.text(), self.type_name(&x.ty));
            return fail(ErrorKind::Type, span, text);
        }
        let x = self.truth(x, a.span)?;
        let is_and = op == BinOp::LogicalAnd;
        match x.as_bool() {
            Some(known) if known != is_and => return Ok(RValue::bool(known)),
            Some(_) => {
                let y = self.rvalue(b)?;
                return self.truth(y, b.span);
            }
            None => {}
        }
        if self.is_cheap(b, &mut 12) {
            let y = self.rvalue(b)?;
            let y = self.truth(y, b.span)?;
            self.at(span);
            return self.binary_op(op, x, y, span);
        }
        self.at(span);
        let cond = self.ir(&x);
        let var = self.b.var_init(if is_and { "and" } else { "or" }, cond);
        let test = if is_and { cond } else { self.b.unary(crate::ir::UnaryOp::Not, cond) };
        self.begin_if(test);
        let y = self.rvalue(b).and_then(|y| self.truth(y, b.span));
        if let Ok(y) = &y {
            let id = self.ir(y);
            self.b.set(var, id);
        }
        self.end_if();
        y?;
        let id = self.b.get(var);
        Ok(RValue::ir(Ty::BOOL, id))
    }

    fn ternary(&mut self, c: &'a Expr, a: &'a Expr, b: &'a Expr, span: Span) -> LowerResult<ExprResult> {
        let cond = self.rvalue(c)?;
        if cond.ty.is_vector() {
            let (x, y) = (self.rvalue(a)?, self.rvalue(b)?);
            let Some(ty) = self.common_type(&x.ty, &y.ty).filter(|t| t.lanes() == cond.ty.lanes()) else {
                return fail(
                    ErrorKind::Type,
                    span,
                    "the branches of a vector choice must be vectors of its length",
                );
            };
            let (x, y) = (self.convert(x, &ty, false, span)?, self.convert(y, &ty, false, span)?);
            let cond = self.convert_scalar(cond, Scalar::Bool);
            let (c, x, y) = (self.ir(&cond), self.ir(&x), self.ir(&y));
            let id = self.b.select(c, x, y);
            return Ok(ExprResult::Value(RValue::ir(ty, id)));
        }
        let cond = self.truth(cond, c.span)?;
        if let Some(known) = cond.as_bool() {
            return self.known_choice(known, a, b, span);
        }
        if self.is_cheap(a, &mut 12) && self.is_cheap(b, &mut 12) {
            let (x, y) = (self.rvalue(a)?, self.rvalue(b)?);
            let ty = self.choice_type(&x.ty, &y.ty, span)?;
            if ty.ir().is_some() {
                let (x, y) = (self.convert(x, &ty, false, a.span)?, self.convert(y, &ty, false, b.span)?);
                self.at(span);
                let (c, x, y) = (self.ir(&cond), self.ir(&x), self.ir(&y));
                let id = self.b.select(c, x, y);
                return Ok(ExprResult::Value(RValue::ir(ty, id)));
            }
        }
        self.at(span);
        let test = self.ir(&cond);
        // Both branches are lowered before the type of the result is known: each into a variable of its own
        // type.
        self.begin_if(test);
        let x = self.rvalue(a);
        let px = x.and_then(|x| {
            let storage = self.temporary(&x.ty, "choice", span)?;
            self.store_init(&storage, &x, a.span)?;
            Ok(storage)
        });
        self.begin_else();
        let y = self.rvalue(b);
        let py = y.and_then(|y| {
            let storage = match &px {
                Ok(p) if p.ty == y.ty => p.clone(),
                _ => self.temporary(&y.ty, "choice", span)?,
            };
            self.store_init(&storage, &y, b.span)?;
            Ok(storage)
        });
        self.end_if();
        let (px, py) = (px?, py?);
        if px.ty == py.ty {
            return Ok(ExprResult::Value(self.load(&px, span)?));
        }
        let ty = self.choice_type(&px.ty, &py.ty, span)?;
        if ty.ir().is_none() {
            return fail(ErrorKind::Type, span, "the branches of `?:` have different types");
        }
        let (x, y) = (self.load(&px, span)?, self.load(&py, span)?);
        let (x, y) = (self.convert(x, &ty, false, a.span)?, self.convert(y, &ty, false, b.span)?);
        let (c, x, y) = (self.ir(&cond), self.ir(&x), self.ir(&y));
        let id = self.b.select(c, x, y);
        Ok(ExprResult::Value(RValue::ir(ty, id)))
    }

    /// A choice known at compile time: only the chosen branch is lowered, in the common type if it is a
    /// number.
    fn known_choice(&mut self, known: bool, a: &'a Expr, b: &'a Expr, span: Span) -> LowerResult<ExprResult> {
        let (taken, other) = if known { (a, b) } else { (b, a) };
        let x = self.expr(taken)?;
        let literal = match &other.kind {
            ExprKind::Int { value, suffix, decimal } => Some(int_literal(*value, *suffix, *decimal).ty),
            ExprKind::Float(..) => Some(Ty::FLOAT),
            ExprKind::Construct { ty, .. } | ExprKind::Cast(_, ty, _) => {
                self.resolve_type(ty).ok().map(|r| r.ty)
            }
            _ => None,
        };
        match literal {
            Some(t) if t.is_arithmetic() && x.ty().is_arithmetic() => {
                let v = self.rvalue_of(x, span)?;
                let ty = self.choice_type(&v.ty, &t, span)?;
                Ok(ExprResult::Value(self.convert(v, &ty, false, span)?))
            }
            _ => Ok(x),
        }
    }

    fn choice_type(&mut self, a: &Ty, b: &Ty, span: Span) -> LowerResult<Ty> {
        let (a, b) = (a.decayed(), b.decayed());
        if a == b {
            return Ok(a);
        }
        if let (Ty::Pointer(p), Ty::Pointer(q)) = (&a, &b)
            && p.pointee == q.pointee
            && p.space == q.space
        {
            return Ok(Ty::pointer(p.pointee.clone(), p.space, p.is_const || q.is_const));
        }
        match (&a, &b) {
            (Ty::Pointer(_), Ty::Null) => return Ok(a),
            (Ty::Null, Ty::Pointer(_)) => return Ok(b),
            _ => {}
        }
        if let Some(t) = self.common_type(&a, &b) {
            return Ok(t);
        }
        if self.rank(&b, &a).is_some() {
            return Ok(a);
        }
        if self.rank(&a, &b).is_some() {
            return Ok(b);
        }
        let (a, b) = (self.type_name(&a), self.type_name(&b));
        fail(ErrorKind::Type, span, format!("the branches of `?:` have types `{a}` and `{b}`"))
    }

    /// Whether an expression has no effects, reads no memory, and costs little: it may run unconditionally.
    fn is_cheap(&self, e: &'a Expr, budget: &mut u32) -> bool {
        if *budget == 0 {
            return false;
        }
        *budget -= 1;
        match &e.kind {
            ExprKind::Int { .. } | ExprKind::Float(..) | ExprKind::Bool(_) | ExprKind::Char(_) => true,
            ExprKind::Name(p) if p.segments.len() == 1 => match self.scope.lookup(&p.segments[0].name) {
                Some((Entity::Object(lv), _)) => {
                    !matches!(lv.ty, Ty::Struct(_) | Ty::Array(..))
                        && matches!(lv.storage, Storage::Value(_) | Storage::Var(_))
                }
                Some(_) => false,
                None => builtins::CONSTANTS.iter().any(|(n, _)| **n == *p.segments[0].name),
            },
            ExprKind::Name(p) => p.segments.iter().any(|s| &*s.name == "Limits"),
            ExprKind::Member { base, arrow: false, .. } => self.is_cheap_vector(base, budget),
            ExprKind::Unary(UnOp::Neg | UnOp::Plus | UnOp::Not | UnOp::BitNot, a) => self.is_cheap(a, budget),
            ExprKind::Binary(op, a, b) => {
                // A division by zero is an error in checked mode, so it may not be speculated.
                !matches!(op, BinOp::Div | BinOp::Rem) && self.is_cheap(a, budget) && self.is_cheap(b, budget)
            }
            ExprKind::Cast(CastKind::C | CastKind::Static | CastKind::Bits, _, a) => self.is_cheap(a, budget),
            ExprKind::Construct { args, .. } => args.len() == 1 && self.is_cheap(&args[0], budget),
            ExprKind::Call(f, args) => {
                let ExprKind::Name(p) = &f.kind else { return false };
                let name = &p.last().name;
                builtins::is_cheap(name)
                    && !self.globals.functions.contains_key(name)
                    && args.iter().all(|a| self.is_cheap(a, budget))
            }
            _ => false,
        }
    }

    fn is_cheap_vector(&self, e: &'a Expr, budget: &mut u32) -> bool {
        matches!(&e.kind, ExprKind::Name(p) if p.segments.len() == 1
            && matches!(self.scope.lookup(&p.segments[0].name), Some((Entity::Object(lv), _)) if lv.ty.is_vector()))
            && self.is_cheap(e, budget)
    }

    // ---- assignment ----

    fn assign(&mut self, op: Option<BinOp>, a: &'a Expr, b: &'a Expr, span: Span) -> LowerResult<ExprResult> {
        let target = self.expr(a)?;
        if let Ty::Struct(id) = target.ty() {
            let id = *id;
            let name = op.map_or("operator=".to_string(), |o| format!("operator{}=", o.text()));
            if !self.find_methods(id, &name).is_empty() && !matches!(b.kind, ExprKind::InitList(_)) {
                return self.method_call(target, id, &name, None, std::slice::from_ref(b), span);
            }
        }
        let ExprResult::Object(lv) = target else {
            return fail(ErrorKind::Type, a.span, "the left side of an assignment must be a variable");
        };
        if matches!(lv.ty, Ty::Array(..)) && op.is_none() && !matches!(b.kind, ExprKind::InitList(_)) {
            // `metal::array` assigns element by element.
            let x = self.expr(b)?;
            if *x.ty() == lv.ty {
                let v = match x {
                    ExprResult::Object(o) => self.load(&o, b.span)?,
                    ExprResult::Value(v) => v,
                };
                self.store(&lv, &v, span)?;
                return Ok(ExprResult::Object(lv));
            }
            return fail(ErrorKind::Type, span, "arrays cannot be assigned");
        }
        let new = match op {
            None => {
                let v = self.init_value(&lv.ty, b)?;
                self.at(span);
                v
            }
            Some(op) => {
                // The right side first: it may assign the variable itself.
                let rhs = self.expr(b)?;
                let rhs = match rhs {
                    ExprResult::Object(ref o) if !matches!(o.ty, Ty::Struct(_) | Ty::Array(..)) => {
                        ExprResult::Value(self.load(o, b.span)?)
                    }
                    x => x,
                };
                self.at(span);
                let result = if matches!(lv.ty, Ty::Struct(_)) {
                    self.binary_values(op, ExprResult::Object(lv.clone()), rhs, span)?
                } else {
                    let old = self.load(&lv, a.span)?;
                    self.binary_values(op, ExprResult::Value(old), rhs, span)?
                };
                let v = self.rvalue_of(result, span)?;
                self.convert(v, &lv.ty, false, span)?
            }
        };
        self.store(&lv, &new, span)?;
        Ok(ExprResult::Object(lv))
    }

    // ---- casts ----

    fn cast(
        &mut self,
        kind: CastKind,
        t: &'a TypeSyntax,
        inner: &'a Expr,
        span: Span,
    ) -> LowerResult<ExprResult> {
        let to = self.resolve_type(t)?;
        if matches!(inner.kind, ExprKind::InitList(_)) {
            return Ok(ExprResult::Value(self.init_value(&to.ty, inner)?));
        }
        let x = self.expr(inner)?;
        if to.is_ref {
            // `reinterpret_cast<device T&>(x)` names the same memory as another type.
            let ExprResult::Object(lv) = x else {
                return fail(ErrorKind::Type, span, "a cast to a reference needs an object");
            };
            if lv.ty == to.ty {
                return Ok(ExprResult::Object(lv));
            }
            let (ptr, space) = self.address(&lv, span)?;
            let is_const = to.is_const || space == Space::Constant;
            return Ok(ExprResult::Object(LValue {
                ty: to.ty,
                storage: Storage::Mem { ptr, space },
                is_const,
                decl: None,
            }));
        }
        if let (ExprResult::Object(lv), Ty::Struct(_)) = (&x, &to.ty)
            && lv.ty == to.ty
        {
            return Ok(x);
        }
        let v = self.rvalue_of(x, inner.span)?;
        self.at(span);
        if kind == CastKind::Bits {
            return Ok(ExprResult::Value(self.bitcast(v, &to.ty, span)?));
        }
        if kind == CastKind::Reinterpret && !matches!(to.ty, Ty::Pointer(_)) {
            let text = "`reinterpret_cast` converts pointers only; use `as_type` for the bits of a value";
            return fail(ErrorKind::Type, span, text);
        }
        if let (CastKind::Static, Ty::Pointer(p), Ty::Pointer(q)) = (kind, &v.ty, &to.ty) {
            let related = p.pointee == q.pointee || p.pointee == Ty::Void || q.pointee == Ty::Void;
            if !related {
                let (from, to) = (self.type_name(&v.ty), self.type_name(&to.ty));
                let d = Diagnostic::error(
                    ErrorKind::Type,
                    span,
                    format!("`static_cast` from `{from}` to `{to}`"),
                )
                .help("use `reinterpret_cast` or a C cast");
                return Err(Fail::Diag(Box::new(d)));
            }
        }
        if let (Ty::Pointer(p), Ty::Pointer(q)) = (&to.ty, &v.ty) {
            // A cast without a space keeps that of the pointer.
            let space = p.space.or(q.space);
            let ty = Ty::pointer(p.pointee.clone(), space, p.is_const);
            return Ok(ExprResult::Value(self.convert(v, &ty, true, span)?));
        }
        Ok(ExprResult::Value(self.convert(v, &to.ty, true, span)?))
    }
}

fn int_literal(value: u64, suffix: IntSuffix, decimal: bool) -> RValue {
    let s = match (suffix.unsigned, suffix.long) {
        (true, true) => Scalar::U64,
        (true, false) if value > u64::from(u32::MAX) => Scalar::U64,
        (true, false) => Scalar::U32,
        (false, long) => {
            if value <= i32::MAX as u64 && !long {
                Scalar::I32
            } else if value <= u64::from(u32::MAX) && !long && !decimal {
                Scalar::U32
            } else if value <= i64::MAX as u64 {
                Scalar::I64
            } else {
                Scalar::U64
            }
        }
    };
    RValue {
        ty: Ty::Scalar(s),
        val: ValueRepr::Const(Rc::new([ConstValue::Int(consts::wrap(value as i64, s))])),
    }
}

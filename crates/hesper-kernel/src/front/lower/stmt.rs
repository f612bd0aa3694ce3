//! Statements.

use super::scope::Entity;
use super::types::Resolved;
use super::value::{ExprResult, LValue, RValue, Storage};
use super::*;
use crate::ir::Space;

/// The most elements of an array whose constructors run; those of larger arrays do not.
const MAX_CONSTRUCTED: u64 = 256;

impl<'a> Lower<'a> {
    /// Lowers a statement. An error is reported, and the walk continues after the statement.
    pub(super) fn stmt(&mut self, s: &'a Stmt) {
        let saved = (self.scope.clone(), self.frames.len(), self.open_loops.len(), self.regions, self.depth);
        if let Err(f) = self.enter(s.span).and_then(|()| self.try_stmt(s)) {
            self.report(f);
            self.frames.truncate(saved.1);
            self.open_loops.truncate(saved.2);
            (self.scope, self.regions) = (saved.0, saved.3);
            if let StmtKind::Vars(vars) = &s.kind {
                // Suppress errors at later uses of the failed variables.
                for v in vars {
                    if self.scope.local(&v.name).is_none() {
                        let v_error = RValue { ty: Ty::Error, val: value::ValueRepr::Void };
                        self.scope.insert(&v.name, Entity::Object(LValue::value(v_error)));
                    }
                }
            }
        }
        self.depth = saved.4;
    }

    pub(super) fn try_stmt(&mut self, s: &'a Stmt) -> LowerResult<()> {
        match &s.kind {
            StmtKind::Expr(e) => {
                let x = self.expr(e)?;
                let unused = matches!(e.kind, ExprKind::Binary(BinOp::Eq, ..)) && *x.ty() != Ty::Void;
                if unused {
                    self.warn(ErrorKind::Type, e.span, "the result of this comparison is not used".into());
                }
                Ok(())
            }
            StmtKind::Vars(vars) => {
                for v in vars {
                    self.var(v)?;
                }
                Ok(())
            }
            StmtKind::Block(b) => {
                self.scoped(|l| l.stmts(&b.stmts));
                Ok(())
            }
            StmtKind::If { .. } => {
                self.stmt_with_rest(s, &[]);
                Ok(())
            }
            StmtKind::For { init, cond, step, body, unroll } => {
                let saved = self.scope.clone();
                self.scope = Scope::new(Some(saved.clone()));
                let r = self.for_stmt(init.as_deref(), cond.as_ref(), step.as_ref(), body, *unroll, s.span);
                self.scope = saved;
                r
            }
            StmtKind::ForEach(v, range, body) => {
                let saved = self.scope.clone();
                self.scope = Scope::new(Some(saved.clone()));
                let r = self.for_each(v, range, body, s.span);
                self.scope = saved;
                r
            }
            StmtKind::While(cond, body) => self.while_stmt(cond, body, s.span),
            StmtKind::DoWhile(body, cond) => self.do_while(body, cond, s.span),
            StmtKind::Switch(value, body) => self.switch(value, body, s.span),
            StmtKind::Case(_) | StmtKind::Default => {
                fail(ErrorKind::Syntax, s.span, "a `case` label outside of a `switch`")
            }
            StmtKind::Break => self.jump(true, s.span),
            StmtKind::Continue => self.jump(false, s.span),
            StmtKind::Return(value) => self.return_stmt(value.as_ref(), s.span),
            StmtKind::Alias(a) => {
                self.scope.insert(&a.name, Entity::Alias(a));
                // Report a wrong alias at its declaration.
                self.resolve_type(&a.ty).map(|r| {
                    self.scope.insert(&a.name, alias_entity(a, r));
                })
            }
            StmtKind::Struct(d) => {
                self.scope.insert(&d.name, Entity::Struct(d));
                Ok(())
            }
            StmtKind::Enum(e) => self.enum_decl(1_000_000 + e.span.lo, e),
            StmtKind::StaticAssert(e, text) => self.static_assert(e, text.as_deref(), s.span),
            StmtKind::Empty => Ok(()),
        }
    }

    pub(super) fn static_assert(&mut self, e: &'a Expr, text: Option<&str>, span: Span) -> LowerResult<()> {
        let v = self.const_value(e)?;
        if self.truth(v, e.span)?.as_bool() == Some(false) {
            let text = text.map_or_else(
                || "static assertion failed".into(),
                |t| format!("static assertion failed: {t}"),
            );
            return fail(ErrorKind::Constant, span, text);
        }
        Ok(())
    }

    // ---- variables ----

    fn var(&mut self, v: &'a VarDecl) -> LowerResult<()> {
        let mut t = self.resolve_type(&v.ty)?;
        self.at(v.span);
        if t.ty == Ty::Void && !t.auto {
            return fail(ErrorKind::Type, v.span, format!("variable `{}` has type `void`", v.name));
        }
        if t.unsized_array {
            match &v.init {
                Some(init) => t.ty = self.sized_by(&t.ty, init, v.span)?,
                None => return fail(ErrorKind::Type, v.span, "the extent of this array is unknown"),
            }
        }
        if t.space == Some(Space::Threadgroup) && !t.is_ref {
            if v.init.is_some() {
                let text =
                    "threadgroup variables cannot be initialised; let one thread write them, then wait";
                return fail(ErrorKind::Type, v.span, text);
            }
            let lv = self.threadgroup_local(&v.name, v.id, &t.ty, v.span)?;
            return self.declare(&v.name, lv, v.span);
        }
        if t.space == Some(Space::Device) && !t.is_ref {
            return fail(
                ErrorKind::Type,
                v.span,
                "a local variable cannot live in the `device` address space",
            );
        }
        if t.is_ref {
            let lv = self.reference(v, &t)?;
            return self.declare(&v.name, lv, v.span);
        }
        let is_const = t.is_const || v.constexpr || t.space == Some(Space::Constant);
        let known = v.constexpr || t.space == Some(Space::Constant);
        self.const_mode += usize::from(known);
        let init = self.var_init(v, &t);
        self.const_mode -= usize::from(known);
        let init = init?;
        let ty = init.as_ref().map_or(t.ty.clone(), |i| i.ty.clone());
        if (v.constexpr || t.space == Some(Space::Constant)) && !init.as_ref().is_some_and(RValue::is_const) {
            return fail(
                ErrorKind::Constant,
                v.span,
                format!("the value of `{}` must be known at compile time", v.name),
            );
        }
        self.at(v.span);
        let mut lv = self.make_local(&v.name, v.id, &ty, is_const, init, v.span)?;
        if t.space == Some(Space::Constant) {
            // Like a global constant: its address is that of a table.
            lv.decl = None;
        }
        self.declare(&v.name, lv, v.span)
    }

    /// Whether an object of a type has a value without an initialiser.
    fn is_constructed(&self, ty: &Ty) -> bool {
        let Ty::Struct(id) = ty else { return false };
        let info = self.struct_info(*id);
        info.decl.methods.iter().any(|m| m.ret.is_none() && m.name == info.decl.name)
            || info.fields.iter().any(|f| f.init.is_some())
    }

    fn var_init(&mut self, v: &'a VarDecl, t: &Resolved) -> LowerResult<Option<RValue>> {
        let Some(init) = &v.init else {
            if t.auto {
                return fail(ErrorKind::Type, v.span, format!("`auto {}` needs an initial value", v.name));
            }
            if t.is_const && !matches!(t.ty, Ty::Struct(_)) {
                return fail(
                    ErrorKind::Type,
                    v.span,
                    format!("the constant `{}` needs an initial value", v.name),
                );
            }
            return match &t.ty {
                Ty::Array(element, n) if self.is_constructed(element) && *n <= MAX_CONSTRUCTED => {
                    let one = self.default_value(element, v.span)?;
                    Ok(Some(RValue::parts(t.ty.clone(), vec![one; *n as usize])))
                }
                ty if self.is_constructed(ty) => self.default_value(ty, v.span).map(Some),
                _ => Ok(None),
            };
        };
        if t.auto {
            return match init {
                Init::Assign(e) => self.auto_value(e).map(Some),
                Init::Parens(args) if args.len() == 1 => self.auto_value(&args[0]).map(Some),
                Init::Braces(Expr { kind: ExprKind::InitList(items), .. }) if items.len() == 1 => {
                    self.auto_value(&items[0].1).map(Some)
                }
                _ => fail(ErrorKind::Type, v.span, "`auto` needs one value"),
            };
        }
        self.init_of(&t.ty, init, v.span).map(Some)
    }

    fn auto_value(&mut self, e: &'a Expr) -> LowerResult<RValue> {
        let v = self.rvalue(e)?;
        if v.ty == Ty::Void {
            return fail(ErrorKind::Type, e.span, "this call returns no value");
        }
        Ok(v)
    }

    /// `T& r = object;` another name for the object.
    fn reference(&mut self, v: &'a VarDecl, t: &Resolved) -> LowerResult<LValue> {
        let e = match &v.init {
            Some(Init::Assign(e)) => e,
            Some(Init::Parens(args)) if args.len() == 1 => &args[0],
            _ => return fail(ErrorKind::Type, v.span, format!("the reference `{}` needs an object", v.name)),
        };
        let x = self.expr(e)?;
        match x {
            ExprResult::Object(lv) if t.auto || lv.ty == t.ty || lv.ty.decayed() == t.ty.decayed() => {
                let found = match &lv.storage {
                    Storage::Mem { space, .. } => Some(*space),
                    _ => None,
                };
                if let (Some(want), Some(found)) = (t.space, found)
                    && want != found
                {
                    let text =
                        format!("expected an object in `{want}` memory, found one in `{found}` memory");
                    return fail(ErrorKind::Type, e.span, text);
                }
                Ok(LValue { is_const: lv.is_const || t.is_const, ..lv })
            }
            x if t.is_const || matches!(x, ExprResult::Value(_)) => {
                let value = self.rvalue_of(x, e.span)?;
                let value = if t.auto { value } else { self.convert(value, &t.ty, false, e.span)? };
                let ty = value.ty.clone();
                self.make_local(&v.name, v.id, &ty, true, Some(value), v.span)
            }
            x => {
                let (want, found) = (self.type_name(&t.ty), self.type_name(x.ty()));
                fail(ErrorKind::Type, e.span, format!("expected a reference to `{want}`, found `{found}`"))
            }
        }
    }

    // ---- conditions ----

    pub(super) fn condition(&mut self, c: &'a Cond) -> LowerResult<RValue> {
        match c {
            Cond::Expr(e) => {
                let v = self.rvalue(e)?;
                if let ExprKind::Assign(None, ..) = e.kind {
                    self.warn(
                        ErrorKind::Type,
                        e.span,
                        "an assignment is used as a condition; `==` compares".into(),
                    );
                }
                self.truth(v, e.span)
            }
            Cond::Var(v) => {
                self.var(v)?;
                let Some(Entity::Object(lv)) = self.scope.local(&v.name) else { return Err(Fail::Reported) };
                let value = self.load(&lv, v.span)?;
                self.truth(value, v.span)
            }
        }
    }

    /// An `if`, and the statements after it if a branch returns.
    pub(super) fn stmt_with_rest(&mut self, s: &'a Stmt, rest: &'a [Stmt]) {
        let StmtKind::If { constexpr, init, cond, then, els } = &s.kind else { return };
        let saved = self.scope.clone();
        self.scope = Scope::new(Some(saved.clone()));
        if let Some(i) = init {
            self.stmt(i);
        }
        let known = match self.condition(cond) {
            Ok(c) => c,
            Err(f) => {
                self.report(f);
                // The branches are still checked.
                self.stmt(then);
                if let Some(e) = els {
                    self.stmt(e);
                }
                self.scope = saved;
                self.dead = false;
                return self.stmts(rest);
            }
        };
        if let Some(taken) = known.as_bool() {
            if taken {
                self.scoped(|l| l.stmt(then));
            } else if let Some(e) = els {
                self.scoped(|l| l.stmt(e));
            }
            self.scope = saved;
            return self.stmts(rest);
        }
        if *constexpr {
            let d = Diagnostic::error(
                ErrorKind::Constant,
                s.span,
                "the condition of `if constexpr` must be known at compile time",
            );
            self.report(Fail::Diag(Box::new(d)));
        }
        self.at(s.span);
        let test = self.ir(&known);
        self.begin_if(test);
        self.scoped(|l| l.stmt(then));
        let then_dead = std::mem::replace(&mut self.dead, false);
        if els.is_none() && rest.is_empty() {
            self.end_if();
            self.scope = saved;
            return;
        }
        self.begin_else();
        if let Some(e) = els {
            self.scoped(|l| l.stmt(e));
        }
        self.scope = saved;
        // In a structured function the rest belongs to the branch that did not return.
        if !self.dead {
            self.stmts(rest);
        }
        let else_dead = std::mem::replace(&mut self.dead, false);
        self.end_if();
        self.dead = then_dead && else_dead;
    }
}

fn alias_entity<'a>(a: &'a AliasDecl, r: Resolved) -> Entity<'a> {
    if r.is_const || r.space.is_some() || r.is_ref { Entity::Alias(a) } else { Entity::Type(r.ty) }
}

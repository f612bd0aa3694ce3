//! Statements.

use super::control::{always_returns, contains_break, contains_continue};
use super::scope::Entity;
use super::types::Resolved;
use super::value::{Ex, Lv, Place, Rv};
use super::*;
use crate::ir::{BinaryOp, CmpOp, Scalar, Space, UnaryOp};

/// Most iterations of a loop that is unrolled because it asks for it.
const MAX_UNROLL: usize = 64;
/// Most statements that unrolling one loop may lower.
const MAX_UNROLLED_SIZE: usize = 256;

impl<'a> Lower<'a> {
    /// Lowers a statement; an error is reported and the walk goes on behind it.
    pub(super) fn stmt(&mut self, s: &'a Stmt) {
        let saved = (self.scope.clone(), self.frames.len(), self.ctl.len(), self.regions, self.depth);
        if let Err(f) = self.enter(s.span).and_then(|()| self.try_stmt(s)) {
            self.report(f);
            self.frames.truncate(saved.1);
            self.ctl.truncate(saved.2);
            (self.scope, self.regions) = (saved.0, saved.3);
            if let StmtKind::Vars(vars) = &s.kind {
                // Later uses of the failed variables are not worth further errors.
                for v in vars {
                    if self.scope.local(&v.name).is_none() {
                        let v_error = Rv { ty: Ty::Error, val: value::Val::Void };
                        self.scope.insert(&v.name, Entity::Object(Lv::value(v_error)));
                    }
                }
            }
        }
        self.depth = saved.4;
    }

    fn try_stmt(&mut self, s: &'a Stmt) -> R<()> {
        match &s.kind {
            StmtKind::Expr(e) => {
                let x = self.expr(e)?;
                let unused = matches!(e.kind, ExprKind::Binary(BinOp::Eq, ..)) && *x.ty() != Ty::Void;
                if unused {
                    self.warn(Kind::Type, e.span, "the result of this comparison is not used".into());
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
                fail(Kind::Syntax, s.span, "a `case` label outside of a `switch`")
            }
            StmtKind::Break => self.jump(true, s.span),
            StmtKind::Continue => self.jump(false, s.span),
            StmtKind::Return(value) => self.return_stmt(value.as_ref(), s.span),
            StmtKind::Alias(a) => {
                self.scope.insert(&a.name, Entity::Alias(a));
                // A wrong alias is reported where it stands.
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

    pub(super) fn static_assert(&mut self, e: &'a Expr, text: Option<&str>, span: Span) -> R<()> {
        let v = self.const_value(e)?;
        if self.to_bool(v, e.span)?.as_bool() == Some(false) {
            let text = text.map_or_else(
                || "static assertion failed".into(),
                |t| format!("static assertion failed: {t}"),
            );
            return fail(Kind::Constant, span, text);
        }
        Ok(())
    }

    // ---- variables ----

    fn var(&mut self, v: &'a VarDecl) -> R<()> {
        let mut t = self.resolve_type(&v.ty)?;
        self.at(v.span);
        if t.ty == Ty::Void && !t.auto {
            return fail(Kind::Type, v.span, format!("variable `{}` has type `void`", v.name));
        }
        if t.unsized_array {
            match &v.init {
                Some(init) => t.ty = self.sized_by(&t.ty, init, v.span)?,
                None => return fail(Kind::Type, v.span, "the extent of this array is unknown"),
            }
        }
        if t.space == Some(Space::Threadgroup) && !t.is_ref {
            if v.init.is_some() {
                let text =
                    "threadgroup variables cannot be initialised; let one thread write them, then wait";
                return fail(Kind::Type, v.span, text);
            }
            let lv = self.threadgroup_local(&v.name, v.id, &t.ty, v.span)?;
            return self.declare(&v.name, lv, v.span);
        }
        if t.space == Some(Space::Device) && !t.is_ref {
            return fail(Kind::Type, v.span, "a local variable cannot live in the `device` address space");
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
        if (v.constexpr || t.space == Some(Space::Constant)) && !init.as_ref().is_some_and(Rv::is_const) {
            return fail(
                Kind::Constant,
                v.span,
                format!("the value of `{}` must be known at compile time", v.name),
            );
        }
        self.at(v.span);
        let lv = self.make_local(&v.name, v.id, &ty, is_const, init, v.span)?;
        self.declare(&v.name, lv, v.span)
    }

    fn var_init(&mut self, v: &'a VarDecl, t: &Resolved) -> R<Option<Rv>> {
        let Some(init) = &v.init else {
            if t.auto {
                return fail(Kind::Type, v.span, format!("`auto {}` needs an initial value", v.name));
            }
            if t.is_const && !matches!(t.ty, Ty::Struct(_)) {
                return fail(Kind::Type, v.span, format!("the constant `{}` needs an initial value", v.name));
            }
            let constructed = match &t.ty {
                Ty::Struct(id) => {
                    let info = self.struct_info(*id);
                    info.decl.methods.iter().any(|m| m.ret.is_none() && m.name == info.decl.name)
                        || info.fields.iter().any(|f| f.init.is_some())
                }
                _ => false,
            };
            return if constructed { self.default_value(&t.ty, v.span).map(Some) } else { Ok(None) };
        };
        if t.auto {
            return match init {
                Init::Assign(e) => self.auto_value(e).map(Some),
                Init::Parens(args) if args.len() == 1 => self.auto_value(&args[0]).map(Some),
                Init::Braces(Expr { kind: ExprKind::InitList(items), .. }) if items.len() == 1 => {
                    self.auto_value(&items[0].1).map(Some)
                }
                _ => fail(Kind::Type, v.span, "`auto` needs one value"),
            };
        }
        self.init_of(&t.ty, init, v.span).map(Some)
    }

    fn auto_value(&mut self, e: &'a Expr) -> R<Rv> {
        let v = self.rvalue(e)?;
        if v.ty == Ty::Void {
            return fail(Kind::Type, e.span, "this call returns no value");
        }
        Ok(v)
    }

    /// `T& r = object;` another name for the object.
    fn reference(&mut self, v: &'a VarDecl, t: &Resolved) -> R<Lv> {
        let e = match &v.init {
            Some(Init::Assign(e)) => e,
            Some(Init::Parens(args)) if args.len() == 1 => &args[0],
            _ => return fail(Kind::Type, v.span, format!("the reference `{}` needs an object", v.name)),
        };
        let x = self.expr(e)?;
        match x {
            Ex::L(lv) if t.auto || lv.ty == t.ty || lv.ty.decayed() == t.ty.decayed() => {
                let found = match &lv.place {
                    Place::Mem { space, .. } => Some(*space),
                    _ => None,
                };
                if let (Some(want), Some(found)) = (t.space, found) {
                    if want != found {
                        let text =
                            format!("expected an object in `{want}` memory, found one in `{found}` memory");
                        return fail(Kind::Type, e.span, text);
                    }
                }
                Ok(Lv { is_const: lv.is_const || t.is_const, ..lv })
            }
            x if t.is_const || matches!(x, Ex::R(_)) => {
                let value = self.rvalue_of(x, e.span)?;
                let value = if t.auto { value } else { self.convert(value, &t.ty, false, e.span)? };
                let ty = value.ty.clone();
                self.make_local(&v.name, v.id, &ty, true, Some(value), v.span)
            }
            x => {
                let (want, found) = (self.type_name(&t.ty), self.type_name(x.ty()));
                fail(Kind::Type, e.span, format!("expected a reference to `{want}`, found `{found}`"))
            }
        }
    }

    // ---- conditions ----

    fn condition(&mut self, c: &'a Cond) -> R<Rv> {
        match c {
            Cond::Expr(e) => {
                let v = self.rvalue(e)?;
                if let ExprKind::Assign(None, ..) = e.kind {
                    self.warn(
                        Kind::Type,
                        e.span,
                        "an assignment is used as a condition; `==` compares".into(),
                    );
                }
                self.to_bool(v, e.span)
            }
            Cond::Var(v) => {
                self.var(v)?;
                let Some(Entity::Object(lv)) = self.scope.local(&v.name) else { return Err(Fail::Reported) };
                let value = self.load(&lv, v.span)?;
                self.to_bool(value, v.span)
            }
        }
    }

    /// An `if`, with the statements behind it where its branches return.
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
                Kind::Constant,
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
        // With a structured function, what follows belongs to the branch that did not return.
        if !self.dead {
            self.stmts(rest);
        }
        let else_dead = std::mem::replace(&mut self.dead, false);
        self.end_if();
        self.dead = then_dead && else_dead || (then_dead && always_returns(then) && else_dead);
    }

    // ---- loops ----

    fn for_stmt(
        &mut self,
        init: Option<&'a Stmt>,
        cond: Option<&'a Expr>,
        step: Option<&'a Expr>,
        body: &'a Stmt,
        unroll: bool,
        span: Span,
    ) -> R<()> {
        if self.const_mode > 0 {
            if let Some(i) = init {
                self.try_stmt(i)?;
            }
            return self.const_loop(cond, step, body, true, span);
        }
        if let (Some(i), Some(c), Some(s)) = (init, cond, step) {
            if let Some((decl, values)) = self.unrollable(i, c, s, body, unroll)? {
                return self.unrolled(decl, &values, body);
            }
        }
        if let Some(i) = init {
            self.try_stmt(i)?;
        }
        self.at(span);
        self.begin_loop(Ctl::Loop);
        let r = self.for_body(cond, body);
        self.dead = false;
        self.b.begin_continuing();
        let r = r.and_then(|()| match step {
            Some(s) => {
                self.at(s.span);
                self.expr(s).map(|_| ())
            }
            None => Ok(()),
        });
        self.end_loop();
        r
    }

    /// `for (T x : array)`
    fn for_each(&mut self, v: &'a VarDecl, range: &'a Expr, body: &'a Stmt, span: Span) -> R<()> {
        let array = self.expr(range)?;
        let Ty::Array(_, n) = array.ty().clone() else {
            let text = format!("`for` goes over an array, found `{}`", self.type_name(array.ty()));
            return fail(Kind::Type, range.span, text);
        };
        let t = self.resolve_type(&v.ty)?;
        self.at(span);
        let zero = self.b.u32(0);
        let counter = self.b.var_init("element", zero);
        self.begin_loop(Ctl::Loop);
        let at = self.b.get(counter);
        let end = self.b.u32(n.min(u64::from(u32::MAX)) as u32);
        let more = self.b.compare(CmpOp::Lt, at, end);
        self.break_unless(&Rv::ir(Ty::BOOL, more));
        let r = self.index(array, &Rv::ir(Ty::UINT, at), range.span).and_then(|element| {
            let lv = match element {
                Ex::L(lv) if t.is_ref => Lv { is_const: lv.is_const || t.is_const, ..lv },
                element => {
                    let value = match element {
                        Ex::L(lv) => self.load(&lv, range.span)?,
                        Ex::R(v) => v,
                    };
                    let value = if t.auto { value } else { self.convert(value, &t.ty, false, v.span)? };
                    let ty = value.ty.clone();
                    self.make_local(&v.name, v.id, &ty, t.is_const, Some(value), v.span)?
                }
            };
            self.declare(&v.name, lv, v.span)?;
            self.scoped(|l| l.stmt(body));
            Ok(())
        });
        self.dead = false;
        self.b.begin_continuing();
        let at = self.b.get(counter);
        let one = self.b.u32(1);
        let next = self.b.add(at, one);
        self.b.set(counter, next);
        self.end_loop();
        r
    }

    fn for_body(&mut self, cond: Option<&'a Expr>, body: &'a Stmt) -> R<()> {
        if let Some(c) = cond {
            self.at(c.span);
            let v = self.rvalue(c)?;
            let v = self.to_bool(v, c.span)?;
            self.break_unless(&v);
        }
        if !self.dead {
            self.scoped(|l| l.stmt(body));
        }
        Ok(())
    }

    /// Leaves the loop where a condition does not hold.
    fn break_unless(&mut self, v: &Rv) {
        match v.as_bool() {
            Some(true) => {}
            Some(false) => {
                self.b.break_();
                self.dead = true;
            }
            None => {
                let id = self.ir(v);
                let not = self.b.unary(UnaryOp::Not, id);
                self.begin_if(not);
                self.b.break_();
                self.end_if();
            }
        }
    }

    /// A loop of a function that runs at compile time.
    fn const_loop(
        &mut self,
        cond: Option<&'a Expr>,
        step: Option<&'a Expr>,
        body: &'a Stmt,
        test_first: bool,
        span: Span,
    ) -> R<()> {
        let mut test = test_first;
        loop {
            self.const_steps += 1;
            if self.const_steps > MAX_CONST_STEPS || self.aborted {
                return fail(Kind::Limit, span, "this loop does not end at compile time");
            }
            if let (true, Some(c)) = (test, cond) {
                let v = self.rvalue(c)?;
                let v = self.to_bool(v, c.span)?;
                match v.as_bool() {
                    Some(true) => {}
                    Some(false) => return Ok(()),
                    None => return fail(Kind::Constant, c.span, "this must be known at compile time"),
                }
            }
            test = true;
            self.const_loops += 1;
            self.scoped(|l| l.stmt(body));
            self.const_loops -= 1;
            match (self.dead, self.const_jump.take()) {
                (true, Some(true)) => {
                    self.dead = false;
                    return Ok(());
                }
                (true, Some(false)) => self.dead = false,
                (true, None) => return Ok(()),
                (false, _) => {}
            }
            if self.sink.has_errors() {
                return Err(Fail::Reported);
            }
            if let Some(s) = step {
                self.expr(s)?;
            }
        }
    }

    fn while_stmt(&mut self, cond: &'a Cond, body: &'a Stmt, span: Span) -> R<()> {
        if let (true, Cond::Expr(c)) = (self.const_mode > 0, cond) {
            return self.const_loop(Some(c), None, body, true, span);
        }
        self.at(span);
        self.begin_loop(Ctl::Loop);
        let saved = self.scope.clone();
        self.scope = Scope::new(Some(saved.clone()));
        let r = self.condition(cond).map(|v| {
            self.break_unless(&v);
            if !self.dead {
                self.scoped(|l| l.stmt(body));
            }
        });
        self.scope = saved;
        self.dead = false;
        self.end_loop();
        r
    }

    fn do_while(&mut self, body: &'a Stmt, cond: &'a Expr, span: Span) -> R<()> {
        if self.const_mode > 0 {
            return self.const_loop(Some(cond), None, body, false, span);
        }
        self.at(span);
        self.begin_loop(Ctl::Loop);
        self.scoped(|l| l.stmt(body));
        self.dead = false;
        self.b.begin_continuing();
        self.at(cond.span);
        let r = self.rvalue(cond).and_then(|v| self.to_bool(v, cond.span)).map(|v| self.break_unless(&v));
        self.dead = false;
        self.end_loop();
        r
    }

    /// A counting loop whose values are known and whose body neither jumps nor changes the counter.
    fn unrollable(
        &mut self,
        init: &'a Stmt,
        cond: &'a Expr,
        step: &'a Expr,
        body: &'a Stmt,
        asked: bool,
    ) -> R<Option<(&'a VarDecl, Vec<i64>)>> {
        let StmtKind::Vars(vars) = &init.kind else { return Ok(None) };
        let [v] = vars.as_slice() else { return Ok(None) };
        let (Some(Init::Assign(start)), true) = (&v.init, v.ty.wraps.is_empty() && v.ty.extents.is_empty())
        else {
            return Ok(None);
        };
        let is_counter = |e: &Expr| matches!(&e.kind, ExprKind::Name(p) if p.segments.len() == 1 && p.segments[0].name == v.name);
        let ExprKind::Binary(op, left, limit) = &cond.kind else { return Ok(None) };
        if !is_counter(left) || !op.is_comparison() || !self.is_known(start) || !self.is_known(limit) {
            return Ok(None);
        }
        if self.storage_of(v.id) > value::Storage::Value {
            return Ok(None);
        }
        let mut amount = None;
        let (step_op, by) = match &step.kind {
            ExprKind::Unary(UnOp::PreInc | UnOp::PostInc, e) if is_counter(e) => (BinOp::Add, 1),
            ExprKind::Unary(UnOp::PreDec | UnOp::PostDec, e) if is_counter(e) => (BinOp::Sub, 1),
            ExprKind::Assign(Some(o), e, by)
                if is_counter(e)
                    && self.is_known(by)
                    && matches!(
                        o,
                        BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div | BinOp::Shr | BinOp::Shl
                    ) =>
            {
                amount = Some(&**by);
                (*o, 0)
            }
            _ => return Ok(None),
        };
        let size = stmt_size(body);
        if contains_break(body)
            || contains_continue(body)
            || changes(body, &v.name)
            || size > MAX_UNROLLED_SIZE
        {
            return Ok(None);
        }
        if self.frames.last().is_some_and(|f| !f.is_entry) && control::contains_return(body) {
            return Ok(None);
        }
        let r = self.resolve_type(&v.ty)?;
        let (a, b) = (self.rvalue(start)?, self.rvalue(limit)?);
        let ty = if r.auto { a.ty.clone() } else { r.ty };
        let (Some(s), Some(_), Some(_)) = (ty.scalar(), a.as_int(), b.as_int()) else { return Ok(None) };
        let by = match amount {
            Some(e) => self.rvalue(e)?,
            None => Rv::int(Scalar::I32, by),
        };
        if by.as_int().is_none() || s.is_float() || ty.is_vector() {
            return Ok(None);
        }
        let limit_count = if asked { MAX_UNROLL } else { 8 };
        let mut at = self.convert_scalar(a, s);
        let mut values = Vec::new();
        loop {
            let go = self.binary_op(*op, at.clone(), b.clone(), cond.span)?;
            match (go.as_bool(), at.as_int()) {
                (Some(true), Some(i)) => values.push(i),
                _ => break,
            }
            if values.len() > limit_count || values.len() * size > MAX_UNROLLED_SIZE {
                return Ok(None);
            }
            let next = self.binary_op(step_op, at, by.clone(), step.span)?;
            at = self.convert_scalar(next, s);
        }
        Ok(Some((v, values)))
    }

    /// Whether an expression is built from compile-time constants only.
    fn is_known(&self, e: &Expr) -> bool {
        match &e.kind {
            ExprKind::Int { .. } | ExprKind::Bool(_) | ExprKind::SizeofType(_) => true,
            ExprKind::Name(p) if p.segments.len() == 1 => match self.scope.lookup(&p.segments[0].name) {
                Some((Entity::Object(lv), _)) => matches!(&lv.place, Place::Value(v) if v.is_const()),
                Some((Entity::Static(..), _)) => true,
                Some(_) => false,
                None => true,
            },
            ExprKind::Name(_) => true,
            ExprKind::Unary(UnOp::Neg | UnOp::Plus, a) => self.is_known(a),
            ExprKind::Binary(_, a, b) => self.is_known(a) && self.is_known(b),
            ExprKind::Cast(CastKind::C | CastKind::Static, _, a) => self.is_known(a),
            ExprKind::Construct { args, .. } => args.iter().all(|a| self.is_known(a)),
            _ => false,
        }
    }

    fn unrolled(&mut self, v: &'a VarDecl, values: &[i64], body: &'a Stmt) -> R<()> {
        let r = self.resolve_type(&v.ty)?;
        let s = r.ty.scalar().unwrap_or(Scalar::I32);
        for i in values {
            if self.dead || self.aborted {
                break;
            }
            let mut lv = Lv::value(Rv::int(s, *i));
            lv.decl = Some(v.id);
            let saved = self.scope.clone();
            self.scope = Scope::new(Some(saved.clone()));
            self.scope.insert(&v.name, Entity::Object(lv));
            self.scoped(|l| l.stmt(body));
            self.scope = saved;
        }
        Ok(())
    }

    // ---- switch ----

    fn switch(&mut self, value: &'a Expr, body: &'a Block, span: Span) -> R<()> {
        let v = self.rvalue(value)?;
        let Some(s) = v.ty.scalar().filter(|s| !s.is_float() && !v.ty.is_vector()) else {
            let text = format!("`switch` needs an integer, found `{}`", self.type_name(&v.ty));
            return fail(Kind::Type, value.span, text);
        };
        let s = convert::promoted(s);
        let v = self.convert_scalar(v, s);
        let mut groups: Vec<Group<'a>> = Vec::new();
        for st in &body.stmts {
            match &st.kind {
                StmtKind::Case(_) | StmtKind::Default => {
                    let fresh = groups.last().is_none_or(|g| !g.stmts.is_empty());
                    if fresh {
                        groups.push(Group::default());
                    }
                    let Some(g) = groups.last_mut() else { continue };
                    match &st.kind {
                        StmtKind::Case(e) => {
                            let c = self.const_value(e)?;
                            let c = self.convert_scalar(c, s);
                            let Some(i) = c.as_int() else {
                                return fail(
                                    Kind::Constant,
                                    e.span,
                                    "a `case` label must be an integer constant",
                                );
                            };
                            g.values.push((i, e.span));
                        }
                        _ => g.default = true,
                    }
                }
                _ => match groups.last_mut() {
                    Some(g) => g.stmts.push(st),
                    None => return fail(Kind::Syntax, st.span, "a statement before the first `case`"),
                },
            }
        }
        let mut all: Vec<i64> = Vec::new();
        for (i, at) in groups.iter().flat_map(|g| &g.values) {
            if all.contains(i) {
                return fail(Kind::Constant, *at, format!("the value {i} appears twice in this `switch`"));
            }
            all.push(*i);
        }
        if groups.iter().filter(|g| g.default).count() > 1 {
            return fail(Kind::Syntax, span, "a `switch` has one `default` at most");
        }
        self.at(span);
        if let Some(known) = v.as_int() {
            return self.known_switch(known, &groups);
        }
        let last = groups.len().saturating_sub(1);
        let simple = groups.iter().enumerate().all(|(i, g)| g.ends(i == last));
        if simple && groups.len() <= 64 {
            self.switch_chain(&v, &groups, 0);
            return Ok(());
        }
        self.switch_loop(&v, s, &groups)
    }

    /// The groups that a known value runs, up to the first `break`.
    fn known_switch(&mut self, known: i64, groups: &[Group<'a>]) -> R<()> {
        let start = groups
            .iter()
            .position(|g| g.values.iter().any(|(i, _)| *i == known))
            .or_else(|| groups.iter().position(|g| g.default));
        let Some(start) = start else { return Ok(()) };
        let saved = self.scope.clone();
        self.scope = Scope::new(Some(saved.clone()));
        let mut left = false;
        let mut pending: Vec<&'a Stmt> = Vec::new();
        for g in &groups[start..] {
            for st in &g.stmts {
                left |= matches!(st.kind, StmtKind::Break);
                if left {
                    break;
                }
                pending.push(st);
            }
            if left {
                break;
            }
        }
        if self.const_mode > 0 {
            self.const_loops += 1;
            for st in pending {
                if !self.dead {
                    self.stmt(st);
                }
            }
            self.const_loops -= 1;
            if self.const_jump == Some(true) {
                self.const_jump = None;
                self.dead = false;
            }
        } else if pending.iter().any(|s| contains_break(s)) {
            let flag = self.continue_flag(pending.iter().copied());
            self.begin_loop(Ctl::Switch { continue_flag: flag });
            for st in pending {
                if !self.dead {
                    self.stmt(st);
                }
            }
            if !self.dead {
                self.b.break_();
            }
            self.dead = false;
            self.end_loop();
            self.propagate_continue(flag);
        } else {
            for st in pending {
                if !self.dead {
                    self.stmt(st);
                }
            }
        }
        self.scope = saved;
        Ok(())
    }

    /// Groups that do not fall through: a chain of `if`s, with `default` last.
    fn switch_chain(&mut self, v: &Rv, groups: &[Group<'a>], depth: usize) {
        let mut order: Vec<&Group<'a>> = groups.iter().filter(|g| !g.default).collect();
        order.extend(groups.iter().filter(|g| g.default));
        let Some(g) = order.get(depth) else { return };
        if g.default {
            // Its own labels need no test: nothing else matches.
            return self.group(g);
        }
        let test = self.matches(v, g);
        self.begin_if(test);
        self.group(g);
        let then_dead = std::mem::replace(&mut self.dead, false);
        self.begin_else();
        self.switch_chain(v, groups, depth + 1);
        let else_dead = std::mem::replace(&mut self.dead, false);
        self.end_if();
        self.dead = then_dead && else_dead;
    }

    fn group(&mut self, g: &Group<'a>) {
        let saved = self.scope.clone();
        self.scope = Scope::new(Some(saved.clone()));
        let flag = self.frames.last().and_then(|f| f.flag);
        let inlined = self.frames.last().is_some_and(|f| !f.is_entry);
        let mut guards = 0;
        for st in &g.stmts {
            if self.dead {
                break;
            }
            match &st.kind {
                StmtKind::Break => break,
                // The closing `break` may stand inside the braces of the group.
                StmtKind::Block(b)
                    if g.stmts.len() == 1
                        || matches!(b.stmts.last().map(|s| &s.kind), Some(StmtKind::Break)) =>
                {
                    let n = b.stmts.len();
                    let cut = usize::from(matches!(b.stmts.last().map(|s| &s.kind), Some(StmtKind::Break)));
                    self.scoped(|l| l.stmts(&b.stmts[..n - cut]));
                }
                _ => self.stmt(st),
            }
            if let (true, true, Some(flag), false) = (inlined, control::contains_return(st), flag, self.dead)
            {
                let returned = self.b.get(flag);
                let not = self.b.unary(UnaryOp::Not, returned);
                self.begin_if(not);
                guards += 1;
            }
        }
        for _ in 0..guards {
            self.dead = false;
            self.end_if();
        }
        self.scope = saved;
    }

    fn matches(&mut self, v: &Rv, g: &Group<'a>) -> crate::ir::ValueId {
        let x = self.ir(v);
        let s = v.ty.scalar().unwrap_or(Scalar::I32);
        let mut test = None;
        for (i, _) in &g.values {
            let c = self.ir(&Rv::int(s, *i));
            let eq = self.b.compare(CmpOp::Eq, x, c);
            test = Some(match test {
                None => eq,
                Some(t) => self.b.binary(BinaryOp::Or, t, eq),
            });
        }
        test.unwrap_or_else(|| self.b.bool(false))
    }

    fn continue_flag(&mut self, mut stmts: impl Iterator<Item = &'a Stmt>) -> Option<VarId> {
        let outer = self.frames.last().is_some_and(|f| self.ctl.len() > f.base_ctl);
        if !outer || !stmts.any(contains_continue) {
            return None;
        }
        let no = self.b.bool(false);
        Some(self.b.var_init("continued", no))
    }

    fn propagate_continue(&mut self, flag: Option<VarId>) {
        let Some(flag) = flag else { return };
        let set = self.b.get(flag);
        self.begin_if(set);
        let at = Span { file: crate::front::source::FileId(0), lo: 0, hi: 0, expansion: 0 };
        // Inside another switch this sets that one's flag in turn.
        let _ = self.jump(false, at);
        self.dead = false;
        self.end_if();
    }

    /// The general form: a one-trip loop in which `break` leaves and groups fall through.
    fn switch_loop(&mut self, v: &Rv, s: Scalar, groups: &[Group<'a>]) -> R<()> {
        let flag = self.continue_flag(groups.iter().flat_map(|g| g.stmts.iter().copied()));
        let no = self.b.bool(false);
        let falls = self.b.var_init("falls", no);
        let mut any = None;
        if groups.iter().any(|g| g.default) {
            for g in groups.iter().filter(|g| !g.values.is_empty()) {
                let hit = self.matches(v, g);
                any = Some(match any {
                    None => hit,
                    Some(a) => self.b.binary(BinaryOp::Or, a, hit),
                });
            }
        }
        let _ = s;
        let none = match any {
            Some(a) => self.b.unary(UnaryOp::Not, a),
            None => self.b.bool(true),
        };
        self.begin_loop(Ctl::Switch { continue_flag: flag });
        let saved = self.scope.clone();
        self.scope = Scope::new(Some(saved.clone()));
        for g in groups {
            let mut test = self.matches(v, g);
            if g.default {
                test = self.b.binary(BinaryOp::Or, test, none);
            }
            let through = self.b.get(falls);
            let test = self.b.binary(BinaryOp::Or, through, test);
            self.begin_if(test);
            let yes = self.b.bool(true);
            self.b.set(falls, yes);
            for st in &g.stmts {
                if self.dead {
                    break;
                }
                self.stmt(st);
                let returned = self.frames.last().filter(|f| !f.is_entry).and_then(|f| f.flag);
                if let (Some(r), true, false) = (returned, control::contains_return(st), self.dead) {
                    let set = self.b.get(r);
                    self.begin_if(set);
                    self.b.break_();
                    self.end_if();
                }
            }
            self.dead = false;
            self.end_if();
        }
        self.scope = saved;
        self.b.break_();
        self.dead = false;
        self.end_loop();
        self.propagate_continue(flag);
        Ok(())
    }
}

/// Labels and the statements behind them.
#[derive(Default)]
struct Group<'a> {
    values: Vec<(i64, Span)>,
    default: bool,
    stmts: Vec<&'a Stmt>,
}

impl Group<'_> {
    /// Whether the group ends in a jump and has no other `break` in it.
    fn ends(&self, last: bool) -> bool {
        let Some((tail, head)) = self.stmts.split_last() else { return last };
        if head.iter().any(|s| contains_break(s)) {
            return false;
        }
        match &tail.kind {
            StmtKind::Break | StmtKind::Return(_) | StmtKind::Continue => true,
            StmtKind::Block(b) => match b.stmts.split_last() {
                Some((t, h)) => {
                    !h.iter().any(contains_break)
                        && (matches!(t.kind, StmtKind::Break | StmtKind::Continue)
                            || always_returns(t)
                            || (last && !contains_break(t)))
                }
                None => last,
            },
            _ => (last || always_returns(tail)) && !contains_break(tail),
        }
    }
}

fn alias_entity<'a>(a: &'a AliasDecl, r: Resolved) -> Entity<'a> {
    if r.is_const || r.space.is_some() || r.is_ref { Entity::Alias(a) } else { Entity::Type(r.ty) }
}

fn stmt_size(s: &Stmt) -> usize {
    match &s.kind {
        StmtKind::Block(b) | StmtKind::Switch(_, b) => b.stmts.iter().map(stmt_size).sum::<usize>() + 1,
        StmtKind::If { then, els, .. } => 1 + stmt_size(then) + els.as_deref().map_or(0, stmt_size),
        StmtKind::For { body, .. } | StmtKind::ForEach(_, _, body) => 8 * stmt_size(body) + 1,
        StmtKind::While(_, body) | StmtKind::DoWhile(body, _) => stmt_size(body) + 2,
        StmtKind::Vars(v) => v.len(),
        _ => 1,
    }
}

/// Whether a statement may assign the variable.
fn changes(s: &Stmt, name: &Name) -> bool {
    fn expr(e: &Expr, name: &Name) -> bool {
        match &e.kind {
            ExprKind::Assign(_, a, b) => root(a, name) || expr(a, name) || expr(b, name),
            ExprKind::Unary(op, a) => {
                let writes = matches!(
                    op,
                    UnOp::PreInc | UnOp::PreDec | UnOp::PostInc | UnOp::PostDec | UnOp::AddressOf
                );
                (writes && root(a, name)) || expr(a, name)
            }
            ExprKind::Binary(_, a, b) | ExprKind::Comma(a, b) | ExprKind::Index(a, b) => {
                expr(a, name) || expr(b, name)
            }
            ExprKind::Ternary(a, b, c) => expr(a, name) || expr(b, name) || expr(c, name),
            ExprKind::Call(f, args) => expr(f, name) || args.iter().any(|a| expr(a, name)),
            ExprKind::Member { base, .. } => expr(base, name),
            ExprKind::Cast(_, _, a) | ExprKind::SizeofExpr(a) => expr(a, name),
            ExprKind::Construct { args, .. } => args.iter().any(|a| expr(a, name)),
            ExprKind::InitList(items) => items.iter().any(|(_, e)| expr(e, name)),
            ExprKind::Lambda(l) => l.assigned.contains(name),
            _ => false,
        }
    }
    fn root(e: &Expr, name: &Name) -> bool {
        match &e.kind {
            ExprKind::Name(p) => p.segments.len() == 1 && p.segments[0].name == *name,
            _ => false,
        }
    }
    fn init(i: &Init, name: &Name) -> bool {
        match i {
            Init::Assign(e) | Init::Braces(e) => expr(e, name),
            Init::Parens(args) => args.iter().any(|a| expr(a, name)),
        }
    }
    fn cond(c: &Cond, name: &Name) -> bool {
        match c {
            Cond::Expr(e) => expr(e, name),
            Cond::Var(v) => v.init.as_ref().is_some_and(|i| init(i, name)),
        }
    }
    match &s.kind {
        StmtKind::Expr(e) => expr(e, name),
        StmtKind::Vars(vars) => vars.iter().any(|v| v.init.as_ref().is_some_and(|i| init(i, name))),
        StmtKind::If { init: i, cond: c, then, els, .. } => {
            i.as_deref().is_some_and(|i| changes(i, name))
                || cond(c, name)
                || changes(then, name)
                || els.as_deref().is_some_and(|e| changes(e, name))
        }
        StmtKind::For { init: i, cond: c, step, body, .. } => {
            i.as_deref().is_some_and(|i| changes(i, name))
                || c.as_ref().is_some_and(|e| expr(e, name))
                || step.as_ref().is_some_and(|e| expr(e, name))
                || changes(body, name)
        }
        StmtKind::ForEach(_, e, body) => expr(e, name) || changes(body, name),
        StmtKind::While(c, body) => cond(c, name) || changes(body, name),
        StmtKind::DoWhile(body, c) => expr(c, name) || changes(body, name),
        StmtKind::Switch(e, b) => expr(e, name) || b.stmts.iter().any(|s| changes(s, name)),
        StmtKind::Block(b) => b.stmts.iter().any(|s| changes(s, name)),
        StmtKind::Return(Some(e)) => expr(e, name),
        _ => false,
    }
}

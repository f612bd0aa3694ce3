//! Loops: `for`, `while`, `do`, loops over arrays, unrolling, and loops that run at compile time.

use super::control::{contains_break, contains_continue};
use super::scope::Entity;
use super::value::{ExprResult, LValue, RValue, Storage};
use super::*;
use crate::ir::{CmpOp, Scalar, UnaryOp};

/// The most iterations of a loop that is unrolled on request.
const MAX_UNROLL: usize = 64;
/// The most iterations of a loop that is unrolled without request.
const MAX_UNROLL_UNREQUESTED: usize = 8;
/// The most statements that unrolling one loop may lower.
const MAX_UNROLLED_SIZE: usize = 256;

impl<'a> Lower<'a> {
    pub(super) fn for_stmt(
        &mut self,
        init: Option<&'a Stmt>,
        cond: Option<&'a Expr>,
        step: Option<&'a Expr>,
        body: &'a Stmt,
        unroll: bool,
        span: Span,
    ) -> LowerResult<()> {
        if self.const_mode > 0 {
            if let Some(i) = init {
                self.try_stmt(i)?;
            }
            return self.const_loop(cond, step, body, true, span);
        }
        if let (Some(i), Some(c), Some(s)) = (init, cond, step)
            && let Some((decl, values)) = self.unrollable(i, c, s, body, unroll)?
        {
            return self.unrolled(decl, &values, body);
        }
        if let Some(i) = init {
            self.try_stmt(i)?;
        }
        self.at(span);
        self.begin_loop(OpenLoop::Loop);
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
    pub(super) fn for_each(
        &mut self,
        v: &'a VarDecl,
        range: &'a Expr,
        body: &'a Stmt,
        span: Span,
    ) -> LowerResult<()> {
        let array = self.expr(range)?;
        let Ty::Array(_, n) = array.ty().clone() else {
            let text = format!("`for` goes over an array, found `{}`", self.type_name(array.ty()));
            return fail(ErrorKind::Type, range.span, text);
        };
        let t = self.resolve_type(&v.ty)?;
        self.at(span);
        let zero = self.b.u32(0);
        let counter = self.b.var_init("element", zero);
        self.begin_loop(OpenLoop::Loop);
        let at = self.b.get(counter);
        let end = self.b.u32(n.min(u64::from(u32::MAX)) as u32);
        let more = self.b.compare(CmpOp::Lt, at, end);
        self.break_unless(&RValue::ir(Ty::BOOL, more));
        let r = self.index(array, &RValue::ir(Ty::UINT, at), range.span).and_then(|element| {
            let lv = match element {
                ExprResult::Object(lv) if t.is_ref => LValue { is_const: lv.is_const || t.is_const, ..lv },
                element => {
                    let value = match element {
                        ExprResult::Object(lv) => self.load(&lv, range.span)?,
                        ExprResult::Value(v) => v,
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

    fn for_body(&mut self, cond: Option<&'a Expr>, body: &'a Stmt) -> LowerResult<()> {
        if let Some(c) = cond {
            self.at(c.span);
            let v = self.rvalue(c)?;
            let v = self.truth(v, c.span)?;
            self.break_unless(&v);
        }
        if !self.dead {
            self.scoped(|l| l.stmt(body));
        }
        Ok(())
    }

    /// Leaves the loop where a condition does not hold.
    fn break_unless(&mut self, v: &RValue) {
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
    ) -> LowerResult<()> {
        let mut test = test_first;
        loop {
            self.const_steps += 1;
            if self.const_steps > MAX_CONST_STEPS || self.aborted {
                return fail(ErrorKind::Limit, span, "this loop does not end at compile time");
            }
            if let (true, Some(c)) = (test, cond) {
                let v = self.rvalue(c)?;
                let v = self.truth(v, c.span)?;
                match v.as_bool() {
                    Some(true) => {}
                    Some(false) => return Ok(()),
                    None => return fail(ErrorKind::Constant, c.span, "this must be known at compile time"),
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

    pub(super) fn while_stmt(&mut self, cond: &'a Cond, body: &'a Stmt, span: Span) -> LowerResult<()> {
        if let (true, Cond::Expr(c)) = (self.const_mode > 0, cond) {
            return self.const_loop(Some(c), None, body, true, span);
        }
        self.at(span);
        self.begin_loop(OpenLoop::Loop);
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

    pub(super) fn do_while(&mut self, body: &'a Stmt, cond: &'a Expr, span: Span) -> LowerResult<()> {
        if self.const_mode > 0 {
            return self.const_loop(Some(cond), None, body, false, span);
        }
        self.at(span);
        self.begin_loop(OpenLoop::Loop);
        self.scoped(|l| l.stmt(body));
        self.dead = false;
        self.b.begin_continuing();
        self.at(cond.span);
        let r = self.rvalue(cond).and_then(|v| self.truth(v, cond.span)).map(|v| self.break_unless(&v));
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
    ) -> LowerResult<Option<(&'a VarDecl, Vec<i64>)>> {
        if !self.unroll {
            return Ok(None);
        }
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
        if self.storage_of(v.id) > value::StorageClass::Value {
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
            None => RValue::int(Scalar::I32, by),
        };
        if by.as_int().is_none() || s.is_float() || ty.is_vector() {
            return Ok(None);
        }
        let limit_count = if asked { MAX_UNROLL } else { MAX_UNROLL_UNREQUESTED };
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
                Some((Entity::Object(lv), _)) => matches!(&lv.storage, Storage::Value(v) if v.is_const()),
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

    fn unrolled(&mut self, v: &'a VarDecl, values: &[i64], body: &'a Stmt) -> LowerResult<()> {
        let r = self.resolve_type(&v.ty)?;
        let s = r.ty.scalar().unwrap_or(Scalar::I32);
        for i in values {
            if self.dead || self.aborted {
                break;
            }
            let mut lv = LValue::value(RValue::int(s, *i));
            lv.decl = Some(v.id);
            let saved = self.scope.clone();
            self.scope = Scope::new(Some(saved.clone()));
            self.scope.insert(&v.name, Entity::Object(lv));
            self.scoped(|l| l.stmt(body));
            self.scope = saved;
        }
        Ok(())
    }
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
            ExprKind::Lambda(l) => l.assigned.any(name),
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

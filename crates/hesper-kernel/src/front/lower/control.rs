//! Control flow: regions of the IR, and which statements return.

use super::value::LValue;
use super::*;
use crate::ir::{UnaryOp, ValueId};

impl<'a> Lower<'a> {
    pub(super) fn begin_if(&mut self, cond: ValueId) {
        self.b.begin_if(cond);
        self.regions += 1;
    }

    pub(super) fn begin_else(&mut self) {
        self.b.begin_else();
    }

    pub(super) fn end_if(&mut self) {
        self.b.end_if();
        self.regions = self.regions.saturating_sub(1);
    }

    pub(super) fn begin_loop(&mut self, open: OpenLoop) {
        self.b.begin_loop();
        self.regions += 1;
        self.open_loops.push(open);
    }

    pub(super) fn end_loop(&mut self) {
        self.b.end_loop();
        self.regions = self.regions.saturating_sub(1);
        self.open_loops.pop();
    }

    /// Whether the current function has an open loop.
    fn in_loop(&self) -> bool {
        self.frames.last().is_some_and(|f| self.open_loops.len() > f.base_loops)
    }

    /// Lowers the body of the function in the top frame.
    pub(super) fn function_body(&mut self, body: &'a Block) {
        let entry = self.frames.last().is_some_and(|f| f.is_entry);
        if !entry && self.const_mode == 0 && !structured(&body.stmts) {
            let no = self.b.bool(false);
            let flag = self.b.var_init("returned", no);
            if let Some(f) = self.frames.last_mut() {
                f.flag = Some(flag);
            }
        }
        self.stmts(&body.stmts);
    }

    /// Lowers statements in order. Statements after a conditional return run only if it did not return.
    pub(super) fn stmts(&mut self, list: &'a [Stmt]) {
        for (i, s) in list.iter().enumerate() {
            if self.dead || self.aborted || self.sink.is_full() {
                return;
            }
            let returns = contains_return(s);
            let flag = self.frames.last().and_then(|f| f.flag);
            let inlined = self.frames.last().is_some_and(|f| !f.is_entry);
            if inlined
                && returns
                && flag.is_none()
                && let StmtKind::If { .. } = &s.kind
            {
                self.stmt_with_rest(s, &list[i + 1..]);
                return;
            }
            self.stmt(s);
            if self.dead || !returns || !inlined {
                continue;
            }
            let Some(flag) = flag else { continue };
            let returned = self.b.get(flag);
            if self.in_loop() {
                self.begin_if(returned);
                self.b.break_();
                self.end_if();
            } else {
                let not = self.b.unary(UnaryOp::Not, returned);
                self.begin_if(not);
                self.stmts(&list[i + 1..]);
                self.dead = false;
                self.end_if();
                return;
            }
        }
    }

    /// `return`
    pub(super) fn return_stmt(&mut self, value: Option<&'a Expr>, span: Span) -> LowerResult<()> {
        let Some(frame) = self.frames.last() else { return Err(Fail::Reported) };
        if frame.is_entry {
            if let Some(e) = value {
                self.rvalue(e)?;
                return fail(ErrorKind::Type, e.span, "a kernel returns no value");
            }
            self.at(span);
            self.b.return_();
            self.dead = true;
            return Ok(());
        }
        let (ret_ty, ret_ref, flag) = (frame.ret_ty.clone(), frame.ret_ref, frame.flag);
        let at_top = self.regions == frame.base_region && flag.is_none() && frame.ret_object.is_none();
        let result = match (value, &ret_ty) {
            (None, None | Some(Ty::Void)) => None,
            (None, Some(t)) => {
                let text = format!("expected a value of type `{}` to return", self.type_name(t));
                return fail(ErrorKind::Type, span, text);
            }
            (Some(e), Some(Ty::Void)) => {
                let x = self.expr(e)?;
                if *x.ty() != Ty::Void {
                    return fail(ErrorKind::Type, e.span, "a `void` function returns no value");
                }
                None
            }
            (Some(e), _) if ret_ref => {
                let x = self.expr(e)?;
                if !at_top {
                    let text = "a reference can only be returned at the end of a function";
                    return fail(ErrorKind::Unsupported, span, text);
                }
                Some(x)
            }
            (Some(e), Some(t)) => Some(ExprResult::Value(self.init_value(t, e)?)),
            (Some(e), None) => {
                let v = self.rvalue(e)?;
                Some(ExprResult::Value(v))
            }
        };
        self.at(span);
        if at_top {
            if let Some(f) = self.frames.last_mut() {
                f.direct = Some(result.unwrap_or(ExprResult::Value(value::RValue::void())));
            }
            self.dead = true;
            return Ok(());
        }
        if let Some(x) = result {
            let v = self.rvalue_of(x, span)?;
            let storage = self.return_object(&v.ty.clone(), span)?;
            let v = self.convert(v, &storage.ty, false, span)?;
            self.store_init(&storage, &v, span)?;
        }
        if let Some(flag) = flag {
            let yes = self.b.bool(true);
            self.b.set(flag, yes);
        }
        if self.in_loop() {
            self.b.break_();
        }
        self.dead = true;
        Ok(())
    }

    /// The object that holds the result of a function with several returns.
    fn return_object(&mut self, ty: &Ty, span: Span) -> LowerResult<LValue> {
        if let Some(p) = self.frames.last().and_then(|f| f.ret_object.clone()) {
            return Ok(p);
        }
        if *ty == Ty::Void {
            return Ok(LValue::value(value::RValue::void()));
        }
        let storage = self.temporary(ty, "result", span)?;
        if let Some(f) = self.frames.last_mut() {
            f.ret_object = Some(storage.clone());
            f.ret_ty.get_or_insert_with(|| ty.clone());
        }
        Ok(storage)
    }

    /// `break` or `continue`
    pub(super) fn jump(&mut self, is_break: bool, span: Span) -> LowerResult<()> {
        if self.const_mode > 0 && self.const_loops > 0 {
            self.const_jump = Some(is_break);
            self.dead = true;
            return Ok(());
        }
        if !self.in_loop() {
            let word = if is_break { "break" } else { "continue" };
            return fail(ErrorKind::Syntax, span, format!("`{word}` outside of a loop"));
        }
        self.at(span);
        match self.open_loops.last() {
            Some(OpenLoop::Switch { continue_flag }) if !is_break => {
                let Some(flag) = *continue_flag else {
                    return fail(ErrorKind::Syntax, span, "`continue` outside of a loop");
                };
                let yes = self.b.bool(true);
                self.b.set(flag, yes);
                self.b.break_();
            }
            _ if is_break => self.b.break_(),
            _ => self.b.continue_(),
        }
        self.dead = true;
        Ok(())
    }
}

/// The statements directly inside a statement.
fn children(s: &Stmt) -> Vec<&Stmt> {
    match &s.kind {
        StmtKind::If { then, els, .. } => {
            let mut out = vec![&**then];
            out.extend(els.as_deref());
            out
        }
        StmtKind::For { body, .. }
        | StmtKind::ForEach(_, _, body)
        | StmtKind::While(_, body)
        | StmtKind::DoWhile(body, _) => vec![body],
        StmtKind::Switch(_, b) | StmtKind::Block(b) => b.stmts.iter().collect(),
        _ => Vec::new(),
    }
}

/// Whether the statement contains a `return`.
pub(super) fn contains_return(s: &Stmt) -> bool {
    matches!(s.kind, StmtKind::Return(_)) || children(s).into_iter().any(contains_return)
}

/// Whether the statement contains a `break` of the switch or loop around it.
pub(super) fn contains_break(s: &Stmt) -> bool {
    match s.kind {
        StmtKind::Break => true,
        StmtKind::For { .. }
        | StmtKind::ForEach(..)
        | StmtKind::While(..)
        | StmtKind::DoWhile(..)
        | StmtKind::Switch(..) => false,
        _ => children(s).into_iter().any(contains_break),
    }
}

/// Whether the statement contains a `continue` of the loop around it.
pub(super) fn contains_continue(s: &Stmt) -> bool {
    match s.kind {
        StmtKind::Continue => true,
        StmtKind::For { .. } | StmtKind::ForEach(..) | StmtKind::While(..) | StmtKind::DoWhile(..) => false,
        _ => children(s).into_iter().any(contains_continue),
    }
}

/// Whether every path through the statement returns.
pub(super) fn always_returns(s: &Stmt) -> bool {
    match &s.kind {
        StmtKind::Return(_) => true,
        StmtKind::Block(b) => b.stmts.iter().any(always_returns),
        StmtKind::If { then, els: Some(els), .. } => always_returns(then) && always_returns(els),
        _ => false,
    }
}

/// Whether returns nest so that the rest of a function can be put into `else` branches, without a flag.
fn structured(list: &[Stmt]) -> bool {
    let Some(i) = list.iter().position(contains_return) else { return true };
    let rest = &list[i + 1..];
    match &list[i].kind {
        StmtKind::Return(_) => true,
        StmtKind::Block(b) => (rest.is_empty() || always_returns(&list[i])) && structured(&b.stmts),
        StmtKind::If { then, els, .. } => {
            let inner = structured_one(then) && els.as_deref().is_none_or(structured_one);
            let falls = always_returns(then)
                && els.as_deref().is_none_or(|e| !contains_return(e) || always_returns(e));
            inner && (rest.is_empty() || (falls && structured(rest)))
        }
        _ => false,
    }
}

fn structured_one(s: &Stmt) -> bool {
    match &s.kind {
        StmtKind::Block(b) => structured(&b.stmts),
        _ => structured(std::slice::from_ref(s)),
    }
}

//! `switch`: chains of tests where groups end in jumps, one-trip loops where they fall through.

use super::control::{always_returns, contains_break, contains_continue};
use super::value::RValue;
use super::*;
use crate::ir::{BinaryOp, CmpOp, Scalar, UnaryOp};

impl<'a> Lower<'a> {
    pub(super) fn switch(&mut self, value: &'a Expr, body: &'a Block, span: Span) -> LowerResult<()> {
        let v = self.rvalue(value)?;
        let Some(s) = v.ty.scalar().filter(|s| !s.is_float() && !v.ty.is_vector()) else {
            let text = format!("`switch` needs an integer, found `{}`", self.type_name(&v.ty));
            return fail(ErrorKind::Type, value.span, text);
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
                                    ErrorKind::Constant,
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
                    None => return fail(ErrorKind::Syntax, st.span, "a statement before the first `case`"),
                },
            }
        }
        let mut all: Vec<i64> = Vec::new();
        for (i, at) in groups.iter().flat_map(|g| &g.values) {
            if all.contains(i) {
                return fail(
                    ErrorKind::Constant,
                    *at,
                    format!("the value {i} appears twice in this `switch`"),
                );
            }
            all.push(*i);
        }
        if groups.iter().filter(|g| g.default).count() > 1 {
            return fail(ErrorKind::Syntax, span, "a `switch` has one `default` at most");
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
        self.switch_loop(&v, &groups)
    }

    /// The groups that a known value runs, up to the first `break`.
    fn known_switch(&mut self, known: i64, groups: &[Group<'a>]) -> LowerResult<()> {
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
            self.begin_loop(OpenLoop::Switch { continue_flag: flag });
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
    fn switch_chain(&mut self, v: &RValue, groups: &[Group<'a>], depth: usize) {
        let mut order: Vec<&Group<'a>> = groups.iter().filter(|g| !g.default).collect();
        order.extend(groups.iter().filter(|g| g.default));
        let Some(g) = order.get(depth) else { return };
        if g.default {
            // No other group matches, so `default` and its labels need no test.
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
                // The closing `break` may be inside the braces of the group.
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

    fn matches(&mut self, v: &RValue, g: &Group<'a>) -> crate::ir::ValueId {
        let x = self.ir(v);
        let s = v.ty.scalar().unwrap_or(Scalar::I32);
        let mut test = None;
        for (i, _) in &g.values {
            let c = self.ir(&RValue::int(s, *i));
            let eq = self.b.compare(CmpOp::Eq, x, c);
            test = Some(match test {
                None => eq,
                Some(t) => self.b.binary(BinaryOp::Or, t, eq),
            });
        }
        test.unwrap_or_else(|| self.b.bool(false))
    }

    fn continue_flag(&mut self, mut stmts: impl Iterator<Item = &'a Stmt>) -> Option<VarId> {
        let outer = self.frames.last().is_some_and(|f| self.open_loops.len() > f.base_loops);
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
    fn switch_loop(&mut self, v: &RValue, groups: &[Group<'a>]) -> LowerResult<()> {
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
        let none = match any {
            Some(a) => self.b.unary(UnaryOp::Not, a),
            None => self.b.bool(true),
        };
        self.begin_loop(OpenLoop::Switch { continue_flag: flag });
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

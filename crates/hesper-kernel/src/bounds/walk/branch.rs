//! Branches: which threads take each side, the facts of each side, and the join of both.

use super::super::expr::{Expr, Facts, Id, Range};
use super::*;

impl Walk<'_> {
    pub(super) fn branch(
        &mut self,
        within: BlockId,
        (cond, then, els): (ValueId, BlockId, BlockId),
        mut state: State,
    ) -> Flow {
        let cond = self.integer(cond);
        match self.exprs.range(&state.facts, cond).single() {
            Some(0) => return self.uniform_branch(els, state),
            Some(_) => return self.uniform_branch(then, state),
            None => {}
        }
        let depth = self.path.len();
        let leaves =
            |block: BlockId| matches!(self.kernel.block(block).insts[..], [Inst { op: Op::Break, .. }]);
        let guard = self.loop_guard(within).filter(|_| leaves(then) != leaves(els));
        let continues = leaves(els);
        let bounded = guard.and_then(|(count, first_symbol)| {
            let most = self.bound_iterations(&state.facts, (count, first_symbol), cond, continues)?;
            // Cannot fail: iteration 0 is in both ranges.
            self.exprs.learn(&mut state.facts, count, Range { lo: 0, hi: most })?;
            Some((count, most))
        });
        let literals = [true, false].map(|holds| self.literal(&state.facts, cond, holds));
        if let Some((count, first_symbol)) = guard
            && !self.is_monotonic(&literals[usize::from(!continues)], count, first_symbol)
            && let Some(innermost) = self.loops.last_mut()
        {
            innermost.bounded = false;
        }
        let mut sides = Vec::with_capacity(2);
        let mut exits = Exits::default();
        for (block, literal) in [then, els].into_iter().zip(&literals) {
            let mut own = state.clone();
            if self.exprs.assume(&mut own.facts, cond, literal.holds).is_none() {
                // No thread takes this side.
                sides.push((None, Exits::default(), Vec::new()));
                continue;
            }
            if let Some((count, most)) = bounded.filter(|_| literal.holds == continues) {
                let _ = self.exprs.learn(&mut own.facts, count, Range { lo: 0, hi: most - 1 });
            }
            self.path.push(literal.clone());
            let (end, now) = self.block(block, own)?;
            let path = self.path.split_off(depth);
            exits = exits.or(now);
            sides.push((end, now, path));
        }
        let (Some((els_end, els_exits, els_path)), Some((then_end, then_exits, then_path))) =
            (sides.pop(), sides.pop())
        else {
            return Ok((None, exits));
        };
        match (then_end, els_end) {
            (Some(then_end), Some(els_end)) => {
                if then_exits.any() || els_exits.any() {
                    self.path.push(Literal::UNKNOWN);
                }
                Ok((Some(self.join(Some(cond), then_end, els_end)), exits))
            }
            // Only threads of one side go on.
            (Some(end), None) => {
                self.path.extend(then_path);
                Ok((Some(end), exits))
            }
            (None, Some(end)) => {
                self.path.extend(els_path);
                Ok((Some(end), exits))
            }
            (None, None) => Ok((None, exits)),
        }
    }

    /// Walks the side of a branch that all threads take.
    fn uniform_branch(&mut self, block: BlockId, state: State) -> Flow {
        let (end, exits) = self.block(block, state)?;
        if end.is_some() && exits.any() {
            self.path.push(Literal::UNKNOWN);
        }
        Ok((end, exits))
    }

    /// Joins the states of two sides; the first was taken if `cond` holds.
    pub(super) fn join(&mut self, cond: Option<Id>, a: State, b: State) -> State {
        let facts = a.facts.common(&b.facts, &mut self.exprs);
        let mut vars = Vec::with_capacity(a.vars.len());
        for (x, y) in a.vars.iter().zip(&b.vars) {
            let val = match (*x, *y) {
                (x, y) if x == y => x,
                (Value::Pointer(root, x), Value::Pointer(other, y)) if root == other => {
                    Value::Pointer(root, self.join_ids(None, (&a.facts, x), (&b.facts, y)))
                }
                (Value::Integers(x), Value::Integers(y)) => {
                    let mut parts = [None; 4];
                    for (part, (x, y)) in parts.iter_mut().zip(x.into_iter().zip(y)) {
                        if let (Some(x), Some(y)) = (x, y) {
                            *part = Some(self.join_ids(cond, (&a.facts, x), (&b.facts, y)));
                        }
                    }
                    Value::Integers(parts)
                }
                _ => Value::UnknownPointer,
            };
            vars.push(val);
        }
        State { vars, facts }
    }

    pub(super) fn join_ids(&mut self, cond: Option<Id>, (at, x): (&Facts, Id), (bt, y): (&Facts, Id)) -> Id {
        if x == y {
            return x;
        }
        let (a, b) = (self.exprs.range(at, x), self.exprs.range(bt, y));
        if let Some(cond) = cond.filter(|_| Range::BOOL.contains(a) && Range::BOOL.contains(b)) {
            // Short-circuit `a && b` and `a || b`.
            let facts = Facts::default();
            let inner = if let Expr::Not(inner) = self.exprs.get(cond) { Some(inner) } else { None };
            if y == cond || b == Range::one(0) {
                return self.exprs.and(&facts, cond, x);
            }
            if Some(y) == inner {
                return self.exprs.or(&facts, y, x);
            }
            if a == Range::one(1) {
                return self.exprs.or(&facts, cond, y);
            }
        }
        self.exprs.opaque(a.hull(b))
    }

    pub(super) fn literal(&mut self, facts: &Facts, cond: Id, holds: bool) -> Literal {
        Literal { cond: Some(cond), holds, constraints: self.constraints(facts, cond, holds) }
    }

    fn constraints(&mut self, facts: &Facts, cond: Id, holds: bool) -> Option<Vec<Constraint>> {
        match self.exprs.get(cond) {
            Expr::Not(a) => self.constraints(facts, a, !holds),
            Expr::And(a, b) if holds => {
                let mut both = self.constraints(facts, a, true)?;
                both.extend(self.constraints(facts, b, true)?);
                Some(both)
            }
            Expr::Or(a, b) if !holds => {
                let mut both = self.constraints(facts, a, false)?;
                both.extend(self.constraints(facts, b, false)?);
                Some(both)
            }
            Expr::Compare(op, a, b) => {
                let (a, b) = (self.exprs.linear(facts, a)?, self.exprs.linear(facts, b)?);
                let difference = a.minus(&b)?;
                let (min, max) = match if holds { op } else { op.negated() } {
                    CmpOp::Lt => (-NO_LIMIT, -1),
                    CmpOp::Le => (-NO_LIMIT, 0),
                    CmpOp::Gt => (1, NO_LIMIT),
                    CmpOp::Ge => (0, NO_LIMIT),
                    CmpOp::Eq => (0, 0),
                    CmpOp::Ne => return None,
                };
                Some(vec![Constraint { sum: difference, min, max }])
            }
            _ => None,
        }
    }
}

//! Loops: unrolled, or walked for all iterations at once with a bound on their number.

use super::super::expr::{Arith, Expr, Facts, Id, Range, SymbolKind};
use super::*;

/// Iterations of a loop that are unrolled, and instructions that they may take.
const MAX_ITERATIONS: usize = 9;
const MAX_UNROLLED: usize = 3_000;

impl Walk<'_> {
    pub(super) fn walk_loop(&mut self, body: BlockId, continuing: BlockId, state: State) -> Flow {
        let (depth, stores) = (self.path.len(), self.stores.len());
        let unrolled = self.unroll(body, continuing, state.clone())?;
        let (breaks, exits) = match unrolled {
            Some(done) => done,
            None => {
                self.path.truncate(depth);
                self.stores.truncate(stores);
                self.generalise(body, continuing, state)?
            }
        };
        self.path.truncate(depth);
        let exits = Exits { iteration: false, ..exits };
        if exits.returned {
            self.path.push(Literal::UNKNOWN);
        }
        let end = breaks.into_iter().reduce(|a, b| self.join(None, a, b));
        Ok((end, exits))
    }

    /// Walks one iteration; gives the state of threads that begin the next one.
    fn walk_iteration(
        &mut self,
        body: BlockId,
        continuing: BlockId,
        state: State,
    ) -> Result<(Option<State>, Exits), TooManySteps> {
        let (end, exits) = self.block(body, state)?;
        let mut ends: Vec<State> = end.into_iter().collect();
        if let Some(innermost) = self.loops.last_mut() {
            ends.append(&mut innermost.continues);
        }
        match ends.into_iter().reduce(|a, b| self.join(None, a, b)) {
            None => Ok((None, exits)),
            Some(end) => {
                let (end, later) = self.block(continuing, end)?;
                Ok((end, exits.or(later)))
            }
        }
    }

    /// Unrolls a loop; `None` if it is not proven to end after a few iterations.
    #[allow(clippy::type_complexity, reason = "used once")]
    fn unroll(
        &mut self,
        body: BlockId,
        continuing: BlockId,
        mut state: State,
    ) -> Result<Option<(Vec<State>, Exits)>, TooManySteps> {
        let begun = self.steps;
        let mut exits = Exits::default();
        self.loops.push(OpenLoop::default());
        for _ in 0..MAX_ITERATIONS {
            let (end, now) = self.walk_iteration(body, continuing, state)?;
            exits = exits.or(now);
            match end {
                None => {
                    let done = self.loops.pop().unwrap_or_default();
                    return Ok(Some((done.breaks, exits)));
                }
                Some(end) => state = end,
            }
            if self.steps - begun > MAX_UNROLLED {
                break;
            }
        }
        self.loops.pop();
        Ok(None)
    }

    /// Walks a loop for all its iterations at once.
    fn generalise(
        &mut self,
        body: BlockId,
        continuing: BlockId,
        state: State,
    ) -> Result<(Vec<State>, Exits), TooManySteps> {
        let (depth, stores) = (self.path.len(), self.stores.len());
        let mut set = vec![false; self.kernel.vars.len()];
        set_in(self.kernel, body, &mut set);
        set_in(self.kernel, continuing, &mut set);
        // First with unknown variables, to see how an iteration changes them.
        let mut entry = state.clone();
        for (at, _) in set.iter().enumerate().filter(|(_, set)| **set) {
            entry.vars[at] = match state.vars[at] {
                Value::Pointer(root, _) => Value::Pointer(root, self.exprs.opaque(Range::of(Scalar::I64))),
                _ => self.unknown(self.kernel.vars[at].ty),
            };
        }
        let recording = std::mem::replace(&mut self.recording, false);
        self.loops.push(OpenLoop::default());
        let end = self.walk_iteration(body, continuing, entry.clone());
        self.loops.pop();
        self.recording = recording;
        self.path.truncate(depth);
        self.stores.truncate(stores);
        let (end, _) = end?;
        // Then with the bounds that follow from it.
        let first_symbol = self.exprs.symbols.len() as u32 + 1;
        let most = Range { lo: 0, hi: 1 << 62 };
        let count = self.exprs.symbol(most, SymbolKind::Iteration(None));
        let mut again = state.clone();
        for (at, _) in set.iter().enumerate().filter(|(_, set)| **set) {
            let Some(end) = &end else { break };
            again.vars[at] = self.phi(at, count, &state, &entry, end);
        }
        self.loops.push(OpenLoop {
            count: Some(count),
            first_symbol,
            body: Some(body),
            ..OpenLoop::default()
        });
        let outcome = self.walk_iteration(body, continuing, again);
        let done = self.loops.pop().unwrap_or_default();
        let (_, exits) = outcome?;
        // Every iteration up to the bound is performed only if the condition at the head alone ends the loop.
        if !done.bounded || done.breaks.len() != 1 || exits.returned {
            self.stores.truncate(stores);
        }
        Ok((done.breaks, exits))
    }

    /// The value of a variable at the beginning of any iteration.
    fn phi(&mut self, at: usize, count: Id, before: &State, entry: &State, end: &State) -> Value {
        match (before.vars[at], entry.vars[at], end.vars[at]) {
            (Value::Pointer(root, start), Value::Pointer(_, own), Value::Pointer(other, next))
                if root == other =>
            {
                let scalar = Scalar::I64;
                Value::Pointer(root, self.phi_part(scalar, count, (before, start), own, (end, next)))
            }
            (Value::Integers(start), Value::Integers(own), Value::Integers(next)) => {
                let Some(scalar) = self.kernel.vars[at].ty.scalar() else { return Value::UnknownPointer };
                let mut parts = [None; 4];
                for (i, part) in parts.iter_mut().enumerate() {
                    if let (Some(start), Some(own), Some(next)) = (start[i], own[i], next[i]) {
                        *part = Some(self.phi_part(scalar, count, (before, start), own, (end, next)));
                    }
                }
                Value::Integers(parts)
            }
            _ => self.unknown(self.kernel.vars[at].ty),
        }
    }

    fn phi_part(
        &mut self,
        scalar: Scalar,
        count: Id,
        (before, start): (&State, Id),
        own: Id,
        (end, next): (&State, Id),
    ) -> Id {
        if next == own {
            return start;
        }
        let first = self.exprs.range(&before.facts, start);
        let last = self.exprs.range(&end.facts, next);
        if let Expr::Binary(op, s, a, b) = self.exprs.get(next)
            && s == scalar
            && a == own
        {
            let by = self.exprs.range(&Facts::default(), b);
            match (op, by.single()) {
                (Arith::Add, Some(step)) => return self.exprs.induction(start, count, step, scalar),
                (Arith::Sub, Some(step)) => return self.exprs.induction(start, count, -step, scalar),
                // The variable never increases.
                (Arith::Shr | Arith::Div, _) if by.lo >= 0 && first.lo >= 0 => {
                    return self.exprs.opaque(Range { lo: 0, hi: first.hi });
                }
                _ => {}
            }
        }
        self.exprs.opaque(first.hull(last))
    }

    /// The iteration symbol and first symbol of the innermost loop, if the block is its body and every
    /// iteration reaches this point.
    pub(super) fn loop_guard(&self, block: BlockId) -> Option<(Id, u32)> {
        let innermost = self.loops.last()?;
        let first = innermost.breaks.is_empty() && innermost.continues.is_empty();
        let count = innermost.count.filter(|_| first && innermost.body == Some(block))?;
        Some((count, innermost.first_symbol))
    }

    /// Whether a condition that holds in an iteration holds in all earlier ones.
    pub(super) fn is_monotonic(&self, literal: &Literal, count: Id, first_symbol: u32) -> bool {
        literal.constraints.iter().flatten().all(|Constraint { sum, min, max }| {
            sum.terms.iter().all(|&(atom, factor)| {
                if atom == count {
                    (*max >= NO_LIMIT || factor >= 0) && (*min <= -NO_LIMIT || factor <= 0)
                } else {
                    self.exprs.newest(atom) < first_symbol
                }
            })
        })
    }

    /// Bounds the iterations of a loop that continues while `cond`, at the head of its body, holds or does
    /// not.
    pub(super) fn bound_iterations(
        &mut self,
        facts: &Facts,
        (count, first_symbol): (Id, u32),
        cond: Id,
        holds: bool,
    ) -> Option<i128> {
        let mut open = vec![(cond, holds)];
        let mut most: Option<i128> = None;
        while let Some((cond, holds)) = open.pop() {
            match self.exprs.get(cond) {
                Expr::Not(a) => open.push((a, !holds)),
                Expr::And(a, b) if holds => open.extend([(a, true), (b, true)]),
                Expr::Or(a, b) if !holds => open.extend([(a, false), (b, false)]),
                Expr::Compare(op, a, b) => {
                    let op = if holds { op } else { op.negated() };
                    for (op, a, b) in [(op, a, b), (op.swapped(), b, a)] {
                        if let Some(found) = self.trip_count(facts, count, first_symbol, op, a, b) {
                            most = Some(most.map_or(found, |known| known.min(found)));
                        }
                    }
                }
                _ => {}
            }
        }
        let most = most?.max(1);
        let at = self.exprs.as_symbol(count)?;
        self.exprs.symbols[at as usize].kind = SymbolKind::Iteration(Some(most));
        if let Some(innermost) = self.loops.last_mut() {
            innermost.bounded = true;
        }
        Some(most)
    }

    /// The most iterations that begin with `a op b`, `a` being an induction variable and `b` a loop
    /// invariant.
    fn trip_count(
        &mut self,
        facts: &Facts,
        count: Id,
        first_symbol: u32,
        op: CmpOp,
        a: Id,
        b: Id,
    ) -> Option<i128> {
        if self.exprs.newest(b) >= first_symbol {
            return None;
        }
        let (counter, converted) = match self.exprs.get(a) {
            Expr::Convert(_, inner) => (self.exprs.get(inner), true),
            other => (other, false),
        };
        let Expr::Induction { start, count: own, step, scalar } = counter else { return None };
        let first = self.exprs.range(facts, start);
        if own != count || (converted && (first.lo < 0 || step < 0)) {
            return None;
        }
        let (end, all) = (self.exprs.range(facts, b), Range::of(scalar));
        match (op, step) {
            (CmpOp::Lt | CmpOp::Le, 1..) => {
                let end = end.hi + i128::from(op == CmpOp::Le);
                // It reaches the end before it wraps.
                (end - 1 + step <= all.hi).then(|| (end - first.lo + step - 1).div_euclid(step))
            }
            (CmpOp::Gt | CmpOp::Ge, ..=-1) => {
                let end = end.lo - i128::from(op == CmpOp::Ge);
                let step = -step;
                (end + 1 - step >= all.lo).then(|| (first.hi - end + step - 1).div_euclid(step))
            }
            _ => None,
        }
    }
}

/// The variables that a block sets.
fn set_in(kernel: &Kernel, block: BlockId, set: &mut [bool]) {
    for inst in &kernel.block(block).insts {
        match inst.op {
            Op::Set(var, _) => set[var.index()] = true,
            Op::If { then, els, .. } => {
                set_in(kernel, then, set);
                set_in(kernel, els, set);
            }
            Op::Loop { body, continuing } => {
                set_in(kernel, body, set);
                set_in(kernel, continuing, set);
            }
            _ => {}
        }
    }
}

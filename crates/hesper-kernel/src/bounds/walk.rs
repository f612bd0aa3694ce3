//! Walks a kernel as one thread that stands for all of them, and judges each access on the way.
//!
//! Variables hold [expressions](super::expr); conditions that are not decided become facts of their branches. A loop is
//! followed for a few iterations; one that goes on longer is walked twice for all its iterations at once: first to see how
//! its variables change, then with counters as functions of the iteration. What is not understood is a symbol without
//! bounds, so a proof never depends on it.

use std::collections::HashMap;

use super::expr::{Arith, Expr, Exprs, Facts, Id, Kind, Linear, Range};
use super::{ArgFacts, Numbers};
use crate::ir::*;
use crate::launch::{Launch, SIMD_WIDTH};
use crate::math::scalar;

/// Instructions that a walk may take; kernels that need more are not analysed.
const MAX_STEPS: usize = 40_000;
/// Iterations of a loop that are followed one by one, and instructions that they may take.
const MAX_ITERATIONS: usize = 9;
const MAX_UNROLLED: usize = 3_000;

/// No limit.
const FAR: i128 = i128::MAX / 4;

/// The memory that a pointer leads into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Root {
    Param(u32),
    Table(u32),
    Threadgroup(u32),
    Thread(u32),
}

/// A value of the thread.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Val {
    /// Components; those that are no integers are `None`.
    Parts([Option<Id>; 4]),
    Pointer(Root, Id),
    /// A pointer into one of several objects, or none.
    Lost,
}

/// Where a walk is.
#[derive(Clone)]
struct State {
    vars: Vec<Val>,
    facts: Facts,
}

/// A condition under which a store is performed: it is `so`. `None` for one that is not known.
#[derive(Clone, Debug)]
pub(super) struct Literal {
    pub cond: Option<Id>,
    pub so: bool,
    /// What it says: each sum is at least the first and at most the second number. `None` if it says anything else.
    pub says: Option<Vec<(Linear, i128, i128)>>,
}

impl PartialEq for Literal {
    fn eq(&self, other: &Literal) -> bool {
        // What is not known is equal to nothing.
        self.cond.is_some() && self.cond == other.cond && self.so == other.so
    }
}

/// A store that every thread performs where the literals hold.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub param: u32,
    /// The byte offset.
    pub at: Linear,
    pub width: i128,
    pub path: Vec<Literal>,
}

/// Why some threads do not go on.
#[derive(Clone, Copy, Default)]
struct Left {
    /// They left the innermost loop's iteration.
    iteration: bool,
    /// They ended.
    returned: bool,
}

impl Left {
    fn or(self, other: Left) -> Left {
        Left { iteration: self.iteration || other.iteration, returned: self.returned || other.returned }
    }

    fn any(self) -> bool {
        self.iteration || self.returned
    }
}

#[derive(Default)]
struct Loop {
    breaks: Vec<State>,
    continues: Vec<State>,
    /// The symbol of the iteration, and whether a condition at the head of the body bounds it.
    count: Option<Id>,
    bounded: bool,
    /// The first symbol that was made in the loop.
    mark: u32,
    body: Option<BlockId>,
}

/// What a walk found.
pub(super) struct Found {
    pub exprs: Exprs,
    /// By number of the instruction, whether an access is proven; `None` where it is never reached.
    pub proven: Vec<Option<bool>>,
    pub stores: Vec<Store>,
    /// Parameters that are read, or that atomics touch.
    pub read: Vec<bool>,
}

pub(super) struct Walk<'k> {
    kernel: &'k Kernel,
    launch: Option<Launch>,
    args: &'k [ArgFacts<'k>],
    numbers: Numbers,
    exprs: Exprs,
    vals: Vec<Val>,
    builtins: HashMap<(Builtin, u8), Id>,
    proven: Vec<Option<bool>>,
    /// Whether accesses are judged: not on the first walk through a loop.
    judging: bool,
    stores: Vec<Store>,
    read: Vec<bool>,
    path: Vec<Literal>,
    loops: Vec<Loop>,
    steps: usize,
}

/// Too many steps.
struct Exhausted;

type Flow = Result<(Option<State>, Left), Exhausted>;

/// Walks a kernel; `None` if that takes too long. Without a launch, for all launches.
pub(super) fn walk<'k>(
    kernel: &'k Kernel,
    launch: Option<Launch>,
    args: &'k [ArgFacts<'k>],
) -> Option<Found> {
    let mut walk = Walk {
        kernel,
        launch,
        args,
        numbers: Numbers::new(kernel),
        exprs: Exprs::default(),
        vals: vec![Val::Lost; kernel.values.len()],
        builtins: HashMap::new(),
        proven: vec![None; kernel.inst_count()],
        judging: true,
        stores: Vec::new(),
        read: vec![false; kernel.params.len()],
        path: Vec::new(),
        loops: Vec::new(),
        steps: 0,
    };
    let facts = Facts::default();
    let vars = kernel.vars.iter().map(|var| walk.zero(var.ty)).collect();
    walk.block(kernel.body, State { vars, facts }).ok()?;
    Some(Found { exprs: walk.exprs, proven: walk.proven, stores: walk.stores, read: walk.read })
}

impl Walk<'_> {
    /// What a variable holds before it is set.
    fn zero(&mut self, ty: Type) -> Val {
        if ty.is_ptr() {
            return Val::Lost;
        }
        let zero = self.exprs.constant(0);
        Val::Parts([is_integer(ty).then_some(zero); 4])
    }

    /// A value of which nothing is known but its type.
    fn unknown(&mut self, ty: Type) -> Val {
        if ty.is_ptr() {
            return Val::Lost;
        }
        let mut parts = [None; 4];
        if let Some(s) = ty.scalar().filter(|_| is_integer(ty)) {
            for part in &mut parts[..usize::from(ty.lanes())] {
                *part = Some(self.exprs.symbol(Range::of(s), Kind::Other));
            }
        }
        Val::Parts(parts)
    }

    fn block(&mut self, id: BlockId, mut state: State) -> Flow {
        let kernel = self.kernel;
        let mut left = Left::default();
        for (index, inst) in kernel.block(id).insts.iter().enumerate() {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Err(Exhausted);
            }
            match inst.op {
                Op::If { cond, then, els } => {
                    let (next, now) = self.branch(id, (cond, then, els), state)?;
                    left = left.or(now);
                    match next {
                        Some(next) => state = next,
                        None => return Ok((None, left)),
                    }
                }
                Op::Loop { body, continuing } => {
                    let (next, now) = self.looping(body, continuing, state)?;
                    left = left.or(now);
                    match next {
                        Some(next) => state = next,
                        None => return Ok((None, left)),
                    }
                }
                Op::Break | Op::Continue => {
                    if let Some(innermost) = self.loops.last_mut() {
                        let to = if inst.op == Op::Break {
                            &mut innermost.breaks
                        } else {
                            &mut innermost.continues
                        };
                        to.push(state);
                    }
                    return Ok((None, Left { iteration: true, ..left }));
                }
                Op::Return => return Ok((None, Left { returned: true, ..left })),
                _ => self.instruction(inst, self.numbers.of(id, index), &mut state),
            }
        }
        Ok((Some(state), left))
    }

    fn branch(
        &mut self,
        within: BlockId,
        (cond, then, els): (ValueId, BlockId, BlockId),
        mut state: State,
    ) -> Flow {
        let cond = self.integer(cond);
        match self.exprs.range(&state.facts, cond).single() {
            Some(0) => return self.rest(els, state),
            Some(_) => return self.rest(then, state),
            None => {}
        }
        let depth = self.path.len();
        let leaves =
            |block: BlockId| matches!(self.kernel.block(block).insts[..], [Inst { op: Op::Break, .. }]);
        let guard = self.heads(within).filter(|_| leaves(then) != leaves(els));
        let goes_on = leaves(els);
        let bounded = guard.and_then(|(count, mark)| {
            let most = self.most_iterations(&state.facts, (count, mark), cond, goes_on)?;
            // Contradicts nothing: iteration 0 is among them.
            self.exprs.learn(&mut state.facts, count, Range { lo: 0, hi: most })?;
            Some((count, most))
        });
        let literals = [true, false].map(|so| self.literal(&state.facts, cond, so));
        if let Some((count, mark)) = guard
            && !self.ends_for_good(&literals[usize::from(!goes_on)], count, mark)
            && let Some(innermost) = self.loops.last_mut()
        {
            innermost.bounded = false;
        }
        let mut sides = Vec::with_capacity(2);
        let mut left = Left::default();
        for (block, literal) in [then, els].into_iter().zip(&literals) {
            let mut own = state.clone();
            if self.exprs.assume(&mut own.facts, cond, literal.so).is_none() {
                // No thread comes here.
                sides.push((None, Left::default(), Vec::new()));
                continue;
            }
            if let Some((count, most)) = bounded.filter(|_| literal.so == goes_on) {
                let _ = self.exprs.learn(&mut own.facts, count, Range { lo: 0, hi: most - 1 });
            }
            self.path.push(literal.clone());
            let (end, now) = self.block(block, own)?;
            let path = self.path.split_off(depth);
            left = left.or(now);
            sides.push((end, now, path));
        }
        let (Some((els_end, els_left, els_path)), Some((then_end, then_left, then_path))) =
            (sides.pop(), sides.pop())
        else {
            return Ok((None, left));
        };
        match (then_end, els_end) {
            (Some(then_end), Some(els_end)) => {
                if then_left.any() || els_left.any() {
                    self.path.push(Literal { cond: None, so: true, says: None });
                }
                Ok((Some(self.join(Some(cond), then_end, els_end)), left))
            }
            // The others are those of one side.
            (Some(end), None) => {
                self.path.extend(then_path);
                Ok((Some(end), left))
            }
            (None, Some(end)) => {
                self.path.extend(els_path);
                Ok((Some(end), left))
            }
            (None, None) => Ok((None, left)),
        }
    }

    /// A side of a branch that all threads take.
    fn rest(&mut self, block: BlockId, state: State) -> Flow {
        let (end, left) = self.block(block, state)?;
        if end.is_some() && left.any() {
            self.path.push(Literal { cond: None, so: true, says: None });
        }
        Ok((end, left))
    }

    /// Two states of threads that meet; under the condition it was the first, if there is one.
    fn join(&mut self, cond: Option<Id>, a: State, b: State) -> State {
        let facts = a.facts.common(&b.facts, &mut self.exprs);
        let mut vars = Vec::with_capacity(a.vars.len());
        for (x, y) in a.vars.iter().zip(&b.vars) {
            let val = match (*x, *y) {
                (x, y) if x == y => x,
                (Val::Pointer(root, x), Val::Pointer(other, y)) if root == other => {
                    Val::Pointer(root, self.joined(None, (&a.facts, x), (&b.facts, y)))
                }
                (Val::Parts(x), Val::Parts(y)) => {
                    let mut parts = [None; 4];
                    for (part, (x, y)) in parts.iter_mut().zip(x.into_iter().zip(y)) {
                        if let (Some(x), Some(y)) = (x, y) {
                            *part = Some(self.joined(cond, (&a.facts, x), (&b.facts, y)));
                        }
                    }
                    Val::Parts(parts)
                }
                _ => Val::Lost,
            };
            vars.push(val);
        }
        State { vars, facts }
    }

    fn joined(&mut self, cond: Option<Id>, (at, x): (&Facts, Id), (bt, y): (&Facts, Id)) -> Id {
        if x == y {
            return x;
        }
        let (a, b) = (self.exprs.range(at, x), self.exprs.range(bt, y));
        if let Some(cond) = cond.filter(|_| Range::BOOL.holds(a) && Range::BOOL.holds(b)) {
            // `a && b` and `a || b` whose second operand is not always computed.
            let facts = Facts::default();
            let inner = if let Expr::Not(inner) = self.exprs.get(cond) { Some(inner) } else { None };
            if y == cond || b == Range::one(0) {
                return self.exprs.both(&facts, cond, x);
            }
            if Some(y) == inner {
                return self.exprs.either(&facts, y, x);
            }
            if a == Range::one(1) {
                return self.exprs.either(&facts, cond, y);
            }
        }
        self.exprs.symbol(a.hull(b), Kind::Other)
    }

    // ---- Loops ----

    fn looping(&mut self, body: BlockId, continuing: BlockId, state: State) -> Flow {
        let (depth, stores) = (self.path.len(), self.stores.len());
        let unrolled = self.unrolled(body, continuing, state.clone())?;
        let (breaks, left) = match unrolled {
            Some(done) => done,
            None => {
                self.path.truncate(depth);
                self.stores.truncate(stores);
                self.at_once(body, continuing, state)?
            }
        };
        self.path.truncate(depth);
        let left = Left { iteration: false, ..left };
        if left.returned {
            self.path.push(Literal { cond: None, so: true, says: None });
        }
        let end = breaks.into_iter().reduce(|a, b| self.join(None, a, b));
        Ok((end, left))
    }

    /// One iteration: the states at its end that go round again.
    fn iteration(
        &mut self,
        body: BlockId,
        continuing: BlockId,
        state: State,
    ) -> Result<(Option<State>, Left), Exhausted> {
        let (end, left) = self.block(body, state)?;
        let mut ends: Vec<State> = end.into_iter().collect();
        if let Some(innermost) = self.loops.last_mut() {
            ends.append(&mut innermost.continues);
        }
        match ends.into_iter().reduce(|a, b| self.join(None, a, b)) {
            None => Ok((None, left)),
            Some(end) => {
                let (end, later) = self.block(continuing, end)?;
                Ok((end, left.or(later)))
            }
        }
    }

    /// Follows a loop that ends after a few iterations. `None` if it does not, or may not.
    #[allow(clippy::type_complexity, reason = "used once")]
    fn unrolled(
        &mut self,
        body: BlockId,
        continuing: BlockId,
        mut state: State,
    ) -> Result<Option<(Vec<State>, Left)>, Exhausted> {
        let begun = self.steps;
        let mut left = Left::default();
        self.loops.push(Loop::default());
        for _ in 0..MAX_ITERATIONS {
            let (end, now) = self.iteration(body, continuing, state)?;
            left = left.or(now);
            match end {
                None => {
                    let done = self.loops.pop().unwrap_or_default();
                    return Ok(Some((done.breaks, left)));
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
    fn at_once(
        &mut self,
        body: BlockId,
        continuing: BlockId,
        state: State,
    ) -> Result<(Vec<State>, Left), Exhausted> {
        let (depth, stores) = (self.path.len(), self.stores.len());
        let mut set = vec![false; self.kernel.vars.len()];
        set_in(self.kernel, body, &mut set);
        set_in(self.kernel, continuing, &mut set);
        // First with variables of which nothing is known.
        let mut entry = state.clone();
        for (at, _) in set.iter().enumerate().filter(|(_, set)| **set) {
            entry.vars[at] = match state.vars[at] {
                Val::Pointer(root, _) => {
                    Val::Pointer(root, self.exprs.symbol(Range::of(Scalar::I64), Kind::Other))
                }
                _ => self.unknown(self.kernel.vars[at].ty),
            };
        }
        let judging = std::mem::replace(&mut self.judging, false);
        self.loops.push(Loop::default());
        let end = self.iteration(body, continuing, entry.clone());
        self.loops.pop();
        self.judging = judging;
        self.path.truncate(depth);
        self.stores.truncate(stores);
        let (end, _) = end?;
        // Then with what is known of them.
        let mark = self.exprs.symbols.len() as u32 + 1;
        let most = Range { lo: 0, hi: 1 << 62 };
        let count = self.exprs.symbol(most, Kind::Count(None));
        let mut again = state.clone();
        for (at, _) in set.iter().enumerate().filter(|(_, set)| **set) {
            let Some(end) = &end else { break };
            again.vars[at] = self.phi(at, count, &state, &entry, end);
        }
        self.loops.push(Loop { count: Some(count), mark, body: Some(body), ..Loop::default() });
        let outcome = self.iteration(body, continuing, again);
        let done = self.loops.pop().unwrap_or_default();
        let (_, left) = outcome?;
        // Iterations follow each other as counted only if nothing but the condition at the head ends them.
        if !done.bounded || done.breaks.len() != 1 || left.returned {
            self.stores.truncate(stores);
        }
        Ok((done.breaks, left))
    }

    /// What a variable holds at the beginning of any iteration.
    fn phi(&mut self, at: usize, count: Id, before: &State, entry: &State, end: &State) -> Val {
        match (before.vars[at], entry.vars[at], end.vars[at]) {
            (Val::Pointer(root, start), Val::Pointer(_, own), Val::Pointer(other, next)) if root == other => {
                let scalar = Scalar::I64;
                Val::Pointer(root, self.phi_part(scalar, count, (before, start), own, (end, next)))
            }
            (Val::Parts(start), Val::Parts(own), Val::Parts(next)) => {
                let Some(scalar) = self.kernel.vars[at].ty.scalar() else { return Val::Lost };
                let mut parts = [None; 4];
                for (i, part) in parts.iter_mut().enumerate() {
                    if let (Some(start), Some(own), Some(next)) = (start[i], own[i], next[i]) {
                        *part = Some(self.phi_part(scalar, count, (before, start), own, (end, next)));
                    }
                }
                Val::Parts(parts)
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
                // It never grows.
                (Arith::Shr | Arith::Div, _) if by.lo >= 0 && first.lo >= 0 => {
                    return self.exprs.symbol(Range { lo: 0, hi: first.hi }, Kind::Other);
                }
                _ => {}
            }
        }
        self.exprs.symbol(first.hull(last), Kind::Other)
    }

    /// The count and the first symbol of the loop whose body a block is, where every iteration comes to this place.
    fn heads(&self, block: BlockId) -> Option<(Id, u32)> {
        let innermost = self.loops.last()?;
        let first = innermost.breaks.is_empty() && innermost.continues.is_empty();
        let count = innermost.count.filter(|_| first && innermost.body == Some(block))?;
        Some((count, innermost.mark))
    }

    /// Whether a condition that holds in an iteration holds in all before it.
    fn ends_for_good(&self, literal: &Literal, count: Id, mark: u32) -> bool {
        literal.says.iter().flatten().all(|(sum, least, most)| {
            sum.terms.iter().all(|&(atom, factor)| {
                if atom == count {
                    (*most >= FAR || factor >= 0) && (*least <= -FAR || factor <= 0)
                } else {
                    self.exprs.newest(atom) < mark
                }
            })
        })
    }

    /// How many iterations a loop has at most that goes on where a condition at the head of its body is `so`.
    fn most_iterations(
        &mut self,
        facts: &Facts,
        (count, mark): (Id, u32),
        cond: Id,
        so: bool,
    ) -> Option<i128> {
        let mut open = vec![(cond, so)];
        let mut most: Option<i128> = None;
        while let Some((cond, so)) = open.pop() {
            match self.exprs.get(cond) {
                Expr::Not(a) => open.push((a, !so)),
                Expr::Both(a, b) if so => open.extend([(a, true), (b, true)]),
                Expr::Either(a, b) if !so => open.extend([(a, false), (b, false)]),
                Expr::Compare(op, a, b) => {
                    let op = if so { op } else { negated(op) };
                    for (op, a, b) in [(op, a, b), (mirrored(op), b, a)] {
                        if let Some(found) = self.iterations(facts, count, mark, op, a, b) {
                            most = Some(most.map_or(found, |known| known.min(found)));
                        }
                    }
                }
                _ => {}
            }
        }
        let most = most?.max(1);
        let at = self.exprs.as_symbol(count)?;
        self.exprs.symbols[at as usize].kind = Kind::Count(Some(most));
        if let Some(innermost) = self.loops.last_mut() {
            innermost.bounded = true;
        }
        Some(most)
    }

    /// How many iterations begin with `a op b` at most, where `a` counts them and `b` does not change.
    fn iterations(&mut self, facts: &Facts, count: Id, mark: u32, op: CmpOp, a: Id, b: Id) -> Option<i128> {
        if self.exprs.newest(b) >= mark {
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
                // It reaches the end before it wraps around.
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

    // ---- Conditions ----

    fn literal(&mut self, facts: &Facts, cond: Id, so: bool) -> Literal {
        let says = self.says(facts, cond, so);
        Literal { cond: Some(cond), so, says }
    }

    fn says(&mut self, facts: &Facts, cond: Id, so: bool) -> Option<Vec<(Linear, i128, i128)>> {
        match self.exprs.get(cond) {
            Expr::Not(a) => self.says(facts, a, !so),
            Expr::Both(a, b) if so => {
                let mut both = self.says(facts, a, true)?;
                both.extend(self.says(facts, b, true)?);
                Some(both)
            }
            Expr::Either(a, b) if !so => {
                let mut both = self.says(facts, a, false)?;
                both.extend(self.says(facts, b, false)?);
                Some(both)
            }
            Expr::Compare(op, a, b) => {
                let (a, b) = (self.exprs.linear(facts, a)?, self.exprs.linear(facts, b)?);
                let difference = a.minus(&b)?;
                let (least, most) = match if so { op } else { negated(op) } {
                    CmpOp::Lt => (-FAR, -1),
                    CmpOp::Le => (-FAR, 0),
                    CmpOp::Gt => (1, FAR),
                    CmpOp::Ge => (0, FAR),
                    CmpOp::Eq => (0, 0),
                    CmpOp::Ne => return None,
                };
                Some(vec![(difference, least, most)])
            }
            _ => None,
        }
    }

    // ---- Values ----

    /// A value that is a `Bool` or an integer.
    fn integer(&mut self, v: ValueId) -> Id {
        match self.vals[v.index()] {
            Val::Parts([Some(id), ..]) => id,
            _ => {
                let range = self.kernel.ty(v).scalar().map_or(Range::of(Scalar::U64), Range::of);
                self.exprs.symbol(range, Kind::Other)
            }
        }
    }

    fn parts(&self, v: ValueId) -> [Option<Id>; 4] {
        match self.vals[v.index()] {
            Val::Parts(parts) => parts,
            _ => [None; 4],
        }
    }

    fn instruction(&mut self, inst: &Inst, number: usize, state: &mut State) {
        match inst.op {
            Op::Set(var, value) => {
                state.vars[var.index()] = self.vals[value.index()];
                return;
            }
            Op::Store { ptr, value, align } => {
                let size = self.kernel.ty(value).size();
                self.access(number, ptr, size, align, true, state);
                if self.judging
                    && let Val::Pointer(Root::Param(param), at) = self.vals[ptr.index()]
                    && let Some(at) = self.exprs.linear(&state.facts, at)
                {
                    self.stores.push(Store { param, at, width: i128::from(size), path: self.path.clone() });
                }
                return;
            }
            Op::AtomicStore { ptr, value } => return self.atomic(number, ptr, value, state),
            _ => {}
        }
        let Some(result) = inst.result else { return };
        let ty = self.kernel.ty(result);
        let val = match inst.op {
            Op::Load { ptr, align } => {
                self.access(number, ptr, ty.size(), align, false, state);
                self.touch(ptr);
                self.loaded(ptr, ty, state)
            }
            Op::AtomicRmw { ptr, value, .. } | Op::AtomicCompareExchange { ptr, desired: value, .. } => {
                self.atomic(number, ptr, value, state);
                self.unknown(ty)
            }
            Op::AtomicLoad { ptr } => {
                self.access(number, ptr, ty.size(), ty.size() as u32, false, state);
                self.touch(ptr);
                self.unknown(ty)
            }
            Op::Get(var) => state.vars[var.index()],
            op => self.value(op, ty, state),
        };
        self.vals[result.index()] = val;
    }

    fn atomic(&mut self, number: usize, ptr: ValueId, value: ValueId, state: &State) {
        let size = self.kernel.ty(value).size();
        self.access(number, ptr, size, size as u32, true, state);
        self.touch(ptr);
    }

    /// Notes that a buffer's contents matter before they are written.
    fn touch(&mut self, ptr: ValueId) {
        match self.vals[ptr.index()] {
            Val::Pointer(Root::Param(param), _) => self.read[param as usize] = true,
            Val::Pointer(..) => {}
            _ => self.read.iter_mut().for_each(|read| *read = true),
        }
    }

    /// Judges an access.
    fn access(&mut self, number: usize, ptr: ValueId, size: u64, align: u32, writes: bool, state: &State) {
        if !self.judging {
            return;
        }
        let fine = match self.vals[ptr.index()] {
            Val::Pointer(root, offset) => {
                let (len, base, writable) = self.object(root);
                let range = self.exprs.range(&state.facts, offset);
                let aligned = base.min(self.exprs.divisor(offset)) >= u64::from(align.max(1));
                aligned
                    && (writable || !writes)
                    && len.is_some_and(|len| range.lo >= 0 && range.hi + i128::from(size) <= i128::from(len))
            }
            _ => false,
        };
        if let Some(proven) = self.proven.get_mut(number) {
            *proven = Some(fine && proven.unwrap_or(true));
        }
    }

    /// Length, alignment, and whether it may be written.
    fn object(&self, root: Root) -> (Option<u64>, u64, bool) {
        match root {
            Root::Param(i) => {
                let writable = match self.kernel.params[i as usize].kind {
                    ParamKind::Buffer { access, .. } => access.writes(),
                    ParamKind::Value(_) => false,
                };
                match self.args.get(i as usize) {
                    Some(arg) => (Some(arg.len), arg.align, writable),
                    None => (None, 1, writable),
                }
            }
            Root::Table(i) => {
                let table = &self.kernel.const_vars[i as usize];
                (Some(table.data.len() as u64), u64::from(table.align), false)
            }
            Root::Threadgroup(i) => {
                let var = &self.kernel.threadgroup_vars[i as usize];
                (Some(var.size), u64::from(var.align), true)
            }
            Root::Thread(i) => {
                let var = &self.kernel.thread_vars[i as usize];
                (Some(var.size), u64::from(var.align), true)
            }
        }
    }

    /// A value from memory: known if the memory is, and the place.
    fn loaded(&mut self, ptr: ValueId, ty: Type, state: &State) -> Val {
        let bytes = match self.vals[ptr.index()] {
            Val::Pointer(Root::Param(i), at) => {
                self.args.get(i as usize).and_then(|arg| arg.contents).map(|bytes| (bytes, at))
            }
            Val::Pointer(Root::Table(i), at) => Some((&*self.kernel.const_vars[i as usize].data, at)),
            _ => None,
        };
        let Some(s) = ty.scalar().filter(|_| is_integer(ty)) else { return self.unknown(ty) };
        let mut parts = [None; 4];
        if let Some((bytes, at)) = bytes
            && let Some(at) = self.exprs.range(&state.facts, at).single()
        {
            for (i, part) in parts[..usize::from(ty.lanes())].iter_mut().enumerate() {
                // Outside the whole value is zero.
                let inside = at >= 0 && at + i128::from(ty.size()) <= bytes.len() as i128;
                let start = at + i as i128 * i128::from(s.size());
                let value = if inside { read(bytes, start as usize, s) } else { 0 };
                *part = Some(self.exprs.constant(value));
            }
            return Val::Parts(parts);
        }
        self.unknown(ty)
    }

    fn value(&mut self, op: Op, ty: Type, state: &State) -> Val {
        let facts = &state.facts;
        let n = usize::from(ty.lanes());
        let one = |id: Id| Val::Parts([Some(id), None, None, None]);
        match op {
            Op::ParamPtr(i) => self.pointer(Root::Param(i)),
            Op::ThreadgroupPtr(i) => self.pointer(Root::Threadgroup(i)),
            Op::ThreadPtr(i) => self.pointer(Root::Thread(i)),
            Op::ConstPtr(i) => self.pointer(Root::Table(i)),
            Op::NullPtr => Val::Lost,
            Op::PtrOffset { ptr, index, stride } => {
                let Val::Pointer(root, offset) = self.vals[ptr.index()] else { return Val::Lost };
                let index = self.integer(index);
                let stride = self.exprs.constant(i128::from(stride));
                let wide = self.exprs.convert(facts, Scalar::I64, index);
                let by = self.exprs.binary(facts, Arith::Mul, Scalar::I64, wide, stride);
                Val::Pointer(root, self.exprs.binary(facts, Arith::Add, Scalar::I64, offset, by))
            }
            _ if ty.is_ptr() => match op {
                Op::Select { if_true, if_false, .. } => {
                    match (self.vals[if_true.index()], self.vals[if_false.index()]) {
                        (Val::Pointer(root, a), Val::Pointer(other, b)) if root == other => {
                            Val::Pointer(root, self.joined(None, (facts, a), (facts, b)))
                        }
                        _ => Val::Lost,
                    }
                }
                Op::Bitcast(a) => self.vals[a.index()],
                _ => Val::Lost,
            },
            _ if !is_integer(ty) => Val::Parts([None; 4]),
            Op::Const(bits) => {
                let s = ty.scalar().unwrap_or(Scalar::U32);
                let x = if s == Scalar::Bool { i128::from(bits & 1) } else { scalar::to_int(s, bits) };
                one(self.exprs.constant(x))
            }
            Op::Param(i) => {
                let s = ty.scalar().unwrap_or(Scalar::U32);
                let bytes = self.args.get(i as usize).and_then(|arg| arg.contents);
                match bytes.filter(|bytes| bytes.len() as u64 >= ty.size()) {
                    Some(bytes) => {
                        let mut parts = [None; 4];
                        for (j, part) in parts[..n].iter_mut().enumerate() {
                            let value = read(bytes, j * s.size() as usize, s);
                            *part = Some(self.exprs.constant(value));
                        }
                        Val::Parts(parts)
                    }
                    None => self.unknown(ty),
                }
            }
            Op::Builtin { what, axis } => {
                let axis = if what.has_axes() { axis } else { 0 };
                let known = self.builtins.get(&(what, axis)).copied();
                let id = known.unwrap_or_else(|| {
                    let id = self.builtin(what, axis);
                    self.builtins.insert((what, axis), id);
                    id
                });
                let s = ty.scalar().unwrap_or(Scalar::U32);
                one(self.exprs.convert(facts, s, id))
            }
            Op::Splat(a) => Val::Parts([self.parts(a)[0]; 4]),
            Op::Compose(list) => {
                let mut parts = [None; 4];
                for (part, v) in parts.iter_mut().zip(list.as_slice()) {
                    *part = self.parts(*v)[0];
                }
                Val::Parts(parts)
            }
            Op::Extract { vec, lane } => Val::Parts([self.parts(vec)[usize::from(lane) & 3]; 4]),
            Op::Insert { vec, lane, value } => {
                let mut parts = self.parts(vec);
                parts[usize::from(lane) & 3] = self.parts(value)[0];
                Val::Parts(parts)
            }
            Op::Shuffle { vec, lanes } => {
                let from = self.parts(vec);
                let mut parts = [None; 4];
                for (part, lane) in parts.iter_mut().zip(lanes.as_slice()) {
                    *part = from[usize::from(*lane) & 3];
                }
                Val::Parts(parts)
            }
            _ => {
                let mut parts = [None; 4];
                for (i, part) in parts[..n].iter_mut().enumerate() {
                    *part = Some(self.component(&op, ty, i, facts));
                }
                Val::Parts(parts)
            }
        }
    }

    /// A component of an operation that works component by component.
    fn component(&mut self, op: &Op, ty: Type, i: usize, facts: &Facts) -> Id {
        let s = ty.scalar().unwrap_or(Scalar::U32);
        let of = |walk: &Self, v: ValueId| {
            let parts = walk.parts(v);
            if walk.kernel.ty(v).is_vec() { parts[i] } else { parts[0] }
        };
        let known = match *op {
            Op::Unary(UnaryOp::Neg, a) => of(self, a).map(|a| {
                let zero = self.exprs.constant(0);
                self.exprs.binary(facts, Arith::Sub, s, zero, a)
            }),
            Op::Unary(UnaryOp::Not, a) if s == Scalar::Bool => of(self, a).map(|a| self.exprs.not(a)),
            Op::Unary(UnaryOp::Abs, a) => of(self, a).filter(|a| self.exprs.range(facts, *a).lo >= 0),
            Op::Binary(op, a, b) => match (of(self, a), of(self, b)) {
                (Some(a), Some(b)) => self.arithmetic(op, s, a, b, facts),
                _ => None,
            },
            Op::Ternary(TernaryOp::Clamp, x, least, most) => {
                match (of(self, x), of(self, least), of(self, most)) {
                    (Some(x), Some(least), Some(most)) => {
                        let x = self.exprs.binary(facts, Arith::Max, s, x, least);
                        Some(self.exprs.binary(facts, Arith::Min, s, x, most))
                    }
                    _ => None,
                }
            }
            Op::Compare(op, a, b) => match (of(self, a), of(self, b)) {
                (Some(a), Some(b)) => Some(self.exprs.compare(facts, op, a, b)),
                _ => None,
            },
            Op::Select { cond, if_true, if_false } => {
                match (of(self, cond), of(self, if_true), of(self, if_false)) {
                    (Some(cond), Some(a), Some(b)) => Some(self.selected(cond, a, b, facts)),
                    _ => None,
                }
            }
            Op::Convert(a) => match (of(self, a), s) {
                (Some(a), Scalar::Bool) => {
                    if Range::BOOL.holds(self.exprs.range(&Facts::default(), a)) {
                        Some(a)
                    } else {
                        let zero = self.exprs.constant(0);
                        Some(self.exprs.compare(facts, CmpOp::Ne, a, zero))
                    }
                }
                (Some(a), s) => Some(self.exprs.convert(facts, s, a)),
                _ => None,
            },
            Op::Bitcast(a) => {
                let from = self.kernel.ty(a);
                let same =
                    from.lanes() == ty.lanes() && is_integer(from) && from.scalar() != Some(Scalar::Bool);
                of(self, a).filter(|_| same).map(|a| self.exprs.convert(facts, s, a))
            }
            _ => None,
        };
        known.unwrap_or_else(|| self.exprs.symbol(Range::of(s), Kind::Other))
    }

    fn selected(&mut self, cond: Id, a: Id, b: Id, facts: &Facts) -> Id {
        match self.exprs.range(facts, cond).single() {
            Some(0) => return b,
            Some(_) => return a,
            None => {}
        }
        let (mut yes, mut no) = (facts.clone(), facts.clone());
        // A side that contradicts what is known has any value.
        let _ = (self.exprs.assume(&mut yes, cond, true), self.exprs.assume(&mut no, cond, false));
        self.joined(Some(cond), (&yes, a), (&no, b))
    }

    fn arithmetic(&mut self, op: BinaryOp, s: Scalar, a: Id, b: Id, facts: &Facts) -> Option<Id> {
        use BinaryOp as B;
        if s == Scalar::Bool {
            return match op {
                B::And => Some(self.exprs.both(facts, a, b)),
                B::Or => Some(self.exprs.either(facts, a, b)),
                _ => None,
            };
        }
        let op = match op {
            B::Add => Arith::Add,
            B::Sub => Arith::Sub,
            B::Mul => Arith::Mul,
            B::Div => Arith::Div,
            B::Rem => Arith::Rem,
            B::Min => Arith::Min,
            B::Max => Arith::Max,
            B::And => Arith::And,
            B::Shl => {
                let by = self.exprs.range(facts, b).single()?;
                let by = u32::try_from(by).ok().filter(|by| *by < s.bits())?;
                let factor = self.exprs.constant(1 << by);
                return Some(self.exprs.binary(facts, Arith::Mul, s, a, factor));
            }
            B::Shr => {
                let by = self.exprs.range(facts, b);
                if by.lo < 0 || by.hi >= i128::from(s.bits()) {
                    return None;
                }
                // Of numbers that are not negative it is a division, which has a rest.
                if let (Some(by), 0..) = (by.single(), self.exprs.range(facts, a).lo) {
                    let by = self.exprs.constant(1 << by);
                    return Some(self.exprs.binary(facts, Arith::Div, s, a, by));
                }
                Arith::Shr
            }
            _ => return None,
        };
        // So is a mask of the low bits.
        if op == Arith::And
            && let (Some(mask), 0..) = (self.exprs.range(facts, b).single(), self.exprs.range(facts, a).lo)
            && mask > 0
            && (mask + 1) & mask == 0
            && Range::of(s).hi > mask
        {
            let by = self.exprs.constant(mask + 1);
            return Some(self.exprs.binary(facts, Arith::Rem, s, a, by));
        }
        Some(self.exprs.binary(facts, op, s, a, b))
    }

    fn pointer(&mut self, root: Root) -> Val {
        Val::Pointer(root, self.exprs.constant(0))
    }

    // ---- Positions ----

    fn builtin(&mut self, what: Builtin, axis: u8) -> Id {
        let a = usize::from(axis);
        let facts = Facts::default();
        let Some(launch) = self.launch else {
            let most = match what {
                Builtin::ThreadIndexInSimdgroup => SIMD_WIDTH - 1,
                Builtin::ThreadIndexInQuadgroup => 3,
                Builtin::ThreadsPerSimdgroup => return self.exprs.constant(i128::from(SIMD_WIDTH)),
                Builtin::ThreadPositionInGrid
                | Builtin::ThreadgroupPositionInGrid
                | Builtin::ThreadgroupsPerGrid
                | Builtin::ThreadsPerGrid => 1 << 48,
                Builtin::ThreadPositionInThreadgroup | Builtin::ThreadIndexInThreadgroup => 1023,
                _ => 1024,
            };
            return self.exprs.symbol(Range { lo: 0, hi: i128::from(most) }, Kind::Other);
        };
        let size = i128::from(launch.threadgroup[a]);
        let total: i128 = launch.threadgroup.iter().map(|n| i128::from(*n)).product();
        let whole = |a: usize| launch.grid[a].is_multiple_of(launch.threadgroup[a]);
        match what {
            Builtin::ThreadPositionInGrid => {
                let hi = i128::from(launch.grid[a]) - 1;
                self.exprs.symbol(Range { lo: 0, hi: hi.max(0) }, Kind::Axis(axis))
            }
            Builtin::ThreadgroupPositionInGrid => self.divided(Arith::Div, axis, size),
            Builtin::ThreadPositionInThreadgroup => self.divided(Arith::Rem, axis, size),
            Builtin::ThreadsPerThreadgroup => {
                let least =
                    if whole(a) { launch.threadgroup[a] } else { launch.grid[a] % launch.threadgroup[a] };
                let most = launch.threadgroup[a].min(launch.grid[a]);
                self.exprs
                    .symbol(Range { lo: i128::from(least.min(most)), hi: i128::from(most) }, Kind::Other)
            }
            Builtin::DispatchThreadsPerThreadgroup => self.exprs.constant(size),
            Builtin::ThreadgroupsPerGrid => self.exprs.constant(i128::from(launch.groups()[a])),
            Builtin::ThreadsPerGrid => self.exprs.constant(i128::from(launch.grid[a])),
            Builtin::ThreadIndexInThreadgroup => {
                // The actual sizes count, and only those of x and y: groups that are cut along z are as others.
                if !(whole(0) || launch.threadgroup[1..] == [1, 1] || launch.groups()[0] == 1)
                    || !(whole(1) || launch.threadgroup[2] == 1 || launch.groups()[1] == 1)
                {
                    return self.exprs.symbol(Range { lo: 0, hi: total - 1 }, Kind::Other);
                }
                let along = |a: usize| i128::from(launch.threadgroup[a].min(launch.grid[a]));
                let [x, y, z] = [0, 1, 2]
                    .map(|a| self.divided(Arith::Rem, a, i128::from(launch.threadgroup[usize::from(a)])));
                let (row, plane) = (self.exprs.constant(along(0)), self.exprs.constant(along(0) * along(1)));
                let y = self.exprs.binary(&facts, Arith::Mul, Scalar::U32, y, row);
                let z = self.exprs.binary(&facts, Arith::Mul, Scalar::U32, z, plane);
                let sum = self.exprs.binary(&facts, Arith::Add, Scalar::U32, x, y);
                self.exprs.binary(&facts, Arith::Add, Scalar::U32, sum, z)
            }
            Builtin::SimdgroupIndexInThreadgroup => self.of_index(Arith::Div, i128::from(SIMD_WIDTH)),
            Builtin::ThreadIndexInSimdgroup => self.of_index(Arith::Rem, i128::from(SIMD_WIDTH)),
            Builtin::QuadgroupIndexInThreadgroup => self.of_index(Arith::Div, 4),
            Builtin::ThreadIndexInQuadgroup => self.of_index(Arith::Rem, 4),
            Builtin::ThreadsPerSimdgroup => self.exprs.constant(i128::from(SIMD_WIDTH)),
            Builtin::DispatchSimdgroupsPerThreadgroup => self.exprs.constant((total + 31) / 32),
            Builtin::DispatchQuadgroupsPerThreadgroup => self.exprs.constant((total + 3) / 4),
            Builtin::SimdgroupsPerThreadgroup | Builtin::QuadgroupsPerThreadgroup => {
                let width = if what == Builtin::SimdgroupsPerThreadgroup { 32 } else { 4 };
                let hi = (total + width - 1) / width;
                let all = (0..3).all(whole);
                self.exprs.symbol(Range { lo: if all { hi } else { 1 }, hi }, Kind::Other)
            }
        }
    }

    fn position(&mut self, what: Builtin, axis: u8) -> Id {
        if let Some(id) = self.builtins.get(&(what, axis)) {
            return *id;
        }
        let id = self.builtin(what, axis);
        self.builtins.insert((what, axis), id);
        id
    }

    fn divided(&mut self, op: Arith, axis: u8, size: i128) -> Id {
        let at = self.position(Builtin::ThreadPositionInGrid, axis);
        let size = self.exprs.constant(size);
        self.exprs.binary(&Facts::default(), op, Scalar::U64, at, size)
    }

    fn is_opaque(&self, id: Id) -> bool {
        let symbol = self.exprs.as_symbol(id).map(|at| self.exprs.symbols[at as usize].kind);
        symbol == Some(Kind::Other)
    }

    fn of_index(&mut self, op: Arith, width: i128) -> Id {
        let index = self.position(Builtin::ThreadIndexInThreadgroup, 0);
        // Rows of whole groups: the other axes change the quotient alone.
        if let Some(launch) = self.launch
            && i128::from(launch.threadgroup[0].min(launch.grid[0])) % width == 0
            && !self.is_opaque(index)
            && let Some(sum) = self.exprs.linear(&Facts::default(), index)
        {
            let x = self.divided(Arith::Rem, 0, i128::from(launch.threadgroup[0]));
            let scalar = Scalar::U64;
            let by = self.exprs.constant(width);
            let mut result = self.exprs.binary(&Facts::default(), op, scalar, x, by);
            if op == Arith::Rem {
                return result;
            }
            for (atom, factor) in sum.terms {
                if factor % width == 0 {
                    let factor = self.exprs.constant(factor / width);
                    let more = self.exprs.binary(&Facts::default(), Arith::Mul, scalar, atom, factor);
                    result = self.exprs.binary(&Facts::default(), Arith::Add, scalar, result, more);
                }
            }
            return result;
        }
        let width = self.exprs.constant(width);
        self.exprs.binary(&Facts::default(), op, Scalar::U64, index, width)
    }
}

fn is_integer(ty: Type) -> bool {
    ty.scalar().is_some_and(|s| s.is_int() || s == Scalar::Bool)
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

fn negated(op: CmpOp) -> CmpOp {
    match op {
        CmpOp::Eq => CmpOp::Ne,
        CmpOp::Ne => CmpOp::Eq,
        CmpOp::Lt => CmpOp::Ge,
        CmpOp::Le => CmpOp::Gt,
        CmpOp::Gt => CmpOp::Le,
        CmpOp::Ge => CmpOp::Lt,
    }
}

/// The comparison with its operands exchanged.
fn mirrored(op: CmpOp) -> CmpOp {
    match op {
        CmpOp::Lt => CmpOp::Gt,
        CmpOp::Le => CmpOp::Ge,
        CmpOp::Gt => CmpOp::Lt,
        CmpOp::Ge => CmpOp::Le,
        op => op,
    }
}

/// An integer in memory; the place lies inside.
fn read(bytes: &[u8], at: usize, s: Scalar) -> i128 {
    let mut word = [0; 8];
    let size = s.size() as usize;
    if let Some(from) = bytes.get(at..at + size) {
        word[..size].copy_from_slice(from);
    }
    let bits = u64::from_le_bytes(word);
    if s == Scalar::Bool { i128::from(bits != 0) } else { scalar::to_int(s, bits) }
}

//! Integer expressions of a thread, and the ranges that they lie in.
//!
//! Expressions are hash-consed: equal expressions of one thread have one number. Each denotes the exact
//! result of the IR's arithmetic, which wraps at the range of its type. A value without such an expression is
//! a *symbol*.

use std::collections::HashMap;

use crate::ir::{CmpOp, Scalar};

/// The number of an expression.
pub(super) type Id = u32;

/// Deeper expressions become symbols, so that recursion is bounded.
const MAX_DEPTH: u32 = 48;

/// A range of integers, not empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub lo: i128,
    pub hi: i128,
}

impl Range {
    pub const BOOL: Range = Range { lo: 0, hi: 1 };

    pub fn one(x: i128) -> Range {
        Range { lo: x, hi: x }
    }

    /// All values of an integer type.
    pub fn of(s: Scalar) -> Range {
        let bits = s.bits();
        match s {
            Scalar::Bool => Range::BOOL,
            s if s.is_signed_int() => Range { lo: -(1 << (bits - 1)), hi: (1 << (bits - 1)) - 1 },
            _ => Range { lo: 0, hi: (1 << bits) - 1 },
        }
    }

    pub fn single(self) -> Option<i128> {
        (self.lo == self.hi).then_some(self.lo)
    }

    pub fn contains(self, other: Range) -> bool {
        self.lo <= other.lo && other.hi <= self.hi
    }

    pub fn hull(self, other: Range) -> Range {
        Range { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    pub fn meet(self, other: Range) -> Option<Range> {
        let (lo, hi) = (self.lo.max(other.lo), self.hi.min(other.hi));
        (lo <= hi).then_some(Range { lo, hi })
    }

    fn corners(self, other: Range, f: impl Fn(i128, i128) -> i128) -> Range {
        let all = [f(self.lo, other.lo), f(self.lo, other.hi), f(self.hi, other.lo), f(self.hi, other.hi)];
        let first = Range::one(all[0]);
        all.iter().fold(first, |range, x| range.hull(Range::one(*x)))
    }
}

/// An operation on integers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Arith {
    Add,
    Sub,
    Mul,
    /// Towards zero; by zero gives zero.
    Div,
    /// By zero gives zero.
    Rem,
    Min,
    Max,
    And,
    /// By less than the width.
    Shr,
}

/// An expression.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Expr {
    Const(i128),
    Symbol(u32),
    Binary(Arith, Scalar, Id, Id),
    Convert(Scalar, Id),
    /// `start + count * step`, `count` being the symbol of a loop's iterations.
    Induction {
        start: Id,
        count: Id,
        step: i128,
        scalar: Scalar,
    },
    Compare(CmpOp, Id, Id),
    Not(Id),
    And(Id, Id),
    Or(Id, Id),
}

/// What a symbol stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SymbolKind {
    /// A thread's position in the grid along an axis: takes every value of its range, independently of other
    /// axes.
    GridPosition(u8),
    /// The number of a loop's iteration, with a bound on how many begin, if it is known.
    Iteration(Option<i128>),
    /// Anything else.
    Opaque,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    pub range: Range,
    pub kind: SymbolKind,
}

/// Ranges that hold at one point of the program.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    list: Vec<(Id, Range)>,
    /// Equal versions mean equal lists; 0 is the empty one.
    version: u64,
}

/// All expressions of an analysis.
#[derive(Default)]
pub(super) struct Exprs {
    list: Vec<Expr>,
    ids: HashMap<Expr, Id>,
    depth: Vec<u32>,
    /// The newest symbol in an expression, counted from 1.
    newest: Vec<u32>,
    pub symbols: Vec<Symbol>,
    /// The cached range of each expression, and the version of the facts that it holds under.
    known: Vec<(u64, Range)>,
    /// The last version given to facts.
    versions: u64,
}

/// A linear combination of expressions.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Linear {
    pub constant: i128,
    /// Sorted by expression; no factor is 0.
    pub terms: Vec<(Id, i128)>,
}

impl Linear {
    fn add(&mut self, other: &Linear, by: i128) -> Option<()> {
        self.constant = self.constant.checked_add(other.constant.checked_mul(by)?)?;
        for &(id, factor) in &other.terms {
            let factor = factor.checked_mul(by)?;
            match self.terms.binary_search_by_key(&id, |term| term.0) {
                Ok(at) => self.terms[at].1 = self.terms[at].1.checked_add(factor)?,
                Err(at) => self.terms.insert(at, (id, factor)),
            }
        }
        self.terms.retain(|term| term.1 != 0);
        Some(())
    }

    pub fn minus(&self, other: &Linear) -> Option<Linear> {
        let mut difference = self.clone();
        difference.add(other, -1)?;
        Some(difference)
    }
}

/// Whether a type holds all values of a range.
fn fits(from: Range, to: Scalar) -> bool {
    Range::of(to).contains(from)
}

impl Exprs {
    pub fn get(&self, id: Id) -> Expr {
        self.list[id as usize]
    }

    /// The newest symbol of an expression, 0 if it has none.
    pub fn newest(&self, id: Id) -> u32 {
        self.newest[id as usize]
    }

    pub fn constant(&mut self, x: i128) -> Id {
        self.intern(Expr::Const(x))
    }

    pub fn symbol(&mut self, range: Range, kind: SymbolKind) -> Id {
        self.symbols.push(Symbol { range, kind });
        self.intern(Expr::Symbol(self.symbols.len() as u32 - 1))
    }

    pub fn opaque(&mut self, range: Range) -> Id {
        self.symbol(range, SymbolKind::Opaque)
    }

    /// The number of the symbol that an expression is.
    pub fn as_symbol(&self, id: Id) -> Option<u32> {
        match self.get(id) {
            Expr::Symbol(at) => Some(at),
            _ => None,
        }
    }

    fn intern(&mut self, expr: Expr) -> Id {
        if let Some(id) = self.ids.get(&expr) {
            return *id;
        }
        let operands = match expr {
            Expr::Const(_) | Expr::Symbol(_) => [None; 2],
            Expr::Binary(_, _, a, b)
            | Expr::Induction { start: a, count: b, .. }
            | Expr::Compare(_, a, b)
            | Expr::And(a, b)
            | Expr::Or(a, b) => [Some(a), Some(b)],
            Expr::Convert(_, a) | Expr::Not(a) => [Some(a), None],
        };
        let of = |list: &[u32]| operands.iter().flatten().map(|id| list[*id as usize]).max().unwrap_or(0);
        let own = if let Expr::Symbol(at) = expr { at + 1 } else { 0 };
        let (depth, newest) = (of(&self.depth) + 1, of(&self.newest).max(own));
        let id = self.list.len() as Id;
        self.list.push(expr);
        self.depth.push(depth);
        self.newest.push(newest);
        self.known.push((u64::MAX, Range::BOOL));
        self.ids.insert(expr, id);
        id
    }

    /// An expression, or a symbol with its range where it is too deep.
    fn make(&mut self, facts: &Facts, expr: Expr) -> Id {
        let id = self.intern(expr);
        if self.depth[id as usize] > MAX_DEPTH {
            let range = self.range(facts, id);
            return self.opaque(range);
        }
        id
    }

    pub fn binary(&mut self, facts: &Facts, op: Arith, s: Scalar, a: Id, b: Id) -> Id {
        let (x, y) = (self.range(facts, a), self.range(facts, b));
        if let (Some(_), Some(_)) = (x.single(), y.single()) {
            let exact = exact(op, x, y);
            if let Some(result) = exact.single().filter(|_| fits(exact, s)) {
                return self.constant(result);
            }
        }
        let (zero, is_one) = (Some(0), Some(1));
        match op {
            Arith::Add if x.single() == zero => return b,
            Arith::Add | Arith::Sub if y.single() == zero => return a,
            Arith::Mul | Arith::Div if y.single() == is_one => return a,
            Arith::Mul if x.single() == is_one => return b,
            Arith::Div | Arith::Rem if x.lo >= 0 && y.lo > x.hi => {
                return if op == Arith::Rem { a } else { self.constant(0) };
            }
            _ => {}
        }
        // Constants go last.
        let commutes = matches!(op, Arith::Add | Arith::Mul | Arith::Min | Arith::Max | Arith::And);
        let (a, b) = if commutes && matches!(self.get(a), Expr::Const(_)) { (b, a) } else { (a, b) };
        // A constant value is interned as one, so that equal expressions have one number.
        let b = match self.range(facts, b).single() {
            Some(x) => self.constant(x),
            None => b,
        };
        self.make(facts, Expr::Binary(op, s, a, b))
    }

    pub fn convert(&mut self, facts: &Facts, to: Scalar, a: Id) -> Id {
        // The result is used beyond the scope of the facts, so ignore them here.
        let range = self.range(&Facts::default(), a);
        if fits(range, to) {
            return a;
        }
        self.make(facts, Expr::Convert(to, a))
    }

    pub fn induction(&mut self, start: Id, count: Id, step: i128, scalar: Scalar) -> Id {
        self.intern(Expr::Induction { start, count, step, scalar })
    }

    pub fn compare(&mut self, facts: &Facts, op: CmpOp, a: Id, b: Id) -> Id {
        self.make(facts, Expr::Compare(op, a, b))
    }

    pub fn not(&mut self, a: Id) -> Id {
        match self.get(a) {
            Expr::Not(inner) => inner,
            Expr::Const(x) => self.constant(i128::from(x == 0)),
            _ => self.intern(Expr::Not(a)),
        }
    }

    pub fn and(&mut self, facts: &Facts, a: Id, b: Id) -> Id {
        self.make(facts, Expr::And(a, b))
    }

    pub fn or(&mut self, facts: &Facts, a: Id, b: Id) -> Id {
        self.make(facts, Expr::Or(a, b))
    }

    /// The range of an expression under facts.
    pub fn range(&mut self, facts: &Facts, id: Id) -> Range {
        let (version, range) = self.known[id as usize];
        if version == facts.version {
            return range;
        }
        let mut range = self.computed(facts, id);
        for (_, known) in facts.list.iter().filter(|(of, _)| *of == id) {
            // Facts that contradict each other hold in no thread, so any range is sound.
            range = range.meet(*known).unwrap_or(*known);
        }
        self.known[id as usize] = (facts.version, range);
        range
    }

    fn computed(&mut self, facts: &Facts, id: Id) -> Range {
        match self.get(id) {
            Expr::Const(x) => Range::one(x),
            Expr::Symbol(at) => self.symbols[at as usize].range,
            Expr::Binary(op, s, a, b) => {
                let exact = exact(op, self.range(facts, a), self.range(facts, b));
                if fits(exact, s) { exact } else { Range::of(s) }
            }
            Expr::Convert(to, a) => {
                let range = self.range(facts, a);
                if fits(range, to) { range } else { Range::of(to) }
            }
            Expr::Induction { start, count, step, scalar } => {
                let by = self.range(facts, count).corners(Range::one(step), i128::saturating_mul);
                let exact = exact(Arith::Add, self.range(facts, start), by);
                if fits(exact, scalar) { exact } else { Range::of(scalar) }
            }
            Expr::Compare(op, a, b) => compared(op, self.range(facts, a), self.range(facts, b)),
            Expr::Not(a) => {
                let range = self.range(facts, a);
                Range { lo: 1 - range.hi, hi: 1 - range.lo }
            }
            Expr::And(a, b) => {
                let (a, b) = (self.range(facts, a), self.range(facts, b));
                Range { lo: a.lo.min(b.lo), hi: a.hi.min(b.hi) }
            }
            Expr::Or(a, b) => {
                let (a, b) = (self.range(facts, a), self.range(facts, b));
                Range { lo: a.lo.max(b.lo), hi: a.hi.max(b.hi) }
            }
        }
    }

    /// Adds a fact; `None` if it contradicts the others.
    pub fn learn(&mut self, facts: &mut Facts, id: Id, range: Range) -> Option<()> {
        let known = self.range(facts, id);
        let narrower = known.meet(range)?;
        if narrower == known {
            return Some(());
        }
        self.versions += 1;
        facts.version = self.versions;
        facts.list.push((id, narrower));
        match self.get(id) {
            Expr::Convert(_, a) => {
                let inner = self.range(facts, a);
                // The conversion keeps the value if both types hold it.
                if known.contains(inner) { self.learn(facts, a, narrower) } else { Some(()) }
            }
            Expr::Binary(op @ (Arith::Add | Arith::Sub), s, a, b) => {
                let (x, y) = (self.range(facts, a), self.range(facts, b));
                match y.single() {
                    Some(y) if fits(exact(op, x, Range::one(y)), s) => {
                        let y = if op == Arith::Add { y } else { -y };
                        self.learn(facts, a, Range { lo: narrower.lo - y, hi: narrower.hi - y })
                    }
                    _ => Some(()),
                }
            }
            _ => Some(()),
        }
    }

    /// Adds the fact that a condition holds or does not; `None` if that contradicts the other facts.
    pub fn assume(&mut self, facts: &mut Facts, cond: Id, holds: bool) -> Option<()> {
        self.learn(facts, cond, Range::one(i128::from(holds)))?;
        match self.get(cond) {
            Expr::Not(a) => self.assume(facts, a, !holds),
            Expr::And(a, b) if holds => {
                self.assume(facts, a, true)?;
                self.assume(facts, b, true)
            }
            Expr::Or(a, b) if !holds => {
                self.assume(facts, a, false)?;
                self.assume(facts, b, false)
            }
            Expr::Compare(op, a, b) => {
                let (x, y) = (self.range(facts, a), self.range(facts, b));
                let (below, above) = match (op, holds) {
                    (CmpOp::Eq, true) | (CmpOp::Ne, false) => {
                        self.learn(facts, a, y)?;
                        return self.learn(facts, b, x);
                    }
                    (CmpOp::Ne, true) | (CmpOp::Eq, false) => {
                        return match (y.single(), x) {
                            (Some(y), x) if y == x.lo => self.learn(facts, a, Range { lo: x.lo + 1, ..x }),
                            (Some(y), x) if y == x.hi => self.learn(facts, a, Range { hi: x.hi - 1, ..x }),
                            _ => Some(()),
                        };
                    }
                    (CmpOp::Lt, true) | (CmpOp::Ge, false) => ((a, y.hi - 1), (b, x.lo + 1)),
                    (CmpOp::Le, true) | (CmpOp::Gt, false) => ((a, y.hi), (b, x.lo)),
                    (CmpOp::Gt, true) | (CmpOp::Le, false) => ((b, x.hi - 1), (a, y.lo + 1)),
                    (CmpOp::Ge, true) | (CmpOp::Lt, false) => ((b, x.hi), (a, y.lo)),
                };
                let all = Range { lo: i128::MIN / 4, hi: i128::MAX / 4 };
                self.learn(facts, below.0, Range { hi: below.1, ..all })?;
                self.learn(facts, above.0, Range { lo: above.1, ..all })
            }
            _ => Some(()),
        }
    }

    /// A power of two that divides an expression, at most 2^32.
    pub fn divisor(&self, id: Id) -> u64 {
        let of = |x: i128| if x == 0 { 1 << 32 } else { 1u64 << x.trailing_zeros().min(32) };
        match self.get(id) {
            Expr::Const(x) => of(x),
            Expr::Binary(Arith::Add | Arith::Sub, s, a, b) => {
                self.divisor(a).min(self.divisor(b)).min(1 << s.bits().min(32))
            }
            Expr::Binary(Arith::Mul, s, a, b) => {
                self.divisor(a).saturating_mul(self.divisor(b)).min(1 << s.bits().min(32))
            }
            Expr::Convert(to, a) if to != Scalar::Bool => self.divisor(a).min(1 << to.bits().min(32)),
            Expr::Induction { start, step, scalar, .. } => {
                self.divisor(start).min(of(step)).min(1 << scalar.bits().min(32))
            }
            _ => 1,
        }
    }

    /// The expression as a linear combination, as far as nothing wraps under the facts.
    pub fn linear(&mut self, facts: &Facts, id: Id) -> Option<Linear> {
        let mut sum = self.split(facts, id)?;
        // `by * (a / by) + a % by` is `a`.
        while let Some((quotient, rest, dividend, by)) = self.dividend_of(&sum) {
            let dividend = self.split(facts, dividend)?;
            sum.terms.retain(|term| term.0 != quotient && term.0 != rest);
            sum.add(&dividend, by)?;
        }
        Some(sum)
    }

    fn dividend_of(&self, sum: &Linear) -> Option<(Id, Id, Id, i128)> {
        sum.terms.iter().find_map(|&(quotient, factor)| {
            let Expr::Binary(Arith::Div, s, a, b) = self.get(quotient) else { return None };
            let Expr::Const(by) = self.get(b) else { return None };
            let rest = *self.ids.get(&Expr::Binary(Arith::Rem, s, a, b))?;
            let own = sum.terms.iter().find(|term| term.0 == rest)?.1;
            (own.checked_mul(by) == Some(factor)).then_some((quotient, rest, a, own))
        })
    }

    fn split(&mut self, facts: &Facts, id: Id) -> Option<Linear> {
        let atom = Linear { constant: 0, terms: vec![(id, 1)] };
        match self.get(id) {
            Expr::Const(x) => Some(Linear { constant: x, terms: Vec::new() }),
            Expr::Binary(op @ (Arith::Add | Arith::Sub), s, a, b) => {
                let (x, y) = (self.range(facts, a), self.range(facts, b));
                if !fits(exact(op, x, y), s) {
                    return Some(atom);
                }
                let mut sum = self.split(facts, a)?;
                let other = self.split(facts, b)?;
                sum.add(&other, if op == Arith::Add { 1 } else { -1 })?;
                Some(sum)
            }
            Expr::Binary(Arith::Mul, s, a, b) => {
                let (x, y) = (self.range(facts, a), self.range(facts, b));
                if !fits(exact(Arith::Mul, x, y), s) {
                    return Some(atom);
                }
                let (of, by) = match (x.single(), y.single()) {
                    (_, Some(by)) => (a, by),
                    (Some(by), _) => (b, by),
                    _ => return Some(atom),
                };
                let (mut sum, of) = (Linear::default(), self.split(facts, of)?);
                sum.add(&of, by)?;
                Some(sum)
            }
            Expr::Convert(to, a) => {
                let range = self.range(facts, a);
                if fits(range, to) { self.split(facts, a) } else { Some(atom) }
            }
            Expr::Induction { start, count, step, scalar } => {
                let by = self.range(facts, count).corners(Range::one(step), i128::saturating_mul);
                if !fits(exact(Arith::Add, self.range(facts, start), by), scalar) {
                    return Some(atom);
                }
                let mut sum = self.split(facts, start)?;
                sum.add(&Linear { constant: 0, terms: vec![(count, 1)] }, step)?;
                Some(sum)
            }
            _ => Some(atom),
        }
    }
}

impl Facts {
    /// The facts that two points of the program inherit from one.
    pub fn common(&self, other: &Facts, exprs: &mut Exprs) -> Facts {
        let same = self.list.iter().zip(&other.list).take_while(|(a, b)| a == b).count();
        if same == self.list.len() && same == other.list.len() {
            return self.clone();
        }
        exprs.versions += 1;
        Facts { list: self.list[..same].to_vec(), version: exprs.versions }
    }
}

/// The range of exact results, which may lie outside of the type.
fn exact(op: Arith, x: Range, y: Range) -> Range {
    match op {
        Arith::Add => Range { lo: x.lo.saturating_add(y.lo), hi: x.hi.saturating_add(y.hi) },
        Arith::Sub => Range { lo: x.lo.saturating_sub(y.hi), hi: x.hi.saturating_sub(y.lo) },
        Arith::Mul => x.corners(y, i128::saturating_mul),
        Arith::Div if y.lo > 0 => x.corners(y, |a, b| a / b),
        Arith::Div => {
            // The divisor may be 0, which gives 0, or -1.
            let most = x.lo.unsigned_abs().max(x.hi.unsigned_abs()).min(i128::MAX as u128) as i128;
            Range { lo: -most, hi: most }
        }
        Arith::Rem => {
            let most = y.lo.unsigned_abs().max(y.hi.unsigned_abs()).saturating_sub(1).min(i128::MAX as u128);
            let most = most as i128;
            Range { lo: if x.lo >= 0 { 0 } else { x.lo.max(-most) }, hi: x.hi.clamp(0, most) }
        }
        Arith::Min => Range { lo: x.lo.min(y.lo), hi: x.hi.min(y.hi) },
        Arith::Max => Range { lo: x.lo.max(y.lo), hi: x.hi.max(y.hi) },
        Arith::And if x.lo >= 0 && y.lo >= 0 => Range { lo: 0, hi: x.hi.min(y.hi) },
        Arith::And if y.lo >= 0 => Range { lo: 0, hi: y.hi },
        Arith::And if x.lo >= 0 => Range { lo: 0, hi: x.hi },
        // Wider than every type, so that the range becomes that of the type.
        Arith::And => Range { lo: i128::MIN / 4, hi: i128::MAX / 4 },
        Arith::Shr => match (y.lo, y.hi) {
            (0.., ..=63) => x.corners(y, |a, b| a >> b),
            _ => Range { lo: x.lo.min(0), hi: x.hi.max(0) },
        },
    }
}

fn compared(op: CmpOp, x: Range, y: Range) -> Range {
    let (always, never) = match op {
        CmpOp::Lt => (x.hi < y.lo, x.lo >= y.hi),
        CmpOp::Le => (x.hi <= y.lo, x.lo > y.hi),
        CmpOp::Gt => (x.lo > y.hi, x.hi <= y.lo),
        CmpOp::Ge => (x.lo >= y.hi, x.hi < y.lo),
        CmpOp::Eq => (x.lo == x.hi && x == y, x.meet(y).is_none()),
        CmpOp::Ne => (x.meet(y).is_none(), x.lo == x.hi && x == y),
    };
    Range { lo: i128::from(always), hi: i128::from(!never) }
}

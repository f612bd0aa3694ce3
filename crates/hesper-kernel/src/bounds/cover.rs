//! Which buffers the stores of a kernel cover: every byte is written by some thread.
//!
//! A store's byte offset is a linear combination of positions in the grid and iterations of loops. Each of
//! them takes every value of its range, independently of the others. The sum leaves no gap if no factor
//! exceeds the span of the terms with smaller factors.

use super::expr::{Arith, Expr, Exprs, Id, SymbolKind};
use super::walk::{Constraint, Literal, Store, WalkResult};

/// The most conditions of one store; a store with more counts as not performed.
const MAX_LITERALS: usize = 8;
/// The most stores to one buffer; a buffer with more counts as not covered.
const MAX_STORES: usize = 256;

/// Rounds of absorbing terms and joining pieces.
const MAX_ROUNDS: usize = 8;

/// A summand `factor * atom`, with the range of the atom.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Term {
    atom: Id,
    factor: i128,
    lo: i128,
    hi: i128,
}

/// Whether every byte of a parameter of `len` bytes is written.
pub(super) fn is_covered(found: &mut WalkResult, param: u32, len: u64) -> bool {
    if len == 0 {
        return true;
    }
    if found.read[param as usize] {
        return false;
    }
    let mut stores: Vec<Store> = found.stores.iter().filter(|store| store.param == param).cloned().collect();
    if stores.len() > MAX_STORES {
        return false;
    }
    resolve(&mut stores);
    let mut pieces: Vec<CoveredBytes> =
        stores.iter().filter_map(|store| piece(&found.exprs, store)).collect();
    for _ in 0..MAX_ROUNDS {
        pieces.iter_mut().for_each(CoveredBytes::absorb);
        unite(&mut pieces);
    }
    let whole =
        |piece: &CoveredBytes| piece.open.is_empty() && piece.start <= 0 && piece.end() >= i128::from(len);
    pieces.iter().any(whole)
}

/// The bytes `start..start + len`, shifted by every value of the open terms.
#[derive(Clone, Debug)]
struct CoveredBytes {
    start: i128,
    len: i128,
    /// The smallest factor last.
    open: Vec<Term>,
}

impl CoveredBytes {
    fn end(&self) -> i128 {
        self.start.saturating_add(self.len)
    }

    /// Whether the open terms differ only in the range of the last one, and the ranges overlap.
    fn shares_range(&self, other: &CoveredBytes) -> bool {
        let (Some((a, rest)), Some((b, others))) = (self.open.split_last(), other.open.split_last()) else {
            return false;
        };
        let touch = self.start.max(other.start) <= self.end().min(other.end());
        touch
            && rest == others
            && (a.atom, a.factor) == (b.atom, b.factor)
            && (a.lo, a.hi) != (b.lo, b.hi)
            && a.lo.max(b.lo) <= a.hi.min(b.hi)
    }

    fn common_range(&self, other: &CoveredBytes) -> (i128, i128) {
        match (self.open.last(), other.open.last()) {
            (Some(a), Some(b)) => (a.lo.max(b.lo), a.hi.min(b.hi)),
            _ => (0, 0),
        }
    }

    /// Restricts the last term to a range; gives the pieces outside of it.
    fn cut(&mut self, lo: i128, hi: i128) -> Vec<CoveredBytes> {
        let Some(last) = self.open.last().copied() else { return Vec::new() };
        let with = |lo: i128, hi: i128| {
            let mut piece = self.clone();
            if let Some(term) = piece.open.last_mut() {
                (term.lo, term.hi) = (lo, hi);
            }
            piece
        };
        let rest = [(last.lo, lo - 1), (hi + 1, last.hi)].into_iter().filter(|(lo, hi)| lo <= hi);
        let rest = rest.map(|(lo, hi)| with(lo, hi)).collect();
        *self = with(lo, hi);
        rest
    }

    /// Merges open terms into the range of bytes, while that leaves no gap.
    fn absorb(&mut self) {
        while let Some(term) = self.open.last() {
            let step = term.factor.abs();
            if term.hi > term.lo && step > self.len {
                return;
            }
            let first = if term.factor > 0 { term.lo } else { term.hi };
            self.start = self.start.saturating_add(term.factor.saturating_mul(first));
            self.len = self.len.saturating_add(step.saturating_mul(term.hi - term.lo));
            self.open.pop();
        }
    }
}

/// Joins pieces that have the same open terms and touch each other.
fn unite(pieces: &mut Vec<CoveredBytes>) {
    pieces.sort_by_key(|piece| piece.start);
    let mut joined: Vec<CoveredBytes> = Vec::with_capacity(pieces.len());
    for mut piece in pieces.drain(..) {
        // If the ranges of the last terms differ, their intersection is joined and the rest stays apart.
        let partner = joined.iter().position(|other| other.shares_range(&piece));
        if let Some(partner) = partner.filter(|_| joined.len() < MAX_STORES) {
            let (lo, hi) = joined[partner].common_range(&piece);
            let mut rest = joined[partner].cut(lo, hi);
            rest.extend(piece.cut(lo, hi));
            joined.append(&mut rest);
        }
        match joined.iter_mut().find(|other| other.open == piece.open && piece.start <= other.end()) {
            Some(other) => other.len = other.end().max(piece.end()) - other.start,
            None => joined.push(piece),
        }
    }
    *pieces = joined;
}

/// Merges stores to one offset of which one is performed if a condition holds and the other if it does not.
fn resolve(stores: &mut Vec<Store>) {
    let opposite = |a: &Store, b: &Store| -> Option<usize> {
        if a.offset != b.offset || a.width != b.width || a.path.len() != b.path.len() {
            return None;
        }
        let different: Vec<usize> = (0..a.path.len()).filter(|&i| a.path[i] != b.path[i]).collect();
        match different[..] {
            [i] => {
                let (x, y) = (&a.path[i], &b.path[i]);
                (x.cond.is_some() && x.cond == y.cond && x.holds != y.holds).then_some(i)
            }
            _ => None,
        }
    };
    'again: loop {
        for i in 0..stores.len() {
            for j in i + 1..stores.len() {
                if let Some(at) = opposite(&stores[i], &stores[j]) {
                    stores[i].path.remove(at);
                    stores.swap_remove(j);
                    continue 'again;
                }
            }
        }
        return;
    }
}

/// The bytes that a store writes over all threads, if it is known which threads perform it.
fn piece(exprs: &Exprs, store: &Store) -> Option<CoveredBytes> {
    let mut terms = Vec::new();
    for &(atom, factor) in &store.offset.terms {
        let (lo, hi) = values(exprs, atom)?;
        terms.push(Term { atom, factor, lo, hi });
    }
    let limits = limits(&store.path)?;
    // Atoms that only conditions name must satisfy them for some value.
    let mut atoms: Vec<Id> = terms.iter().map(|term| term.atom).collect();
    let mut others: Vec<Term> = Vec::new();
    for limit in &limits {
        for &(atom, _) in &limit.sum.terms {
            if !atoms.contains(&atom) {
                let (lo, hi) = values(exprs, atom)?;
                atoms.push(atom);
                others.push(Term { atom, factor: 0, lo, hi });
            }
        }
    }
    if !are_independent(exprs, &atoms) {
        return None;
    }
    // Constraints on one atom.
    for Constraint { sum, min, max } in limits.iter().filter(|limit| limit.sum.terms.len() <= 1) {
        let (least, most) = (min - sum.constant, max - sum.constant);
        let Some(&(atom, factor)) = sum.terms.first() else {
            if least > 0 || most < 0 {
                return None;
            }
            continue;
        };
        let term = terms.iter_mut().chain(&mut others).find(|term| term.atom == atom)?;
        let (least, most) = if factor > 0 { (least, most) } else { (-most, -least) };
        let factor = factor.abs();
        term.lo = term.lo.max(least.div_euclid(factor) + i128::from(least.rem_euclid(factor) != 0));
        term.hi = term.hi.min(most.div_euclid(factor));
        if term.lo > term.hi {
            return None;
        }
    }
    // Constraints on several atoms, which the offset must have in the same proportions.
    for Constraint { sum, min, max } in limits.iter().filter(|limit| limit.sum.terms.len() > 1) {
        let sign = if sum.terms.iter().all(|term| term.1 > 0) {
            1
        } else if sum.terms.iter().all(|term| term.1 < 0) {
            -1
        } else {
            return None;
        };
        let (least, most) = if sign > 0 {
            (min - sum.constant, max - sum.constant)
        } else {
            (sum.constant - max, sum.constant - min)
        };
        let mut part = Vec::new();
        let mut by: Option<i128> = None;
        for &(atom, factor) in &sum.terms {
            let at = terms.iter().position(|term| term.atom == atom)?;
            let term = terms.swap_remove(at);
            let factor = factor * sign;
            if term.factor % factor != 0 || by.is_some_and(|by| by != term.factor / factor) {
                return None;
            }
            by = Some(term.factor / factor);
            part.push(Term { factor, ..term });
        }
        part.sort_by_key(|term| std::cmp::Reverse(term.factor.abs()));
        let mut values = CoveredBytes { start: 0, len: 1, open: part.clone() };
        values.absorb();
        if !values.open.is_empty() {
            return None;
        }
        let (lo, hi) = (values.start.max(least), (values.end() - 1).min(most));
        if lo > hi {
            return None;
        }
        // No other constraint may name the atoms that have become one term.
        let atom = part.first()?.atom;
        let named = |limit: &&Constraint| {
            limit.sum.terms.iter().any(|term| part.iter().any(|part| part.atom == term.0))
        };
        if limits.iter().filter(named).count() != 1 {
            return None;
        }
        terms.push(Term { atom, factor: by?, lo, hi });
    }
    terms.sort_by_key(|term| std::cmp::Reverse(term.factor.abs()));
    Some(CoveredBytes { start: store.offset.constant, len: store.width, open: terms })
}

/// The constraints of all literals.
fn limits(path: &[Literal]) -> Option<Vec<Constraint>> {
    if path.len() > MAX_LITERALS {
        return None;
    }
    let mut all = Vec::new();
    for literal in path {
        all.extend(literal.constraints.as_ref()?.iter().cloned());
    }
    Some(all)
}

/// The range of an atom; `None` unless the atom takes every value of it.
fn values(exprs: &Exprs, atom: Id) -> Option<(i128, i128)> {
    match exprs.get(atom) {
        Expr::Symbol(at) => {
            let symbol = exprs.symbols[at as usize];
            match symbol.kind {
                SymbolKind::GridPosition(_) => Some((symbol.range.lo, symbol.range.hi)),
                SymbolKind::Iteration(most) => Some((0, most? - 1)),
                SymbolKind::Opaque => None,
            }
        }
        Expr::Binary(op @ (Arith::Div | Arith::Rem), _, a, b) => {
            let Expr::Const(by) = exprs.get(b) else { return None };
            let (lo, hi) = values(exprs, a)?;
            if lo != 0 || by < 1 || hi < by - 1 {
                return None;
            }
            Some(if op == Arith::Div { (0, hi / by) } else { (0, by - 1) })
        }
        _ => None,
    }
}

/// The symbol that an atom is computed from, the chain of quotients and remainders in between, and whether
/// all of them divide evenly.
fn origin(exprs: &Exprs, atom: Id) -> (Id, Vec<(Arith, i128)>, bool) {
    match exprs.get(atom) {
        Expr::Binary(op @ (Arith::Div | Arith::Rem), _, a, b) => {
            let (symbol, mut way, mut even) = origin(exprs, a);
            if let (Expr::Const(by), Some((_, hi))) = (exprs.get(b), values(exprs, a)) {
                way.push((op, by));
                even &= (hi + 1) % by == 0;
            }
            (symbol, way, even)
        }
        _ => (atom, Vec::new(), true),
    }
}

/// Whether each atom takes all its values independently of the others.
fn are_independent(exprs: &Exprs, atoms: &[Id]) -> bool {
    atoms.iter().enumerate().all(|(i, &a)| {
        atoms[..i].iter().all(|&b| {
            let ((x, along, even_x), (y, along_y, even_y)) = (origin(exprs, a), origin(exprs, b));
            if x != y {
                return true;
            }
            let halves = along.iter().zip(&along_y).find(|(a, b)| a != b);
            even_x && even_y && halves.is_some_and(|(a, b)| a.1 == b.1 && a.0 != b.0)
        })
    })
}

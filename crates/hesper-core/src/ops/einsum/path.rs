//! The order in which operands are contracted.
//!
//! For a few operands the cheapest order is found by trying all; for more, the pair that is cheapest at
//! the moment is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The name of an axis.
pub type Label = u32;

type Set = BTreeSet<Label>;

/// Operands, as the names of their axes.
pub struct Contraction {
    pub inputs: Vec<Set>,
    pub output: Set,
    pub sizes: BTreeMap<Label, usize>,
}

/// Most operands for which all orders are tried.
const EXHAUSTIVE: usize = 5;

impl Contraction {
    fn size(&self, labels: &Set) -> f64 {
        labels.iter().map(|label| self.sizes.get(label).copied().unwrap_or(1) as f64).product()
    }

    /// The names that a pair's result has, given the other operands.
    fn result(&self, a: &Set, b: &Set, others: &[&Set]) -> Set {
        let needed =
            |label: &&Label| self.output.contains(label) || others.iter().any(|other| other.contains(label));
        a.union(b).filter(needed).copied().collect()
    }

    /// Operations of contracting `count` operands with these names, some of which are summed over or not.
    fn cost(&self, labels: &Set, count: usize, sums: bool) -> f64 {
        self.size(labels) * (count.saturating_sub(1).max(1) + usize::from(sums)) as f64
    }

    /// Pairs to contract, one after the other: places among what is left, the smaller one first.
    pub fn order(&self) -> Vec<(usize, usize)> {
        let mut order = Vec::new();
        let mut terms = self.inputs.clone();
        while terms.len() > 1 {
            if terms.len() <= EXHAUSTIVE {
                order.extend(self.best(&terms).1);
                break;
            }
            let (mut best, mut pair) = ((f64::INFINITY, f64::INFINITY), (0, 1));
            for (a, b) in pairs(terms.len()) {
                let (cost, grown) = self.step(&terms, a, b);
                if (grown, cost) < best {
                    (best, pair) = ((grown, cost), (a, b));
                }
            }
            terms = self.contracted(&terms, pair.0, pair.1);
            order.push(pair);
        }
        order
    }

    /// What a pair costs, and by how much its result is larger than its operands.
    fn step(&self, terms: &[Set], a: usize, b: usize) -> (f64, f64) {
        let others: Vec<&Set> =
            (0..terms.len()).filter(|at| *at != a && *at != b).map(|at| &terms[at]).collect();
        let union: Set = terms[a].union(&terms[b]).copied().collect();
        let result = self.result(&terms[a], &terms[b], &others);
        let grown = self.size(&result) - self.size(&terms[a]) - self.size(&terms[b]);
        (self.cost(&union, 2, result.len() < union.len()), grown)
    }

    fn contracted(&self, terms: &[Set], a: usize, b: usize) -> Vec<Set> {
        let mut rest: Vec<Set> =
            (0..terms.len()).filter(|at| *at != a && *at != b).map(|at| terms[at].clone()).collect();
        let others: Vec<&Set> = rest.iter().collect();
        let result = self.result(&terms[a], &terms[b], &others);
        rest.push(result);
        rest
    }

    /// The cheapest order of a few terms. Recursion is as deep as there are terms.
    fn best(&self, terms: &[Set]) -> (f64, Vec<(usize, usize)>) {
        if terms.len() < 2 {
            return (0.0, Vec::new());
        }
        let mut best = (f64::INFINITY, Vec::new());
        for (a, b) in pairs(terms.len()) {
            let (cost, _) = self.step(terms, a, b);
            if cost >= best.0 && !best.1.is_empty() {
                continue;
            }
            let (rest, mut order) = self.best(&self.contracted(terms, a, b));
            if best.1.is_empty() || cost + rest < best.0 {
                order.insert(0, (a, b));
                best = (cost + rest, order);
            }
        }
        best
    }

    /// What an order costs, for people.
    pub fn report(&self, text: &str, order: &[(usize, usize)]) -> String {
        let all: Set = self.inputs.iter().flatten().copied().collect();
        let sums = all.iter().any(|label| !self.output.contains(label));
        let naive = self.cost(&all, self.inputs.len(), sums);
        let (mut scaling, mut cost) = (0, 0.0);
        let mut terms = self.inputs.clone();
        for (a, b) in order {
            scaling = scaling.max(terms[*a].union(&terms[*b]).count());
            cost += self.step(&terms, *a, *b).0;
            terms = self.contracted(&terms, *a, *b);
        }
        if order.is_empty() {
            (scaling, cost) = (all.len(), naive);
        }
        let mut report = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(report, "{name:>22}:  {value}");
        };
        line("Complete contraction", text.to_string());
        line("Naive scaling", all.len().to_string());
        line("Optimized scaling", scaling.to_string());
        line("Naive FLOP count", format!("{naive}"));
        line("Optimized FLOP count", format!("{cost}"));
        report
    }
}

fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |a| (a + 1..count).map(move |b| (a, b)))
}

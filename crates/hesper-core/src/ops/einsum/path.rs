//! The order in which operands are contracted: greedily, by the elements that a step removes.

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

/// A pair that may be contracted next.
#[derive(Clone, Copy)]
struct Candidate {
    grown: f64,
    cost: f64,
    pair: (usize, usize),
}

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

    /// Steps of the contraction: places among the operands that are left, in order; the result of a step
    /// comes last. Each step takes the pair that removes the most elements. Operands that share no axis are
    /// paired if no others are left. A pair whose result is larger than every operand and the whole result is
    /// not taken: if there is no other, the last step takes all that are left.
    pub fn order(&self) -> Vec<Vec<usize>> {
        let mut terms = self.inputs.clone();
        let memory = terms.iter().chain([&self.output]).map(|labels| self.size(labels)).fold(0.0, f64::max);
        let mut candidates: Vec<Candidate> = Vec::new();
        let mut fresh: Vec<(usize, usize)> = pairs(terms.len()).collect();
        let mut order = Vec::new();
        while terms.len() > 1 {
            let candidate = |&(a, b): &(usize, usize)| {
                let (cost, grown) = self.step(&terms, a, b);
                let size = grown + self.size(&terms[a]) + self.size(&terms[b]);
                (size <= memory).then_some(Candidate { grown, cost, pair: (a, b) })
            };
            let shares = |(a, b): &&(usize, usize)| !terms[*a].is_disjoint(&terms[*b]);
            candidates.extend(fresh.iter().filter(shares).filter_map(candidate));
            if candidates.is_empty() {
                candidates.extend(fresh.iter().filter_map(candidate));
            }
            let better =
                |one: &Candidate, other: &Candidate| (other.grown, other.cost) < (one.grown, one.cost);
            let best = candidates
                .iter()
                .copied()
                .reduce(|one, other| if better(&one, &other) { other } else { one });
            let Some(Candidate { pair: (a, b), .. }) = best else {
                order.push((0..terms.len()).collect());
                break;
            };
            terms = self.contracted(&terms, a, b);
            // Pairs of other operands keep what they cost.
            candidates.retain(|one| ![a, b].contains(&one.pair.0) && ![a, b].contains(&one.pair.1));
            let moved = |at: usize| at - usize::from(at > a) - usize::from(at > b);
            candidates.iter_mut().for_each(|one| one.pair = (moved(one.pair.0), moved(one.pair.1)));
            fresh = (0..terms.len() - 1).map(|at| (at, terms.len() - 1)).collect();
            order.push(vec![a, b]);
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

    /// What an order costs, for people.
    pub fn report(&self, text: &str, order: &[Vec<usize>]) -> String {
        let all: Set = self.inputs.iter().flatten().copied().collect();
        let sums = all.iter().any(|label| !self.output.contains(label));
        let naive = self.cost(&all, self.inputs.len(), sums);
        let (mut scaling, mut cost) = (0, 0.0);
        let mut terms = self.inputs.clone();
        for step in order {
            if let [a, b] = step[..] {
                scaling = scaling.max(terms[a].union(&terms[b]).count());
                cost += self.step(&terms, a, b).0;
                terms = self.contracted(&terms, a, b);
            } else {
                let rest: Set = terms.iter().flatten().copied().collect();
                scaling = scaling.max(rest.len());
                cost += self.cost(&rest, terms.len(), rest.iter().any(|label| !self.output.contains(label)));
            }
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

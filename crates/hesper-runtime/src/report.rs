//! Violations and their report.

use std::fmt;

use crate::sync::{Lock, Rank};

/// The guarantee that a violation breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// R1: work in flight owns what it names.
    Retention,
    /// R2: memory is reused only by work that is ordered behind its uses.
    Reuse,
    /// R3: a kernel is its content, and lives while work names it.
    Identity,
    /// R4: bound memory exists and is filled.
    Materialised,
    /// R5: conflicting uses are ordered.
    Order,
    /// R8: nothing leaks.
    Bounded,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Retention => "R1 retention",
            Rule::Reuse => "R2 stream-ordered reuse",
            Rule::Identity => "R3 identity",
            Rule::Materialised => "R4 materialised",
            Rule::Order => "R5 order",
            Rule::Bounded => "R8 bounded",
        })
    }
}

/// A broken rule and the command or call that broke it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The command or call.
    pub command: String,
    /// A description.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(rule: Rule, command: &str, what: String) -> Self {
        Violation { rule, command: command.to_string(), what }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {} broken: {} {}", self.rule, self.command, self.what)
    }
}

/// The most violations kept; later ones are only counted.
const MAX_KEPT_VIOLATIONS: usize = 256;

/// The violations of a device, oldest first.
#[derive(Debug)]
pub struct Report {
    kept: Lock<(Vec<Violation>, usize)>,
    log: bool,
}

impl Default for Report {
    fn default() -> Self {
        let log = std::env::var_os("HESPER_VALIDATE").is_some_and(|value| value != "0");
        Report { kept: Lock::new(Rank::Leaf, (Vec::new(), 0)), log }
    }
}

impl Report {
    /// The kept violations.
    pub fn violations(&self) -> Vec<Violation> {
        self.kept.lock().0.clone()
    }

    /// The number of violations.
    pub fn count(&self) -> usize {
        self.kept.lock().1
    }

    pub(crate) fn add(&self, violation: Violation) {
        if self.log {
            eprintln!("hesper: {violation}");
        }
        let mut kept = self.kept.lock();
        kept.1 += 1;
        if kept.0.len() < MAX_KEPT_VIOLATIONS {
            kept.0.push(violation);
        }
    }
}

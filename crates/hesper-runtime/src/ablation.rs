//! Ablations: one mechanism switched off, to show what it prevents.

use std::fmt;

/// The mechanism that is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ablation {
    /// Nothing is switched off.
    #[default]
    None,
    /// Work in flight does not hold the memory that it names.
    Retention,
    /// No barriers, edges or waits: conflicting commands are not ordered.
    Hazards,
    /// The pool hands out a returned block as if nothing used it.
    ReuseOrder,
    /// Pipelines are looked up by their label.
    ContentKeys,
    /// Eviction releases a pipeline instead of the cache's reference to it.
    CarefulEviction,
    /// A command hides one of its inputs, like an op that holds an array which it never declared.
    DeclaredInputs,
    /// Later work does not inherit the waits of a refused submission.
    RefusedWaits,
    /// A fault also affects commands encoded before the failed write.
    FaultOrder,
    /// Fresh memory is not cleared before a command that may leave bytes of it unwritten.
    FreshMemory,
}

impl Ablation {
    /// All of them, [`None`](Ablation::None) first.
    pub const ALL: [Ablation; 10] = [
        Ablation::None,
        Ablation::Retention,
        Ablation::Hazards,
        Ablation::ReuseOrder,
        Ablation::ContentKeys,
        Ablation::CarefulEviction,
        Ablation::DeclaredInputs,
        Ablation::RefusedWaits,
        Ablation::FaultOrder,
        Ablation::FreshMemory,
    ];
}

impl fmt::Display for Ablation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Ablation::None => "nothing",
            Ablation::Retention => "retention",
            Ablation::Hazards => "hazard tracking",
            Ablation::ReuseOrder => "order in reuse",
            Ablation::ContentKeys => "content keys",
            Ablation::CarefulEviction => "careful eviction",
            Ablation::DeclaredInputs => "declared inputs",
            Ablation::RefusedWaits => "refused waits",
            Ablation::FaultOrder => "order of faults",
            Ablation::FreshMemory => "cleared memory",
        })
    }
}

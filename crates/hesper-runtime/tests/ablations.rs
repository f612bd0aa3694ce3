//! Each mechanism, switched off alone, is detected as a violation of its rule; with all mechanisms on,
//! every seed is clean.

use std::collections::BTreeSet;

use hesper_runtime::Rule;
use hesper_runtime::sim::Ablation;
use hesper_runtime::sim::workload::{Decode, Verdict};

/// The first seed; `HESPER_SEED=1000 cargo test` selects other runs.
fn first_seed() -> u64 {
    std::env::var("HESPER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn run(ablation: Ablation, tasks: usize, validate: bool, seed: u64) -> Verdict {
    Decode { tasks, steps: 20, ablation, validate, seed }.run()
}

/// Runs seeds until one is caught, and returns the rules that were violated.
fn rules(ablation: Ablation) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for seed in first_seed()..first_seed() + 8 {
        let verdict = run(ablation, 16, true, seed);
        assert!(!verdict.outcome.hung, "{ablation}, seed {seed}: hung");
        named.extend(verdict.violations.iter().map(|violation| violation.rule.to_string()));
    }
    named
}

fn assert_caught(ablation: Ablation, rule: Rule) {
    let named = rules(ablation);
    assert!(named.contains(&rule.to_string()), "{ablation}: {rule} is not among {named:?}");
}

#[test]
fn without_retention_memory_is_freed_under_running_commands() {
    assert_caught(Ablation::Retention, Rule::Retention);
}

#[test]
fn without_hazard_tracking_conflicting_commands_are_not_ordered() {
    assert_caught(Ablation::Hazards, Rule::Order);
}

#[test]
fn without_order_in_reuse_memory_is_reused_too_early() {
    assert_caught(Ablation::ReuseOrder, Rule::Reuse);
}

#[test]
fn without_content_keys_kernels_of_one_name_are_confused() {
    assert_caught(Ablation::ContentKeys, Rule::Identity);
}

#[test]
fn without_careful_eviction_pipelines_are_released_in_flight() {
    assert_caught(Ablation::CarefulEviction, Rule::Identity);
}

#[test]
fn without_declared_inputs_a_hidden_input_is_neither_kept_nor_ordered() {
    let named = rules(Ablation::DeclaredInputs);
    let expected = [Rule::Retention.to_string(), Rule::Order.to_string(), Rule::Reuse.to_string()];
    assert!(named.iter().any(|rule| expected.contains(rule)), "{named:?}");
}

#[test]
fn without_the_waits_of_refused_submissions_later_work_runs_too_early() {
    let named = rules(Ablation::RefusedWaits);
    let expected = [Rule::Order.to_string(), Rule::Reuse.to_string()];
    assert!(named.iter().any(|rule| expected.contains(rule)), "{named:?}");
}

#[test]
fn without_the_order_of_faults_good_results_are_poisoned() {
    let poisoned = (first_seed()..first_seed() + 8).any(|seed| {
        let verdict = run(Ablation::FaultOrder, 16, true, seed);
        verdict.errors.iter().any(|error| error.contains("on purpose"))
    });
    assert!(poisoned);
}

#[test]
fn without_clearing_bytes_of_an_earlier_lease_are_read() {
    let wrong = (first_seed()..first_seed() + 8)
        .any(|seed| !run(Ablation::FreshMemory, 16, true, seed).wrong.is_empty());
    assert!(wrong);
}

/// The validation layer refuses bad work before it runs; without it the simulator must detect wrong
/// results or uses of freed objects itself.
#[test]
fn the_simulator_alone_catches_every_ablation() {
    for ablation in Ablation::ALL.into_iter().filter(|ablation| *ablation != Ablation::None) {
        let caught = (first_seed()..first_seed() + 24).filter(|seed| {
            let verdict = run(ablation, 16, false, *seed);
            !verdict.wrong.is_empty() || !verdict.violations.is_empty() || !verdict.errors.is_empty()
        });
        let caught = caught.count();
        assert!(caught >= 3, "{ablation} goes unnoticed: {caught} of 24 runs");
    }
}

#[test]
fn with_every_mechanism_on_a_thousand_seeds_are_clean() {
    for seed in first_seed()..first_seed() + 1000 {
        let tasks = 2 + (seed % 7) as usize;
        let verdict = run(Ablation::None, tasks, seed % 4 == 0, seed);
        assert!(verdict.survived(), "{tasks} tasks, seed {seed}: {verdict:?}");
    }
}

#[test]
fn many_tasks_are_clean_too() {
    for tasks in [16, 17, 32, 64] {
        let verdict = run(Ablation::None, tasks, true, first_seed() + tasks as u64);
        assert!(verdict.survived(), "{tasks} tasks: {verdict:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for ablation in [Ablation::None, Ablation::Hazards, Ablation::Retention] {
        let runs: Vec<Verdict> = (0..2).map(|_| run(ablation, 8, false, 77)).collect();
        assert_eq!(runs[0].fingerprint, runs[1].fingerprint, "{ablation}");
        assert_eq!(runs[0].wrong, runs[1].wrong, "{ablation}");
    }
    let (one, other) = (run(Ablation::None, 8, false, 1), run(Ablation::None, 8, false, 2));
    assert_ne!(one.fingerprint, other.fingerprint);
}

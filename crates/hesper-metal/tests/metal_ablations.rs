//! The runtime's workload on the simulated Metal: with every mechanism on, every seed is clean; with one
//! switched off, the failure that it prevents comes back.

use std::sync::Arc;

use hesper_metal::sim::{DeviceAblation, SimMetal};
use hesper_metal::{MetalDevice, MetalOptions};
use hesper_runtime::Rule;
use hesper_runtime::sim::workload::{Decode, REFUSE_ONE_IN, Verdict};
use hesper_runtime::sim::{Ablation, Simulated};

/// The first seed; `HESPER_SEED=1000 cargo test` selects other runs.
fn first_seed() -> u64 {
    std::env::var("HESPER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

struct Run {
    ablation: Ablation,
    device: DeviceAblation,
    tasks: usize,
    validate: bool,
    seed: u64,
}

impl Run {
    fn verdict(&self) -> Verdict {
        let metal = SimMetal::builder(self.seed).refuse(REFUSE_ONE_IN).stepped().build();
        let options =
            MetalOptions { batch: 6, cache: None, ablation: self.device, ..MetalOptions::default() };
        let device = MetalDevice::on(metal.edge(), options).unwrap();
        let decode = Decode {
            tasks: self.tasks,
            steps: 20,
            ablation: self.ablation,
            validate: self.validate,
            seed: self.seed,
        };
        let sim: Arc<dyn Simulated> = Arc::new(metal.clone());
        let verdict = decode.run_on(device, sim);
        if self.ablation == Ablation::None && self.device == DeviceAblation::None {
            assert_eq!(metal.misuse(), [] as [String; 0], "seed {}", self.seed);
            assert!(verdict.clean, "seed {}: left behind {:?}", self.seed, metal.alive());
        }
        verdict
    }
}

fn run(ablation: Ablation, device: DeviceAblation, seed: u64) -> Verdict {
    Run { ablation, device, tasks: 16, validate: false, seed }.verdict()
}

/// Three of the seeds notice that a mechanism is switched off, by a violation of `rule` or by wrong numbers.
fn assert_noticed(ablation: Ablation, device: DeviceAblation, rule: Option<Rule>) {
    let seeds = first_seed()..first_seed() + 64;
    let noticed = seeds.filter(|seed| {
        let verdict = run(ablation, device, *seed);
        match rule {
            Some(rule) => verdict.violations.iter().any(|violation| violation.rule == rule),
            None => !verdict.wrong.is_empty(),
        }
    });
    let count = noticed.take(3).count();
    assert!(count == 3, "{ablation}, {device:?}: {count} of 64 runs show {rule:?}");
}

#[test]
fn with_every_mechanism_on_hundreds_of_seeds_are_clean() {
    for seed in first_seed()..first_seed() + 400 {
        let tasks = 2 + (seed % 7) as usize;
        let (ablation, device) = (Ablation::None, DeviceAblation::None);
        let verdict = Run { ablation, device, tasks, validate: seed % 4 == 0, seed }.verdict();
        assert!(verdict.survived(), "{tasks} tasks, seed {seed}: {verdict:?}");
    }
}

#[test]
fn many_tasks_are_clean_too() {
    for tasks in [16, 17, 32, 64] {
        let (ablation, device) = (Ablation::None, DeviceAblation::None);
        let seed = first_seed() + tasks as u64;
        let verdict = Run { ablation, device, tasks, validate: true, seed }.verdict();
        assert!(verdict.survived(), "{tasks} tasks: {verdict:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let fingerprint = |seed| run(Ablation::None, DeviceAblation::None, seed).fingerprint;
    assert_eq!(fingerprint(7), fingerprint(7));
    assert_ne!(fingerprint(7), fingerprint(8));
}

#[test]
fn without_retention_command_buffers_name_destroyed_buffers() {
    assert_noticed(Ablation::Retention, DeviceAblation::None, Some(Rule::Retention));
}

#[test]
fn without_careful_eviction_command_buffers_name_destroyed_pipelines() {
    assert_noticed(Ablation::CarefulEviction, DeviceAblation::None, Some(Rule::Identity));
}

#[test]
fn without_content_keys_kernels_of_one_name_compute_the_wrong_numbers() {
    assert_noticed(Ablation::ContentKeys, DeviceAblation::None, None);
}

#[test]
fn without_hazard_tracking_results_are_wrong() {
    assert_noticed(Ablation::Hazards, DeviceAblation::None, None);
}

#[test]
fn without_barriers_in_an_encoder_results_are_wrong() {
    assert_noticed(Ablation::None, DeviceAblation::Barriers, None);
}

#[test]
fn without_fences_between_encoders_results_are_wrong() {
    assert_noticed(Ablation::None, DeviceAblation::Fences, None);
}

#[test]
fn without_events_between_streams_results_are_wrong() {
    assert_noticed(Ablation::None, DeviceAblation::Events, None);
}

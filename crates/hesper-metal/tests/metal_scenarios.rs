//! The four founding failures on the simulated Metal, with 16 to 64 concurrent tasks. With every mechanism on
//! they do not happen; each comes back when the mechanism that prevents it is switched off.

use crate::support;
use std::sync::Arc;

use crate::support::{LEN, MappedFile, Report, World, bytes, elements, mix, mixed, read, run_tasks};
use hesper_metal::sim::DeviceAblation;
use hesper_runtime::sim::{Ablation, Rng};
use hesper_runtime::{Error, Rule, Runtime};

const TASKS: [usize; 4] = [16, 17, 32, 64];

type Scenario = fn(&Runtime, usize) -> Result<bool, Error>;

/// S1: weights from a mapped file reach a kernel without having been copied or evaluated before; some are
/// empty.
fn mapped_weights(runtime: &Runtime, task: usize) -> Result<bool, Error> {
    let stream = runtime.stream()?;
    // More than a page, so that the memory is bound in place.
    let mut file = bytes(&elements(task as u32));
    file.resize(9000, 7);
    let weights = runtime.adopt(MappedFile(file), "a mapped file")?;
    let empty = runtime.adopt(MappedFile(Vec::new()), "an empty tensor")?;
    let nothing = stream.alloc(0)?;
    stream.encode("empty").read(&empty).write(&nothing).copy()?;
    let x = runtime.upload(&elements(1))?;
    let y = mix(runtime, &stream, "mix 3", &[&weights, &x])?;
    drop((weights, empty, x));
    Ok(read(&y)? == mixed(3, &[&elements(task as u32), &elements(1)]))
}

/// S2: decode with temporaries whose handles are dropped at once, while others trim the pool.
fn decode(runtime: &Runtime, task: usize) -> Result<bool, Error> {
    let stream = runtime.stream()?;
    let mut rng = Rng::new(task as u64);
    let mut expected = elements(task as u32);
    let mut x = runtime.upload(&expected)?;
    for step in 0..8 {
        let temporary = mix(runtime, &stream, "mix 1", &[&x])?;
        let between = mixed(1, &[&expected]);
        x = mix(runtime, &stream, "mix 1", &[&temporary, &x])?;
        drop(temporary);
        expected = mixed(1, &[&between, &expected]);
        if rng.one_in(3) {
            runtime.clear_cache();
        }
        if step % 3 == 2 {
            stream.commit()?;
        }
    }
    Ok(read(&x)? == expected)
}

/// S3: twelve layers call one kernel with slices of one stacked buffer and with separate weights; every other
/// layer has another text of the same name.
fn layers(runtime: &Runtime, task: usize) -> Result<bool, Error> {
    const LAYERS: usize = 12;
    let stream = runtime.stream()?;
    let stacked: Vec<u32> = (0..LAYERS).flat_map(|layer| elements((task * LAYERS + layer) as u32)).collect();
    let weights = runtime.upload(&stacked)?;
    let mut expected = elements(5);
    let mut x = runtime.upload(&expected)?;
    for layer in 0..LAYERS {
        let part = &stacked[layer * LEN..(layer + 1) * LEN];
        let k = layer as u32 % 2;
        let pipeline = runtime.pipeline(&support::source(&format!("mix {k}")))?;
        let out = stream.alloc(4 * LEN)?;
        let separate = runtime.upload(part)?;
        let command = stream.encode("layer").constants(&[0; 4]).read(&x);
        let command = match layer % 3 {
            0 => command.read(&separate),
            _ => command.read_range(&weights, layer * LEN * 4..(layer + 1) * LEN * 4),
        };
        command.write(&out).dispatch(&pipeline, [LEN as u64, 1, 1], [LEN as u64, 1, 1])?;
        x = out;
        expected = mixed(k, &[&expected, part]);
    }
    Ok(read(&x)? == expected)
}

/// S4: one kernel name with another text at each call, as for inputs of other types, in a cache of one
/// pipeline.
fn variants(runtime: &Runtime, task: usize) -> Result<bool, Error> {
    let stream = runtime.stream()?;
    let mut expected = elements(task as u32);
    let mut x = runtime.upload(&expected)?;
    for step in 0..10 {
        let k = (task as u32 + step) % 3;
        x = mix(runtime, &stream, &format!("mix {k}"), &[&x])?;
        expected = mixed(k, &[&expected]);
    }
    Ok(read(&x)? == expected)
}

fn run(scenario: Scenario, tasks: usize, seed: u64, ablation: Ablation, device: DeviceAblation) -> Report {
    run_tasks(World::ablated(seed, ablation, device), seed, tasks, scenario)
}

fn assert_survives(scenario: Scenario) {
    for tasks in TASKS {
        for seed in 0..3 {
            let report = run(scenario, tasks, seed, Ablation::None, DeviceAblation::None);
            assert!(report.survived(), "{tasks} tasks, seed {seed}: {report:?}");
        }
    }
}

/// One of some seeds shows the failure at each number of tasks.
fn assert_fails(
    scenario: Scenario,
    ablation: Ablation,
    device: DeviceAblation,
    failure: impl Fn(&Report) -> bool,
) {
    for tasks in TASKS {
        let failed = (0..12).any(|seed| failure(&run(scenario, tasks, seed, ablation, device)));
        assert!(failed, "{ablation}, {device:?}, {tasks} tasks: nothing was noticed");
    }
}

fn violates(rule: Rule) -> impl Fn(&Report) -> bool {
    move |report| report.violations.iter().any(|violation| violation.rule == rule)
}

#[test]
fn s1_weights_of_a_mapped_file_are_real_when_they_are_bound() {
    assert_survives(mapped_weights);
}

#[test]
fn s1_comes_back_when_imported_memory_has_no_buffer() {
    assert_fails(mapped_weights, Ablation::None, DeviceAblation::RealMemory, |report| {
        violates(Rule::Materialised)(report) && report.errors.iter().any(|error| error.contains("is null"))
    });
}

#[test]
fn s2_temporaries_live_until_their_command_buffer_has_completed() {
    assert_survives(decode);
}

#[test]
fn s2_comes_back_when_work_does_not_retain_what_it_names() {
    assert_fails(decode, Ablation::Retention, DeviceAblation::None, violates(Rule::Retention));
}

#[test]
fn s3_layers_of_one_kernel_use_their_own_weights() {
    assert_survives(layers);
}

#[test]
fn s3_comes_back_when_commands_are_not_ordered() {
    assert_fails(layers, Ablation::Hazards, DeviceAblation::None, |report| report.wrong > 0);
    assert_fails(layers, Ablation::None, DeviceAblation::Barriers, |report| report.wrong > 0);
}

#[test]
fn s3_comes_back_when_kernels_are_found_by_name() {
    assert_fails(layers, Ablation::ContentKeys, DeviceAblation::None, |report| report.wrong > 0);
}

#[test]
fn s4_variants_of_a_kernel_coexist_in_a_cache_of_one() {
    assert_survives(variants);
}

#[test]
fn s4_comes_back_when_eviction_destroys_pipelines_in_use() {
    assert_fails(variants, Ablation::CarefulEviction, DeviceAblation::None, violates(Rule::Identity));
}

#[test]
fn s4_comes_back_when_variants_are_found_by_name() {
    assert_fails(variants, Ablation::ContentKeys, DeviceAblation::None, |report| report.wrong > 0);
}

/// The same on threads of the operating system, without a schedule.
#[test]
fn threads_of_the_operating_system_survive_all_four() {
    for scenario in [mapped_weights as Scenario, decode, layers, variants] {
        let world = World::new(hesper_metal::sim::SimMetal::builder(3));
        let runtime = Arc::new(world.runtime.clone());
        std::thread::scope(|scope| {
            for task in 0..16 {
                let runtime = runtime.clone();
                scope.spawn(move || assert!(scenario(&runtime, task).unwrap(), "task {task}"));
            }
        });
        drop(runtime);
        world.end("threads");
    }
}

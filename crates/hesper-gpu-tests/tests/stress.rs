//! The stress scenarios of 64 tasks on the host. `HESPER_ROUNDS` sets the number of rounds per task.

use hesper::placement::{self, Device};
use hesper_gpu_tests::scenarios;

#[test]
fn concurrent_tasks_give_right_results() {
    let rounds = std::env::var("HESPER_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let outcomes = scenarios::run(Device::Cpu, rounds, |outcome| {
        println!("{}: {:.1} s", outcome.name, outcome.time.as_secs_f64());
    });
    for outcome in outcomes.unwrap() {
        assert!(outcome.failures.is_empty(), "{}: {:?}", outcome.name, outcome.failures);
    }
    placement::cpu().synchronize().unwrap();
    let counters = placement::cpu().counters();
    assert_eq!(counters.faults, 0);
    // The mapped file is released with its arrays.
    assert!(counters.active < 1 << 20, "{} bytes are still held", counters.active);
    if let Some(report) = placement::cpu().validation() {
        assert!(report.violations().is_empty(), "{:?}", report.violations());
    }
}

//! A short soak test: once every cache is full, nothing grows. `HESPER_SOAK_SECONDS` sets the duration.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use hesper::placement;
use hesper_fuzz::heap::CountingAllocator;
use hesper_fuzz::soak::{self, Plan};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Few different rounds, so that caches fill at once; with long-lived and with short-lived threads.
#[test]
fn nothing_grows_when_caches_are_full() {
    let seconds = std::env::var("HESPER_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    for short_threads in [false, true] {
        let plan = Plan {
            threads: 16,
            duration: Duration::from_secs(seconds),
            interval: Duration::from_millis(1000 * seconds / 40),
            only: None,
            short_threads,
            variety: Some(100),
        };
        let samples = soak::run(&plan, 1, |_| {}).unwrap();
        let (first, last) = (&samples[samples.len() / 4], &samples[samples.len() - 1]);
        let rounds = last.rounds - first.rounds;
        assert!(rounds > 300, "{rounds} rounds tell nothing");
        // The momentary use of 16 threads varies by less than this; a leak of 100 bytes a round exceeds it.
        let heap = soak::growth(&samples, |sample| sample.heap);
        let allowed = (256 << 10) + 30 * rounds as i64;
        assert!(heap < allowed, "{heap} bytes of heap more after {rounds} rounds: {:?}", last.by_size);
        let cached = soak::growth(&samples, |sample| sample.counters.cached as i64);
        assert!(cached < 256 << 10, "{cached} bytes more in the pool");
        // The validation layer keeps a limited number of names of released objects.
        if placement::cpu().validation().is_none() {
            let resident = soak::growth(&samples, |sample| sample.resident.unwrap_or(0) as i64);
            assert!(resident < 6 << 20, "{resident} resident bytes more after {rounds} rounds");
        }
        let counters = placement::cpu().counters();
        assert_eq!((counters.active, counters.streams, counters.faults), (0, 1, 0));
    }
}

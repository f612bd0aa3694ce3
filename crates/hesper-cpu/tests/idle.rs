//! Idle threads use no processor time. Alone in its process, so that no other work is counted.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use hesper_cpu::{Compute, CpuDevice};
use hesper_runtime::Runtime;

/// The clock ticks that this process has used, where the system reports them.
fn used() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

#[test]
fn no_thread_uses_processor_time_without_work() {
    let runtime = Runtime::new(CpuDevice::new());
    let stream = runtime.stream().unwrap();
    for _ in 0..100 {
        stream
            .encode("work")
            .run(|_| {
                Compute::global().run(64, &|_| std::thread::sleep(Duration::from_micros(10)));
                Ok(())
            })
            .unwrap();
        stream.commit().unwrap();
    }
    stream.synchronize().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let Some(before) = used() else { return };
    std::thread::sleep(Duration::from_millis(500));
    let burnt = used().unwrap_or(0) - before;
    assert!(burnt <= 2, "{burnt} ticks in half a second of idling");
}

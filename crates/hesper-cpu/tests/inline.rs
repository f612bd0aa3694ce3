//! The waiting thread runs awaited work. Alone in its process, so that no other work takes the slots of the
//! pool.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use hesper_cpu::CpuDevice;
use hesper_runtime::Runtime;

#[test]
fn a_wait_on_an_idle_stream_runs_the_work_on_the_calling_thread() {
    let runtime = Runtime::new(CpuDevice::new());
    let stream = runtime.stream().unwrap();
    let me = std::thread::current().id();
    // Awaited work is not queued for workers, so no worker can be faster.
    for _ in 0..50 {
        let out = stream.alloc(1).unwrap();
        stream
            .encode("where")
            .write(&out)
            .run(move |native| {
                let [out] = native.take()?;
                out.bytes_mut()?[0] = u8::from(std::thread::current().id() == me);
                Ok(())
            })
            .unwrap();
        assert_eq!(out.read().unwrap().bytes(), [1]);
    }
}

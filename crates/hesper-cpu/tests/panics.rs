//! Panics of user code end no worker and no submission.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use hesper_cpu::CpuDevice;
use hesper_runtime::{Buffer, FaultKind, HostMemory, Runtime, Stream, Watch};

struct Panics;

impl Watch for Panics {
    fn check(&self) -> Result<(), String> {
        panic!("the watch panics")
    }
}

/// Memory whose watch panics and whose destructor panics.
struct Mapped(Vec<u8>);

// SAFETY: the heap memory of the vector neither moves nor changes.
unsafe impl HostMemory for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        Some(Arc::new(Panics))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        panic!("the owner panics");
    }
}

fn copy(stream: &Stream, from: &Buffer) -> Buffer {
    let out = stream.alloc(from.len()).unwrap();
    stream.encode("copy").read(from).write(&out).copy().unwrap();
    out
}

#[test]
fn more_panics_than_workers_do_not_affect_other_runtimes() {
    let runtime = Runtime::new(CpuDevice::new());
    let rounds = 4 * hesper_cpu::Compute::global().threads();
    for _ in 0..rounds {
        let stream = runtime.stream().unwrap();
        let mapped = runtime.adopt(Mapped(vec![1; 64]), "a file").unwrap();
        let out = copy(&stream, &mapped);
        let native = stream.alloc(8).unwrap();
        stream.encode("native").write(&native).run(|_| panic!("a native command panics")).unwrap();
        // A worker runs it, not this thread.
        let submission = stream.commit().unwrap();
        while !submission.is_done() {
            std::thread::yield_now();
        }
        let fault = |buffer: &Buffer| buffer.read().err().unwrap().fault().unwrap().kind();
        assert_eq!(fault(&out), FaultKind::Source);
        assert_eq!(fault(&native), FaultKind::Panicked);
    }
    let other = Runtime::new(CpuDevice::new());
    let streams: Vec<Stream> = (0..8).map(|_| other.stream().unwrap()).collect();
    let input = other.upload(&[3u8; 64]).unwrap();
    let copies: Vec<Buffer> = streams.iter().map(|stream| copy(stream, &input)).collect();
    let submissions: Vec<_> = streams.iter().map(|stream| stream.commit().unwrap()).collect();
    while !submissions.iter().all(|submission| submission.is_done()) {
        std::thread::yield_now();
    }
    assert!(copies.iter().all(|copy| copy.read().unwrap().bytes() == [3; 64]));
}

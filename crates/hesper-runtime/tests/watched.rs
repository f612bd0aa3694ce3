//! Foreign memory that may become invalid: results computed from it fail, others do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hesper_runtime::sim::Sim;
use hesper_runtime::{Buffer, FaultKind, HostMemory, Runtime, Stream, Watch};

#[derive(Default)]
struct File {
    gone: AtomicBool,
    asked: AtomicUsize,
}

impl Watch for File {
    fn check(&self) -> Result<(), String> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if self.gone.load(Ordering::Relaxed) { Err("the file was truncated".into()) } else { Ok(()) }
    }
}

struct Mapped(Vec<u8>, Arc<File>);

// SAFETY: the heap memory of the vector neither moves nor changes.
unsafe impl HostMemory for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        Some(self.1.clone())
    }
}

fn copy(stream: &Stream, from: &Buffer) -> Buffer {
    let out = stream.alloc(from.len()).unwrap();
    stream.encode("copy").read(from).write(&out).copy().unwrap();
    out
}

#[test]
fn results_of_invalid_memory_fail_and_others_do_not() {
    for seed in 0..50 {
        let runtime = Runtime::new(Sim::new(seed));
        let (one, two) = (runtime.stream().unwrap(), runtime.stream().unwrap());
        let file = Arc::new(File::default());
        let mapped = runtime.adopt(Mapped(vec![7; 64], file.clone()), "a file").unwrap();
        let other = runtime.adopt(Mapped(vec![8; 64], Arc::default()), "another file").unwrap();
        let early = copy(&one, &mapped);
        assert_eq!(early.read().unwrap().bytes(), [7; 64]);

        let late = copy(&one, &mapped);
        let later = copy(&two, &late);
        let good = copy(&one, &other);
        file.gone.store(true, Ordering::Relaxed);
        for poisoned in [&late, &later, &mapped] {
            let error = poisoned.read().err().expect("its source is gone");
            let fault = error.fault().expect("a fault");
            assert_eq!(fault.kind(), FaultKind::Source, "seed {seed}");
            assert!(fault.to_string().contains("the file was truncated"), "{fault}");
        }
        assert_eq!(good.read().unwrap().bytes(), [8; 64]);
        assert_eq!(early.read().unwrap().bytes(), [7; 64], "what was copied before is whole");
    }
}

#[test]
fn a_check_after_a_host_read_reports_the_fault() {
    let runtime = Runtime::new(Sim::new(1));
    let file = Arc::new(File::default());
    let mapped = runtime.adopt(Mapped(vec![7; 64], file.clone()), "a file").unwrap();
    let guard = mapped.read().unwrap();
    guard.check().unwrap();
    file.gone.store(true, Ordering::Relaxed);
    let error = guard.check().unwrap_err();
    assert_eq!(error.fault().unwrap().kind(), FaultKind::Source);
    assert!(mapped.fault().is_some());
}

#[test]
fn a_submission_checks_each_file_once() {
    let runtime = Runtime::new(Sim::new(1));
    let stream = runtime.stream().unwrap();
    let file = Arc::new(File::default());
    let tensors: Vec<Buffer> =
        (0..4).map(|at| runtime.adopt(Mapped(vec![at; 64], file.clone()), "a tensor").unwrap()).collect();
    let copies: Vec<Buffer> = tensors.iter().map(|tensor| copy(&stream, tensor)).collect();
    stream.synchronize().unwrap();
    assert_eq!(file.asked.load(Ordering::Relaxed), 1);
    assert_eq!(copies[3].read().unwrap().bytes(), [3; 64]);
}

//! A forked process gets an error from every call and can exit.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hesper_cpu::CpuDevice;
use hesper_runtime::{Buffer, Error, Runtime, Stream};

/// Runs `child` in a forked process and returns its status; kills a child that hangs.
fn forked(child: impl FnOnce() -> bool) -> Option<i32> {
    // SAFETY: the child does not depend on other threads, and exits without running destructors.
    let id = unsafe { libc::fork() };
    if id == 0 {
        let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
        // SAFETY: ends the process.
        unsafe { libc::_exit(if well { 0 } else { 1 }) };
    }
    let begun = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: `status` receives the status of a child of this process.
        if unsafe { libc::waitpid(id, &mut status, libc::WNOHANG) } == id {
            return libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        }
        if begun.elapsed() > Duration::from_secs(20) {
            // SAFETY: the process is a child of this test.
            unsafe { libc::kill(id, libc::SIGKILL) };
            return None;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn fill(stream: &Stream, buffer: &Buffer) -> Result<(), Error> {
    stream.encode("fill").write(buffer).run(|native| {
        let [out] = native.take()?;
        out.bytes_mut()?.fill(7);
        Ok(())
    })
}

#[test]
fn a_child_refuses_every_call_and_drops_without_waiting_while_threads_of_the_parent_are_busy() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let cpu = Runtime::new(CpuDevice::new());
    let stream = cpu.stream().unwrap();
    let buffer = stream.alloc(64).unwrap();
    fill(&stream, &buffer).unwrap();
    assert_eq!(buffer.read().unwrap().bytes(), [7; 64]);
    let busy: Vec<_> = (0..4)
        .map(|_| {
            let cpu = cpu.clone();
            thread::spawn(move || {
                let stream = cpu.stream().unwrap();
                while !STOP.load(Ordering::Relaxed) {
                    let buffer = stream.alloc(64).unwrap();
                    fill(&stream, &buffer).unwrap();
                    stream.commit().unwrap();
                }
            })
        })
        .collect();
    for _ in 0..200 {
        let (cpu, other, filled) = (cpu.clone(), cpu.stream().unwrap(), cpu.upload(&[1u8; 64]).unwrap());
        let status = forked(|| {
            let refused = [
                buffer.read().map(drop),
                buffer.wait(),
                buffer.write().map(drop),
                stream.alloc(64).map(drop),
                stream.commit().map(drop),
                stream.synchronize(),
                fill(&stream, &buffer),
                cpu.alloc(1).map(drop),
                cpu.upload(&[1u8]).map(drop),
                cpu.stream().map(drop),
                cpu.synchronize(),
            ];
            drop((filled, other, cpu));
            refused.iter().all(|result| matches!(result, Err(Error::Forked)))
        });
        assert_eq!(status, Some(0));
    }
    STOP.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(buffer.read().unwrap().bytes(), [7; 64]);
}

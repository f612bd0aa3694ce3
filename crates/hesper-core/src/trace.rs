//! Recordings of what the devices do, for Perfetto (<https://ui.perfetto.dev>) and for `hesper trace FILE`.
//!
//! ```
//! use hesper::{Array, Dtype, trace};
//! let file = std::env::temp_dir().join("hesper-trace-example.json");
//! trace::record(&file, || {
//!     let x = Array::ones(&[256, 256], Dtype::Float32)?;
//!     x.matmul(&x)?.exp()?.sum(())?.eval()
//! })?;
//! assert!(std::fs::read_to_string(file)?.contains("traceEvents"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Commands on the host have a duration and the bytes of the ranges that they bind. Of a GPU the trace has
//! when commands were encoded and submissions finished.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::placement;

/// Starts recording on all devices that the process has opened. Earlier events are discarded.
///
/// ```
/// use hesper::{array, trace};
/// trace::start();
/// array![1.0, 2.0].exp()?.eval()?;
/// std::fs::write(std::env::temp_dir().join("hesper-trace-start.json"), trace::stop()).ok();
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn start() {
    placement::opened().iter().for_each(|runtime| runtime.trace().start());
}

/// Stops recording and returns the events as a Chrome trace (JSON), with the host's memory bandwidth, which
/// is measured now.
///
/// ```
/// use hesper::trace;
/// trace::start();
/// assert!(trace::stop().contains("traceEvents"));
/// ```
pub fn stop() -> String {
    let (mut events, mut dropped) = (String::new(), 0);
    for (at, runtime) in placement::opened().iter().enumerate() {
        let (own, lost) = runtime.trace().stop_events(at + 1);
        dropped += lost;
        let comma = if events.is_empty() { "" } else { "," };
        let name = runtime.info().name.replace(['"', '\\'], " ");
        let _ = write!(
            events,
            "{comma}{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{},\"args\":{{\"name\":\"{name}\"}}}}",
            at + 1
        );
        if !own.is_empty() {
            events.push(',');
            events.push_str(&own);
        }
    }
    let bandwidth = memory_bandwidth();
    format!(
        "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[{events}],\
         \"otherData\":{{\"dropped\":{dropped},\"host_bytes_per_second\":{bandwidth:.0}}}}}"
    )
}

/// Records while `f` runs, and writes the trace to a file. What `f` does not wait for may be missing:
/// evaluate in it.
///
/// ```
/// use hesper::{array, trace};
/// let file = std::env::temp_dir().join("hesper-trace-record.json");
/// let sum = trace::record(&file, || array![1.0, 2.0].sum(())?.item::<f32>())?; // `item` waits
/// assert_eq!(sum, 3.0);
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn record<R>(path: impl AsRef<Path>, f: impl FnOnce() -> Result<R>) -> Result<R> {
    start();
    let result = f();
    let json = stop();
    let path = path.as_ref();
    std::fs::write(path, json)
        .map_err(|error| Error::value("trace", format!("cannot write {}: {error}", path.display())))?;
    result
}

/// Bytes per second that all cores together read and write when they copy.
fn memory_bandwidth() -> f64 {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let len = ((64 << 20) / threads).max(1 << 20);
    let mut buffers: Vec<_> = (0..threads).map(|_| (vec![1u8; len], vec![0u8; len])).collect();
    let mut best = 0.0f64;
    for _ in 0..3 {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for (from, to) in &mut buffers {
                scope.spawn(|| to.copy_from_slice(std::hint::black_box(from)));
            }
        });
        best = best.max((2 * len * threads) as f64 / begun.elapsed().as_secs_f64());
    }
    best
}

//! A trace of a runtime's activity for the viewers of Chrome and Perfetto.
//!
//! A started trace keeps the newest events, up to a limit. While recording is off, each hook costs one
//! relaxed load.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::error::Fault;
use crate::sync::{Lock, Rank};

/// When the times of all traces begin.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The most events kept.
const MAX_EVENTS: usize = 1 << 18;

#[derive(Debug)]
struct Event {
    name: String,
    /// One of encode, submit, run, finish, allocate.
    category: &'static str,
    track: u64,
    start_ns: u64,
    /// Zero for an instant.
    duration_ns: u64,
    /// Of the ranges that a command binds.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Record {
    events: VecDeque<Event>,
    dropped: u64,
}

/// Records submissions, commands, allocations and completions.
#[derive(Debug)]
pub struct Trace {
    on: AtomicBool,
    record: Lock<Record>,
}

impl Default for Trace {
    fn default() -> Self {
        Trace { on: AtomicBool::new(false), record: Lock::new(Rank::Leaf, Record::default()) }
    }
}

impl Trace {
    /// Discards earlier events and starts recording.
    pub fn start(&self) {
        LazyLock::force(&EPOCH);
        *self.record.lock() = Record::default();
        self.on.store(true, Ordering::Release);
    }

    /// Stops recording and returns the events as a Chrome trace (JSON).
    pub fn stop(&self) -> String {
        let (events, dropped) = self.stop_events(1);
        format!(
            "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[{events}],\"otherData\":{{\"dropped\":{dropped}}}}}"
        )
    }

    /// Stops recording and returns the events as those of one process of a Chrome trace, separated by commas,
    /// and how many older ones were dropped. The times of all runtimes of a program count from one moment.
    pub fn stop_events(&self, process: usize) -> (String, u64) {
        self.on.store(false, Ordering::Release);
        let record = std::mem::take(&mut *self.record.lock());
        let mut json = String::new();
        for (index, event) in record.events.iter().enumerate() {
            if index > 0 {
                json.push(',');
            }
            json.push_str("{\"name\":");
            quote(&mut json, &event.name);
            let (start, duration) = (event.start_ns as f64 / 1e3, event.duration_ns as f64 / 1e3);
            let phase = if event.duration_ns > 0 { "X" } else { "i" };
            let _ = write!(
                json,
                ",\"cat\":\"{}\",\"ph\":\"{phase}\",\"ts\":{start:.3},\"dur\":{duration:.3},\"pid\":{process},\"tid\":{}",
                event.category, event.track
            );
            let _ = match event.duration_ns > 0 {
                true => write!(json, ",\"args\":{{\"bytes\":{}}}}}", event.bytes),
                false => write!(json, ",\"s\":\"t\"}}"),
            };
        }
        (json, record.dropped)
    }

    /// Whether events are being recorded.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn push(&self, name: String, category: &'static str, track: u64, since: Option<Instant>, bytes: usize) {
        let now = Instant::now();
        let start = since.unwrap_or(now);
        let event = Event {
            name,
            category,
            track,
            start_ns: start.saturating_duration_since(*EPOCH).as_nanos() as u64,
            duration_ns: since.map_or(0, |since| (now - since).as_nanos().max(1) as u64),
            bytes,
        };
        let mut record = self.record.lock();
        if record.events.len() == MAX_EVENTS {
            record.events.pop_front();
            record.dropped += 1;
        }
        record.events.push_back(event);
    }

    pub(crate) fn encoded(&self, label: &str, stream: u64) {
        if self.is_on() {
            self.push(label.to_string(), "encode", stream, None, 0);
        }
    }

    pub(crate) fn allocated(&self, bytes: usize) {
        if self.is_on() {
            self.push(format!("{bytes} bytes"), "allocate", 0, None, 0);
        }
    }

    pub(crate) fn submitted(&self, stream: u64, index: u64, commands: usize) {
        if self.is_on() {
            let name = format!("submission {index} ({commands} commands)");
            self.push(name, "submit", stream, None, 0);
        }
    }

    pub(crate) fn finished(&self, stream: u64, index: u64, fault: Option<&Fault>) {
        if self.is_on() {
            let outcome = fault.map_or(String::new(), |fault| format!(": {fault}"));
            self.push(format!("submission {index} finished{outcome}"), "finish", stream, None, 0);
        }
    }

    pub(crate) fn begin(&self) -> Option<Instant> {
        self.is_on().then(Instant::now)
    }

    pub(crate) fn ran(&self, label: &str, stream: u64, begun: Option<Instant>, bytes: usize) {
        if begun.is_some() {
            self.push(label.to_string(), "run", stream, begun, bytes);
        }
    }
}

fn quote(json: &mut String, text: &str) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            control if (control as u32) < 0x20 => {
                let _ = write!(json, "\\u{:04x}", control as u32);
            }
            other => json.push(other),
        }
    }
    json.push('"');
}

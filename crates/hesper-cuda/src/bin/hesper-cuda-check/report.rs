//! Prints one line per check or measurement, and counts failures.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hesper_runtime::panics;

/// The outcome of a check: a detail for its line, or an error.
pub type Outcome = Result<String, String>;

/// The time limit of all checks together.
const TIME_LIMIT: Duration = Duration::from_secs(88);
/// The time after which checks are skipped.
const SKIP_AFTER: Duration = Duration::from_secs(70);

pub struct Report {
    failures: u32,
    begun: Instant,
    now: Arc<Mutex<String>>,
}

impl Report {
    /// Starts a report with a watchdog that ends a process that hangs, and names the check.
    pub fn new() -> Self {
        let now = Arc::new(Mutex::new(String::new()));
        let watched = now.clone();
        std::thread::spawn(move || {
            std::thread::sleep(TIME_LIMIT);
            let name = watched.lock().unwrap_or_else(PoisonError::into_inner).clone();
            println!("FAIL {name}: still running after {} s; giving up", TIME_LIMIT.as_secs());
            std::process::exit(101);
        });
        Report { failures: 0, begun: Instant::now(), now }
    }

    /// Runs a check.
    pub fn check(&mut self, name: &str, check: impl FnOnce() -> Outcome) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = name.to_string();
        if self.begun.elapsed() > SKIP_AFTER {
            println!("skip {name}: out of time");
            return;
        }
        let begun = Instant::now();
        let outcome = panics::catch(check).unwrap_or_else(|message| Err(format!("panicked: {message}")));
        let took = begun.elapsed().as_secs_f64() * 1e3;
        match outcome {
            Ok(detail) => println!("ok   {name}: {detail} [{took:.0} ms]"),
            Err(what) => {
                self.failures += 1;
                println!("FAIL {name}: {what} [{took:.0} ms]");
            }
        }
    }

    pub fn end(self) -> i32 {
        println!("{} failures, {:.1} s", self.failures, self.begun.elapsed().as_secs_f64());
        self.failures.min(100) as i32
    }
}

/// Converts an error to text.
pub fn to_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// An error unless `condition`.
pub fn ensure(condition: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(what()) }
}

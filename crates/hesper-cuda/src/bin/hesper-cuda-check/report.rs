//! One line for each check and each measurement; the exit code counts failures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a check gives: a detail for its line, or what went wrong.
pub type Outcome = Result<String, String>;

/// The longest that all checks may take together.
const LIMIT: Duration = Duration::from_secs(88);
/// After this, checks that can be left out are.
const SOFT: Duration = Duration::from_secs(70);

pub struct Report {
    failures: u32,
    begun: Instant,
    now: Arc<Mutex<String>>,
}

impl Report {
    /// Begins, with a watchdog that ends a process that hangs, and says where.
    pub fn new() -> Self {
        let now = Arc::new(Mutex::new(String::new()));
        let watched = now.clone();
        std::thread::spawn(move || {
            std::thread::sleep(LIMIT);
            let name = watched.lock().unwrap_or_else(PoisonError::into_inner).clone();
            println!("FAIL {name}: still running after {} s; giving up", LIMIT.as_secs());
            std::process::exit(101);
        });
        Report { failures: 0, begun: Instant::now(), now }
    }

    /// Runs a check.
    pub fn check(&mut self, name: &str, check: impl FnOnce() -> Outcome) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = name.to_string();
        if self.begun.elapsed() > SOFT {
            println!("skip {name}: out of time");
            return;
        }
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(check)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Err(format!("panicked: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?")))
        });
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

/// Any error as words.
pub fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// An error unless `condition`.
pub fn ensure(condition: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if condition { Ok(()) } else { Err(what()) }
}

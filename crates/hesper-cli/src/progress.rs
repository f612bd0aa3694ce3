//! A line on the terminal that says what takes time, and is gone when it is over.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Clears the line that the cursor is in.
const CLEAR: &str = "\r\x1b[K";

/// A line of progress on the standard error stream; nothing where that is no terminal.
pub struct Progress {
    shown: bool,
    what: Arc<Mutex<String>>,
    over: Arc<AtomicBool>,
    painter: Option<JoinHandle<()>>,
}

impl Progress {
    /// Nothing is shown before there is something to say.
    pub fn new(quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        Progress { shown, what: Arc::default(), over: Arc::default(), painter: None }
    }

    /// Says what is being done from now on.
    pub fn say(&mut self, what: &str) {
        if !self.shown {
            return;
        }
        *self.what.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = what.to_string();
        if self.painter.is_none() {
            let (what, over) = (self.what.clone(), self.over.clone());
            self.painter = Some(std::thread::spawn(move || paint(&what, &over)));
        }
    }

    /// Ends the line and removes it.
    pub fn clear(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(painter) = self.painter.take() {
            // A painter that failed has left nothing to clear.
            let _ = painter.join();
            eprint!("{CLEAR}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn paint(what: &Mutex<String>, over: &AtomicBool) {
    let start = Instant::now();
    while !over.load(Ordering::Relaxed) {
        let text = what.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let seconds = start.elapsed().as_secs();
        let dots = [".  ", ".. ", "..."][(start.elapsed().as_millis() / 400 % 3) as usize];
        eprint!("{CLEAR}{text} {dots} {seconds} s");
        let _ = std::io::stderr().flush();
        std::thread::sleep(Duration::from_millis(100));
    }
}

//! A progress line on the terminal.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Clears the current line of the terminal.
const CLEAR_LINE: &str = "\r\x1b[K";

/// A progress line on standard error. Shows nothing if that is not a terminal.
pub struct Progress {
    shown: bool,
    text: Arc<Mutex<String>>,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// A line that appears with its first text.
    pub fn new(quiet: bool) -> Self {
        let shown = !quiet && std::io::stderr().is_terminal();
        Progress { shown, text: Arc::default(), done: Arc::default(), thread: None }
    }

    /// Sets the text.
    pub fn set(&mut self, text: &str) {
        if !self.shown {
            return;
        }
        *self.text.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = text.to_string();
        if self.thread.is_none() {
            let (text, done) = (self.text.clone(), self.done.clone());
            self.thread = Some(std::thread::spawn(move || paint(&text, &done)));
        }
    }

    /// Removes the line.
    pub fn clear(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Ignore a panic of the thread: the line is cleared anyway.
            let _ = thread.join();
            eprint!("{CLEAR_LINE}");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn paint(text: &Mutex<String>, done: &AtomicBool) {
    let start = Instant::now();
    while !done.load(Ordering::Relaxed) {
        let text = text.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let seconds = start.elapsed().as_secs();
        let dots = [".  ", ".. ", "..."][(start.elapsed().as_millis() / 400 % 3) as usize];
        eprint!("{CLEAR_LINE}{text} {dots} {seconds} s");
        let _ = std::io::stderr().flush();
        std::thread::sleep(Duration::from_millis(100));
    }
}

//! Ctrl-C.
//!
//! A command that can stop cleanly asks [`asked`] between steps. Whoever does not stop within a moment, or is
//! asked twice, is ended where it is: with the exit code 130 and a terminal as it was.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The exit code of an interrupted command, as shells have it.
pub const CODE: u8 = 130;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static PATIENT: AtomicBool = AtomicBool::new(false);

/// Begins to listen. To be called once, at the start.
pub fn listen() {
    // Without a handler, the system's own way to end a process is left.
    let _ = ctrlc::set_handler(|| {
        let before = COUNT.fetch_add(1, Ordering::SeqCst);
        if before > 0 || !PATIENT.load(Ordering::SeqCst) {
            leave();
        }
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(2));
            if COUNT.load(Ordering::SeqCst) > 0 {
                leave();
            }
        });
    });
}

fn leave() -> ! {
    eprint!("\r\x1b[K");
    std::process::exit(i32::from(CODE));
}

/// From now on the command asks [`asked`] often enough.
pub fn patient(on: bool) {
    PATIENT.store(on, Ordering::SeqCst);
}

/// Whether the user wants to stop.
pub fn asked() -> bool {
    COUNT.load(Ordering::SeqCst) > 0
}

/// Forgets what was asked: the command has stopped what it was doing.
pub fn answered() {
    COUNT.store(0, Ordering::SeqCst);
}

//! Handling of Ctrl-C.
//!
//! A command that can stop between steps calls [`set_graceful`] and polls [`requested`]. If it does not stop
//! within two seconds, or Ctrl-C is pressed twice, the process exits with code 130 and clears its progress
//! line.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The exit code that shells use for an interrupted command.
pub const EXIT_CODE: u8 = 130;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static GRACEFUL: AtomicBool = AtomicBool::new(false);

/// Installs the handler. Call it once, at the start.
pub fn listen() {
    // If the handler cannot be installed, Ctrl-C ends the process, as by default.
    let _ = ctrlc::set_handler(|| {
        let before = COUNT.fetch_add(1, Ordering::SeqCst);
        if before > 0 || !GRACEFUL.load(Ordering::SeqCst) {
            exit();
        }
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_secs(2));
            if COUNT.load(Ordering::SeqCst) > 0 {
                exit();
            }
        });
    });
}

fn exit() -> ! {
    eprint!("\r\x1b[K");
    std::process::exit(i32::from(EXIT_CODE));
}

/// Sets whether the command polls [`requested`].
pub fn set_graceful(on: bool) {
    GRACEFUL.store(on, Ordering::SeqCst);
}

/// Whether the user has pressed Ctrl-C.
pub fn requested() -> bool {
    COUNT.load(Ordering::SeqCst) > 0
}

/// Resets the request, after the command has stopped what it did.
pub fn clear() {
    COUNT.store(0, Ordering::SeqCst);
}

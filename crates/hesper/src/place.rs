//! Where ops run: devices, their default streams, and the stream of the current scope.

use std::cell::RefCell;
use std::sync::OnceLock;

use hesper_cpu::CpuDevice;
use hesper_runtime::{Runtime, Stream};

use crate::error::Result;

/// The host's runtime, opened once for the process.
pub fn cpu() -> &'static Runtime {
    static CPU: OnceLock<Runtime> = OnceLock::new();
    CPU.get_or_init(|| Runtime::new(CpuDevice::new()))
}

thread_local! {
    static SCOPE: RefCell<Vec<Stream>> = const { RefCell::new(Vec::new()) };
}

/// The stream on which the current thread's ops run: that of the innermost [`with_stream`], else the
/// default stream of the device, which all threads share.
pub fn current_stream() -> Result<Stream> {
    if let Some(stream) = SCOPE.with(|scope| scope.borrow().last().cloned()) {
        return Ok(stream);
    }
    static DEFAULT: OnceLock<Result<Stream>> = OnceLock::new();
    DEFAULT.get_or_init(|| Ok(cpu().stream()?)).clone()
}

/// Runs `f` with its ops on `stream`.
pub fn with_stream<R>(stream: &Stream, f: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            SCOPE.with(|scope| scope.borrow_mut().pop());
        }
    }
    SCOPE.with(|scope| scope.borrow_mut().push(stream.clone()));
    let _leave = Leave;
    f()
}

//! This crate's errors, and which of the driver's are the end of a context.

use std::ffi::CStr;

use hesper_runtime::DeviceError;

use crate::sys::{CUDA_ERROR_OUT_OF_MEMORY, CUresult, Driver};

/// The result of this crate's fallible calls.
pub type Result<T, E = CudaError> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// A library is not installed.
    #[error("{what} was not found (tried {tried})")]
    MissingLibrary {
        /// Which one.
        what: &'static str,
        /// Where it was looked for.
        tried: String,
    },
    /// A library is too old.
    #[error("{library} has no function {symbol}; CUDA 12.4 or later is needed")]
    MissingSymbol {
        /// The file.
        library: String,
        /// The function that it lacks.
        symbol: &'static str,
    },
    /// The driver is there, a device is not.
    #[error("the CUDA driver finds no device")]
    NoDevice,
    /// There is no device of this number.
    #[error("there is no CUDA device {ordinal}: the driver finds {count}")]
    NoSuchDevice {
        /// The number asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The process is about to end.
    #[error("the process ends, and takes the device along")]
    Ending,
    /// The device was opened before the process was forked.
    #[error(
        "the CUDA device was opened before this process was forked, and CUDA does not work in a forked process: \
         open it after the fork, or start processes without fork"
    )]
    Forked,
    /// A thread of the device panicked.
    #[error("{what} panicked: {message}")]
    Panicked {
        /// What it was doing.
        what: &'static str,
        /// The panic's words.
        message: String,
    },
    /// A call of the driver failed.
    #[error("{call}: {name} ({code}), {message}")]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// The error's number.
        code: CUresult,
        /// The error's name.
        name: String,
        /// The driver's words.
        message: String,
    },
    /// A call of the compiler failed, other than by the text's fault.
    #[error("{call}: {message}")]
    Compiler {
        /// The compiler's function.
        call: &'static str,
        /// Its words.
        message: String,
    },
    /// A call of another library failed.
    #[error("{library}: {call} failed with {code}")]
    Library {
        /// The library.
        library: &'static str,
        /// Its function.
        call: &'static str,
        /// The library's number for what went wrong.
        code: i32,
    },
    /// The kernel's text or its specialisation is at fault.
    #[error("{0}")]
    Kernel(String),
}

impl CudaError {
    /// The driver's error of this number, in its words.
    pub fn from_driver(driver: &Driver, call: &'static str, code: CUresult) -> Self {
        let words = |get: unsafe extern "C" fn(CUresult, *mut *const std::ffi::c_char) -> CUresult| {
            let mut text = std::ptr::null();
            // SAFETY: the driver stores the address of a constant string, or null.
            if unsafe { get(code, &mut text) } != 0 || text.is_null() {
                return "unknown error".to_string();
            }
            // SAFETY: as above.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        CudaError::Driver {
            call,
            code,
            name: words(driver.get_error_name),
            message: words(driver.get_error_string),
        }
    }

    /// Whether the context is lost with this error: each later call of it gives the same.
    pub fn is_sticky(&self) -> bool {
        matches!(self, CudaError::Driver { code, .. } if is_sticky(*code))
    }
}

/// Whether an error number means that the context cannot be used any more: illegal addresses,
/// instructions and traps of kernels, uncorrectable memory, a driver that shuts down.
pub fn is_sticky(code: CUresult) -> bool {
    matches!(code, 4 | 46 | 201 | 214 | 220 | 226 | 227 | 700 | 702 | 709 | 710 | 714..=719 | 721 | 999)
}

impl From<CudaError> for DeviceError {
    fn from(error: CudaError) -> Self {
        match &error {
            CudaError::Driver { code: CUDA_ERROR_OUT_OF_MEMORY, .. } => {
                DeviceError::OutOfMemory(error.to_string())
            }
            CudaError::Kernel(message) => DeviceError::Compile(message.clone()),
            CudaError::Forked => DeviceError::Lost(error.to_string()),
            _ if error.is_sticky() => DeviceError::Lost(error.to_string()),
            _ => DeviceError::Failed(error.to_string()),
        }
    }
}

/// The words of a panic.
pub(crate) fn panic_words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_kernels_are_sticky_and_refused_calls_are_not() {
        for code in [700, 710, 715, 716, 719, 214] {
            assert!(is_sticky(code), "{code}");
        }
        for code in [0, 1, 2, 200, 209, 218, 400, 600, 701] {
            assert!(!is_sticky(code), "{code}");
        }
    }

    #[test]
    fn errors_become_the_runtimes_by_their_reach() {
        let driver =
            |code| CudaError::Driver { call: "cuX", code, name: "CUDA_ERROR_X".into(), message: "x".into() };
        assert!(matches!(DeviceError::from(driver(2)), DeviceError::OutOfMemory(_)));
        assert!(matches!(DeviceError::from(driver(700)), DeviceError::Lost(_)));
        assert!(matches!(DeviceError::from(driver(1)), DeviceError::Failed(_)));
        assert!(matches!(DeviceError::from(CudaError::Kernel("x".into())), DeviceError::Compile(_)));
    }
}

//! Errors, and the driver errors that are sticky.

use std::ffi::CStr;

use hesper_runtime::DeviceError;

use crate::sys::{CUDA_ERROR_OUT_OF_MEMORY, CUresult, Driver};

/// The result of this crate's fallible calls.
pub type Result<T, E = CudaError> = std::result::Result<T, E>;

/// The error of a call.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// A library is not installed.
    #[error("cannot find {what} (tried {tried})")]
    MissingLibrary {
        /// The library.
        what: &'static str,
        /// The candidates that were tried.
        tried: String,
    },
    /// A library is too old.
    #[error("cannot use {library}: it has no function {symbol}; install CUDA 12.4 or later")]
    MissingSymbol {
        /// The file.
        library: String,
        /// The missing function.
        symbol: &'static str,
    },
    /// There is a driver but no device.
    #[error("cannot open a CUDA device: the driver finds none")]
    NoDevice,
    /// The ordinal is out of range.
    #[error("cannot open CUDA device {ordinal}: the driver finds {count}")]
    NoSuchDevice {
        /// The requested ordinal.
        ordinal: usize,
        /// The number of devices.
        count: usize,
    },
    /// The process is exiting.
    #[error("cannot use the CUDA device: the process is exiting")]
    ShuttingDown,
    /// The device was opened before the process was forked.
    #[error(
        "cannot use the CUDA device: it was opened before this process was forked, and CUDA does not work in a forked \
         process; open it after the fork, or start processes without fork"
    )]
    Forked,
    /// A device thread panicked.
    #[error("{what} panicked: {message}")]
    Panicked {
        /// The thread or activity.
        what: &'static str,
        /// The message of the panic.
        message: String,
    },
    /// A call of the driver failed.
    #[error("{call}: {name} ({code}), {message}")]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// The error code.
        code: CUresult,
        /// The error code's name.
        name: String,
        /// The driver's message.
        message: String,
    },
    /// A call of the compiler failed for another reason than the text.
    #[error("{call}: {message}")]
    Compiler {
        /// The compiler's function.
        call: &'static str,
        /// The message.
        message: String,
    },
    /// A call of another library failed.
    #[error("{library}: {call} failed with {code}")]
    Library {
        /// The library.
        library: &'static str,
        /// Its function.
        call: &'static str,
        /// The library's error code.
        code: i32,
    },
    /// The kernel's text or specialisation is invalid.
    #[error("{0}")]
    Kernel(String),
}

impl CudaError {
    /// The driver's error with its name and message.
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

    /// Whether the error is sticky: every later call on the context returns it.
    pub fn is_sticky(&self) -> bool {
        matches!(self, CudaError::Driver { code, .. } if is_sticky(*code))
    }
}

/// Whether an error code is sticky: illegal addresses, instructions and traps of kernels, uncorrectable
/// memory errors, a driver that shuts down.
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

//! Errors, and what the failure of a command buffer means.

use hesper_runtime::DeviceError;

use crate::edge::{CommandError, ErrorCode};

/// The result of this crate's fallible calls.
pub type Result<T, E = MetalError> = std::result::Result<T, E>;

/// Why a device cannot be opened or a call of it was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MetalError {
    /// There is no Metal device.
    #[error("cannot open a Metal device: {0}")]
    NoDevice(String),
    /// The GPU lacks something that every kernel needs.
    #[error(
        "cannot use {name} with Metal: it is {found}; needed is an Apple GPU of family 7 (M1, A14) or later with unified memory"
    )]
    Family {
        /// The GPU.
        name: String,
        /// What it is.
        found: String,
    },
    /// Metal refused a call.
    #[error("Metal refused {0}")]
    Refused(&'static str),
    /// The text format of a specialisation is violated.
    #[error("{0}")]
    Specialisation(String),
    /// A capture could not be started.
    #[error("cannot capture GPU work to {path}: {message}; start the program with MTL_CAPTURE_ENABLED=1")]
    Capture {
        /// The file.
        path: String,
        /// The system's message.
        message: String,
    },
}

impl From<MetalError> for DeviceError {
    fn from(error: MetalError) -> Self {
        match error {
            MetalError::Specialisation(message) => DeviceError::Compile(message),
            error => DeviceError::Failed(error.to_string()),
        }
    }
}

/// The scope of a failed command buffer. Metal executes a command buffer as a whole: all that it writes is
/// lost. The queue goes on, unless the process has lost the GPU.
pub(crate) fn command_error(error: CommandError) -> DeviceError {
    let CommandError { code, message } = error;
    let failed = |what: &str| DeviceError::Failed(format!("{what}: {message}"));
    match code {
        ErrorCode::AccessRevoked => {
            DeviceError::Lost(format!("the system revoked this process's access to the GPU: {message}"))
        }
        ErrorCode::DeviceRemoved => DeviceError::Lost(format!("the GPU was removed: {message}")),
        ErrorCode::Timeout => failed("the GPU stopped a command buffer that ran for too long"),
        ErrorCode::PageFault => failed("a kernel accessed memory outside of its buffers"),
        ErrorCode::OutOfMemory => failed("the GPU had no memory to run a command buffer"),
        ErrorCode::NotPermitted => {
            failed("the system does not run GPU work of an application in the background; ask again later")
        }
        ErrorCode::InvalidResource => failed("a command buffer named a resource that does not exist"),
        ErrorCode::StackOverflow => failed("a kernel used more stack than the GPU has"),
        ErrorCode::Internal => failed("the GPU failed, or recovered from the fault of other work"),
        ErrorCode::Other(code) => failed(&format!("the GPU failed with code {code}")),
    }
}

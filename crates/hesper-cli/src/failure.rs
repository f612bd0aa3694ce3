//! How a command fails, and the exit code of it.

use std::process::ExitCode;

use crate::interrupt;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// Something is wrong; the text says what.
    Message(String),
    /// The user stopped it.
    Interrupted,
    /// Nobody reads the output any more.
    Closed,
}

/// The exit code of a program whose output was closed, as shells have it.
const CLOSED: u8 = 141;

impl Failure {
    /// The output could not be written.
    pub fn output(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Message(format!("the output cannot be written: {error}")),
        }
    }

    /// Says what is wrong, and gives the exit code.
    pub fn exit(self) -> ExitCode {
        match self {
            Failure::Message(message) => {
                eprintln!("hesper: {}", message.trim_end());
                ExitCode::FAILURE
            }
            Failure::Interrupted => ExitCode::from(interrupt::CODE),
            Failure::Closed => ExitCode::from(CLOSED),
        }
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Failure::Message(message)
    }
}

impl From<hesper_lm::Error> for Failure {
    fn from(error: hesper_lm::Error) -> Self {
        Failure::Message(error.to_string())
    }
}

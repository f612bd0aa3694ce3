//! Errors of commands and their exit codes.

use std::process::ExitCode;

use crate::interrupt;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// An error message.
    Message(String),
    /// The user interrupted the command.
    Interrupted,
    /// The output pipe was closed.
    OutputClosed,
}

/// The exit code that shells use for a command ended by SIGPIPE.
const SIGPIPE_EXIT_CODE: u8 = 141;

impl Failure {
    /// A failed write to the output.
    pub fn output(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Message(format!("cannot write the output: {error}")),
        }
    }

    /// Prints the message and returns the exit code.
    pub fn exit(self) -> ExitCode {
        match self {
            Failure::Message(message) => {
                eprintln!("hesper: {}", message.trim_end());
                ExitCode::FAILURE
            }
            Failure::Interrupted => ExitCode::from(interrupt::EXIT_CODE),
            Failure::OutputClosed => ExitCode::from(SIGPIPE_EXIT_CODE),
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

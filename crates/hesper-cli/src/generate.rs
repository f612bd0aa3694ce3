//! `hesper generate`.

use std::io::{IsTerminal, Read, Write};

use clap::Args;
use hesper_lm::{Cache, Finish, Generation, LanguageModel, Message, Stats};
use serde_json::json;

use crate::Failure;
use crate::interrupt;
use crate::model::{ModelArgs, SamplingArgs};

/// Continues a text, or answers a question.
#[derive(Args)]
pub struct Generate {
    /// The prompt; `-` or none reads it from the standard input
    prompt: Option<String>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// What the model is told before the prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Continue the prompt as it is, although the model was made to chat
    #[arg(long)]
    raw: bool,
    /// Print one JSON object at the end instead of text
    #[arg(long)]
    json: bool,
    /// Print the text and nothing else
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
    let mut cache = Cache::new(language.model().config(), options.cache)?;
    let mut generation = Generation::new(&language, &tokens, &mut cache, &options)?;
    interrupt::patient(true);
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
        if interrupt::asked() {
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
            return Err("--system needs a model that was made to chat, and no --raw".to_string().into());
        }
        return Ok(language.prompt_tokens(prompt)?);
    }
    let mut messages: Vec<Message> = args.system.iter().map(|text| Message::new("system", text)).collect();
    messages.push(Message::new("user", prompt));
    Ok(language.conversation_tokens(&messages)?)
}

/// The whole standard input, as text.
fn read_input() -> Result<String, Failure> {
    let mut input = std::io::stdin();
    if input.is_terminal() {
        return Err("there is no prompt: give one, or pipe one in".to_string().into());
    }
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes).map_err(|error| format!("the prompt cannot be read: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|error| format!("the prompt is no UTF-8 text: {error}"))?;
    Ok(text.trim_end_matches('\n').to_string())
}

/// Says what was done.
pub fn summary(language: &LanguageModel, load_seconds: f64, stats: &Stats, finish: Option<Finish>) {
    let (numbers, bytes) = language.size();
    let why = match finish {
        Some(Finish::End) => "the model ended the text",
        Some(Finish::Stop) => "a stop text was found",
        Some(Finish::Length) => "as many tokens as asked for",
        Some(Finish::Context) => "the model's context is full",
        None => "interrupted",
    };
    eprintln!(
        "\n{} ({:.1} M numbers in {:.1} MB, loaded in {load_seconds:.2} s)\n\
         prompt: {} tokens, {:.1} tokens/s; generated: {} tokens, {:.1} tokens/s ({why})",
        language.place().file_name().unwrap_or(language.place().as_os_str()).to_string_lossy(),
        numbers as f64 / 1e6,
        bytes as f64 / 1e6,
        stats.prompt_tokens,
        stats.prompt_speed(),
        stats.tokens,
        stats.speed(),
    );
}

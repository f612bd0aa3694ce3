//! `hesper chat`.

use std::io::{BufRead, IsTerminal, Write};

use clap::Args;
use hesper_lm::{Cache, GenerateOptions, Generation, LanguageModel, Message};

use crate::Failure;
use crate::interrupt;
use crate::model::{ModelArgs, SamplingArgs};

/// Talks with a model, line by line.
#[derive(Args)]
pub struct Chat {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// What the model is told before everything else
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
}

/// What has been said, and the cache of it.
struct Talk<'a> {
    language: &'a LanguageModel,
    options: GenerateOptions,
    messages: Vec<Message>,
    cache: Cache,
    /// Tokens that the cache holds.
    held: Vec<u32>,
}

impl<'a> Talk<'a> {
    fn new(
        language: &'a LanguageModel,
        options: GenerateOptions,
        system: Option<&str>,
    ) -> Result<Self, Failure> {
        let cache = Cache::new(language.model().config(), options.cache)?;
        let messages = system.iter().map(|text| Message::new("system", *text)).collect();
        Ok(Talk { language, options, messages, cache, held: Vec::new() })
    }

    /// Forgets everything but what was said before everything else.
    fn reset(&mut self) -> Result<(), Failure> {
        self.messages.retain(|message| message.role == "system");
        self.cache = Cache::new(self.language.model().config(), self.options.cache)?;
        self.held.clear();
        Ok(())
    }

    /// Answers a line, printing as it goes. If that fails, the line was not said.
    fn answer(&mut self, line: &str, out: &mut dyn Write) -> Result<String, Failure> {
        self.messages.push(Message::new("user", line));
        let answer = self.try_answer(out);
        if answer.is_err() {
            self.messages.pop();
            self.held.clear();
            self.cache = Cache::new(self.language.model().config(), self.options.cache)?;
        }
        answer
    }

    /// Answers what was said last. An answer that is interrupted stays as far as it came.
    fn try_answer(&mut self, out: &mut dyn Write) -> Result<String, Failure> {
        let tokens = self.language.conversation_tokens(&self.messages)?;
        // What the cache holds already is not computed again.
        let mut same = self
            .held
            .iter()
            .zip(&tokens)
            .take_while(|(a, b)| a == b)
            .count()
            .min(tokens.len().saturating_sub(1));
        if same < self.held.len() && self.cache.truncate(same).is_err() {
            self.cache = Cache::new(self.language.model().config(), self.options.cache)?;
            same = 0;
        }
        let mut generation = Generation::new(self.language, &tokens[same..], &mut self.cache, &self.options)?;
        let (mut text, mut made) = (String::new(), Vec::new());
        for piece in &mut generation {
            let piece = piece?;
            write!(out, "{}", piece.text).and_then(|()| out.flush()).map_err(Failure::output)?;
            text.push_str(&piece.text);
            made.push(piece.token);
            if interrupt::asked() {
                interrupt::answered();
                break;
            }
        }
        let stats = generation.stats();
        // The last token was chosen, but has not gone through the model.
        made.pop();
        self.held = tokens;
        self.held.extend(made);
        self.messages.push(Message::new("assistant", text.clone()));
        Ok(format!("{} tokens, {:.1} tokens/s", stats.tokens, stats.speed()))
    }
}

const HELP: &str =
    "Commands: /reset forgets the conversation, /help shows this, /exit leaves (so does Ctrl-D).";

pub fn run(args: &Chat) -> Result<(), Failure> {
    let (language, _) = args.model.load(false)?;
    if !language.can_chat() {
        let what = format!(
            "{} was not made to chat: it has no chat template. `hesper generate` continues texts.",
            args.model.model
        );
        return Err(what.into());
    }
    let mut talk = Talk::new(&language, args.sampling.options(0.7), args.system.as_deref())?;
    let (input, mut out) = (std::io::stdin(), std::io::stdout());
    let person = input.is_terminal();
    if person {
        eprintln!("{HELP}");
    }
    loop {
        if person {
            write!(out, "\n> ").and_then(|()| out.flush()).map_err(Failure::output)?;
        }
        interrupt::patient(false);
        let mut line = Vec::new();
        let count =
            input.lock().read_until(b'\n', &mut line).map_err(|error| format!("no more input: {error}"))?;
        if count == 0 {
            return Ok(());
        }
        let Ok(line) = String::from_utf8(line) else {
            eprintln!("this line is no UTF-8 text");
            continue;
        };
        match line.trim() {
            "" => continue,
            "/exit" | "/quit" => return Ok(()),
            "/help" => eprintln!("{HELP}"),
            "/reset" => talk.reset()?,
            text => {
                interrupt::patient(true);
                match talk.answer(text, &mut out) {
                    Ok(stats) => {
                        writeln!(out).map_err(Failure::output)?;
                        if person {
                            eprintln!("({stats})");
                        }
                    }
                    // One answer that fails is not the end of a conversation at a terminal.
                    Err(Failure::Message(message)) if person => eprintln!("{message}"),
                    Err(failure) => return Err(failure),
                }
            }
        }
    }
}

//! `hesper chat`: a conversation on the terminal.

use std::io::{BufRead, IsTerminal, Write};

use clap::Args;
use hesper_lm::{GenerateOptions, Generation, KvCache, LanguageModel, Message};

use crate::Failure;
use crate::interrupt;
use crate::model_args::{ModelArgs, SamplingArgs};

/// Chats with a model, line by line.
#[derive(Args)]
pub struct Chat {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// The system message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
}

/// A conversation and its cache.
struct Conversation<'a> {
    language: &'a LanguageModel,
    options: GenerateOptions,
    messages: Vec<Message>,
    cache: Box<dyn KvCache>,
    /// The tokens in the cache.
    cached: Vec<u32>,
}

impl<'a> Conversation<'a> {
    fn new(
        language: &'a LanguageModel,
        options: GenerateOptions,
        system: Option<&str>,
    ) -> Result<Self, Failure> {
        let cache = options.cache.create(language.model().config())?;
        let messages = system.iter().map(|text| Message::new("system", *text)).collect();
        Ok(Conversation { language, options, messages, cache, cached: Vec::new() })
    }

    /// Removes all messages but the system message.
    fn reset(&mut self) -> Result<(), Failure> {
        self.messages.retain(|message| message.role == "system");
        self.clear_cache()
    }

    fn clear_cache(&mut self) -> Result<(), Failure> {
        self.cached.clear();
        self.cache = self.options.cache.create(self.language.model().config())?;
        Ok(())
    }

    /// Answers a line and prints the answer as it is generated. After an error the conversation is without
    /// the line.
    fn answer(&mut self, line: &str, out: &mut dyn Write) -> Result<String, Failure> {
        self.messages.push(Message::new("user", line));
        let answer = self.try_answer(out);
        if answer.is_err() {
            self.messages.pop();
            self.clear_cache()?;
        }
        answer
    }

    /// Answers the last message. An interrupted answer is kept up to the interruption.
    fn try_answer(&mut self, out: &mut dyn Write) -> Result<String, Failure> {
        let tokens = self.language.conversation_tokens(&self.messages)?;
        // Reuse the cached rows of the common prefix.
        let mut same = self
            .cached
            .iter()
            .zip(&tokens)
            .take_while(|(a, b)| a == b)
            .count()
            .min(tokens.len().saturating_sub(1));
        if same < self.cached.len() && self.cache.truncate(same).is_err() {
            self.clear_cache()?;
            same = 0;
        }
        let cache = &mut *self.cache;
        let mut generation = Generation::new(self.language, &tokens[same..], cache, &self.options)?;
        let (mut text, mut generated) = (String::new(), Vec::new());
        for piece in &mut generation {
            let piece = piece?;
            write!(out, "{}", piece.text).and_then(|()| out.flush()).map_err(Failure::output)?;
            text.push_str(&piece.text);
            generated.push(piece.token);
            if interrupt::requested() {
                interrupt::clear();
                break;
            }
        }
        let stats = generation.stats();
        // The last token is not in the cache yet.
        generated.pop();
        self.cached = tokens;
        self.cached.extend(generated);
        self.messages.push(Message::new("assistant", text.clone()));
        Ok(format!("{} tokens, {:.1} tokens/s", stats.tokens, stats.speed()))
    }
}

const HELP: &str =
    "Commands: /reset starts a new conversation, /help shows this help, /exit or Ctrl-D leaves.";

pub fn run(args: &Chat) -> Result<(), Failure> {
    let (language, _) = args.model.load(false)?;
    if !language.can_chat() {
        let what = format!(
            "{} cannot chat: it has no chat template. Use `hesper generate` to continue text.",
            args.model.model
        );
        return Err(what.into());
    }
    let mut conversation = Conversation::new(&language, args.sampling.options(0.7), args.system.as_deref())?;
    let (input, mut out) = (std::io::stdin(), std::io::stdout());
    let interactive = input.is_terminal();
    if interactive {
        eprintln!("{HELP}");
    }
    loop {
        if interactive {
            write!(out, "\n> ").and_then(|()| out.flush()).map_err(Failure::output)?;
        }
        interrupt::set_graceful(false);
        let mut line = Vec::new();
        let count = input
            .lock()
            .read_until(b'\n', &mut line)
            .map_err(|error| format!("cannot read the input: {error}"))?;
        if count == 0 {
            return Ok(());
        }
        let Ok(line) = String::from_utf8(line) else {
            eprintln!("this line is not valid UTF-8");
            continue;
        };
        match line.trim() {
            "" => continue,
            "/exit" | "/quit" => return Ok(()),
            "/help" => eprintln!("{HELP}"),
            "/reset" => conversation.reset()?,
            text => {
                interrupt::set_graceful(true);
                match conversation.answer(text, &mut out) {
                    Ok(stats) => {
                        writeln!(out).map_err(Failure::output)?;
                        if interactive {
                            eprintln!("({stats})");
                        }
                    }
                    // On a terminal the conversation continues after an error.
                    Err(Failure::Message(message)) if interactive => eprintln!("{message}"),
                    Err(failure) => return Err(failure),
                }
            }
        }
    }
}

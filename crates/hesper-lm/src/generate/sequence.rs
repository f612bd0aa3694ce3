//! The state of a sequence beside its cache: sampler, detokenizer, stop texts, counts.

use hesper_core::placement;

use super::{Finish, GenerateOptions};
use crate::device_sampling::DeviceChoice;
use crate::error::{Error, Result};
use crate::language_model::LanguageModel;
use crate::sample::Sampler;
use crate::tokenizer::{Detokenizer, StopTexts};

/// A token of a generation.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The token.
    pub token: u32,
    /// The text that is complete with this token; may be empty.
    pub text: String,
    /// Why the generation ends with this token, if it does.
    pub finish: Option<Finish>,
}

/// The text of a sequence being generated: from logits to tokens, and from tokens to text.
#[derive(Debug)]
pub struct Sequence {
    sampler: Sampler,
    detokenizer: Detokenizer,
    stops: StopTexts,
    /// Prompt and generated tokens, for penalties.
    seen: Vec<u32>,
    generated: usize,
    max_tokens: usize,
    ignore_eos: bool,
    stop_tokens: Vec<u32>,
    on_device: bool,
}

impl Sequence {
    /// A sequence that continues a prompt.
    pub fn new(prompt: &[u32], options: &GenerateOptions) -> Result<Self> {
        Ok(Sequence {
            sampler: Sampler::new(&options.sampling)?,
            detokenizer: Detokenizer::new(prompt),
            stops: StopTexts::new(&options.stops),
            seen: prompt.to_vec(),
            generated: 0,
            max_tokens: options.max_tokens,
            ignore_eos: options.ignore_eos,
            stop_tokens: options.stop_tokens.clone(),
            on_device: placement::current_device() != placement::Device::Cpu,
        })
    }

    /// How the device chooses the token behind the next `ahead` ones, if it does.
    pub fn device_choice(&self, ahead: u64) -> Option<DeviceChoice> {
        self.on_device.then(|| self.sampler.device_choice(ahead)).flatten()
    }

    /// Whether the device chooses tokens where the choice does not depend on earlier ones. By default GPUs
    /// do.
    pub fn choose_on_device(&mut self, on_device: bool) {
        self.on_device = on_device;
    }

    /// Chooses the next token by its logits. `length` is the length of the sequence without it.
    pub(super) fn sample(
        &mut self,
        language: &LanguageModel,
        logits: &[f32],
        length: usize,
    ) -> Result<Piece> {
        let token = self.choose(logits, None)?;
        self.push(language, token, length)
    }

    /// Chooses the next token by its logits, among those that are `allowed`: see [`Sampler::choose_among`].
    pub fn choose(&mut self, logits: &[f32], allowed: Option<&[u32]>) -> Result<u32> {
        self.sampler.choose_among(logits, &self.seen, allowed).ok_or(Error::NanLogits)
    }

    /// Whether the sequence certainly ends with the next token, behind `length` others.
    pub(super) fn ends_next(&self, language: &LanguageModel, length: usize) -> bool {
        self.generated + 1 >= self.max_tokens || length + 1 >= language.model().config().context_length
    }

    /// Appends a token that the device chose by [`device_choice`](Sequence::device_choice). `length` is the
    /// length of the sequence without it.
    pub fn push_chosen(&mut self, language: &LanguageModel, token: u32, length: usize) -> Result<Piece> {
        self.sampler.accept(token);
        self.push(language, token, length)
    }

    /// Appends a token of [`choose`](Sequence::choose). `length` is the length of the sequence without it.
    pub fn push(&mut self, language: &LanguageModel, token: u32, length: usize) -> Result<Piece> {
        let tokenizer = language.tokenizer();
        let mut text = String::new();
        let mut finish = None;
        let ends = !self.ignore_eos && language.eos_tokens().contains(&token);
        if ends || self.stop_tokens.contains(&token) {
            finish = Some(Finish::End);
        } else {
            let (complete, stopped) = self.stops.push(&self.detokenizer.push(tokenizer, token)?);
            text = complete;
            if stopped {
                finish = Some(Finish::Stop);
            } else if self.generated + 1 >= self.max_tokens {
                finish = Some(Finish::Length);
            } else if length + 1 >= language.model().config().context_length {
                finish = Some(Finish::Context);
            }
        }
        if finish.is_some_and(|finish| finish != Finish::Stop) {
            let (rest, stopped) = self.rest(language)?;
            text.push_str(&rest);
            if stopped {
                finish = Some(Finish::Stop);
            }
        }
        self.seen.push(token);
        self.generated += 1;
        Ok(Piece { token, text, finish })
    }

    /// The text that was held back, for a sequence that ends here, and whether it has a stop text.
    pub fn rest(&mut self, language: &LanguageModel) -> Result<(String, bool)> {
        let (mut text, stopped) = self.stops.push(&self.detokenizer.finish(language.tokenizer())?);
        if !stopped {
            text.push_str(&self.stops.finish());
        }
        Ok((text, stopped))
    }
}

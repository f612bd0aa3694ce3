//! Text that arrives token by token.

use super::Tokenizer;
use crate::error::Result;

/// Turns tokens into text as they come. What is not yet a whole character waits for the next token.
#[derive(Debug, Clone, Default)]
pub struct Detokenizer {
    ids: Vec<u32>,
    /// Tokens before this one are settled: they are decoded no more.
    settled: usize,
    /// Tokens before this one have been given.
    given: usize,
}

/// What a decoder puts in the place of bytes that are no text.
const BROKEN: char = '\u{fffd}';

/// Tokens after which broken bytes are given as they are: no character is longer.
const PATIENCE: usize = 8;

impl Detokenizer {
    /// For text that continues `before`: how a token reads may depend on those before it.
    pub fn new(before: &[u32]) -> Self {
        let ids = before[before.len().saturating_sub(4)..].to_vec();
        Detokenizer { settled: 0, given: ids.len(), ids }
    }

    /// Takes a token; gives the text that is now whole.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<String> {
        self.ids.push(id);
        let before = tokenizer.decode(&self.ids[self.settled..self.given])?;
        let after = tokenizer.decode(&self.ids[self.settled..])?;
        if after.ends_with(BROKEN) && self.ids.len() - self.given < PATIENCE {
            return Ok(String::new());
        }
        let new = after.strip_prefix(&before).map_or_else(String::new, str::to_string);
        (self.settled, self.given) = (self.given, self.ids.len());
        Ok(new)
    }

    /// Gives what is left, whole or not.
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> Result<String> {
        let before = tokenizer.decode(&self.ids[self.settled..self.given])?;
        let after = tokenizer.decode(&self.ids[self.settled..])?;
        (self.settled, self.given) = (self.ids.len(), self.ids.len());
        Ok(after.strip_prefix(&before).map_or_else(String::new, str::to_string))
    }
}

/// Looks for texts that end a generation. What could be the beginning of one is held back.
#[derive(Debug, Clone, Default)]
pub struct Stops {
    stops: Vec<String>,
    held: String,
}

impl Stops {
    /// Looks for any of `stops`; empty ones are ignored.
    pub fn new(stops: &[String]) -> Self {
        Stops { stops: stops.iter().filter(|stop| !stop.is_empty()).cloned().collect(), held: String::new() }
    }

    /// Takes text; gives what is certainly before any stop, and whether one was found.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            let before = self.held[..at].to_string();
            self.held.clear();
            return (before, true);
        }
        let waiting = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - waiting);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// What was held back.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// The longest end of `text` that is a beginning of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let lengths = stop.char_indices().map(|(at, _)| at).rev();
    lengths.into_iter().find(|length| text.ends_with(&stop[..*length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_found_however_the_text_is_cut() {
        let mut stops = Stops::new(&["END".into(), "é!".into(), String::new()]);
        assert_eq!(stops.push("so E"), ("so ".into(), false));
        assert_eq!(stops.push("NE"), ("EN".into(), false));
        assert_eq!(stops.push("ND rest"), (String::new(), true));
        assert_eq!(stops.push("aé"), ("a".into(), false));
        assert_eq!(stops.push("?"), ("é?".into(), false));
        assert_eq!(stops.push("E"), (String::new(), false));
        assert_eq!(stops.finish(), "E");
    }
}

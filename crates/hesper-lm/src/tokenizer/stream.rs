//! Decoding token by token.

use super::Tokenizer;
use crate::error::Result;

/// Decodes tokens one at a time. Bytes of an incomplete character wait for the next token.
#[derive(Debug, Clone, Default)]
pub struct Detokenizer {
    ids: Vec<u32>,
    /// Tokens before this index are not decoded any more.
    settled: usize,
    /// The text of tokens before this index has been returned.
    returned: usize,
}

/// The replacement character of bytes that are not valid UTF-8.
const REPLACEMENT: char = '\u{fffd}';

/// Tokens after which invalid bytes are returned: no character has more.
const MAX_INCOMPLETE: usize = 8;

impl Detokenizer {
    /// A detokenizer for text that continues `before`: the text of a token may depend on the tokens before
    /// it.
    pub fn new(before: &[u32]) -> Self {
        let ids = before[before.len().saturating_sub(4)..].to_vec();
        Detokenizer { settled: 0, returned: ids.len(), ids }
    }

    /// Appends a token and returns the text that is complete with it.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Result<String> {
        let before = tokenizer.decode(&self.ids[self.settled..self.returned])?;
        self.ids.push(id);
        let after = tokenizer.decode(&self.ids[self.settled..]).inspect_err(|_| {
            self.ids.pop();
        })?;
        if after.ends_with(REPLACEMENT) && self.ids.len() - self.returned < MAX_INCOMPLETE {
            return Ok(String::new());
        }
        let new = after.strip_prefix(&before).map_or_else(String::new, str::to_string);
        (self.settled, self.returned) = (self.returned, self.ids.len());
        Ok(new)
    }

    /// Returns the rest of the text, complete or not.
    pub fn finish(&mut self, tokenizer: &Tokenizer) -> Result<String> {
        let before = tokenizer.decode(&self.ids[self.settled..self.returned])?;
        let after = tokenizer.decode(&self.ids[self.settled..])?;
        (self.settled, self.returned) = (self.ids.len(), self.ids.len());
        Ok(after.strip_prefix(&before).map_or_else(String::new, str::to_string))
    }
}

/// Searches generated text for texts that end it. Text that could begin one is held back.
#[derive(Debug, Clone, Default)]
pub struct StopTexts {
    stops: Vec<String>,
    held: String,
}

impl StopTexts {
    /// Searches for any of `stops`; empty ones are ignored.
    pub fn new(stops: &[String]) -> Self {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        StopTexts { stops, held: String::new() }
    }

    /// Appends text. Returns the text that no stop can include any more, and whether a stop was found.
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

    /// Returns the text that was held back.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// The length of the longest suffix of `text` that is a proper prefix of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let lengths = stop.char_indices().map(|(at, _)| at).rev();
    lengths.into_iter().find(|length| text.ends_with(&stop[..*length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_is_found_across_pieces_of_text() {
        let mut stops = StopTexts::new(&["END".into(), "é!".into(), String::new()]);
        assert_eq!(stops.push("so E"), ("so ".into(), false));
        assert_eq!(stops.push("NE"), ("EN".into(), false));
        assert_eq!(stops.push("ND rest"), (String::new(), true));
        assert_eq!(stops.push("aé"), ("a".into(), false));
        assert_eq!(stops.push("?"), ("é?".into(), false));
        assert_eq!(stops.push("E"), (String::new(), false));
        assert_eq!(stops.finish(), "E");
    }
}

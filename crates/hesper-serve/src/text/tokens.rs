//! The tokens of a text, if there are not far too many.
//!
//! A tokenizer takes microseconds and hundreds of bytes for a token. So a long text is first tokenized in
//! part, and refused if that part has too many tokens.

use hesper_lm::{Result, Tokenizer};

/// A text of at most this many bytes is tokenized at once.
const WHOLE_BYTES: usize = 64 << 10;

/// The tokens of a text. `None` if a part from its start has a quarter more than `limit`: where a text is cut
/// changes few tokens. A text that is tokenized as a whole may have more than `limit`. `begin` adds the token
/// that begins a sequence, if the model expects one.
///
/// ```
/// # use hesper as _;
/// use hesper_serve::text::tokens_within;
/// let model = hesper_lm::demo::model()?;
/// let count = |text: &str| tokens_within(model.tokenizer(), text, true, 1000);
/// assert!(count("The evening star")?.is_some());
/// assert!(count(&"1".repeat(1 << 20))?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn tokens_within(
    tokenizer: &Tokenizer,
    text: &str,
    begin: bool,
    limit: usize,
) -> Result<Option<Vec<u32>>> {
    let most = limit.saturating_add(limit / 4).saturating_add(64);
    let mut length = most.max(WHOLE_BYTES);
    while length < text.len() {
        let end = (0..=length).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let count = tokenizer.encode(&text[..end], begin)?.len();
        if count > most {
            return Ok(None);
        }
        // If the rest is like the start, the next part has just too many tokens.
        let factor = (1.1 * most as f64 / count.max(1) as f64).clamp(1.25, 4.0);
        length = (length as f64 * factor) as usize;
    }
    tokenizer.encode(text, begin).map(Some)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_all_its_tokens_or_is_refused_after_a_part_of_them() {
        let model = hesper_lm::demo::model().unwrap();
        let tokenizer = model.tokenizer();
        let texts = ["The evening star. ", "1", " ", "\u{4e2d}\u{e9}", "\n"]
            .map(|unit| unit.repeat(150_000 / unit.len()))
            .into_iter()
            .chain([format!("{}{}", " ".repeat(80_000), "The sun ".repeat(10_000)), "short".into()]);
        for text in texts {
            let all = tokenizer.encode(&text, true).unwrap();
            let within = |limit: usize| tokens_within(tokenizer, &text, true, limit).unwrap();
            for limit in [all.len(), all.len() + 1, 10 * all.len(), usize::MAX] {
                assert_eq!(within(limit).as_ref(), Some(&all), "{:.9} {limit}", text);
            }
            let start = std::time::Instant::now();
            // The mixed text is tokenized as a whole: its start has few tokens.
            let is_refused = text.len() > WHOLE_BYTES && all.len() > 1000 && !text.ends_with("sun ");
            assert_eq!(within(all.len() / 100).is_none(), is_refused, "{:.9}", text);
            assert!(start.elapsed().as_secs() < 10);
        }
    }
}

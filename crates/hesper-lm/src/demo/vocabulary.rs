//! The tokens of a text, and how often each follows one or two others.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The token of words that are not in the text.
pub(super) const UNKNOWN: &str = "<unknown>";
/// The token that ends the text.
pub(super) const END: &str = "<end>";

/// The tokens that follow a context.
#[derive(Default)]
pub(super) struct Following {
    /// How often each token does.
    pub(super) counts: BTreeMap<usize, usize>,
    /// The one at the last occurrence in the text.
    pub(super) last: usize,
}

/// The tokens of a text: words with the space before them, punctuation marks, ends of paragraphs.
pub(super) struct Vocabulary {
    /// The texts of the tokens, by id.
    pub(super) tokens: Vec<String>,
    /// What follows a token.
    pub(super) after_one: BTreeMap<usize, Following>,
    /// What follows two tokens.
    pub(super) after_two: BTreeMap<(usize, usize), Following>,
}

impl Vocabulary {
    pub(super) fn of(text: &str) -> Vocabulary {
        let mut tokens = vec![UNKNOWN.to_string(), END.to_string()];
        let mut ids: BTreeMap<String, usize> = BTreeMap::new();
        let mut sequence = Vec::new();
        for token in split(text.trim()) {
            let id = *ids.entry(token.clone()).or_insert_with(|| {
                tokens.push(token);
                tokens.len() - 1
            });
            sequence.push(id);
        }
        sequence.push(1);
        let mut after_one: BTreeMap<usize, Following> = BTreeMap::new();
        let mut after_two: BTreeMap<(usize, usize), Following> = BTreeMap::new();
        for pair in sequence.windows(2) {
            count(after_one.entry(pair[0]).or_default(), pair[1]);
        }
        for three in sequence.windows(3) {
            count(after_two.entry((three[0], three[1])).or_default(), three[2]);
        }
        // After an unknown word a sentence may begin.
        for pair in sequence.windows(2) {
            if matches!(tokens[pair[0]].as_str(), "." | "\n\n") && pair[1] != 1 {
                count(after_one.entry(0).or_default(), pair[1]);
            }
        }
        Vocabulary { tokens, after_one, after_two }
    }

    /// The content of a `tokenizer.json` for these tokens.
    pub(super) fn tokenizer(&self) -> Value {
        let vocabulary: Map<String, Value> =
            self.tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
        let special = |id: usize| {
            json!({ "id": id, "content": self.tokens[id], "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true })
        };
        json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": [special(0), special(1)],
            "normalizer": { "type": "Prepend", "prepend": " " },
            "pre_tokenizer": {
                "type": "Split",
                "pattern": { "Regex": r" ?\p{L}+|\n\n|[^\p{L}\s]|\s+" },
                "behavior": "Isolated",
                "invert": false
            },
            "post_processor": null,
            "decoder": { "type": "Fuse" },
            "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN }
        })
    }
}

fn count(following: &mut Following, id: usize) {
    *following.counts.entry(id).or_default() += 1;
    following.last = id;
}

/// The texts of the tokens of a text, in order.
fn split(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    for (at, paragraph) in text.split("\n\n").enumerate() {
        if at > 0 {
            tokens.push("\n\n".to_string());
        }
        for word in paragraph.split_whitespace() {
            let letters = word.trim_end_matches(|mark: char| !mark.is_alphabetic());
            tokens.push(format!(" {letters}"));
            tokens.extend(word[letters.len()..].chars().map(String::from));
        }
    }
    tokens
}

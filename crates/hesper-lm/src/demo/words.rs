//! The words of a text, and which follow which.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// What stands for words that are not in the text.
pub(super) const UNKNOWN: &str = "<unknown>";
/// What ends the text.
pub(super) const END: &str = "<end>";

/// How many times each word comes next.
pub(super) type Following = BTreeMap<usize, usize>;

/// A text as numbers of words. Words carry the space before them; a line's end is a word.
pub(super) struct Words {
    /// The words, by their number.
    pub(super) all: Vec<String>,
    /// What follows a word.
    pub(super) after_one: BTreeMap<usize, Following>,
    /// What follows two words.
    pub(super) after_two: BTreeMap<(usize, usize), Following>,
}

impl Words {
    pub(super) fn of(text: &str) -> Words {
        let mut all = vec![UNKNOWN.to_string(), END.to_string()];
        let mut ids: BTreeMap<String, usize> = BTreeMap::new();
        let mut sequence = Vec::new();
        for word in split(text.trim()) {
            let id = *ids.entry(word.clone()).or_insert_with(|| {
                all.push(word);
                all.len() - 1
            });
            sequence.push(id);
        }
        sequence.push(1);
        let (mut after_one, mut after_two) = (BTreeMap::new(), BTreeMap::new());
        for pair in sequence.windows(2) {
            count(after_one.entry(pair[0]).or_default(), pair[1]);
        }
        for three in sequence.windows(3) {
            count(after_two.entry((three[0], three[1])).or_default(), three[2]);
        }
        // After what is not known, a sentence may begin.
        for pair in sequence.windows(2) {
            if matches!(all[pair[0]].as_str(), "." | "\n\n") && pair[1] != 1 {
                count(after_one.entry(0).or_default(), pair[1]);
            }
        }
        Words { all, after_one, after_two }
    }

    /// A tokenizer of these words, as `tokenizer.json` describes it.
    pub(super) fn tokenizer(&self) -> Value {
        let vocabulary: Map<String, Value> =
            self.all.iter().enumerate().map(|(id, word)| (word.clone(), json!(id))).collect();
        let special = |id: usize| {
            json!({ "id": id, "content": self.all[id], "single_word": false, "lstrip": false, "rstrip": false,
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
    *following.entry(id).or_default() += 1;
}

/// Words with the space before them, marks, and ends of paragraphs.
fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (at, paragraph) in text.split("\n\n").enumerate() {
        if at > 0 {
            words.push("\n\n".to_string());
        }
        for word in paragraph.split_whitespace() {
            let letters = word.trim_end_matches(|mark: char| !mark.is_alphabetic());
            words.push(format!(" {letters}"));
            words.extend(word[letters.len()..].chars().map(String::from));
        }
    }
    words
}

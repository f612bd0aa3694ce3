//! Tokenizers from the metadata of GGUF files.
//!
//! `gpt2` is byte-pair encoding with a list of merges, over bytes mapped to characters; the text is split
//! first by a pattern that the key `pre` names. `llama` is SentencePiece: pairs are merged by the score of
//! the result, spaces become `▁`, and characters that are not in the vocabulary fall back to bytes.

use std::collections::HashMap;

use hesper_files::{MetaArray, MetaValue, Metadata};
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as DecoderSequence;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::{Prepend, Replace, Sequence as NormalizerSequence};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizerSequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior,
};

use super::Tokenizer;
use crate::error::{Error, Result};

/// The split pattern of Llama 3.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The split pattern of Qwen 2 and 3: single digits.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Values of the key `token_type`.
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

fn invalid(what: impl Into<String>) -> Error {
    Error::Tokenizer(what.into())
}

fn tokenizer_error(error: tokenizers::Error) -> Error {
    Error::Tokenizer(error.to_string())
}

fn key(metadata: &Metadata, name: &str) -> Option<MetaValue> {
    metadata.get(&format!("tokenizer.ggml.{name}")).cloned()
}

impl Tokenizer {
    /// Reads the metadata of a GGUF file.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self> {
        let list = |name: &str| match metadata.get(&format!("tokenizer.ggml.{name}")) {
            Some(MetaValue::Array(array)) => Some(array),
            _ => None,
        };
        let tokens = list("tokens")
            .and_then(MetaArray::as_strings)
            .ok_or_else(|| invalid("the key tokens is missing"))?;
        let kinds: &[i32] = match list("token_type") {
            Some(MetaArray::I32(kinds)) if kinds.len() == tokens.len() => kinds,
            None => &[],
            Some(_) => return Err(invalid("the key token_type must hold an int32 for every token")),
        };
        let id = |name: &str| {
            let id =
                key(metadata, name).and_then(|value| value.as_u64()).and_then(|id| u32::try_from(id).ok());
            id.filter(|id| (*id as usize) < tokens.len())
        };
        let model = metadata.get("tokenizer.ggml.model").and_then(MetaValue::as_str).unwrap_or("");
        let mut inner = match model {
            "gpt2" => {
                let merges = list("merges").and_then(MetaArray::as_strings);
                let pre = metadata.get("tokenizer.ggml.pre").and_then(MetaValue::as_str).unwrap_or("default");
                byte_pair(tokens, merges.ok_or_else(|| invalid("the key merges is missing"))?, pre)?
            }
            "llama" => {
                let scores = match list("scores") {
                    Some(MetaArray::F32(scores)) if scores.len() == tokens.len() => scores,
                    _ => return Err(invalid("the key scores must hold a float32 for every token")),
                };
                let space =
                    key(metadata, "add_space_prefix").and_then(|value| value.as_bool()).unwrap_or(true);
                sentence_piece(tokens, scores, space, id("unknown_token_id"))?
            }
            other => {
                let what = format!("the model {other:?} is not supported; supported are gpt2 and llama");
                return Err(invalid(what));
            }
        };
        let of_kind = |wanted: i32| tokens.iter().zip(kinds).filter(move |(_, kind)| **kind == wanted);
        let control: Vec<AddedToken> =
            of_kind(CONTROL).map(|(text, _)| AddedToken::from(text.clone(), true)).collect();
        let defined: Vec<AddedToken> =
            of_kind(USER_DEFINED).map(|(text, _)| AddedToken::from(text.clone(), false)).collect();
        inner.add_special_tokens(&control);
        inner.add_tokens(&defined);
        let text = |id: Option<u32>| id.map_or(String::new(), |id| tokens[id as usize].clone());
        let (bos, eos) = (id("bos_token_id"), id("eos_token_id"));
        let begin =
            key(metadata, "add_bos_token").and_then(|value| value.as_bool()).unwrap_or(model == "llama");
        let mut eos_tokens: Vec<u32> = eos.into_iter().chain(id("eot_token_id")).collect();
        eos_tokens.dedup();
        Ok(Tokenizer {
            inner,
            bos: bos.filter(|_| begin),
            adds_bos: false,
            eos_tokens,
            bos_text: text(bos),
            eos_text: text(eos),
            template: metadata.get("tokenizer.chat_template").and_then(MetaValue::as_str).map(str::to_string),
        })
    }
}

use tokenizers::models::bpe::Vocab as Vocabulary;

fn vocabulary(tokens: &[String]) -> Vocabulary {
    tokens.iter().zip(0..).map(|(token, id)| (token.clone(), id)).collect()
}

/// Byte-pair encoding over bytes mapped to characters.
fn byte_pair(tokens: &[String], merges: &[String], pre: &str) -> Result<tokenizers::Tokenizer> {
    let vocabulary = vocabulary(tokens);
    let mut pairs = Vec::with_capacity(merges.len());
    for merge in merges {
        let pair = merge.split_once(' ');
        let pair = pair.ok_or_else(|| invalid(format!("the merge {merge:?} is not a pair of tokens")))?;
        let known = |part: &str| vocabulary.contains_key(part);
        if !known(pair.0) || !known(pair.1) || !known(&[pair.0, pair.1].concat()) {
            let what = format!("the merge {merge:?} has parts or a result that are not in the vocabulary");
            return Err(invalid(what));
        }
        pairs.push((pair.0.to_string(), pair.1.to_string()));
    }
    let llama3 = matches!(pre, "llama-bpe" | "llama3" | "llama-v3");
    // Llama 3 does not merge within a word that is a token.
    let model = BPE::builder().vocab_and_merges(vocabulary, pairs).ignore_merges(llama3);
    let model = model.build().map_err(tokenizer_error)?;
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    let split = |pattern: &str| -> Result<PreTokenizerWrapper> {
        let pattern = SplitPattern::Regex(pattern.to_string());
        Ok(Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(tokenizer_error)?.into())
    };
    // After another split, the byte level only maps bytes to characters.
    let byte_level = |splits: bool| PreTokenizerWrapper::from(ByteLevel::new(false, true, splits));
    let steps = match pre {
        _ if llama3 => vec![split(LLAMA3)?, byte_level(false)],
        "qwen2" | "deepseek-r1-qwen" => vec![split(QWEN2)?, byte_level(false)],
        "smollm" | "starcoder" | "refact" | "command-r" => vec![Digits::new(true).into(), byte_level(true)],
        "default" | "gpt-2" | "gpt2" | "" => vec![byte_level(true)],
        other => return Err(invalid(format!("the pre-tokenizer {other:?} is not supported"))),
    };
    tokenizer.with_pre_tokenizer(Some(PreTokenizerSequence::new(steps)));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    Ok(tokenizer)
}

/// SentencePiece's byte-pair encoding.
fn sentence_piece(
    tokens: &[String],
    scores: &[f32],
    space: bool,
    unknown: Option<u32>,
) -> Result<tokenizers::Tokenizer> {
    let vocabulary = vocabulary(tokens);
    let ids: HashMap<&str, usize> =
        tokens.iter().enumerate().map(|(id, token)| (token.as_str(), id)).collect();
    // Every pair whose concatenation is a token, highest scores first.
    let mut pairs: Vec<(f32, usize, usize)> = Vec::new();
    for (id, token) in tokens.iter().enumerate() {
        if token.len() > 256 {
            continue;
        }
        for (cut, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(cut);
            if ids.contains_key(left) && ids.contains_key(right) {
                pairs.push((scores[id], id, cut));
            }
        }
    }
    pairs.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    let merges = pairs
        .iter()
        .map(|(_, id, cut)| {
            let (left, right) = tokens[*id].split_at(*cut);
            (left.to_string(), right.to_string())
        })
        .collect();
    let mut builder = BPE::builder().vocab_and_merges(vocabulary, merges).byte_fallback(true).fuse_unk(true);
    if let Some(unknown) = unknown {
        builder = builder.unk_token(tokens[unknown as usize].clone());
    }
    let mut tokenizer = tokenizers::Tokenizer::new(builder.build().map_err(tokenizer_error)?);
    let spaces: NormalizerWrapper = Replace::new(" ", "▁").map_err(tokenizer_error)?.into();
    let mut steps = vec![spaces];
    if space {
        steps.insert(0, Prepend::new("▁".into()).into());
    }
    tokenizer.with_normalizer(Some(NormalizerSequence::new(steps)));
    let mut decoders: Vec<DecoderWrapper> = vec![
        Replace::new("▁", " ").map_err(tokenizer_error)?.into(),
        ByteFallback::new().into(),
        Fuse::new().into(),
    ];
    if space {
        decoders.push(Strip::new(' ', 1, 0).into());
    }
    tokenizer.with_decoder(Some(DecoderSequence::new(decoders)));
    Ok(tokenizer)
}

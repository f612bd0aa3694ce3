//! Tokenizers from the metadata of GGUF files.
//!
//! `gpt2` is byte-pair encoding with a list of merges, over bytes written as letters; the text is cut into
//! words first, by a pattern that the key `pre` names. `llama` is SentencePiece's: pairs are merged by the score of
//! what they make, spaces are written as `▁`, and what is not in the vocabulary becomes bytes.

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
use tokenizers::pre_tokenizers::sequence::Sequence as Pieces;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior,
};

use super::Tokenizer;
use crate::error::{Error, Result};

/// How Llama 3 cuts text.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// How Qwen 2 and 3 cut it: digits one by one.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Kinds of tokens, as the key `token_type` numbers them.
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

fn bad(what: impl Into<String>) -> Error {
    Error::Tokenizer(what.into())
}

fn failed(error: tokenizers::Error) -> Error {
    Error::Tokenizer(error.to_string())
}

fn key(metadata: &Metadata, name: &str) -> Option<MetaValue> {
    metadata.get(&format!("tokenizer.ggml.{name}")).cloned()
}

impl Tokenizer {
    /// From the metadata of a GGUF file.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self> {
        let list = |name: &str| match metadata.get(&format!("tokenizer.ggml.{name}")) {
            Some(MetaValue::Array(array)) => Some(array),
            _ => None,
        };
        let tokens =
            list("tokens").and_then(MetaArray::as_strings).ok_or_else(|| bad("the file has no tokens"))?;
        let kinds: &[i32] = match list("token_type") {
            Some(MetaArray::I32(kinds)) if kinds.len() == tokens.len() => kinds,
            None => &[],
            Some(_) => return Err(bad("the kinds of tokens are no list as long as that of tokens")),
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
                bytes(tokens, merges.ok_or_else(|| bad("the file has no merges"))?, pre)?
            }
            "llama" => {
                let scores = match list("scores") {
                    Some(MetaArray::F32(scores)) if scores.len() == tokens.len() => scores,
                    _ => return Err(bad("there is no score for every token")),
                };
                let space =
                    key(metadata, "add_space_prefix").and_then(|value| value.as_bool()).unwrap_or(true);
                pieces(tokens, scores, space, id("unknown_token_id"))?
            }
            other => return Err(bad(format!("the kind {other:?} is not supported; gpt2 and llama are"))),
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
        let mut ends: Vec<u32> = eos.into_iter().chain(id("eot_token_id")).collect();
        ends.dedup();
        Ok(Tokenizer {
            inner,
            bos: bos.filter(|_| begin),
            begins: false,
            ends,
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

/// Byte-pair encoding over bytes written as letters.
fn bytes(tokens: &[String], merges: &[String], pre: &str) -> Result<tokenizers::Tokenizer> {
    let vocabulary = vocabulary(tokens);
    let mut pairs = Vec::with_capacity(merges.len());
    for merge in merges {
        let pair = merge.split_once(' ').ok_or_else(|| bad(format!("the merge {merge:?} is no pair")))?;
        let known = |part: &str| vocabulary.contains_key(part);
        if !known(pair.0) || !known(pair.1) || !known(&[pair.0, pair.1].concat()) {
            return Err(bad(format!("the merge {merge:?} makes what is no token")));
        }
        pairs.push((pair.0.to_string(), pair.1.to_string()));
    }
    let llama3 = matches!(pre, "llama-bpe" | "llama3" | "llama-v3");
    // Llama 3 takes words that are tokens as they are, whatever the merges say.
    let model = BPE::builder().vocab_and_merges(vocabulary, pairs).ignore_merges(llama3);
    let model = model.build().map_err(failed)?;
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    let cut = |pattern: &str| -> Result<PreTokenizerWrapper> {
        let pattern = SplitPattern::Regex(pattern.to_string());
        Ok(Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(failed)?.into())
    };
    // With a pattern of its own, the byte level only writes bytes as letters.
    let level = |own: bool| PreTokenizerWrapper::from(ByteLevel::new(false, true, own));
    let steps = match pre {
        _ if llama3 => vec![cut(LLAMA3)?, level(false)],
        "qwen2" | "deepseek-r1-qwen" => vec![cut(QWEN2)?, level(false)],
        "smollm" | "starcoder" | "refact" | "command-r" => vec![Digits::new(true).into(), level(true)],
        "default" | "gpt-2" | "gpt2" | "" => vec![level(true)],
        other => return Err(bad(format!("how {other:?} cuts text into words is not known"))),
    };
    tokenizer.with_pre_tokenizer(Some(Pieces::new(steps)));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    Ok(tokenizer)
}

/// SentencePiece's byte-pair encoding.
fn pieces(
    tokens: &[String],
    scores: &[f32],
    space: bool,
    unknown: Option<u32>,
) -> Result<tokenizers::Tokenizer> {
    let vocabulary = vocabulary(tokens);
    let ids: HashMap<&str, usize> =
        tokens.iter().enumerate().map(|(id, token)| (token.as_str(), id)).collect();
    // Every pair that makes a token, best scores first.
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
    let mut tokenizer = tokenizers::Tokenizer::new(builder.build().map_err(failed)?);
    let spaces: NormalizerWrapper = Replace::new(" ", "▁").map_err(failed)?.into();
    let mut steps = vec![spaces];
    if space {
        steps.insert(0, Prepend::new("▁".into()).into());
    }
    tokenizer.with_normalizer(Some(NormalizerSequence::new(steps)));
    let mut decoders: Vec<DecoderWrapper> =
        vec![Replace::new("▁", " ").map_err(failed)?.into(), ByteFallback::new().into(), Fuse::new().into()];
    if space {
        decoders.push(Strip::new(' ', 1, 0).into());
    }
    tokenizer.with_decoder(Some(DecoderSequence::new(decoders)));
    Ok(tokenizer)
}

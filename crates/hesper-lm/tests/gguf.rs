//! Models and tokenizers from GGUF files.

use std::path::{Path, PathBuf};

use crate::support::{Folder, Small, Tensor, difference, reference, some_tokens};
use hesper::io::{self, GgufTensor, MetaArray, MetaValue};
use hesper::{Array, Dtype, PackedArray, PackedFormat};
use hesper_lm::{
    CacheKind, GenerateOptions, LanguageModel, LoadOptions, Tokenizer, batch_generate, generate,
};

fn text(value: &str) -> MetaValue {
    MetaValue::String(value.into())
}

fn strings(list: impl IntoIterator<Item = impl Into<String>>) -> MetaValue {
    MetaValue::Array(MetaArray::String(list.into_iter().map(Into::into).collect()))
}

type Entries = Vec<(String, MetaValue)>;

fn entries(list: Vec<(&str, MetaValue)>) -> Entries {
    list.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

/// Bytes that byte-level tokenizers map to themselves, and the characters of space and newline.
fn letters() -> Vec<String> {
    (b'!'..=b'~').map(|byte| char::from(byte).to_string()).chain(["Ġ".into(), "Ċ".into()]).collect()
}

fn byte_tokens() -> Entries {
    entries(vec![
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("gpt-2")),
        ("tokenizer.ggml.tokens", strings(letters())),
        ("tokenizer.ggml.merges", strings(Vec::<String>::new())),
    ])
}

/// The rows of a Llama's queries or keys as GGUF files store them: the elements of a rotary pair are
/// neighbours.
fn paired(tensor: &Tensor, head: usize) -> Tensor {
    let inputs = tensor.shape[1];
    let mut data = Vec::with_capacity(tensor.data.len());
    for first in (0..tensor.shape[0]).step_by(head) {
        for pair in 0..head / 2 {
            for half in [0, head / 2] {
                let row = first + pair + half;
                data.extend_from_slice(&tensor.data[row * inputs..(row + 1) * inputs]);
            }
        }
    }
    Tensor { shape: tensor.shape.clone(), data }
}

/// The weights as GGUF files name and store them.
fn named(small: &Small) -> Vec<(String, Array)> {
    let names = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("model.layers.", "blk."),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("lm_head", "output"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("transformer.wte", "token_embd"),
        ("transformer.wpe", "position_embd"),
        ("transformer.ln_f", "output_norm"),
        ("transformer.h.", "blk."),
        ("ln_1", "attn_norm"),
        ("ln_2", "ffn_norm"),
        ("attn.c_attn", "attn_qkv"),
        ("attn.c_proj", "attn_output"),
        ("mlp.c_fc", "ffn_up"),
        ("mlp.c_proj", "ffn_down"),
    ];
    small
        .weights
        .iter()
        .map(|(name, tensor)| {
            let short = names.iter().fold(name.clone(), |name, (long, short)| name.replace(long, short));
            let rotated = small.family == "llama" && (short.contains("attn_q") || short.contains("attn_k"));
            let tensor = if rotated { paired(tensor, small.head) } else { tensor.clone() };
            let elements: Vec<f32> = tensor.data.iter().map(|element| *element as f32).collect();
            let array = Array::try_from_slice(&elements, &tensor.shape).unwrap();
            // GPT-2's safetensors hold transposed matrices.
            match small.family == "gpt2" && array.ndim() == 2 && short.starts_with("blk.") {
                true => (short, array.t().unwrap().contiguous().unwrap()),
                false => (short, array),
            }
        })
        .collect()
}

fn write(small: &Small, path: &Path, metadata: &[(String, MetaValue)]) {
    let arrays = named(small);
    io::save_gguf(path, arrays.iter().map(|(name, array)| (name.clone(), array)), metadata).unwrap();
}

fn metadata(small: &Small) -> Entries {
    let family = small.family;
    let size = |value: usize| MetaValue::U32(value as u32);
    let mut all = byte_tokens();
    all.push(("general.architecture".into(), text(family)));
    for (key, value) in [
        ("block_count", size(small.layers)),
        ("context_length", size(128)),
        ("embedding_length", size(small.width)),
        ("feed_forward_length", size(small.mlp)),
        ("attention.head_count", size(small.heads)),
        ("attention.head_count_kv", size(small.kv_heads)),
        ("attention.key_length", size(small.head)),
        ("rope.freq_base", MetaValue::F32(1000.0)),
        ("attention.layer_norm_rms_epsilon", MetaValue::F32(1e-5)),
        ("attention.layer_norm_epsilon", MetaValue::F32(1e-5)),
    ] {
        all.push((format!("{family}.{key}"), value));
    }
    all
}

#[test]
fn gguf_files_hold_the_same_model() {
    let folder = Folder::new("gguf");
    for family in ["llama", "qwen2", "qwen3", "gpt2"] {
        let small = Small::new(family, 31, true, None);
        assert_eq!(letters().len(), small.vocabulary);
        let path = folder.0.join(format!("{family}.gguf"));
        write(&small, &path, &metadata(&small));
        let language = LanguageModel::load(&path, &LoadOptions::default()).unwrap();
        let tokens = some_tokens(19, small.vocabulary, 32);
        let expected = reference(&small, &tokens);
        let largest = expected.concat().iter().fold(0.0f64, |a, b| a.max(b.abs()));
        let mut cache = CacheKind::Growing.create(language.model().config()).unwrap();
        let ids = Array::try_from_slice(&tokens, &[1, tokens.len()]).unwrap();
        let given = language.model().forward(&ids, &mut *cache).unwrap().to_vec::<f32>().unwrap();
        let off = difference(&given, &expected);
        assert!(off < 2e-4 * largest, "{family}: off by {off} of {largest}");
    }
}

/// Replaces the matrices by their values after rounding to blocks.
fn rounded(small: &mut Small, format: PackedFormat) {
    for tensor in small.weights.values_mut().filter(|tensor| tensor.shape.len() == 2) {
        let elements: Vec<f32> = tensor.data.iter().map(|element| *element as f32).collect();
        let array = Array::try_from_slice(&elements, &tensor.shape).unwrap();
        let packed = PackedArray::quantize(&array, format).unwrap();
        let elements = packed.dequantize(Dtype::Float32).unwrap().to_vec::<f32>().unwrap();
        tensor.data = elements.into_iter().map(f64::from).collect();
    }
}

#[test]
fn packed_matrices_compute_what_plain_loops_compute_in_pieces_and_token_by_token() {
    let folder = Folder::new("packed");
    for (family, window, tied, format) in [
        ("llama", None, true, PackedFormat::Q4_1),
        ("llama", Some(6), true, PackedFormat::Q8_0),
        ("llama", None, false, PackedFormat::Q4_0),
        ("qwen2", None, true, PackedFormat::Q4_1),
        ("qwen3", None, true, PackedFormat::Q4_1),
        ("qwen3", None, false, PackedFormat::Q8_0),
    ] {
        let mut small = Small::new(family, 33, tied, None);
        small.window = window;
        rounded(&mut small, format);
        let path = folder.0.join("packed.gguf");
        let mut metadata = metadata(&small);
        if let Some(window) = window {
            metadata.push((format!("{family}.attention.sliding_window"), MetaValue::U32(window as u32)));
        }
        let arrays = named(&small);
        let packed: Vec<(String, Result<PackedArray, Array>)> = (arrays.into_iter())
            .map(|(name, array)| match array.ndim() {
                2 => (name, Ok(PackedArray::quantize(&array, format).unwrap())),
                _ => (name, Err(array)),
            })
            .collect();
        let tensors = packed.iter().map(|(name, tensor)| match tensor {
            Ok(packed) => (name.clone(), GgufTensor::Packed(packed)),
            Err(array) => (name.clone(), GgufTensor::Array(array)),
        });
        io::save_gguf(&path, tensors, &metadata).unwrap();
        let language = LanguageModel::load(&path, &LoadOptions::default()).unwrap();
        let tokens = some_tokens(19, small.vocabulary, 32);
        let expected = reference(&small, &tokens);
        let largest = expected.concat().iter().fold(0.0f64, |a, b| a.max(b.abs()));
        for pieces in [&[19][..], &[7, 1, 1, 10], &[1; 19]] {
            let mut cache = CacheKind::Growing.create(language.model().config()).unwrap();
            let (mut given, mut rest) = (Vec::new(), &tokens[..]);
            for piece in pieces {
                let (now, later) = rest.split_at(*piece);
                let ids = Array::try_from_slice(now, &[1, now.len()]).unwrap();
                given.extend(language.model().forward(&ids, &mut *cache).unwrap().to_vec::<f32>().unwrap());
                rest = later;
            }
            let off = difference(&given, &expected);
            let what = (family, window, format, pieces);
            assert!(off < 2e-4 * largest, "{what:?}: off by {off} of {largest}");
        }
        // Sequences of several lengths in a batch, and each alone.
        let options = GenerateOptions { max_tokens: 9, ignore_eos: true, ..GenerateOptions::default() };
        let prompts: Vec<_> =
            [1, 4, 13].map(|length| (some_tokens(length, small.vocabulary, 7), options.clone())).into();
        for ((prompt, options), generated) in prompts.iter().zip(batch_generate(&language, &prompts).unwrap())
        {
            assert_eq!(
                generated.tokens,
                generate(&language, prompt, options).unwrap().tokens,
                "{family} {window:?}"
            );
        }
    }
}

#[test]
fn invalid_metadata_is_refused_by_its_key() {
    let folder = Folder::new("gguf-bad");
    let small = Small::new("llama", 33, true, None);
    let refused = |change: &dyn Fn(&mut Entries), culprit: &str| {
        let mut all = metadata(&small);
        change(&mut all);
        let path = folder.0.join("bad.gguf");
        write(&small, &path, &all);
        let error = LanguageModel::load(&path, &LoadOptions::default()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(culprit), "{culprit}: {error}");
    };
    let set = |all: &mut Entries, key: &str, value: MetaValue| {
        all.retain(|entry| entry.0 != key);
        all.push((key.to_string(), value));
    };
    refused(&|all| set(all, "general.architecture", text("mamba")), "mamba");
    refused(&|all| set(all, "llama.block_count", MetaValue::U32(0)), "llama.block_count");
    refused(&|all| set(all, "llama.block_count", MetaValue::U32(3)), "blk.2.");
    refused(&|all| set(all, "llama.attention.head_count_kv", MetaValue::U32(3)), "heads");
    refused(&|all| set(all, "llama.rope.scaling.type", text("longrope")), "longrope");
    refused(&|all| set(all, "tokenizer.ggml.model", text("bert")), "bert");
    refused(&|all| set(all, "tokenizer.ggml.pre", text("klingon")), "klingon");
    refused(&|all| set(all, "tokenizer.ggml.merges", strings(["a q9"])), "a q9");
    refused(&|all| set(all, "tokenizer.ggml.tokens", strings(["a", "b"])), "token_embd");
}

/// The tokenizer of a file with one other tensor.
fn tokenizer(folder: &Folder, metadata: &Entries) -> Tokenizer {
    let path: PathBuf = folder.0.join("tokenizer.gguf");
    let one = Array::zeros(&[1], Dtype::Float32).unwrap();
    io::save_gguf(&path, [("x", &one)], metadata).unwrap();
    Tokenizer::from_gguf(io::load(&path).unwrap().metadata()).unwrap()
}

#[test]
fn bytes_are_merged_in_the_order_of_the_merges() {
    let folder = Folder::new("merges");
    let mut tokens = letters();
    tokens.extend(["he", "ll", "hell", "Ġhell", "<end>"].map(String::from));
    let mut kinds = vec![1; tokens.len()];
    *kinds.last_mut().unwrap() = 3;
    let end = tokens.len() as u32 - 1;
    let all = entries(vec![
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("smollm")),
        ("tokenizer.ggml.tokens", strings(tokens.clone())),
        ("tokenizer.ggml.token_type", MetaValue::Array(MetaArray::I32(kinds))),
        ("tokenizer.ggml.merges", strings(["h e", "l l", "he ll", "Ġ hell"])),
        ("tokenizer.ggml.eos_token_id", MetaValue::U32(end)),
        ("tokenizer.chat_template", text("{{ messages }}")),
    ]);
    let tokenizer = tokenizer(&folder, &all);
    let pieces = |text: &str| -> Vec<String> {
        let ids = tokenizer.encode(text, true).unwrap();
        ids.iter().map(|id| tokens[*id as usize].clone()).collect()
    };
    assert_eq!(pieces("hello hell<end>12"), ["hell", "o", "Ġhell", "<end>", "1", "2"]);
    assert_eq!((tokenizer.eos_tokens(), tokenizer.template()), (&[end][..], Some("{{ messages }}")));
    let ids = tokenizer.encode("hello hell 1!", true).unwrap();
    assert_eq!(tokenizer.decode(&ids).unwrap(), "hello hell 1!");
}

#[test]
fn pieces_are_merged_by_score_and_unknown_characters_become_bytes() {
    let folder = Folder::new("pieces");
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).to_vec();
    let mut kinds = vec![2, 3, 3];
    let mut scores = vec![0.0f32; 3];
    for byte in 0..=255u8 {
        tokens.push(format!("<0x{byte:02X}>"));
        kinds.push(6);
        scores.push(0.0);
    }
    let pieces = ["▁hello", "▁hel", "lo", "el", "▁h", "▁", "h", "e", "l", "o"];
    for (at, piece) in pieces.iter().enumerate() {
        tokens.push(piece.to_string());
        kinds.push(1);
        scores.push(at as f32 - 50.0);
    }
    let all = entries(vec![
        ("tokenizer.ggml.model", text("llama")),
        ("tokenizer.ggml.tokens", strings(tokens.clone())),
        ("tokenizer.ggml.token_type", MetaValue::Array(MetaArray::I32(kinds))),
        ("tokenizer.ggml.scores", MetaValue::Array(MetaArray::F32(scores))),
        ("tokenizer.ggml.bos_token_id", MetaValue::U32(1)),
        ("tokenizer.ggml.eos_token_id", MetaValue::U32(2)),
        ("tokenizer.ggml.unknown_token_id", MetaValue::U32(0)),
    ]);
    let tokenizer = tokenizer(&folder, &all);
    let pieces = |text: &str| -> Vec<String> {
        let ids = tokenizer.encode(text, true).unwrap();
        ids.iter().map(|id| tokens[*id as usize].clone()).collect()
    };
    assert_eq!(pieces("hello helo"), ["<s>", "▁hello", "▁hel", "o"]);
    assert_eq!(pieces("é"), ["<s>", "▁", "<0xC3>", "<0xA9>"]);
    for text in ["hello helo", "é hé", "日本"] {
        assert_eq!(tokenizer.decode(&tokenizer.encode(text, true).unwrap()).unwrap(), text);
    }
    let mut stream = hesper_lm::Detokenizer::new(&tokenizer.encode("hello", true).unwrap());
    let ids = tokenizer.encode(" hé", false).unwrap();
    let parts: Vec<String> = ids.iter().map(|id| stream.push(&tokenizer, *id).unwrap()).collect();
    assert!(parts.iter().all(|part| !part.contains('\u{fffd}')), "{parts:?}");
    assert!(parts.concat().ends_with("hé"), "{parts:?}");
}

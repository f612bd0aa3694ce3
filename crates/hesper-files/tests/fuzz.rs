//! Mutated files: whatever the bytes, no panic, no hang, and no more memory than the file justifies.
//!
//! Deterministic: run `n` of a format always sees the same bytes. Seeds are the golden files and
//! `tests/corpus/<format>`, where findings go too. `HESPER_FUZZ_RUNS` sets the number of runs for each
//! format, `HESPER_FUZZ_START` the first one; a failure prints its number and writes the bytes to the
//! temporary folder.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{Random, golden, parse};
use crate::counting::peak_of;
use hesper_compute::{GgmlType, GgufMat, Serial, gguf_dequantize};
use hesper_files::{Format, ShardIndex, TensorFile};

/// Buffers and tables that parsing takes whatever the file is.
const CONSTANT: usize = 512 << 10;
/// Memory for each byte of the file.
const FACTOR: usize = 16;

fn seeds(format: &str, golden_files: &[&str]) -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> =
        golden_files.iter().map(|name| std::fs::read(golden(name)).unwrap()).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(format);
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    seeds.extend(paths.iter().map(|path| std::fs::read(path).unwrap()));
    seeds
}

fn interesting(random: &mut Random, len: usize) -> u64 {
    let len = len as u64;
    match random.below(16) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => u64::MAX - random.next() % 64,
        4 => len,
        5 => len.wrapping_add(1),
        6 => len.wrapping_sub(random.next() % 64),
        7 => 1 << 32,
        8 => (1 << 32) - 1,
        9 => 1 << 63,
        10 => 1 << (random.next() % 64),
        11 => 0xffff,
        12 => random.next() % 256,
        13 => 100_000_000 + random.next() % 2,
        14 => u64::MAX / 4 + random.next() % 8,
        _ => random.next(),
    }
}

/// One blind change: bits, numbers of all widths, pieces cut, doubled, moved or taken from another seed.
fn mutate(bytes: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
    let len = bytes.len();
    let at = random.below(len);
    match random.below(10) {
        0 if len > 0 => bytes[at] ^= 1 << random.below(8),
        1 if len > 0 => bytes[at] = random.next() as u8,
        2..5 => {
            let width = [1, 2, 4, 8][random.below(4)];
            let value = interesting(random, len).to_le_bytes();
            let end = (at + width).min(len);
            bytes[at..end].copy_from_slice(&value[..end - at]);
        }
        5 => bytes.truncate(at),
        6 => {
            let end = (at + random.below(64)).min(len);
            bytes.drain(at..end);
        }
        7 => {
            let end = (at + random.below(64)).min(len);
            let piece = bytes[at..end].to_vec();
            let to = random.below(len + 1);
            bytes.splice(to..to, piece);
        }
        8 => {
            let other = &others[random.below(others.len())];
            let from = random.below(other.len());
            let piece = &other[from..(from + random.below(200)).min(other.len())];
            bytes.splice(at..at, piece.iter().copied());
        }
        _ => bytes.extend(std::iter::repeat_n(random.next() as u8, random.below(100))),
    }
}

/// Changes a text by its tokens: numbers for other numbers, punctuation for other punctuation.
fn mutate_text(text: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(text.len());
    let digits = (at..text.len()).find(|&i| text[i].is_ascii_digit());
    match (random.below(5), digits) {
        (0 | 1, Some(start)) => {
            let end = (start..text.len()).find(|&i| !text[i].is_ascii_digit()).unwrap_or(text.len());
            let number = interesting(random, text.len()).to_string();
            text.splice(start..end, number.into_bytes());
        }
        (2, _) => {
            let token = [
                "{", "}", "[", "]", "(", ")", ",", ":", "\"", "'", "\\", "\\ud800", "null", "-1", "1e9", " ",
            ];
            text.splice(at..at, token[random.below(token.len())].bytes());
        }
        (3, _) => {
            let end = (at + random.below(80)).min(text.len());
            let piece = text[at..end].to_vec();
            let times = if random.below(20) == 0 { 500 } else { 1 };
            let pieces = piece.repeat(times);
            text.splice(at..at, pieces);
        }
        _ => {
            let end = (at + random.below(20)).min(text.len());
            text.drain(at..end);
        }
    }
}

/// Changes the text within `start..end` and says its new length where the format keeps it.
fn mutate_header(bytes: &mut Vec<u8>, start: usize, width: usize, random: &mut Random) {
    let length_at = start - width;
    let Some(field) = bytes.get(length_at..start) else { return };
    let len = field.iter().rev().fold(0usize, |len, &b| len << 8 | usize::from(b));
    let Some(end) = start.checked_add(len).filter(|&end| end <= bytes.len()) else { return };
    let mut text = bytes[start..end].to_vec();
    for _ in 0..=random.below(3) {
        mutate_text(&mut text, random);
    }
    let len = (text.len() as u64).to_le_bytes();
    bytes.splice(start..end, text);
    bytes[length_at..start].copy_from_slice(&len[..width]);
}

/// Changes a field of a zip record.
fn mutate_zip(bytes: &mut [u8], random: &mut Random) {
    let records: Vec<usize> =
        (0..bytes.len().saturating_sub(4)).filter(|&i| bytes[i..].starts_with(b"PK")).collect();
    if records.is_empty() {
        return;
    }
    let at = records[random.below(records.len())] + 4 + random.below(44);
    let width = [1, 2, 4, 8][random.below(4)];
    let end = (at + width).min(bytes.len());
    if at < end {
        let value = interesting(random, bytes.len()).to_le_bytes();
        bytes[at..end].copy_from_slice(&value[..end - at]);
    }
}

/// What must hold for any file that was accepted.
fn inspect(file: &TensorFile) {
    for tensor in file.tensors() {
        assert_eq!(tensor.dtype.byte_len(&tensor.shape), Ok(tensor.byte_len));
        if let (Some(range), Ok(())) = (tensor.in_place(), file.check_range(tensor)) {
            assert!(range.end <= file.source().len() && range.end - range.start == tensor.byte_len);
        }
        assert_eq!(file.get(&tensor.name), Some(tensor));
        if tensor.byte_len < 1 << 20 {
            let _ = file.verify(tensor);
            if let Ok(bytes) = file.read(tensor) {
                assert_eq!(bytes.len() as u64, tensor.byte_len);
            }
        }
    }
    for (key, value) in file.metadata().entries() {
        assert_eq!(file.metadata().get(key).map(|v| format!("{v:?}")), Some(format!("{value:?}")));
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Runs `check` on mutations of the seeds.
fn fuzz(
    label: &str,
    seeds: &[Vec<u8>],
    aware: impl Fn(&mut Vec<u8>, &mut Random),
    check: impl Fn(&[u8]) + std::panic::RefUnwindSafe,
) {
    let start = setting("HESPER_FUZZ_START", 0);
    let runs = setting("HESPER_FUZZ_RUNS", 20_000);
    for run in start..start + runs {
        let mut random = Random::new(run + 1);
        let mut bytes = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(4) {
            if random.below(2) == 0 {
                aware(&mut bytes, &mut random)
            } else {
                mutate(&mut bytes, seeds, &mut random)
            }
        }
        let began = Instant::now();
        let survived =
            std::panic::catch_unwind(|| check(&bytes)).is_ok() && began.elapsed() < Duration::from_secs(10);
        if !survived {
            let path = std::env::temp_dir().join(format!("hesper-fuzz-{label}-{run}"));
            std::fs::write(&path, &bytes).unwrap();
            panic!("run {run} of {label} failed; its bytes are in {}", path.display());
        }
    }
}

fn check_file(format: Format) -> impl Fn(&[u8]) {
    move |bytes| {
        let owned = bytes.to_vec();
        let (parsed, peak) = peak_of(|| parse(owned));
        assert!(
            peak <= FACTOR * bytes.len() + CONSTANT,
            "{peak} bytes held for a {format} file of {}",
            bytes.len()
        );
        if let Ok(file) = parsed {
            inspect(&file);
        }
    }
}

#[test]
fn mutated_safetensors_files_are_parsed_or_refused() {
    let seeds = seeds("safetensors", &["all.safetensors"]);
    fuzz("safetensors", &seeds, |b, r| mutate_header(b, 8, 8, r), check_file(Format::Safetensors));
}

#[test]
fn mutated_npy_files_are_parsed_or_refused() {
    let seeds =
        seeds("npy", &["c_order.npy", "fortran.npy", "big_endian.npy", "structured.npy", "empty.npy"]);
    fuzz("npy", &seeds, |b, r| mutate_header(b, 10, 2, r), check_file(Format::Npy));
}

#[test]
fn mutated_npz_files_are_parsed_or_refused() {
    let seeds = seeds("npz", &["deflated.npz", "descriptors.npz"]);
    fuzz("npz", &seeds, |b, r| mutate_zip(b, r), check_file(Format::Npz));
}

#[test]
fn mutated_gguf_files_are_parsed_or_refused() {
    let seeds = seeds("gguf", &["all.gguf"]);
    // All that counts is in the first bytes; the rest is data.
    let aware = |bytes: &mut Vec<u8>, random: &mut Random| {
        let at = random.below(bytes.len().min(1500));
        let width = [4, 8][random.below(2)];
        let end = (at + width).min(bytes.len());
        let value = interesting(random, bytes.len()).to_le_bytes();
        bytes[at..end].copy_from_slice(&value[..end - at]);
    };
    fuzz("gguf", &seeds, aware, check_file(Format::Gguf));
}

#[test]
fn mutated_shard_indices_are_parsed_or_refused() {
    let seeds = seeds("index", &[]);
    fuzz("index", &seeds, mutate_text, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let (parsed, peak) = peak_of(|| ShardIndex::parse(text));
        assert!(peak <= FACTOR * bytes.len() + CONSTANT, "{peak} bytes held for {}", bytes.len());
        if let Ok(index) = parsed {
            assert!(index.tensors.iter().all(|(_, shard)| *shard < index.shards.len()));
        }
    });
}

#[test]
fn the_densest_valid_headers_stay_within_the_bound_too() {
    let mut header = String::from("{");
    for i in 0..20_000 {
        header.push_str(&format!(
            r#"{}"{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#,
            if i > 0 { "," } else { "" }
        ));
    }
    header.push('}');
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    check_file(Format::Safetensors)(&bytes);
    assert_eq!(parse(bytes).unwrap().tensors().len(), 20_000);

    // Empty strings, and empty arrays in an array: the least bytes for what is held.
    for (kind, element) in [(8u32, &0u64.to_le_bytes()[..]), (9, &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])] {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(0u64.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
        bytes.push(b'k');
        bytes.extend(9u32.to_le_bytes());
        bytes.extend(kind.to_le_bytes());
        bytes.extend(50_000u64.to_le_bytes());
        bytes.extend(element.repeat(50_000));
        check_file(Format::Gguf)(&bytes);
        assert_eq!(parse(bytes).unwrap().metadata().get("k").unwrap().as_array().unwrap().len(), 50_000);
    }
}

#[test]
fn blocks_of_any_bytes_are_decoded() {
    let mut random = Random::new(3);
    for &dtype in GgmlType::ALL.iter().filter(|dtype| dtype.is_decoded()) {
        let (elements, bytes) = (dtype.block_len(), dtype.block_bytes());
        for blocks in 0..200 {
            let data: Vec<u8> = (0..blocks * bytes).map(|_| random.next() as u8).collect();
            let mut out = vec![0.0f32; blocks * elements];
            let blocks = GgufMat::new(dtype, blocks, elements, &data).unwrap();
            gguf_dequantize(&Serial, &blocks, &mut out).unwrap();
        }
    }
}

//! Tensor files: safetensors, npy, npz, GGUF and indices of sharded checkpoints.
//!
//! A file is loaded lazily, every array is evaluated and saved again in the same format, and the file loaded
//! from that must have the same names, dtypes, shapes and bytes.

use std::path::Path;

use hesper::io::{self, Format, Options, Quantized};
use hesper::{Array, Dtype};
use hesper_runtime::sim::Rng;

use crate::engine::{Target, Verdict};
use crate::mutate;

/// See the [module](self).
pub struct Files;

/// The most elements of an array that is evaluated.
const MAX_ELEMENTS: usize = 1 << 16;

const WORDS: [&str; 34] = [
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ",",
    ":",
    "\"",
    "'",
    "\\",
    "\\ud800",
    "null",
    "-1",
    "1e9",
    " ",
    "true",
    "\"F32\"",
    "\"BF16\"",
    "\"I64\"",
    "\"U8\"",
    "\"BOOL\"",
    "\"F8_E4M3\"",
    "\"data_offsets\"",
    "\"shape\"",
    "\"dtype\"",
    "\"__metadata__\"",
    "'descr'",
    "'<f4'",
    "'>c8'",
    "'|b1'",
    "'fortran_order': True",
    "'shape': ()",
    "18446744073709551615",
];

impl Target for Files {
    fn name(&self) -> &'static str {
        "files"
    }

    fn about(&self) -> &'static str {
        "safetensors, npy, npz, GGUF: opened, evaluated, saved and loaded again"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hesper-files/tests");
        let mut folders = vec![tests.join("golden")];
        folders.extend(
            ["gguf", "index", "npy", "npz", "safetensors"].map(|name| tests.join("corpus").join(name)),
        );
        let mut paths: Vec<_> = folders
            .iter()
            .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten())
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        paths.sort();
        paths
            .iter()
            .filter_map(|path| std::fs::read(path).ok())
            .filter(|bytes| bytes.len() < 1 << 16)
            .collect()
    }

    fn fresh(&self) -> usize {
        2
    }

    fn generate(&self, rng: &mut Rng) -> Vec<u8> {
        match rng.below(3) {
            0 => safetensors(rng),
            1 => npy(rng),
            _ => saved(rng),
        }
    }

    fn mutate(&self, input: &mut Vec<u8>, others: &[Vec<u8>], rng: &mut Rng) {
        // A header is a text after its length: 8 bytes in safetensors, 2 or 4 in npy.
        let header = match input.get(..8) {
            Some(magic) if magic.starts_with(b"\x93NUMPY") => {
                Some(if magic[6] > 1 { (12, 4) } else { (10, 2) })
            }
            Some(magic) if magic.starts_with(b"GGUF") || magic.starts_with(b"PK") => None,
            Some(_) => Some((8, 8)),
            None => None,
        };
        match header {
            Some((start, width)) if !rng.one_in(3) => mutate_header(input, start, width, rng),
            _ if input.starts_with(b"PK") && rng.one_in(2) => mutate_record(input, rng),
            _ => mutate::bytes(input, others, rng),
        }
    }

    fn run(&self, input: &[u8]) -> Result<Verdict, String> {
        let kind = input.last().map_or(0, |last| last % 3);
        let quantized =
            [Quantized::Affine, Quantized::Float(Dtype::Float32), Quantized::Blocks][kind as usize];
        let source = io::Source::from_bytes(input.to_vec());
        let options = Options { quantized, ..Options::default() };
        let Ok(loaded) = io::load_with(source, &options) else { return Ok(Verdict::Refused) };
        let (format, mut kept) = (loaded.format(), Vec::new());
        for (name, array) in loaded.arrays() {
            if array.size() > MAX_ELEMENTS || array.shape().len() > 32 {
                continue;
            }
            match array.eval() {
                Ok(()) => kept.push((name.clone(), array.clone())),
                Err(error) if error.to_string().contains("panic") => return Err(error.to_string()),
                Err(_) => {}
            }
        }
        for (_, blocks) in loaded.all_blocks() {
            if blocks
                .shape()
                .iter()
                .try_fold(1usize, |size, n| size.checked_mul(*n))
                .is_some_and(|n| n <= MAX_ELEMENTS)
            {
                let _ = blocks.dequantize(Dtype::Float32).and_then(|array| array.eval());
            }
        }
        drop(loaded);
        again(format, &kept)?;
        Ok(Verdict::Accepted)
    }

    fn describe(&self, input: &[u8]) -> String {
        format!("{:?}", String::from_utf8_lossy(input))
    }
}

/// Mutates the text of a header and updates its length.
fn mutate_header(input: &mut Vec<u8>, start: usize, width: usize, rng: &mut Rng) {
    let at = start - width;
    let Some(field) = input.get(at..start) else { return };
    let length = field.iter().rev().fold(0usize, |length, &byte| length << 8 | usize::from(byte));
    let Some(end) = start.checked_add(length).filter(|&end| end <= input.len()) else { return };
    let mut text = input[start..end].to_vec();
    mutate::text(&mut text, &WORDS, rng);
    let length = (text.len() as u64).to_le_bytes();
    input.splice(start..end, text);
    input[at..start].copy_from_slice(&length[..width]);
}

/// Mutates a field of a zip record.
fn mutate_record(input: &mut [u8], rng: &mut Rng) {
    let records: Vec<usize> =
        (0..input.len().saturating_sub(4)).filter(|&i| input[i..].starts_with(b"PK")).collect();
    if records.is_empty() {
        return;
    }
    let at = rng.pick(&records) + 4 + rng.below(44);
    let end = (at + rng.pick(&[1, 2, 4, 8])).min(input.len());
    if at < end {
        let value = mutate::number(rng, input.len()).to_le_bytes();
        input[at..end].copy_from_slice(&value[..end - at]);
    }
}

fn length(rng: &mut Rng) -> u64 {
    if rng.one_in(12) { mutate::number(rng, 64) } else { rng.below(5) as u64 }
}

/// A mostly consistent safetensors file.
fn safetensors(rng: &mut Rng) -> Vec<u8> {
    let (mut parts, mut end) = (Vec::new(), 0u64);
    for number in 0..rng.below(5) {
        let (dtype, size) =
            rng.pick(&[("F32", 4), ("F16", 2), ("BF16", 2), ("I64", 8), ("U8", 1), ("BOOL", 1)]);
        let shape: Vec<u64> = (0..rng.below(4)).map(|_| length(rng)).collect();
        let bytes = shape.iter().fold(size, |bytes: u64, n| bytes.wrapping_mul(*n));
        let start = if rng.one_in(20) { mutate::number(rng, end as usize) } else { end };
        end = start.wrapping_add(if rng.one_in(20) { mutate::number(rng, 64) } else { bytes });
        let name = if rng.one_in(10) { "a".to_string() } else { format!("x.{number}") };
        parts.push(format!(
            "\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{start},{end}]}}"
        ));
    }
    if rng.one_in(4) {
        parts.push("\"__metadata__\":{\"format\":\"pt\"}".to_string());
    }
    let header = format!("{{{}}}", parts.join(","));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    let data = rng.bytes((end as usize).min(4096));
    file.extend(data);
    file
}

/// A mostly consistent npy file.
fn npy(rng: &mut Rng) -> Vec<u8> {
    let (dtype, size) =
        rng.pick(&[("<f4", 4), (">f4", 4), ("<f2", 2), ("|b1", 1), ("<i8", 8), ("<c8", 8), (">u2", 2)]);
    let shape: Vec<u64> = (0..rng.below(4)).map(|_| length(rng)).collect();
    let list: String = shape.iter().map(|n| format!("{n},")).collect();
    let order = rng.pick(&["True", "False"]);
    let header = format!("{{'descr': '{dtype}', 'fortran_order': {order}, 'shape': ({list}), }}");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    let bytes = shape.iter().fold(size, |bytes: u64, n| bytes.wrapping_mul(*n));
    let data = rng.bytes((bytes as usize).min(4096));
    file.extend(data);
    file
}

/// A valid file of arrays in any format.
fn saved(rng: &mut Rng) -> Vec<u8> {
    let dtypes = [Dtype::Bool, Dtype::Uint8, Dtype::Int32, Dtype::Float16, Dtype::Float32, Dtype::Int64];
    let mut arrays = Vec::new();
    for number in 0..1 + rng.below(4) {
        let dtype = rng.pick(&dtypes);
        let shape: Vec<usize> = (0..rng.below(4)).map(|_| rng.below(5)).collect();
        let mut bytes = rng.bytes(shape.iter().product::<usize>() * dtype.size());
        if dtype == Dtype::Bool {
            bytes.iter_mut().for_each(|byte| *byte &= 1);
        }
        if let Ok(array) = Array::from_bytes(&bytes, dtype, &shape) {
            arrays.push((format!("x{number}"), array));
        }
    }
    let format = rng.pick(&[Format::Safetensors, Format::Npy, Format::Npz, Format::Gguf]);
    write(format, &arrays).unwrap_or_default()
}

fn write(format: Format, arrays: &[(String, Array)]) -> hesper::Result<Vec<u8>> {
    let mut out = Vec::new();
    let list = arrays.iter().map(|(name, array)| (name.as_str(), array));
    match format {
        Format::Npz => io::write_npz(&mut std::io::Cursor::new(&mut out), list)?,
        Format::Gguf => io::write_gguf(&mut out, list, &[])?,
        Format::Npy => {
            if let Some((_, array)) = arrays.first() {
                io::write_npy(&mut out, array)?;
            }
        }
        _ => io::write_safetensors(&mut out, list, &[])?,
    }
    Ok(out)
}

/// Saves arrays and loads them again: they are equal, or the format does not support them.
fn again(format: Format, kept: &[(String, Array)]) -> Result<(), String> {
    let kept = if format == Format::Npy { &kept[..kept.len().min(1)] } else { kept };
    if kept.is_empty() {
        return Ok(());
    }
    // A format may refuse a dtype, a name or a number of axes.
    let Ok(file) = write(format, kept) else { return Ok(()) };
    let loaded = io::load_bytes(file).map_err(|error| format!("a file that was written here: {error}"))?;
    if loaded.arrays().len() != kept.len() {
        return Err(format!("{} arrays of {} came back", loaded.arrays().len(), kept.len()));
    }
    for (name, array) in kept {
        let found = match format {
            Format::Npy => loaded.single(),
            _ => loaded.get(name),
        };
        let found = found.ok_or_else(|| format!("{name:?} did not come back"))?;
        let bytes = |array: &Array| array.read_bytes(<[u8]>::to_vec).map_err(|error| error.to_string());
        if (found.dtype(), found.shape()) != (array.dtype(), array.shape()) || bytes(found)? != bytes(array)?
        {
            return Err(format!("{name:?} came back as another array: {found:?} instead of {array:?}"));
        }
    }
    Ok(())
}

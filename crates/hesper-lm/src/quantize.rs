//! From a checkpoint to a smaller one: matrices are rounded to codes in groups, in MLX's layout.

use std::path::Path;

use hesper::{Array, io};
use hesper_nn::Quantization;
use serde_json::{Value, json};

use crate::config::{Config, Family};
use crate::error::{Error, Result};

/// Files that go along as they are.
const ALONG: &[&str] = &[
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
];

/// What quantizing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantizeReport {
    /// Matrices that were rounded.
    pub matrices: usize,
    /// Tensors that stayed as they were.
    pub others: usize,
    /// Bytes of all tensors before.
    pub before: u64,
    /// Bytes of all tensors afterwards.
    pub after: u64,
}

/// Quantizes the checkpoint in the folder `from` and writes a new one to the folder `to`, which must not hold
/// one already.
pub fn quantize(from: &Path, to: &Path, quantization: Quantization) -> Result<QuantizeReport> {
    let path = from.join("config.json");
    let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
    let config = Config::from_json(&text)?;
    if config.quantizations.default.is_some() {
        return Err(Error::config(path.display().to_string(), "the checkpoint is quantized already"));
    }
    let target = to.join("model.safetensors");
    if target.exists() || to.join("config.json").exists() {
        let what = "there is a model in this folder already".into();
        return Err(Error::NoModel { path: to.to_path_buf(), what });
    }
    let loaded = io::load(from)?;
    let before = loaded.byte_len();
    let mut report = QuantizeReport { matrices: 0, others: 0, before, after: 0 };
    let mut tensors: Vec<(String, Array)> = Vec::new();
    for (name, array) in loaded.into_arrays() {
        let layer = name.strip_suffix(".weight");
        let matrix = match layer {
            Some(layer) if array.ndim() == 2 => Some((layer, oriented(&config, layer, &array)?)),
            _ => None,
        };
        match matrix {
            Some((layer, matrix)) if fits(layer, &matrix, quantization) => {
                let (group, bits) = (Some(quantization.group()), Some(quantization.bits()));
                let (codes, scales, biases) = matrix.quantize(group, bits, quantization.mode())?;
                report.matrices += 1;
                tensors.push((format!("{layer}.scales"), scales));
                tensors.extend(biases.map(|biases| (format!("{layer}.biases"), biases)));
                tensors.push((name, codes));
            }
            _ => {
                report.others += 1;
                tensors.push((name, array));
            }
        }
    }
    report.after = tensors.iter().map(|(_, array)| array.nbytes() as u64).sum();
    std::fs::create_dir_all(to).map_err(Error::io(to))?;
    let mark = [("format".to_string(), "mlx".to_string())];
    io::save_safetensors(&target, tensors.iter().map(|(name, array)| (name.clone(), array)), &mark)?;
    write_config(&text, to, quantization)?;
    for name in ALONG {
        let (source, target) = (from.join(name), to.join(name));
        if source.is_file() {
            std::fs::copy(&source, &target).map_err(Error::io(&target))?;
        }
    }
    Ok(report)
}

/// A matrix of (outputs, inputs).
fn oriented(config: &Config, layer: &str, array: &Array) -> Result<Array> {
    let turned = config.family == Family::Gpt2 && (layer.starts_with("h.") || layer.contains(".h."));
    Ok(if turned { array.t()? } else { array.clone() })
}

/// Whether a layer's matrix can be quantized and is used in a way that allows it.
fn fits(layer: &str, matrix: &Array, quantization: Quantization) -> bool {
    let positions = layer.ends_with("wpe");
    !positions && matrix.shape()[1].is_multiple_of(quantization.group().max(32)) && matrix.shape()[0] > 1
}

fn write_config(text: &str, to: &Path, quantization: Quantization) -> Result<()> {
    let mut value: Value =
        serde_json::from_str(text).map_err(|error| Error::config("config.json", error.to_string()))?;
    if let Value::Object(map) = &mut value {
        let entry = json!({
            "group_size": quantization.group(),
            "bits": quantization.bits(),
            "mode": quantization.mode().name(),
        });
        map.insert("quantization".into(), entry);
    }
    let path = to.join("config.json");
    std::fs::write(&path, format!("{value:#}\n")).map_err(Error::io(&path))
}

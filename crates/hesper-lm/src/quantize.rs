//! Quantizes a checkpoint: matrices become codes in groups, in MLX's layout.

use std::path::Path;

use hesper_core::{Array, io};
use hesper_nn::Quantization;
use serde_json::{Value, json};

use crate::architecture::QuantizeRule;
use crate::config::parse_json;
use crate::config_source::ConfigSource;
use crate::error::{Error, Result};
use crate::models;

/// Files that are copied.
const COPIED_FILES: &[&str] = &[
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
];

/// What [`quantize`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantizeReport {
    /// Matrices that were quantized.
    pub matrices: usize,
    /// Tensors that were copied.
    pub others: usize,
    /// Bytes of all tensors of the source.
    pub before: u64,
    /// Bytes of all tensors of the result.
    pub after: u64,
}

/// Quantizes the checkpoint in the folder `from` into the folder `to`, which must not hold a model.
pub fn quantize(from: &Path, to: &Path, quantization: Quantization) -> Result<QuantizeReport> {
    let path = from.join("config.json");
    let text = std::fs::read_to_string(&path).map_err(Error::io(&path))?;
    let mut config = parse_json(&text)?;
    let architecture = models::open(&ConfigSource::Json(&config))?;
    if architecture.config().quantizations.default.is_some() {
        return Err(Error::config(path.display().to_string(), "the checkpoint is already quantized"));
    }
    let target = to.join("model.safetensors");
    if target.exists() || to.join("config.json").exists() {
        let what = "the folder already has a model".into();
        return Err(Error::NoModel { path: to.to_path_buf(), what });
    }
    let loaded = io::load(from)?;
    let before = loaded.byte_len();
    let mut report = QuantizeReport { matrices: 0, others: 0, before, after: 0 };
    let mut tensors: Vec<(String, Array)> = Vec::new();
    for (name, array) in loaded.into_arrays() {
        let layer = name.strip_suffix(".weight").filter(|_| array.ndim() == 2);
        let matrix = match layer.map(|layer| (layer, architecture.quantize_rule(layer))) {
            Some((layer, QuantizeRule::Rows)) => Some((layer, array.clone())),
            Some((layer, QuantizeRule::Transposed)) => Some((layer, array.t()?)),
            Some((_, QuantizeRule::Keep)) | None => None,
        };
        match matrix {
            Some((layer, matrix)) if fits(&matrix, quantization) => {
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
    let entry = json!({
        "group_size": quantization.group(),
        "bits": quantization.bits(),
        "mode": quantization.mode().name(),
    });
    config.insert("quantization".into(), entry);
    let path = to.join("config.json");
    std::fs::write(&path, format!("{:#}\n", Value::Object(config))).map_err(Error::io(&path))?;
    for name in COPIED_FILES {
        let (source, target) = (from.join(name), to.join(name));
        if source.is_file() {
            std::fs::copy(&source, &target).map_err(Error::io(&target))?;
        }
    }
    Ok(report)
}

/// Whether the rows of a matrix can be divided into groups.
fn fits(matrix: &Array, quantization: Quantization) -> bool {
    matrix.shape()[1].is_multiple_of(quantization.group().max(32)) && matrix.shape()[0] > 1
}

//! `hesper quantize`: writes a quantized copy of a model.

use std::path::PathBuf;

use clap::Args;
use hesper_lm::{demo, quantize};
use hesper_nn::Quantization;
use serde_json::json;

use crate::Failure;
use crate::progress::Progress;

/// Quantizes a model.
#[derive(Args)]
pub struct Quantize {
    /// A folder with config.json and safetensors (or `demo`)
    from: PathBuf,
    /// The folder to write to
    to: PathBuf,
    /// Bits per weight: 2, 3, 4, 5, 6 or 8
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    bits: usize,
    /// Weights per scale: 32, 64 or 128
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    group_size: usize,
    /// The quantization mode: affine, mxfp4, mxfp8 or nvfp4
    #[arg(long, value_name = "NAME", default_value = "affine")]
    mode: String,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Quantize) -> Result<(), Failure> {
    let quantization =
        Quantization::new(args.group_size, args.bits, &args.mode).map_err(|error| error.to_string())?;
    let mut progress = Progress::new(args.json);
    progress.set("quantizing");
    let report = if args.from.as_os_str() == "demo" && !args.from.exists() {
        let folder = std::env::temp_dir().join(format!("hesper-demo-{}", std::process::id()));
        let report = demo::write(&folder).and_then(|()| quantize(&folder, &args.to, quantization));
        // Ignore an error: the operating system cleans up temporary folders.
        let _ = std::fs::remove_dir_all(&folder);
        report?
    } else {
        quantize(&args.from, &args.to, quantization)?
    };
    progress.clear();
    let path = args.to.display();
    if args.json {
        let (matrices, others, before, after) = (report.matrices, report.others, report.before, report.after);
        println!(
            "{}",
            json!({ "path": path.to_string(), "matrices": matrices, "others": others, "bytes_before": before,
                    "bytes_after": after })
        );
    } else {
        println!(
            "{path}: {} matrices quantized, {} tensors copied; {:.1} MB from {:.1} MB",
            report.matrices,
            report.others,
            report.after as f64 / 1e6,
            report.before as f64 / 1e6,
        );
    }
    Ok(())
}

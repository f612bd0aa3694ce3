//! `hesper quantize`.

use std::path::PathBuf;

use clap::Args;
use hesper_lm::{demo, quantize};
use hesper_nn::Quantization;
use serde_json::json;

use crate::Failure;
use crate::progress::Progress;

/// Makes a smaller model of a model.
#[derive(Args)]
pub struct Quantize {
    /// A folder with config.json and safetensors (or `demo`)
    from: PathBuf,
    /// The folder to write to
    to: PathBuf,
    /// Bits of a weight: 2, 3, 4, 5, 6 or 8
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    bits: usize,
    /// Weights that share a scale: 32, 64 or 128
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    group_size: usize,
    /// How weights become codes: affine, mxfp4, mxfp8 or nvfp4
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
    progress.say("quantizing");
    let report = if args.from.as_os_str() == "demo" && !args.from.exists() {
        let folder = std::env::temp_dir().join(format!("hesper-demo-{}", std::process::id()));
        let made = demo::write(&folder).and_then(|()| quantize(&folder, &args.to, quantization));
        // What is left of the folder is the system's to clean up.
        let _ = std::fs::remove_dir_all(&folder);
        made?
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
            "{path}: {} matrices quantized, {} tensors as they were; {:.1} MB from {:.1} MB",
            report.matrices,
            report.others,
            report.after as f64 / 1e6,
            report.before as f64 / 1e6,
        );
    }
    Ok(())
}

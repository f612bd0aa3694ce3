//! Times the kernels and compares each with the limit of the machine, measured in the same process.
//!
//!     cargo run --release -p hesper-compute --example bench -- gemm [threads]

#![allow(clippy::unwrap_used, reason = "a failure here should stop the run")]

mod attention;
mod conv;
mod fft;
mod gemm;
mod measure;
mod pool;
mod quant;
mod rows;
mod sort;

use pool::Pool;

fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_else(|| "gemm".into());
    let threads = args.next().and_then(|t| t.parse().ok()).unwrap_or(2);
    let filter = args.next().unwrap_or_default();
    let par = Pool::new(threads);
    match what.as_str() {
        "gemm" => gemm::run(&par, &filter),
        "quant" if filter == "decoder" => quant::decoder(&par),
        "quant" if filter == "rounded" => quant::rounded(&par),
        "quant" if !filter.is_empty() => quant::one(&par, &filter),
        "quant" => quant::run(&par),
        "attention" => attention::run(&par),
        "rows" => rows::run(&par),
        "sort" => sort::run(&par),
        "fft" => fft::run(&par),
        "conv" => conv::run(&par, &filter),
        other => {
            eprintln!("unknown benchmark {other:?}: use gemm, quant, attention, rows, sort, fft or conv")
        }
    }
}

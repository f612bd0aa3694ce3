//! The cost of loading: time, resident memory after the load, and peak memory once all tensors are in memory.
//!
//! `load write FILE GIB` makes a safetensors file of float32 matrices; `load read FILE` loads it and reads
//! all tensors into memory; `load use FILE` evaluates all tensors in place and sums them. Each prints one
//! line. `scripts/bench-load` runs them beside `mx.load` and the `safetensors` package.

use std::process::ExitCode;
use std::time::Instant;

use hesper::io::{self, Cancel, Reading};
use hesper::{Array, Dtype, eval};

/// Rows and columns of a matrix: 64 MiB of float32.
const SIDE: usize = 4096;

fn write(path: &str, gib: usize) -> hesper::Result<()> {
    let matrix = Array::arange(0.0..(SIDE * SIDE) as f64, Some(Dtype::Float32))?;
    let matrix = (matrix * 1e-6).reshape(&[SIDE as isize, SIDE as isize])?;
    matrix.eval()?;
    io::save_safetensors(path, (0..gib * 16).map(|at| (format!("layer.{at}"), &matrix)), &[])
}

/// A line of the process's status, in MiB; zero where the system does not report it.
fn status(field: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).map_or(0, |kib| kib / 1024)
}

fn report(loaded: f64, resident: usize, done: f64, check: f64) {
    println!(
        "{{\"load_s\": {loaded:.4}, \"resident_mib\": {resident}, \"total_s\": {done:.3}, \"peak_mib\": {}, \
         \"own_mib\": {}, \"check\": {check:.6e}}}",
        status("VmHWM:"),
        status("RssAnon:"),
    );
}

fn sum_of(arrays: &[(String, Array)]) -> hesper::Result<f64> {
    let sums = arrays.iter().map(|(_, array)| array.sum(())).collect::<hesper::Result<Vec<_>>>()?;
    eval(&sums)?;
    sums.iter().map(|sum| sum.item::<f32>().map(f64::from)).sum()
}

fn read(path: &str) -> hesper::Result<()> {
    let begun = Instant::now();
    let file = io::load(path)?;
    let (loaded, resident) = (begun.elapsed().as_secs_f64(), status("VmRSS:"));
    let file = file.read(Reading::default(), &Cancel::new(), |_| ())?;
    let done = begun.elapsed().as_secs_f64();
    let last = file.arrays().last().map_or(Ok(0.0), |(_, array)| array.sum(())?.item::<f32>());
    report(loaded, resident, done, last?.into());
    Ok(())
}

fn use_in_place(path: &str) -> hesper::Result<()> {
    let begun = Instant::now();
    let file = io::load(path)?;
    let (loaded, resident) = (begun.elapsed().as_secs_f64(), status("VmRSS:"));
    let sum = sum_of(file.arrays())?;
    report(loaded, resident, begun.elapsed().as_secs_f64(), sum);
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["write", path, gib] => write(path, gib.parse().unwrap_or(4)),
        ["read", path] => read(path),
        ["use", path] => use_in_place(path),
        _ => {
            eprintln!("usage: load write FILE GIB | load read FILE | load use FILE");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

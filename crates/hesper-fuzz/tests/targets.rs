//! Runs every fuzz target for a few seconds, its corpus first. `HESPER_FUZZ_SECONDS` sets the duration,
//! `HESPER_SEED` the inputs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

fn fuzz(target: &str) {
    let value = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_string());
    let findings = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    let output = Command::new(env!("CARGO_BIN_EXE_hesper-fuzz"))
        .args([target, "--seconds", &value("HESPER_FUZZ_SECONDS", "3"), "--seed", &value("HESPER_SEED", "1")])
        .arg("--findings")
        .arg(findings)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    // A target that accepts nothing tests nothing.
    let accepted =
        stdout.split(" accepted").next().and_then(|text| text.rsplit(' ').next()?.parse::<u64>().ok());
    assert!(accepted.is_some_and(|accepted| accepted > 10), "{stdout}");
    println!("{stdout}");
}

#[test]
fn tensor_files() {
    fuzz("files");
}

#[test]
fn exported_functions() {
    fuzz("exports");
}

#[test]
fn indices() {
    fuzz("index");
}

#[test]
fn texts_of_kernels() {
    fuzz("kernel-text");
}

#[test]
fn generated_kernels() {
    fuzz("kernels");
}

#[test]
fn sequences_of_calls_on_the_host() {
    fuzz("calls");
}

#[test]
fn sequences_of_calls_on_the_simulated_device() {
    fuzz("simulated");
}

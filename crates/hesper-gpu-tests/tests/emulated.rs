//! The CUDA text on the host's emulation of blocks and warps, and under NVRTC where it is installed.

use std::process::{Command, Output};

fn check(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hesper-kernel-gpu-check")).args(args).output().expect("the binary runs")
}

fn has_compiler() -> bool {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_string());
    Command::new(compiler).arg("--version").output().is_ok_and(|o| o.status.success())
}

fn assert_emulated(part: &str) {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) || !has_compiler() {
        eprintln!("skipped: the emulation needs a C++ compiler on x86-64 Linux");
        return;
    }
    let output = check(&["--seeds", "12", "--emulate", part]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("ok   "), "no check has {part:?} in its name");
}

#[test]
fn functions_of_f32_match_the_host_bit_for_bit() {
    assert_emulated("unary_f32");
}

#[test]
fn random_kernels_synchronize_and_match_the_interpreter() {
    assert_emulated("fuzz 1");
}

#[test]
fn lanes_synchronize_only_with_lanes_of_their_branch() {
    assert_emulated("corpus simd_divergent");
}

#[test]
fn partial_threadgroups_have_their_own_lane_indices() {
    assert_emulated("partial_group");
}

#[test]
fn accesses_out_of_range_read_zero_or_are_dropped_and_reported() {
    assert_emulated("outside ");
}

#[test]
fn a_machine_without_a_device_skips_with_success() {
    let output = check(&[]);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|l| l.starts_with("FAIL")).count();
    assert!(output.status.success() || lines > 0, "{text}");
}

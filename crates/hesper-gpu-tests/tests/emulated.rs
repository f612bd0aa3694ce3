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
    assert!(text.contains("ok   "), "no check has {part} in its name");
}

#[test]
fn functions_of_f32_give_the_hosts_bits() {
    assert_emulated("unary_f32");
}

#[test]
fn random_kernels_meet_at_every_rendezvous_and_give_the_interpreters_bits() {
    assert_emulated("fuzz 1");
}

#[test]
fn lanes_in_different_branches_meet_only_their_own() {
    assert_emulated("corpus simd_divergent");
}

#[test]
fn groups_at_the_edge_of_the_grid_are_numbered_within_themselves() {
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

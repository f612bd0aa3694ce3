//! The op suite on the simulated Metal, which parses kernels and runs them by the reference interpreter with
//! its sanitizer.

use std::process::Command;

/// A share of the op suite. `HESPER_METAL_SHARE=1/1` runs all of it.
#[test]
fn ops_agree_with_the_host() {
    let share = std::env::var("HESPER_METAL_SHARE").unwrap_or_else(|_| "7/120".into());
    let check = env!("CARGO_BIN_EXE_hesper-ops-gpu-check");
    let output = Command::new(check).args(["check", "", &share]).env("HESPER_METAL", "sim").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<&str> = text.lines().filter(|line| line.starts_with("FAIL")).collect();
    assert!(output.status.success() && failed.is_empty(), "{failed:#?}\n{}", tail(&text));
    assert!(text.contains("Apple M1 (simulated)"), "{}", tail(&text));
}

fn tail(text: &str) -> &str {
    let start = text.len().saturating_sub(2000);
    text.get(start..).unwrap_or(text)
}

#[test]
fn hesper_metal_sim_makes_the_simulation_the_gpu() {
    let check = env!("CARGO_BIN_EXE_hesper-ops-gpu-check");
    let run = |value: &str| {
        let output = Command::new(check).args(["check", "no such case"]).env("HESPER_METAL", value).output();
        String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
    };
    assert!(run("sim").contains("Apple M1 (simulated)"));
    assert!(!run("").contains("simulated"));
    let open = Command::new(check).arg("open").env("HESPER_METAL", "sim").output().unwrap();
    assert!(open.status.success());
    assert_eq!(String::from_utf8_lossy(&open.stdout).trim(), "Apple M1 (simulated)");
}

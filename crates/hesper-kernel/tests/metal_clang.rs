//! The calibration of `scripts/metal-clang-check`: it accepts the kernels of the corpus as they are written,
//! and refuses those with a fault in them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support;
use hesper_corpus::{Case, cases};

/// The whole text of a kernel as its author wrote it, for Metal's compiler.
fn written(case: &Case) -> String {
    let call = support::call_info(case, &case.bound_inputs());
    support::kernel_of(case).unwrap().written(&call).whole()
}

#[test]
fn clang_accepts_the_corpus_as_written_and_refuses_seeded_faults() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/metal-clang-check");
    if Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("python3 is not installed");
        return;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("written");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    for case in cases() {
        std::fs::write(folder.join(format!("{}.metal", case.name)), written(&case)).unwrap();
    }
    let out = Command::new("python3").arg(script).arg("--only").arg(&folder).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
}

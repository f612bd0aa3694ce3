//! A file of 4 GiB is loaded without reading it into memory.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(target_os = "linux")]

mod folder;

use std::time::Instant;

use folder::Folder;
use hesper::io;
use hesper_files::{FileDtype, TensorSpec, write};

/// Resident memory in MiB.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

#[test]
fn four_gibibytes_are_loaded_in_less_than_64_mebibytes_and_used_by_the_piece() {
    const COUNT: u64 = 256;
    const ROWS: u64 = 4096;
    let folder = Folder::new("large");
    let path = folder.path("large.safetensors");
    let specs: Vec<TensorSpec> =
        (0..COUNT).map(|at| TensorSpec::new(format!("t{at}"), FileDtype::F32, [ROWS, 1024])).collect();
    // A header, and a hole in the place of the data.
    let mut head = Vec::new();
    let stop = |_: usize, _: &mut dyn std::io::Write| Err("no data".into());
    let _ = write::safetensors(&mut head, &specs, &[], &mut { stop });
    std::fs::write(&path, &head).unwrap();
    let size = head.len() as u64 + COUNT * ROWS * 1024 * 4;
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(size).unwrap();
    assert!(size > 4 << 30);

    let before = resident();
    let begun = Instant::now();
    let file = io::load(&path).unwrap();
    assert!(begun.elapsed().as_secs_f64() < 5.0, "{:?}", begun.elapsed());
    assert_eq!(file.arrays().len(), COUNT as usize);
    hesper::eval(file.arrays().iter().map(|(_, array)| array)).unwrap();
    assert!(resident() < before + 64, "from {before} to {} MiB", resident());

    let row = file.require("t7").unwrap().slice(&[4095, 0], &[4096, 1024], &[1, 1]).unwrap();
    assert_eq!((row + 1.0).sum(()).unwrap().item::<f32>().unwrap(), 1024.0);
    assert!(resident() < before + 64, "from {before} to {} MiB", resident());
}

//! Memory that a file of gigabytes takes. Alone in its process, because the process is what is measured.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so.

mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::{Folder, safetensors_header, sparse};
use hesper_files::TensorFile;

const GIB: u64 = 1 << 30;

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn opening_a_file_of_four_gibibytes_takes_no_memory_and_no_time() {
    let folder = Folder::new("large");
    let path = folder.path("model.safetensors");
    sparse(&path, &safetensors_header(64, GIB / 16), 4 * GIB);
    let before = resident();
    let began = Instant::now();
    let file = TensorFile::open(&path).unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(file.tensors().len(), 64);
    // All tensors can be named, and one byte at the end of each touched.
    for tensor in file.tensors() {
        let bytes = file.in_place(tensor).unwrap().expect("mapped");
        assert_eq!(bytes.last(), Some(&0));
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes resident after opening 4 GiB");

    // What was read can be given back.
    let first = file.tensors()[0].in_place().unwrap();
    let sum: u64 = file.source().scan(first.clone(), |b| b.iter().map(|&b| u64::from(b)).sum()).unwrap();
    assert_eq!(sum, 0);
    file.source().prefetch(first.clone());
    file.source().release(first);
    let grown = resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes resident after 64 MiB were given back");
}

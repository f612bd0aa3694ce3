//! What the tests of this crate share: folders that clean up after themselves, golden files, a seeded
//! generator.
#![allow(dead_code, missing_docs, clippy::unwrap_used, clippy::should_implement_trait)] // Each test file uses its part.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use hesper_files::{Source, TensorFile};

/// A fresh folder, removed on drop.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(label: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hesper-files-{label}-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Names of all files, sorted.
    pub fn list(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            names.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Byte `i` of tensor `k`, as the script that made the golden files computes it.
pub fn pattern(len: usize, k: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 7 + k * 13) % 256) as u8).collect()
}

pub fn parse(bytes: impl Into<Vec<u8>>) -> hesper_files::Result<TensorFile> {
    TensorFile::parse(Source::from_bytes(bytes))
}

pub fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// A small generator (xorshift with a multiplier): the same seed gives the same run everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { (self.next() >> 16) as usize % limit }
    }
}

/// A file whose data is a hole of the file system: it takes no space on disk.
pub fn sparse(path: &Path, header: &[u8], data: u64) {
    let mut file = std::fs::File::create(path).unwrap();
    std::io::Write::write_all(&mut file, header).unwrap();
    file.set_len(header.len() as u64 + data).unwrap();
}

/// The header of a safetensors file of `count` tensors of `each` bytes.
pub fn safetensors_header(count: u64, each: u64) -> Vec<u8> {
    let mut text = String::from("{");
    for i in 0..count {
        let comma = if i == 0 { "" } else { "," };
        let (start, end) = (i * each, (i + 1) * each);
        text.push_str(&format!(
            r#"{comma}"layer.{i}":{{"dtype":"F32","shape":[{},16],"data_offsets":[{start},{end}]}}"#,
            each / 64
        ));
    }
    text.push('}');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.into_bytes());
    bytes
}

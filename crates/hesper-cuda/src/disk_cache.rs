//! A disk cache of compiled kernels: a second start compiles nothing.
//!
//! A file stores its whole key, which is compared: text, options, architecture, versions of compiler and
//! driver. Files are checksummed: a truncated or changed file is a miss and is removed.

use std::fs;
use std::path::{Path, PathBuf};

use hesper_runtime::cache_folder::{CacheFolder, hash, write_private};

const MAGIC: &[u8; 8] = b"HSPRCUB1";

/// A compiled kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The mangled name of the kernel.
    pub name: String,
    /// The code.
    pub image: Image,
}

/// Device code, complete and unchanged since the compiler produced it: it comes from the compiler, or from a
/// file with the whole key and a valid checksum. The driver does not validate it, so nothing else constructs
/// one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image(Vec<u8>);

impl Image {
    /// Wraps the compiler's output.
    pub(crate) fn from_compiler(bytes: Vec<u8>) -> Self {
        Image(bytes)
    }

    /// The bytes of the code.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A folder of compiled kernels.
#[derive(Debug)]
pub struct DiskCache(CacheFolder);

impl DiskCache {
    /// Opens the cache in a folder, which is created if missing. `None` if the folder belongs to another user
    /// or is writable by others.
    pub fn open(folder: &Path, max_files: usize, max_bytes: u64) -> Option<Self> {
        CacheFolder::open(folder, "cubin", max_files, max_bytes).map(DiskCache)
    }

    /// The default folder.
    pub fn default_folder() -> Option<PathBuf> {
        CacheFolder::default_folder("cuda")
    }

    /// Whether the folder is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Loads the kernel of a key.
    pub fn load(&self, key: &[u8]) -> Option<Compiled> {
        let path = self.0.path(key);
        let bytes = fs::read(&path).ok()?;
        match decode(&bytes, key) {
            Decoded::Found(compiled) => {
                CacheFolder::touch(&path);
                Some(compiled)
            }
            Decoded::OtherKey => None,
            Decoded::Damaged => {
                CacheFolder::remove(&path);
                None
            }
        }
    }

    /// Stores a kernel; returns whether that succeeded.
    pub fn store(&self, key: &[u8], compiled: &Compiled) -> bool {
        self.0.store(&self.0.path(key), |path| write_private(path, &encode(key, compiled)).is_ok())
    }
}

fn encode(key: &[u8], compiled: &Compiled) -> Vec<u8> {
    let lengths = [key.len(), compiled.name.len(), compiled.image.bytes().len()];
    let mut body = Vec::with_capacity(24 + lengths.iter().sum::<usize>());
    for len in lengths {
        body.extend_from_slice(&(len as u64).to_le_bytes());
    }
    body.extend_from_slice(key);
    body.extend_from_slice(compiled.name.as_bytes());
    body.extend_from_slice(compiled.image.bytes());
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&hash(&body, 0).to_le_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

#[derive(Debug, PartialEq)]
enum Decoded {
    Found(Compiled),
    OtherKey,
    Damaged,
}

fn decode(bytes: &[u8], key: &[u8]) -> Decoded {
    let parsed = || -> Option<(&[u8], Compiled)> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (checksum, body) = rest.split_first_chunk::<8>()?;
        if magic != MAGIC || u64::from_le_bytes(*checksum) != hash(body, 0) {
            return None;
        }
        let mut rest = body;
        let mut lengths = [0usize; 3];
        for len in &mut lengths {
            let (number, after) = rest.split_first_chunk::<8>()?;
            *len = usize::try_from(u64::from_le_bytes(*number)).ok()?;
            rest = after;
        }
        let (stored_key, rest) = rest.split_at_checked(lengths[0])?;
        let (name, image) = rest.split_at_checked(lengths[1])?;
        if image.len() != lengths[2] {
            return None;
        }
        let name = String::from_utf8(name.to_vec()).ok()?;
        Some((stored_key, Compiled { name, image: Image(image.to_vec()) }))
    };
    match parsed() {
        Some((stored, compiled)) if stored == key => Decoded::Found(compiled),
        Some(_) => Decoded::OtherKey,
        None => Decoded::Damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("hesper-disk-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Folder(path)
        }
        fn cubins(&self) -> Vec<PathBuf> {
            let entries = fs::read_dir(&self.0).unwrap();
            entries.map(|entry| entry.unwrap().path()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn compiled(image: &[u8]) -> Compiled {
        Compiled { name: "_Z5scaleIfEvPT_".into(), image: Image(image.to_vec()) }
    }

    #[test]
    fn what_was_stored_is_found_by_its_whole_key_only() {
        let folder = Folder::new("store");
        let cache = DiskCache::open(&folder.0, 10, 1 << 20).unwrap();
        assert_eq!(cache.load(b"key"), None);
        assert!(cache.is_empty());
        assert!(cache.store(b"key", &compiled(b"code")));
        assert!(!cache.is_empty());
        assert_eq!(cache.load(b"key"), Some(compiled(b"code")));
        assert_eq!(cache.load(b"kez"), None);
        // Another process finds it, too.
        let again = DiskCache::open(&folder.0, 10, 1 << 20).unwrap();
        assert_eq!(again.load(b"key"), Some(compiled(b"code")));
    }

    #[test]
    fn two_keys_of_one_hash_are_not_confused() {
        let bytes = encode(b"one key", &compiled(b"code"));
        assert_eq!(decode(&bytes, b"another"), Decoded::OtherKey);
    }

    #[test]
    fn every_single_changed_or_missing_byte_is_noticed() {
        let bytes = encode(b"key", &compiled(&[7; 40]));
        assert!(matches!(decode(&bytes, b"key"), Decoded::Found(_)));
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x10;
            assert_eq!(decode(&damaged, b"key"), Decoded::Damaged, "byte {position}");
            assert_eq!(decode(&bytes[..position], b"key"), Decoded::Damaged, "cut at {position}");
        }
    }

    #[test]
    fn a_damaged_file_is_a_miss_and_is_removed() {
        let folder = Folder::new("damage");
        let cache = DiskCache::open(&folder.0, 10, 1 << 20).unwrap();
        cache.store(b"key", &compiled(b"code"));
        let path = folder.cubins().pop().unwrap();
        fs::write(&path, b"HSPRCUB1 nonsense").unwrap();
        assert_eq!(cache.load(b"key"), None);
        assert!(!path.exists());
    }
}

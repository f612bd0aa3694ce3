//! A folder of binary archives: a second start generates no machine code.
//!
//! An archive holds one pipeline. Beside it is a file with its whole key (text, specialisation, GPU, version
//! of the system), which is compared. The key is written last.

use std::fs;
use std::path::{Path, PathBuf};

use hesper_runtime::cache_folder::{CacheFolder, KEY_SUFFIX, write_private};

/// A folder of archives.
#[derive(Debug)]
pub(crate) struct ArchiveCache(CacheFolder);

impl ArchiveCache {
    /// Opens the cache in a folder, which is created if missing. `None` if others can write it.
    pub(crate) fn open(folder: &Path, max_files: usize, max_bytes: u64) -> Option<Self> {
        CacheFolder::open(folder, "metalarchive", max_files, max_bytes).map(ArchiveCache)
    }

    /// The archive of a key, if there is one. The caller removes one that cannot be used.
    pub(crate) fn find(&self, key: &[u8]) -> Option<PathBuf> {
        let path = self.0.path(key);
        let known = fs::read(path.with_extension(KEY_SUFFIX)).ok()?;
        if known != key || !path.exists() {
            return None;
        }
        CacheFolder::touch(&path);
        Some(path)
    }

    /// Stores the archive that `save` writes to the path it is given; returns whether that succeeded.
    pub(crate) fn store(&self, key: &[u8], save: impl FnOnce(&Path) -> bool) -> bool {
        let path = self.0.path(key);
        self.0.store(&path, save)
            && self.0.store(&path.with_extension(KEY_SUFFIX), |path| write_private(path, key).is_ok())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("hesper-archives-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn write(bytes: &'static [u8]) -> impl FnOnce(&Path) -> bool {
        move |path| fs::write(path, bytes).is_ok()
    }

    #[test]
    fn an_archive_is_found_by_its_whole_key_only() {
        let folder = Folder::new("find");
        let cache = ArchiveCache::open(&folder.0, 10, 1 << 20).unwrap();
        assert_eq!(cache.find(b"key"), None);
        assert!(cache.store(b"key", write(b"code")));
        let path = cache.find(b"key").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"code");
        // As if two keys had one hash.
        fs::write(path.with_extension(KEY_SUFFIX), b"other").unwrap();
        assert_eq!(cache.find(b"key"), None);
        CacheFolder::remove(&path);
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
    }
}

//! A folder of binary archives: a second start generates no machine code.
//!
//! An archive holds one pipeline. It is found by a hash of its key (text, specialisation, GPU, version of the system)
//! beside a file with the whole key, which is compared. Files are written to a temporary name and renamed, so a reader
//! never sees a partial one; the key is written last. The folder is limited in number and bytes, oldest first. Any
//! failure costs one compilation.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

const SUFFIX: &str = "metalarchive";
const KEY_SUFFIX: &str = "key";

/// A folder of archives.
#[derive(Debug)]
pub(crate) struct ArchiveCache {
    folder: PathBuf,
    max_files: usize,
    max_bytes: u64,
    stored: AtomicU64,
}

impl ArchiveCache {
    /// The default limits of archives and bytes.
    pub(crate) const LIMITS: (usize, u64) = (4096, 512 << 20);

    /// Opens the cache in a folder, which is created if missing. `None` if others can write it.
    pub(crate) fn open(folder: &Path, max_files: usize, max_bytes: u64) -> Option<Self> {
        make_private(folder)?;
        Some(ArchiveCache { folder: folder.into(), max_files, max_bytes, stored: AtomicU64::new(0) })
    }

    /// The default folder: `metal` in `HESPER_CACHE_DIR` or in the user's cache folder. `None` if there is none, or if
    /// `HESPER_CACHE_DIR` is empty.
    pub(crate) fn default_folder() -> Option<PathBuf> {
        folder_from(
            env::var_os("HESPER_CACHE_DIR").map(PathBuf::from),
            env::var_os("XDG_CACHE_HOME").map(PathBuf::from),
            env::var_os("HOME").map(PathBuf::from),
        )
    }

    /// The archive of a key, if there is one. The caller removes one that cannot be used.
    pub(crate) fn find(&self, key: &[u8]) -> Option<PathBuf> {
        let path = self.path(key);
        let known = fs::read(path.with_extension(KEY_SUFFIX)).ok()?;
        if known != key || !path.exists() {
            return None;
        }
        // Mark the archive as recently used; a failure does not matter.
        if let Ok(file) = fs::File::open(&path) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(path)
    }

    /// Removes an archive.
    pub(crate) fn remove(path: &Path) {
        let _ = fs::remove_file(path.with_extension(KEY_SUFFIX));
        let _ = fs::remove_file(path);
    }

    /// Stores the archive that `save` writes to the path it is given; returns whether that succeeded.
    pub(crate) fn store(&self, key: &[u8], save: impl FnOnce(&Path) -> bool) -> bool {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = self.path(key);
        let temporary = self.folder.join(format!(".{}-{number}.new", std::process::id()));
        let stored = save(&temporary)
            && fs::rename(&temporary, &path).is_ok()
            && fs::write(&temporary, key).is_ok()
            && fs::rename(&temporary, path.with_extension(KEY_SUFFIX)).is_ok();
        if !stored {
            let _ = fs::remove_file(&temporary);
            return false;
        }
        if self.stored.fetch_add(1, Ordering::Relaxed).is_multiple_of(32) {
            self.trim();
        }
        true
    }

    /// Removes the oldest archives until the limits hold, and partial files of killed processes.
    fn trim(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(data) = entry.metadata() else { continue };
            let modified = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(SUFFIX) => files.push((modified, data.len(), path)),
                Some("new") if modified.elapsed().is_ok_and(|age| age.as_secs() > 3600) => {
                    let _ = fs::remove_file(&path);
                }
                _ => {}
            }
        }
        files.sort();
        let mut bytes: u64 = files.iter().map(|file| file.1).sum();
        let mut count = files.len();
        for (_, len, path) in files {
            if count <= self.max_files && bytes <= self.max_bytes {
                break;
            }
            ArchiveCache::remove(&path);
            count -= 1;
            bytes -= len;
        }
    }

    fn path(&self, key: &[u8]) -> PathBuf {
        self.folder.join(format!("{:016x}{:016x}.{SUFFIX}", hash(key, 0x6d65), hash(key, 0x7461)))
    }
}

fn folder_from(own: Option<PathBuf>, xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    if let Some(own) = own {
        return (!own.as_os_str().is_empty()).then(|| own.join("metal"));
    }
    let base = xdg.filter(|path| path.is_absolute()).or_else(|| home.map(|home| home.join(".cache")))?;
    Some(base.join("hesper").join("metal"))
}

/// A hash that is stable across builds. It locates files; keys are compared in full.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    let fold = |state: u64, byte: &u8| (state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(seed ^ 0xcbf2_9ce4_8422_2325, fold)
}

#[cfg(unix)]
fn make_private(folder: &Path) -> Option<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).ok()?;
    (fs::metadata(folder).ok()?.mode() & 0o022 == 0).then_some(())
}

#[cfg(not(unix))]
fn make_private(folder: &Path) -> Option<()> {
    fs::create_dir_all(folder).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("hesper-archives-{name}-{}", std::process::id()));
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
        ArchiveCache::remove(&path);
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = Folder::new("fail");
        let cache = ArchiveCache::open(&folder.0, 10, 1 << 20).unwrap();
        assert!(!cache.store(b"key", |path| fs::write(path, b"half").is_err()));
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
    }

    #[test]
    fn the_oldest_archives_go_when_the_limits_are_passed() {
        let folder = Folder::new("trim");
        let cache = ArchiveCache::open(&folder.0, 3, 1 << 20).unwrap();
        for number in 0..6u8 {
            cache.store(&[number], write(b"code"));
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 + u64::from(number));
            fs::File::open(cache.path(&[number])).unwrap().set_modified(time).unwrap();
        }
        assert!(cache.find(&[0]).is_some(), "a use makes it the youngest");
        cache.trim();
        let alive: Vec<u8> = (0..6).filter(|number| cache.find(&[*number]).is_some()).collect();
        assert_eq!(alive, [0, 4, 5]);
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_others_write_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new("private");
        assert!(ArchiveCache::open(&folder.0, 3, 1 << 20).is_some());
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(ArchiveCache::open(&folder.0, 3, 1 << 20).is_none());
    }

    #[test]
    fn the_folder_is_the_users_choice_then_the_systems() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(folder_from(path("/own"), path("/xdg"), path("/home")), path("/own/metal"));
        assert_eq!(folder_from(path(""), path("/xdg"), path("/home")), None);
        assert_eq!(folder_from(None, path("relative"), path("/home")), path("/home/.cache/hesper/metal"));
        assert_eq!(folder_from(None, None, None), None);
    }
}

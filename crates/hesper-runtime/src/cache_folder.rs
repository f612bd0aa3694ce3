//! A folder of cache files that is limited in number and bytes: compiled kernels that devices keep between
//! processes.
//!
//! A file is found by a hash of its key. Files are written to a temporary name and renamed, so a reader never
//! sees a partial file. Folder and files are private to their user. The oldest files go first. Any failure
//! costs one compilation.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// The suffix of files beside a cache file that hold its key. They are removed with it.
pub const KEY_SUFFIX: &str = "key";

/// A folder of cache files with one suffix.
#[derive(Debug)]
pub struct CacheFolder {
    folder: PathBuf,
    suffix: &'static str,
    max_files: usize,
    max_bytes: u64,
    stored: AtomicU64,
}

impl CacheFolder {
    /// The default limits of files and bytes.
    pub const LIMITS: (usize, u64) = (4096, 512 << 20);

    /// Opens a folder, which is created if missing. `None` if the folder belongs to another user or is
    /// writable by others.
    pub fn open(folder: &Path, suffix: &'static str, max_files: usize, max_bytes: u64) -> Option<Self> {
        make_private(folder)?;
        let stored = AtomicU64::new(0);
        Some(CacheFolder { folder: folder.to_path_buf(), suffix, max_files, max_bytes, stored })
    }

    /// The default folder for a kind of device: in `HESPER_CACHE_DIR`, or in `hesper` in the user's cache
    /// folder. `None` if there is none, or if `HESPER_CACHE_DIR` is empty.
    pub fn default_folder(device: &str) -> Option<PathBuf> {
        let folder = folder_from(
            env::var_os("HESPER_CACHE_DIR").map(PathBuf::from),
            env::var_os("XDG_CACHE_HOME").map(PathBuf::from),
            env::var_os("HOME").or_else(|| env::var_os("LOCALAPPDATA")).map(PathBuf::from),
        );
        folder.map(|folder| folder.join(device))
    }

    /// Whether the folder is empty.
    pub fn is_empty(&self) -> bool {
        fs::read_dir(&self.folder).map_or(true, |mut entries| entries.next().is_none())
    }

    /// The path of the file of a key.
    pub fn path(&self, key: &[u8]) -> PathBuf {
        let (high, low) = (hash(key, 0x243f_6a88_85a3_08d3), hash(key, 0x1319_8a2e_0370_7344));
        self.folder.join(format!("{high:016x}{low:016x}.{}", self.suffix))
    }

    /// Marks a file as recently used; a failure does not matter.
    pub fn touch(path: &Path) {
        if let Ok(file) = fs::File::open(path) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Removes a file and the one of its key.
    pub fn remove(path: &Path) {
        let _ = fs::remove_file(path.with_extension(KEY_SUFFIX));
        let _ = fs::remove_file(path);
    }

    /// Puts the file that `write` makes at the path it is given in the place of `path`; returns whether that
    /// succeeded.
    pub fn store(&self, path: &Path, write: impl FnOnce(&Path) -> bool) -> bool {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = self.folder.join(format!(".{}-{number}.new", std::process::id()));
        if !write(&temporary) || fs::rename(&temporary, path).is_err() {
            let _ = fs::remove_file(&temporary);
            return false;
        }
        if self.stored.fetch_add(1, Ordering::Relaxed).is_multiple_of(32) {
            self.trim();
        }
        true
    }

    /// Removes the oldest files until the limits hold, and partial files of killed processes.
    pub fn trim(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(data) = entry.metadata() else { continue };
            let modified = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(suffix) if suffix == self.suffix => files.push((modified, data.len(), path)),
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
            CacheFolder::remove(&path);
            count -= 1;
            bytes -= len;
        }
    }
}

fn folder_from(own: Option<PathBuf>, xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    if let Some(own) = own {
        return (!own.as_os_str().is_empty()).then_some(own);
    }
    let base = xdg.filter(|path| path.is_absolute()).or_else(|| home.map(|home| home.join(".cache")))?;
    Some(base.join("hesper"))
}

/// A hash that is stable across builds. It locates files and detects damage; keys are compared in full.
pub fn hash(bytes: &[u8], seed: u64) -> u64 {
    const PRIME: u64 = 0x9fb2_1c65_1e98_df25;
    let mix = |mut state: u64| {
        state ^= state >> 32;
        state = state.wrapping_mul(PRIME);
        state ^ (state >> 29)
    };
    let mut state = mix(seed ^ (bytes.len() as u64).wrapping_mul(PRIME));
    for chunk in bytes.chunks(8) {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = mix(state.rotate_left(23) ^ u64::from_le_bytes(word));
    }
    mix(state)
}

#[cfg(unix)]
fn make_private(folder: &Path) -> Option<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).ok()?;
    let data = fs::metadata(folder).ok()?;
    if data.mode() & 0o022 != 0 {
        return None;
    }
    // The owner of a file that this process creates must own the folder.
    let probe = folder.join(format!(".{}.probe", std::process::id()));
    write_private(&probe, b"").ok()?;
    let owner = fs::metadata(&probe).ok().map(|data| data.uid());
    let _ = fs::remove_file(&probe);
    (owner == Some(data.uid())).then_some(())
}

#[cfg(not(unix))]
fn make_private(folder: &Path) -> Option<()> {
    fs::create_dir_all(folder).ok()
}

/// Writes a file that only its owner can read.
pub fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)?.write_all(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("hesper-folder-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Folder(path)
        }

        fn open(&self) -> Option<CacheFolder> {
            CacheFolder::open(&self.0, "code", 3, 1 << 20)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn write(path: &Path) -> bool {
        write_private(path, b"code").is_ok()
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = Folder::new("fail");
        let cache = folder.open().unwrap();
        assert!(!cache.store(&cache.path(b"key"), |path| !write(path)));
        assert!(cache.is_empty());
    }

    #[test]
    fn the_oldest_files_go_when_the_limits_are_passed_and_their_keys_with_them() {
        let folder = Folder::new("trim");
        let cache = folder.open().unwrap();
        let paths: Vec<PathBuf> = (0..6u8).map(|number| cache.path(&[number])).collect();
        for (number, path) in paths.iter().enumerate() {
            assert!(cache.store(path, write) && cache.store(&path.with_extension(KEY_SUFFIX), write));
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 + number as u64);
            fs::File::open(path).unwrap().set_modified(time).unwrap();
        }
        CacheFolder::touch(&paths[0]);
        cache.trim();
        let alive: Vec<usize> = (0..6).filter(|number| paths[*number].exists()).collect();
        assert_eq!(alive, [0, 4, 5], "a use makes a file the youngest");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 6);
    }

    #[cfg(unix)]
    #[test]
    fn files_are_private_and_folders_that_others_write_are_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new("private");
        let cache = folder.open().unwrap();
        let path = cache.path(b"key");
        assert!(cache.store(&path, write));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder.0), mode(&path)), (0o700, 0o600));
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(folder.open().is_none());
    }

    #[test]
    fn the_folder_is_the_users_choice_then_the_systems() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(folder_from(path("/own"), path("/xdg"), path("/home")), path("/own"));
        assert_eq!(folder_from(path(""), path("/xdg"), path("/home")), None);
        assert_eq!(folder_from(None, path("/xdg"), path("/home")), path("/xdg/hesper"));
        assert_eq!(folder_from(None, path("relative"), path("/home")), path("/home/.cache/hesper"));
        assert_eq!(folder_from(None, None, None), None);
    }
}

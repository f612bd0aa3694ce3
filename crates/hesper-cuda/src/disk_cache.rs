//! A disk cache of compiled kernels: a second start compiles nothing.
//!
//! A file is found by a hash of its key and stores the whole key, which is compared: text, options, architecture,
//! versions of compiler and driver. Files are checksummed (a truncated or changed file is a miss and is removed),
//! written to a temporary name and renamed (a reader never sees a partial file), readable by their owner only, and
//! limited in number and bytes, oldest first. Any failure costs one compilation.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

const MAGIC: &[u8; 8] = b"HSPRCUB1";
const SUFFIX: &str = "cubin";

/// A compiled kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The mangled name of the kernel.
    pub name: String,
    /// The code.
    pub image: Image,
}

/// Device code, complete and unchanged since the compiler produced it: it comes from the compiler, or from a file
/// with the whole key and a valid checksum. The driver does not validate it, so nothing else constructs one.
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
pub struct DiskCache {
    folder: PathBuf,
    max_files: usize,
    max_bytes: u64,
    stored: AtomicU64,
}

impl DiskCache {
    /// The default limits of files and bytes.
    pub const LIMITS: (usize, u64) = (4096, 512 << 20);

    /// Opens the cache in a folder, which is created if missing. `None` if the folder belongs to another user or is
    /// writable by others.
    pub fn open(folder: &Path, max_files: usize, max_bytes: u64) -> Option<Self> {
        make_private(folder)?;
        let cache =
            DiskCache { folder: folder.to_path_buf(), max_files, max_bytes, stored: AtomicU64::new(0) };
        Some(cache)
    }

    /// The default folder: `HESPER_CACHE_DIR`, or `hesper` in the user's cache folder. `None` if there is none, or if
    /// `HESPER_CACHE_DIR` is empty.
    pub fn default_folder() -> Option<PathBuf> {
        folder_from(
            env::var_os("HESPER_CACHE_DIR").map(PathBuf::from),
            env::var_os("XDG_CACHE_HOME").map(PathBuf::from),
            env::var_os("HOME").or_else(|| env::var_os("LOCALAPPDATA")).map(PathBuf::from),
        )
    }

    /// Whether the folder is empty.
    pub fn is_empty(&self) -> bool {
        fs::read_dir(&self.folder).map_or(true, |mut entries| entries.next().is_none())
    }

    /// Loads the kernel of a key.
    pub fn load(&self, key: &[u8]) -> Option<Compiled> {
        let path = self.path(key);
        let bytes = fs::read(&path).ok()?;
        match decode(&bytes, key) {
            Decoded::Found(compiled) => {
                // Mark the file as recently used; a failure does not matter.
                if let Ok(file) = fs::File::open(&path) {
                    let _ = file.set_modified(SystemTime::now());
                }
                Some(compiled)
            }
            Decoded::OtherKey => None,
            Decoded::Damaged => {
                let _ = fs::remove_file(&path);
                None
            }
        }
    }

    /// Stores a kernel; returns whether that succeeded.
    pub fn store(&self, key: &[u8], compiled: &Compiled) -> bool {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = self.folder.join(format!(".{}-{number}.new", std::process::id()));
        let written = write_private(&temporary, &encode(key, compiled))
            .and_then(|()| fs::rename(&temporary, self.path(key)));
        if written.is_err() {
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
            let _ = fs::remove_file(&path);
            count -= 1;
            bytes -= len;
        }
    }

    fn path(&self, key: &[u8]) -> PathBuf {
        let (high, low) = (hash(key, 0x243f_6a88_85a3_08d3), hash(key, 0x1319_8a2e_0370_7344));
        self.folder.join(format!("{high:016x}{low:016x}.{SUFFIX}"))
    }
}

fn folder_from(own: Option<PathBuf>, xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    if let Some(own) = own {
        return (!own.as_os_str().is_empty()).then(|| own.join("cuda"));
    }
    let base = xdg.filter(|path| path.is_absolute()).or_else(|| home.map(|home| home.join(".cache")))?;
    Some(base.join("hesper").join("cuda"))
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

/// A hash that is stable across builds. It locates files and detects damage; keys are compared in full.
fn hash(bytes: &[u8], seed: u64) -> u64 {
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

fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
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
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("hesper-disk-{name}-{}", std::process::id()));
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

    #[test]
    fn the_oldest_files_go_when_the_limits_are_passed() {
        let folder = Folder::new("trim");
        let cache = DiskCache::open(&folder.0, 3, 1 << 20).unwrap();
        for number in 0..6u8 {
            cache.store(&[number], &compiled(b"code"));
            let path = cache.path(&[number]);
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 + u64::from(number));
            fs::File::open(path).unwrap().set_modified(time).unwrap();
        }
        assert!(cache.load(&[0]).is_some(), "a use makes it the youngest");
        cache.trim();
        let alive: Vec<u8> = (0..6).filter(|number| cache.path(&[*number]).exists()).collect();
        assert_eq!(alive, [0, 4, 5]);
    }

    #[cfg(unix)]
    #[test]
    fn files_are_private_and_folders_that_others_write_are_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new("private");
        let cache = DiskCache::open(&folder.0, 3, 1 << 20).unwrap();
        cache.store(b"key", &compiled(b"code"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.0), 0o700);
        assert_eq!(mode(&folder.cubins()[0]), 0o600);
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(DiskCache::open(&folder.0, 3, 1 << 20).is_none());
    }

    #[test]
    fn the_folder_is_the_users_choice_then_the_systems() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(folder_from(path("/own"), path("/xdg"), path("/home")), path("/own/cuda"));
        assert_eq!(folder_from(path(""), path("/xdg"), path("/home")), None);
        assert_eq!(folder_from(None, path("/xdg"), path("/home")), path("/xdg/hesper/cuda"));
        assert_eq!(folder_from(None, path("relative"), path("/home")), path("/home/.cache/hesper/cuda"));
        assert_eq!(folder_from(None, None, None), None);
    }
}

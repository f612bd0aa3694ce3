//! Replaces a file atomically: a temporary file in the same folder, synchronised, renamed over.
//!
//! Until the rename the destination is untouched, so whatever fails leaves what was there. The old file
//! stays valid for readers that have it open or mapped: a lazy array can be saved over the file it comes
//! from.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Writes a file through `write` and puts it at `path` if and only if all of it succeeds.
///
/// A symbolic link is followed: its target is replaced. Permissions of a file that was there are kept.
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("hesper-replace-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let path = folder.join("x");
/// use std::io::Write;
/// std::fs::write(&path, "old").unwrap();
/// let failed = hesper_files::write::replace(&path, |out| {
///     out.write_all(b"new").unwrap();
///     Err(hesper_files::Error::Cancelled)
/// });
/// assert!(failed.is_err());
/// assert_eq!(std::fs::read(&path).unwrap(), b"old");
/// # std::fs::remove_dir_all(&folder).unwrap();
/// ```
pub fn replace(path: impl AsRef<Path>, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let path = path.as_ref();
    let target = match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_symlink() => {
            fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
        }
        _ => path.to_path_buf(),
    };
    let existing = fs::metadata(&target).ok();
    if existing.as_ref().is_some_and(|meta| !meta.is_file()) || target.file_name().is_none() {
        return Err(Error::NotAFile(path.to_path_buf()));
    }
    let folder = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };

    let (file, temporary) = Temporary::create(&folder)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    write(&mut out).map_err(|e| e.in_file(path))?;
    let failed = |action| move |e| Error::io(action, Some(path), e);
    let file = out.into_inner().map_err(|e| failed("cannot write")(e.into_error()))?;
    if let Some(meta) = existing {
        file.set_permissions(meta.permissions()).map_err(failed("cannot set permissions of"))?;
    }
    file.sync_all().map_err(failed("cannot synchronise"))?;
    drop(file);
    temporary.rename(&target).map_err(failed("cannot replace"))?;
    sync_folder(&folder).map_err(failed("saved, but cannot synchronise the folder of"))
}

/// A file that goes away unless it is renamed.
struct Temporary(Option<PathBuf>);

impl Temporary {
    fn create(folder: &Path) -> Result<(File, Self)> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!(".hesper-{}-{count}.tmp", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok((file, Temporary(Some(path)))),
                // Left by a process that was killed.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::io("cannot create a file in", Some(folder), e)),
            }
        }
    }

    fn rename(mut self, target: &Path) -> io::Result<()> {
        if let Some(path) = &self.0 {
            fs::rename(path, target)?;
        }
        self.0 = None;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // The error that led here matters more than one of cleaning up.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some file systems cannot synchronise folders, some folders cannot be opened for reading.
        Err(e) if matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied) => Ok(()),
        other => other,
    }
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

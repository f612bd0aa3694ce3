//! Where a file's bytes come from: a mapped file, a file read by position, owned bytes, or a reader.
//!
//! # A file that changes while it is mapped
//!
//! | what happens to the file | what the source gives |
//! |---|---|
//! | renamed over, unlinked | the old bytes: the mapping keeps the old file alive |
//! | truncated | [`Error::Damaged`] from [`Source::check`]; the bytes that are gone read as zeros meanwhile |
//! | rewritten in place | [`Error::Damaged`], as soon as the file's modification time or length differs |
//! | a disk error under the mapping | as for truncation |
//!
//! Reading a mapping is a plain memory access and cannot answer with an error. So the user of mapped bytes
//! *uses them first and asks afterwards*: [`Source::check`] for the same range, or [`Source::scan`], which
//! does both. [`Source::read_into`] copies and checks by itself.
//!
//! **What cannot be detected**: bytes that another process changes in place without a visible change of
//! modification time (within the clock tick of the file system, through a shared mapping that was not yet
//! flushed, or with the time set back). Files that are replaced by rename, as this crate's writers do, have
//! no such window.
//!
//! Systems other than Unix, and processes with more than [`MAX_MAPPINGS`] live mappings, read by position.

#[cfg(unix)]
#[allow(unsafe_code)]
mod map;
#[allow(unsafe_code)]
mod shared;
#[cfg(unix)]
#[allow(unsafe_code)]
mod sigbus;

use std::borrow::Cow;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::error::{Error, Result};

pub use shared::{SharedBytes, SharedSource};

/// Mappings that may be alive at once; further files are read by position.
pub const MAX_MAPPINGS: usize = 4096;

/// Bytes by position. Cheap to clone; clones share the mapping, which lives as long as any of them.
///
/// ```
/// use hesper_files::Source;
/// let source = Source::from_bytes(vec![1u8, 2, 3]);
/// assert_eq!(source.bytes(1..3)?.as_ref(), [2, 3]);
/// assert!(source.bytes(1..4).is_err());
/// # Ok::<(), hesper_files::Error>(())
/// ```
#[derive(Clone)]
pub struct Source(Arc<Inner>);

struct Inner {
    backing: Backing,
    len: u64,
    path: Option<PathBuf>,
    identity: Option<Identity>,
}

enum Backing {
    #[cfg(unix)]
    Mapped(map::Mapping, File),
    File(File),
    Bytes(Vec<u8>),
    Reader(Mutex<Box<dyn ReadSeek>>),
}

trait ReadSeek: Read + Seek + Send {}
impl<T: Read + Seek + Send> ReadSeek for T {}

/// Which file, and which state of it. On systems without inodes `device` and `inode` are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The file system's device.
    pub device: u64,
    /// The file's number on it.
    pub inode: u64,
    /// When it was last modified.
    pub modified: Option<SystemTime>,
    /// Its length in bytes.
    pub len: u64,
}

/// The state of the file, compared to when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// The path still names the file that was opened, unchanged as far as can be seen.
    Unchanged,
    /// The path names another file now. The source still gives the old bytes.
    Replaced,
    /// The path names nothing now. The source still gives the old bytes.
    Deleted,
    /// The open file was truncated or rewritten in place. [`Source::check`] fails.
    Damaged,
}

impl Identity {
    fn of(meta: &Metadata) -> Self {
        #[cfg(unix)]
        let (device, inode) = {
            use std::os::unix::fs::MetadataExt;
            (meta.dev(), meta.ino())
        };
        #[cfg(not(unix))]
        let (device, inode) = (0, 0);
        Identity { device, inode, modified: meta.modified().ok(), len: meta.len() }
    }
}

impl Source {
    /// Opens a file, mapped where the system can, and reads nothing yet.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (file, identity) = open_regular(path)?;
        #[cfg(unix)]
        if let Some(mapping) = map::Mapping::new(&file, identity.len) {
            return Ok(Self::with(Backing::Mapped(mapping, file), identity.len, Some(path), Some(identity)));
        }
        Ok(Self::with(Backing::File(file), identity.len, Some(path), Some(identity)))
    }

    /// Opens a file that is read by position and never mapped.
    pub fn open_unmapped(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (file, identity) = open_regular(path)?;
        Ok(Self::with(Backing::File(file), identity.len, Some(path), Some(identity)))
    }

    /// Takes bytes that are in memory.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let len = bytes.len() as u64;
        Self::with(Backing::Bytes(bytes), len, None, None)
    }

    /// Takes a reader. Its length is asked once, now; accesses are serialised.
    pub fn from_reader(mut reader: impl Read + Seek + Send + 'static) -> Result<Self> {
        let len = reader.seek(SeekFrom::End(0)).map_err(|e| Error::io("cannot seek in reader", None, e))?;
        Ok(Self::with(Backing::Reader(Mutex::new(Box::new(reader))), len, None, None))
    }

    fn with(backing: Backing, len: u64, path: Option<&Path>, identity: Option<Identity>) -> Self {
        Source(Arc::new(Inner { backing, len, path: path.map(Path::to_path_buf), identity }))
    }

    /// Bytes in the source when it was opened.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The path it was opened by.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Which file it was when it was opened; `None` for bytes and readers.
    pub fn identity(&self) -> Option<Identity> {
        self.0.identity
    }

    /// The bytes of a range: in place when mapped or owned, else copied.
    ///
    /// Bytes of a mapping must be followed by [`check`](Self::check) once they were used.
    pub fn bytes(&self, range: Range<u64>) -> Result<Cow<'_, [u8]>> {
        if let Some(slice) = self.in_place(range.clone())? {
            return Ok(Cow::Borrowed(slice));
        }
        let len = usize::try_from(range.end - range.start).map_err(|_| self.out_of_range(&range))?;
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(len)
            .map_err(|_| Error::io("cannot hold bytes of", self.path(), io::ErrorKind::OutOfMemory.into()))?;
        bytes.resize(len, 0);
        self.read_into(range.start, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    /// The bytes of a range in place, or `None` where they would have to be copied.
    pub fn in_place(&self, range: Range<u64>) -> Result<Option<&[u8]>> {
        self.require(&range)?;
        let all: &[u8] = match &self.0.backing {
            #[cfg(unix)]
            Backing::Mapped(mapping, _) => mapping.as_slice(),
            Backing::Bytes(bytes) => bytes,
            Backing::File(_) | Backing::Reader(_) => return Ok(None),
        };
        let slice = usize::try_from(range.start)
            .ok()
            .zip(usize::try_from(range.end).ok())
            .and_then(|(start, end)| all.get(start..end));
        slice.map(Some).ok_or_else(|| self.out_of_range(&range))
    }

    /// Uses the bytes of a range, then checks that the file has not changed.
    pub fn scan<R>(&self, range: Range<u64>, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let bytes = self.bytes(range.clone())?;
        let result = f(&bytes);
        self.check(range)?;
        Ok(result)
    }

    /// Copies bytes out, from `start` on, and checks them.
    pub fn read_into(&self, start: u64, out: &mut [u8]) -> Result<()> {
        let range = start..start.saturating_add(out.len() as u64);
        self.require(&range)?;
        match &self.0.backing {
            #[cfg(unix)]
            Backing::Mapped(_, file) => self.read_file(file, &range, out),
            Backing::File(file) => self.read_file(file, &range, out),
            Backing::Bytes(_) => {
                let bytes = self.in_place(range.clone())?.ok_or_else(|| self.out_of_range(&range))?;
                out.copy_from_slice(bytes);
                Ok(())
            }
            Backing::Reader(reader) => {
                // A reader that panicked is positioned anew by the seek.
                let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
                let read = reader.seek(SeekFrom::Start(start)).and_then(|_| reader.read_exact(out));
                read.map_err(|e| match e.kind() {
                    io::ErrorKind::UnexpectedEof => self.damaged(&range, "the reader ends early"),
                    _ => Error::io("cannot read from reader", None, e),
                })
            }
        }
    }

    fn read_file(&self, file: &File, range: &Range<u64>, out: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            match read_at(file, &mut out[done..], range.start + done as u64) {
                Ok(0) => return Err(self.damaged(range, "the file was truncated")),
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io("cannot read", self.path(), e)),
            }
        }
        self.check_file(file, range)
    }

    /// Whether the bytes of a range are still those of the opened file. Call it after using them.
    ///
    /// Costs one `fstat` for files, nothing for memory.
    pub fn check(&self, range: Range<u64>) -> Result<()> {
        self.require(&range)?;
        match &self.0.backing {
            #[cfg(unix)]
            Backing::Mapped(mapping, file) => {
                if mapping.damaged(&range) {
                    return Err(self.damaged(&range, "the file was truncated or could not be read"));
                }
                self.check_file(file, &range)
            }
            Backing::File(file) => self.check_file(file, &range),
            Backing::Bytes(_) | Backing::Reader(_) => Ok(()),
        }
    }

    fn check_file(&self, file: &File, range: &Range<u64>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let meta = file.metadata().map_err(|e| Error::io("cannot examine", self.path(), e))?;
        if meta.len() < range.end {
            return Err(self.damaged(range, "the file was truncated"));
        }
        let now = Identity::of(&meta);
        if self.0.identity.is_some_and(|then| then.modified != now.modified || then.len != now.len) {
            return Err(self.damaged(range, "the file was modified in place"));
        }
        Ok(())
    }

    /// The state of the file at the path, compared to when it was opened.
    pub fn state(&self) -> Result<FileState> {
        let (Some(path), Some(then)) = (self.path(), self.identity()) else {
            return Ok(FileState::Unchanged);
        };
        if self.check(0..self.len()).is_err() {
            return Ok(FileState::Damaged);
        }
        match std::fs::metadata(path) {
            Ok(meta) if Identity::of(&meta) == then => Ok(FileState::Unchanged),
            Ok(_) => Ok(FileState::Replaced),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(FileState::Deleted),
            Err(e) => Err(Error::io("cannot examine", Some(path), e)),
        }
    }

    /// Hints that a range will be used soon.
    pub fn prefetch(&self, range: Range<u64>) {
        #[cfg(unix)]
        if let (Backing::Mapped(mapping, _), Ok(())) = (&self.0.backing, self.require(&range)) {
            mapping.advise(&range, libc::MADV_WILLNEED);
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Hints that a range is not used any more, so that its pages need not stay resident. They are read again
    /// from the file on the next access.
    pub fn release(&self, range: Range<u64>) {
        #[cfg(unix)]
        if let (Backing::Mapped(mapping, _), Ok(())) = (&self.0.backing, self.require(&range)) {
            mapping.advise(&range, libc::MADV_DONTNEED);
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    fn require(&self, range: &Range<u64>) -> Result<()> {
        if range.start <= range.end && range.end <= self.0.len {
            Ok(())
        } else {
            Err(self.out_of_range(range))
        }
    }

    fn out_of_range(&self, range: &Range<u64>) -> Error {
        Error::OutOfRange { start: range.start, end: range.end, len: self.0.len }
    }

    fn damaged(&self, range: &Range<u64>, reason: &'static str) -> Error {
        Error::Damaged { path: self.0.path.clone(), start: range.start, end: range.end, reason }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backing = match &self.0.backing {
            #[cfg(unix)]
            Backing::Mapped(..) => "mapped",
            Backing::File(_) => "file",
            Backing::Bytes(_) => "bytes",
            Backing::Reader(_) => "reader",
        };
        f.debug_struct("Source")
            .field("backing", &backing)
            .field("len", &self.0.len)
            .field("path", &self.0.path)
            .finish()
    }
}

fn open_regular(path: &Path) -> Result<(File, Identity)> {
    // Asked before opening, because opening a pipe would wait for its writer.
    let meta = std::fs::metadata(path).map_err(|e| Error::io("cannot open", Some(path), e))?;
    if !meta.is_file() {
        return Err(Error::NotAFile(path.to_path_buf()));
    }
    let file = File::open(path).map_err(|e| Error::io("cannot open", Some(path), e))?;
    let meta = file.metadata().map_err(|e| Error::io("cannot examine", Some(path), e))?;
    if !meta.is_file() {
        return Err(Error::NotAFile(path.to_path_buf()));
    }
    Ok((file, Identity::of(&meta)))
}

#[cfg(unix)]
fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, out, offset)
}

#[cfg(windows)]
fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, out, offset)
}

#[cfg(not(any(unix, windows)))]
fn read_at(mut file: &File, out: &mut [u8], offset: u64) -> io::Result<usize> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    file.seek(SeekFrom::Start(offset))?;
    file.read(out)
}

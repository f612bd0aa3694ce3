//! Reads many tensors at once into buffers of the caller, with several readers, progress and cancellation.
//!
//! Large tensors are split into pieces so that all readers stay busy to the end; compressed and byte-swapped
//! ones are read whole by one reader. Nothing is held besides the caller's buffers.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::tensor::{TensorFile, TensorInfo};

/// One tensor to read and where to put it. The buffer has exactly the tensor's size.
pub struct Request<'a> {
    /// The file.
    pub file: &'a TensorFile,
    /// A tensor of the file.
    pub tensor: &'a TensorInfo,
    /// Where its bytes go.
    pub into: &'a mut [u8],
}

/// How far a load has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub done: u64,
    /// Bytes to read.
    pub total: u64,
}

/// Ends a load from another thread. Clones are one token.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels the load. It returns [`Error::Cancelled`] after the pieces that are being read.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to end.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How to load.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Threads that read.
    pub readers: NonZeroUsize,
    /// Bytes that are read at a time.
    pub piece: NonZeroUsize,
}

impl Default for LoadOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        LoadOptions {
            // Readers wait more than they compute, so two cores can serve four; more than eight do not help.
            readers: NonZeroUsize::new(cores.clamp(4, 8)).unwrap_or(NonZeroUsize::MIN),
            piece: NonZeroUsize::new(8 << 20).unwrap_or(NonZeroUsize::MIN),
        }
    }
}

enum Piece<'a> {
    Whole(&'a TensorFile, &'a TensorInfo, &'a mut [u8]),
    Part(&'a TensorFile, u64, &'a mut [u8]),
}

/// Fills all buffers, or returns the first error; then the contents of the buffers are unspecified.
///
/// `progress` is called by the readers after each piece, one call at a time and with increasing values.
///
/// ```
/// use hesper_files::*;
/// # let specs = [TensorSpec::new("w", FileDtype::U8, [3])];
/// # let mut bytes = Vec::new();
/// # write::safetensors(&mut bytes, &specs, &[], &mut [&[1u8, 2, 3][..]].as_slice())?;
/// let file = TensorFile::parse(Source::from_bytes(bytes))?;
/// let tensor = file.require("w")?;
/// let mut buffer = vec![0; tensor.byte_len as usize];
/// let request = Request { file: &file, tensor, into: &mut buffer };
/// load_into(vec![request], LoadOptions::default(), &Cancel::new(), |p| assert_eq!(p.total, 3))?;
/// assert_eq!(buffer, [1, 2, 3]);
/// # Ok::<(), Error>(())
/// ```
pub fn load_into(
    requests: Vec<Request<'_>>,
    options: LoadOptions,
    cancel: &Cancel,
    progress: impl Fn(Progress) + Sync,
) -> Result<()> {
    let mut total = 0u64;
    let mut pieces = Vec::new();
    for Request { file, tensor, into } in requests {
        let given = into.len() as u64;
        if given != tensor.byte_len {
            return Err(Error::BufferSize { name: tensor.name.clone(), expected: tensor.byte_len, given });
        }
        total += given;
        match tensor.in_place() {
            None => pieces.push(Piece::Whole(file, tensor, into)),
            Some(range) => {
                let mut at = range.start;
                for part in into.chunks_mut(options.piece.get()) {
                    let len = part.len() as u64;
                    pieces.push(Piece::Part(file, at, part));
                    at += len;
                }
            }
        }
    }
    let readers = options.readers.get().min(pieces.len());
    let queue = Mutex::new(pieces.into_iter());
    let done = Mutex::new(0u64);
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let stop = AtomicBool::new(false);
    let read = || {
        while !stop.load(Ordering::Relaxed) {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(piece) = next else { return };
            let result = if cancel.is_cancelled() { Err(Error::Cancelled) } else { run(piece) };
            match result {
                Ok(len) => {
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    *done += len;
                    progress(Progress { done: *done, total });
                }
                Err(e) => {
                    stop.store(true, Ordering::Relaxed);
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                }
            }
        }
    };
    if readers <= 1 {
        read();
    } else {
        std::thread::scope(|scope| {
            for _ in 1..readers {
                // A thread that cannot be started is not an error: the others do its share.
                let _ = std::thread::Builder::new().spawn_scoped(scope, read);
            }
            read();
        });
    }
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

fn run(piece: Piece<'_>) -> Result<u64> {
    let (file, result, len) = match piece {
        Piece::Whole(file, tensor, into) => (file, file.read_into(tensor, into), into.len()),
        Piece::Part(file, at, into) => (file, file.source().read_into(at, into), into.len()),
    };
    match (result, file.source().path()) {
        (Ok(()), _) => Ok(len as u64),
        (Err(e), Some(path)) => Err(e.in_file(path)),
        (Err(e), None) => Err(e),
    }
}

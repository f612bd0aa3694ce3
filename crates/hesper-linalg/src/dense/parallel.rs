//! Parallel loops over pieces of work.

use std::sync::{Mutex, PoisonError};

use hesper_compute::Par;

use crate::Failure;

/// Elements of a vector per task: fewer for long vectors, where each element costs more.
pub(super) fn grain(length: usize) -> usize {
    (8192 / length.max(1)).max(4)
}

/// Calls `f` with each piece.
pub(super) fn each<P: Send>(par: &dyn Par, pieces: impl Iterator<Item = P>, f: impl Fn(P) + Sync) {
    let pieces: Vec<Mutex<Option<P>>> = pieces.map(|piece| Mutex::new(Some(piece))).collect();
    par.run(pieces.len(), &|at| {
        let piece = pieces[at].lock().unwrap_or_else(PoisonError::into_inner).take();
        piece.into_iter().for_each(&f);
    });
}

/// Calls `f` with each piece; returns an error if any call does.
pub(super) fn try_each<P: Send>(
    par: &dyn Par,
    pieces: impl Iterator<Item = P>,
    f: impl Fn(P) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let failed = Mutex::new(Ok(()));
    each(par, pieces, |piece| {
        if let Err(failure) = f(piece) {
            *failed.lock().unwrap_or_else(PoisonError::into_inner) = Err(failure);
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

//! How kernels use more than one core: an injected executor, never a thread pool of their own.
//!
//! A kernel divides its work into `n` independent tasks and passes them to a [`Par`]. [`Par::threads`] may
//! change how work is grouped, but never the order of a sum: results do not depend on the number of threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use hesper_types::Caches;

use crate::simd::Simd;

/// Runs independent tasks on any number of threads.
pub trait Par: Sync {
    /// How many tasks run at the same time; a hint for the size of tasks.
    fn threads(&self) -> usize;

    /// Calls `f(0)`, ..., `f(n - 1)`, each once, in any order and on any thread, and returns when all are
    /// done.
    fn run(&self, n: usize, f: &(dyn Fn(usize) + Sync));

    /// The widest instructions that a kernel may use: those of the machine, unless an executor lowers them.
    fn simd(&self) -> Simd {
        Simd::detect()
    }

    /// The caches that blocks of work should fit.
    fn caches(&self) -> Caches {
        Caches::detect()
    }
}

/// Runs every task on the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Par for Serial {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, n: usize, f: &(dyn Fn(usize) + Sync)) {
        (0..n).for_each(f);
    }
}

/// Spawns scoped threads for every call: for tests and benchmarks, too slow for a device.
#[derive(Clone, Copy, Debug)]
pub struct Threads(pub usize);

impl Par for Threads {
    fn threads(&self) -> usize {
        self.0.max(1)
    }

    fn run(&self, n: usize, f: &(dyn Fn(usize) + Sync)) {
        let helpers = self.0.min(n).saturating_sub(1);
        if helpers == 0 {
            return (0..n).for_each(f);
        }
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= n {
                    break;
                }
                f(i);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(work);
            }
            work();
        });
    }
}

/// An executor with a lower SIMD level, so that tests reach every path on one machine.
#[derive(Clone, Copy, Debug)]
pub struct AtLevel<P>(pub P, pub Simd);

impl<P: Par> Par for AtLevel<P> {
    fn threads(&self) -> usize {
        self.0.threads()
    }

    fn run(&self, n: usize, f: &(dyn Fn(usize) + Sync)) {
        self.0.run(n, f);
    }

    fn simd(&self) -> Simd {
        self.1
    }

    fn caches(&self) -> Caches {
        self.0.caches()
    }
}

/// Splits `0..len` into chunks of `chunk` and runs `f(start, end)` for each of them.
#[inline(always)]
pub(crate) fn chunks(par: &dyn Par, len: usize, chunk: usize, f: impl Fn(usize, usize) + Sync) {
    each_chunk(par, len, chunk, &f);
}

/// [`chunks`], compiled once for all callers.
fn each_chunk(par: &dyn Par, len: usize, chunk: usize, f: &(dyn Fn(usize, usize) + Sync)) {
    let chunk = chunk.max(1);
    let n = len.div_ceil(chunk);
    if n <= 1 {
        if len > 0 {
            f(0, len);
        }
        return;
    }
    par.run(n, &|i| f(i * chunk, ((i + 1) * chunk).min(len)));
}

/// Calls `f` with the number and the elements of each piece of `len` elements; the last may be shorter.
///
/// ```
/// use hesper_compute::{Threads, pieces_mut};
/// let mut all = [0; 5];
/// pieces_mut(&Threads(2), &mut all, 2, &|piece, elements| elements.fill(piece));
/// assert_eq!(all, [0, 0, 1, 1, 2]);
/// ```
pub fn pieces_mut<T: Send>(par: &dyn Par, all: &mut [T], len: usize, f: &(dyn Fn(usize, &mut [T]) + Sync)) {
    let (len, count) = (len.max(1), all.len());
    if count <= len {
        if count > 0 {
            f(0, all);
        }
        return;
    }
    let shared = Shared::new(all.as_mut_ptr());
    par.run(count.div_ceil(len), &|piece| {
        let first = piece * len;
        // SAFETY: pieces lie in the slice and are disjoint, and each is the task's own.
        f(piece, unsafe { shared.slice(first, len.min(count - first)) });
    });
}

/// A chunk length that gives every thread a few tasks, but none smaller than `least`.
pub(crate) fn grain(par: &dyn Par, len: usize, least: usize) -> usize {
    let threads = par.threads();
    if threads <= 1 {
        return len.max(1);
    }
    len.div_ceil(threads * 4).max(least).max(1)
}

/// A pointer that tasks share; each writes its own part.
pub(crate) struct Shared<T>(*mut T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

// SAFETY: the code that dereferences the pointer promises that tasks touch disjoint elements.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(p: *mut T) -> Self {
        Self(p)
    }

    pub(crate) fn get(self) -> *mut T {
        self.0
    }

    /// # Safety
    /// The range lies in the allocation, and no other task touches it meanwhile.
    #[allow(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    pub(crate) unsafe fn slice<'a>(self, start: usize, len: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) }
    }
}

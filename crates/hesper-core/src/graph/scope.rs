//! Scopes: while a transformation runs a function, arrays that depend on its sources keep their ops and
//! inputs, evaluated or not.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::Array;

/// One run of a transformed function.
#[derive(Debug)]
pub(crate) struct Scope {
    /// Scopes nest: an outer one has a smaller number.
    serial: u64,
    open: AtomicBool,
    /// Whether the graph will be used with other shapes.
    free: bool,
    /// Whether ops record the function that they were called as.
    noted: bool,
}

impl Scope {
    /// Whether the transformation is still running.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }
}

/// An open scope; it is closed on drop.
pub(crate) struct Opened(Arc<Scope>);

/// How many scopes of all threads are open.
static OPEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How many scopes of this thread note what ops were called as.
    static NOTED: Cell<usize> = const { Cell::new(0) };
}

/// Whether ops of this thread record the function that they were called as: the graph will be replayed with
/// other shapes, or exported.
pub(crate) fn is_noted() -> bool {
    NOTED.get() > 0
}

/// Whether a transformation runs, on any thread.
pub(crate) fn any_open() -> bool {
    OPEN.load(Ordering::Acquire) > 0
}

impl Opened {
    pub(crate) fn new() -> Self {
        Opened::with(false)
    }

    /// A scope whose graph will be used with other shapes if they are `free`.
    pub(crate) fn with(free: bool) -> Self {
        Opened::noting(free, free)
    }

    /// A scope of a graph that is exported.
    pub(crate) fn exported(free: bool) -> Self {
        Opened::noting(free, true)
    }

    fn noting(free: bool, noted: bool) -> Self {
        static SERIALS: AtomicU64 = AtomicU64::new(1);
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        OPEN.fetch_add(1, Ordering::AcqRel);
        NOTED.set(NOTED.get() + usize::from(noted));
        Opened(Arc::new(Scope { serial, open: AtomicBool::new(true), free, noted }))
    }

    pub(crate) fn scope(&self) -> &Arc<Scope> {
        &self.0
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.open.store(false, Ordering::Release);
        OPEN.fetch_sub(1, Ordering::AcqRel);
        NOTED.set(NOTED.get().saturating_sub(usize::from(self.0.noted)));
    }
}

/// Whether an array is part of a graph that will be used with other shapes.
pub(crate) fn is_free(array: &Array) -> bool {
    array.0.scope.as_ref().is_some_and(|scope| scope.free && scope.is_open())
}

/// Whether an array is part of a graph that is exported with the shapes that it has.
pub fn is_exported(array: &Array) -> bool {
    array.0.scope.as_ref().is_some_and(|scope| scope.noted && !scope.free && scope.is_open())
}

/// Whether a transformation that is still running varies one of the arrays.
///
/// ```
/// use hesper::{array, transform};
/// let x = array![1.0, 2.0];
/// let mapped = transform::vmap(
///     |x| {
///         assert!(transform::is_varied(x));
///         Ok(x.to_vec())
///     },
///     &[Some(0)],
///     &[Some(0)],
/// );
/// mapped(&[x.clone()])?;
/// assert!(!transform::is_varied(&[x]));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn is_varied(arrays: &[Array]) -> bool {
    outermost(arrays).is_some()
}

/// The outermost open scope among arrays: an array that depends on several lives as long as that one.
pub(crate) fn outermost(arrays: &[Array]) -> Option<Arc<Scope>> {
    let open = arrays.iter().filter_map(|array| array.0.scope.as_ref()).filter(|scope| scope.is_open());
    open.min_by_key(|scope| scope.serial).cloned()
}

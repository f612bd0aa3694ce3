//! Native commands: closures that run as part of a stream.
//!
//! A closure gets the views it bound, as slices whose lifetime ends with the command. It may not wait:
//! host guards and waits inside of one are refused, since they could wait for this very command.

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use bytemuck::Pod;

use crate::command::{Access, Binding};
use crate::error::{Error, FaultKind, Result};

/// The result of a native command.
pub type NativeResult = std::result::Result<(), NativeError>;

/// A native command's closure.
pub type NativeFn = Box<dyn FnOnce(&mut Native<'_, '_>) -> NativeResult + Send>;

/// Why a native command failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct NativeError {
    /// The kind of failure.
    pub kind: FaultKind,
    /// A description.
    pub message: String,
    /// The error that made the command fail, if it was one.
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl NativeError {
    /// The failure of a command because of another error, which becomes the source of the fault.
    pub fn caused_by(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        NativeError { kind: FaultKind::Failed, message: error.to_string(), source: Some(Arc::new(error)) }
    }
}

impl From<String> for NativeError {
    fn from(message: String) -> Self {
        NativeError { kind: FaultKind::Failed, message, source: None }
    }
}

impl From<&str> for NativeError {
    fn from(message: &str) -> Self {
        message.to_string().into()
    }
}

/// One bound range of memory inside of a native command.
#[derive(Debug)]
pub struct View<'a> {
    address: *mut u8,
    len: usize,
    access: Access,
    lifetime: PhantomData<&'a mut [u8]>,
}

// SAFETY: a view is an exclusive (or, for reads, shared) borrow of plain bytes.
unsafe impl Send for View<'_> {}
// SAFETY: as above; `&View` gives only shared access.
unsafe impl Sync for View<'_> {}

impl<'a> View<'a> {
    /// # Safety
    /// The bytes of `binding` are valid for as long as the view lives. A writing view has exclusive access;
    /// while a reading view lives, nothing writes them.
    pub(crate) unsafe fn of(binding: &'a Binding) -> Self {
        let address = match binding.memory.host {
            // SAFETY: the binding's range lies inside of its memory.
            Some(host) => unsafe { host.as_ptr().add(binding.offset) },
            None => std::ptr::null_mut(),
        };
        View { address, len: binding.len, access: binding.access, lifetime: PhantomData }
    }

    /// A view of a binding whose memory the simulator has at `address`.
    ///
    /// # Safety
    /// As for [`of`](View::of).
    #[cfg(feature = "sim")]
    pub(crate) unsafe fn at(binding: &'a Binding, address: Option<std::ptr::NonNull<u8>>) -> Self {
        // SAFETY: the binding's range lies inside of its memory.
        let address = address.map_or(std::ptr::null_mut(), |at| unsafe { at.as_ptr().add(binding.offset) });
        View { address, len: binding.len, access: binding.access, lifetime: PhantomData }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How it was bound.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The bytes. An error if the view was bound to write only, or if the memory has no host address.
    pub fn bytes(&self) -> std::result::Result<&[u8], NativeError> {
        if !self.access.reads() {
            return Err("cannot read a view that was bound to write".into());
        }
        if self.address.is_null() {
            return Err("cannot read device memory from the host: the view has no host address".into());
        }
        // SAFETY: by `of`, the bytes are valid and nothing writes them while `self` is borrowed.
        Ok(unsafe { std::slice::from_raw_parts(self.address, self.len) })
    }

    /// The bytes, mutable. An error if the view was bound to read, or if the memory has no host address.
    pub fn bytes_mut(&mut self) -> std::result::Result<&mut [u8], NativeError> {
        if !self.access.writes() {
            return Err("cannot write a view that was bound to read".into());
        }
        if self.address.is_null() {
            return Err("cannot write device memory from the host: the view has no host address".into());
        }
        // SAFETY: by `of`, a writing view is exclusive for as long as it lives.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.address, self.len) })
    }

    /// The bytes as values of one type. An error if size or alignment do not fit.
    pub fn as_slice<T: Pod>(&self) -> std::result::Result<&[T], NativeError> {
        bytemuck::try_cast_slice(self.bytes()?).map_err(|why| misfit::<T>(self.len, why))
    }

    /// The bytes as values of one type, mutable.
    pub fn as_mut_slice<T: Pod>(&mut self) -> std::result::Result<&mut [T], NativeError> {
        let len = self.len;
        bytemuck::try_cast_slice_mut(self.bytes_mut()?).map_err(|why| misfit::<T>(len, why))
    }
}

fn misfit<T>(len: usize, why: bytemuck::PodCastError) -> NativeError {
    format!("cannot view {len} bytes as a slice of {}: {why}", std::any::type_name::<T>()).into()
}

/// The argument of a native command's closure: views, borrowed for the duration of the command (`'v`), of
/// memory that its submission holds (`'b`).
pub struct Native<'v, 'b> {
    views: &'v mut [View<'b>],
    bindings: &'b [Binding],
    context: Option<&'v dyn Any>,
}

impl<'v, 'b> Native<'v, 'b> {
    pub(crate) fn new(
        views: &'v mut [View<'b>],
        bindings: &'b [Binding],
        context: Option<&'v dyn Any>,
    ) -> Self {
        Native { views, bindings, context }
    }

    /// The views in binding order: `let [x, y, out] = native.views() else { .. }`.
    pub fn views(&mut self) -> &mut [View<'b>] {
        self.views
    }

    /// The views as an array; an error states a mismatch of their number.
    pub fn take<const N: usize>(&mut self) -> std::result::Result<&mut [View<'b>; N], NativeError> {
        let bound = self.views.len();
        <&mut [View<'b>; N]>::try_from(&mut *self.views)
            .map_err(|_| format!("the command binds {bound} ranges, its closure expects {N}").into())
    }

    /// The device's identifiers of the bound memory, for crates that call a device's libraries.
    pub fn bindings(&self) -> &'b [Binding] {
        self.bindings
    }

    /// The device's own object for native commands, such as a stream of its library.
    pub fn context(&self) -> Option<&'v dyn Any> {
        self.context
    }
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` with the thread marked as inside of a native command.
pub(crate) fn enter<R>(f: impl FnOnce() -> R) -> R {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            let _ = INSIDE.try_with(|inside| inside.set(self.0));
        }
    }
    let _reset = Reset(INSIDE.try_with(|inside| inside.replace(true)).unwrap_or(false));
    f()
}

/// Whether the current thread is inside of a native command.
pub(crate) fn inside() -> bool {
    INSIDE.try_with(Cell::get).unwrap_or(false)
}

/// Refuses `call` inside of a native command.
pub(crate) fn refuse_inside(call: &'static str) -> Result<()> {
    if inside() { Err(Error::InsideCommand { call }) } else { Ok(()) }
}

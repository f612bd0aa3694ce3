//! Native commands: closures that run as part of a stream.
//!
//! A closure gets exactly the views it bound, as slices whose lifetime ends with the command. It may
//! not wait: host guards and waits inside of one are refused with a typed error, since the work they
//! wait for could be this very command.

use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;

use bytemuck::Pod;

use crate::error::{Error, FaultKind, Result};
use crate::work::{Access, Binding};

/// What a native command gives back.
pub type NativeResult = std::result::Result<(), NativeError>;

/// A native command's closure.
pub type NativeFn = Box<dyn FnOnce(&mut Native<'_, '_>) -> NativeResult + Send>;

/// Why a native command failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct NativeError {
    /// What kind of failure it is.
    pub kind: FaultKind,
    /// Words for people.
    pub message: String,
}

impl From<String> for NativeError {
    fn from(message: String) -> Self {
        NativeError { kind: FaultKind::Failed, message }
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
    /// The bytes of `binding` are valid for as long as the view lives; if it writes, nobody else
    /// accesses them meanwhile, and if it reads, nobody writes them.
    pub(crate) unsafe fn of(binding: &'a Binding) -> Self {
        let address = match binding.memory.host {
            // SAFETY: the binding's range lies inside of its memory.
            Some(host) => unsafe { host.as_ptr().add(binding.offset) },
            None => std::ptr::null_mut(),
        };
        View { address, len: binding.len, access: binding.access, lifetime: PhantomData }
    }

    /// A view of a binding whose memory the simulator reaches at `address`.
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

    /// The bytes. An error for a view that was bound to write only, and if the memory is not the host's.
    pub fn bytes(&self) -> std::result::Result<&[u8], NativeError> {
        if !self.access.reads() {
            return Err("a view that was bound to write cannot be read".into());
        }
        if self.address.is_null() {
            return Err("this memory cannot be seen by the host".into());
        }
        // SAFETY: by `of`, the bytes are valid and nobody writes them while `self` is borrowed.
        Ok(unsafe { std::slice::from_raw_parts(self.address, self.len) })
    }

    /// The bytes, to write. An error for a view that was bound to read.
    pub fn bytes_mut(&mut self) -> std::result::Result<&mut [u8], NativeError> {
        if !self.access.writes() {
            return Err("a view that was bound to read cannot be written".into());
        }
        if self.address.is_null() {
            return Err("this memory cannot be seen by the host".into());
        }
        // SAFETY: by `of`, a writing view is exclusive for as long as it lives.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.address, self.len) })
    }

    /// The bytes as values of one type. An error if size or alignment do not fit.
    pub fn as_slice<T: Pod>(&self) -> std::result::Result<&[T], NativeError> {
        bytemuck::try_cast_slice(self.bytes()?).map_err(|why| misfit::<T>(self.len, why))
    }

    /// The bytes as values of one type, to write.
    pub fn as_mut_slice<T: Pod>(&mut self) -> std::result::Result<&mut [T], NativeError> {
        let len = self.len;
        bytemuck::try_cast_slice_mut(self.bytes_mut()?).map_err(|why| misfit::<T>(len, why))
    }
}

fn misfit<T>(len: usize, why: bytemuck::PodCastError) -> NativeError {
    format!("a view of {len} bytes is no slice of {}: {why}", std::any::type_name::<T>()).into()
}

/// What a native command's closure gets: the views, borrowed for the command's time (`'v`), of what
/// its submission holds (`'b`).
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

    /// The views as an array; an error names a mismatch.
    pub fn take<const N: usize>(&mut self) -> std::result::Result<&mut [View<'b>; N], NativeError> {
        let bound = self.views.len();
        <&mut [View<'b>; N]>::try_from(&mut *self.views)
            .map_err(|_| format!("the command binds {bound} ranges, its closure expects {N}").into())
    }

    /// The device's own names of what is bound, for crates that call a device's libraries.
    pub fn bindings(&self) -> &'b [Binding] {
        self.bindings
    }

    /// What the device hands to its native commands (a stream of its library, say).
    pub fn context(&self) -> Option<&'v dyn Any> {
        self.context
    }
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` marked as the inside of a native command.
pub(crate) fn enter<R>(f: impl FnOnce() -> R) -> R {
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            INSIDE.with(|inside| inside.set(self.0));
        }
    }
    let _reset = Reset(INSIDE.with(|inside| inside.replace(true)));
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

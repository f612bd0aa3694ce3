//! The addresses of an access along a row, and the staging area for lanes that machine code cannot access
//! directly: ends of rows, strided lanes, and rows that are partly out of bounds.

use crate::exec::memory::inside;

/// An access along a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowAccess {
    /// The buffer.
    pub ptr: *mut u8,
    pub len: u64,
    /// Offset of the row's first value in bytes, and the distance of neighbouring values.
    pub offset: i64,
    pub stride: i64,
    /// Bytes of the whole value; offset of the component in it, and its bytes.
    pub total: u64,
    pub within: u64,
    pub size: u8,
    /// Machine code loads and stores both components of the value together.
    pub paired: bool,
}

impl RowAccess {
    /// Offset of a lane's value.
    fn at(&self, lane: u64) -> i64 {
        self.offset.wrapping_add(self.stride.wrapping_mul(lane as i64))
    }

    /// Whether the values of these lanes lie in the buffer: offsets are linear, so it suffices to check both
    /// ends.
    pub fn holds(&self, first: u64, n: u64) -> bool {
        let end = |lane: u64| {
            let by = i128::from(self.stride) * i128::from(lane) + i128::from(self.offset);
            i64::try_from(by).is_ok_and(|at| inside(at, self.total, self.len))
        };
        n == 0 || (end(first) && end(first + n - 1))
    }

    /// Whether lanes are contiguous.
    pub fn is_contiguous(&self) -> bool {
        let size = if self.paired { self.total } else { u64::from(self.size) };
        self.stride == size as i64 && self.total == size
    }

    /// Whether a row of lanes is contiguous and in bounds.
    pub fn is_direct(&self, lanes: u64) -> bool {
        let end = |start: u64| lanes.checked_mul(self.total)?.checked_add(start);
        let ends = u64::try_from(self.offset).ok().and_then(end);
        self.is_contiguous() && ends.is_some_and(|end| end <= self.len)
    }

    /// Bytes of a lane in the staging area.
    pub fn staged_size(&self) -> usize {
        if self.paired { self.total as usize } else { self.size as usize }
    }

    /// The address of a lane's component.
    pub fn address(&self, lane: u64) -> *mut u8 {
        self.ptr.wrapping_offset(self.at(lane) as isize).wrapping_add(self.within as usize)
    }

    /// Whether two accesses touch the same bytes in the same lane only, or never.
    pub fn cannot_conflict(&self, other: &RowAccess, lanes: u64) -> bool {
        if self.offset == other.offset && self.stride == other.stride {
            return self.stride.unsigned_abs() >= self.total.max(other.total);
        }
        let range = |p: &RowAccess| {
            let a = i128::from(p.offset);
            let b = a + i128::from(p.stride) * i128::from(lanes.max(1) - 1);
            (a.min(b), a.max(b) + i128::from(p.total))
        };
        let (a, b) = (range(self), range(other));
        a.1 <= b.0 || b.1 <= a.0
    }

    /// Copies lanes from the buffer to `to`, contiguously; lanes out of bounds read zero.
    ///
    /// # Safety
    ///
    /// `to` has room for `n` lanes, and the buffer is readable.
    pub unsafe fn gather(&self, first: u64, n: u64, to: *mut u8) {
        let whole = self.holds(first, n);
        if whole && self.is_contiguous() {
            // SAFETY: the lanes lie in the buffer, one after another.
            unsafe {
                std::ptr::copy_nonoverlapping(self.address(first), to, n as usize * self.staged_size())
            };
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            match self.staged_size() {
                1 => self.gather_as::<u8>(first, n, whole, to),
                2 => self.gather_as::<u16>(first, n, whole, to),
                4 => self.gather_as::<u32>(first, n, whole, to),
                _ => self.gather_as::<u64>(first, n, whole, to),
            }
        }
    }

    unsafe fn gather_as<T: Copy + Default>(&self, first: u64, n: u64, whole: bool, to: *mut u8) {
        let to: *mut T = to.cast();
        let mut from = self.address(first);
        for i in 0..n {
            let mut value = T::default();
            if whole || inside(self.at(first + i), self.total, self.len) {
                // SAFETY: the value lies in the buffer.
                value = unsafe { from.cast::<T>().read_unaligned() };
            }
            // SAFETY: one of the `n` lanes.
            unsafe { to.add(i as usize).write_unaligned(value) };
            from = from.wrapping_offset(self.stride as isize);
        }
    }

    /// Copies contiguous lanes at `from` to the buffer, if in bounds; gives the offset of the first that is
    /// not.
    ///
    /// # Safety
    ///
    /// `from` holds `n` lanes, and the buffer is writable.
    pub unsafe fn scatter(&self, first: u64, n: u64, from: *const u8) -> Option<i64> {
        let whole = self.holds(first, n);
        if whole && self.is_contiguous() {
            // SAFETY: the lanes lie in the buffer, one after another.
            unsafe {
                std::ptr::copy_nonoverlapping(from, self.address(first), n as usize * self.staged_size())
            };
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe {
            match self.staged_size() {
                1 => self.scatter_as::<u8>(first, n, whole, from),
                2 => self.scatter_as::<u16>(first, n, whole, from),
                4 => self.scatter_as::<u32>(first, n, whole, from),
                _ => self.scatter_as::<u64>(first, n, whole, from),
            }
        }
    }

    unsafe fn scatter_as<T: Copy>(&self, first: u64, n: u64, whole: bool, from: *const u8) -> Option<i64> {
        let from: *const T = from.cast();
        let mut to = self.address(first);
        let mut dropped = None;
        for i in 0..n {
            if whole || inside(self.at(first + i), self.total, self.len) {
                // SAFETY: one of the `n` lanes; the value lies in the buffer.
                unsafe { to.cast::<T>().write_unaligned(from.add(i as usize).read_unaligned()) };
            } else {
                dropped = dropped.or(Some(self.at(first + i)));
            }
            to = to.wrapping_offset(self.stride as isize);
        }
        dropped
    }
}

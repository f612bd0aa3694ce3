//! The SIGBUS handler that lets mappings survive truncation.
//!
//! Touching a page that its file has lost raises SIGBUS in the touching thread. The handler looks the address
//! up in a fixed table of our mappings; if it is ours it marks the mapping as damaged, puts a zero page in
//! place and returns, so that the access completes. Any other fault goes to the handler that was there
//! before, or to the default action.
//!
//! All that the handler uses is async-signal-safe: atomics in a static table, `mmap`, `sigaction`, `raise`.
//! It takes no lock and allocates nothing.
//!
//! The handler is installed once, at the first mapping. A handler that is installed by someone else later
//! takes precedence; it must pass on faults that it does not know, as is the custom.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::MAX_MAPPINGS;

/// One mapping. `version` is odd while the slot changes hands, so that the handler, which cannot lock, never
/// combines the start of one mapping with the end of another.
struct Slot {
    version: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    /// Damaged addresses, as one range; `usize::MAX..0` when there are none.
    damage_start: AtomicUsize,
    damage_end: AtomicUsize,
}

impl Slot {
    const fn new() -> Self {
        Slot {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            damage_start: AtomicUsize::new(usize::MAX),
            damage_end: AtomicUsize::new(0),
        }
    }

    fn set(&self, start: usize, end: usize) {
        self.version.fetch_add(1, SeqCst);
        self.start.store(start, SeqCst);
        self.end.store(end, SeqCst);
        self.damage_start.store(usize::MAX, SeqCst);
        self.damage_end.store(0, SeqCst);
        self.version.fetch_add(1, SeqCst);
    }

    /// The mapping, unless the slot is changing hands (then it is not the one that an access is in).
    fn range(&self) -> Option<Range<usize>> {
        let before = self.version.load(SeqCst);
        let range = self.start.load(SeqCst)..self.end.load(SeqCst);
        (before.is_multiple_of(2) && before == self.version.load(SeqCst)).then_some(range)
    }
}

static SLOTS: [Slot; MAX_MAPPINGS] = [const { Slot::new() }; MAX_MAPPINGS];
/// Slots `0..USED` have been in use at some time.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Slots below `USED` that are free again. Only registering threads look here.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// The action that ours replaced. Leaked: the handler may run at any time until the process ends.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// A mapping's place in the table; given back on drop.
pub struct Registration(usize);

/// Enters a mapping; `None` when the table is full.
pub fn register(start: usize, len: usize) -> Option<Registration> {
    let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let index = match free.pop() {
        Some(index) => index,
        None => {
            let fresh = USED.load(SeqCst);
            if fresh == MAX_MAPPINGS {
                return None;
            }
            USED.store(fresh + 1, SeqCst);
            fresh
        }
    };
    SLOTS[index].set(start, start + len);
    Some(Registration(index))
}

impl Registration {
    /// Whether a fault was caught within `range`, given in bytes from the start of the mapping.
    pub fn damaged(&self, range: &Range<u64>) -> bool {
        let slot = &SLOTS[self.0];
        let base = slot.start.load(SeqCst) as u64;
        let (start, end) = (slot.damage_start.load(SeqCst) as u64, slot.damage_end.load(SeqCst) as u64);
        start < end && base + range.start < end && start < base + range.end
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        SLOTS[self.0].set(0, 0);
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
    }
}

/// Bytes of a page.
pub fn page_size() -> usize {
    PAGE.load(SeqCst)
}

/// Installs the handler, once. False when the system refuses; then nothing may be mapped.
pub fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        // SAFETY: `sysconf` has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let Ok(page) = usize::try_from(page) else { return false };
        PAGE.store(page, SeqCst);

        // SAFETY: an all-zero `sigaction` is a valid value (default action, empty mask, no flags).
        let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a null new action only asks; `previous` is valid for writing.
        if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &mut previous) } != 0 {
            return false;
        }
        let mut ours = previous;
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_sigbus;
        ours.sa_sigaction = handler as usize;
        // On the alternate stack, because the previous handler may be the one for stack overflows.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // Known to the handler before it can run.
        PREVIOUS.store(Box::into_raw(Box::new(previous)), SeqCst);
        // SAFETY: `ours` holds a handler that lives for ever and has the three-argument form that SA_SIGINFO
        // announces.
        unsafe { libc::sigaction(libc::SIGBUS, &ours, ptr::null_mut()) == 0 }
    })
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the location is the calling thread's own and always valid.
    let errno = unsafe { *errno_location() };
    // SAFETY: the kernel passes a valid `siginfo_t` to an SA_SIGINFO handler.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if !is_access_fault(code) || !repair(address) {
        pass_on(signal, info, context, code);
    }
    // SAFETY: as above.
    unsafe { *errno_location() = errno };
}

/// Faults of an access: neither sent by a process nor reported for broken memory.
fn is_access_fault(code: libc::c_int) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return code > 0 && code != libc::BUS_MCEERR_AR && code != libc::BUS_MCEERR_AO;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    return code > 0;
}

/// Puts zeros where a page of one of our mappings is gone. False if the address is in none.
fn repair(address: usize) -> bool {
    let page_size = PAGE.load(SeqCst);
    let page = address / page_size * page_size;
    for slot in &SLOTS[..USED.load(SeqCst)] {
        let Some(range) = slot.range() else { continue };
        if !range.contains(&address) {
            continue;
        }
        // Marked before the zeros can be seen.
        slot.damage_start.fetch_min(page, SeqCst);
        slot.damage_end.fetch_max(page + page_size, SeqCst);
        if zero(page, page_size) {
            return true;
        }
        // The kernel splits a mapping for each page and has a limit of pieces: give up all the rest at once.
        slot.damage_end.fetch_max(range.end, SeqCst);
        return zero(page, range.end - page);
    }
    false
}

fn zero(start: usize, len: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_FIXED;
    // SAFETY: `start..start + len` lies in a mapping of ours that is alive: the faulting access holds a
    // borrow of it, and its slot is taken out before it is unmapped. The bytes it replaces are gone.
    let done = unsafe { libc::mmap(start as *mut libc::c_void, len, libc::PROT_READ, flags, -1, 0) };
    done != libc::MAP_FAILED
}

/// Does what would have been done without us.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void, code: libc::c_int) {
    // SAFETY: null or a leaked box, never freed or changed.
    let previous = unsafe { PREVIOUS.load(SeqCst).as_ref() };
    let sent = code <= 0;
    match previous {
        Some(p) if p.sa_sigaction == libc::SIG_IGN && sent => {}
        Some(p) if p.sa_sigaction != libc::SIG_DFL && p.sa_sigaction != libc::SIG_IGN => {
            if p.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: a handler with SA_SIGINFO has this form; it is called as the kernel would call it.
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    unsafe { std::mem::transmute(p.sa_sigaction) };
                handler(signal, info, context);
            } else {
                // SAFETY: a handler without SA_SIGINFO has this form.
                let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(p.sa_sigaction) };
                handler(signal);
            }
        }
        _ => {
            // SAFETY: an all-zero `sigaction` is the default action. The fault happens again on return and
            // takes it; a signal that was sent does not, and is raised.
            unsafe {
                let default: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &default, ptr::null_mut());
                if sent {
                    libc::raise(signal);
                }
            }
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "emscripten", target_os = "fuchsia", target_os = "l4re"))]
unsafe fn errno_location() -> *mut libc::c_int {
    // SAFETY: no preconditions.
    unsafe { libc::__errno_location() }
}

#[cfg(any(target_os = "macos", target_os = "ios", target_os = "freebsd"))]
unsafe fn errno_location() -> *mut libc::c_int {
    // SAFETY: no preconditions.
    unsafe { libc::__error() }
}

#[cfg(any(target_os = "android", target_os = "netbsd", target_os = "openbsd"))]
unsafe fn errno_location() -> *mut libc::c_int {
    // SAFETY: no preconditions.
    unsafe { libc::__errno() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    #[test]
    fn a_full_table_makes_further_files_read_by_position_until_a_slot_is_free() {
        let path = std::env::temp_dir().join(format!("hesper-files-full-{}", std::process::id()));
        std::fs::write(&path, [1, 2, 3]).unwrap();
        // Ranges at the top of the address space, where nothing faults.
        let mut taken = Vec::new();
        while let Some(slot) = register(usize::MAX - 1, 1) {
            taken.push(slot);
        }
        assert!(taken.len() > MAX_MAPPINGS / 2 && taken.len() <= MAX_MAPPINGS);
        let source = Source::open(&path).unwrap();
        assert_eq!(source.in_place(0..1).unwrap(), None);
        assert_eq!(source.bytes(1..3).unwrap().as_ref(), [2, 3]);
        taken.clear();
        assert!(Source::open(&path).unwrap().in_place(0..1).unwrap().is_some());
        std::fs::remove_file(&path).unwrap();
    }
}

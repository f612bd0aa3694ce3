//! The run-time compiler. The code of a program is its text.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::driver::{raw, store};
use super::state::state;
use crate::sys::*;

static NEXT_PROGRAM: AtomicUsize = AtomicUsize::new(1);

unsafe extern "C" fn rtc_error(_: NvrtcResult) -> *const c_char {
    c"an error of the compiler".as_ptr()
}
unsafe extern "C" fn rtc_version(major: *mut c_int, minor: *mut c_int) -> NvrtcResult {
    // SAFETY: see `store`.
    unsafe { (store(major, 13) + store(minor, 0)) as NvrtcResult }
}
unsafe extern "C" fn arch_count(to: *mut c_int) -> NvrtcResult {
    // SAFETY: see `store`.
    unsafe { store(to, 1) as NvrtcResult }
}
unsafe extern "C" fn archs(to: *mut c_int) -> NvrtcResult {
    // SAFETY: there is room for the one that was counted.
    unsafe { store(to, 90) as NvrtcResult }
}
unsafe extern "C" fn create_program(
    to: *mut NvrtcProgram,
    text: *const c_char,
    _: *const c_char,
    _: c_int,
    _: *const *const c_char,
    _: *const *const c_char,
) -> NvrtcResult {
    // SAFETY: texts passed to the compiler end with a zero byte.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    let number = NEXT_PROGRAM.fetch_add(1, Ordering::Relaxed);
    state().programs.insert(number, text);
    // SAFETY: see `store`.
    unsafe { store(to, NvrtcProgram(raw(number))) as NvrtcResult }
}
unsafe extern "C" fn destroy_program(program: *mut NvrtcProgram) -> NvrtcResult {
    // SAFETY: upheld by the caller.
    state().programs.remove(&(unsafe { (*program).0 } as usize));
    0
}
unsafe extern "C" fn add_expression(_: NvrtcProgram, _: *const c_char) -> NvrtcResult {
    0
}
unsafe extern "C" fn compile_program(_: NvrtcProgram, _: c_int, _: *const *const c_char) -> NvrtcResult {
    0
}
unsafe extern "C" fn code_size(program: NvrtcProgram, to: *mut usize) -> NvrtcResult {
    let len = state().programs.get(&(program.0 as usize)).map_or(0, String::len);
    // SAFETY: see `store`.
    unsafe { store(to, len + 1) as NvrtcResult }
}
unsafe extern "C" fn code(program: NvrtcProgram, to: *mut c_char) -> NvrtcResult {
    let text = state().programs.get(&(program.0 as usize)).cloned().unwrap_or_default();
    // SAFETY: there is room for as many bytes as `code_size` returned.
    unsafe {
        text.as_ptr().cast::<c_char>().copy_to_nonoverlapping(to, text.len());
        store(to.add(text.len()), 0) as NvrtcResult
    }
}
unsafe extern "C" fn lowered(_: NvrtcProgram, name: *const c_char, to: *mut *const c_char) -> NvrtcResult {
    // SAFETY: see `store`.
    unsafe { store(to, name) as NvrtcResult }
}

/// The table of the fake compiler.
pub(crate) fn nvrtc() -> &'static (Nvrtc, String) {
    static NVRTC: OnceLock<(Nvrtc, String)> = OnceLock::new();
    NVRTC.get_or_init(|| {
        let nvrtc = Nvrtc {
            get_error_string: rtc_error,
            version: rtc_version,
            num_supported_archs: arch_count,
            supported_archs: archs,
            create_program,
            destroy_program,
            add_name_expression: add_expression,
            compile_program,
            program_log_size: code_size,
            program_log: code,
            lowered_name: lowered,
            cubin_size: code_size,
            cubin: code,
            ptx_size: code_size,
            ptx: code,
            _library: None,
        };
        (nvrtc, "fake".into())
    })
}

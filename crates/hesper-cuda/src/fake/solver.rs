//! The functions of cuSOLVER that tests use: they set their matrices and scratch to zero, and store planned
//! codes.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::driver::{raw, store};
use super::state::{Op, state};
use crate::error::{CudaError, Result};
use crate::sys::{CUstream, Cusolver};

/// The status of a function that tests do not use.
const NOT_SUPPORTED: c_int = 9;

/// What the library does next.
#[derive(Debug, Clone, Default)]
pub(crate) struct SolverPlan {
    /// It is not installed.
    pub(crate) missing: bool,
    /// The status of the functions that factor.
    pub(crate) status: c_int,
    /// Bytes of scratch, also on the host.
    pub(crate) scratch: usize,
    /// The codes of the next matrices; zero afterwards.
    pub(crate) codes: Vec<i32>,
    /// The handles that are alive.
    pub(crate) handles: isize,
    pub(crate) stream: usize,
}

fn plan() -> MutexGuard<'static, SolverPlan> {
    static PLAN: Mutex<SolverPlan> = Mutex::new(SolverPlan {
        missing: false,
        status: 0,
        scratch: 0,
        codes: Vec::new(),
        handles: 0,
        stream: 0,
    });
    PLAN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Changes the plan, and returns it.
pub(crate) fn plan_solver(change: impl FnOnce(&mut SolverPlan)) -> SolverPlan {
    let mut plan = plan();
    change(&mut plan);
    plan.clone()
}

unsafe extern "C" fn create(to: *mut *mut c_void) -> c_int {
    let handle = state().handle();
    plan().handles += 1;
    // SAFETY: see `store`.
    unsafe { store(to, raw(handle)) as c_int }
}
unsafe extern "C" fn destroy(_: *mut c_void) -> c_int {
    plan().handles -= 1;
    0
}
unsafe extern "C" fn set_stream(_: *mut c_void, stream: *mut c_void) -> c_int {
    plan().stream = stream as usize;
    0
}

/// Queues what a call does with a matrix, its scratch and its code.
fn factor(matrix: (u64, usize), scratch: (u64, usize), info: u64) -> c_int {
    let mut plan = plan();
    if plan.status != 0 {
        return plan.status;
    }
    let code = if plan.codes.is_empty() { 0 } else { plan.codes.remove(0) };
    let (mut state, stream) = (state(), CUstream(raw(plan.stream)));
    state.push(stream, Op::Clear { to: matrix.0, len: matrix.1 });
    state.push(stream, Op::Clear { to: scratch.0, len: scratch.1 });
    state.push(stream, Op::Store { to: info, bytes: code.to_ne_bytes().to_vec() }) as c_int
}

fn size_of_type(code: c_int) -> usize {
    if code == 0 { 4 } else { 8 }
}

#[allow(clippy::too_many_arguments, reason = "the library's function")]
unsafe extern "C" fn potrf_size(
    _: *mut c_void,
    _: *mut c_void,
    _: c_int,
    _: i64,
    _: c_int,
    _: *const c_void,
    _: i64,
    _: c_int,
    device: *mut usize,
    host: *mut usize,
) -> c_int {
    let scratch = plan().scratch;
    // SAFETY: see `store`.
    unsafe { (store(device, scratch) + store(host, scratch)) as c_int }
}

#[allow(clippy::too_many_arguments, reason = "the library's function")]
unsafe extern "C" fn potrf(
    _: *mut c_void,
    _: *mut c_void,
    _: c_int,
    n: i64,
    of: c_int,
    a: *mut c_void,
    _: i64,
    _: c_int,
    work: *mut c_void,
    bytes: usize,
    host: *mut c_void,
    host_bytes: usize,
    info: *mut c_int,
) -> c_int {
    // SAFETY: the caller has this much scratch on the host.
    unsafe { host.cast::<u8>().write_bytes(7, host_bytes) };
    factor((a as u64, (n * n) as usize * size_of_type(of)), (work as u64, bytes), info as u64)
}

unsafe extern "C" fn potrf_batched(
    _: *mut c_void,
    _: c_int,
    n: c_int,
    matrices: *mut *mut c_void,
    _: c_int,
    info: *mut c_int,
    batch: c_int,
) -> c_int {
    // The pointers are still being copied to the device: run what is queued before.
    let pointers = {
        let mut state = state();
        while state.advance() {}
        let Some(bytes) = state.bytes(matrices as u64, 8 * batch as usize) else { return 1 };
        let pointers = bytes.chunks_exact(8);
        pointers.map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap_or_default())).collect::<Vec<u64>>()
    };
    for (at, matrix) in pointers.into_iter().enumerate() {
        let code = factor((matrix, (n * n) as usize * 4), (matrix, 4), info as u64 + 4 * at as u64);
        if code != 0 {
            return code;
        }
    }
    0
}

macro_rules! unsupported {
    ($($name:ident($($arg:ty),*);)*) => { $(
        #[allow(clippy::too_many_arguments, reason = "the library's function")]
        unsafe extern "C" fn $name($(_: $arg),*) -> c_int {
            NOT_SUPPORTED
        }
    )* };
}

type P = *mut c_void;
type C = *const c_void;

unsupported! {
    getrf_size(P, P, i64, i64, c_int, C, i64, c_int, *mut usize, *mut usize);
    getrf(P, P, i64, i64, c_int, P, i64, *mut i64, c_int, P, usize, P, usize, *mut c_int);
    getrs(P, P, c_int, i64, i64, c_int, C, i64, *const i64, c_int, P, i64, *mut c_int);
    geqrf_size(P, P, i64, i64, c_int, C, i64, c_int, C, c_int, *mut usize, *mut usize);
    geqrf(P, P, i64, i64, c_int, P, i64, c_int, P, c_int, P, usize, P, usize, *mut c_int);
    syevd_size(P, P, c_int, c_int, i64, c_int, C, i64, c_int, C, c_int, *mut usize, *mut usize);
    syevd(P, P, c_int, c_int, i64, c_int, P, i64, c_int, P, c_int, P, usize, P, usize, *mut c_int);
    orgqr_size(P, c_int, c_int, c_int, C, c_int, C, *mut c_int);
    orgqr(P, c_int, c_int, c_int, P, c_int, C, P, c_int, *mut c_int);
    gesvdj_size(P, c_int, c_int, c_int, c_int, C, c_int, C, C, c_int, C, c_int, *mut c_int, P);
    gesvdj(P, c_int, c_int, c_int, c_int, P, c_int, P, P, c_int, P, c_int, P, c_int, *mut c_int, P);
    gesvdj_batched_size(P, c_int, c_int, c_int, C, c_int, C, C, c_int, C, c_int, *mut c_int, P, c_int);
    gesvdj_batched(P, c_int, c_int, c_int, P, c_int, P, P, c_int, P, c_int, P, c_int, *mut c_int, P, c_int);
    syevj_batched_size(P, c_int, c_int, c_int, C, c_int, C, *mut c_int, P, c_int);
    syevj_batched(P, c_int, c_int, c_int, P, c_int, P, P, c_int, *mut c_int, P, c_int);
}

/// The library, unless the plan says that it is missing.
pub(crate) fn solver() -> Result<&'static Cusolver> {
    static TABLE: OnceLock<Cusolver> = OnceLock::new();
    if plan().missing {
        return Err(CudaError::MissingLibrary { what: "cuSOLVER", tried: "libcusolver.so.12".into() });
    }
    Ok(TABLE.get_or_init(|| Cusolver {
        create,
        destroy,
        set_stream,
        create_params: create,
        destroy_params: destroy,
        create_gesvdj_info: create,
        destroy_gesvdj_info: destroy,
        create_syevj_info: create,
        destroy_syevj_info: destroy,
        potrf_size,
        potrf,
        getrf_size,
        getrf,
        getrs,
        geqrf_size,
        geqrf,
        syevd_size,
        syevd,
        s_potrf_batched: potrf_batched,
        s_orgqr_size: orgqr_size,
        s_orgqr: orgqr,
        s_gesvdj_size: gesvdj_size,
        s_gesvdj: gesvdj,
        s_gesvdj_batched_size: gesvdj_batched_size,
        s_gesvdj_batched: gesvdj_batched,
        d_potrf_batched: potrf_batched,
        d_orgqr_size: orgqr_size,
        d_orgqr: orgqr,
        d_gesvdj_size: gesvdj_size,
        d_gesvdj: gesvdj,
        d_gesvdj_batched_size: gesvdj_batched_size,
        d_gesvdj_batched: gesvdj_batched,
        c_potrf_batched: potrf_batched,
        c_orgqr_size: orgqr_size,
        c_orgqr: orgqr,
        c_gesvdj_size: gesvdj_size,
        c_gesvdj: gesvdj,
        c_gesvdj_batched_size: gesvdj_batched_size,
        c_gesvdj_batched: gesvdj_batched,
        s_syevj_batched_size: syevj_batched_size,
        s_syevj_batched: syevj_batched,
        d_syevj_batched_size: syevj_batched_size,
        d_syevj_batched: syevj_batched,
        c_syevj_batched_size: syevj_batched_size,
        c_syevj_batched: syevj_batched,
        _library: None,
    }))
}

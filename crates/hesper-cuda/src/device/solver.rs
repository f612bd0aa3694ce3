//! Factorizations of dense matrices by cuSOLVER, which is optional and loaded on first use.
//!
//! Native commands call [`Dense::run`]. It checks every operand against its binding, so the call is safe. It
//! waits for the result, since whether a matrix could be factored is known only then. Matrices are
//! column-major and contiguous, one after another.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, Once};

use hesper_runtime::{Binding, Native, NativeError};

use super::CudaShared;
use super::submit::{NativeContext, drain};
use crate::context::Current;
use crate::error::{CudaError, Result};
use crate::host::lock;
use crate::shutdown;
use crate::sys::{CUdeviceptr, CUstream, Cusolver};

/// The element type of matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SolverType {
    /// 32-bit floats.
    F32,
    /// 64-bit floats.
    F64,
    /// Complex numbers of two 32-bit floats.
    C64,
}

impl SolverType {
    /// The library's code of the type.
    fn code(self) -> c_int {
        match self {
            SolverType::F32 => 0,
            SolverType::F64 => 1,
            SolverType::C64 => 4,
        }
    }

    /// The type of eigenvalues and singular values.
    fn real(self) -> SolverType {
        if self == SolverType::C64 { SolverType::F32 } else { self }
    }

    /// Bytes of an element.
    pub fn size(self) -> usize {
        if self == SolverType::F32 { 4 } else { 8 }
    }
}

/// A function of the library, by its name in LAPACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DenseCall {
    /// The Cholesky factor of a triangle. Binds the matrices.
    Potrf {
        /// Whether it is the upper triangle.
        upper: bool,
    },
    /// The same for a batch of small matrices at once.
    PotrfBatched {
        /// Whether it is the upper triangle.
        upper: bool,
    },
    /// The LU factors. Binds the matrices and 64-bit pivots, which count from one.
    Getrf,
    /// Solves equations with the factors and pivots of [`Getrf`](DenseCall::Getrf), or with the transposed
    /// factors. Binds these (`rows` x `rows`) and the right sides (`rows` x `columns`), which become the
    /// solutions.
    Getrs {
        /// Whether the equations have the transposed matrix.
        transposed: bool,
    },
    /// The QR factors. Binds the matrices and the scalars of the reflections.
    Geqrf,
    /// The orthonormal columns from the results of [`Geqrf`](DenseCall::Geqrf), with as many reflections as
    /// columns.
    Orgqr,
    /// Eigenvalues of Hermitian matrices, and eigenvectors instead of the matrices. Binds the matrices and
    /// the eigenvalues.
    Syevd {
        /// Whether the upper triangle is read.
        upper: bool,
        /// Whether eigenvectors are computed.
        vectors: bool,
    },
    /// The same for a batch of small matrices at once.
    SyevjBatched {
        /// Whether the upper triangle is read.
        upper: bool,
        /// Whether eigenvectors are computed.
        vectors: bool,
    },
    /// Singular values, and all singular vectors as columns. Binds the matrices, which are destroyed, the
    /// singular values, the left and the right vectors. The library writes to the vectors also if they are
    /// not computed.
    Gesvdj {
        /// Whether singular vectors are computed.
        vectors: bool,
    },
    /// The same for a batch of matrices of at most 32 rows and columns at once.
    GesvdjBatched {
        /// Whether singular vectors are computed.
        vectors: bool,
    },
}

impl DenseCall {
    fn name(self) -> &'static str {
        match self {
            DenseCall::Potrf { .. } => "potrf",
            DenseCall::PotrfBatched { .. } => "potrfBatched",
            DenseCall::Getrf => "getrf",
            DenseCall::Getrs { .. } => "getrs",
            DenseCall::Geqrf => "geqrf",
            DenseCall::Orgqr => "orgqr",
            DenseCall::Syevd { .. } => "syevd",
            DenseCall::SyevjBatched { .. } => "syevjBatched",
            DenseCall::Gesvdj { .. } => "gesvdj",
            DenseCall::GesvdjBatched { .. } => "gesvdjBatched",
        }
    }

    /// Whether one call computes the whole batch.
    fn is_batched(self) -> bool {
        matches!(
            self,
            DenseCall::PotrfBatched { .. } | DenseCall::SyevjBatched { .. } | DenseCall::GesvdjBatched { .. }
        )
    }
}

/// A call for each of `batch` matrices of `rows` x `columns`. A command binds the operands that the call
/// names, then scratch of [`CudaShared::solver_scratch`] bytes, then a 32-bit code for each matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dense {
    /// The function.
    pub call: DenseCall,
    /// The element type.
    pub dtype: SolverType,
    /// Rows of a matrix.
    pub rows: usize,
    /// Columns of a matrix.
    pub columns: usize,
    /// The number of matrices.
    pub batch: usize,
}

/// The first matrix that could not be factored, and the library's code: the number of the pivot that is zero
/// or not positive, or of values that did not converge.
pub type FailedMatrix = Option<(usize, i32)>;

/// The library for one device. A handle is used by one command at a time.
pub struct Solver {
    calls: &'static Cusolver,
    free: Mutex<Vec<Handle>>,
}

/// A handle with the parameter objects of the calls.
struct Handle {
    calls: &'static Cusolver,
    raw: *mut c_void,
    params: *mut c_void,
    gesvdj: *mut c_void,
    syevj: *mut c_void,
}

// SAFETY: any thread may use a handle, one at a time.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the objects are owned, alive (or null, if their creation failed) and no longer used.
        unsafe {
            if !self.syevj.is_null() {
                (self.calls.destroy_syevj_info)(self.syevj);
            }
            if !self.gesvdj.is_null() {
                (self.calls.destroy_gesvdj_info)(self.gesvdj);
            }
            if !self.params.is_null() {
                (self.calls.destroy_params)(self.params);
            }
            (self.calls.destroy)(self.raw);
        }
    }
}

#[cfg(not(test))]
fn calls() -> Result<&'static Cusolver> {
    static CALLS: std::sync::OnceLock<Result<Cusolver>> = std::sync::OnceLock::new();
    CALLS.get_or_init(crate::library::cusolver).as_ref().map_err(Clone::clone)
}

#[cfg(test)]
fn calls() -> Result<&'static Cusolver> {
    crate::fake::solver()
}

fn check(call: &'static str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(CudaError::Library { library: "cuSOLVER", call, code }),
    }
}

impl Solver {
    fn handle(&self) -> Result<Handle> {
        if let Some(handle) = lock(&self.free).pop() {
            return Ok(handle);
        }
        Handle::new(self.calls)
    }

    fn give_back(&self, handle: Handle) {
        lock(&self.free).push(handle);
    }
}

impl Handle {
    /// The device's context is current.
    fn new(calls: &'static Cusolver) -> Result<Self> {
        let null = std::ptr::null_mut();
        let mut raw = null;
        // SAFETY: the library stores one handle.
        check("cusolverDnCreate", unsafe { (calls.create)(&mut raw) })?;
        let mut handle = Handle { calls, raw, params: null, gesvdj: null, syevj: null };
        // SAFETY: the library stores one handle each.
        unsafe {
            check("cusolverDnCreateParams", (calls.create_params)(&mut handle.params))?;
            check("cusolverDnCreateGesvdjInfo", (calls.create_gesvdj_info)(&mut handle.gesvdj))?;
            check("cusolverDnCreateSyevjInfo", (calls.create_syevj_info)(&mut handle.syevj))?;
        }
        Ok(handle)
    }
}

impl CudaShared {
    /// The library for factorizations; an error lists the candidates that were tried.
    pub fn solver(&self) -> Result<&Solver> {
        self.solver.get(|| {
            let calls = calls()?;
            let _current = self.context.enter()?;
            let first = Handle::new(calls)?;
            shutdown::register_again();
            Ok(Solver { calls, free: Mutex::new(vec![first]) })
        })
    }

    /// Bytes of scratch that a command binds for these calls.
    pub fn solver_scratch(&self, what: &Dense) -> Result<usize> {
        let solver = self.solver()?;
        let _current = self.context.enter()?;
        let handle = solver.handle()?;
        let bytes = what.workspace(&handle).map(|(device, _)| device);
        solver.give_back(handle);
        static FIRST: Once = Once::new();
        shutdown::register_again_once(&FIRST);
        bytes
    }
}

/// A size as the library's 32-bit functions take it.
fn int(size: usize) -> Result<c_int> {
    let refused = CudaError::Library { library: "cuSOLVER", call: "a matrix of 2^31 or more", code: 3 };
    c_int::try_from(size).map_err(|_| refused)
}

/// Selects the function for an element type.
macro_rules! typed {
    ($dense:expr, $calls:expr, $s:ident, $d:ident, $c:ident) => {
        match $dense.dtype {
            SolverType::F32 => $calls.$s,
            SolverType::F64 => $calls.$d,
            SolverType::C64 => $calls.$c,
        }
    };
}

/// The memory of a call: its operands, scratch on the device and on the host, and the codes of its matrices.
struct CallMemory {
    operands: [*mut c_void; 4],
    work: *mut c_void,
    bytes: usize,
    host: *mut c_void,
    host_bytes: usize,
    codes: *mut c_int,
}

/// An operand: its elements for one matrix, their size, and whether it is written.
type Operand = (usize, usize, bool);

impl Dense {
    /// The operands in binding order; `None` if a size overflows.
    fn operands(&self) -> Option<Vec<Operand>> {
        let (m, n, size) = (self.rows, self.columns, self.dtype.size());
        let real = self.dtype.real().size();
        let matrix = (m.checked_mul(n)?, size, true);
        let least = m.min(n);
        Some(match self.call {
            DenseCall::Potrf { .. } | DenseCall::PotrfBatched { .. } => vec![matrix],
            DenseCall::Getrf => vec![matrix, (least, 8, true)],
            DenseCall::Getrs { .. } => vec![(m.checked_mul(m)?, size, false), (m, 8, false), matrix],
            DenseCall::Geqrf => vec![matrix, (least, size, true)],
            DenseCall::Orgqr => vec![matrix, (n, size, false)],
            DenseCall::Syevd { .. } | DenseCall::SyevjBatched { .. } => vec![matrix, (n, real, true)],
            DenseCall::Gesvdj { .. } | DenseCall::GesvdjBatched { .. } => {
                let square = |side: usize| Some((side.checked_mul(side)?, size, true));
                vec![matrix, (least, real, true), square(m)?, square(n)?]
            }
        })
    }

    /// Whether the call takes these sizes.
    fn is_valid(&self) -> bool {
        let (m, n) = (self.rows, self.columns);
        let square = match self.call {
            DenseCall::Potrf { .. }
            | DenseCall::PotrfBatched { .. }
            | DenseCall::Syevd { .. }
            | DenseCall::SyevjBatched { .. } => m == n,
            DenseCall::Orgqr => m >= n,
            DenseCall::GesvdjBatched { .. } => m <= 32 && n <= 32,
            _ => true,
        };
        square && m > 0 && n > 0 && self.batch > 0
    }

    /// Bytes of scratch on the device and on the host.
    fn workspace(&self, handle: &Handle) -> Result<(usize, usize)> {
        // SAFETY: without memory the library stores sizes only.
        unsafe { self.call(handle, None) }
    }

    /// Calls the function for one matrix, or for a whole batch. Without memory it asks for the scratch: bytes
    /// on the device and on the host.
    ///
    /// # Safety
    /// As for `launch_with`.
    unsafe fn call(&self, handle: &Handle, memory: Option<&CallMemory>) -> Result<(usize, usize)> {
        let (calls, h, params) = (handle.calls, handle.raw, handle.params);
        let (m, n, of) = (self.rows as i64, self.columns as i64, self.dtype.code());
        let [a, b, u, v] = memory.map_or([std::ptr::null_mut(); 4], |memory| memory.operands);
        let (mut device, mut host, mut elements) = (0usize, 0usize, 0 as c_int);
        // A function with 64-bit sizes, and the one that asks for its scratch, which takes no pivots.
        macro_rules! wide {
            ($size:ident, $call:ident, ($($argument:expr),*) $(, pivots $pivots:expr)?, ($($last:expr),*)) => {
                match memory {
                    None => (calls.$size)(h, params, $($argument,)* $($last,)* &mut device, &mut host),
                    Some(CallMemory { work, bytes, host, host_bytes, codes, .. }) => (calls.$call)(
                        h, params, $($argument,)* $($pivots,)? $($last,)* *work, *bytes, *host, *host_bytes, *codes
                    ),
                }
            };
        }
        // The same with 32-bit sizes, for each element type; scratch and codes stand between two lists.
        macro_rules! narrow {
            ($($size:ident)|*, $($call:ident)|*, ($($argument:expr),*), ($($last:expr),*)) => {
                match memory {
                    None => typed!(self, calls, $($size),*)(h, $($argument,)* &mut elements, $($last),*),
                    Some(CallMemory { work, bytes, codes, .. }) => {
                        let elements = int(bytes / self.dtype.size())?;
                        typed!(self, calls, $($call),*)(h, $($argument,)* *work, elements, *codes, $($last),*)
                    }
                }
            };
        }
        let small = || -> Result<[c_int; 3]> { Ok([int(self.rows)?, int(self.columns)?, int(self.batch)?]) };
        // SAFETY: upheld by the caller; the library stores the sizes, and reads no memory that is null.
        let outcome = unsafe {
            match self.call {
                DenseCall::Potrf { upper } => {
                    wide!(potrf_size, potrf, (c_int::from(upper), n, of, a, n), (of))
                }
                DenseCall::PotrfBatched { upper } => match memory {
                    None => {
                        device = self.batch * 8;
                        0
                    }
                    Some(memory) => {
                        let f = typed!(self, calls, s_potrf_batched, d_potrf_batched, c_potrf_batched);
                        let [_, n, batch] = small()?;
                        f(h, c_int::from(upper), n, memory.work.cast(), n, memory.codes, batch)
                    }
                },
                DenseCall::Getrf => wide!(getrf_size, getrf, (m, n, of, a, m), pivots b.cast(), (of)),
                DenseCall::Getrs { transposed } => memory.map_or(0, |memory| {
                    let transposed = c_int::from(transposed);
                    (calls.getrs)(h, params, transposed, m, n, of, a, m, b.cast(), of, u, m, memory.codes)
                }),
                DenseCall::Geqrf => wide!(geqrf_size, geqrf, (m, n, of, a, m), (of, b, of)),
                DenseCall::Orgqr => {
                    let [m, n, _] = small()?;
                    narrow!(
                        s_orgqr_size | d_orgqr_size | c_orgqr_size,
                        s_orgqr | d_orgqr | c_orgqr,
                        (m, n, n, a, m, b),
                        ()
                    )
                }
                DenseCall::Syevd { upper, vectors } => {
                    let (vectors, upper, real) =
                        (c_int::from(vectors), c_int::from(upper), self.dtype.real().code());
                    wide!(syevd_size, syevd, (vectors, upper, n, of, a, n), (real, b, of))
                }
                DenseCall::SyevjBatched { upper, vectors } => {
                    let [_, n, batch] = small()?;
                    narrow!(
                        s_syevj_batched_size | d_syevj_batched_size | c_syevj_batched_size,
                        s_syevj_batched | d_syevj_batched | c_syevj_batched,
                        (c_int::from(vectors), c_int::from(upper), n, a, n, b),
                        (handle.syevj, batch)
                    )
                }
                DenseCall::Gesvdj { vectors } => {
                    let [m, n, _] = small()?;
                    narrow!(
                        s_gesvdj_size | d_gesvdj_size | c_gesvdj_size,
                        s_gesvdj | d_gesvdj | c_gesvdj,
                        (c_int::from(vectors), 0, m, n, a, m, b, u, m, v, n),
                        (handle.gesvdj)
                    )
                }
                DenseCall::GesvdjBatched { vectors } => {
                    let [m, n, batch] = small()?;
                    narrow!(
                        s_gesvdj_batched_size | d_gesvdj_batched_size | c_gesvdj_batched_size,
                        s_gesvdj_batched | d_gesvdj_batched | c_gesvdj_batched,
                        (c_int::from(vectors), m, n, a, m, b, u, m, v, n),
                        (handle.gesvdj, batch)
                    )
                }
            }
        };
        check(self.call.name(), outcome)?;
        Ok((device.max(elements.max(0) as usize * self.dtype.size()), host))
    }

    /// Computes on the stream of a native command of a CUDA device, and waits. Returns the first matrix that
    /// could not be factored.
    pub fn run(&self, native: &mut Native<'_, '_>) -> Result<FailedMatrix, NativeError> {
        let context = native.context().and_then(|context| context.downcast_ref::<NativeContext>());
        let context = context.ok_or("the command does not run on a CUDA device")?;
        let bound = native.bindings();
        let name = self.call.name();
        let operands = self.operands().filter(|_| self.is_valid());
        let operands = operands.ok_or_else(|| {
            let (m, n, batch) = (self.rows, self.columns, self.batch);
            NativeError::from(format!("{name} does not take {batch} matrices of {m} x {n}"))
        })?;
        let expected = operands.len() + 2;
        if bound.len() != expected {
            return Err(format!("{name} binds {expected} ranges, got {}", bound.len()).into());
        }
        let [scratch, codes] = [&bound[expected - 2], &bound[expected - 1]];
        for (at, (elements, size, written)) in
            operands.iter().copied().chain([(0, 1, true), (1, 4, true)]).enumerate()
        {
            let bytes = elements.checked_mul(self.batch).and_then(|count| count.checked_mul(size));
            if bytes.is_none_or(|bytes| bytes > bound[at].len()) {
                return Err(format!("an operand of {name} exceeds its binding {at}").into());
            }
            if written && !bound[at].access().writes() {
                return Err(format!("{name} must bind range {at} to write").into());
            }
        }
        let found = self.launch(context, &operands, bound, scratch, codes);
        let found = found.map_err(|error| NativeError::from(error.to_string()))?;
        match found.iter().enumerate().find(|(_, code)| **code != 0) {
            Some((at, code)) if *code < 0 => {
                Err(format!("cuSOLVER: {name} refused parameter {} of matrix {at}", -code).into())
            }
            failed => Ok(failed.map(|(at, code)| (at, *code))),
        }
    }

    fn launch(
        &self,
        context: &NativeContext,
        operands: &[Operand],
        bound: &[Binding],
        scratch: &Binding,
        codes: &Binding,
    ) -> Result<Vec<i32>> {
        let solver = context.shared().solver()?;
        let handle = solver.handle()?;
        let addresses: Vec<CUdeviceptr> = bound.iter().map(|binding| context.address(binding)).collect();
        // SAFETY: `run` checked that all operands lie inside of their bindings, which live until the command
        // is finished.
        let found = unsafe {
            self.launch_with(&handle, context, operands, &addresses, (scratch.len(), context.address(codes)))
        };
        // The library's work is done, so another command may use the handle, on any stream.
        solver.give_back(handle);
        static FIRST: Once = Once::new();
        shutdown::register_again_once(&FIRST);
        found
    }

    /// # Safety
    /// The operands lie inside of live memory at the addresses; the last two are the scratch, of the given
    /// length, and the codes.
    unsafe fn launch_with(
        &self,
        handle: &Handle,
        context: &NativeContext,
        operands: &[Operand],
        addresses: &[CUdeviceptr],
        (scratch_len, codes): (usize, CUdeviceptr),
    ) -> Result<Vec<i32>> {
        let (device, host) = self.workspace(handle)?;
        if device > scratch_len {
            return Err(CudaError::Library { library: "cuSOLVER", call: "scratch", code: 3 });
        }
        let mut host = vec![0u64; host.div_ceil(8)];
        let current = context.context().enter()?;
        let stream = CUstream(context.stream());
        // SAFETY: handle and stream belong to the context, which is current.
        check("cusolverDnSetStream", unsafe { (handle.calls.set_stream)(handle.raw, stream.0) })?;
        let scratch = (addresses[operands.len()], device);
        let pointers: Vec<CUdeviceptr> = if matches!(self.call, DenseCall::PotrfBatched { .. }) {
            (0..self.batch).map(|at| addresses[0] + (at * operands[0].0 * operands[0].1) as u64).collect()
        } else {
            Vec::new()
        };
        let driver = context.context().driver();
        let mut outcome = Ok(());
        if !pointers.is_empty() {
            // SAFETY: the scratch has this size; the pointers live until the stream is idle.
            outcome = driver.check("cuMemcpyHtoDAsync", unsafe {
                (driver.memcpy_htod_async)(scratch.0, pointers.as_ptr().cast(), pointers.len() * 8, stream)
            });
        }
        let calls = if self.call.is_batched() { 1 } else { self.batch };
        for matrix in 0..calls {
            let operand = |at: usize| {
                // Singular vectors that are not computed are bound as the matrix, and not written.
                let at = if at < operands.len() { at } else { 0 };
                let (elements, size, _) = operands[at];
                (addresses[at] + (matrix * elements * size) as u64) as *mut c_void
            };
            let memory = CallMemory {
                operands: [operand(0), operand(1), operand(2), operand(3)],
                work: scratch.0 as *mut c_void,
                bytes: scratch.1,
                host: host.as_mut_ptr().cast(),
                host_bytes: size_of_val(&host[..]),
                codes: (codes + 4 * matrix as u64) as *mut c_int,
            };
            // SAFETY: upheld by the caller; the host's scratch lives until the stream is idle.
            outcome = outcome.and_then(|()| unsafe { self.call(handle, Some(&memory)) }.map(drop));
        }
        // SAFETY: the codes lie inside of their binding; the stream belongs to this context and is alive.
        unsafe { read_back(&current, stream, codes, self.batch, outcome) }
    }
}

/// Copies codes to the host and waits until the stream is idle, also after a failure: what was enqueued
/// before uses memory of the caller.
///
/// # Safety
/// `count` codes lie at the address, in live memory; the stream belongs to the context and is alive.
unsafe fn read_back(
    current: &Current<'_>,
    stream: CUstream,
    codes: CUdeviceptr,
    count: usize,
    before: Result<()>,
) -> Result<Vec<i32>> {
    let driver = current.context().driver();
    let mut found = vec![0i32; count];
    let copied = before.and_then(|()| {
        // SAFETY: upheld by the caller; there is room for the codes until the stream is idle.
        driver.check("cuMemcpyDtoHAsync", unsafe {
            (driver.memcpy_dtoh_async)(found.as_mut_ptr().cast(), codes, count * 4, stream)
        })
    });
    // SAFETY: upheld by the caller.
    if let Err(error) = unsafe { drain(current, stream) } {
        // The copy may still be under way.
        std::mem::forget(found);
        return Err(error);
    }
    copied.map(|()| found)
}

/// Waits for a kernel's codes, one of 32 bits for each of `count` matrices at the start of binding `at`, and
/// returns the first that is not zero.
pub fn failed_matrix(native: &Native<'_, '_>, at: usize, count: usize) -> Result<FailedMatrix, NativeError> {
    let context = native.context().and_then(|context| context.downcast_ref::<NativeContext>());
    let context = context.ok_or("the command does not run on a CUDA device")?;
    let codes = native.bindings().get(at);
    let codes = codes.filter(|codes| count.checked_mul(4).is_some_and(|bytes| bytes <= codes.len()));
    let codes = codes.ok_or("the codes exceed their binding")?;
    let stream = CUstream(context.stream());
    let found = context.context().enter().and_then(|current| {
        // SAFETY: the codes lie inside of their binding; the stream is the command's own.
        unsafe { read_back(&current, stream, context.address(codes), count, Ok(())) }
    });
    let found = found.map_err(|error| NativeError::from(error.to_string()))?;
    Ok(found.iter().position(|code| *code != 0).map(|first| (first, found[first])))
}

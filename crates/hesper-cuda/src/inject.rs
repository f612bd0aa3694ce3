//! Fault injection: the n-th call of a kind fails with a given code.
//!
//! For the tests of this crate and the check programs, which [install] it before they open a device. The
//! driver table is then replaced by one whose functions count calls and may fail. Without `install` the
//! library's own table is used.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::sys::{
    CUcontext, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUmodule, CUresult,
    CUstream, CublasLt, Driver, KernelNodeParams, LaunchConfig, Memcpy3d, MemsetNodeParams,
};

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Call {
    /// Device memory.
    Allocate,
    /// Page-locked host memory.
    AllocateHost,
    /// The load of a compiled module.
    Load,
    /// The launch of a kernel.
    Launch,
    /// A copy, in either direction or inside of the device.
    Copy,
    /// Setting memory to zero.
    Clear,
    /// A stream.
    CreateStream,
    /// An event.
    CreateEvent,
    /// The record of an event.
    Record,
    /// The wait of a stream for an event.
    StreamWait,
    /// A graph, its nodes, and making it executable.
    MakeGraph,
    /// A change of an executable graph.
    UpdateGraph,
    /// The launch of a graph.
    LaunchGraph,
    /// A product by cuBLASLt.
    Product,
}

impl Call {
    /// Every kind.
    pub const ALL: [Call; 14] = [
        Call::Allocate,
        Call::AllocateHost,
        Call::Load,
        Call::Launch,
        Call::Copy,
        Call::Clear,
        Call::CreateStream,
        Call::CreateEvent,
        Call::Record,
        Call::StreamWait,
        Call::MakeGraph,
        Call::UpdateGraph,
        Call::LaunchGraph,
        Call::Product,
    ];
}

/// The injected failure of one kind of call.
struct Injection {
    /// Calls so far.
    calls: AtomicU64,
    /// The call that fails; 0 for none.
    at: AtomicU64,
    /// Whether all later calls fail, too.
    persistent: AtomicBool,
    code: AtomicU32,
    /// Failed calls so far.
    refused: AtomicU64,
}

static INJECTIONS: [Injection; Call::ALL.len()] = [const {
    Injection {
        calls: AtomicU64::new(0),
        at: AtomicU64::new(0),
        persistent: AtomicBool::new(false),
        code: AtomicU32::new(0),
        refused: AtomicU64::new(0),
    }
}; Call::ALL.len()];

static INSTALLED: AtomicBool = AtomicBool::new(false);
static REAL: OnceLock<&'static Driver> = OnceLock::new();
static HOOKED: OnceLock<Driver> = OnceLock::new();
static REAL_PRODUCTS: OnceLock<&'static CublasLt> = OnceLock::new();
static HOOKED_PRODUCTS: OnceLock<CublasLt> = OnceLock::new();

/// Makes devices that are opened from now on use this module.
pub fn install() {
    INSTALLED.store(true, Ordering::SeqCst);
}

/// Fails the `nth` call of a kind from now on, counted from one, with the driver error `code`; `persistent`
/// also fails all later ones, until [`stop`].
pub fn fail(call: Call, nth: u64, code: CUresult, persistent: bool) {
    let injection = &INJECTIONS[call as usize];
    injection.code.store(code, Ordering::SeqCst);
    injection.persistent.store(persistent, Ordering::SeqCst);
    injection.at.store(injection.calls.load(Ordering::SeqCst) + nth, Ordering::SeqCst);
}

/// Stops all injected failures.
pub fn stop() {
    for injection in &INJECTIONS {
        injection.at.store(0, Ordering::SeqCst);
    }
}

/// The number of calls of a kind.
pub fn calls(call: Call) -> u64 {
    INJECTIONS[call as usize].calls.load(Ordering::SeqCst)
}

/// The number of failed calls of all kinds.
pub fn refused() -> u64 {
    INJECTIONS.iter().map(|injection| injection.refused.load(Ordering::SeqCst)).sum()
}

/// Counts a call; returns an error code if it must fail.
fn refuse(call: Call) -> Option<CUresult> {
    let injection = &INJECTIONS[call as usize];
    let number = injection.calls.fetch_add(1, Ordering::SeqCst) + 1;
    let at = injection.at.load(Ordering::SeqCst);
    let persistent = injection.persistent.load(Ordering::SeqCst);
    if at == 0 || number < at || (number > at && !persistent) {
        return None;
    }
    injection.refused.fetch_add(1, Ordering::SeqCst);
    Some(injection.code.load(Ordering::SeqCst))
}

/// The driver table for a device.
pub(crate) fn driver(real: &'static Driver) -> &'static Driver {
    if !INSTALLED.load(Ordering::SeqCst) {
        return real;
    }
    let _ = REAL.set(real);
    HOOKED.get_or_init(|| hooked(real))
}

/// The cuBLASLt table for a device.
pub(crate) fn products(real: &'static CublasLt) -> &'static CublasLt {
    if !INSTALLED.load(Ordering::SeqCst) {
        return real;
    }
    let _ = REAL_PRODUCTS.set(real);
    HOOKED_PRODUCTS.get_or_init(|| CublasLt { matmul: product, ..real.copied() })
}

macro_rules! hooks {
    ($($field:ident: $call:ident ($($arg:ident: $type:ty),*);)*) => {
        $(
            unsafe extern "C" fn $field($($arg: $type),*) -> CUresult {
                match (refuse(Call::$call), REAL.get()) {
                    (Some(code), _) => code,
                    // SAFETY: upheld by the caller, which is that of the driver's function.
                    (None, Some(real)) => unsafe { (real.$field)($($arg),*) },
                    // CUDA_ERROR_NOT_INITIALIZED; unreachable, since `REAL` is set before the table exists.
                    (None, None) => 3,
                }
            }
        )*

        fn hooked(real: &'static Driver) -> Driver {
            Driver { $($field,)* ..real.copied() }
        }
    };
}

hooks! {
    mem_alloc: Allocate(to: *mut CUdeviceptr, len: usize);
    mem_host_alloc: AllocateHost(to: *mut *mut c_void, len: usize, flags: c_uint);
    module_load_data: Load(to: *mut CUmodule, image: *const c_void);
    launch_kernel: Launch(
        f: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    launch_kernel_ex: Launch(
        config: *const LaunchConfig, f: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    memcpy_htod_async: Copy(to: CUdeviceptr, from: *const c_void, len: usize, stream: CUstream);
    memcpy_dtoh_async: Copy(to: *mut c_void, from: CUdeviceptr, len: usize, stream: CUstream);
    memcpy_dtod_async: Copy(to: CUdeviceptr, from: CUdeviceptr, len: usize, stream: CUstream);
    memset_d8_async: Clear(to: CUdeviceptr, value: u8, len: usize, stream: CUstream);
    stream_create: CreateStream(to: *mut CUstream, flags: c_uint);
    event_create: CreateEvent(to: *mut CUevent, flags: c_uint);
    event_record: Record(event: CUevent, stream: CUstream);
    stream_wait_event: StreamWait(stream: CUstream, event: CUevent, flags: c_uint);
    graph_create: MakeGraph(to: *mut CUgraph, flags: c_uint);
    graph_add_kernel_node: MakeGraph(
        to: *mut CUgraphNode, graph: CUgraph, before: *const CUgraphNode, count: usize,
        parameters: *const KernelNodeParams);
    graph_instantiate: MakeGraph(to: *mut CUgraphExec, graph: CUgraph, flags: u64);
    graph_exec_kernel_node_set_params: UpdateGraph(
        exec: CUgraphExec, node: CUgraphNode, parameters: *const KernelNodeParams);
    graph_exec_memcpy_node_set_params: UpdateGraph(
        exec: CUgraphExec, node: CUgraphNode, parameters: *const Memcpy3d, context: CUcontext);
    graph_exec_memset_node_set_params: UpdateGraph(
        exec: CUgraphExec, node: CUgraphNode, parameters: *const MemsetNodeParams, context: CUcontext);
    graph_launch: LaunchGraph(exec: CUgraphExec, stream: CUstream);
}

#[allow(clippy::too_many_arguments, reason = "the library's function")]
unsafe extern "C" fn product(
    handle: *mut c_void,
    product: *mut c_void,
    alpha: *const c_void,
    a: *const c_void,
    a_layout: *mut c_void,
    b: *const c_void,
    b_layout: *mut c_void,
    beta: *const c_void,
    c: *const c_void,
    c_layout: *mut c_void,
    d: *mut c_void,
    d_layout: *mut c_void,
    algorithm: *const c_void,
    scratch: *mut c_void,
    bytes: usize,
    stream: *mut c_void,
) -> c_int {
    match (refuse(Call::Product), REAL_PRODUCTS.get()) {
        (Some(code), _) => code as c_int,
        // SAFETY: upheld by the caller, which is that of the library's function.
        (None, Some(real)) => unsafe {
            (real.matmul)(
                handle, product, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm,
                scratch, bytes, stream,
            )
        },
        // CUBLAS_STATUS_NOT_INITIALIZED; unreachable, since `REAL_PRODUCTS` is set before the table exists.
        (None, None) => 1,
    }
}

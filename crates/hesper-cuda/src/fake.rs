//! A driver and a compiler for unit tests: the tables of [`crate::sys`] filled with functions on host memory.
//!
//! Work is put in queues and runs when somebody waits or asks, one operation at a time, of a stream that chance picks; the
//! nodes of a graph run in any order that its edges allow. Memory that was freed or never allocated faults, and the fault
//! stays, as CUDA's does. So what the device must not do (free too early, forget a wait, forget an edge) is seen here.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::sys::*;

/// Bytes of device memory.
pub(crate) const TOTAL: usize = 64 << 20;
const ILLEGAL_ADDRESS: CUresult = 700;
const NOT_FOUND: CUresult = 500;

#[derive(Clone)]
enum Op {
    Kernel { entry: usize, parameters: Vec<Vec<u8>> },
    Copy { to: u64, from: u64, len: usize },
    In { to: u64, from: usize, len: usize },
    Out { to: usize, from: u64, len: usize },
    Clear { to: u64, len: usize },
    Record(usize, u64),
    Wait(usize, u64),
    Graph(Vec<(Op, Vec<usize>)>),
}

#[derive(Default)]
struct World {
    memory: BTreeMap<u64, Vec<u8>>,
    streams: HashMap<usize, VecDeque<Op>>,
    /// The last record of each event, and the last that has completed.
    events: HashMap<usize, (u64, u64)>,
    modules: HashMap<usize, String>,
    graphs: HashMap<usize, Vec<(Op, Vec<usize>)>>,
    host: HashMap<usize, Vec<u64>>,
    programs: HashMap<usize, String>,
    next: usize,
    fault: CUresult,
    random: u64,
}

/// What a context still has of what was made in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Live {
    pub(crate) memory: usize,
    pub(crate) streams: usize,
    pub(crate) events: usize,
    pub(crate) modules: usize,
    pub(crate) graphs: usize,
    pub(crate) host: usize,
}

/// The kernels: name, sizes of parameters.
const KERNELS: [(&str, &[(usize, usize)]); 4] = [
    ("bump", &[(0, 8), (8, 4)]),
    ("mix", &[(0, 8), (8, 8), (16, 8), (24, 8)]),
    ("early", &[(0, 8), (8, 8), (16, 8), (24, 8)]),
    ("wild", &[(0, 8)]),
];

static WORLD: OnceLock<Mutex<World>> = OnceLock::new();
/// Calls of [`panic_point`] that are left until one panics; 0 for never.
static PANIC_IN: Mutex<Option<(&'static str, usize)>> = Mutex::new(None);
static ONE: AtomicUsize = AtomicUsize::new(1);

fn world() -> MutexGuard<'static, World> {
    WORLD.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins anew; `seed` decides the order of what is not ordered.
pub(crate) fn reset(seed: u64) {
    *world() = World { random: seed, next: 16, ..World::default() };
}

pub(crate) fn live() -> Live {
    let world = world();
    Live {
        memory: world.memory.len(),
        streams: world.streams.len(),
        events: world.events.len(),
        modules: world.modules.len(),
        graphs: world.graphs.len(),
        host: world.host.len(),
    }
}

/// Has the `nth` call of [`panic_point`] of this name panic.
pub(crate) fn panic_at(name: &'static str, nth: usize) {
    *PANIC_IN.lock().unwrap_or_else(PoisonError::into_inner) = Some((name, nth));
}

/// Where a test may have the device panic.
pub(crate) fn panic_point(name: &'static str) {
    let mut plan = PANIC_IN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((at, left)) = plan.as_mut()
        && *at == name
    {
        *left -= 1;
        if *left == 0 {
            *plan = None;
            drop(plan);
            panic!("on purpose, at {name}");
        }
    }
}

impl World {
    fn below(&mut self, limit: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % limit.max(1)
    }

    fn handle(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    fn bytes(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let (start, block) = self.memory.range_mut(..=at).next_back()?;
        let offset = (at - start) as usize;
        block.get_mut(offset..offset + len)
    }

    fn words(&mut self, at: u64, count: usize) -> Option<Vec<u32>> {
        let bytes = self.bytes(at, 4 * count)?;
        Some(
            bytes
                .chunks_exact(4)
                .map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
                .collect(),
        )
    }

    fn store(&mut self, at: u64, values: &[u32]) -> Option<()> {
        let bytes = self.bytes(at, 4 * values.len())?;
        for (word, value) in bytes.chunks_exact_mut(4).zip(values) {
            word.copy_from_slice(&value.to_ne_bytes());
        }
        Some(())
    }

    fn run(&mut self, op: Op) -> Option<()> {
        match op {
            Op::Kernel { entry, parameters } => {
                let long = |at: usize| u64::from_ne_bytes(parameters[at][..8].try_into().unwrap());
                let int = |at: usize, from: usize| {
                    u32::from_ne_bytes(parameters[at][from..from + 4].try_into().unwrap())
                };
                match KERNELS[entry].0 {
                    "bump" => {
                        let mut x = self.words(long(0), int(1, 0) as usize)?;
                        x.iter_mut().for_each(|value| *value = value.wrapping_add(1));
                        self.store(long(0), &x)
                    }
                    "mix" | "early" => {
                        let (salt, n) = (int(3, 0), int(3, 4) as usize);
                        let (a, b) = (self.words(long(0), n)?, self.words(long(1), n)?);
                        let out: Vec<u32> = a.iter().zip(&b).map(|(a, b)| mix(*a, *b, salt)).collect();
                        self.store(long(2), &out)
                    }
                    _ => None,
                }
            }
            Op::Copy { to, from, len } => {
                let data = self.bytes(from, len)?.to_vec();
                self.bytes(to, len)?.copy_from_slice(&data);
                Some(())
            }
            Op::In { to, from, len } => {
                let target = self.bytes(to, len)?.as_mut_ptr();
                // SAFETY: the caller of the copy promised that the host's bytes stay until it is done.
                unsafe { (from as *const u8).copy_to_nonoverlapping(target, len) };
                Some(())
            }
            Op::Out { to, from, len } => {
                let source = self.bytes(from, len)?.as_ptr();
                // SAFETY: as above.
                unsafe { source.copy_to_nonoverlapping(to as *mut u8, len) };
                Some(())
            }
            Op::Clear { to, len } => {
                self.bytes(to, len)?.fill(0);
                Some(())
            }
            Op::Record(event, number) => {
                if let Some(state) = self.events.get_mut(&event) {
                    state.1 = state.1.max(number);
                }
                Some(())
            }
            Op::Wait(..) => Some(()),
            Op::Graph(nodes) => {
                let mut left: Vec<usize> = (0..nodes.len()).collect();
                let mut done = vec![false; nodes.len()];
                while !left.is_empty() {
                    let ready: Vec<usize> = (0..left.len())
                        .filter(|at| nodes[left[*at]].1.iter().all(|before| done[*before]))
                        .collect();
                    let at = ready[self.below(ready.len())];
                    let node = left.remove(at);
                    self.run(nodes[node].0.clone())?;
                    done[node] = true;
                }
                Some(())
            }
        }
    }

    /// Runs one operation; false if none can.
    fn advance(&mut self) -> bool {
        let ready: Vec<usize> = self
            .streams
            .iter()
            .filter(|(_, queue)| match queue.front() {
                Some(Op::Wait(event, number)) => {
                    self.events.get(event).is_none_or(|state| state.1 >= *number)
                }
                Some(_) => true,
                None => false,
            })
            .map(|(stream, _)| *stream)
            .collect();
        if ready.is_empty() || self.fault != 0 {
            return false;
        }
        let mut ready = ready;
        ready.sort_unstable();
        let stream = ready[self.below(ready.len())];
        if let Some(op) = self.streams.get_mut(&stream).and_then(VecDeque::pop_front)
            && self.run(op).is_none()
        {
            self.fault = ILLEGAL_ADDRESS;
        }
        true
    }

    fn push(&mut self, stream: CUstream, op: Op) -> CUresult {
        if self.fault != 0 {
            return self.fault;
        }
        match self.streams.get_mut(&(stream.0 as usize)) {
            Some(queue) => {
                queue.push_back(op);
                0
            }
            None => 400,
        }
    }

    fn done(&self, event: usize) -> bool {
        self.events.get(&event).is_none_or(|state| state.1 >= state.0)
    }
}

/// What `mix` computes.
pub(crate) fn mix(a: u32, b: u32, salt: u32) -> u32 {
    a.wrapping_mul(1_664_525).wrapping_add(b ^ salt)
}

/// Stores a handle where the caller wants it.
unsafe fn give<T>(to: *mut T, value: T) -> CUresult {
    // SAFETY: callers of the driver give an address for one value.
    unsafe { to.write(value) };
    0
}

fn raw(number: usize) -> *mut c_void {
    number as *mut c_void
}

/// Copies the parameters of a launch.
unsafe fn parameters(entry: usize, from: *mut *mut c_void) -> Vec<Vec<u8>> {
    let sizes = KERNELS[entry].1.iter().map(|(_, size)| *size);
    sizes
        .enumerate()
        // SAFETY: the caller gives the address of each parameter that the kernel has.
        .map(|(at, size)| unsafe { std::slice::from_raw_parts((*from.add(at)).cast::<u8>(), size).to_vec() })
        .collect()
}

fn entry(function: CUfunction) -> usize {
    function.0 as usize - 1
}

unsafe extern "C" fn init(_: c_uint) -> CUresult {
    0
}
unsafe extern "C" fn version(to: *mut c_int) -> CUresult {
    // SAFETY: see `give`.
    unsafe { give(to, 13000) }
}
unsafe extern "C" fn error_name(code: CUresult, to: *mut *const c_char) -> CUresult {
    let name: &CStr = match code {
        1 => c"CUDA_ERROR_INVALID_VALUE",
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        _ => c"CUDA_ERROR",
    };
    // SAFETY: see `give`.
    unsafe { give(to, name.as_ptr()) }
}
unsafe extern "C" fn count(to: *mut c_int) -> CUresult {
    // SAFETY: see `give`.
    unsafe { give(to, 1) }
}
unsafe extern "C" fn device(to: *mut CUdevice, _: c_int) -> CUresult {
    // SAFETY: see `give`.
    unsafe { give(to, 0) }
}
unsafe extern "C" fn name(to: *mut c_char, _: c_int, _: CUdevice) -> CUresult {
    // SAFETY: there is room for more than one byte.
    unsafe { give(to, 0) }
}
unsafe extern "C" fn total_mem(to: *mut usize, _: CUdevice) -> CUresult {
    // SAFETY: see `give`.
    unsafe { give(to, TOTAL) }
}
unsafe extern "C" fn attribute(to: *mut c_int, which: c_int, _: CUdevice) -> CUresult {
    let value = match which {
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
        _ => 0,
    };
    // SAFETY: see `give`.
    unsafe { give(to, value) }
}
unsafe extern "C" fn retain(_: *mut CUcontext, _: CUdevice) -> CUresult {
    801
}
unsafe extern "C" fn of_device(_: CUdevice) -> CUresult {
    801
}
unsafe extern "C" fn ctx_create(to: *mut CUcontext, _: c_uint, _: CUdevice) -> CUresult {
    // SAFETY: see `give`.
    unsafe { give(to, CUcontext(raw(1))) }
}
unsafe extern "C" fn ctx_destroy(_: CUcontext) -> CUresult {
    0
}
unsafe extern "C" fn ctx_push(_: CUcontext) -> CUresult {
    0
}
unsafe extern "C" fn ctx_pop(to: *mut CUcontext) -> CUresult {
    // SAFETY: see `give`.
    unsafe { give(to, CUcontext(raw(1))) }
}
unsafe extern "C" fn ctx_synchronize() -> CUresult {
    let mut world = world();
    while world.advance() {}
    world.fault
}
unsafe extern "C" fn mem_info(free: *mut usize, total: *mut usize) -> CUresult {
    let used: usize = world().memory.values().map(Vec::len).sum();
    // SAFETY: see `give`.
    unsafe { give(free, TOTAL - used) + give(total, TOTAL) }
}
unsafe extern "C" fn mem_alloc(to: *mut CUdeviceptr, len: usize) -> CUresult {
    let mut world = world();
    let used: usize = world.memory.values().map(Vec::len).sum();
    if world.fault != 0 {
        return world.fault;
    }
    if used + len > TOTAL {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let end = world.memory.last_key_value().map_or(1 << 20, |(at, block)| at + block.len() as u64);
    let at = (end + 4096).next_multiple_of(512);
    world.memory.insert(at, vec![0xa5; len]);
    // SAFETY: see `give`.
    unsafe { give(to, at) }
}
unsafe extern "C" fn mem_free(at: CUdeviceptr) -> CUresult {
    u32::from(world().memory.remove(&at).is_none())
}
unsafe extern "C" fn mem_host_alloc(to: *mut *mut c_void, len: usize, _: c_uint) -> CUresult {
    let mut memory = vec![0u64; len.div_ceil(8)];
    let at: *mut c_void = memory.as_mut_ptr().cast();
    world().host.insert(at as usize, memory);
    // SAFETY: see `give`.
    unsafe { give(to, at) }
}
unsafe extern "C" fn mem_free_host(at: *mut c_void) -> CUresult {
    u32::from(world().host.remove(&(at as usize)).is_none())
}
unsafe extern "C" fn copy_in(to: CUdeviceptr, from: *const c_void, len: usize, on: CUstream) -> CUresult {
    world().push(on, Op::In { to, from: from as usize, len })
}
unsafe extern "C" fn copy_out(to: *mut c_void, from: CUdeviceptr, len: usize, on: CUstream) -> CUresult {
    world().push(on, Op::Out { to: to as usize, from, len })
}
unsafe extern "C" fn copy(to: CUdeviceptr, from: CUdeviceptr, len: usize, on: CUstream) -> CUresult {
    world().push(on, Op::Copy { to, from, len })
}
unsafe extern "C" fn memset(to: CUdeviceptr, value: u8, len: usize, on: CUstream) -> CUresult {
    assert_eq!(value, 0);
    world().push(on, Op::Clear { to, len })
}
unsafe extern "C" fn stream_create(to: *mut CUstream, _: c_uint) -> CUresult {
    let mut world = world();
    let stream = world.handle();
    world.streams.insert(stream, VecDeque::new());
    // SAFETY: see `give`.
    unsafe { give(to, CUstream(raw(stream))) }
}
unsafe extern "C" fn stream_destroy(stream: CUstream) -> CUresult {
    u32::from(world().streams.remove(&(stream.0 as usize)).is_none())
}
unsafe extern "C" fn stream_synchronize(stream: CUstream) -> CUresult {
    let mut world = world();
    while world.streams.get(&(stream.0 as usize)).is_some_and(|queue| !queue.is_empty()) {
        if !world.advance() {
            break;
        }
    }
    world.fault
}
unsafe extern "C" fn stream_wait(stream: CUstream, event: CUevent, _: c_uint) -> CUresult {
    let mut world = world();
    let event = event.0 as usize;
    let number = world.events.get(&event).map_or(0, |state| state.0);
    world.push(stream, Op::Wait(event, number))
}
unsafe extern "C" fn event_create(to: *mut CUevent, _: c_uint) -> CUresult {
    let mut world = world();
    let event = world.handle();
    world.events.insert(event, (0, 0));
    // SAFETY: see `give`.
    unsafe { give(to, CUevent(raw(event))) }
}
unsafe extern "C" fn event_destroy(event: CUevent) -> CUresult {
    u32::from(world().events.remove(&(event.0 as usize)).is_none())
}
unsafe extern "C" fn event_record(event: CUevent, stream: CUstream) -> CUresult {
    let mut world = world();
    let event = event.0 as usize;
    let Some(state) = world.events.get_mut(&event) else { return 400 };
    state.0 += 1;
    let number = state.0;
    world.push(stream, Op::Record(event, number))
}
unsafe extern "C" fn event_query(event: CUevent) -> CUresult {
    let mut world = world();
    for _ in 0..world.below(4) {
        world.advance();
    }
    match (world.fault, world.done(event.0 as usize)) {
        (0, true) => 0,
        (0, false) => CUDA_ERROR_NOT_READY,
        (fault, _) => fault,
    }
}
unsafe extern "C" fn event_synchronize(event: CUevent) -> CUresult {
    let mut world = world();
    while !world.done(event.0 as usize) {
        if !world.advance() {
            // Nothing can run: real waits would never end.
            return if world.fault == 0 { 999 } else { world.fault };
        }
    }
    world.fault
}
unsafe extern "C" fn elapsed(_: *mut f32, _: CUevent, _: CUevent) -> CUresult {
    801
}
unsafe extern "C" fn module_load(to: *mut CUmodule, image: *const c_void) -> CUresult {
    // SAFETY: this compiler's images end with a zero byte.
    let text = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy().into_owned();
    let mut world = world();
    let module = world.handle();
    world.modules.insert(module, text);
    // SAFETY: see `give`.
    unsafe { give(to, CUmodule(raw(module))) }
}
unsafe extern "C" fn module_unload(module: CUmodule) -> CUresult {
    u32::from(world().modules.remove(&(module.0 as usize)).is_none())
}
unsafe extern "C" fn get_function(to: *mut CUfunction, _: CUmodule, name: *const c_char) -> CUresult {
    // SAFETY: the driver's names end with a zero byte.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    match KERNELS.iter().position(|kernel| kernel.0 == name) {
        // SAFETY: see `give`.
        Some(at) => unsafe { give(to, CUfunction(raw(at + 1))) },
        None => NOT_FOUND,
    }
}
unsafe extern "C" fn func_attribute(to: *mut c_int, which: c_int, _: CUfunction) -> CUresult {
    // SAFETY: see `give`.
    unsafe { give(to, if which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK { 1024 } else { 0 }) }
}
unsafe extern "C" fn func_set(_: CUfunction, _: c_int, _: c_int) -> CUresult {
    0
}
unsafe extern "C" fn param_info(f: CUfunction, at: usize, offset: *mut usize, size: *mut usize) -> CUresult {
    match KERNELS[entry(f)].1.get(at) {
        // SAFETY: see `give`.
        Some(known) => unsafe { give(offset, known.0) + give(size, known.1) },
        None => CUDA_ERROR_INVALID_VALUE,
    }
}
#[allow(clippy::too_many_arguments, reason = "the driver's function")]
unsafe extern "C" fn launch(
    f: CUfunction,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    on: CUstream,
    from: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CUresult {
    // SAFETY: the caller's promise.
    let parameters = unsafe { parameters(entry(f), from) };
    world().push(on, Op::Kernel { entry: entry(f), parameters })
}
unsafe extern "C" fn launch_ex(
    config: *const LaunchConfig,
    f: CUfunction,
    from: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CUresult {
    // SAFETY: the caller's promise.
    let (parameters, stream) = unsafe { (parameters(entry(f), from), (*config).stream) };
    world().push(stream, Op::Kernel { entry: entry(f), parameters })
}
unsafe extern "C" fn graph_create(to: *mut CUgraph, _: c_uint) -> CUresult {
    let mut world = world();
    let graph = world.handle();
    world.graphs.insert(graph, Vec::new());
    // SAFETY: see `give`.
    unsafe { give(to, CUgraph(raw(graph))) }
}
unsafe extern "C" fn graph_destroy(graph: CUgraph) -> CUresult {
    u32::from(world().graphs.remove(&(graph.0 as usize)).is_none())
}

/// Adds a node. Handles of nodes are their positions, from one on.
unsafe fn add(
    to: *mut CUgraphNode,
    graph: CUgraph,
    before: *const CUgraphNode,
    count: usize,
    op: Op,
) -> CUresult {
    let before: Vec<usize> = match count {
        0 => Vec::new(),
        // SAFETY: the caller gives as many as it says.
        _ => unsafe { std::slice::from_raw_parts(before, count) }.iter().map(|n| n.0 as usize - 1).collect(),
    };
    let mut world = world();
    let Some(nodes) = world.graphs.get_mut(&(graph.0 as usize)) else { return 400 };
    nodes.push((op, before));
    // SAFETY: see `give`.
    unsafe { give(to, CUgraphNode(raw(nodes.len()))) }
}
unsafe fn kernel_op(from: *const KernelNodeParams) -> Op {
    // SAFETY: the caller's promise.
    unsafe {
        let entry = entry((*from).func);
        Op::Kernel { entry, parameters: parameters(entry, (*from).kernel_params) }
    }
}
unsafe extern "C" fn add_kernel(
    to: *mut CUgraphNode,
    graph: CUgraph,
    before: *const CUgraphNode,
    count: usize,
    from: *const KernelNodeParams,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { add(to, graph, before, count, kernel_op(from)) }
}
unsafe extern "C" fn add_dependencies(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    _: *const GraphEdge,
    count: usize,
) -> CUresult {
    let mut world = world();
    let Some(nodes) = world.graphs.get_mut(&(graph.0 as usize)) else { return 400 };
    for at in 0..count {
        // SAFETY: the caller gives as many as it says.
        let (from, to) = unsafe { (*from.add(at), *to.add(at)) };
        nodes[to.0 as usize - 1].1.push(from.0 as usize - 1);
    }
    0
}
unsafe fn copy_op(from: *const Memcpy3d) -> Op {
    // SAFETY: the caller's promise.
    let from = unsafe { &*from };
    Op::Copy { to: from.dst_device, from: from.src_device, len: from.width_in_bytes }
}
unsafe extern "C" fn add_copy(
    to: *mut CUgraphNode,
    graph: CUgraph,
    before: *const CUgraphNode,
    count: usize,
    from: *const Memcpy3d,
    _: CUcontext,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { add(to, graph, before, count, copy_op(from)) }
}
unsafe fn clear_op(from: *const MemsetNodeParams) -> Op {
    // SAFETY: the caller's promise.
    let from = unsafe { &*from };
    assert_eq!((from.value, from.element_size, from.height), (0, 1, 1));
    Op::Clear { to: from.dst, len: from.width }
}
unsafe extern "C" fn add_clear(
    to: *mut CUgraphNode,
    graph: CUgraph,
    before: *const CUgraphNode,
    count: usize,
    from: *const MemsetNodeParams,
    _: CUcontext,
) -> CUresult {
    // SAFETY: the caller's promise.
    unsafe { add(to, graph, before, count, clear_op(from)) }
}
unsafe extern "C" fn instantiate(to: *mut CUgraphExec, graph: CUgraph, _: u64) -> CUresult {
    let mut world = world();
    let Some(nodes) = world.graphs.get(&(graph.0 as usize)).cloned() else { return 400 };
    let exec = world.handle();
    world.graphs.insert(exec, nodes);
    // SAFETY: see `give`.
    unsafe { give(to, CUgraphExec(raw(exec))) }
}
fn set_node(exec: CUgraphExec, node: CUgraphNode, op: Op) -> CUresult {
    let mut world = world();
    let Some(nodes) = world.graphs.get_mut(&(exec.0 as usize)) else { return 400 };
    let old = &mut nodes[node.0 as usize - 1].0;
    match (&*old, &op) {
        (Op::Kernel { .. }, Op::Kernel { .. }) | (Op::Copy { .. }, Op::Copy { .. }) => {}
        // The driver may reject a change of the width; this one does.
        (Op::Clear { len, .. }, Op::Clear { len: new, .. }) if len == new => {}
        _ => return CUDA_ERROR_INVALID_VALUE,
    }
    *old = op;
    0
}
unsafe extern "C" fn set_kernel(
    exec: CUgraphExec,
    node: CUgraphNode,
    from: *const KernelNodeParams,
) -> CUresult {
    // SAFETY: the caller's promise.
    set_node(exec, node, unsafe { kernel_op(from) })
}
unsafe extern "C" fn set_copy(
    exec: CUgraphExec,
    node: CUgraphNode,
    from: *const Memcpy3d,
    _: CUcontext,
) -> CUresult {
    // SAFETY: the caller's promise.
    set_node(exec, node, unsafe { copy_op(from) })
}
unsafe extern "C" fn set_clear(
    exec: CUgraphExec,
    node: CUgraphNode,
    from: *const MemsetNodeParams,
    _: CUcontext,
) -> CUresult {
    // SAFETY: the caller's promise.
    set_node(exec, node, unsafe { clear_op(from) })
}
unsafe extern "C" fn graph_launch(exec: CUgraphExec, on: CUstream) -> CUresult {
    let mut world = world();
    let Some(nodes) = world.graphs.get(&(exec.0 as usize)).cloned() else { return 400 };
    world.push(on, Op::Graph(nodes))
}
unsafe extern "C" fn exec_destroy(exec: CUgraphExec) -> CUresult {
    u32::from(world().graphs.remove(&(exec.0 as usize)).is_none())
}

/// The driver.
pub(crate) fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| Driver {
        init,
        driver_get_version: version,
        get_error_name: error_name,
        get_error_string: error_name,
        device_get_count: count,
        device_get: device,
        device_get_name: name,
        device_total_mem: total_mem,
        device_get_attribute: attribute,
        primary_ctx_retain: retain,
        primary_ctx_release: of_device,
        primary_ctx_reset: of_device,
        ctx_create,
        ctx_destroy,
        ctx_push_current: ctx_push,
        ctx_pop_current: ctx_pop,
        ctx_synchronize,
        mem_get_info: mem_info,
        mem_alloc,
        mem_free,
        mem_host_alloc,
        mem_free_host,
        memcpy_htod_async: copy_in,
        memcpy_dtoh_async: copy_out,
        memcpy_dtod_async: copy,
        memset_d8_async: memset,
        stream_create,
        stream_destroy,
        stream_synchronize,
        stream_wait_event: stream_wait,
        event_create,
        event_destroy,
        event_record,
        event_query,
        event_synchronize,
        event_elapsed_time: elapsed,
        module_load_data: module_load,
        module_unload,
        module_get_function: get_function,
        func_get_attribute: func_attribute,
        func_set_attribute: func_set,
        func_get_param_info: param_info,
        launch_kernel: launch,
        launch_kernel_ex: launch_ex,
        graph_create,
        graph_destroy,
        graph_add_kernel_node: add_kernel,
        graph_add_dependencies: add_dependencies,
        graph_add_memcpy_node: add_copy,
        graph_add_memset_node: add_clear,
        graph_instantiate: instantiate,
        graph_exec_kernel_node_set_params: set_kernel,
        graph_exec_memcpy_node_set_params: set_copy,
        graph_exec_memset_node_set_params: set_clear,
        graph_launch,
        graph_exec_destroy: exec_destroy,
        _library: None,
    })
}

unsafe extern "C" fn rtc_error(_: NvrtcResult) -> *const c_char {
    c"an error of the compiler".as_ptr()
}
unsafe extern "C" fn rtc_version(major: *mut c_int, minor: *mut c_int) -> NvrtcResult {
    // SAFETY: see `give`.
    unsafe { (give(major, 13) + give(minor, 0)) as NvrtcResult }
}
unsafe extern "C" fn arch_count(to: *mut c_int) -> NvrtcResult {
    // SAFETY: see `give`.
    unsafe { give(to, 1) as NvrtcResult }
}
unsafe extern "C" fn archs(to: *mut c_int) -> NvrtcResult {
    // SAFETY: there is room for the one that was counted.
    unsafe { give(to, 90) as NvrtcResult }
}
unsafe extern "C" fn create_program(
    to: *mut NvrtcProgram,
    text: *const c_char,
    _: *const c_char,
    _: c_int,
    _: *const *const c_char,
    _: *const *const c_char,
) -> NvrtcResult {
    // SAFETY: the compiler's texts end with a zero byte.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    let number = ONE.fetch_add(1, Ordering::Relaxed);
    world().programs.insert(number, text);
    // SAFETY: see `give`.
    unsafe { give(to, NvrtcProgram(raw(number))) as NvrtcResult }
}
unsafe extern "C" fn destroy_program(program: *mut NvrtcProgram) -> NvrtcResult {
    // SAFETY: the caller's promise.
    world().programs.remove(&(unsafe { (*program).0 } as usize));
    0
}
unsafe extern "C" fn add_expression(_: NvrtcProgram, _: *const c_char) -> NvrtcResult {
    0
}
unsafe extern "C" fn compile_program(_: NvrtcProgram, _: c_int, _: *const *const c_char) -> NvrtcResult {
    0
}
unsafe extern "C" fn code_size(program: NvrtcProgram, to: *mut usize) -> NvrtcResult {
    let len = world().programs.get(&(program.0 as usize)).map_or(0, String::len);
    // SAFETY: see `give`.
    unsafe { give(to, len + 1) as NvrtcResult }
}
unsafe extern "C" fn code(program: NvrtcProgram, to: *mut c_char) -> NvrtcResult {
    let text = world().programs.get(&(program.0 as usize)).cloned().unwrap_or_default();
    // SAFETY: there is room for as many bytes as `code_size` told.
    unsafe {
        text.as_ptr().cast::<c_char>().copy_to_nonoverlapping(to, text.len());
        give(to.add(text.len()), 0) as NvrtcResult
    }
}
unsafe extern "C" fn lowered(_: NvrtcProgram, name: *const c_char, to: *mut *const c_char) -> NvrtcResult {
    // SAFETY: see `give`.
    unsafe { give(to, name) as NvrtcResult }
}

/// The compiler, whose code is the text.
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

//! The driver's functions for devices, memory, streams, events, modules and launches.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use super::graph;
use super::state::{KERNELS, Op, SHARED_BY_DEFAULT, STATIC_SHARED, TOTAL, state};
use crate::sys::*;

const NOT_FOUND: CUresult = 500;

/// Stores a result at the address that the caller of the driver passed.
pub(super) unsafe fn store<T>(to: *mut T, value: T) -> CUresult {
    // SAFETY: callers of the driver pass an address for one value.
    unsafe { to.write(value) };
    0
}

pub(super) fn raw(number: usize) -> *mut c_void {
    number as *mut c_void
}

/// Copies the parameters of a launch.
pub(super) unsafe fn parameters(entry: usize, from: *mut *mut c_void) -> Vec<Vec<u8>> {
    let sizes = KERNELS[entry].1.iter().map(|(_, size)| *size);
    sizes
        .enumerate()
        // SAFETY: the caller passes the address of each parameter of the kernel.
        .map(|(at, size)| unsafe { std::slice::from_raw_parts((*from.add(at)).cast::<u8>(), size).to_vec() })
        .collect()
}

pub(super) fn entry(function: CUfunction) -> usize {
    function.0 as usize - 1
}

unsafe extern "C" fn init(_: c_uint) -> CUresult {
    0
}
unsafe extern "C" fn version(to: *mut c_int) -> CUresult {
    // SAFETY: see `store`.
    unsafe { store(to, 13000) }
}
unsafe extern "C" fn error_name(code: CUresult, to: *mut *const c_char) -> CUresult {
    let name: &CStr = match code {
        1 => c"CUDA_ERROR_INVALID_VALUE",
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        _ => c"CUDA_ERROR",
    };
    // SAFETY: see `store`.
    unsafe { store(to, name.as_ptr()) }
}
unsafe extern "C" fn count(to: *mut c_int) -> CUresult {
    // SAFETY: see `store`.
    unsafe { store(to, 1) }
}
unsafe extern "C" fn device(to: *mut CUdevice, _: c_int) -> CUresult {
    // SAFETY: see `store`.
    unsafe { store(to, 0) }
}
unsafe extern "C" fn name(to: *mut c_char, _: c_int, _: CUdevice) -> CUresult {
    // SAFETY: there is room for more than one byte.
    unsafe { store(to, 0) }
}
unsafe extern "C" fn total_mem(to: *mut usize, _: CUdevice) -> CUresult {
    // SAFETY: see `store`.
    unsafe { store(to, TOTAL) }
}
unsafe extern "C" fn attribute(to: *mut c_int, which: c_int, _: CUdevice) -> CUresult {
    let value = match which {
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => 9,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
        CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => 4,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => 64 << 10,
        _ => 0,
    };
    // SAFETY: see `store`.
    unsafe { store(to, value) }
}
unsafe extern "C" fn ctx_create(to: *mut CUcontext, _: c_uint, _: CUdevice) -> CUresult {
    // SAFETY: see `store`.
    unsafe { store(to, CUcontext(raw(1))) }
}
unsafe extern "C" fn ctx_destroy(_: CUcontext) -> CUresult {
    0
}
unsafe extern "C" fn ctx_push(_: CUcontext) -> CUresult {
    0
}
unsafe extern "C" fn ctx_pop(to: *mut CUcontext) -> CUresult {
    // SAFETY: see `store`.
    unsafe { store(to, CUcontext(raw(1))) }
}
unsafe extern "C" fn mem_info(free: *mut usize, total: *mut usize) -> CUresult {
    let used: usize = state().memory.values().map(Vec::len).sum();
    // SAFETY: see `store`.
    unsafe { store(free, TOTAL - used) + store(total, TOTAL) }
}
unsafe extern "C" fn mem_alloc(to: *mut CUdeviceptr, len: usize) -> CUresult {
    let mut state = state();
    let used: usize = state.memory.values().map(Vec::len).sum();
    if state.fault != 0 {
        return state.fault;
    }
    if used + len > TOTAL {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    let end = state.memory.last_key_value().map_or(1 << 20, |(at, block)| at + block.len() as u64);
    let at = (end + 4096).next_multiple_of(512);
    state.memory.insert(at, vec![0xa5; len]);
    // SAFETY: see `store`.
    unsafe { store(to, at) }
}
unsafe extern "C" fn mem_free(at: CUdeviceptr) -> CUresult {
    u32::from(state().memory.remove(&at).is_none())
}
unsafe extern "C" fn mem_host_alloc(to: *mut *mut c_void, len: usize, _: c_uint) -> CUresult {
    let mut memory = vec![0u64; len.div_ceil(8)];
    let at: *mut c_void = memory.as_mut_ptr().cast();
    state().host.insert(at as usize, memory);
    // SAFETY: see `store`.
    unsafe { store(to, at) }
}
unsafe extern "C" fn mem_free_host(at: *mut c_void) -> CUresult {
    u32::from(state().host.remove(&(at as usize)).is_none())
}
unsafe extern "C" fn copy_in(to: CUdeviceptr, from: *const c_void, len: usize, on: CUstream) -> CUresult {
    state().push(on, Op::In { to, from: from as usize, len })
}
unsafe extern "C" fn copy_out(to: *mut c_void, from: CUdeviceptr, len: usize, on: CUstream) -> CUresult {
    state().push(on, Op::Out { to: to as usize, from, len })
}
unsafe extern "C" fn copy(to: CUdeviceptr, from: CUdeviceptr, len: usize, on: CUstream) -> CUresult {
    state().push(on, Op::Copy { to, from, len })
}
unsafe extern "C" fn memset(to: CUdeviceptr, value: u8, len: usize, on: CUstream) -> CUresult {
    assert_eq!(value, 0);
    state().push(on, Op::Clear { to, len })
}
unsafe extern "C" fn stream_create(to: *mut CUstream, _: c_uint) -> CUresult {
    let mut state = state();
    let stream = state.handle();
    state.streams.insert(stream, VecDeque::new());
    // SAFETY: see `store`.
    unsafe { store(to, CUstream(raw(stream))) }
}
unsafe extern "C" fn stream_destroy(stream: CUstream) -> CUresult {
    u32::from(state().streams.remove(&(stream.0 as usize)).is_none())
}
unsafe extern "C" fn stream_synchronize(stream: CUstream) -> CUresult {
    let mut state = state();
    while state.streams.get(&(stream.0 as usize)).is_some_and(|queue| !queue.is_empty()) {
        if !state.advance() {
            break;
        }
    }
    state.fault
}
unsafe extern "C" fn stream_wait(stream: CUstream, event: CUevent, _: c_uint) -> CUresult {
    let mut state = state();
    let event = event.0 as usize;
    let number = state.events.get(&event).map_or(0, |state| state.0);
    state.push(stream, Op::Wait(event, number))
}
unsafe extern "C" fn event_create(to: *mut CUevent, _: c_uint) -> CUresult {
    let mut state = state();
    let event = state.handle();
    state.events.insert(event, (0, 0));
    // SAFETY: see `store`.
    unsafe { store(to, CUevent(raw(event))) }
}
unsafe extern "C" fn event_destroy(event: CUevent) -> CUresult {
    u32::from(state().events.remove(&(event.0 as usize)).is_none())
}
unsafe extern "C" fn event_record(event: CUevent, stream: CUstream) -> CUresult {
    let mut state = state();
    let event = event.0 as usize;
    let Some((recorded, _)) = state.events.get_mut(&event) else { return 400 };
    *recorded += 1;
    let number = *recorded;
    state.push(stream, Op::Record(event, number))
}
unsafe extern "C" fn event_query(event: CUevent) -> CUresult {
    let mut state = state();
    for _ in 0..state.below(4) {
        state.advance();
    }
    match (state.fault, state.done(event.0 as usize)) {
        (0, true) => 0,
        (0, false) => CUDA_ERROR_NOT_READY,
        (fault, _) => fault,
    }
}
unsafe extern "C" fn event_synchronize(event: CUevent) -> CUresult {
    let mut state = state();
    while !state.done(event.0 as usize) {
        if !state.advance() {
            // Nothing can run: a real wait would never return.
            return if state.fault == 0 { 999 } else { state.fault };
        }
    }
    state.fault
}
unsafe extern "C" fn elapsed(_: *mut f32, _: CUevent, _: CUevent) -> CUresult {
    801
}
unsafe extern "C" fn module_load(to: *mut CUmodule, image: *const c_void) -> CUresult {
    // SAFETY: images of the fake compiler end with a zero byte.
    let text = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy().into_owned();
    let mut state = state();
    let module = state.handle();
    state.modules.insert(module, text);
    // SAFETY: see `store`.
    unsafe { store(to, CUmodule(raw(module))) }
}
unsafe extern "C" fn module_unload(module: CUmodule) -> CUresult {
    u32::from(state().modules.remove(&(module.0 as usize)).is_none())
}
unsafe extern "C" fn get_function(to: *mut CUfunction, _: CUmodule, name: *const c_char) -> CUresult {
    // SAFETY: names passed to the driver end with a zero byte.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    match KERNELS.iter().position(|kernel| kernel.0 == name) {
        // SAFETY: see `store`.
        Some(at) => unsafe { store(to, CUfunction(raw(at + 1))) },
        None => NOT_FOUND,
    }
}
unsafe extern "C" fn func_attribute(to: *mut c_int, which: c_int, _: CUfunction) -> CUresult {
    let value = match which {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => STATIC_SHARED as c_int,
        _ => 0,
    };
    // SAFETY: see `store`.
    unsafe { store(to, value) }
}
unsafe extern "C" fn func_set(f: CUfunction, which: c_int, value: c_int) -> CUresult {
    if which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES {
        state().shared.insert(entry(f), value as usize);
    }
    0
}
unsafe extern "C" fn param_info(f: CUfunction, at: usize, offset: *mut usize, size: *mut usize) -> CUresult {
    match KERNELS[entry(f)].1.get(at) {
        // SAFETY: see `store`.
        Some(known) => unsafe { store(offset, known.0) + store(size, known.1) },
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
    shared: c_uint,
    on: CUstream,
    from: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CUresult {
    let allowed = state().shared.get(&entry(f)).copied().unwrap_or(SHARED_BY_DEFAULT - STATIC_SHARED);
    if shared as usize > allowed {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: upheld by the caller.
    let parameters = unsafe { parameters(entry(f), from) };
    state().push(on, Op::Kernel { entry: entry(f), parameters })
}
unsafe extern "C" fn launch_ex(
    config: *const LaunchConfig,
    f: CUfunction,
    from: *mut *mut c_void,
    _: *mut *mut c_void,
) -> CUresult {
    // SAFETY: upheld by the caller.
    let (parameters, stream) = unsafe { (parameters(entry(f), from), (*config).stream) };
    state().push(stream, Op::Kernel { entry: entry(f), parameters })
}

/// The table of the fake driver.
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
        ctx_create,
        ctx_destroy,
        ctx_push_current: ctx_push,
        ctx_pop_current: ctx_pop,
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
        graph_create: graph::create,
        graph_destroy: graph::destroy,
        graph_add_kernel_node: graph::add_kernel,
        graph_add_dependencies: graph::add_dependencies,
        graph_add_memcpy_node: graph::add_copy,
        graph_add_memset_node: graph::add_clear,
        graph_instantiate: graph::instantiate,
        graph_exec_kernel_node_set_params: graph::set_kernel,
        graph_exec_memcpy_node_set_params: graph::set_copy,
        graph_exec_memset_node_set_params: graph::set_clear,
        graph_launch: graph::launch,
        graph_exec_destroy: graph::exec_destroy,
        _library: None,
    })
}

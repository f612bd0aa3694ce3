//! The functions of the CUDA libraries, as they export them.
//!
//! Nothing is linked: [`Driver`], [`Nvrtc`], [`CublasLt`], [`Cudnn`] and [`Cusolver`] are tables of function
//! pointers, filled from libraries that are found at run time (see [`crate::library`]). Only functions that
//! this crate calls are listed. Names, numbers and layouts are those of NVIDIA's headers for CUDA 12.4 and
//! later, 64-bit.
#![allow(missing_docs, reason = "names and meanings are those of the CUDA driver API and of NVRTC")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;

pub type CUresult = c_uint;
pub type NvrtcResult = c_int;
pub type CUdevice = c_int;
pub type CUdeviceptr = u64;

macro_rules! handles {
    ($($name:ident),*) => {$(
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub *mut c_void);

        impl $name {
            pub const NULL: $name = $name(std::ptr::null_mut());
        }

        // SAFETY: a handle is a number; any thread may call the driver.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
    )*};
}

handles!(CUcontext, CUstream, CUevent, CUmodule, CUfunction, CUgraph, CUgraphExec, CUgraphNode, NvrtcProgram);

pub const CUDA_SUCCESS: CUresult = 0;
pub const CUDA_ERROR_INVALID_VALUE: CUresult = 1;
pub const CUDA_ERROR_OUT_OF_MEMORY: CUresult = 2;
pub const CUDA_ERROR_NOT_READY: CUresult = 600;

pub const CU_CTX_SCHED_BLOCKING_SYNC: c_uint = 4;
pub const CU_STREAM_NON_BLOCKING: c_uint = 1;
pub const CU_EVENT_DEFAULT: c_uint = 0;
pub const CU_EVENT_BLOCKING_SYNC: c_uint = 1;
pub const CU_EVENT_DISABLE_TIMING: c_uint = 2;
pub const CU_MEMHOSTALLOC_PORTABLE: c_uint = 1;
pub const CU_MEMORYTYPE_DEVICE: c_uint = 2;

pub const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: c_int = 1;
pub const CU_DEVICE_ATTRIBUTE_WARP_SIZE: c_int = 10;
pub const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: c_int = 16;
pub const CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: c_int = 38;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: c_int = 75;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: c_int = 76;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: c_int = 97;

pub const CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: c_int = 0;
pub const CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: c_int = 1;
pub const CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: c_int = 3;
pub const CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH: c_int = 11;
pub const CU_FUNC_ATTRIBUTE_NUM_REGS: c_int = 4;
pub const CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;

/// `CUDA_KERNEL_NODE_PARAMS_v2`; the first fields are version 1.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KernelNodeParams {
    pub func: CUfunction,
    pub grid_dim: [c_uint; 3],
    pub block_dim: [c_uint; 3],
    pub shared_mem_bytes: c_uint,
    pub kernel_params: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kern: *mut c_void,
    pub ctx: CUcontext,
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LaunchConfig {
    pub grid_dim: [c_uint; 3],
    pub block_dim: [c_uint; 3],
    pub shared_mem_bytes: c_uint,
    pub stream: CUstream,
    pub attributes: *const LaunchAttribute,
    pub count: c_uint,
}

/// `CUlaunchAttribute` with a numeric value.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub struct LaunchAttribute {
    pub id: c_uint,
    pub padding: [u8; 4],
    pub value: [c_int; 16],
}

impl LaunchAttribute {
    /// The kernel waits itself for the previous kernel on the stream
    /// (`CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`).
    pub const PROGRAMMATIC: LaunchAttribute = {
        let mut value = [0; 16];
        value[0] = 1;
        LaunchAttribute { id: 6, padding: [0; 4], value }
    };
}

/// `CUgraphEdgeData`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct GraphEdge {
    pub from_port: u8,
    pub to_port: u8,
    pub kind: u8,
    pub reserved: [u8; 5],
}

impl GraphEdge {
    /// From the point where a kernel allows dependents to start (`CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC`) to
    /// a kernel that waits itself (`CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC`).
    pub const PROGRAMMATIC: GraphEdge = GraphEdge { from_port: 1, to_port: 0, kind: 1, reserved: [0; 5] };
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Memcpy3d {
    pub src_x_in_bytes: usize,
    pub src_y: usize,
    pub src_z: usize,
    pub src_lod: usize,
    pub src_memory_type: c_uint,
    pub src_host: *const c_void,
    pub src_device: CUdeviceptr,
    pub src_array: *mut c_void,
    pub reserved0: *mut c_void,
    pub src_pitch: usize,
    pub src_height: usize,
    pub dst_x_in_bytes: usize,
    pub dst_y: usize,
    pub dst_z: usize,
    pub dst_lod: usize,
    pub dst_memory_type: c_uint,
    pub dst_host: *mut c_void,
    pub dst_device: CUdeviceptr,
    pub dst_array: *mut c_void,
    pub reserved1: *mut c_void,
    pub dst_pitch: usize,
    pub dst_height: usize,
    pub width_in_bytes: usize,
    pub height: usize,
    pub depth: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MemsetNodeParams {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: c_uint,
    pub element_size: c_uint,
    pub width: usize,
    pub height: usize,
}

/// Declares a table of functions and its loader.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($field:ident: [$($symbol:literal),+] ($($arg:ty),*) -> $ret:ty;)* }) => {
        $(#[$doc])*
        pub struct $name {
            $(pub $field: unsafe extern "C" fn($($arg),*) -> $ret,)*
            /// `None` for a table that does not own its library.
            pub(crate) _library: Option<Library>,
        }

        impl $name {
            /// Fills the table, which keeps the library. The error is the name of the first missing function.
            ///
            /// # Safety
            /// The library exports these functions.
            pub unsafe fn load(library: Library) -> Result<Self, &'static str> {
                Ok($name {
                    $($field: {
                        let mut found = None;
                        for symbol in [$(concat!($symbol, "\0")),+] {
                            // SAFETY: upheld by the caller; the signature is that of the header.
                            let symbol = unsafe {
                                library.get::<unsafe extern "C" fn($($arg),*) -> $ret>(symbol.as_bytes())
                            };
                            if let Ok(symbol) = symbol {
                                found = Some(*symbol);
                                break;
                            }
                        }
                        found.ok_or([$($symbol),+][0])?
                    },)*
                    _library: Some(library),
                })
            }
        }

        impl $name {
            /// A copy of the table that does not own the library.
            #[allow(dead_code, reason = "not every table is copied")]
            pub(crate) fn copied(&'static self) -> Self {
                $name { $($field: self.$field,)* _library: None }
            }
        }
    };
}

table! {
    /// The driver's functions (`libcuda`).
    Driver {
        init: ["cuInit"] (c_uint) -> CUresult;
        driver_get_version: ["cuDriverGetVersion"] (*mut c_int) -> CUresult;
        get_error_name: ["cuGetErrorName"] (CUresult, *mut *const c_char) -> CUresult;
        get_error_string: ["cuGetErrorString"] (CUresult, *mut *const c_char) -> CUresult;
        device_get_count: ["cuDeviceGetCount"] (*mut c_int) -> CUresult;
        device_get: ["cuDeviceGet"] (*mut CUdevice, c_int) -> CUresult;
        device_get_name: ["cuDeviceGetName"] (*mut c_char, c_int, CUdevice) -> CUresult;
        device_total_mem: ["cuDeviceTotalMem_v2"] (*mut usize, CUdevice) -> CUresult;
        device_get_attribute: ["cuDeviceGetAttribute"] (*mut c_int, c_int, CUdevice) -> CUresult;
        ctx_create: ["cuCtxCreate_v2"] (*mut CUcontext, c_uint, CUdevice) -> CUresult;
        ctx_destroy: ["cuCtxDestroy_v2"] (CUcontext) -> CUresult;
        ctx_push_current: ["cuCtxPushCurrent_v2"] (CUcontext) -> CUresult;
        ctx_pop_current: ["cuCtxPopCurrent_v2"] (*mut CUcontext) -> CUresult;
        mem_get_info: ["cuMemGetInfo_v2"] (*mut usize, *mut usize) -> CUresult;
        mem_alloc: ["cuMemAlloc_v2"] (*mut CUdeviceptr, usize) -> CUresult;
        mem_free: ["cuMemFree_v2"] (CUdeviceptr) -> CUresult;
        mem_host_alloc: ["cuMemHostAlloc"] (*mut *mut c_void, usize, c_uint) -> CUresult;
        mem_free_host: ["cuMemFreeHost"] (*mut c_void) -> CUresult;
        memcpy_htod_async: ["cuMemcpyHtoDAsync_v2"] (CUdeviceptr, *const c_void, usize, CUstream) -> CUresult;
        memcpy_dtoh_async: ["cuMemcpyDtoHAsync_v2"] (*mut c_void, CUdeviceptr, usize, CUstream) -> CUresult;
        memcpy_dtod_async: ["cuMemcpyDtoDAsync_v2"] (CUdeviceptr, CUdeviceptr, usize, CUstream) -> CUresult;
        memset_d8_async: ["cuMemsetD8Async"] (CUdeviceptr, u8, usize, CUstream) -> CUresult;
        stream_create: ["cuStreamCreate"] (*mut CUstream, c_uint) -> CUresult;
        stream_destroy: ["cuStreamDestroy_v2"] (CUstream) -> CUresult;
        stream_synchronize: ["cuStreamSynchronize"] (CUstream) -> CUresult;
        stream_wait_event: ["cuStreamWaitEvent"] (CUstream, CUevent, c_uint) -> CUresult;
        event_create: ["cuEventCreate"] (*mut CUevent, c_uint) -> CUresult;
        event_destroy: ["cuEventDestroy_v2"] (CUevent) -> CUresult;
        event_record: ["cuEventRecord"] (CUevent, CUstream) -> CUresult;
        event_query: ["cuEventQuery"] (CUevent) -> CUresult;
        event_synchronize: ["cuEventSynchronize"] (CUevent) -> CUresult;
        event_elapsed_time: ["cuEventElapsedTime", "cuEventElapsedTime_v2"]
            (*mut f32, CUevent, CUevent) -> CUresult;
        module_load_data: ["cuModuleLoadData"] (*mut CUmodule, *const c_void) -> CUresult;
        module_unload: ["cuModuleUnload"] (CUmodule) -> CUresult;
        module_get_function: ["cuModuleGetFunction"] (*mut CUfunction, CUmodule, *const c_char) -> CUresult;
        func_get_attribute: ["cuFuncGetAttribute"] (*mut c_int, c_int, CUfunction) -> CUresult;
        func_set_attribute: ["cuFuncSetAttribute"] (CUfunction, c_int, c_int) -> CUresult;
        func_get_param_info: ["cuFuncGetParamInfo"] (CUfunction, usize, *mut usize, *mut usize) -> CUresult;
        launch_kernel: ["cuLaunchKernel"]
            (CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream,
             *mut *mut c_void, *mut *mut c_void) -> CUresult;
        launch_kernel_ex: ["cuLaunchKernelEx"]
            (*const LaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void) -> CUresult;
        graph_create: ["cuGraphCreate"] (*mut CUgraph, c_uint) -> CUresult;
        graph_destroy: ["cuGraphDestroy"] (CUgraph) -> CUresult;
        graph_add_kernel_node: ["cuGraphAddKernelNode_v2", "cuGraphAddKernelNode"]
            (*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const KernelNodeParams) -> CUresult;
        graph_add_dependencies: ["cuGraphAddDependencies_v2"]
            (CUgraph, *const CUgraphNode, *const CUgraphNode, *const GraphEdge, usize) -> CUresult;
        graph_add_memcpy_node: ["cuGraphAddMemcpyNode"]
            (*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const Memcpy3d, CUcontext) -> CUresult;
        graph_add_memset_node: ["cuGraphAddMemsetNode"]
            (*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const MemsetNodeParams, CUcontext) -> CUresult;
        graph_instantiate: ["cuGraphInstantiateWithFlags"] (*mut CUgraphExec, CUgraph, u64) -> CUresult;
        graph_exec_kernel_node_set_params: ["cuGraphExecKernelNodeSetParams_v2", "cuGraphExecKernelNodeSetParams"]
            (CUgraphExec, CUgraphNode, *const KernelNodeParams) -> CUresult;
        graph_exec_memcpy_node_set_params: ["cuGraphExecMemcpyNodeSetParams"]
            (CUgraphExec, CUgraphNode, *const Memcpy3d, CUcontext) -> CUresult;
        graph_exec_memset_node_set_params: ["cuGraphExecMemsetNodeSetParams"]
            (CUgraphExec, CUgraphNode, *const MemsetNodeParams, CUcontext) -> CUresult;
        graph_launch: ["cuGraphLaunch"] (CUgraphExec, CUstream) -> CUresult;
        graph_exec_destroy: ["cuGraphExecDestroy"] (CUgraphExec) -> CUresult;
    }
}

table! {
    /// The run-time compiler's functions (`libnvrtc`).
    Nvrtc {
        get_error_string: ["nvrtcGetErrorString"] (NvrtcResult) -> *const c_char;
        version: ["nvrtcVersion"] (*mut c_int, *mut c_int) -> NvrtcResult;
        num_supported_archs: ["nvrtcGetNumSupportedArchs"] (*mut c_int) -> NvrtcResult;
        supported_archs: ["nvrtcGetSupportedArchs"] (*mut c_int) -> NvrtcResult;
        create_program: ["nvrtcCreateProgram"]
            (*mut NvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char)
            -> NvrtcResult;
        destroy_program: ["nvrtcDestroyProgram"] (*mut NvrtcProgram) -> NvrtcResult;
        add_name_expression: ["nvrtcAddNameExpression"] (NvrtcProgram, *const c_char) -> NvrtcResult;
        compile_program: ["nvrtcCompileProgram"] (NvrtcProgram, c_int, *const *const c_char) -> NvrtcResult;
        program_log_size: ["nvrtcGetProgramLogSize"] (NvrtcProgram, *mut usize) -> NvrtcResult;
        program_log: ["nvrtcGetProgramLog"] (NvrtcProgram, *mut c_char) -> NvrtcResult;
        lowered_name: ["nvrtcGetLoweredName"] (NvrtcProgram, *const c_char, *mut *const c_char) -> NvrtcResult;
        cubin_size: ["nvrtcGetCUBINSize"] (NvrtcProgram, *mut usize) -> NvrtcResult;
        cubin: ["nvrtcGetCUBIN"] (NvrtcProgram, *mut c_char) -> NvrtcResult;
        ptx_size: ["nvrtcGetPTXSize"] (NvrtcProgram, *mut usize) -> NvrtcResult;
        ptx: ["nvrtcGetPTX"] (NvrtcProgram, *mut c_char) -> NvrtcResult;
    }
}

table! {
    /// The functions for matrix products (`libcublasLt`).
    CublasLt {
        create: ["cublasLtCreate"] (*mut *mut c_void) -> c_int;
        destroy: ["cublasLtDestroy"] (*mut c_void) -> c_int;
        desc_create: ["cublasLtMatmulDescCreate"] (*mut *mut c_void, c_int, c_int) -> c_int;
        desc_set: ["cublasLtMatmulDescSetAttribute"] (*mut c_void, c_int, *const c_void, usize) -> c_int;
        desc_destroy: ["cublasLtMatmulDescDestroy"] (*mut c_void) -> c_int;
        layout_create: ["cublasLtMatrixLayoutCreate"] (*mut *mut c_void, c_int, u64, u64, i64) -> c_int;
        layout_set: ["cublasLtMatrixLayoutSetAttribute"] (*mut c_void, c_int, *const c_void, usize) -> c_int;
        layout_destroy: ["cublasLtMatrixLayoutDestroy"] (*mut c_void) -> c_int;
        preference_create: ["cublasLtMatmulPreferenceCreate"] (*mut *mut c_void) -> c_int;
        preference_set: ["cublasLtMatmulPreferenceSetAttribute"]
            (*mut c_void, c_int, *const c_void, usize) -> c_int;
        preference_destroy: ["cublasLtMatmulPreferenceDestroy"] (*mut c_void) -> c_int;
        heuristic: ["cublasLtMatmulAlgoGetHeuristic"]
            (*mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, c_int,
             *mut c_void, *mut c_int) -> c_int;
        matmul: ["cublasLtMatmul"]
            (*mut c_void, *mut c_void, *const c_void, *const c_void, *mut c_void, *const c_void, *mut c_void,
             *const c_void, *const c_void, *mut c_void, *mut c_void, *mut c_void, *const c_void, *mut c_void,
             usize, *mut c_void) -> c_int;
    }
}

table! {
    /// The functions for graphs of tensor operations (`libcudnn`).
    Cudnn {
        create: ["cudnnCreate"] (*mut *mut c_void) -> c_int;
        destroy: ["cudnnDestroy"] (*mut c_void) -> c_int;
        set_stream: ["cudnnSetStream"] (*mut c_void, *mut c_void) -> c_int;
        create_descriptor: ["cudnnBackendCreateDescriptor"] (c_int, *mut *mut c_void) -> c_int;
        destroy_descriptor: ["cudnnBackendDestroyDescriptor"] (*mut c_void) -> c_int;
        finalize: ["cudnnBackendFinalize"] (*mut c_void) -> c_int;
        set_attribute: ["cudnnBackendSetAttribute"] (*mut c_void, c_int, c_int, i64, *const c_void) -> c_int;
        get_attribute: ["cudnnBackendGetAttribute"]
            (*mut c_void, c_int, c_int, i64, *mut i64, *mut c_void) -> c_int;
        execute: ["cudnnBackendExecute"] (*mut c_void, *mut c_void, *mut c_void) -> c_int;
    }
}

table! {
    /// The functions for dense matrices (`libcusolver`). Pointers to elements are untyped: the functions for
    /// each type have one signature.
    Cusolver {
        create: ["cusolverDnCreate"] (*mut *mut c_void) -> c_int;
        destroy: ["cusolverDnDestroy"] (*mut c_void) -> c_int;
        set_stream: ["cusolverDnSetStream"] (*mut c_void, *mut c_void) -> c_int;
        create_params: ["cusolverDnCreateParams"] (*mut *mut c_void) -> c_int;
        destroy_params: ["cusolverDnDestroyParams"] (*mut c_void) -> c_int;
        create_gesvdj_info: ["cusolverDnCreateGesvdjInfo"] (*mut *mut c_void) -> c_int;
        destroy_gesvdj_info: ["cusolverDnDestroyGesvdjInfo"] (*mut c_void) -> c_int;
        create_syevj_info: ["cusolverDnCreateSyevjInfo"] (*mut *mut c_void) -> c_int;
        destroy_syevj_info: ["cusolverDnDestroySyevjInfo"] (*mut c_void) -> c_int;
        potrf_size: ["cusolverDnXpotrf_bufferSize"]
            (*mut c_void, *mut c_void, c_int, i64, c_int, *const c_void, i64, c_int, *mut usize, *mut usize) -> c_int;
        potrf: ["cusolverDnXpotrf"]
            (*mut c_void, *mut c_void, c_int, i64, c_int, *mut c_void, i64, c_int, *mut c_void, usize, *mut c_void,
             usize, *mut c_int) -> c_int;
        getrf_size: ["cusolverDnXgetrf_bufferSize"]
            (*mut c_void, *mut c_void, i64, i64, c_int, *const c_void, i64, c_int, *mut usize, *mut usize) -> c_int;
        getrf: ["cusolverDnXgetrf"]
            (*mut c_void, *mut c_void, i64, i64, c_int, *mut c_void, i64, *mut i64, c_int, *mut c_void, usize,
             *mut c_void, usize, *mut c_int) -> c_int;
        getrs: ["cusolverDnXgetrs"]
            (*mut c_void, *mut c_void, c_int, i64, i64, c_int, *const c_void, i64, *const i64, c_int, *mut c_void,
             i64, *mut c_int) -> c_int;
        geqrf_size: ["cusolverDnXgeqrf_bufferSize"]
            (*mut c_void, *mut c_void, i64, i64, c_int, *const c_void, i64, c_int, *const c_void, c_int, *mut usize,
             *mut usize) -> c_int;
        geqrf: ["cusolverDnXgeqrf"]
            (*mut c_void, *mut c_void, i64, i64, c_int, *mut c_void, i64, c_int, *mut c_void, c_int, *mut c_void,
             usize, *mut c_void, usize, *mut c_int) -> c_int;
        syevd_size: ["cusolverDnXsyevd_bufferSize"]
            (*mut c_void, *mut c_void, c_int, c_int, i64, c_int, *const c_void, i64, c_int, *const c_void, c_int,
             *mut usize, *mut usize) -> c_int;
        syevd: ["cusolverDnXsyevd"]
            (*mut c_void, *mut c_void, c_int, c_int, i64, c_int, *mut c_void, i64, c_int, *mut c_void, c_int,
             *mut c_void, usize, *mut c_void, usize, *mut c_int) -> c_int;
        s_potrf_batched: ["cusolverDnSpotrfBatched"]
            (*mut c_void, c_int, c_int, *mut *mut c_void, c_int, *mut c_int, c_int) -> c_int;
        s_orgqr_size: ["cusolverDnSorgqr_bufferSize"]
            (*mut c_void, c_int, c_int, c_int, *const c_void, c_int, *const c_void, *mut c_int) -> c_int;
        s_orgqr: ["cusolverDnSorgqr"]
            (*mut c_void, c_int, c_int, c_int, *mut c_void, c_int, *const c_void, *mut c_void, c_int, *mut c_int)
            -> c_int;
        s_gesvdj_size: ["cusolverDnSgesvdj_bufferSize"]
            (*mut c_void, c_int, c_int, c_int, c_int, *const c_void, c_int, *const c_void, *const c_void, c_int,
             *const c_void, c_int, *mut c_int, *mut c_void) -> c_int;
        s_gesvdj: ["cusolverDnSgesvdj"]
            (*mut c_void, c_int, c_int, c_int, c_int, *mut c_void, c_int, *mut c_void, *mut c_void, c_int,
             *mut c_void, c_int, *mut c_void, c_int, *mut c_int, *mut c_void) -> c_int;
        s_gesvdj_batched_size: ["cusolverDnSgesvdjBatched_bufferSize"]
            (*mut c_void, c_int, c_int, c_int, *const c_void, c_int, *const c_void, *const c_void, c_int,
             *const c_void, c_int, *mut c_int, *mut c_void, c_int) -> c_int;
        s_gesvdj_batched: ["cusolverDnSgesvdjBatched"]
            (*mut c_void, c_int, c_int, c_int, *mut c_void, c_int, *mut c_void, *mut c_void, c_int, *mut c_void,
             c_int, *mut c_void, c_int, *mut c_int, *mut c_void, c_int) -> c_int;
        d_potrf_batched: ["cusolverDnDpotrfBatched"]
            (*mut c_void, c_int, c_int, *mut *mut c_void, c_int, *mut c_int, c_int) -> c_int;
        d_orgqr_size: ["cusolverDnDorgqr_bufferSize"]
            (*mut c_void, c_int, c_int, c_int, *const c_void, c_int, *const c_void, *mut c_int) -> c_int;
        d_orgqr: ["cusolverDnDorgqr"]
            (*mut c_void, c_int, c_int, c_int, *mut c_void, c_int, *const c_void, *mut c_void, c_int, *mut c_int)
            -> c_int;
        d_gesvdj_size: ["cusolverDnDgesvdj_bufferSize"]
            (*mut c_void, c_int, c_int, c_int, c_int, *const c_void, c_int, *const c_void, *const c_void, c_int,
             *const c_void, c_int, *mut c_int, *mut c_void) -> c_int;
        d_gesvdj: ["cusolverDnDgesvdj"]
            (*mut c_void, c_int, c_int, c_int, c_int, *mut c_void, c_int, *mut c_void, *mut c_void, c_int,
             *mut c_void, c_int, *mut c_void, c_int, *mut c_int, *mut c_void) -> c_int;
        d_gesvdj_batched_size: ["cusolverDnDgesvdjBatched_bufferSize"]
            (*mut c_void, c_int, c_int, c_int, *const c_void, c_int, *const c_void, *const c_void, c_int,
             *const c_void, c_int, *mut c_int, *mut c_void, c_int) -> c_int;
        d_gesvdj_batched: ["cusolverDnDgesvdjBatched"]
            (*mut c_void, c_int, c_int, c_int, *mut c_void, c_int, *mut c_void, *mut c_void, c_int, *mut c_void,
             c_int, *mut c_void, c_int, *mut c_int, *mut c_void, c_int) -> c_int;
        c_potrf_batched: ["cusolverDnCpotrfBatched"]
            (*mut c_void, c_int, c_int, *mut *mut c_void, c_int, *mut c_int, c_int) -> c_int;
        c_orgqr_size: ["cusolverDnCungqr_bufferSize"]
            (*mut c_void, c_int, c_int, c_int, *const c_void, c_int, *const c_void, *mut c_int) -> c_int;
        c_orgqr: ["cusolverDnCungqr"]
            (*mut c_void, c_int, c_int, c_int, *mut c_void, c_int, *const c_void, *mut c_void, c_int, *mut c_int)
            -> c_int;
        c_gesvdj_size: ["cusolverDnCgesvdj_bufferSize"]
            (*mut c_void, c_int, c_int, c_int, c_int, *const c_void, c_int, *const c_void, *const c_void, c_int,
             *const c_void, c_int, *mut c_int, *mut c_void) -> c_int;
        c_gesvdj: ["cusolverDnCgesvdj"]
            (*mut c_void, c_int, c_int, c_int, c_int, *mut c_void, c_int, *mut c_void, *mut c_void, c_int,
             *mut c_void, c_int, *mut c_void, c_int, *mut c_int, *mut c_void) -> c_int;
        c_gesvdj_batched_size: ["cusolverDnCgesvdjBatched_bufferSize"]
            (*mut c_void, c_int, c_int, c_int, *const c_void, c_int, *const c_void, *const c_void, c_int,
             *const c_void, c_int, *mut c_int, *mut c_void, c_int) -> c_int;
        c_gesvdj_batched: ["cusolverDnCgesvdjBatched"]
            (*mut c_void, c_int, c_int, c_int, *mut c_void, c_int, *mut c_void, *mut c_void, c_int, *mut c_void,
             c_int, *mut c_void, c_int, *mut c_int, *mut c_void, c_int) -> c_int;
        s_syevj_batched_size: ["cusolverDnSsyevjBatched_bufferSize"]
            (*mut c_void, c_int, c_int, c_int, *const c_void, c_int, *const c_void, *mut c_int, *mut c_void, c_int)
            -> c_int;
        s_syevj_batched: ["cusolverDnSsyevjBatched"]
            (*mut c_void, c_int, c_int, c_int, *mut c_void, c_int, *mut c_void, *mut c_void, c_int, *mut c_int,
             *mut c_void, c_int) -> c_int;
        d_syevj_batched_size: ["cusolverDnDsyevjBatched_bufferSize"]
            (*mut c_void, c_int, c_int, c_int, *const c_void, c_int, *const c_void, *mut c_int, *mut c_void, c_int)
            -> c_int;
        d_syevj_batched: ["cusolverDnDsyevjBatched"]
            (*mut c_void, c_int, c_int, c_int, *mut c_void, c_int, *mut c_void, *mut c_void, c_int, *mut c_int,
             *mut c_void, c_int) -> c_int;
        c_syevj_batched_size: ["cusolverDnCheevjBatched_bufferSize"]
            (*mut c_void, c_int, c_int, c_int, *const c_void, c_int, *const c_void, *mut c_int, *mut c_void, c_int)
            -> c_int;
        c_syevj_batched: ["cusolverDnCheevjBatched"]
            (*mut c_void, c_int, c_int, c_int, *mut c_void, c_int, *mut c_void, *mut c_void, c_int, *mut c_int,
             *mut c_void, c_int) -> c_int;
    }
}

//! What a kernel's body may name and declare.

use crate::ir::Builtin;

/// Bytes of threadgroup memory a kernel may declare.
pub const MAX_THREADGROUP_MEMORY: u64 = 32 << 10;

/// Bytes that the threadgroup arguments of a kernel share in equal parts until the host sets their lengths
/// ([`MemVar::argument`](crate::ir::MemVar)).
pub const THREADGROUP_ARGUMENTS: u64 = 16 << 10;

/// Thread positions and sizes that a body may name: name, meaning, number of components.
pub const ATTRIBUTES: [(&str, Builtin, u8); 19] = [
    ("dispatch_quadgroups_per_threadgroup", Builtin::DispatchQuadgroupsPerThreadgroup, 1),
    ("dispatch_simdgroups_per_threadgroup", Builtin::DispatchSimdgroupsPerThreadgroup, 1),
    ("dispatch_threads_per_threadgroup", Builtin::DispatchThreadsPerThreadgroup, 3),
    ("grid_size", Builtin::ThreadsPerGrid, 3),
    ("quadgroup_index_in_threadgroup", Builtin::QuadgroupIndexInThreadgroup, 1),
    ("quadgroups_per_threadgroup", Builtin::QuadgroupsPerThreadgroup, 1),
    ("simdgroup_index_in_threadgroup", Builtin::SimdgroupIndexInThreadgroup, 1),
    ("simdgroups_per_threadgroup", Builtin::SimdgroupsPerThreadgroup, 1),
    ("thread_execution_width", Builtin::ThreadsPerSimdgroup, 1),
    ("thread_index_in_quadgroup", Builtin::ThreadIndexInQuadgroup, 1),
    ("thread_index_in_simdgroup", Builtin::ThreadIndexInSimdgroup, 1),
    ("thread_index_in_threadgroup", Builtin::ThreadIndexInThreadgroup, 1),
    ("thread_position_in_grid", Builtin::ThreadPositionInGrid, 3),
    ("thread_position_in_threadgroup", Builtin::ThreadPositionInThreadgroup, 3),
    ("threadgroup_position_in_grid", Builtin::ThreadgroupPositionInGrid, 3),
    ("threadgroups_per_grid", Builtin::ThreadgroupsPerGrid, 3),
    ("threads_per_grid", Builtin::ThreadsPerGrid, 3),
    ("threads_per_simdgroup", Builtin::ThreadsPerSimdgroup, 1),
    ("threads_per_threadgroup", Builtin::ThreadsPerThreadgroup, 3),
];

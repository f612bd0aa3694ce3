//! The driver's functions for graphs. A graph is a list of operations with their dependencies; the handle of
//! a node is its position, counted from one.

use std::ffi::c_uint;

use super::driver::{entry, parameters, raw, store};
use super::state::{Op, state};
use crate::sys::*;

pub(super) unsafe extern "C" fn create(to: *mut CUgraph, _: c_uint) -> CUresult {
    let mut state = state();
    let graph = state.handle();
    state.graphs.insert(graph, Vec::new());
    // SAFETY: see `store`.
    unsafe { store(to, CUgraph(raw(graph))) }
}
pub(super) unsafe extern "C" fn destroy(graph: CUgraph) -> CUresult {
    u32::from(state().graphs.remove(&(graph.0 as usize)).is_none())
}

/// Adds a node.
unsafe fn add(
    to: *mut CUgraphNode,
    graph: CUgraph,
    before: *const CUgraphNode,
    count: usize,
    op: Op,
) -> CUresult {
    let before: Vec<usize> = match count {
        0 => Vec::new(),
        // SAFETY: the caller passes `count` nodes.
        _ => unsafe { std::slice::from_raw_parts(before, count) }.iter().map(|n| n.0 as usize - 1).collect(),
    };
    let mut state = state();
    let Some(nodes) = state.graphs.get_mut(&(graph.0 as usize)) else { return 400 };
    nodes.push((op, before));
    // SAFETY: see `store`.
    unsafe { store(to, CUgraphNode(raw(nodes.len()))) }
}
unsafe fn kernel_op(from: *const KernelNodeParams) -> Op {
    // SAFETY: upheld by the caller.
    unsafe {
        let entry = entry((*from).func);
        Op::Kernel { entry, parameters: parameters(entry, (*from).kernel_params) }
    }
}
pub(super) unsafe extern "C" fn add_kernel(
    to: *mut CUgraphNode,
    graph: CUgraph,
    before: *const CUgraphNode,
    count: usize,
    from: *const KernelNodeParams,
) -> CUresult {
    // SAFETY: upheld by the caller.
    unsafe { add(to, graph, before, count, kernel_op(from)) }
}
pub(super) unsafe extern "C" fn add_dependencies(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    _: *const GraphEdge,
    count: usize,
) -> CUresult {
    let mut state = state();
    let Some(nodes) = state.graphs.get_mut(&(graph.0 as usize)) else { return 400 };
    for at in 0..count {
        // SAFETY: the caller passes `count` nodes.
        let (from, to) = unsafe { (*from.add(at), *to.add(at)) };
        nodes[to.0 as usize - 1].1.push(from.0 as usize - 1);
    }
    0
}
unsafe fn copy_op(from: *const Memcpy3d) -> Op {
    // SAFETY: upheld by the caller.
    let from = unsafe { &*from };
    Op::Copy { to: from.dst_device, from: from.src_device, len: from.width_in_bytes }
}
pub(super) unsafe extern "C" fn add_copy(
    to: *mut CUgraphNode,
    graph: CUgraph,
    before: *const CUgraphNode,
    count: usize,
    from: *const Memcpy3d,
    _: CUcontext,
) -> CUresult {
    // SAFETY: upheld by the caller.
    unsafe { add(to, graph, before, count, copy_op(from)) }
}
unsafe fn clear_op(from: *const MemsetNodeParams) -> Op {
    // SAFETY: upheld by the caller.
    let from = unsafe { &*from };
    assert_eq!((from.value, from.element_size, from.height), (0, 1, 1));
    Op::Clear { to: from.dst, len: from.width }
}
pub(super) unsafe extern "C" fn add_clear(
    to: *mut CUgraphNode,
    graph: CUgraph,
    before: *const CUgraphNode,
    count: usize,
    from: *const MemsetNodeParams,
    _: CUcontext,
) -> CUresult {
    // SAFETY: upheld by the caller.
    unsafe { add(to, graph, before, count, clear_op(from)) }
}
pub(super) unsafe extern "C" fn instantiate(to: *mut CUgraphExec, graph: CUgraph, _: u64) -> CUresult {
    let mut state = state();
    let Some(nodes) = state.graphs.get(&(graph.0 as usize)).cloned() else { return 400 };
    let exec = state.handle();
    state.graphs.insert(exec, nodes);
    // SAFETY: see `store`.
    unsafe { store(to, CUgraphExec(raw(exec))) }
}
fn set_node(exec: CUgraphExec, node: CUgraphNode, op: Op) -> CUresult {
    let mut state = state();
    let Some(nodes) = state.graphs.get_mut(&(exec.0 as usize)) else { return 400 };
    let old = &mut nodes[node.0 as usize - 1].0;
    match (&*old, &op) {
        (Op::Kernel { .. }, Op::Kernel { .. }) | (Op::Copy { .. }, Op::Copy { .. }) => {}
        // The real driver may reject a change of the width; this one always does.
        (Op::Clear { len, .. }, Op::Clear { len: new, .. }) if len == new => {}
        _ => return CUDA_ERROR_INVALID_VALUE,
    }
    *old = op;
    0
}
pub(super) unsafe extern "C" fn set_kernel(
    exec: CUgraphExec,
    node: CUgraphNode,
    from: *const KernelNodeParams,
) -> CUresult {
    // SAFETY: upheld by the caller.
    set_node(exec, node, unsafe { kernel_op(from) })
}
pub(super) unsafe extern "C" fn set_copy(
    exec: CUgraphExec,
    node: CUgraphNode,
    from: *const Memcpy3d,
    _: CUcontext,
) -> CUresult {
    // SAFETY: upheld by the caller.
    set_node(exec, node, unsafe { copy_op(from) })
}
pub(super) unsafe extern "C" fn set_clear(
    exec: CUgraphExec,
    node: CUgraphNode,
    from: *const MemsetNodeParams,
    _: CUcontext,
) -> CUresult {
    // SAFETY: upheld by the caller.
    set_node(exec, node, unsafe { clear_op(from) })
}
pub(super) unsafe extern "C" fn launch(exec: CUgraphExec, on: CUstream) -> CUresult {
    let mut state = state();
    let Some(nodes) = state.graphs.get(&(exec.0 as usize)).cloned() else { return 400 };
    state.push(on, Op::Graph(nodes))
}
pub(super) unsafe extern "C" fn exec_destroy(exec: CUgraphExec) -> CUresult {
    u32::from(state().graphs.remove(&(exec.0 as usize)).is_none())
}

//! Executable graphs of commands, kept by shape.
//!
//! A submission of many small kernels is launched as one graph: the driver's work per kernel is paid
//! when the graph is made, and the device runs what is independent side by side. A graph is made when a
//! shape is seen for the second time; later submissions of that shape only change the nodes that differ.
//!
//! A kernel that waits by itself for what it depends on begins while the kernel before it still runs: its blocks take the
//! places that become free, and what no command of the run writes (weights) is on its way when it is wanted.
//!
//! What a node was made with and no change reaches is part of the shape: whether it begins early, the size of the
//! clusters of its blocks, how many bytes it clears.
//!
//! Each stream has its own graphs: launches of one executable graph wait for each other.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;
use std::sync::Arc;

use crate::context::{Context, Current, Extent};
use crate::error::Result;
use crate::kernel::{Kernel, Launch, addresses};
use crate::sys::{
    self, CUdeviceptr, CUgraph, CUgraphExec, CUgraphNode, CUstream, GraphEdge, KernelNodeParams, Memcpy3d,
    MemsetNodeParams,
};
use crate::topology::Topology;

/// How many executable graphs a stream keeps.
const KEPT: usize = 32;
/// How many shapes that were seen once a stream remembers.
const REMEMBERED: usize = 256;

/// What a node does, ready for the driver.
#[derive(Clone)]
pub(crate) enum Node<'a> {
    /// A kernel and its launch.
    Kernel(&'a Kernel, Launch),
    /// A copy: to, from, length.
    Copy(CUdeviceptr, CUdeviceptr, usize),
    /// Sets bytes to zero: to, length.
    Clear(CUdeviceptr, usize),
}

/// What a node of an executable graph was last set to.
#[derive(PartialEq)]
enum Set {
    Kernel { kernel: u64, extent: Extent, bytes: Vec<u8> },
    Copy(CUdeviceptr, CUdeviceptr, usize),
    Clear(CUdeviceptr, usize),
}

/// An executable graph; work in flight holds it.
pub(crate) struct Graph {
    context: Arc<Context>,
    graph: CUgraph,
    exec: CUgraphExec,
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(current) = self.context.enter_to_release() {
            let driver = current.context().driver();
            // SAFETY: both are ours, and nothing in flight uses them: it would hold the graph.
            unsafe {
                if self.exec != CUgraphExec::NULL {
                    (driver.graph_exec_destroy)(self.exec);
                }
                (driver.graph_destroy)(self.graph);
            }
        }
    }
}

struct Entry {
    graph: Arc<Graph>,
    nodes: Vec<CUgraphNode>,
    set: Vec<Set>,
    used: u64,
}

/// What launching as graphs has done.
#[derive(Debug, Clone, Copy, Default)]
pub struct GraphCounters {
    /// Graphs made.
    pub made: u64,
    /// Graphs launched.
    pub launched: u64,
    /// Nodes whose contents were changed.
    pub changed: u64,
    /// Nodes that could stay as they were.
    pub unchanged: u64,
    /// Graphs given up for others.
    pub evicted: u64,
}

/// The graphs of one stream.
#[derive(Default)]
pub(crate) struct Graphs {
    entries: HashMap<Vec<u32>, Entry>,
    seen: VecDeque<Vec<u32>>,
    clock: u64,
}

impl Graphs {
    /// Launches a run of commands as a graph. `Ok(None)` says that the shape is not worth one yet, and
    /// nothing was enqueued; so does an error.
    pub(crate) fn launch(
        &mut self,
        context: &Arc<Context>,
        current: &Current<'_>,
        on: CUstream,
        topology: &Topology,
        nodes: &[Node<'_>],
        bytes: &mut [u8],
        counters: &mut GraphCounters,
    ) -> Result<Option<Arc<Graph>>> {
        self.clock += 1;
        if !self.entries.contains_key(&topology.key) {
            if let Some(seen) = self.seen.iter().position(|key| *key == topology.key) {
                self.seen.remove(seen);
            } else {
                if self.seen.len() >= REMEMBERED {
                    self.seen.pop_front();
                }
                self.seen.push_back(topology.key.clone());
                return Ok(None);
            }
            if self.entries.len() >= KEPT {
                let oldest =
                    self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
                if let Some(key) = oldest {
                    self.entries.remove(&key);
                    counters.evicted += 1;
                }
            }
            let entry = Entry::make(context, current, topology, nodes, bytes)?;
            counters.made += 1;
            self.entries.insert(topology.key.clone(), entry);
        }
        let Some(entry) = self.entries.get_mut(&topology.key) else { return Ok(None) };
        entry.used = self.clock;
        let outcome = entry.update(current, nodes, bytes, counters).and_then(|()| {
            let driver = current.context().driver();
            // SAFETY: graph and stream are this context's and alive.
            driver.check("cuGraphLaunch", unsafe { (driver.graph_launch)(entry.graph.exec, on) })
        });
        match outcome {
            Ok(()) => {
                counters.launched += 1;
                Ok(Some(entry.graph.clone()))
            }
            Err(error) => {
                // Half updated: it is not to be trusted.
                self.entries.remove(&topology.key);
                Err(error)
            }
        }
    }

    /// Gives up the graphs that name a kernel, which is about to be unloaded.
    pub(crate) fn forget(&mut self, kernel: u64) -> Vec<Arc<Graph>> {
        let named = |entry: &Entry| {
            entry.set.iter().any(|set| matches!(set, Set::Kernel { kernel: other, .. } if *other == kernel))
        };
        self.entries.extract_if(|_, entry| named(entry)).map(|(_, entry)| entry.graph).collect()
    }
}

impl Node<'_> {
    fn set(&self, bytes: &[u8]) -> Set {
        match self {
            Node::Kernel(_, launch) => Set::Kernel {
                kernel: launch.kernel,
                extent: launch.extent,
                bytes: bytes[launch.bytes.clone()].to_vec(),
            },
            Node::Copy(to, from, len) => Set::Copy(*to, *from, *len),
            Node::Clear(to, len) => Set::Clear(*to, *len),
        }
    }

    fn is(&self, set: &Set, all: &[u8]) -> bool {
        match (self, set) {
            (Node::Kernel(_, launch), Set::Kernel { kernel, extent, bytes }) => {
                launch.kernel == *kernel && launch.extent == *extent && all[launch.bytes.clone()] == bytes[..]
            }
            (Node::Copy(to, from, len), Set::Copy(old_to, old_from, old_len)) => {
                (to, from, len) == (old_to, old_from, old_len)
            }
            (Node::Clear(to, len), Set::Clear(old_to, old_len)) => (to, len) == (old_to, old_len),
            _ => false,
        }
    }
}

fn kernel_params(
    kernel: &Kernel,
    launch: &Launch,
    bytes: &mut [u8],
    pointers: &mut Vec<*mut c_void>,
) -> KernelNodeParams {
    addresses(kernel, &mut bytes[launch.bytes.clone()], pointers);
    KernelNodeParams {
        func: launch.function,
        grid_dim: launch.extent.grid,
        block_dim: launch.extent.block,
        shared_mem_bytes: launch.extent.shared,
        kernel_params: pointers.as_mut_ptr(),
        extra: std::ptr::null_mut(),
        kern: std::ptr::null_mut(),
        ctx: sys::CUcontext::NULL,
    }
}

fn copy_params(to: CUdeviceptr, from: CUdeviceptr, len: usize) -> Memcpy3d {
    Memcpy3d {
        src_x_in_bytes: 0,
        src_y: 0,
        src_z: 0,
        src_lod: 0,
        src_memory_type: sys::CU_MEMORYTYPE_DEVICE,
        src_host: std::ptr::null(),
        src_device: from,
        src_array: std::ptr::null_mut(),
        reserved0: std::ptr::null_mut(),
        src_pitch: len,
        src_height: 1,
        dst_x_in_bytes: 0,
        dst_y: 0,
        dst_z: 0,
        dst_lod: 0,
        dst_memory_type: sys::CU_MEMORYTYPE_DEVICE,
        dst_host: std::ptr::null_mut(),
        dst_device: to,
        dst_array: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        dst_pitch: len,
        dst_height: 1,
        width_in_bytes: len,
        height: 1,
        depth: 1,
    }
}

fn clear_params(to: CUdeviceptr, len: usize) -> MemsetNodeParams {
    MemsetNodeParams { dst: to, pitch: 0, value: 0, element_size: 1, width: len, height: 1 }
}

impl Entry {
    fn make(
        context: &Arc<Context>,
        current: &Current<'_>,
        topology: &Topology,
        nodes: &[Node<'_>],
        bytes: &mut [u8],
    ) -> Result<Self> {
        let driver = current.context().driver();
        let mut raw = CUgraph::NULL;
        // SAFETY: the driver stores one handle.
        driver.check("cuGraphCreate", unsafe { (driver.graph_create)(&mut raw, 0) })?;
        let mut graph = Graph { context: context.clone(), graph: raw, exec: CUgraphExec::NULL };
        let mut made: Vec<CUgraphNode> = Vec::with_capacity(topology.nodes());
        let (mut before, mut pointers) = (Vec::new(), Vec::new());
        for (position, node) in nodes.iter().enumerate() {
            before.clear();
            before.extend(topology.before(position).iter().map(|earlier| made[*earlier as usize]));
            let mut handle = CUgraphNode::NULL;
            match node {
                Node::Kernel(kernel, launch) => {
                    let params = kernel_params(kernel, launch, bytes, &mut pointers);
                    let early = topology.begins_early(position);
                    let ordered = if early { 0 } else { before.len() };
                    // SAFETY: all handles are alive, and the driver copies the parameters.
                    let code = unsafe {
                        (driver.graph_add_kernel_node)(&mut handle, raw, before.as_ptr(), ordered, &params)
                    };
                    driver.check("cuGraphAddKernelNode", code)?;
                    if early {
                        let edges = vec![GraphEdge::PROGRAMMATIC; before.len()];
                        let to = vec![handle; before.len()];
                        // SAFETY: as above; all three lists are as long as told.
                        let code = unsafe {
                            (driver.graph_add_dependencies)(
                                raw,
                                before.as_ptr(),
                                to.as_ptr(),
                                edges.as_ptr(),
                                edges.len(),
                            )
                        };
                        driver.check("cuGraphAddDependencies", code)?;
                    }
                }
                Node::Copy(to, from, len) => {
                    let params = copy_params(*to, *from, *len);
                    // SAFETY: as above.
                    let code = unsafe {
                        (driver.graph_add_memcpy_node)(
                            &mut handle,
                            raw,
                            before.as_ptr(),
                            before.len(),
                            &params,
                            context.raw(),
                        )
                    };
                    driver.check("cuGraphAddMemcpyNode", code)?;
                }
                Node::Clear(to, len) => {
                    let params = clear_params(*to, *len);
                    let (list, count) = (before.as_ptr(), before.len());
                    // SAFETY: as above.
                    let code = unsafe {
                        (driver.graph_add_memset_node)(&mut handle, raw, list, count, &params, context.raw())
                    };
                    driver.check("cuGraphAddMemsetNode", code)?;
                }
            }
            made.push(handle);
        }
        // SAFETY: the graph is alive; the driver stores one handle.
        let code = unsafe { (driver.graph_instantiate)(&mut graph.exec, raw, 0) };
        driver.check("cuGraphInstantiate", code)?;
        let set = nodes.iter().map(|node| node.set(bytes)).collect();
        Ok(Entry { graph: Arc::new(graph), nodes: made, set, used: 0 })
    }

    /// Sets every node that differs. Launches that are in flight keep what they were launched with.
    fn update(
        &mut self,
        current: &Current<'_>,
        nodes: &[Node<'_>],
        bytes: &mut [u8],
        counters: &mut GraphCounters,
    ) -> Result<()> {
        let driver = current.context().driver();
        let exec = self.graph.exec;
        let mut pointers = Vec::new();
        for (position, node) in nodes.iter().enumerate() {
            if node.is(&self.set[position], bytes) {
                counters.unchanged += 1;
                continue;
            }
            counters.changed += 1;
            let handle = self.nodes[position];
            match node {
                Node::Kernel(kernel, launch) => {
                    let params = kernel_params(kernel, launch, bytes, &mut pointers);
                    // SAFETY: all handles are alive, and the driver copies the parameters.
                    let code = unsafe { (driver.graph_exec_kernel_node_set_params)(exec, handle, &params) };
                    driver.check("cuGraphExecKernelNodeSetParams", code)?;
                }
                Node::Copy(to, from, len) => {
                    let params = copy_params(*to, *from, *len);
                    let raw = current.context().raw();
                    // SAFETY: as above.
                    let code =
                        unsafe { (driver.graph_exec_memcpy_node_set_params)(exec, handle, &params, raw) };
                    driver.check("cuGraphExecMemcpyNodeSetParams", code)?;
                }
                Node::Clear(to, len) => {
                    let params = clear_params(*to, *len);
                    let raw = current.context().raw();
                    // SAFETY: as above.
                    let code =
                        unsafe { (driver.graph_exec_memset_node_set_params)(exec, handle, &params, raw) };
                    driver.check("cuGraphExecMemsetNodeSetParams", code)?;
                }
            }
            self.set[position] = node.set(bytes);
        }
        Ok(())
    }
}

//! Executable graphs, cached by shape.
//!
//! A submission of many small kernels is launched as one graph: the driver's work per kernel is paid when the
//! graph is built, and the device runs independent nodes concurrently. A graph is built when a shape occurs
//! for the second time; later submissions of that shape only update the nodes that differ.
//!
//! A dependent kernel starts while the previous kernel still runs (see [`crate::dependent_launch`]): its
//! blocks take free multiprocessors, and it prefetches what no command of the run writes, such as weights.
//!
//! Properties of a node that an update cannot change are part of the shape: dependent launch, the cluster
//! size, the number of cleared bytes.
//!
//! Each stream has its own graphs, since launches of one executable graph are serialised.

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

/// The most executable graphs of a stream.
const MAX_GRAPHS: usize = 32;
/// Most shapes that a stream keeps after one occurrence.
const MAX_SEEN_SHAPES: usize = 256;

/// A node, ready for the driver.
#[derive(Clone)]
pub(crate) enum Node<'a> {
    /// A kernel and its launch.
    Kernel(&'a Kernel, Launch),
    /// A copy: to, from, length.
    Copy(CUdeviceptr, CUdeviceptr, usize),
    /// Sets bytes to zero: to, length.
    Clear(CUdeviceptr, usize),
}

/// The last parameters of a node of an executable graph.
#[derive(PartialEq)]
enum NodeParams {
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
            // SAFETY: both are owned, and work in flight that uses them would hold the graph.
            unsafe {
                if self.exec != CUgraphExec::NULL {
                    (driver.graph_exec_destroy)(self.exec);
                }
                (driver.graph_destroy)(self.graph);
            }
        }
    }
}

struct CachedGraph {
    graph: Arc<Graph>,
    nodes: Vec<CUgraphNode>,
    set: Vec<NodeParams>,
    used: u64,
}

/// Counters of graph launches.
#[derive(Debug, Clone, Copy, Default)]
pub struct GraphCounters {
    /// Graphs built.
    pub created: u64,
    /// Graphs launched.
    pub launched: u64,
    /// Nodes updated.
    pub changed: u64,
    /// Nodes that needed no update.
    pub unchanged: u64,
    /// Graphs evicted.
    pub evicted: u64,
}

/// The graphs of one stream.
#[derive(Default)]
pub(crate) struct Graphs {
    entries: HashMap<Vec<u32>, CachedGraph>,
    seen: VecDeque<Vec<u32>>,
    clock: u64,
}

impl Graphs {
    /// Launches a run of commands as a graph. `Ok(None)` means that the shape occurred for the first time. In
    /// that case, and on an error, nothing is enqueued.
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
                if self.seen.len() >= MAX_SEEN_SHAPES {
                    self.seen.pop_front();
                }
                self.seen.push_back(topology.key.clone());
                return Ok(None);
            }
            if self.entries.len() >= MAX_GRAPHS {
                let oldest =
                    self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
                if let Some(key) = oldest {
                    self.entries.remove(&key);
                    counters.evicted += 1;
                }
            }
            let entry = CachedGraph::make(context, current, topology, nodes, bytes)?;
            counters.created += 1;
            self.entries.insert(topology.key.clone(), entry);
        }
        let Some(entry) = self.entries.get_mut(&topology.key) else { return Ok(None) };
        entry.used = self.clock;
        let outcome = entry.update(current, nodes, bytes, counters).and_then(|()| {
            let driver = current.context().driver();
            // SAFETY: graph and stream belong to this context and are alive.
            driver.check("cuGraphLaunch", unsafe { (driver.graph_launch)(entry.graph.exec, on) })
        });
        match outcome {
            Ok(()) => {
                counters.launched += 1;
                Ok(Some(entry.graph.clone()))
            }
            Err(error) => {
                // The update may be partial: drop the graph.
                self.entries.remove(&topology.key);
                Err(error)
            }
        }
    }

    /// Removes the graphs that use a kernel, which is about to be unloaded.
    pub(crate) fn forget(&mut self, kernel: u64) -> Vec<Arc<Graph>> {
        let named = |entry: &CachedGraph| {
            entry
                .set
                .iter()
                .any(|set| matches!(set, NodeParams::Kernel { kernel: other, .. } if *other == kernel))
        };
        self.entries.extract_if(|_, entry| named(entry)).map(|(_, entry)| entry.graph).collect()
    }
}

impl Node<'_> {
    fn set(&self, bytes: &[u8]) -> NodeParams {
        match self {
            Node::Kernel(_, launch) => NodeParams::Kernel {
                kernel: launch.kernel,
                extent: launch.extent,
                bytes: bytes[launch.bytes.clone()].to_vec(),
            },
            Node::Copy(to, from, len) => NodeParams::Copy(*to, *from, *len),
            Node::Clear(to, len) => NodeParams::Clear(*to, *len),
        }
    }

    fn is(&self, set: &NodeParams, all: &[u8]) -> bool {
        match (self, set) {
            (Node::Kernel(_, launch), NodeParams::Kernel { kernel, extent, bytes }) => {
                launch.kernel == *kernel && launch.extent == *extent && all[launch.bytes.clone()] == bytes[..]
            }
            (Node::Copy(to, from, len), NodeParams::Copy(old_to, old_from, old_len)) => {
                (to, from, len) == (old_to, old_from, old_len)
            }
            (Node::Clear(to, len), NodeParams::Clear(old_to, old_len)) => (to, len) == (old_to, old_len),
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

impl CachedGraph {
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
        let mut created: Vec<CUgraphNode> = Vec::with_capacity(topology.nodes());
        let (mut before, mut pointers) = (Vec::new(), Vec::new());
        for (position, node) in nodes.iter().enumerate() {
            before.clear();
            before.extend(topology.before(position).iter().map(|earlier| created[*earlier as usize]));
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
                        // SAFETY: as above; all three lists have this length.
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
            created.push(handle);
        }
        // SAFETY: the graph is alive; the driver stores one handle.
        let code = unsafe { (driver.graph_instantiate)(&mut graph.exec, raw, 0) };
        driver.check("cuGraphInstantiate", code)?;
        let set = nodes.iter().map(|node| node.set(bytes)).collect();
        Ok(CachedGraph { graph: Arc::new(graph), nodes: created, set, used: 0 })
    }

    /// Updates every node that differs. Launches in flight keep their parameters.
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

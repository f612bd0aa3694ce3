//! The structure of a graph: everything that its plan depends on, and nothing else.
//!
//! Nodes are numbered in the order in which a walk from the results meets them, and name their inputs by
//! [`Slot`]s. Ops that are not element-wise are known by their [`Role`] and [`Mark`] alone, shapes and
//! streams by their [class](Classes). A plan holds no op, array, stream or length, so graphs that differ only
//! in those share a plan. The [key](Graph::key) of a graph is its whole content in words: equal keys have
//! equal plans.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use hesper_kernel::ir::{Builder, ValueId};
use hesper_runtime::Stream;

use super::patterns::Mark;
use crate::Dtype;
use crate::graph::{Op, OpKind, OpRef};
use crate::ids::WordHash;
use crate::ops::elementwise::Elementwise;
use crate::registry;
use crate::shape::Shape;

/// What a node or a step reads: the result of a node, or an array from outside of the graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot(u32);

/// What a slot stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotKind {
    Node(usize),
    External(usize),
}

impl Slot {
    const EXTERNAL: u32 = 1 << 31;
    /// Of an edge whose end the walk has not met yet.
    pub(super) const OPEN: Slot = Slot(u32::MAX);

    pub(crate) fn node(at: usize) -> Self {
        Slot(at as u32)
    }

    pub(crate) fn external(at: usize) -> Self {
        Slot(at as u32 | Slot::EXTERNAL)
    }

    /// The slot as the number that a visited node keeps.
    pub(super) fn to_bits(self) -> u32 {
        self.0
    }

    pub(super) fn from_bits(bits: u32) -> Self {
        Slot(bits)
    }

    /// The number of the node, if it is one.
    pub(super) fn as_node(self) -> Option<usize> {
        match self.kind() {
            SlotKind::Node(at) => Some(at),
            SlotKind::External(_) => None,
        }
    }

    #[inline]
    pub(crate) fn kind(self) -> SlotKind {
        match self.0 & Slot::EXTERNAL {
            0 => SlotKind::Node(self.0 as usize),
            _ => SlotKind::External((self.0 & !Slot::EXTERNAL) as usize),
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

/// What the planner does with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It may be part of a fused group.
    Elementwise,
    /// Its result lies in the memory of its first input, if the layout of that allows it.
    View,
    /// It has commands of its own, or none.
    Op {
        /// Whether its backend reads the first input row by row, and that is a node of the graph: a group may
        /// be its prologue.
        rows: bool,
        /// Whether its backend applies a group to the result before it is stored: a group may be its
        /// epilogue.
        epilogue: bool,
    },
}

/// Shape, type and stream of a node.
pub(crate) type Like<'a> = (&'a [usize], Dtype, &'a Stream);

impl Role {
    /// The role of an op that no group is part of.
    pub(crate) const PLAIN: Role = Role::Op { rows: false, epilogue: false };

    /// The role of an op with such a result; `first` is its first input, if that is a node of the graph.
    pub(crate) fn of(op: &OpRef, result: Like<'_>, first: Option<Like<'_>>) -> Role {
        match op.get().kind() {
            OpKind::Elementwise(_) => Role::Elementwise,
            OpKind::Commands => Role::of_commands(op.get(), result, first),
            OpKind::View => Role::View,
        }
    }

    /// The same for an op with commands of its own.
    pub(crate) fn of_commands(
        op: &dyn Op,
        (shape, dtype, stream): Like<'_>,
        first: Option<Like<'_>>,
    ) -> Role {
        let Ok(backend) = registry::of_stream(stream) else { return Role::PLAIN };
        let first = first.filter(|(_, dtype, from)| from.id() == stream.id() && backend.takes(*dtype));
        let first = first.map(|(shape, dtype, _)| (shape, dtype));
        let result = backend.takes(dtype).then_some((shape, dtype));
        let (rows, epilogue) = backend.ops().fuses(op, first, result);
        Role::Op { rows, epilogue }
    }

    /// Whether a group may be the prologue of the op.
    pub(crate) fn reads_rows(self) -> bool {
        matches!(self, Role::Op { rows: true, .. })
    }

    /// Whether a group may be the epilogue of the op.
    pub(crate) fn has_epilogue(self) -> bool {
        matches!(self, Role::Op { epilogue: true, .. })
    }

    /// The role as a number below eight.
    fn word(self) -> u64 {
        match self {
            Role::Elementwise => 0,
            Role::Op { rows, epilogue } => 1 + u64::from(rows) + 2 * u64::from(epilogue),
            Role::View => 5,
        }
    }
}

/// The expression of an element-wise op, known by the function that writes it. The name is for labels.
#[derive(Clone, Copy)]
pub(crate) struct Emit {
    pub(super) name: &'static str,
    pub(super) indexed: bool,
    pub(super) emit: fn(&mut Builder, &[ValueId]) -> ValueId,
}

impl Emit {
    pub(super) fn new(op: &Elementwise) -> Emit {
        Emit { name: op.name, indexed: op.indexed, emit: op.emit }
    }

    /// The expression of an op, if it is element-wise.
    pub(crate) fn of(op: &OpRef) -> Option<Emit> {
        match op.get().kind() {
            OpKind::Elementwise(op) => Some(Emit::new(op)),
            OpKind::Commands | OpKind::View => None,
        }
    }
}

impl PartialEq for Emit {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.emit, other.emit) && self.indexed == other.indexed
    }
}

impl Eq for Emit {}

impl Hash for Emit {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.emit as usize);
    }
}

/// A node.
#[derive(Clone, Copy)]
pub(crate) struct Vertex {
    /// The first of its edges, and how many there are.
    pub(super) first: u32,
    pub(super) count: u32,
    /// Two nodes have one class exactly if they have one shape and one stream.
    pub(super) class: u32,
    pub(super) role: Role,
    pub(super) dtype: Dtype,
    /// Whether it is wanted for itself: then a group has to store it.
    pub(super) held: bool,
    /// Whether a node reads it.
    pub(super) read: bool,
    /// Its expression, if it is element-wise.
    pub(super) emit: Option<Emit>,
    /// What it is to patterns.
    pub(super) mark: Mark,
}

/// An array from outside: its type, and whether it is a number that kernels take by value.
#[derive(Clone, Copy)]
pub(crate) struct External {
    pub(crate) dtype: Dtype,
    pub(crate) known: bool,
}

/// Nodes and their inputs, fewer than 2^31 of either.
#[derive(Default)]
pub(crate) struct Graph {
    pub(super) nodes: Vec<Vertex>,
    /// What nodes read, in the order of their inputs, that of a node together.
    pub(super) edges: Vec<Slot>,
    pub(super) externals: Vec<External>,
    /// Whether several groups may compute one node.
    pub(super) recompute: bool,
}

impl Graph {
    /// Appends a node and its inputs.
    pub(crate) fn push(
        &mut self,
        reads: impl IntoIterator<Item = Slot>,
        class: u32,
        dtype: Dtype,
        role: Role,
        emit: Option<Emit>,
    ) {
        let first = self.edges.len() as u32;
        self.edges.extend(reads);
        let count = self.edges.len() as u32 - first;
        let mark = Mark::default();
        self.nodes.push(Vertex { first, count, class, role, dtype, held: true, read: false, emit, mark });
    }

    /// Sets the properties of a node that were not known when it was pushed.
    pub(super) fn describe(&mut self, at: usize, class: u32, role: Role, emit: Option<Emit>) {
        let node = &mut self.nodes[at];
        (node.class, node.role, node.emit) = (class, role, emit);
    }

    pub(crate) fn push_external(&mut self, dtype: Dtype, known: bool) {
        self.externals.push(External { dtype, known });
    }

    /// Whether several groups may compute one node: as the backend of a stream says.
    pub(crate) fn set_recompute(&mut self, stream: Option<&Stream>) {
        let backend = stream.and_then(|stream| registry::of_stream(stream).ok());
        self.recompute = backend.is_some_and(|backend| backend.fusion().recompute);
    }

    pub(crate) fn set_held(&mut self, at: usize, held: bool) {
        self.nodes[at].held = held;
    }

    pub(crate) fn set_mark(&mut self, at: usize, mark: Mark) {
        self.nodes[at].mark = mark;
    }

    /// Whether a node is the element-wise op of a name.
    pub(super) fn is_named(&self, at: usize, name: &str) -> bool {
        self.nodes[at].emit.is_some_and(|emit| emit.name == name)
    }

    pub(super) fn clear(&mut self) {
        self.nodes.clear();
        self.edges.clear();
        self.externals.clear();
    }

    /// What a node reads.
    pub(crate) fn reads(&self, at: usize) -> &[Slot] {
        let node = &self.nodes[at];
        &self.edges[node.first as usize..(node.first + node.count) as usize]
    }

    /// The nodes that a node reads.
    pub(crate) fn read_nodes(&self, at: usize) -> impl Iterator<Item = usize> {
        self.reads(at).iter().filter_map(|slot| slot.as_node())
    }

    /// Writes all that the plan depends on. `false` if the graph has a node that words cannot hold.
    pub(super) fn key(&self, fusion: bool, words: &mut Vec<u64>) -> bool {
        words.clear();
        let (fusion, recompute) = (u64::from(fusion) << 63, u64::from(self.recompute) << 62);
        words.push(self.nodes.len() as u64 | (self.externals.len() as u64) << 31 | fusion | recompute);
        for node in &self.nodes {
            if node.count > u32::from(u16::MAX) {
                return false;
            }
            let indexed = node.emit.is_some_and(|emit| emit.indexed);
            let marked = !node.mark.is_none();
            let flags = node.role.word()
                | u64::from(node.held) << 3
                | u64::from(indexed) << 4
                | u64::from(marked) << 5;
            words.push(
                u64::from(node.class) | u64::from(node.count) << 32 | (node.dtype as u64) << 48 | flags << 56,
            );
            words.extend(node.emit.map(|emit| emit.emit as usize as u64));
            words.extend(marked.then(|| node.mark.word()));
            let edges = &self.edges[node.first as usize..(node.first + node.count) as usize];
            words.extend(edges.chunks(2).map(|pair| {
                u64::from(pair[0].0) | pair.get(1).map_or(0, |second| u64::from(second.0) << 32)
            }));
        }
        words.extend(
            self.externals.iter().map(|external| external.dtype as u64 | u64::from(external.known) << 8),
        );
        true
    }
}

/// Numbers shapes and streams: nodes with one shape on one stream are of one class.
#[derive(Default)]
pub(crate) struct Classes {
    known: Vec<(Shape, u64)>,
    /// The last class of each hash, plus one. Most graphs have few classes, so most are found here.
    recent: [u32; Classes::RECENT],
    /// All classes.
    numbers: HashMap<(Shape, u64), u32, BuildHasherDefault<WordHash>>,
}

impl Classes {
    const RECENT: usize = 32;

    pub(crate) fn of(&mut self, shape: &Shape, stream: &Stream) -> u32 {
        let id = stream.id();
        let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let hash = shape.iter().fold(id, |hash, length| mix(hash, *length as u64));
        let recent = &mut self.recent[hash as usize % Classes::RECENT];
        if let Some((known, of)) = self.known.get((*recent).wrapping_sub(1) as usize)
            && *of == id
            && known.len() == shape.len()
            && known.iter().zip(shape).all(|(known, length)| known == length)
        {
            return *recent - 1;
        }
        let next = self.known.len() as u32;
        let class = *self.numbers.entry((shape.clone(), id)).or_insert(next);
        if class == next {
            self.known.push((shape.clone(), id));
        }
        *recent = class + 1;
        class
    }

    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.recent.fill(0);
        self.numbers.clear();
    }
}

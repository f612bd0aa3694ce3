//! Patterns: ops of a graph that become one composite op.
//!
//! The work is in two parts. [`mark`] looks at the op of a node and the shapes that it reads, and notes the
//! [`Fact`] that patterns are made of. It runs with every evaluation, so it looks at each node by itself.
//! [`Rewrites::find`] matches patterns by facts and edges alone. It is part of planning: facts are in the key
//! of the graph, so a structure that was met before is not searched again.
//!
//! A composite op swallows a node only if nothing else needs it: no node outside reads it, and no user has a
//! handle. A node whose value is needed elsewhere can be one of several results. Views are swallowed too, or
//! stay as they are.
//!
//! | composite | nodes |
//! |---|---|
//! | `add_norm` | `s = x + y`, `rms_norm(s)`; both are results |
//! | `silu_gate` | `g * sigmoid(g) * u` of the halves `g` and `u` of rows |
//! | `packed_layer` | products of the same rows with packed matrices: side by side, concatenated, plus an array, or as `g * sigmoid(g) * u`; with the `rms_norm` of the rows if nothing else reads that |
//! | `rope_update` | a slice of a KV cache replaced by the rotated keys of one token |
//! | `rope_attention` | attention of one token with rotated queries |
//! | `row_products` | products of the same row with several matrices, which are there before the first of them |

use std::any::Any;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use smallvec::{SmallVec, smallvec};

use super::Lowering;
use super::compose::compose_all;
use super::graph::{Graph, Role, Slot, SlotKind};
use super::program::{NodeView, Store, missing};
use crate::Dtype;
use crate::error::Result;
use crate::graph::{Array, CompositeSet, Data, PatternOp};
use crate::identity::BitEq;
use crate::ids::WordHash;
use crate::ops::attention::Attention;
use crate::ops::composite::Composite;
use crate::ops::composite::add_norm::AddNorm;
use crate::ops::composite::packed_layer::{Epilogue, PackedLayer};
use crate::ops::composite::rope_attention::RopeAttention;
use crate::ops::composite::rope_update::RopeUpdate;
use crate::ops::composite::row_products::RowProducts;
use crate::ops::composite::silu_gate::SiluGate;
use crate::ops::concat::concatenate;
use crate::ops::norm::RowOp;
use crate::ops::packed::PackedMatmul;
use crate::ops::quant::Activations;
use crate::ops::rope::Rope;
use crate::ops::slices::{SliceUpdate, Starts};
use crate::registry;
use crate::shape::{Shape, row_major};

/// The largest number of rows of which products are put side by side. Their results are columns of one array,
/// which many readers copy first: that pays off where a command costs more than its copy.
const FEW_ROWS: usize = 64;
/// The largest number of products in one composite op.
const MAX_PRODUCTS: usize = 3;
/// The largest number of rotated elements in one composite op, which one thread rotates.
const MAX_ROTATED: usize = 1 << 14;

/// What a node is to patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Fact {
    #[default]
    None,
    /// A sum of two arrays of its shape and type.
    Sum,
    /// A weighted root mean square norm of floats.
    Norm,
    /// The first half of the last axis of its input.
    FirstHalf,
    /// The second half.
    SecondHalf,
    /// The same rows along other axes.
    Reshape,
    /// A concatenation along the last axis.
    Concat,
    /// A product of float32 rows with a packed matrix.
    Product,
    /// The same of [few](FEW_ROWS) rows.
    FewProduct,
    /// A product of float32 rows, which may be rounded, with a packed matrix.
    RoundedProduct,
    /// The same of [few](FEW_ROWS) rows.
    FewRoundedProduct,
    /// A product of one row with a matrix.
    RowProduct,
    /// Heads of one row each, rotated by a known position.
    RotatedRow,
    /// Attention of one query of each head to all keys.
    RowAttention,
    /// Rows of an array of four axes, replaced.
    RowUpdate,
}

impl Fact {
    fn is_packed_product(self) -> bool {
        matches!(self, Fact::Product | Fact::FewProduct | Fact::RoundedProduct | Fact::FewRoundedProduct)
    }
}

/// The fact of a node, and the composite ops that the backend of its stream implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    fact: Fact,
    composites: CompositeSet,
}

impl Mark {
    pub(super) fn is_none(self) -> bool {
        self.fact == Fact::None
    }

    /// The mark as part of the key of a graph.
    pub(super) fn word(self) -> u64 {
        self.fact as u64 | u64::from(self.composites.bits()) << 8
    }
}

/// The nodes of a graph and their inputs, as far as marks depend on them.
pub(crate) trait Nodes {
    /// A node.
    fn view(&self, at: usize) -> Option<NodeView<'_>>;

    /// The shape and type of a slot.
    fn like(&self, slot: Slot) -> Option<(&[usize], Dtype)>;
}

/// The mark of a node. A node that reads results of another stream has none.
pub(crate) fn mark(graph: &Graph, nodes: &impl Nodes, at: usize) -> Mark {
    let Some(node) = nodes.view(at) else { return Mark::default() };
    let fact = fact(graph, nodes, at, &node).unwrap_or_default();
    if fact == Fact::None {
        return Mark::default();
    }
    let is_local = |input| nodes.view(input).is_some_and(|input| input.stream.id() == node.stream.id());
    let composites = registry::of_stream(node.stream).map(|backend| backend.ops().composites());
    match composites {
        Ok(composites) if !composites.is_empty() && graph.read_nodes(at).all(is_local) => {
            Mark { fact, composites }
        }
        _ => Mark::default(),
    }
}

fn fact(graph: &Graph, nodes: &impl Nodes, at: usize, node: &NodeView<'_>) -> Option<Fact> {
    let input = |number: usize| graph.reads(at).get(number).and_then(|slot| nodes.like(*slot));
    if node.shape.contains(&0) {
        return None;
    }
    if graph.nodes[at].role == Role::Elementwise {
        let fits = |number| input(number).is_some_and(|given| given == (&node.shape[..], node.dtype));
        let sum = graph.is_named(at, "add") && is_float(node.dtype) && fits(0) && fits(1);
        return sum.then_some(Fact::Sum);
    }
    match node.op.get().pattern() {
        PatternOp::None => None,
        PatternOp::Norm => {
            let fits = is_float(node.dtype) && input(0)?.1 == node.dtype && input(1)?.1 == node.dtype;
            fits.then_some(Fact::Norm)
        }
        PatternOp::Product => {
            let (row, matrix) = (input(0)?, input(1)?);
            let one_row = node.shape.iter().rev().skip(1).all(|length| *length == 1) && matrix.0.len() == 2;
            let fits = is_float(node.dtype) && row.1 == node.dtype && matrix.1 == node.dtype;
            (one_row && fits && row.0.last() != Some(&0)).then_some(Fact::RowProduct)
        }
        PatternOp::PackedProduct(activations) => {
            let fact = match (node.shape[0] <= FEW_ROWS, activations) {
                (true, Activations::Exact) => Fact::FewProduct,
                (false, Activations::Exact) => Fact::Product,
                (true, Activations::Int8) => Fact::FewRoundedProduct,
                (false, Activations::Int8) => Fact::RoundedProduct,
            };
            (node.dtype == Dtype::Float32 && input(0)?.1 == Dtype::Float32).then_some(fact)
        }
        PatternOp::Rope => {
            let heads_of_one_row = matches!(*node.shape.as_slice(), [_, _, 1, _]);
            let few = node.shape.iter().product::<usize>() <= MAX_ROTATED;
            (heads_of_one_row && few && is_float(node.dtype)).then_some(Fact::RotatedRow)
        }
        PatternOp::Attention => (node.shape[2] == 1 && is_float(node.dtype)).then_some(Fact::RowAttention),
        PatternOp::Update => {
            let rows = node.shape.len() == 4 && input(1)?.0.last() == node.shape.last();
            (rows && is_float(node.dtype) && input(1)?.1 == node.dtype).then_some(Fact::RowUpdate)
        }
        PatternOp::Concat(axis) => (axis + 1 == node.shape.len()).then_some(Fact::Concat),
        PatternOp::Reshape => (input(0)?.0.last() == node.shape.last()).then_some(Fact::Reshape),
        PatternOp::LastAxis(start) => {
            let (half, rest) = node.shape.split_last()?;
            let (length, whole) = input(0)?.0.split_last()?;
            match start {
                _ if whole != rest || *length != 2 * half => None,
                0 => Some(Fact::FirstHalf),
                start => (start == *half).then_some(Fact::SecondHalf),
            }
        }
    }
}

/// The types that composite ops are for.
fn is_float(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::Float32 | Dtype::Float16 | Dtype::Bfloat16)
}

/// A composite op of a plan. Nodes are named by number: their ops hold the parameters.
#[derive(Debug, Clone)]
pub(super) enum Pattern {
    AddNorm { norm: u32 },
    SiluGate,
    PackedLayer { norm: Option<u32>, products: SmallVec<[u32; 3]>, end: Epilogue },
    RowProducts,
    RopeAttention { rope: u32 },
    RopeUpdate { rope: u32 },
}

impl Pattern {
    /// The name of the op.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Pattern::AddNorm { .. } => "add_norm",
            Pattern::SiluGate => "silu_gate",
            Pattern::PackedLayer { .. } => "packed_layer",
            Pattern::RowProducts => "row_products",
            Pattern::RopeAttention { .. } => "rope_attention",
            Pattern::RopeUpdate { .. } => "rope_update",
        }
    }

    /// The op, and the shape of its result.
    pub(super) fn op(&self, store: &impl Store, outputs: &[u32]) -> Result<(Box<dyn Composite>, Shape)> {
        let mut shape = store.node(outputs[0] as usize)?.shape.clone();
        let op: Box<dyn Composite> = match self {
            Pattern::AddNorm { norm } => {
                shape.insert(0, 2);
                Box::new(AddNorm { eps: eps(store, *norm)? })
            }
            Pattern::SiluGate => Box::new(SiluGate),
            Pattern::PackedLayer { norm, products, end } => {
                let mut matrices = SmallVec::new();
                let mut activations = Activations::Exact;
                for product in products {
                    let op: &PackedMatmul = op_of(store, *product)?;
                    activations = op.activations;
                    matrices.push((op.format, store.node(*product as usize)?.shape[1]));
                }
                if outputs.len() > 1 {
                    shape[1] = matrices.iter().map(|(_, rows)| rows).sum();
                }
                let eps = norm.map(|norm| eps(store, norm)).transpose()?;
                Box::new(PackedLayer { eps, matrices, activations, end: *end })
            }
            Pattern::RowProducts => {
                let mut columns = SmallVec::new();
                for output in outputs {
                    columns.extend(store.node(*output as usize)?.shape.last().copied());
                }
                if let Some(last) = shape.last_mut() {
                    *last = columns.iter().sum();
                }
                Box::new(RowProducts { columns })
            }
            Pattern::RopeAttention { rope } => {
                let attention: &Attention = op_of(store, outputs[0])?;
                Box::new(RopeAttention { rope: *op_of(store, *rope)?, scale: attention.scale })
            }
            Pattern::RopeUpdate { rope } => {
                let SliceUpdate { starts: Starts::At(starts), .. } = op_of(store, outputs[0])? else {
                    return Err(missing());
                };
                Box::new(RopeUpdate { rope: *op_of::<Rope>(store, *rope)?, starts: starts.clone() })
            }
        };
        Ok((op, shape))
    }

    /// Lowers the op; gives the memory of each output.
    pub(super) fn lower(
        &self,
        op: &dyn Composite,
        store: &impl Store,
        outputs: &[u32],
        l: &mut Lowering<'_>,
    ) -> Result<SmallVec<[Data; 3]>> {
        let backend = l.backend()?;
        if backend.has_every_op() {
            l.bring()?;
        }
        let mut shapes: SmallVec<[&Shape; 3]> = SmallVec::new();
        for output in outputs {
            shapes.push(store.node(*output as usize)?.shape);
        }
        if let Some(whole) = backend.ops().lower(op, l)? {
            return Ok(self.results(&whole, &shapes));
        }
        let build = |inputs: &[Array]| {
            let mut results = op.composed(inputs)?;
            if results.len() > shapes.len() {
                results = vec![concatenate(&results, -1)?];
            }
            results.iter().zip(&shapes).map(|(result, shape)| result.reshape(shape)).collect()
        };
        compose_all(l, build).map(SmallVec::from)
    }

    /// The results in the row-major array that the op gave: parts of its first axis, or columns.
    fn results(&self, whole: &Data, shapes: &[&Shape]) -> SmallVec<[Data; 3]> {
        let columns: usize = shapes.iter().filter_map(|shape| shape.last()).sum();
        let mut begin = 0;
        let result = |shape: &&Shape| {
            let (length, strides) = match self {
                Pattern::AddNorm { .. } => (shape.iter().product(), row_major(shape)),
                Pattern::RowProducts => (shape.iter().product(), row_major(shape)),
                _ if shapes.len() == 1 => (0, row_major(shape)),
                _ => (shape[1], smallvec![columns as isize, 1]),
            };
            let offset = whole.offset + begin as isize;
            begin += length;
            Data { buffer: whole.buffer.clone(), offset, strides }
        };
        shapes.iter().map(result).collect()
    }
}

/// The epsilon of a norm.
fn eps(store: &impl Store, norm: u32) -> Result<BitEq<f32>> {
    match op_of(store, norm)? {
        RowOp::RmsNorm { eps, .. } => Ok(BitEq(eps.0 as f32)),
        _ => Err(missing()),
    }
}

/// The op of a node, which is of a type.
fn op_of<T: 'static>(store: &impl Store, at: u32) -> Result<&T> {
    let op: &dyn Any = store.node(at as usize)?.op.get();
    op.downcast_ref().ok_or_else(missing)
}

/// A composite op in the place of nodes.
pub(super) struct Rewrite {
    pub(super) pattern: Pattern,
    /// The node in whose place of the order it runs.
    pub(super) at: u32,
    pub(super) inputs: SmallVec<[Slot; 6]>,
    /// The nodes that it replaces, and those of them whose values it gives.
    pub(super) members: SmallVec<[u32; 8]>,
    pub(super) outputs: SmallVec<[u32; 3]>,
}

/// Of a node: it is in no composite op.
const APART: u32 = u32::MAX;

/// The composite ops of a graph.
pub(super) struct Rewrites<'a> {
    graph: &'a Graph,
    /// How many edges lead to each node.
    uses: Vec<u32>,
    /// The place of each node in the order.
    places: Vec<u32>,
    /// The composite op that each node is in.
    of: Vec<u32>,
    list: Vec<Rewrite>,
}

impl<'a> Rewrites<'a> {
    /// Finds the patterns of a graph whose nodes come in an order, inputs first.
    pub(super) fn find(graph: &'a Graph, order: &[u32]) -> Self {
        let mut found =
            Rewrites { graph, uses: Vec::new(), places: Vec::new(), of: Vec::new(), list: Vec::new() };
        if graph.nodes.iter().all(|node| node.mark.is_none()) {
            return found;
        }
        let count = graph.nodes.len();
        (found.uses, found.places, found.of) = (vec![0; count], vec![0; count], vec![APART; count]);
        (0..count).flat_map(|at| graph.read_nodes(at)).for_each(|read| found.uses[read] += 1);
        order.iter().enumerate().for_each(|(place, at)| found.places[*at as usize] = place as u32);
        for &at in order {
            let _ = match found.fact(at) {
                Fact::Sum => found.product_plus(at),
                Fact::Norm => found.add_norm(at),
                Fact::Concat => found.concatenated(at),
                Fact::RowAttention => found.rope_attention(at),
                Fact::RowUpdate => found.rope_update(at),
                Fact::None if graph.is_named(at as usize, "multiply") => found.gate(at),
                _ => None,
            };
        }
        found.products(order);
        found.row_products(order);
        found
    }

    /// The composite op that a node is in.
    pub(super) fn of(&self, at: u32) -> Option<&Rewrite> {
        self.list.get(*self.of.get(at as usize)? as usize)
    }

    fn fact(&self, at: u32) -> Fact {
        self.graph.nodes[at as usize].mark.fact
    }

    fn implements(&self, at: u32, composite: CompositeSet) -> bool {
        self.graph.nodes[at as usize].mark.composites.has(composite)
    }

    /// What a node reads.
    fn read(&self, at: u32, number: usize) -> Option<Slot> {
        self.graph.reads(at as usize).get(number).copied()
    }

    /// The node that a slot is the result of.
    fn node(&self, slot: Slot) -> Option<u32> {
        match slot.kind() {
            SlotKind::Node(at) => Some(at as u32),
            SlotKind::External(_) => None,
        }
    }

    /// Adds a composite op if it may replace its members: none is in another one, those that are not outputs
    /// are needed by members alone, and the inputs are other nodes, which are there when it runs.
    fn add(&mut self, rewrite: Rewrite) -> Option<()> {
        let Rewrite { at, inputs, members, outputs, .. } = &rewrite;
        let reads = |member: u32| {
            let slots = members.iter().flat_map(|other| self.graph.reads(*other as usize));
            slots.filter(|slot| **slot == Slot::node(member as usize)).count() as u32
        };
        let fits = members.iter().all(|member| {
            let node = *member as usize;
            let inside = || !self.graph.nodes[node].held && self.uses[node] == reads(*member);
            self.of[node] == APART && (outputs.contains(member) || inside())
        });
        let before = |slot: &Slot| {
            self.node(*slot).is_none_or(|input| {
                !members.contains(&input) && self.places[input as usize] < self.places[*at as usize]
            })
        };
        if !fits || !inputs.iter().all(before) {
            return None;
        }
        let number = self.list.len() as u32;
        members.iter().for_each(|member| self.of[*member as usize] = number);
        self.list.push(rewrite);
        Some(())
    }

    /// `x + y` and its norm. Both are results, so the sum may have other readers. An element-wise op that the
    /// sum would be fused with stays fused with it: that takes no more commands.
    fn add_norm(&mut self, norm: u32) -> Option<()> {
        let sum = self.node(self.read(norm, 0)?)?;
        let (x, y, weight) = (self.read(sum, 0)?, self.read(sum, 1)?, self.read(norm, 1)?);
        let nodes = &self.graph.nodes;
        let fuses = |slot: Slot| {
            self.node(slot).is_some_and(|at| {
                let (node, sum) = (&nodes[at as usize], &nodes[sum as usize]);
                node.role == Role::Elementwise && node.class == sum.class && self.of[at as usize] == APART
            })
        };
        if self.fact(sum) != Fact::Sum
            || !self.implements(norm, CompositeSet::ADD_NORM)
            || fuses(x)
            || fuses(y)
        {
            return None;
        }
        self.add(Rewrite {
            pattern: Pattern::AddNorm { norm },
            at: sum,
            inputs: smallvec![x, y, weight],
            members: smallvec![sum, norm],
            outputs: smallvec![sum, norm],
        })
    }

    /// `g * sigmoid(g) * u` of the halves of rows, or of products with the same rows.
    fn gate(&mut self, root: u32) -> Option<()> {
        let (silu, gate, sigmoid, up) = [(0, 1), (1, 0)].into_iter().find_map(|(first, second)| {
            let silu = self.node(self.read(root, first)?)?;
            let (gate, sigmoid) = self.silu(silu)?;
            Some((silu, gate, sigmoid, self.node(self.read(root, second)?)?))
        })?;
        let nodes = &self.graph.nodes;
        let like = &nodes[root as usize];
        let alike = [silu, gate, sigmoid, up].into_iter().all(|at| {
            let node = &nodes[at as usize];
            node.class == like.class && node.dtype == like.dtype
        });
        if !alike || gate == up {
            return None;
        }
        let mut members: SmallVec<[u32; 8]> = smallvec![root, silu, sigmoid];
        if (self.fact(gate), self.fact(up)) == (Fact::FirstHalf, Fact::SecondHalf) {
            let both = self.read(gate, 0)?;
            if self.read(up, 0)? != both
                || !self.implements(gate, CompositeSet::SILU_GATE)
                || !is_float(like.dtype)
            {
                return None;
            }
            // A half that something else needs stays a view of its own.
            let inside = |half: u32, reads: u32| {
                let node = &self.graph.nodes[half as usize];
                !node.held && self.uses[half as usize] == reads
            };
            members.extend(inside(gate, 2).then_some(gate));
            members.extend(inside(up, 1).then_some(up));
            let (inputs, outputs) = (smallvec![both], smallvec![root]);
            return self.add(Rewrite { pattern: Pattern::SiluGate, at: root, inputs, members, outputs });
        }
        let products = smallvec![self.product(gate, &mut members)?, self.product(up, &mut members)?];
        self.packed_layer(products, Epilogue::SiluGate, root, members, smallvec![root], None)
    }

    /// `g` and `sigmoid(g)` of their product.
    fn silu(&self, at: u32) -> Option<(u32, u32)> {
        if !self.graph.is_named(at as usize, "multiply") {
            return None;
        }
        [(0, 1), (1, 0)].into_iter().find_map(|(first, second)| {
            let (gate, sigmoid) = (self.read(at, first)?, self.node(self.read(at, second)?)?);
            let fits = self.graph.is_named(sigmoid as usize, "sigmoid") && self.read(sigmoid, 0)? == gate;
            Some((self.node(gate)?, sigmoid)).filter(|_| fits)
        })
    }

    /// The product that a node is, or is another shape of. Adds both to `members`.
    fn product(&self, mut at: u32, members: &mut SmallVec<[u32; 8]>) -> Option<u32> {
        members.push(at);
        if self.fact(at) == Fact::Reshape {
            at = self.node(self.read(at, 0)?)?;
            members.push(at);
        }
        let is_product = self.fact(at).is_packed_product();
        (is_product && self.implements(at, CompositeSet::PACKED_LAYER)).then_some(at)
    }

    /// A product plus an array.
    fn product_plus(&mut self, root: u32) -> Option<()> {
        for (first, second) in [(0, 1), (1, 0)] {
            let (Some(at), Some(plus)) =
                (self.read(root, first).and_then(|slot| self.node(slot)), self.read(root, second))
            else {
                continue;
            };
            let mut members = smallvec![root];
            let Some(product) = self.product(at, &mut members) else { continue };
            let (products, outputs) = (smallvec![product], smallvec![root]);
            let added =
                self.packed_layer(products, Epilogue::AddResidual, root, members, outputs, Some(plus));
            if added.is_some() {
                return added;
            }
        }
        None
    }

    /// Products of the same rows, concatenated.
    fn concatenated(&mut self, root: u32) -> Option<()> {
        let mut members = smallvec![root];
        let mut products = SmallVec::new();
        for number in 0..self.graph.reads(root as usize).len() {
            let at = self.node(self.read(root, number)?)?;
            products.push(self.product(at, &mut members)?);
        }
        self.packed_layer(products, Epilogue::Plain, root, members, smallvec![root], None)
    }

    /// Products that no other pattern has: few rows side by side, and the products of a norm.
    fn products(&mut self, order: &[u32]) {
        let mut groups: Vec<SmallVec<[u32; 3]>> = Vec::new();
        let mut of: HashMap<Slot, usize, BuildHasherDefault<WordHash>> = HashMap::default();
        for &at in order {
            let (fact, apart) = (self.fact(at), self.of[at as usize] == APART);
            let few = match fact {
                Fact::FewProduct | Fact::FewRoundedProduct if apart => true,
                Fact::Product | Fact::RoundedProduct if apart => false,
                _ => continue,
            };
            let Some(rows) = self.read(at, 0).map(|x| self.base(x, &mut SmallVec::new())) else { continue };
            let next = groups.len();
            let group = if few { *of.entry(rows).or_insert(next) } else { next };
            if group == next {
                groups.push(SmallVec::new());
            }
            groups[group].push(at);
        }
        for group in groups {
            for products in group.chunks(MAX_PRODUCTS) {
                let (first, all) = (products[0], SmallVec::<[u32; 3]>::from(products));
                if self.implements(first, CompositeSet::PACKED_LAYER) {
                    self.packed_layer(all.clone(), Epilogue::Plain, first, products.into(), all, None);
                }
            }
        }
    }

    /// Products of one row with several matrices.
    fn row_products(&mut self, order: &[u32]) {
        let mut groups: Vec<(Slot, SmallVec<[u32; 3]>)> = Vec::new();
        let mut of: HashMap<Slot, usize, BuildHasherDefault<WordHash>> = HashMap::default();
        for &at in order.iter().filter(|at| self.fact(**at) == Fact::RowProduct) {
            let Some(row) = self.read(at, 0) else { continue };
            let group = *of.entry(row).or_insert(groups.len());
            if group == groups.len() {
                groups.push((row, SmallVec::new()));
            }
            groups[group].1.push(at);
        }
        for (row, group) in groups {
            for products in group.chunks(MAX_PRODUCTS).filter(|products| products.len() > 1) {
                let matrices = products.iter().filter_map(|product| self.read(*product, 1));
                let rewrite = Rewrite {
                    pattern: Pattern::RowProducts,
                    at: products[0],
                    inputs: std::iter::once(row).chain(matrices).collect(),
                    members: products.into(),
                    outputs: products.into(),
                };
                if self.implements(products[0], CompositeSet::ROW_PRODUCTS) {
                    self.add(rewrite);
                }
            }
        }
    }

    /// The rotation that a node reads, its input, and its periods.
    fn rotation(&self, root: u32, number: usize) -> Option<(u32, Slot, Option<Slot>)> {
        let rope = self.node(self.read(root, number)?)?;
        let rotates = self.fact(rope) == Fact::RotatedRow;
        rotates.then_some(())?;
        Some((rope, self.read(rope, 0)?, self.read(rope, 1)))
    }

    /// Attention with rotated queries.
    fn rope_attention(&mut self, root: u32) -> Option<()> {
        let (rope, q, periods) = self.rotation(root, 0)?;
        let inputs = [q, self.read(root, 1)?, self.read(root, 2)?].into_iter().chain(periods).collect();
        self.implements(root, CompositeSet::ROPE_ATTENTION).then_some(())?;
        let (members, outputs) = (smallvec![rope, root], smallvec![root]);
        self.add(Rewrite { pattern: Pattern::RopeAttention { rope }, at: root, inputs, members, outputs })
    }

    /// A slice replaced by rotated rows.
    fn rope_update(&mut self, root: u32) -> Option<()> {
        let (rope, rows, periods) = self.rotation(root, 1)?;
        let inputs = [self.read(root, 0)?, rows].into_iter().chain(periods).collect();
        self.implements(root, CompositeSet::ROPE_UPDATE).then_some(())?;
        let (members, outputs) = (smallvec![rope, root], smallvec![root]);
        self.add(Rewrite { pattern: Pattern::RopeUpdate { rope }, at: root, inputs, members, outputs })
    }

    /// What a slot is another shape of. The reshapes in between are added to `between`.
    fn base(&self, mut slot: Slot, between: &mut SmallVec<[u32; 8]>) -> Slot {
        while let Some(at) = self.node(slot).filter(|at| self.fact(*at) == Fact::Reshape)
            && let Some(next) = self.read(at, 0)
        {
            if !between.contains(&at) {
                between.push(at);
            }
            slot = next;
        }
        slot
    }

    /// Products with an epilogue, after the norm of their rows if nothing else reads that.
    fn packed_layer(
        &mut self,
        products: SmallVec<[u32; 3]>,
        end: Epilogue,
        at: u32,
        members: SmallVec<[u32; 8]>,
        outputs: SmallVec<[u32; 3]>,
        plus: Option<Slot>,
    ) -> Option<()> {
        if products.len() > MAX_PRODUCTS {
            return None;
        }
        let x = self.read(*products.first()?, 0)?;
        let mut between = SmallVec::new();
        let rows = self.base(x, &mut between);
        let mut blocks: SmallVec<[Slot; 3]> = SmallVec::new();
        for product in &products {
            // One op rounds the activations of all its products, or of none.
            let alike = self.fact(*product) == self.fact(products[0]);
            if !alike || self.base(self.read(*product, 0)?, &mut between) != rows {
                return None;
            }
            blocks.push(self.read(*product, 1)?);
        }
        if let Some(norm) = self.node(rows).filter(|at| self.fact(*at) == Fact::Norm) {
            let inputs = [self.read(norm, 0)?, self.read(norm, 1)?];
            let added = self.add(Rewrite {
                pattern: Pattern::PackedLayer { norm: Some(norm), products: products.clone(), end },
                at,
                inputs: inputs.into_iter().chain(blocks.iter().copied()).chain(plus).collect(),
                members: members.iter().copied().chain([norm]).chain(between).collect(),
                outputs: outputs.clone(),
            });
            if added.is_some() {
                return added;
            }
        }
        if products.len() == 1 && end == Epilogue::Plain {
            return None;
        }
        self.add(Rewrite {
            pattern: Pattern::PackedLayer { norm: None, products, end },
            at,
            inputs: [x].into_iter().chain(blocks).chain(plus).collect(),
            members,
            outputs,
        })
    }
}

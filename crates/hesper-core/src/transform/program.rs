//! Compiled functions: a traced and planned graph that runs many times.
//!
//! A compiled function is built from a tape. Equal ops on equal inputs are merged, constants are folded, and
//! the rest is planned as a [`Program`], the same that evaluation runs. A run depends on the layout of its
//! arguments only. Intermediate memory comes from the stream's pool, which reuses it in stream order, so runs
//! share nothing: many threads may run a function at once, and results of earlier runs do not change.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use hesper_runtime::Stream;
use smallvec::{SmallVec, smallvec};

use crate::Dtype;
use crate::error::{Error, Result};
use crate::eval::graph::{Classes, Emit, Graph, Role, Slot, SlotKind};
use crate::eval::patterns::{self, Nodes};
use crate::eval::program::{NodeView, Program, Store, missing};
use crate::eval::{Lowering, Operand, fusion_enabled};
use crate::graph::scope::outermost;
use crate::graph::{Array, Call, Data, KnownBytes, Op, OpKind, OpRef, State};
use crate::identity::equal_to_itself;
use crate::ids::IdMap;
use crate::shape::Shape;
use crate::tape::Tape;

struct Node {
    op: OpRef,
    inputs: SmallVec<[Slot; 3]>,
    shape: Shape,
    dtype: Dtype,
    stream: Stream,
}

impl Node {
    /// Shape, type and stream.
    fn like(&self) -> (&[usize], Dtype, &Stream) {
        (&self.shape, self.dtype, &self.stream)
    }
}

/// What makes two nodes the same: op, inputs, shape, type, stream.
type Identity = (OpRef, SmallVec<[Slot; 3]>, Shape, Dtype, u64);

/// A function of arrays, ready to run. Its external slots are the arguments, then the constants.
pub(crate) struct CompiledFunction {
    arguments: Vec<(Shape, Dtype)>,
    nodes: Vec<Node>,
    constants: Vec<Array>,
    /// The numbers among the constants that kernels take by value.
    known: Vec<Option<KnownBytes>>,
    program: Program,
    outputs: Vec<Slot>,
    /// The nodes and arguments that are outputs: a run neither overwrites them nor lets them go.
    returned_nodes: Vec<bool>,
    returned_arguments: Vec<bool>,
}

/// The call of a lazy array whose elements follow from a few numbers, as those of `zeros` and of its
/// multiples do. If it is large, each run computes it, mostly as part of a kernel: to keep it would take
/// memory for as long as the function lives.
fn generated(array: &Array) -> Option<Call> {
    const MAX_KEPT: usize = 1 << 16;
    const MAX_CALLS: usize = 8;
    let call = (array.nbytes() > MAX_KEPT).then(|| array.call())??;
    let mut calls: SmallVec<[Call; MAX_CALLS]> = smallvec![call];
    let mut next = 0;
    while let Some(Call { op, inputs }) = calls.get(next).cloned() {
        if !op.is_elementwise() || calls.len() > MAX_CALLS {
            return None;
        }
        for input in inputs.iter().filter(|input| input.size() != 1) {
            calls.push(input.call()?);
        }
        next += 1;
    }
    Some(calls.swap_remove(0))
}

impl fmt::Debug for CompiledFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.program.fmt(f)
    }
}

impl CompiledFunction {
    /// The function that computes `outputs` from `arguments`.
    pub(crate) fn new(outputs: &[Array], arguments: &[Array]) -> Result<CompiledFunction> {
        let tape = Tape::new(outputs, arguments);
        let mut function = CompiledFunction {
            arguments: arguments.iter().map(|one| (one.0.shape.clone(), one.dtype())).collect(),
            nodes: Vec::new(),
            constants: Vec::new(),
            known: Vec::new(),
            program: Program::default(),
            outputs: Vec::new(),
            returned_nodes: Vec::new(),
            returned_arguments: vec![false; arguments.len()],
        };
        let mut slots: IdMap<Slot> = IdMap::default();
        for (number, argument) in arguments.iter().enumerate() {
            slots.insert(argument.0.id, Slot::external(number));
        }
        let mut met: HashMap<Identity, usize> = HashMap::new();
        for entry in &tape.entries {
            let node = function.node(&mut slots, &mut met, &entry.array, &entry.call);
            slots.insert(entry.array.0.id, node);
        }
        let mut slot = |output| function.slot(&mut slots, &mut met, output);
        function.outputs = outputs.iter().map(&mut slot).collect();
        if outermost(&function.constants).is_none() {
            crate::eval::schedule(&function.constants.iter().collect::<Vec<_>>())?;
        }
        function.plan();
        Ok(function)
    }

    /// The slot of an array: one that has a slot, a node that every run computes, or a constant.
    fn slot(&mut self, slots: &mut IdMap<Slot>, met: &mut HashMap<Identity, usize>, array: &Array) -> Slot {
        if let Some(slot) = slots.get(&array.0.id) {
            return *slot;
        }
        let slot = match generated(array) {
            Some(call) => self.node(slots, met, array, &call),
            None => {
                self.constants.push(array.clone());
                Slot::external(self.arguments.len() + self.constants.len() - 1)
            }
        };
        slots.insert(array.0.id, slot);
        slot
    }

    /// The node of an array and its call, or the equal one that exists already.
    fn node(
        &mut self,
        slots: &mut IdMap<Slot>,
        met: &mut HashMap<Identity, usize>,
        array: &Array,
        call: &Call,
    ) -> Slot {
        let inputs: SmallVec<[Slot; 3]> =
            call.inputs.iter().map(|input| self.slot(slots, met, input)).collect();
        let (op, node) = (call.op.clone(), &array.0);
        let identity = (op.clone(), inputs.clone(), node.shape.clone(), node.dtype, node.stream.id());
        let at = *met.entry(identity).or_insert(self.nodes.len());
        if at == self.nodes.len() {
            let (shape, dtype, stream) = (node.shape.clone(), node.dtype, node.stream.clone());
            self.nodes.push(Node { op, inputs, shape, dtype, stream });
        }
        Slot::node(at)
    }

    /// Decides on groups, order and lifetimes.
    fn plan(&mut self) {
        self.returned_nodes = vec![false; self.nodes.len()];
        for output in &self.outputs {
            match output.kind() {
                SlotKind::Node(at) => self.returned_nodes[at] = true,
                SlotKind::External(at) => {
                    if let Some(returned) = self.returned_arguments.get_mut(at) {
                        *returned = true;
                    }
                }
            }
        }
        let known =
            |array: &Array| if let State::Known(known) = &*array.state() { Some(*known) } else { None };
        self.known = self.constants.iter().map(known).collect();
        let (mut graph, mut classes) = (Graph::default(), Classes::default());
        for (at, node) in self.nodes.iter().enumerate() {
            let first = match node.inputs.first().map(|slot| slot.kind()) {
                Some(SlotKind::Node(first)) => Some(&self.nodes[first]),
                _ => None,
            };
            let (role, emit) = (Role::of(&node.op, node.like(), first.map(Node::like)), Emit::of(&node.op));
            let class = classes.of(&node.shape, &node.stream);
            graph.push(node.inputs.iter().copied(), class, node.dtype, role, emit);
            graph.set_held(at, self.returned_nodes[at]);
        }
        self.arguments.iter().for_each(|(_, dtype)| graph.push_external(*dtype, false));
        for (constant, known) in self.constants.iter().zip(&self.known) {
            graph.push_external(constant.dtype(), known.is_some());
        }
        graph.set_recompute(self.nodes.first().map(|node| &node.stream));
        let fusion = fusion_enabled();
        if fusion {
            for at in 0..self.nodes.len() {
                graph.set_mark(at, patterns::mark(&graph, self, at));
            }
        }
        self.program = graph.plan(fusion);
    }

    /// The shape and type of a slot.
    fn meta(&self, slot: Slot) -> (&Shape, Dtype) {
        match slot.kind() {
            SlotKind::Node(at) => (&self.nodes[at].shape, self.nodes[at].dtype),
            SlotKind::External(at) => match self.arguments.get(at) {
                Some((shape, dtype)) => (shape, *dtype),
                None => {
                    let constant = &self.constants[at - self.arguments.len()];
                    (&constant.0.shape, constant.0.dtype)
                }
            },
        }
    }

    /// Encodes everything for arguments that lie somewhere; gives where the outputs lie. An op may overwrite
    /// an argument that is owned: the last one that reads it. If the run fails after that, the argument is
    /// spent.
    pub(crate) fn run(&self, arguments: &mut [&mut Operand]) -> Result<Vec<Data>> {
        let mut run = Values { function: self, arguments, results: vec![None; self.nodes.len()] };
        self.program.run(&mut run)?;
        self.outputs.iter().map(|slot| run.data(*slot)).collect()
    }

    /// Whether it is a few element-wise ops. As part of the caller's graph they are fused with their
    /// neighbours, and the bits are the same.
    pub(crate) fn is_small(&self) -> bool {
        const MAX_INLINED: usize = 8;
        self.nodes.len() <= MAX_INLINED && self.nodes.iter().all(|node| node.op.is_elementwise())
    }

    /// The function's graph on arrays.
    pub(crate) fn inline(&self, arguments: &[Array]) -> Vec<Array> {
        let mut made: Vec<Array> = Vec::with_capacity(self.nodes.len());
        let find = |made: &[Array], slot: &Slot| match slot.kind() {
            SlotKind::Node(at) => made[at].clone(),
            SlotKind::External(at) => match arguments.get(at) {
                Some(argument) => argument.clone(),
                None => self.constants[at - arguments.len()].clone(),
            },
        };
        for node in &self.nodes {
            let inputs = node.inputs.iter().map(|slot| find(&made, slot)).collect();
            let (stream, shape) = (node.stream.clone(), node.shape.clone());
            made.push(Array::lazy_on(stream, shape, node.dtype, node.op.clone(), inputs));
        }
        self.outputs.iter().map(|slot| find(&made, slot)).collect()
    }

    /// The shapes and types of the outputs.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (&Shape, Dtype)> {
        self.outputs.iter().map(|slot| self.meta(*slot))
    }

    /// What the function took from around it.
    pub(crate) fn constants(&self) -> &[Array] {
        &self.constants
    }
}

impl Nodes for CompiledFunction {
    fn view(&self, at: usize) -> Option<NodeView<'_>> {
        let Node { op, shape, dtype, stream, .. } = self.nodes.get(at)?;
        Some(NodeView { op, shape, dtype: *dtype, stream })
    }

    fn like(&self, slot: Slot) -> Option<(&[usize], Dtype)> {
        let (shape, dtype) = self.meta(slot);
        Some((shape, dtype))
    }
}

/// The values of a run.
struct Values<'a, 'b> {
    function: &'a CompiledFunction,
    arguments: &'a mut [&'b mut Operand],
    /// The results of nodes, from their step to their last use.
    results: Vec<Option<Data>>,
}

impl Values<'_, '_> {
    fn data(&self, slot: Slot) -> Result<Data> {
        match slot.kind() {
            SlotKind::Node(at) => self.results[at].clone().ok_or_else(missing),
            SlotKind::External(at) => match self.arguments.get(at) {
                Some(argument) => Ok(argument.data().clone()),
                None => self.function.constants[at - self.arguments.len()].data(),
            },
        }
    }
}

impl Store for Values<'_, '_> {
    fn node(&self, at: usize) -> Result<NodeView<'_>> {
        self.function.view(at).ok_or_else(missing)
    }

    fn meta(&self, slot: Slot) -> Result<(&Shape, Dtype)> {
        Ok(self.function.meta(slot))
    }

    fn known(&self, slot: Slot) -> Option<KnownBytes> {
        match slot.kind() {
            SlotKind::Node(_) => None,
            SlotKind::External(at) => self.function.known[at.checked_sub(self.arguments.len())?],
        }
    }

    fn with_data<R>(&self, slot: Slot, f: impl FnOnce(&Data) -> R) -> Option<R> {
        match slot.kind() {
            SlotKind::Node(at) => self.results[at].as_ref().map(f),
            SlotKind::External(at) => match self.arguments.get(at) {
                Some(argument) => Some(f(argument.data())),
                None => self.function.constants[at - self.arguments.len()].with_data(f),
            },
        }
    }

    /// A result is taken out of its slot, and an argument is lent.
    fn operand(&mut self, slot: Slot, last: bool) -> Result<Operand> {
        match slot.kind() {
            SlotKind::Node(at) if last && !self.function.returned_nodes[at] => {
                self.results[at].take().map(Operand::of).ok_or_else(missing)
            }
            SlotKind::External(at)
                if last && self.function.returned_arguments.get(at).is_some_and(|returned| !returned) =>
            {
                Ok(self.arguments[at].lend())
            }
            _ => self.data(slot).map(Operand::borrowed),
        }
    }

    fn settle(&mut self, slot: Slot, operand: &Operand, failed: bool) {
        match slot.kind() {
            SlotKind::Node(at) => {
                if failed && !operand.is_spent() {
                    self.results[at] = Some(operand.data().clone());
                }
            }
            SlotKind::External(at) => {
                if let Some(argument) = self.arguments.get_mut(at) {
                    argument.settle(operand);
                }
            }
        }
    }

    /// The run fails as a whole.
    fn fail(&mut self, _: &[u32], _: &Error) {}

    fn resolve(&mut self, at: usize, data: Data) -> Result<()> {
        self.results[at] = Some(data);
        Ok(())
    }

    fn computed(&mut self, _: &[u32]) {}

    fn release(&mut self, slot: Slot) {
        if let SlotKind::Node(at) = slot.kind()
            && !self.function.returned_nodes[at]
        {
            self.results[at] = None;
        }
    }
}

/// A call of a compiled function. Its array holds no elements: outputs are its parts.
#[derive(Debug)]
struct Run {
    function: Arc<CompiledFunction>,
    results: Mutex<Option<Vec<Data>>>,
}

equal_to_itself!(Run);

impl Op for Run {
    fn name(&self) -> &'static str {
        "compiled function"
    }

    fn is_opaque(&self) -> bool {
        true
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let whole = Data::contiguous(l.stream().alloc(0)?, l.shape());
        let mut arguments: SmallVec<[&mut Operand; 8]> = l.operands().collect();
        let results = self.function.run(&mut arguments)?;
        *self.results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(results);
        Ok(whole)
    }

    /// The ops of the function say where they run.
    fn is_everywhere(&self) -> bool {
        true
    }
}

/// An output of a run.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Output {
    run: Arc<Run>,
    number: usize,
}

impl Op for Output {
    fn name(&self) -> &'static str {
        "output"
    }

    fn kind(&self) -> OpKind<'_> {
        OpKind::View
    }

    fn lower(&self, _: &mut Lowering<'_>) -> Result<Data> {
        let results = self.run.results.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let found = results.as_ref().and_then(|results| results.get(self.number)).cloned();
        found.ok_or_else(|| {
            Error::value("compiled function", "an output was asked for before the function ran")
        })
    }
}

/// The outputs of a function on arrays, not computed yet.
pub(crate) fn call(function: &Arc<CompiledFunction>, arguments: &[Array]) -> Result<Vec<Array>> {
    let run = Arc::new(Run { function: function.clone(), results: Mutex::new(None) });
    let whole = Array::lazy(smallvec![0], Dtype::Uint8, OpRef::Shared(run.clone()), arguments.into())?;
    function
        .outputs()
        .enumerate()
        .map(|(number, (shape, dtype))| {
            let output = OpRef::new(Output { run: run.clone(), number });
            Array::lazy(shape.clone(), dtype, output, smallvec![whole.clone()])
        })
        .collect()
}

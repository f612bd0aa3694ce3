//! Programs: a function's graph with everything about it decided, to be run again and again.
//!
//! A program is made from a tape. Equal ops on equal inputs are one; what does not depend on the arguments
//! is computed once; element-wise ops are groups; the order and the moment at which each intermediate
//! array is let go are fixed. A run looks at nothing but where the arguments lie. Intermediate memory
//! comes from the stream's pool, which hands it on in stream order, so runs share nothing: many threads
//! may run a program at once, and results of earlier runs stay as they are.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use hesper_runtime::Stream;
use smallvec::{SmallVec, smallvec};

use super::scope::outermost;
use super::tape::Tape;
use crate::Dtype;
use crate::array::{Array, Data};
use crate::error::{Error, Result};
use crate::eval::fuse::{Expression, Source};
use crate::eval::plan::{Graph, Role, Step};
use crate::eval::{Bound, Lowering, Rows, lower_op};
use crate::ids::IdMap;
use crate::ops::{Kind, Op, OpRef};
use crate::shape::Shape;

/// What an op reads, or what a program gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Argument(usize),
    Constant(usize),
    Node(usize),
}

struct Node {
    op: OpRef,
    inputs: SmallVec<[Place; 3]>,
    shape: Shape,
    dtype: Dtype,
    stream: Stream,
}

/// One command, or several of one op.
enum Work {
    Op(usize),
    Group {
        expression: Box<Expression>,
        inputs: Vec<Place>,
        outputs: Vec<usize>,
        stream: Stream,
    },
    /// An op, and the expression whose value it takes row by row as its first input.
    Rows {
        expression: Box<Expression>,
        inputs: Vec<Place>,
        op: usize,
    },
}

/// A function of arrays, ready to run.
pub(crate) struct Program {
    arguments: Vec<(Shape, Dtype)>,
    nodes: Vec<Node>,
    constants: Vec<Array>,
    work: Vec<Work>,
    /// For each piece of work the nodes that nothing needs after it.
    over: Vec<SmallVec<[usize; 4]>>,
    /// For each argument the piece of work that reads it last, unless it is given back.
    last: Vec<Option<usize>>,
    outputs: Vec<Place>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a program of {} ops in {} steps", self.nodes.len(), self.work.len())
    }
}

/// What makes two nodes the same.
#[derive(PartialEq, Eq, Hash)]
struct Identity {
    name: &'static str,
    text: String,
    inputs: SmallVec<[Place; 3]>,
    shape: Shape,
    dtype: Dtype,
    stream: u64,
}

impl Program {
    /// The program that computes `outputs` from `arguments`.
    pub(crate) fn new(outputs: &[Array], arguments: &[Array]) -> Result<Program> {
        let tape = Tape::new(outputs, arguments);
        let mut program = Program {
            arguments: arguments.iter().map(|one| (one.0.shape.clone(), one.dtype())).collect(),
            nodes: Vec::new(),
            constants: Vec::new(),
            work: Vec::new(),
            over: Vec::new(),
            last: Vec::new(),
            outputs: Vec::new(),
        };
        let mut places: IdMap<Place> = IdMap::default();
        for (number, argument) in arguments.iter().enumerate() {
            places.insert(argument.0.id, Place::Argument(number));
        }
        let mut met: HashMap<Identity, usize> = HashMap::new();
        for entry in &tape.entries {
            let inputs = entry.call.inputs.iter().map(|input| program.place(&mut places, input)).collect();
            let node = &entry.array.0;
            let at = program.node(&mut met, entry.call.op.clone(), inputs, node)?;
            places.insert(node.id, Place::Node(at));
        }
        program.outputs = outputs.iter().map(|output| program.place(&mut places, output)).collect();
        if outermost(&program.constants).is_none() {
            crate::eval::schedule(&program.constants.iter().collect::<Vec<_>>())?;
        }
        program.schedule()?;
        Ok(program)
    }

    /// The place of an array: one that is known, or a constant.
    fn place(&mut self, places: &mut IdMap<Place>, array: &Array) -> Place {
        *places.entry(array.0.id).or_insert_with(|| {
            self.constants.push(array.clone());
            Place::Constant(self.constants.len() - 1)
        })
    }

    /// A node, or the one that is there already and the same.
    fn node(
        &mut self,
        met: &mut HashMap<Identity, usize>,
        op: OpRef,
        inputs: SmallVec<[Place; 3]>,
        node: &crate::array::Node,
    ) -> Result<usize> {
        let fresh = self.nodes.len();
        if let Some(text) = op.get().identity() {
            let identity = Identity {
                name: op.name(),
                text,
                inputs: inputs.clone(),
                shape: node.shape.clone(),
                dtype: node.dtype,
                stream: node.stream.id(),
            };
            let at = *met.entry(identity).or_insert(fresh);
            if at != fresh {
                return Ok(at);
            }
        }
        let (shape, dtype, stream) = (node.shape.clone(), node.dtype, node.stream.clone());
        self.nodes.push(Node { op, inputs, shape, dtype, stream });
        Ok(fresh)
    }

    /// Decides on groups, order and lifetimes.
    fn schedule(&mut self) -> Result<()> {
        let nodes = &self.nodes;
        let mut wanted = vec![false; nodes.len()];
        for output in &self.outputs {
            if let Place::Node(at) = output {
                wanted[*at] = true;
            }
        }
        let mut graph = Graph::default();
        for node in nodes {
            let reads = node.inputs.iter().filter_map(|place| match place {
                Place::Node(at) => Some(*at),
                _ => None,
            });
            let first = match node.inputs.first() {
                Some(Place::Node(at)) => Some(&nodes[*at]),
                _ => None,
            };
            let first = first.map(|input| (&input.shape[..], input.dtype, &input.stream));
            graph.push(reads, Role::of(&node.op, &node.stream, first));
        }
        let plan = graph.plan(
            |one, other| {
                nodes[one].shape == nodes[other].shape && nodes[one].stream.id() == nodes[other].stream.id()
            },
            |at, _| wanted[at],
        );
        let over = (0..plan.steps.len()).map(|step| plan.over(step).filter(|at| !wanted[*at]).collect());
        self.over = over.collect();
        let mut work = Vec::new();
        for step in plan.steps {
            work.push(match step {
                Step::Op(at) => Work::Op(at),
                Step::One(at) => {
                    let (expression, inputs) = self.expression(&[at], &[at])?;
                    Work::Group { expression, inputs, outputs: vec![at], stream: nodes[at].stream.clone() }
                }
                Step::Group(group) => {
                    let (expression, inputs) = self.expression(&group.members, &group.outputs)?;
                    let stream = nodes[group.members[0]].stream.clone();
                    Work::Group { expression, inputs, outputs: group.outputs, stream }
                }
                Step::Rows(group, op) => {
                    let (expression, inputs) = self.expression(&group.members, &group.outputs)?;
                    Work::Rows { expression, inputs, op }
                }
            });
        }
        let mut last = vec![None; self.arguments.len()];
        for (step, work) in work.iter().enumerate() {
            let (inputs, op): (&[Place], Option<usize>) = match work {
                Work::Op(at) => (&[], Some(*at)),
                Work::Group { inputs, .. } => (inputs, None),
                Work::Rows { inputs, op, .. } => (inputs, Some(*op)),
            };
            for place in inputs.iter().chain(op.iter().flat_map(|at| &nodes[*at].inputs)) {
                if let Place::Argument(at) = place {
                    last[*at] = Some(step);
                }
            }
        }
        for output in &self.outputs {
            if let Place::Argument(at) = output {
                last[*at] = None;
            }
        }
        self.last = last;
        self.work = work;
        Ok(())
    }

    /// The expression of a group, and what it reads.
    fn expression(&self, members: &[usize], outputs: &[usize]) -> Result<(Box<Expression>, Vec<Place>)> {
        let last = &self.nodes[members[members.len() - 1]];
        let mut expression = Expression::new(last.shape.clone());
        let mut inputs: Vec<Place> = Vec::new();
        let mut sources: HashMap<Place, Source> = HashMap::new();
        for &at in members {
            let node = &self.nodes[at];
            let mut reads = SmallVec::new();
            for place in &node.inputs {
                let source = match sources.get(place) {
                    Some(source) => *source,
                    None => {
                        inputs.push(*place);
                        let source = self.source(&mut expression, *place);
                        sources.insert(*place, source);
                        source
                    }
                };
                reads.push(source);
            }
            let source = expression.member(&node.op, reads, node.dtype, outputs.contains(&at))?;
            sources.insert(Place::Node(at), source);
        }
        Ok((Box::new(expression), inputs))
    }

    /// One more input of an expression.
    fn source(&self, expression: &mut Expression, place: Place) -> Source {
        match place {
            Place::Constant(at) => expression.input(&self.constants[at]),
            _ => {
                let (shape, dtype) = self.meta(place);
                expression.memory(shape.into(), dtype)
            }
        }
    }

    fn meta(&self, place: Place) -> (&[usize], Dtype) {
        match place {
            Place::Argument(at) => (&self.arguments[at].0, self.arguments[at].1),
            Place::Constant(at) => (self.constants[at].shape(), self.constants[at].dtype()),
            Place::Node(at) => (&self.nodes[at].shape, self.nodes[at].dtype),
        }
    }

    /// Encodes everything for arguments that lie somewhere; gives where the outputs lie. An argument that is
    /// donated is one that nobody can ask for again: an op may overwrite it.
    pub(crate) fn run(&self, arguments: &[Argument]) -> Result<Vec<Data>> {
        let mut made: Vec<Option<Data>> = vec![None; self.nodes.len()];
        let gather = |made: &[Option<Data>], expression: &Expression, inputs: &[Place]| {
            inputs
                .iter()
                .zip(&expression.inputs)
                .map(|(place, given)| match given.known {
                    Some(_) => Ok(None),
                    None => self.find(arguments, made, *place).map(Some),
                })
                .collect::<Result<SmallVec<[Option<Data>; 8]>>>()
        };
        for (step, (work, over)) in self.work.iter().zip(&self.over).enumerate() {
            match work {
                Work::Op(at) => {
                    made[*at] = Some(self.lower(*at, None, (step, over), arguments, &mut made)?)
                }
                Work::Rows { expression, inputs, op } => {
                    let inputs = gather(&made, expression, inputs)?;
                    let rows = Rows::of(expression, &self.nodes[*op].stream, &inputs)?;
                    made[*op] = Some(self.lower(*op, Some(rows), (step, over), arguments, &mut made)?);
                }
                Work::Group { expression, inputs, outputs, stream } => {
                    let data = gather(&made, expression, inputs)?;
                    let is_spare = |input: usize| {
                        let Some(data) = &data[input] else { return false };
                        match inputs[input] {
                            // Held here and by what was made.
                            Place::Node(at) => over.contains(&at) && data.buffer.handles() == 2,
                            Place::Argument(at) => self.is_given(arguments, at, step, data),
                            Place::Constant(_) => false,
                        }
                    };
                    for (at, data) in outputs.iter().zip(expression.run(stream, &data, &is_spare)?) {
                        made[*at] = Some(data);
                    }
                }
            }
            over.iter().for_each(|at| made[*at] = None);
        }
        self.outputs.iter().map(|place| self.find(arguments, &made, *place)).collect()
    }

    /// Whether nobody can ask for an argument, one more handle on which is `data`, after a step.
    fn is_given(&self, arguments: &[Argument], at: usize, step: usize, data: &Data) -> bool {
        let alone = data.buffer.handles() == Argument::HANDLES + 1;
        arguments[at].donated && self.last[at] == Some(step) && alone
    }

    /// Where something is during a run.
    fn find(&self, arguments: &[Argument], made: &[Option<Data>], place: Place) -> Result<Data> {
        match place {
            Place::Argument(at) => Ok(arguments[at].data.clone()),
            Place::Constant(at) => self.constants[at].data(),
            Place::Node(at) => {
                made[at].clone().ok_or_else(|| Error::value("compile", "a node was let go too early"))
            }
        }
    }

    /// Lowers the op of a node, whose first input may have been left to be made.
    fn lower(
        &self,
        at: usize,
        mut rows: Option<Rows>,
        (step, over): (usize, &[usize]),
        arguments: &[Argument],
        made: &mut [Option<Data>],
    ) -> Result<Data> {
        let node = &self.nodes[at];
        let inputs = node
            .inputs
            .iter()
            .map(|place| {
                let (shape, dtype) = self.meta(*place);
                if let Some(data) = rows.as_mut().and_then(|rows| rows.data.take()) {
                    return Ok(Bound { shape, dtype, data, donated: false });
                }
                let mut data = None;
                let once = node.inputs.iter().filter(|other| *other == place).count() == 1;
                // What nothing needs after this op is the op's to use.
                if let Place::Node(from) = place
                    && over.contains(from)
                    && once
                {
                    data = made[*from].take();
                }
                let taken = data.is_some();
                let data = data.map_or_else(|| self.find(arguments, made, *place), Ok)?;
                let given = match place {
                    Place::Argument(at) => once && self.is_given(arguments, *at, step, &data),
                    _ => taken && data.buffer.handles() == 1,
                };
                let donated = given && data.buffer.writable();
                Ok(Bound { shape, dtype, data, donated })
            })
            .collect::<Result<_>>()?;
        let made = rows.and_then(|rows| rows.made);
        let lowering = Lowering::new(&node.stream, &node.shape, node.dtype, inputs).with_made(made);
        lower_op(node.op.get(), lowering)
    }

    /// The program's graph on arrays: for transformations to go over.
    pub(crate) fn inline(&self, arguments: &[Array]) -> Vec<Array> {
        let mut made: Vec<Array> = Vec::with_capacity(self.nodes.len());
        let find = |made: &[Array], place: &Place| match place {
            Place::Argument(at) => arguments[*at].clone(),
            Place::Constant(at) => self.constants[*at].clone(),
            Place::Node(at) => made[*at].clone(),
        };
        for node in &self.nodes {
            let inputs = node.inputs.iter().map(|place| find(&made, place)).collect();
            let (stream, shape) = (node.stream.clone(), node.shape.clone());
            made.push(Array::lazy_on(stream, shape, node.dtype, node.op.clone(), inputs));
        }
        self.outputs.iter().map(|place| find(&made, place)).collect()
    }

    /// The shapes and types of the outputs.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (&[usize], Dtype)> {
        self.outputs.iter().map(|place| self.meta(*place))
    }

    /// What the function took from around it.
    pub(crate) fn constants(&self) -> &[Array] {
        &self.constants
    }
}

/// An argument of a run.
pub(crate) struct Argument {
    pub(crate) data: Data,
    /// Whether nobody can ask for it again.
    pub(crate) donated: bool,
}

impl Argument {
    /// Handles on the memory of an argument that only the run has: its array's, its lowering's and its own.
    const HANDLES: usize = 3;
}

/// A run of a program, when its turn comes. Its array holds no elements: outputs are its parts.
#[derive(Debug)]
struct Run {
    program: Arc<Program>,
    results: Mutex<Option<Vec<Data>>>,
}

impl Op for Run {
    fn name(&self) -> &'static str {
        "compiled function"
    }

    fn identity(&self) -> Option<String> {
        None
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let arguments: SmallVec<[Argument; 8]> = (0..l.input_count())
            .map(|at| Argument { data: l.input(at).clone(), donated: l.is_donated(at) })
            .collect();
        let results = self.program.run(&arguments)?;
        *self.results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(results);
        Ok(Data::contiguous(l.stream().alloc(0)?, l.shape()))
    }

    /// The program's ops say where they run.
    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        self.lower(l).map(Some)
    }
}

/// An output of a run.
#[derive(Debug)]
struct Output {
    run: Arc<Run>,
    number: usize,
}

impl Op for Output {
    fn name(&self) -> &'static str {
        "output"
    }

    fn identity(&self) -> Option<String> {
        None
    }

    fn kind(&self) -> Kind<'_> {
        Kind::View
    }

    fn lower(&self, _: &mut Lowering<'_>) -> Result<Data> {
        let results = self.run.results.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let found = results.as_ref().and_then(|results| results.get(self.number)).cloned();
        found.ok_or_else(|| Error::value("compiled function", "it has not run"))
    }
}

/// The outputs of a program on arrays, not computed yet.
pub(crate) fn call(program: &Arc<Program>, arguments: &[Array]) -> Result<Vec<Array>> {
    let run = Arc::new(Run { program: program.clone(), results: Mutex::new(None) });
    let whole = Array::lazy(smallvec![0], Dtype::Uint8, OpRef::Shared(run.clone()), arguments.into())?;
    program
        .outputs()
        .enumerate()
        .map(|(number, (shape, dtype))| {
            let output = OpRef::new(Output { run: run.clone(), number });
            Array::lazy(shape.into(), dtype, output, smallvec![whole.clone()])
        })
        .collect()
}

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
use crate::eval::fuse::{Expression, Given, Operands, Source};
use crate::eval::plan::{self, Graph, Role};
use crate::eval::{FUSED, Lowering, Operand, Rows, caught, lower_op};
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
    /// The function that writes the expression of an element-wise op: a name alone does not tell what is computed.
    emit: usize,
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
            let emit = match op.get().kind() {
                Kind::Elementwise(op) => op.emit as usize,
                Kind::Commands | Kind::View => 0,
            };
            let identity = Identity {
                name: op.name(),
                emit,
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
            |at| wanted[at],
        );
        let over = (0..plan.steps.len()).map(|step| plan.over(step).filter(|at| !wanted[*at]).collect());
        self.over = over.collect();
        let mut work = Vec::new();
        for step in plan.steps {
            work.push(match step {
                plan::Step::Op(at) => Work::Op(at),
                plan::Step::One(at) => {
                    let (expression, inputs) = self.expression(&[at], &[at])?;
                    Work::Group { expression, inputs, outputs: vec![at], stream: nodes[at].stream.clone() }
                }
                plan::Step::Group(group) => {
                    let (expression, inputs) = self.expression(&group.members, &group.outputs)?;
                    let stream = nodes[group.members[0]].stream.clone();
                    Work::Group { expression, inputs, outputs: group.outputs, stream }
                }
                plan::Step::Rows(group, op) => {
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

    /// Encodes everything for arguments that lie somewhere; gives where the outputs lie. An op may overwrite an argument
    /// that is owned: the last one that reads it. If the run fails after that, the argument is spent.
    pub(crate) fn run(&self, arguments: &mut [&mut Operand]) -> Result<Vec<Data>> {
        let mut made: Vec<Option<Data>> = vec![None; self.nodes.len()];
        for (step, work) in self.work.iter().enumerate() {
            let mut run = Step { program: self, number: step, arguments, made: &mut made };
            match work {
                Work::Op(at) => {
                    let data = run.lower(*at, None, &[])?;
                    made[*at] = Some(data);
                }
                Work::Rows { expression, inputs, op } => {
                    let operands = run.borrowed(expression, inputs)?;
                    let rows = Rows::of(expression, &self.nodes[*op].stream, operands)?;
                    let data = run.lower(*op, Some(rows), inputs)?;
                    made[*op] = Some(data);
                }
                Work::Group { expression, inputs, outputs, stream } => {
                    let mut operands = Operands::new();
                    let results = run
                        .gather(expression, inputs, &mut operands)
                        .and_then(|()| caught(FUSED, || expression.run(stream, &mut operands)));
                    for (place, operand) in inputs.iter().zip(operands) {
                        run.settle(*place, operand);
                    }
                    for (at, data) in outputs.iter().zip(results?) {
                        made[*at] = Some(data);
                    }
                }
            }
            self.over[step].iter().for_each(|at| made[*at] = None);
        }
        self.outputs.iter().map(|place| self.find(arguments, &made, *place)).collect()
    }

    /// Where something is during a run.
    fn find(&self, arguments: &[&mut Operand], made: &[Option<Data>], place: Place) -> Result<Data> {
        match place {
            Place::Argument(at) => Ok(arguments[at].data().clone()),
            Place::Constant(at) => self.constants[at].data(),
            Place::Node(at) => {
                made[at].clone().ok_or_else(|| Error::value("compile", "a node was let go too early"))
            }
        }
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

/// A step of a run.
struct Step<'a, 'b> {
    program: &'a Program,
    number: usize,
    arguments: &'a mut [&'b mut Operand],
    /// What earlier steps made and later ones, or this one, need.
    made: &'a mut [Option<Data>],
}

impl Step<'_, '_> {
    /// What the step reads at a place. If nothing reads it after this step, and this step but `once`, it is the step's own
    /// if nobody else has it: what was made is taken out of the list, and an argument is lent.
    fn operand(&mut self, place: Place, once: bool) -> Result<Operand> {
        match place {
            Place::Node(at) if once && self.program.over[self.number].contains(&at) => {
                match self.made[at].take() {
                    Some(data) => return Ok(Operand::of(data)),
                    None => return Err(Error::value("compile", "a node was let go too early")),
                }
            }
            Place::Argument(at) if once && self.program.last[at] == Some(self.number) => {
                return Ok(self.arguments[at].lend());
            }
            _ => {}
        }
        self.program.find(self.arguments, self.made, place).map(Operand::borrowed)
    }

    /// The step is over: an argument that it was lent and has not overwritten is what it was.
    fn settle(&mut self, place: Place, operand: Option<Operand>) {
        if let (Place::Argument(at), Some(operand)) = (place, operand)
            && self.program.last[at] == Some(self.number)
        {
            self.arguments[at].settle(&operand);
        }
    }

    /// The inputs of an expression, which may be overwritten where nobody else needs them.
    fn gather(&mut self, expression: &Expression, inputs: &[Place], operands: &mut Operands) -> Result<()> {
        for (place, given) in inputs.iter().zip(&expression.inputs) {
            operands.push(match given.known {
                Some(_) => None,
                None => Some(self.operand(*place, true)?),
            });
        }
        Ok(())
    }

    /// The inputs of an expression, none of them to be overwritten.
    fn borrowed(&self, expression: &Expression, inputs: &[Place]) -> Result<Operands> {
        let operand = |(place, given): (&Place, &Given)| match given.known {
            Some(_) => Ok(None),
            None => {
                self.program.find(self.arguments, self.made, *place).map(|data| Some(Operand::borrowed(data)))
            }
        };
        inputs.iter().zip(&expression.inputs).map(operand).collect()
    }

    /// Lowers the op of a node, whose first input may have been left to be made from `others`.
    fn lower(&mut self, at: usize, rows: Option<Rows>, others: &[Place]) -> Result<Data> {
        let node = &self.program.nodes[at];
        let (mut first, made) = rows.map_or((None, None), |rows| (rows.data, rows.made));
        let mut l = Lowering::new(&node.stream, &node.shape, node.dtype).with_made(made);
        let gathered = node.inputs.iter().try_for_each(|place| {
            let (shape, dtype) = self.program.meta(*place);
            let operand = match first.take() {
                Some(data) => Operand::borrowed(data),
                None => {
                    let reads = node.inputs.iter().chain(others).filter(|other| *other == place).count();
                    self.operand(*place, reads == 1)?
                }
            };
            l.add(shape, dtype, operand);
            Ok(())
        });
        let lowered = gathered.and_then(|()| caught(node.op.name(), || lower_op(node.op.get(), &mut l)));
        for (place, operand) in node.inputs.iter().zip(l.into_operands()) {
            self.settle(*place, Some(operand));
        }
        lowered
    }
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

    fn is_opaque(&self) -> bool {
        true
    }

    fn identity(&self) -> Option<String> {
        None
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let whole = Data::contiguous(l.stream().alloc(0)?, l.shape());
        let mut arguments: SmallVec<[&mut Operand; 8]> = l.operands().collect();
        let results = self.program.run(&mut arguments)?;
        *self.results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(results);
        Ok(whole)
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

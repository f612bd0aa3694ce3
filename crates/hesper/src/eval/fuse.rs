//! Groups of element-wise ops as kernels.
//!
//! A kernel is built once for each expression, set of types and kind of layout; lengths, strides,
//! offsets and known numbers are arguments. Each intermediate is rounded to its type, as if every
//! op had been a kernel of its own: fusion changes no number. A complex number is a vector of two floats.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use hesper_kernel::ir::{Access, BinaryOp, Builder, Builtin, Kernel, Scalar, Space, Type, ValueId};
use hesper_runtime::{Buffer, Label, Pipeline, PipelineSource, Runtime, Stream};
use smallvec::{SmallVec, smallvec};

use super::claim::{Claim, Emit, Read};
use super::operand::Operand;
use super::plan::{Group, Plan};
use super::{FUSED, caught, wide};
use crate::Dtype;
use crate::array::{Array, Data, KnownBytes, State};
use crate::error::{Error, Result};
use crate::ids::WordHash;
use crate::ops::command::Commands;
use crate::ops::complex;
use crate::ops::elementwise::Elementwise;
use crate::ops::{Kind, OpRef};
use crate::shape::{Shape, Strides, row_major};

/// How a kernel finds an input's element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// A number passed by value.
    Known,
    /// At the index of the output.
    Plain,
    /// The same, and the output of this number is stored in its place.
    Taken(u8),
    /// By an offset and strides; the stride of the innermost axis is 0, 1 or an argument.
    Strided(Inner),
}

impl Layout {
    pub(super) fn code(self) -> u64 {
        match self {
            Layout::Known => 0,
            Layout::Plain => 1,
            Layout::Strided(Inner::Zero) => 2,
            Layout::Strided(Inner::One) => 3,
            Layout::Strided(Inner::Any) => 4,
            Layout::Taken(output) => 5 + u64::from(output),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inner {
    Zero,
    One,
    Any,
}

/// What a member of a group reads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source {
    Input(usize),
    Member(usize),
}

/// An input of an expression, wherever it will be.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Shape,
    /// The number, if it is one that the host knows.
    pub(crate) known: Option<KnownBytes>,
}

/// An input of a kernel.
pub(super) struct Input<'a> {
    pub(super) dtype: Dtype,
    pub(super) layout: Layout,
    pub(super) known: KnownBytes,
    operand: Option<&'a Operand>,
    pub(super) data: Option<&'a Data>,
    pub(super) strides: Strides,
}

struct Member {
    op: Emit,
    sources: SmallVec<[Source; 3]>,
    dtype: Dtype,
}

/// A group of element-wise ops as one expression over inputs that may lie anywhere.
pub(crate) struct Expression {
    pub(crate) inputs: Vec<Given>,
    members: Vec<Member>,
    /// Members that are stored.
    outputs: Vec<usize>,
    shape: Shape,
    /// The kernel for the layouts that were met last.
    last: Mutex<Option<(Layouts, Met)>>,
}

/// A compiled kernel, and its label.
pub(super) type Built = (Arc<Pipeline>, Label);

/// A key in words.
pub(super) type Words = SmallVec<[u64; 16]>;

/// The runtime, elements to a thread, the number of axes, whether the grid is tall, and how each input is found.
type Layouts = (u64, usize, usize, bool, SmallVec<[Layout; 8]>);

/// A kernel to be found or built: all that its content depends on.
pub(super) struct Recipe<'a> {
    expression: &'a Expression,
    pub(super) inputs: SmallVec<[Input<'a>; 8]>,
    /// Collapsed lengths of the iteration, outermost first; at least one.
    pub(super) lengths: SmallVec<[usize; 6]>,
    /// How many neighbours a thread handles: one on the host, whose executor vectorises by itself.
    lanes: usize,
    /// Whether it runs on the host.
    host: bool,
}

/// Lowers a group; gives the memory of each output.
pub(super) fn lower(claim: &mut Claim, plan: &Plan, group: &Group) -> Result<SmallVec<[Data; 1]>> {
    let end = group.members[group.members.len() - 1];
    let (expression, reads, counts) = gather(claim, plan, group, end)?;
    let mut operands = Operands::new();
    let gathered =
        expression.inputs.iter().zip(&reads).zip(&counts).try_for_each(|((given, read), count)| {
            operands.push(match given.known {
                Some(_) => None,
                None => Some(claim.operand(*read, *count)?),
            });
            Ok(())
        });
    let lowered = gathered.and_then(|()| {
        let stream = &claim.node(end)?.0.stream;
        caught(FUSED, || expression.run(stream, &mut operands))
    });
    if let Err(error) = &lowered {
        let operands = reads.into_iter().zip(operands);
        let operands = operands.filter_map(|(read, operand)| Some((read, operand?)));
        claim.settle(&group.outputs, operands, Some(error));
    }
    lowered
}

/// The inputs of an expression, none of them to be overwritten.
pub(super) fn borrowed(claim: &Claim, expression: &Expression, reads: &[Read]) -> Result<Operands> {
    let operand = |(given, read): (&Given, &Read)| match given.known {
        Some(_) => Ok(None),
        None => claim.array(*read)?.data().map(|data| Some(Operand::borrowed(data))),
    };
    expression.inputs.iter().zip(reads).map(operand).collect()
}

/// Moves inputs to a device, if some are not there yet.
pub(super) fn bring(operands: &mut [Option<Operand>], to: &Runtime) -> Result<()> {
    for operand in operands.iter_mut().flatten() {
        if !operand.data().buffer.belongs_to(to) {
            let moved = operand.data().on(to)?;
            operand.replace(moved);
        }
    }
    Ok(())
}

/// The inputs of an expression, but for those that are known.
pub(crate) type Operands = SmallVec<[Option<Operand>; 8]>;

/// What inputs are in an evaluation.
type Reads = SmallVec<[Read; 8]>;

/// The expression of a group that ends with `end`, what its inputs are, and how many edges lead to each.
pub(super) fn gather(
    claim: &Claim,
    plan: &Plan,
    group: &Group,
    end: usize,
) -> Result<(Expression, Reads, SmallVec<[u32; 8]>)> {
    let last = claim.node(group.members[group.members.len() - 1])?;
    let mut expression = Expression::new(last.0.shape.clone());
    expression.members.reserve_exact(group.members.len());
    let (mut inputs, mut counts) = (Reads::new(), SmallVec::new());
    for &at in &group.members {
        let mut sources: SmallVec<[Source; 3]> = SmallVec::new();
        for read in claim.reads(at) {
            let member = match read {
                Read::Node(place) => plan.member(place, end).map(Source::Member),
                Read::Outside(_) => None,
            };
            let met = || inputs.iter().position(|met| *met == read).map(Source::Input);
            let source = match member.or_else(met) {
                Some(source) => source,
                None => {
                    inputs.push(read);
                    counts.push(0);
                    let array = claim.array(read)?;
                    expression.given(array.0.shape.clone(), array.dtype(), claim.known(read))
                }
            };
            if let Source::Input(number) = source {
                counts[number] += 1;
            }
            sources.push(source);
        }
        let (op, dtype) = claim.emit(at)?;
        expression.push(op, sources, dtype, group.outputs.binary_search(&at).is_ok());
    }
    Ok((expression, inputs, counts))
}

impl Expression {
    pub(crate) fn new(shape: Shape) -> Self {
        Expression {
            inputs: Vec::new(),
            members: Vec::new(),
            outputs: Vec::new(),
            shape,
            last: Mutex::new(None),
        }
    }

    /// One more input.
    pub(crate) fn input(&mut self, input: &Array) -> Source {
        let known = if let State::Known(known) = &*input.state() { Some(*known) } else { None };
        self.given(input.0.shape.clone(), input.dtype(), known)
    }

    /// One more input, in memory.
    pub(crate) fn memory(&mut self, shape: Shape, dtype: Dtype) -> Source {
        self.given(shape, dtype, None)
    }

    fn given(&mut self, shape: Shape, dtype: Dtype, known: Option<KnownBytes>) -> Source {
        self.inputs.push(Given { dtype, shape, known });
        Source::Input(self.inputs.len() - 1)
    }

    /// One more op.
    pub(crate) fn member(
        &mut self,
        op: &OpRef,
        sources: SmallVec<[Source; 3]>,
        dtype: Dtype,
        stored: bool,
    ) -> Result<Source> {
        let Kind::Elementwise(Elementwise { emit, name, indexed, .. }) = op.get().kind() else {
            return Err(Error::value(op.name(), "is no element-wise op"));
        };
        Ok(self.push(Emit { name, indexed: *indexed, emit: *emit }, sources, dtype, stored))
    }

    fn push(&mut self, op: Emit, sources: SmallVec<[Source; 3]>, dtype: Dtype, stored: bool) -> Source {
        if stored {
            self.outputs.push(self.members.len());
        }
        self.members.push(Member { op, sources, dtype });
        Source::Member(self.members.len() - 1)
    }

    /// Whether no op of it asks where its element is.
    pub(super) fn is_placeless(&self) -> bool {
        !self.members.iter().any(|member| member.op.indexed)
    }

    /// Computes the expression on a stream, from memory where inputs are not known; gives the memory of
    /// what is stored. That may take the place of operands that are owned.
    pub(crate) fn run(
        &self,
        stream: &Stream,
        operands: &mut [Option<Operand>],
    ) -> Result<SmallVec<[Data; 1]>> {
        let runtime = stream.runtime();
        bring(operands, &runtime)?;
        let size: usize = self.shape.iter().product();
        let mut recipe = self.recipe(operands, runtime.info().host_visible);
        let taken = recipe.choose();
        // All that can be refused comes before an operand is overwritten.
        let mut outputs: SmallVec<[Option<Buffer>; 4]> = SmallVec::new();
        for (at, taken) in self.outputs.iter().zip(&taken) {
            outputs.push(match taken {
                Some(_) => None,
                None => Some(stream.alloc(size * self.members[*at].dtype.size())?),
            });
        }
        if size > 0 {
            let built = recipe.pipeline(&runtime)?;
            let owned = taken.iter().map(|taken| taken.and_then(Operand::take)).collect::<SmallVec<[_; 4]>>();
            recipe.dispatch(stream, &runtime, built, outputs.iter().flatten())?;
            for (output, owned) in outputs.iter_mut().zip(owned) {
                *output = owned.map(|owned| owned.into_data().buffer).or(output.take());
            }
        } else {
            for output in outputs.iter().flatten() {
                stream.command("empty").write(output).run(|_| Ok(()))?;
            }
        }
        Ok(outputs.into_iter().flatten().map(|buffer| Data::contiguous(buffer, &self.shape)).collect())
    }

    pub(super) fn recipe<'a>(&'a self, operands: &'a [Option<Operand>], host: bool) -> Recipe<'a> {
        let inputs = self
            .inputs
            .iter()
            .zip(operands)
            .map(|(given, operand)| match (given.known, operand) {
                (None, Some(operand)) => Input::memory(operand, given.dtype, &given.shape, &self.shape),
                (known, _) => Input {
                    dtype: given.dtype,
                    layout: Layout::Known,
                    known: known.unwrap_or_default(),
                    operand: None,
                    data: None,
                    strides: Strides::new(),
                },
            })
            .collect();
        let mut recipe = Recipe { expression: self, inputs, lengths: SmallVec::new(), lanes: 1, host };
        recipe.collapse(&self.shape);
        if !host {
            recipe.widen();
        }
        recipe
    }
}

impl<'a> Input<'a> {
    /// An input in memory, stretched to `shape`.
    fn memory(operand: &'a Operand, dtype: Dtype, own: &[usize], shape: &[usize]) -> Self {
        let data = operand.data();
        let missing = shape.len() - own.len();
        let strides: Strides = (0..shape.len())
            .map(|axis| match axis.checked_sub(missing) {
                Some(at) if own[at] == shape[axis] && shape[axis] != 1 => data.strides[at],
                _ => 0,
            })
            .collect();
        let known = KnownBytes::default();
        Input { dtype, layout: Layout::Plain, known, operand: Some(operand), data: Some(data), strides }
    }
}

impl<'a> Recipe<'a> {
    /// Joins neighbouring axes that all inputs walk through as one, and decides how each is found.
    fn collapse(&mut self, shape: &[usize]) {
        let mut lengths: SmallVec<[usize; 6]> = SmallVec::new();
        let mut kept: SmallVec<[usize; 6]> = SmallVec::new();
        for (axis, &length) in shape.iter().enumerate() {
            if length == 1 {
                continue;
            }
            let joins = kept.last().is_some_and(|&before: &usize| {
                self.inputs
                    .iter()
                    .filter(|input| input.layout != Layout::Known)
                    .all(|input| input.strides[before] == input.strides[axis].saturating_mul(length as isize))
            });
            match (joins, lengths.last_mut(), kept.last_mut()) {
                (true, Some(joined), Some(axis_kept)) => {
                    *joined *= length;
                    *axis_kept = axis;
                }
                _ => {
                    lengths.push(length);
                    kept.push(axis);
                }
            }
        }
        if lengths.is_empty() {
            lengths.push(1);
        }
        for input in self.inputs.iter_mut().filter(|input| input.layout != Layout::Known) {
            let mut strides: Strides = kept.iter().map(|axis| input.strides[*axis]).collect();
            strides.resize(lengths.len(), 0);
            let offset = input.data.map_or(0, |data| data.offset);
            let plain = offset == 0 && lengths[..] != [1] && strides == row_major(&lengths);
            input.layout = match strides.last() {
                _ if plain => Layout::Plain,
                Some(1) => Layout::Strided(Inner::One),
                Some(0) => Layout::Strided(Inner::Zero),
                _ => Layout::Strided(Inner::Any),
            };
            input.strides = strides;
        }
        self.lengths = lengths;
    }

    /// Has outputs stored in the place of owned inputs that lie as the outputs will: on the host, where an op costs about as
    /// much as its memory. Gives for each output the operand whose place it takes.
    fn choose(&mut self) -> SmallVec<[Option<&'a Operand>; 4]> {
        let outputs = &self.expression.outputs;
        let mut taken: SmallVec<[Option<&'a Operand>; 4]> = smallvec![None; outputs.len()];
        let size: usize = self.lengths.iter().product();
        if !self.host || size == 0 {
            return taken;
        }
        for input in &mut self.inputs {
            let Some(operand) = input.operand.filter(|operand| operand.is_owned()) else { continue };
            let data = operand.data();
            let lies = input.layout == Layout::Plain || size == 1 && data.offset == 0;
            // A view of something larger would keep all of that.
            let exact = data.buffer.len() == size * input.dtype.size();
            let types = outputs.iter().map(|at| self.expression.members[*at].dtype);
            if lies
                && exact
                && let Some(number) = taker(types, |number| taken[number].is_some(), input.dtype)
            {
                taken[usize::from(number)] = Some(operand);
                input.layout = Layout::Taken(number);
            }
        }
        taken
    }

    /// Lets each thread handle several neighbours, if all inputs allow it.
    fn widen(&mut self) {
        let stored = |input: &&Input<'_>| input.layout != Layout::Known;
        let read = self.inputs.iter().filter(stored).map(|input| input.dtype.size());
        let members = &self.expression.members;
        let written = self.expression.outputs.iter().map(|at| members[*at].dtype.size());
        let lanes = wide::wished(read.chain(written).max().unwrap_or(8), members.len());
        let rank = self.lengths.len();
        let inner = self.lengths[rank - 1];
        let whole = |number: isize| number % lanes as isize == 0;
        let fits = |input: &Input<'_>| match input.layout {
            Layout::Known | Layout::Plain | Layout::Taken(_) | Layout::Strided(Inner::Zero) => true,
            Layout::Strided(Inner::One) => {
                input.data.is_some_and(|data| whole(data.offset))
                    && input.strides[..rank - 1].iter().all(|stride| whole(*stride))
            }
            Layout::Strided(Inner::Any) => false,
        };
        let size: usize = self.lengths.iter().product();
        if size >= wide::FEWEST && (rank == 1 || whole(inner as isize)) && self.inputs.iter().all(fits) {
            self.lanes = lanes;
        }
    }

    /// Encodes the kernel; `new` are the outputs that take no input's place.
    fn dispatch<'b>(
        &self,
        stream: &Stream,
        runtime: &Runtime,
        (pipeline, label): Built,
        new: impl Iterator<Item = &'b Buffer>,
    ) -> Result<()> {
        let rank = self.lengths.len();
        let mut constants: SmallVec<[u8; 64]> = SmallVec::new();
        let mut push = |value: i64| constants.extend_from_slice(&value.to_ne_bytes());
        for axis in (1..rank.saturating_sub(2)).rev() {
            push(self.lengths[axis] as i64);
        }
        let mut command = stream.command(label);
        for input in &self.inputs {
            match (input.layout, input.data) {
                (Layout::Known, _) | (_, None) => constants.extend_from_slice(&input.known.0),
                (layout, Some(data)) => {
                    if let Layout::Strided(inner) = layout {
                        let mut push = |value: i64| constants.extend_from_slice(&value.to_ne_bytes());
                        push(data.offset as i64);
                        for (axis, stride) in input.strides.iter().enumerate().rev() {
                            if axis + 1 < rank || inner == Inner::Any {
                                push(*stride as i64);
                            }
                        }
                    }
                    command = match layout {
                        Layout::Taken(_) => command.read_write(&data.buffer),
                        _ => command.read(&data.buffer),
                    };
                }
            }
        }
        for output in new {
            command = command.write(output);
        }
        let grid = self.grid();
        let threadgroup = if runtime.info().host_visible {
            [grid[0].min(1024), 1, 1]
        } else {
            wide::threadgroup(grid[0], grid[1])
        };
        Ok(command.constants(&constants).dispatch(&pipeline, grid, threadgroup)?)
    }

    /// The threads that handle all elements: along the innermost axis, the next one, and all further ones.
    fn grid(&self) -> [u64; 3] {
        let rank = self.lengths.len();
        let at =
            |from_back: usize| rank.checked_sub(from_back + 1).map_or(1, |axis| self.lengths[axis] as u64);
        let outer: u64 =
            self.lengths.iter().take(rank.saturating_sub(2)).map(|length| *length as u64).product();
        [at(0).div_ceil(self.lanes as u64), at(1), outer]
    }

    /// Whether the grid may have more groups along an outer axis than some devices take.
    fn tall(&self) -> bool {
        self.grid()[1..].iter().any(|threads| *threads > 65535)
    }

    /// For people: the op, or how many of them.
    fn label(&self) -> Label {
        match &self.expression.members[..] {
            [only] => only.op.name.into(),
            all => format!("fused {} ops", all.len()).into(),
        }
    }

    /// All that the kernel's content depends on, in words: what it is found by within this process. An op is
    /// told by the function that writes its expression.
    pub(super) fn words(&self, device: u64) -> Words {
        let expression = self.expression;
        let mut words = Words::with_capacity(6 + self.inputs.len() + 3 * expression.members.len());
        words.push(device);
        words.push(self.lengths.len() as u64 | (self.lanes as u64) << 32 | u64::from(self.tall()) << 63);
        words.push(self.inputs.len() as u64);
        for input in &self.inputs {
            words.push(input.dtype as u64 | (input.layout.code() << 32));
        }
        for member in &expression.members {
            words.push(member.op.emit as usize as u64);
            words.push(member.dtype as u64 | u64::from(member.op.indexed) << 32);
            words.extend(member.sources.iter().map(|source| match source {
                Source::Input(at) => *at as u64,
                Source::Member(at) => *at as u64 | 1 << 32,
            }));
        }
        words.extend(expression.outputs.iter().map(|at| *at as u64));
        words
    }

    /// The compiled kernel and its label, from the cache or built now.
    fn pipeline(&self, runtime: &Runtime) -> Result<Built> {
        let layouts = self.inputs.iter().map(|input| input.layout).collect();
        let layouts: Layouts = (runtime.id(), self.lanes, self.lengths.len(), self.tall(), layouts);
        let lock = || self.expression.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((met, found)) = &*lock()
            && *met == layouts
            && let Some(found) = found.get()
        {
            return Ok(found);
        }
        let words = self.words(runtime.id());
        if let Some(found) = find(&words) {
            *lock() = Some((layouts, Met::of(&found)));
            return Ok(found);
        }
        let (kernel, label) = (self.build()?, self.label());
        let source = PipelineSource::new(&*label, "hesper-ir", content(&kernel).as_str());
        let source = source.with_payload(Arc::new(kernel));
        let source = if runtime.info().host_visible {
            source
        } else {
            let upright = if self.tall() { "" } else { "\nupright" };
            source.specialised(format!("threads {}\nfast{upright}", wide::THREADS).as_str())
        };
        let built = (runtime.pipeline(&source)?, label);
        keep(words, &built);
        *lock() = Some((layouts, Met::of(&built)));
        Ok(built)
    }

    /// Builds the kernel. Parameters come in the order in which `dispatch` passes them.
    pub(super) fn build(&self) -> Result<Kernel> {
        // Complex numbers are in memory as words of their size.
        let stored = |dtype: Dtype| Type::Scalar(dtype.scalar().unwrap_or(Scalar::U64));
        let mut b = Builder::new("fused");
        let long = Type::Scalar(Scalar::I64);
        let rank = self.lengths.len();
        let x = b.builtin64(Builtin::ThreadPositionInGrid, 0);
        let mut x = b.convert(x, Scalar::I64);
        let lanes = self.lanes;
        if lanes > 1 {
            let wide = b.i64(lanes as i64);
            x = b.mul(x, wide);
        }
        // Position along each axis, innermost first.
        let mut position: SmallVec<[ValueId; 6]> = SmallVec::from_slice(&[x]);
        if rank > 1 {
            let y = b.builtin64(Builtin::ThreadPositionInGrid, 1);
            position.push(b.convert(y, Scalar::I64));
        }
        let mut linear = x;
        if rank > 2 {
            let z = b.builtin64(Builtin::ThreadPositionInGrid, 2);
            let mut rest = b.convert(z, Scalar::I64);
            // The third dimension of the grid counts through all further axes.
            for axis in (1..rank - 2).rev() {
                let length = b.value_param(format!("length{axis}"), long);
                position.push(b.binary(BinaryOp::Rem, rest, length));
                rest = b.div(rest, length);
            }
            position.push(rest);
        }
        if rank > 1 {
            let nx = b.builtin64(Builtin::ThreadsPerGrid, 0);
            let mut nx = b.convert(nx, Scalar::I64);
            if lanes > 1 {
                let wide = b.i64(lanes as i64);
                nx = b.mul(nx, wide);
            }
            let mut row = position[1];
            if rank > 2 {
                let ny = b.builtin64(Builtin::ThreadsPerGrid, 1);
                let ny = b.convert(ny, Scalar::I64);
                let z = b.builtin64(Builtin::ThreadPositionInGrid, 2);
                let z = b.convert(z, Scalar::I64);
                let before = b.mul(z, ny);
                row = b.add(before, row);
            }
            let before = b.mul(row, nx);
            linear = b.add(before, x);
        }

        // Of each input the elements that the thread handles; one that all lanes share comes once.
        let mut values: Vec<Vec<ValueId>> = Vec::new();
        let mut taken: SmallVec<[Option<ValueId>; 4]> = smallvec![None; self.expression.outputs.len()];
        for (at, input) in self.inputs.iter().enumerate() {
            if input.layout == Layout::Known {
                values.push(vec![b.value_param(format!("k{at}"), type_of(input.dtype))]);
                continue;
            }
            let mut index = linear;
            if let Layout::Strided(inner) = input.layout {
                index = b.value_param(format!("offset{at}"), long);
                for (axis, position) in position.iter().enumerate() {
                    let step = match (axis, inner) {
                        (0, Inner::Zero) => continue,
                        (0, Inner::One) => *position,
                        _ => {
                            let stride = b.value_param(format!("stride{at}_{axis}"), long);
                            b.mul(*position, stride)
                        }
                    };
                    index = b.add(index, step);
                }
            }
            let takes = if let Layout::Taken(output) = input.layout {
                taken.get_mut(usize::from(output))
            } else {
                None
            };
            let access = if takes.is_some() { Access::ReadWrite } else { Access::Read };
            let pointer = b.buffer(format!("x{at}"), Space::Device, stored(input.dtype), access);
            if let Some(taken) = takes {
                *taken = Some(pointer);
            }
            values.push(if lanes == 1 || input.layout == Layout::Strided(Inner::Zero) {
                vec![load(&mut b, pointer, index, input.dtype)]
            } else {
                let scalar = input.dtype.scalar();
                let bits = wide::load(&mut b, pointer, index, scalar.unwrap_or(Scalar::U64), lanes);
                match scalar {
                    Some(_) => bits,
                    None => bits.into_iter().map(|bits| complex::from_bits(&mut b, bits)).collect(),
                }
            });
        }
        let mut results: Vec<Vec<ValueId>> = vec![Vec::new(); self.expression.outputs.len()];
        for lane in 0..lanes {
            let mut place = linear;
            if lane > 0 && self.expression.members.iter().any(|member| member.op.indexed) {
                let lane = b.i64(lane as i64);
                place = b.add(linear, lane);
            }
            let mut computed: Vec<ValueId> = Vec::new();
            for member in &self.expression.members {
                let mut arguments: SmallVec<[ValueId; 4]> = member
                    .sources
                    .iter()
                    .map(|source| match source {
                        Source::Input(at) => values[*at][lane.min(values[*at].len() - 1)],
                        Source::Member(at) => computed[*at],
                    })
                    .collect();
                if member.op.indexed {
                    arguments.push(place);
                }
                let value = (member.op.emit)(&mut b, &arguments);
                computed.push(convert(&mut b, value, member.dtype));
            }
            for (output, list) in self.expression.outputs.iter().zip(&mut results) {
                let value = computed[*output];
                list.push(if b.ty(value).is_vec() { complex::to_bits(&mut b, value) } else { value });
            }
        }
        for (at, (output, list)) in self.expression.outputs.iter().zip(&results).enumerate() {
            let ty = stored(self.expression.members[*output].dtype);
            let new = |b: &mut Builder| b.buffer(format!("out{at}"), Space::Device, ty, Access::ReadWrite);
            let pointer = taken[at].unwrap_or_else(|| new(&mut b));
            if lanes == 1 {
                b.store_index(pointer, linear, list[0]);
            } else {
                wide::store(&mut b, pointer, linear, list);
            }
        }
        b.finish().map_err(|error| Error::Kernel(format!("a fused kernel is not well formed: {error}")))
    }
}

/// The output that takes the place of an input of a type, if nobody needs that: the first of the type that takes none yet.
pub(super) fn taker(
    outputs: impl Iterator<Item = Dtype>,
    takes: impl Fn(usize) -> bool,
    dtype: Dtype,
) -> Option<u8> {
    let mut numbered = outputs.enumerate();
    numbered.find(|(number, of)| *of == dtype && !takes(*number)).map(|(number, _)| number as u8)
}

/// A kernel as text: what the runtime knows its pipeline by. Two kernels have one text only if they are the same; names of
/// ops are no part of it.
fn content(kernel: &Kernel) -> String {
    let mut text = kernel.to_string();
    // The listing rounds constants and leaves tables out.
    for inst in kernel.blocks.iter().flat_map(|block| &block.insts) {
        if let hesper_kernel::ir::Op::Const(bits) = inst.op {
            let _ = write!(text, " {bits:x}");
        }
    }
    for table in &kernel.const_vars {
        let _ = write!(text, "\n{:x?}", table.data);
    }
    text
}

/// A kernel that was built before, for as long as the runtime keeps its pipeline, or work in flight does: the limits of the
/// runtime's cache bound all pipelines.
struct Met(Weak<Pipeline>, Label);

impl Met {
    fn of((pipeline, label): &Built) -> Self {
        Met(Arc::downgrade(pipeline), label.clone())
    }

    fn get(&self) -> Option<Built> {
        Some((self.0.upgrade()?, self.1.clone()))
    }
}

type Kernels = HashMap<Words, Met, BuildHasherDefault<WordHash>>;

/// Kernels that were built in this process, by what their content depends on.
fn cache() -> MutexGuard<'static, Kernels> {
    static CACHE: Mutex<Kernels> = Mutex::new(HashMap::with_hasher(BuildHasherDefault::new()));
    CACHE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A kernel that was built before.
pub(super) fn find(words: &Words) -> Option<Built> {
    cache().get(words)?.get()
}

fn keep(words: Words, built: &Built) {
    /// Most entries. A full cache forgets the kernels that are gone; if none is, it starts anew.
    const MOST: usize = 4096;
    let mut cache = cache();
    if cache.len() >= MOST {
        cache.retain(|_, met| met.0.strong_count() > 0);
    }
    if cache.len() >= MOST {
        cache.clear();
    }
    cache.insert(words, Met::of(built));
}

/// An element in memory. A complex number is loaded whole, as neighbours then are one load.
fn load(b: &mut Builder, pointer: ValueId, index: ValueId, dtype: Dtype) -> ValueId {
    match dtype.scalar() {
        Some(scalar) => b.load_index(pointer, index, Type::Scalar(scalar)),
        None => {
            let bits = b.load_index(pointer, index, Type::Scalar(Scalar::U64));
            complex::from_bits(b, bits)
        }
    }
}

/// The type of an element in a kernel.
fn type_of(dtype: Dtype) -> Type {
    dtype.scalar().map_or(complex::TYPE, Type::Scalar)
}

/// A value as an element of a type.
fn convert(b: &mut Builder, value: ValueId, dtype: Dtype) -> ValueId {
    match (b.ty(value).is_vec(), dtype.scalar()) {
        (true, None) => value,
        (false, None) => complex::from_real(b, value),
        (true, Some(scalar)) => complex::to_real(b, value, scalar),
        (false, Some(scalar)) => b.convert(value, scalar),
    }
}

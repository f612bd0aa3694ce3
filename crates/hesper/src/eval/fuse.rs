//! Groups of element-wise ops as kernels.
//!
//! A kernel is built once for each expression, set of types and kind of layout; lengths, strides,
//! offsets and known numbers are arguments. Each intermediate is rounded to its type, as if every
//! op had been a kernel of its own: fusion changes no number. A complex number is a vector of two floats.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock};

use hesper_kernel::ir::{Access, BinaryOp, Builder, Builtin, Kernel, Scalar, Space, Type, ValueId};
use hesper_runtime::{Buffer, Pipeline, PipelineSource, Stream};
use smallvec::SmallVec;

use super::plan::Group;
use crate::array::{Array, Call, Data, State};
use crate::error::{Error, Result};
use crate::ops::Kind;
use crate::ops::complex;
use crate::ops::elementwise::Elementwise;
use crate::shape::{Strides, row_major};
use crate::{Dtype, place};

/// How a kernel finds an input's element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// A number passed by value.
    Known,
    /// At the index of the output.
    Plain,
    /// By an offset and strides; the stride of the innermost axis is 0, 1 or an argument.
    Strided(Inner),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inner {
    Zero,
    One,
    Any,
}

/// What a member of a group reads.
#[derive(Debug, Clone, Copy)]
enum Source {
    Input(usize),
    Member(usize),
}

struct Input {
    dtype: Dtype,
    layout: Layout,
    known: [u8; 8],
    data: Option<Data>,
    strides: Strides,
}

struct Member {
    op: &'static str,
    /// Whether the expression gets the element's place after its inputs.
    indexed: bool,
    emit: fn(&mut Builder, &[ValueId]) -> ValueId,
    sources: SmallVec<[Source; 3]>,
    dtype: Dtype,
}

/// A kernel to be found or built: all that its content depends on.
struct Recipe {
    inputs: Vec<Input>,
    members: Vec<Member>,
    /// Members that are stored.
    outputs: Vec<usize>,
    /// Collapsed lengths of the iteration, outermost first; at least one.
    lengths: SmallVec<[usize; 6]>,
}

/// Lowers a group; gives the memory of each output.
pub(super) fn lower(nodes: &[Array], group: &Group) -> Result<Vec<(usize, Data)>> {
    let root = &nodes[group.members[group.members.len() - 1]];
    let mut recipe = Recipe::gather(nodes, group, root.shape())?;
    recipe.collapse(root.shape());
    let stream = &root.0.stream;
    let outputs: Vec<Buffer> =
        group.outputs.iter().map(|at| Ok(stream.alloc(nodes[*at].nbytes())?)).collect::<Result<_>>()?;
    if root.size() > 0 {
        recipe.dispatch(stream, &outputs)?;
    } else {
        for output in &outputs {
            stream.encode("empty").write(output).run(|_| Ok(()))?;
        }
    }
    let data = |buffer: Buffer| Data::contiguous(buffer, root.shape());
    Ok(group.outputs.iter().copied().zip(outputs.into_iter().map(data)).collect())
}

impl Input {
    /// An input in memory, stretched to `shape`.
    fn memory(data: Data, dtype: Dtype, own: &[usize], shape: &[usize]) -> Self {
        let missing = shape.len() - own.len();
        let strides: Strides = (0..shape.len())
            .map(|axis| match axis.checked_sub(missing) {
                Some(at) if own[at] == shape[axis] && shape[axis] != 1 => data.strides[at],
                _ => 0,
            })
            .collect();
        Input { dtype, layout: Layout::Plain, known: [0; 8], data: Some(data), strides }
    }
}

impl Recipe {
    fn gather(nodes: &[Array], group: &Group, shape: &[usize]) -> Result<Self> {
        let mut place: HashMap<u64, Source> = HashMap::new();
        let mut recipe =
            Recipe { inputs: Vec::new(), members: Vec::new(), outputs: Vec::new(), lengths: SmallVec::new() };
        for &at in &group.members {
            let node = &nodes[at];
            let Call { op, inputs } = match &*node.state() {
                State::Claimed(call) => call.clone(),
                _ => return Err(Error::value("evaluation", "a member of a group is not claimed")),
            };
            let Kind::Elementwise(Elementwise { emit, name, indexed, .. }) = op.get().kind() else {
                return Err(Error::value(op.name(), "is no element-wise op"));
            };
            let mut sources = SmallVec::new();
            for input in &inputs {
                let source = match place.get(&input.0.id) {
                    Some(source) => *source,
                    None => {
                        let source = Source::Input(recipe.inputs.len());
                        recipe.inputs.push(recipe_input(input, shape)?);
                        place.insert(input.0.id, source);
                        source
                    }
                };
                sources.push(source);
            }
            place.insert(node.0.id, Source::Member(recipe.members.len()));
            if group.outputs.contains(&at) {
                recipe.outputs.push(recipe.members.len());
            }
            let (indexed, dtype) = (*indexed, node.dtype());
            recipe.members.push(Member { op: name, indexed, emit: *emit, sources, dtype });
        }
        Ok(recipe)
    }

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
            let offset = input.data.as_ref().map_or(0, |data| data.offset);
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

    /// The kernel's content as text: what the pipeline is found by.
    fn key(&self) -> String {
        let mut key = String::with_capacity(64 + 16 * (self.inputs.len() + self.members.len()));
        let _ = write!(key, "{}d", self.lengths.len());
        for input in &self.inputs {
            let layout = match input.layout {
                Layout::Known => "k",
                Layout::Plain => "p",
                Layout::Strided(Inner::Zero) => "0",
                Layout::Strided(Inner::One) => "1",
                Layout::Strided(Inner::Any) => "s",
            };
            let _ = write!(key, ";{layout}{}", input.dtype);
        }
        for member in &self.members {
            let _ = write!(key, ";{}:{}", member.op, member.dtype);
            for source in &member.sources {
                let _ = match source {
                    Source::Input(at) => write!(key, " i{at}"),
                    Source::Member(at) => write!(key, " m{at}"),
                };
            }
        }
        let _ = write!(key, ";out {:?}", self.outputs);
        key
    }

    fn dispatch(&self, stream: &Stream, outputs: &[Buffer]) -> Result<()> {
        let pipeline = self.pipeline()?;
        let rank = self.lengths.len();
        let mut constants: SmallVec<[u8; 64]> = SmallVec::new();
        let mut push = |value: i64| constants.extend_from_slice(&value.to_ne_bytes());
        for axis in (1..rank.saturating_sub(2)).rev() {
            push(self.lengths[axis] as i64);
        }
        let mut command = stream.encode(self.label());
        for input in &self.inputs {
            match (input.layout, &input.data) {
                (Layout::Known, _) | (_, None) => constants.extend_from_slice(&input.known),
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
                    command = command.read(&data.buffer);
                }
            }
        }
        for output in outputs {
            command = command.write(output);
        }
        let at =
            |from_back: usize| rank.checked_sub(from_back + 1).map_or(1, |axis| self.lengths[axis] as u64);
        let outer: u64 =
            self.lengths.iter().take(rank.saturating_sub(2)).map(|length| *length as u64).product();
        let grid = [at(0), at(1), outer];
        Ok(command.constants(&constants).dispatch(&pipeline, grid, [grid[0].min(1024), 1, 1])?)
    }

    /// For people: the op, or how many of them.
    fn label(&self) -> Arc<str> {
        match &self.members[..] {
            [only] => only.op.into(),
            all => format!("fused {} ops", all.len()).into(),
        }
    }

    /// The compiled kernel, from the cache or built now.
    fn pipeline(&self) -> Result<Arc<Pipeline>> {
        /// Most entries; a full cache starts anew (the runtime keeps what is in use).
        const MOST: usize = 4096;
        static CACHE: OnceLock<Mutex<HashMap<String, Arc<Pipeline>>>> = OnceLock::new();
        let cache = CACHE.get_or_init(Mutex::default);
        let key = self.key();
        if let Some(found) = cache.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get(&key) {
            return Ok(found.clone());
        }
        let kernel = self.build()?;
        let source =
            PipelineSource::new(self.label(), "hesper-ir", key.as_str()).with_payload(Arc::new(kernel));
        let pipeline = place::cpu().pipeline(&source)?;
        let mut cache = cache.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if cache.len() >= MOST {
            cache.clear();
        }
        cache.insert(key, pipeline.clone());
        Ok(pipeline)
    }

    /// Builds the kernel. Parameters come in the order in which `dispatch` passes them.
    fn build(&self) -> Result<Kernel> {
        // Complex numbers are in memory as words of their size.
        let stored = |dtype: Dtype| Type::Scalar(dtype.scalar().unwrap_or(Scalar::U64));
        let mut b = Builder::new("fused");
        let long = Type::Scalar(Scalar::I64);
        let rank = self.lengths.len();
        let x = b.builtin64(Builtin::ThreadPositionInGrid, 0);
        let x = b.convert(x, Scalar::I64);
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
            let nx = b.convert(nx, Scalar::I64);
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

        let mut values: Vec<ValueId> = Vec::new();
        for (at, input) in self.inputs.iter().enumerate() {
            values.push(match input.layout {
                Layout::Known => b.value_param(format!("k{at}"), type_of(input.dtype)),
                Layout::Plain => {
                    let pointer =
                        b.buffer(format!("x{at}"), Space::Device, stored(input.dtype), Access::Read);
                    load(&mut b, pointer, linear, input.dtype)
                }
                Layout::Strided(inner) => {
                    let mut index = b.value_param(format!("offset{at}"), long);
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
                    let pointer =
                        b.buffer(format!("x{at}"), Space::Device, stored(input.dtype), Access::Read);
                    load(&mut b, pointer, index, input.dtype)
                }
            });
        }
        let mut computed: Vec<ValueId> = Vec::new();
        for member in &self.members {
            let mut arguments: SmallVec<[ValueId; 4]> = member
                .sources
                .iter()
                .map(|source| match source {
                    Source::Input(at) => values[*at],
                    Source::Member(at) => computed[*at],
                })
                .collect();
            if member.indexed {
                arguments.push(linear);
            }
            let value = (member.emit)(&mut b, &arguments);
            computed.push(convert(&mut b, value, member.dtype));
        }
        for (at, output) in self.outputs.iter().enumerate() {
            let ty = stored(self.members[*output].dtype);
            let pointer = b.buffer(format!("out{at}"), Space::Device, ty, Access::ReadWrite);
            let value = computed[*output];
            let value = if b.ty(value).is_vec() { complex::to_bits(&mut b, value) } else { value };
            b.store_index(pointer, linear, value);
        }
        b.finish().map_err(|error| Error::Kernel(format!("a fused kernel is not well formed: {error}")))
    }
}

fn recipe_input(input: &Array, shape: &[usize]) -> Result<Input> {
    if let State::Known(known) = &*input.state() {
        let strides = Strides::new();
        return Ok(Input { dtype: input.dtype(), layout: Layout::Known, known: *known, data: None, strides });
    }
    Ok(Input::memory(input.data()?, input.dtype(), input.shape(), shape))
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

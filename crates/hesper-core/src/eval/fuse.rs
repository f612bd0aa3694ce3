//! Groups of element-wise ops as kernels.
//!
//! A kernel is built once for each expression and form (set of layouts); lengths, strides,
//! offsets and known numbers are arguments. Each intermediate is rounded to its type, as if every
//! op had been a kernel of its own: fusion changes no number. A complex number is a vector of two floats.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use hesper_kernel::function::Function;
use hesper_kernel::ir::{Access, BinaryOp, Builder, Builtin, Inst, Kernel, Scalar, Space, Type, ValueId};
use hesper_runtime::{Buffer, PipelineSource, Runtime, Stream};
use smallvec::{SmallVec, smallvec};

use super::expression::{Built, Form, Fused, Inner, Layout, Source, Target};
use super::program::{self, StepView, Store, missing};
use super::{FUSED, caught, vectorize};
use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::{Data, KnownBytes, Operand, Slot, SlotFunctions};
use crate::ops::command::Commands;
use crate::ops::complex;
use crate::placement;
use crate::registry::{self, Backend, Fusion};
use crate::shape::{Shape, Strides, row_major};

/// An input of an expression during a run.
pub(super) enum Value {
    Known(KnownBytes),
    Memory(Operand, Shape),
    /// The result of the op whose epilogue the expression is: row-major, and not in memory.
    Result(Shape),
}

/// The position of an element along each axis, innermost first.
type Positions = SmallVec<[ValueId; 6]>;

pub(super) type Values = SmallVec<[Value; 8]>;

/// An input of a kernel.
pub(super) struct Input<'a> {
    pub(super) dtype: Dtype,
    pub(super) layout: Layout,
    pub(super) known: KnownBytes,
    operand: Option<&'a Operand>,
    pub(super) data: Option<&'a Data>,
    pub(super) strides: Strides,
}

impl Input<'_> {
    /// Whether it is the result of the op whose epilogue the expression is.
    pub(super) fn is_result(&self) -> bool {
        self.data.is_none() && self.layout != Layout::Known
    }
}

/// An expression over inputs that lie somewhere: a kernel to be found or built.
pub(super) struct Specialization<'a> {
    fused: &'a Arc<Fused>,
    pub(super) inputs: SmallVec<[Input<'a>; 8]>,
    /// Collapsed lengths of the iteration, outermost first; at least one.
    pub(super) lengths: SmallVec<[usize; 6]>,
    /// How many neighbouring elements a thread handles.
    lanes: usize,
    fusion: Fusion,
}

/// Lowers the step of a group; gives the memory of each output.
pub(super) fn lower(
    store: &mut impl Store,
    fused: &Arc<Fused>,
    step: &StepView<'_>,
) -> Result<SmallVec<[Data; 1]>> {
    let mut values = Values::new();
    let lowered = gather_into(store, fused, step.inputs, true, &mut values).and_then(|()| {
        let node = store.node(*step.outputs.last().ok_or_else(missing)? as usize)?;
        caught(FUSED, || run(fused, node.stream, node.shape, &mut values))
    });
    let operands = step.inputs.iter().zip(&values).filter_map(|(input, value)| match value {
        Value::Known(_) | Value::Result(_) => None,
        Value::Memory(operand, _) => Some((input.slot, operand)),
    });
    program::settle(store, step.outputs, operands, lowered.as_ref().err());
    lowered
}

/// The inputs of an expression that an op computes: borrowed, because they are read as the op runs. Those of
/// an epilogue begin with the op's `result`.
pub(super) fn gather(
    store: &mut impl Store,
    fused: &Fused,
    inputs: &[program::Input],
    result: Option<Shape>,
) -> Result<Values> {
    let mut values: Values = result.map(Value::Result).into_iter().collect();
    gather_into(store, fused, inputs, false, &mut values)?;
    Ok(values)
}

/// Appends the inputs of an expression that `values` does not have; those that the step reads last are owned
/// if it `may_own` them.
fn gather_into(
    store: &mut impl Store,
    fused: &Fused,
    inputs: &[program::Input],
    may_own: bool,
    values: &mut Values,
) -> Result<()> {
    for (input, given) in inputs.iter().zip(&fused.expression.inputs).skip(values.len()) {
        values.push(if given.known {
            Value::Known(store.known(input.slot).ok_or_else(missing)?)
        } else {
            let operand = store.operand(input.slot, may_own && input.last)?;
            Value::Memory(operand, store.meta(input.slot)?.0.clone())
        });
    }
    Ok(())
}

/// Moves inputs to a device, if some are not there yet.
pub(super) fn bring(values: &mut [Value], to: &Runtime) -> Result<()> {
    for value in values {
        if let Value::Memory(operand, _) = value
            && !operand.data().buffer.belongs_to(to)
        {
            let moved = operand.data().on(to)?;
            operand.replace(moved);
        }
    }
    Ok(())
}

/// Computes an expression of a shape on a stream. Returns the memory of its stored values, which may be that
/// of owned operands.
pub(super) fn run(
    fused: &Arc<Fused>,
    stream: &Stream,
    shape: &[usize],
    values: &mut [Value],
) -> Result<SmallVec<[Data; 1]>> {
    let backend = registry::of_stream(stream)?;
    if !fused.fits(backend.fusion()) {
        registry::count_fallback(FUSED);
        return run(fused, &placement::default_stream(placement::Device::Cpu)?, shape, values);
    }
    let runtime = stream.runtime();
    bring(values, &runtime)?;
    let size: usize = shape.iter().product();
    let order = storage_order(fused, shape, values);
    let mut kernel = Specialization::new(fused, shape, &order, values, backend.fusion());
    let in_place = kernel.choose_in_place();
    let built = if size > 0 { kernel.pipeline(&runtime, backend)? } else { None };
    if size > 0 && built.is_none() {
        fused.needs_double();
        drop((kernel, in_place));
        return run(fused, stream, shape, values);
    }
    // All that can be refused comes before an operand is overwritten.
    let mut outputs: SmallVec<[Option<Buffer>; 4]> = SmallVec::new();
    for (dtype, in_place) in fused.expression.output_dtypes().zip(&in_place) {
        outputs.push(match in_place {
            Some(_) => None,
            None => Some(stream.alloc(size * dtype.size())?),
        });
    }
    if let Some(built) = built {
        let owned = in_place.iter().map(|operand| operand.and_then(Operand::take));
        let owned = owned.collect::<SmallVec<[_; 4]>>();
        kernel.dispatch(stream, built, outputs.iter().flatten())?;
        for (output, owned) in outputs.iter_mut().zip(owned) {
            *output = owned.map(|owned| owned.into_data().buffer).or(output.take());
        }
    } else {
        for output in outputs.iter().flatten() {
            stream.command("empty").write(output).run(|_| Ok(()))?;
        }
    }
    let strides = stored_strides(shape, &order);
    Ok(outputs
        .into_iter()
        .flatten()
        .map(|buffer| Data { buffer, offset: 0, strides: strides.clone() })
        .collect())
}

/// Axes from the outermost to the innermost in memory.
pub(super) type AxisOrder = SmallVec<[usize; 6]>;

/// The order in which the outputs are stored. They keep the order of the inputs, so that the kernel reads and
/// writes neighbours: a transposed array has a transposed result. Inputs that are broadcast do not count;
/// where the others differ, or where an op uses the index of its element, the order is row-major.
pub(super) fn storage_order(fused: &Fused, shape: &[usize], values: &[Value]) -> AxisOrder {
    let row_major: AxisOrder = (0..shape.len()).collect();
    if shape.iter().filter(|length| **length > 1).count() < 2 || fused.expression.is_indexed() {
        return row_major;
    }
    let mut agreed: Option<AxisOrder> = None;
    for value in values {
        let Value::Memory(operand, own) = value else { continue };
        let strides = &operand.data().strides;
        if own[..] != *shape || (0..shape.len()).any(|axis| shape[axis] > 1 && strides[axis] == 0) {
            continue;
        }
        let mut order = row_major.clone();
        // Axes of length one may have any stride, and come first.
        order.sort_by_key(|&axis| match shape[axis] {
            1 => (0, axis),
            _ => (1, usize::MAX - strides[axis].unsigned_abs()),
        });
        if agreed.as_ref().is_some_and(|agreed| *agreed != order) {
            return row_major;
        }
        agreed = Some(order);
    }
    agreed.unwrap_or(row_major)
}

/// The strides of an array without gaps whose axes are stored in an order.
pub(super) fn stored_strides(shape: &[usize], order: &[usize]) -> Strides {
    let stored: Shape = order.iter().map(|axis| shape[*axis]).collect();
    let mut strides = Strides::from_elem(0, shape.len());
    for (axis, stride) in order.iter().zip(row_major(&stored)) {
        strides[*axis] = stride;
    }
    strides
}

impl<'a> Input<'a> {
    /// An input in memory, stretched to `shape`, with the strides of axes in an order.
    fn memory(operand: &'a Operand, dtype: Dtype, own: &[usize], shape: &[usize], order: &[usize]) -> Self {
        let data = operand.data();
        let missing = shape.len() - own.len();
        let strides: Strides = order
            .iter()
            .map(|&axis| match axis.checked_sub(missing) {
                Some(at) if own[at] == shape[axis] && shape[axis] != 1 => data.strides[at],
                _ => 0,
            })
            .collect();
        let known = KnownBytes::default();
        Input { dtype, layout: Layout::Plain, known, operand: Some(operand), data: Some(data), strides }
    }
}

impl<'a> Specialization<'a> {
    /// The elements are handled in the `order` of axes that they are stored in.
    pub(super) fn new(
        fused: &'a Arc<Fused>,
        shape: &[usize],
        order: &[usize],
        values: &'a [Value],
        fusion: Fusion,
    ) -> Self {
        let inputs = fused.expression.inputs.iter().zip(values);
        let inputs = inputs.map(|(given, value)| match value {
            Value::Memory(operand, own) => Input::memory(operand, given.dtype, own, shape, order),
            Value::Known(known) => Input {
                dtype: given.dtype,
                layout: Layout::Known,
                known: *known,
                operand: None,
                data: None,
                strides: Strides::new(),
            },
            Value::Result(shape) => Input {
                dtype: given.dtype,
                layout: Layout::Plain,
                known: KnownBytes::default(),
                operand: None,
                data: None,
                strides: row_major(shape),
            },
        });
        let inputs = inputs.collect();
        let mut kernel = Specialization { fused, inputs, lengths: SmallVec::new(), lanes: 1, fusion };
        kernel.collapse(&order.iter().map(|axis| shape[*axis]).collect::<Shape>());
        if fusion.vector_threads.is_some() {
            kernel.widen();
        }
        kernel
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

    /// Stores outputs in the place of owned inputs with the layout of the outputs, where the backend gains by
    /// it. Gives for each output the operand whose place it takes.
    fn choose_in_place(&mut self) -> SmallVec<[Option<&'a Operand>; 4]> {
        let expression = &self.fused.expression;
        let mut in_place: SmallVec<[Option<&'a Operand>; 4]> = smallvec![None; expression.outputs.len()];
        let size: usize = self.lengths.iter().product();
        if !self.fusion.in_place || size == 0 {
            return in_place;
        }
        for input in &mut self.inputs {
            let Some(operand) = input.operand.filter(|operand| operand.is_owned()) else { continue };
            let data = operand.data();
            let lies = input.layout == Layout::Plain || size == 1 && data.offset == 0;
            // A view of something larger would keep all of that.
            let exact = data.buffer.len() == size * input.dtype.size();
            if lies
                && exact
                && let Some(number) =
                    output_for(expression.output_dtypes(), |number| in_place[number].is_some(), input.dtype)
            {
                in_place[usize::from(number)] = Some(operand);
                input.layout = Layout::InPlace(number);
            }
        }
        in_place
    }

    /// Lets each thread handle several neighbours, if all inputs allow it.
    fn widen(&mut self) {
        let stored = |input: &&Input<'_>| input.layout != Layout::Known;
        let read = self.inputs.iter().filter(stored).map(|input| input.dtype.size());
        let expression = &self.fused.expression;
        let written = expression.output_dtypes().map(Dtype::size);
        let lanes = vectorize::lanes(read.chain(written).max().unwrap_or(8), expression.members.len());
        let size: usize = self.lengths.iter().product();
        if size >= vectorize::MIN_ELEMENTS && self.vectorizes(lanes) {
            self.lanes = lanes;
        }
    }

    /// Whether `lanes` neighbours of every input are contiguous and aligned, or one element.
    fn vectorizes(&self, lanes: usize) -> bool {
        let rank = self.lengths.len();
        let inner = self.lengths[rank - 1];
        let whole = |number: isize| number % lanes as isize == 0;
        let fits = |input: &Input<'_>| match input.layout {
            Layout::Known | Layout::Plain | Layout::InPlace(_) | Layout::Strided(Inner::Zero) => true,
            Layout::Strided(Inner::One) => {
                input.data.is_some_and(|data| whole(data.offset))
                    && input.strides[..rank - 1].iter().all(|stride| whole(*stride))
            }
            Layout::Strided(Inner::Any) => false,
        };
        (rank == 1 || whole(inner as isize)) && self.inputs.iter().all(fits)
    }

    /// Whether all inputs can be loaded in words of `lanes` elements.
    fn loads_words(&self, lanes: usize) -> bool {
        let whole = |input: &Input<'_>| match (input.layout, input.dtype.size()) {
            (Layout::Known | Layout::Strided(Inner::Zero), _) => true,
            (_, 16) => false,
            (_, size) => (lanes * size).is_multiple_of(if size == 8 { 16 } else { 4 }),
        };
        self.vectorizes(lanes) && self.inputs.iter().all(whole)
    }

    /// Encodes the kernel; `new` are the outputs that take no input's place.
    fn dispatch<'b>(
        &self,
        stream: &Stream,
        (pipeline, label): Built,
        new: impl Iterator<Item = &'b Buffer>,
    ) -> Result<()> {
        let constants = self.constants(1..self.lengths.len().saturating_sub(2));
        let mut command = stream.command(label);
        for input in &self.inputs {
            if let Some(data) = input.data {
                command = match input.layout {
                    Layout::InPlace(_) => command.read_write(&data.buffer),
                    _ => command.read(&data.buffer),
                };
            }
        }
        for output in new {
            command = command.write(output);
        }
        let grid = self.grid();
        let threadgroup = vectorize::threadgroup(self.fusion, grid);
        Ok(command.constants(&constants).dispatch(&pipeline, grid, threadgroup)?)
    }

    /// The arguments of the kernel, of eight bytes each: the lengths of some axes, then those of the inputs.
    fn constants(&self, axes: Range<usize>) -> SmallVec<[u8; 64]> {
        let rank = self.lengths.len();
        let mut constants: SmallVec<[u8; 64]> = SmallVec::new();
        let mut push = |value: i64| constants.extend_from_slice(&value.to_ne_bytes());
        axes.rev().for_each(|axis| push(self.lengths[axis] as i64));
        for input in self.inputs.iter().filter(|input| !input.is_result()) {
            match (input.layout, input.data) {
                (Layout::Strided(inner), Some(data)) => {
                    push(data.offset as i64);
                    for (axis, stride) in input.strides.iter().enumerate().rev() {
                        if axis + 1 < rank || inner == Inner::Any {
                            push(*stride as i64);
                        }
                    }
                }
                (Layout::Known, _) | (_, None) => push(i64::from_ne_bytes(input.known.0)),
                _ => {}
            }
        }
        constants
    }

    /// The expression as functions of the index of an element, and of the first of `lanes` neighbours; `None`
    /// if they compute with float64 and the backend does not, or if a prologue reads no memory.
    pub(super) fn slot(mut self, lanes: usize, double: bool) -> Result<Option<Slot>> {
        let memory: Vec<Data> = self.inputs.iter().filter_map(|input| input.data.cloned()).collect();
        let is_epilogue = self.inputs.first().is_some_and(Input::is_result);
        if memory.is_empty() && !is_epilogue {
            return Ok(None);
        }
        let size: usize = self.lengths.iter().product();
        let words = lanes > 1 && self.loads_words(lanes);
        let mut form = self.form(if is_epilogue { Target::EpilogueSlot } else { Target::Slot });
        (form.lanes, form.tall) = (if words { lanes } else { 1 }, u32::try_from(size).is_err());
        let index = if form.tall { Scalar::U64 } else { Scalar::U32 };
        let fused = self.fused;
        let constants = self.constants(1..self.lengths.len()).to_vec();
        let functions = fused.find_or_build::<SlotFunctions>(form, || {
            let one = self.function(index)?;
            self.lanes = lanes;
            let word = if words { Some(self.function(index)?) } else { None };
            Ok(SlotFunctions::new(one, word, fused.expression.members.len()))
        })?;
        if !double && has_double(functions.one.kernel()) {
            fused.needs_double();
            return Ok(None);
        }
        Ok(Some(Slot { functions, memory, constants }))
    }

    /// The function of an index of a type.
    fn function(&self, index: Scalar) -> Result<Function> {
        let wrong = |error| Error::Kernel(format!("a fused function is not well formed: {error}"));
        let mut b = Builder::new("fused");
        let result = self.inputs.first().filter(|input| input.is_result()).map(|input| type_of(input.dtype));
        let argument = |lane| result.map(|ty| b.value_param(format!("y{lane}"), ty));
        let arguments: Vec<ValueId> = (0..self.lanes).map_while(argument).collect();
        let first = b.builtin64(Builtin::ThreadPositionInGrid, 0);
        let linear = b.convert(first, Scalar::I64);
        let mut rest = b.convert(first, index);
        // Position along each axis, innermost first.
        let mut position = Positions::new();
        for axis in (1..self.lengths.len()).rev() {
            let length = b.value_param(format!("length{axis}"), Type::Scalar(Scalar::I64));
            let length = b.convert(length, index);
            let quotient = b.div(rest, length);
            let whole = b.mul(quotient, length);
            let at = b.sub(rest, whole);
            position.push(b.convert(at, Scalar::I64));
            rest = quotient;
        }
        position.push(b.convert(rest, Scalar::I64));
        let (results, _) = self.compute(&mut b, &position, linear, &arguments);
        let results = results.into_iter().next_back().ok_or_else(missing)?;
        Function::new(b.finish().map_err(wrong)?, results, arguments.len()).map_err(wrong)
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

    /// What the kernel depends on besides the expression.
    pub(super) fn form(&self, target: Target) -> Form {
        Form {
            target,
            rank: self.lengths.len(),
            lanes: self.lanes,
            tall: self.tall(),
            layouts: self.inputs.iter().map(|input| input.layout).collect(),
        }
    }

    /// The compiled kernel and its label, found or built; `None` if it computes with float64 and the backend
    /// does not.
    fn pipeline(&self, runtime: &Runtime, backend: &dyn Backend) -> Result<Option<Built>> {
        let form = self.form(Target::Device(runtime.id()));
        if let Some(found) = self.fused.find(&form) {
            return Ok(Some(found));
        }
        let (kernel, label) = (self.build()?, self.fused.expression.label());
        if !self.fusion.double && has_double(&kernel) {
            return Ok(None);
        }
        let source = PipelineSource::new(&*label, "hesper-ir", content(&kernel).as_str());
        let source = source.with_payload(Arc::new(kernel));
        let source = backend.fused_source(source, !form.tall);
        let built = (runtime.pipeline(&source)?, label);
        self.fused.keep(form, &built);
        Ok(Some(built))
    }

    /// Builds the kernel. Parameters come in the order in which `dispatch` passes them.
    pub(super) fn build(&self) -> Result<Kernel> {
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
        let mut position = Positions::from_slice(&[x]);
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
        let (results, in_place) = self.compute(&mut b, &position, linear, &[]);
        for (at, (dtype, list)) in self.fused.expression.output_dtypes().zip(&results).enumerate() {
            let ty = stored(dtype);
            let new = |b: &mut Builder| b.buffer(format!("out{at}"), Space::Device, ty, Access::ReadWrite);
            let pointer = in_place[at].unwrap_or_else(|| new(&mut b));
            if dtype == Dtype::Complex128 {
                complex::store_double(&mut b, pointer, linear, list[0]);
            } else if lanes == 1 {
                b.store_index(pointer, linear, list[0]);
            } else {
                vectorize::store(&mut b, pointer, linear, list);
            }
        }
        b.finish().map_err(|error| Error::Kernel(format!("a fused kernel is not well formed: {error}")))
    }

    /// The values of each output for the elements that a thread handles, from the position of the first one
    /// along each axis, innermost first, and in order; and the pointers of outputs that take an input's
    /// place. The result of the op whose epilogue this is comes as `arguments`, or from memory.
    fn compute(
        &self,
        b: &mut Builder,
        position: &Positions,
        linear: ValueId,
        arguments: &[ValueId],
    ) -> (Vec<Vec<ValueId>>, SmallVec<[Option<ValueId>; 4]>) {
        let (expression, lanes, long) = (&self.fused.expression, self.lanes, Type::Scalar(Scalar::I64));
        // Of each input the elements that the thread handles; one that all lanes share comes once.
        let mut values: Vec<Vec<ValueId>> = Vec::new();
        let mut in_place: SmallVec<[Option<ValueId>; 4]> = smallvec![None; expression.outputs.len()];
        for (at, input) in self.inputs.iter().enumerate() {
            if input.layout == Layout::Known {
                values.push(vec![b.value_param(format!("k{at}"), type_of(input.dtype))]);
                continue;
            }
            if input.is_result() && !arguments.is_empty() {
                values.push(arguments.to_vec());
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
            let stored_here = if let Layout::InPlace(output) = input.layout {
                in_place.get_mut(usize::from(output))
            } else {
                None
            };
            let access = if stored_here.is_some() { Access::ReadWrite } else { Access::Read };
            let pointer = b.buffer(format!("x{at}"), Space::Device, stored(input.dtype), access);
            if let Some(output) = stored_here {
                *output = Some(pointer);
            }
            values.push(if lanes == 1 || input.layout == Layout::Strided(Inner::Zero) {
                vec![load(b, pointer, index, input.dtype)]
            } else {
                let scalar = input.dtype.scalar();
                let bits = vectorize::load(b, pointer, index, scalar.unwrap_or(Scalar::U64), lanes);
                match scalar {
                    Some(_) => bits,
                    None => bits.into_iter().map(|bits| complex::from_bits(b, bits)).collect(),
                }
            });
        }
        let mut results: Vec<Vec<ValueId>> = vec![Vec::new(); expression.outputs.len()];
        for lane in 0..lanes {
            let mut place = linear;
            if lane > 0 && expression.is_indexed() {
                let lane = b.i64(lane as i64);
                place = b.add(linear, lane);
            }
            let mut computed: Vec<ValueId> = Vec::new();
            for (member, sources) in expression.members() {
                let mut arguments: SmallVec<[ValueId; 4]> = sources
                    .iter()
                    .map(|source| match *source {
                        Source::Input(at) => {
                            let lanes = &values[at as usize];
                            lanes[lane.min(lanes.len() - 1)]
                        }
                        Source::Member(at) => computed[at as usize],
                    })
                    .collect();
                if member.op.indexed {
                    arguments.push(place);
                }
                let value = (member.op.emit)(b, &arguments);
                computed.push(convert(b, value, member.dtype));
            }
            for (output, list) in expression.outputs.iter().zip(&mut results) {
                let value = computed[*output as usize];
                let is_word = b.ty(value).scalar() == Some(Scalar::F32) && b.ty(value).is_vec();
                list.push(if is_word { complex::to_bits(b, value) } else { value });
            }
        }
        (results, in_place)
    }
}

/// The type of elements in memory. Complex numbers are there as words of their size, or as two float64.
fn stored(dtype: Dtype) -> Type {
    match dtype {
        Dtype::Complex128 => Type::Scalar(Scalar::F64),
        _ => Type::Scalar(dtype.scalar().unwrap_or(Scalar::U64)),
    }
}

/// Whether a kernel computes with float64.
fn has_double(kernel: &Kernel) -> bool {
    let is_double = |inst: &Inst| inst.result.is_some_and(|v| kernel.ty(v).scalar() == Some(Scalar::F64));
    kernel.blocks.iter().flat_map(|block| &block.insts).any(is_double)
}

/// The output to store in the place of an input of a type: the first of that type that is not stored in place
/// yet.
pub(super) fn output_for(
    outputs: impl Iterator<Item = Dtype>,
    in_place: impl Fn(usize) -> bool,
    dtype: Dtype,
) -> Option<u8> {
    let mut numbered = outputs.enumerate();
    numbered.find(|(number, of)| *of == dtype && !in_place(*number)).map(|(number, _)| number as u8)
}

/// A kernel as text: what the runtime knows its pipeline by. Two kernels have one text only if they are the
/// same; names of ops are no part of it.
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

/// An element in memory. A complex number is loaded whole, as neighbours then are one load.
fn load(b: &mut Builder, pointer: ValueId, index: ValueId, dtype: Dtype) -> ValueId {
    match dtype.scalar() {
        Some(scalar) => b.load_index(pointer, index, Type::Scalar(scalar)),
        None if dtype == Dtype::Complex128 => complex::load_double(b, pointer, index),
        None => {
            let bits = b.load_index(pointer, index, Type::Scalar(Scalar::U64));
            complex::from_bits(b, bits)
        }
    }
}

/// The type of an element in a kernel.
fn type_of(dtype: Dtype) -> Type {
    dtype.scalar().map_or(Type::Vec(complex::part(dtype), 2), Type::Scalar)
}

/// A value as an element of a type.
fn convert(b: &mut Builder, value: ValueId, dtype: Dtype) -> ValueId {
    match (b.ty(value).is_vec(), dtype.scalar()) {
        (true, None) if b.ty(value) == type_of(dtype) => value,
        (true, None) => complex::convert(b, value, complex::part(dtype)),
        (false, None) => complex::from_real(b, value, complex::part(dtype)),
        (true, Some(scalar)) => complex::to_real(b, value, scalar),
        (false, Some(scalar)) => b.convert(value, scalar),
    }
}

//! Producer fusion: a group of element-wise ops whose consumer reads its value row by row. The consumer's kernel asks for
//! pieces that fit the cache, and the group's kernel computes them there; they never go to memory.

use std::sync::Arc;

use bytemuck::Pod;
use hesper_kernel::exec::{Cancel, Program};
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_runtime::Stream;
use smallvec::SmallVec;

use super::expression::{Fused, Inner, Layout, Target};
use super::fuse::{self, Specialization, Value};
use super::program::missing;
use crate::array::Data;
use crate::backend::Fusion;
use crate::error::{Error, Result};
use crate::shape::Strides;

/// The value of an expression, computed piece by piece: from what memory, and how.
pub struct FusedRows {
    memory: Vec<Data>,
    kernel: Arc<RowKernel>,
}

/// How the value of an expression is computed.
pub struct RowKernel {
    program: Arc<Program>,
    inputs: SmallVec<[Input; 8]>,
    /// Lengths of the iteration, outermost first. The kernel goes over the last two.
    lengths: SmallVec<[usize; 6]>,
    size: usize,
}

/// The numbers by which a kernel finds an input's elements.
type Steps = SmallVec<[[u8; 8]; 3]>;

/// An input of the expression.
enum Input {
    /// A number, in so many bytes.
    Known([u8; 8], usize),
    /// The offset of an array, its layout, its strides over the lengths, and the size of an element.
    Memory(isize, Layout, Strides, usize),
}

/// The first input of an op that reads it row by row.
pub(super) struct RowInput {
    /// Where it is: no memory if it is computed as it is read.
    pub(super) data: Data,
    pub(super) fused: Option<FusedRows>,
}

impl RowInput {
    /// The one value of an expression of a shape: computed as it is read if that can be, or now.
    pub(super) fn of(
        fused: &Arc<Fused>,
        stream: &Stream,
        shape: &[usize],
        values: &mut [Value],
    ) -> Result<RowInput> {
        fuse::bring(values, &stream.runtime())?;
        if !fused.expression.is_indexed() {
            let rows = FusedRows::new(fused, shape, values)?;
            return Ok(RowInput { data: Data::contiguous(stream.alloc(0)?, &[0]), fused: Some(rows) });
        }
        let data = fuse::run(fused, stream, shape, values)?.pop().ok_or_else(missing)?;
        Ok(RowInput { data, fused: None })
    }
}

/// Rows are computed by the host's executor, which vectorizes by itself.
const SCALAR: Fusion = Fusion { vector_threads: None, in_place: false, row_sources: false };

impl FusedRows {
    /// The memory that the kernel reads, in order.
    pub fn memory(&self) -> &[Data] {
        &self.memory
    }

    /// What computes the rows.
    pub fn kernel(&self) -> &Arc<RowKernel> {
        &self.kernel
    }

    fn new(fused: &Arc<Fused>, shape: &[usize], values: &[Value]) -> Result<FusedRows> {
        let mut kernel = Specialization::new(fused, shape, values, SCALAR);
        let lengths = kernel.lengths.clone();
        let mut memory = Vec::new();
        let inputs = kernel
            .inputs
            .iter()
            .map(|input| match (input.layout, input.data) {
                (Layout::Known, _) | (_, None) => Input::Known(input.known.0, input.dtype.size()),
                (layout, Some(data)) => {
                    memory.push(data.clone());
                    Input::Memory(data.offset, layout, input.strides.clone(), input.dtype.size())
                }
            })
            .collect();
        kernel.lengths = lengths[lengths.len().saturating_sub(2)..].into();
        let size = lengths.iter().product();
        let program = fused.row_kernel(kernel.form(Target::Rows), || {
            Program::compile(&kernel.build()?).map_err(|error| Error::Kernel(error.to_string()))
        })?;
        Ok(FusedRows { memory, kernel: Arc::new(RowKernel { program, inputs, lengths, size }) })
    }
}

impl RowKernel {
    /// How many elements there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How many arrays it reads.
    pub fn reads(&self) -> usize {
        self.inputs.iter().filter(|input| matches!(input, Input::Memory(..))).count()
    }

    /// Computes the elements from `at` on, from the memory that the rows name.
    pub fn compute<T: Pod>(
        &self,
        at: usize,
        bytes: &[&[u8]],
        out: &mut [T],
    ) -> std::result::Result<(), String> {
        let rank = self.lengths.len();
        let inner = self.lengths[rank - 1];
        let outer = if rank > 1 { self.lengths[rank - 2] } else { 1 };
        let (mut done, end) = (0, out.len());
        while done < end {
            let (row, column) = ((at + done) / inner, (at + done) % inner);
            // Whole rows as far as the outer axis goes, or what there is of one.
            let (width, rows) = if column == 0 && end - done >= inner {
                (inner, ((end - done) / inner).min(outer - row % outer))
            } else {
                ((inner - column).min(end - done), 1)
            };
            let part = &mut out[done..done + width * rows];
            self.launch(at + done, [width, rows], bytes, bytemuck::cast_slice_mut(part))?;
            done += width * rows;
        }
        Ok(())
    }

    /// Runs the kernel over rows from an element on.
    fn launch(
        &self,
        at: usize,
        [width, rows]: [usize; 2],
        bytes: &[&[u8]],
        out: &mut [u8],
    ) -> std::result::Result<(), String> {
        let strides: SmallVec<[Steps; 8]> = self.inputs.iter().map(|input| self.strides(input, at)).collect();
        let mut bytes = bytes.iter();
        let mut list: Vec<Arg<'_>> = Vec::with_capacity(4 * self.inputs.len() + 1);
        for (input, strides) in self.inputs.iter().zip(&strides) {
            list.extend(strides.iter().map(|stride| Arg::read(stride)));
            match input {
                Input::Known(known, size) => list.push(Arg::read(&known[..*size])),
                Input::Memory(_, layout, _, size) => {
                    let all = bytes.next().ok_or("a view is missing")?;
                    let first = if *layout == Layout::Plain { at * size } else { 0 };
                    list.push(Arg::read(all.get(first..).unwrap_or_default()));
                }
            }
        }
        list.push(Arg::write(out));
        let bindings = Bindings::new(list).map_err(|error| error.to_string())?;
        let launch = Launch::new([width as u64, rows as u64, 1], [width.min(1024) as u64, 1, 1])
            .map_err(|error| error.to_string())?;
        self.program.run(&bindings, &launch, &Cancel::new()).map_err(|error| error.to_string())
    }

    /// Where a strided input begins for the element at `at`, and its steps, innermost first.
    fn strides(&self, input: &Input, at: usize) -> Steps {
        let Input::Memory(offset, Layout::Strided(inner), strides, _) = input else { return Steps::new() };
        let (mut rest, mut offset) = (at, *offset as i64);
        for (length, stride) in self.lengths.iter().zip(strides).rev() {
            offset += (rest % length) as i64 * *stride as i64;
            rest /= length;
        }
        // The kernel knows the innermost step, unless it may be any.
        let known = usize::from(*inner != Inner::Any);
        let steps = strides.iter().rev().take(2).skip(known).map(|stride| *stride as i64);
        std::iter::once(offset).chain(steps).map(i64::to_ne_bytes).collect()
    }
}

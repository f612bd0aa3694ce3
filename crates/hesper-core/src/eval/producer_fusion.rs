//! Producer fusion: a group of element-wise ops is computed inside of the op that reads its value row by row.
//! The consumer requests pieces that fit the CPU's cache, and the kernel of the group computes them there.
//! The value is never written to memory.

use std::sync::Arc;

use bytemuck::Pod;
use hesper_kernel::exec::{Cancel, Program};
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_runtime::Stream;
use smallvec::SmallVec;

use super::expression::{Fused, Inner, Layout, Target};
use super::fuse::{self, AxisOrder, Specialization, Value};
use super::program::missing;
use crate::array::Data;
use crate::backend::Fusion;
use crate::error::{Error, Result};
use crate::shape::Strides;

/// The rows of an expression that are computed as they are read: the memory of its inputs, and the kernel.
pub struct FusedRows {
    memory: Vec<Data>,
    kernel: Arc<RowKernel>,
}

/// Computes rows of an expression.
pub struct RowKernel {
    program: Arc<Program>,
    inputs: SmallVec<[Input; 8]>,
    /// Lengths of the iteration, outermost first. The kernel loops over the last two.
    lengths: SmallVec<[usize; 6]>,
    size: usize,
}

/// Offset and strides of an input, as arguments of the kernel.
type Steps = SmallVec<[[u8; 8]; 3]>;

/// An input of the expression.
enum Input {
    /// A scalar, and the number of its bytes.
    Known([u8; 8], usize),
    /// The offset of an array, its layout, its strides over the lengths, and the size of an element.
    Memory(isize, Layout, Strides, usize),
}

/// The first input of an op that reads rows.
pub(super) struct RowInput {
    /// Its memory; none if it is computed as it is read.
    pub(super) data: Data,
    pub(super) fused: Option<FusedRows>,
}

impl RowInput {
    /// The only output of an expression: computed as it is read if possible, else now.
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

/// One element per thread: the executor of the host vectorizes by itself.
const SCALAR: Fusion = Fusion {
    vector_threads: None,
    in_place: false,
    row_sources: false,
    double: true,
    max_buffers: usize::MAX,
};

impl FusedRows {
    /// The memory that the kernel reads, in order.
    pub fn memory(&self) -> &[Data] {
        &self.memory
    }

    /// The kernel.
    pub fn kernel(&self) -> &Arc<RowKernel> {
        &self.kernel
    }

    fn new(fused: &Arc<Fused>, shape: &[usize], values: &[Value]) -> Result<FusedRows> {
        let row_major: AxisOrder = (0..shape.len()).collect();
        let mut kernel = Specialization::new(fused, shape, &row_major, values, SCALAR);
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
    /// The number of elements.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The number of arrays that it reads.
    pub fn reads(&self) -> usize {
        self.inputs.iter().filter(|input| matches!(input, Input::Memory(..))).count()
    }

    /// Computes the elements from `at` on, from the bytes of the inputs.
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
            // As many whole rows as the outer axis has left, or the rest of one row.
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

    /// The offset of a strided input for the element at `at`, and its strides, innermost first.
    fn strides(&self, input: &Input, at: usize) -> Steps {
        let Input::Memory(offset, Layout::Strided(inner), strides, _) = input else { return Steps::new() };
        let (mut rest, mut offset) = (at, *offset as i64);
        for (length, stride) in self.lengths.iter().zip(strides).rev() {
            offset += (rest % length) as i64 * *stride as i64;
            rest /= length;
        }
        // The innermost stride is an argument only if it is not part of the form.
        let known = usize::from(*inner != Inner::Any);
        let steps = strides.iter().rev().take(2).skip(known).map(|stride| *stride as i64);
        std::iter::once(offset).chain(steps).map(i64::to_ne_bytes).collect()
    }
}

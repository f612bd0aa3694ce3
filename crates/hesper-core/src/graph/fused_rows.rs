//! The first input of an op as a group of element-wise ops, which is computed as the op reads it, and a group
//! that is applied to the op's result before it is stored.
//! [`producer_fusion`](crate::eval::producer_fusion) and `epilogue_fusion` make them.

use std::sync::Arc;

use bytemuck::Pod;
use hesper_kernel::exec::{Cancel, Program};
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_runtime::Stream;
use smallvec::SmallVec;

use super::{Data, Slot};
use crate::dtype::Dtype;
use crate::error::Result;
use crate::shape::Strides;

/// A group whose value is the first input of an op. Inputs are moved to the device that reads them.
pub(crate) trait Producer {
    /// The rows for a kernel of the host; `None` if only memory can have them.
    fn rows(&mut self, stream: &Stream) -> Result<Option<FusedRows>>;

    /// The functions for the text of a kernel, with `lanes` elements of a word; `None` if only memory can
    /// have the value. Elements are in the order in which they would be stored, or row-major.
    fn slot(&mut self, stream: &Stream, lanes: usize, row_major: bool) -> Result<Option<Slot>>;

    /// Computes the value into memory.
    fn run(&mut self) -> Result<Data>;
}

/// A group that is applied to the result of an op. Inputs are moved to the device that computes it.
pub(crate) trait Consumer {
    /// The kernel for rows on the host; `None` if only memory can have the result.
    fn rows(&mut self, stream: &Stream) -> Result<Option<FusedRows>>;

    /// The functions for the text of a kernel that binds `bound` other buffers, with `lanes` elements of a
    /// word; `None` if only memory can have the result.
    fn slot(&mut self, stream: &Stream, lanes: usize, bound: usize) -> Result<Option<Slot>>;

    /// The type of the group's value.
    fn dtype(&self) -> Dtype;

    /// The implementation of the op computes the group.
    fn take(&mut self);
}

/// The rows of an expression that are computed piece by piece: the memory of its inputs, and the kernel.
pub struct FusedRows {
    pub(crate) memory: Vec<Data>,
    pub(crate) kernel: Arc<RowKernel>,
}

/// Computes rows of an expression.
pub struct RowKernel {
    pub(crate) program: Arc<Program>,
    pub(crate) inputs: SmallVec<[KernelInput; 8]>,
    /// Lengths of the iteration, outermost first. The kernel loops over the last two.
    pub(crate) lengths: SmallVec<[usize; 6]>,
    pub(crate) size: usize,
}

/// Offset and strides of an input, as arguments of the kernel.
type Steps = SmallVec<[[u8; 8]; 3]>;

/// An input of the expression.
pub(crate) enum KernelInput {
    /// A scalar, and the number of its bytes.
    Known([u8; 8], usize),
    /// A row-major array of elements of this size.
    Plain(usize),
    /// Elements of this size that the op hands over piece by piece.
    Result(usize),
    /// An array with strides over the lengths. The innermost one is an argument if it may be any.
    Strided { offset: isize, strides: Strides, any_inner: bool },
}

impl FusedRows {
    /// The memory that the kernel reads, in order.
    pub fn memory(&self) -> &[Data] {
        &self.memory
    }

    /// The kernel.
    pub fn kernel(&self) -> &Arc<RowKernel> {
        &self.kernel
    }
}

impl RowKernel {
    /// The number of elements.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The number of arrays that it reads.
    pub fn reads(&self) -> usize {
        let is_read =
            |input: &&KernelInput| matches!(input, KernelInput::Plain(_) | KernelInput::Strided { .. });
        self.inputs.iter().filter(is_read).count()
    }

    /// Computes the elements from `at` on, from the bytes of the inputs.
    pub fn compute<T: Pod>(
        &self,
        at: usize,
        bytes: &[&[u8]],
        out: &mut [T],
    ) -> std::result::Result<(), String> {
        self.compute_from(at, &[], bytes, bytemuck::cast_slice_mut(out), size_of::<T>())
    }

    /// Applies an epilogue to a `piece` of the op's result, from the element `at` on: `out` has elements of
    /// `size` bytes.
    pub fn compute_from(
        &self,
        at: usize,
        piece: &[u8],
        bytes: &[&[u8]],
        out: &mut [u8],
        size: usize,
    ) -> std::result::Result<(), String> {
        let rank = self.lengths.len();
        let inner = self.lengths[rank - 1];
        let outer = if rank > 1 { self.lengths[rank - 2] } else { 1 };
        let (mut done, end) = (0, out.len() / size);
        while done < end {
            let (row, column) = ((at + done) / inner, (at + done) % inner);
            // As many whole rows as the outer axis has left, or the rest of one row.
            let (width, rows) = if column == 0 && end - done >= inner {
                (inner, ((end - done) / inner).min(outer - row % outer))
            } else {
                ((inner - column).min(end - done), 1)
            };
            let part = &mut out[done * size..(done + width * rows) * size];
            self.launch([at + done, done], [width, rows], piece, bytes, part)?;
            done += width * rows;
        }
        Ok(())
    }

    /// Runs the kernel over rows from an element on, which has the number `done` in the piece.
    fn launch(
        &self,
        [at, done]: [usize; 2],
        [width, rows]: [usize; 2],
        piece: &[u8],
        bytes: &[&[u8]],
        out: &mut [u8],
    ) -> std::result::Result<(), String> {
        let strides: SmallVec<[Steps; 8]> = self.inputs.iter().map(|input| self.strides(input, at)).collect();
        let mut bytes = bytes.iter();
        let mut list: Vec<Arg<'_>> = Vec::with_capacity(4 * self.inputs.len() + 1);
        for (input, strides) in self.inputs.iter().zip(&strides) {
            list.extend(strides.iter().map(|stride| Arg::read(stride)));
            match input {
                KernelInput::Known(known, size) => list.push(Arg::read(&known[..*size])),
                KernelInput::Result(size) => {
                    list.push(Arg::read(piece.get(done * size..).unwrap_or_default()));
                }
                KernelInput::Plain(size) => {
                    let all = bytes.next().ok_or("a view is missing")?;
                    list.push(Arg::read(all.get(at * size..).unwrap_or_default()));
                }
                KernelInput::Strided { .. } => list.push(Arg::read(bytes.next().ok_or("a view is missing")?)),
            }
        }
        list.push(Arg::write(out));
        let bindings = Bindings::new(list).map_err(|error| error.to_string())?;
        let launch = Launch::new([width as u64, rows as u64, 1], [width.min(1024) as u64, 1, 1])
            .map_err(|error| error.to_string())?;
        self.program.run(&bindings, &launch, &Cancel::new()).map_err(|error| error.to_string())
    }

    /// The offset of a strided input for the element at `at`, and its strides, innermost first.
    fn strides(&self, input: &KernelInput, at: usize) -> Steps {
        let KernelInput::Strided { offset, strides, any_inner } = input else { return Steps::new() };
        let (mut rest, mut offset) = (at, *offset as i64);
        for (length, stride) in self.lengths.iter().zip(strides).rev() {
            offset += (rest % length) as i64 * *stride as i64;
            rest /= length;
        }
        // The innermost stride is an argument only if it is not part of the form.
        let known = usize::from(!any_inner);
        let steps = strides.iter().rev().take(2).skip(known).map(|stride| *stride as i64);
        std::iter::once(offset).chain(steps).map(i64::to_ne_bytes).collect()
    }
}

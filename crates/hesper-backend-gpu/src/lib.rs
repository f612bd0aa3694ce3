//! What GPU backends share: the lowering of ops that does not depend on the device.
//!
//! A backend implements [`Gpu`]: for the parameters of a kernel it gives the compiled kernel, its constants
//! and its grid. Then [`register`] adds the ops of this crate to its table. They check shapes and strides,
//! allocate memory, and encode the commands; some are graphs of other ops.
#![deny(unsafe_code)]

mod along_axis;
mod append;
mod attention_gradient;
mod background;
mod concat;
mod copy;
mod cross_entropy;
mod diagonal;
mod fft;
mod fp8;
mod gated_delta;
mod gather;
mod hadamard;
mod index_arrays;
mod inputs;
mod instances;
mod kernel;
mod norm_gradient;
mod pipelines;
mod products;
mod quant;
mod random;
mod rope;
mod row_op;
mod scatter;
mod sink;
mod sort;
mod source;
mod walk;

use std::marker::PhantomData;

use hesper_core::backend::OpTableBuilder;
use hesper_core::ops::quant::QuantFormat;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Stream};

pub use along_axis::AlongAxis;
pub use copy::{CopyAxis, StridedCopy, Target, TransposedCopy, copy, copy_to, fill};
pub use fft::FourierRows;
pub use gather::{GatheredSlices, IndexedAxis};
pub use index_arrays::SliceStarts;
pub use inputs::{is_float, read, read_all};
pub use instances::{nonzero_mask, reduce_instance, scan_instance};
pub use kernel::{Constants, Kernel, KernelText, Launch, Slots, TemplateArgument};
pub use pipelines::KnownPipelines;
pub use products::quantized_matmul;
pub use quant::{block_format, dequantize_float, float_format};
pub use rope::Rotation;
pub use row_op::RowOpKernel;
pub use scatter::{CombinedRuns, CombinedSlices};
pub use sink::Sink;
pub use sort::SortRows;
pub use source::Source;
pub use walk::{Axes, fits, joined};

/// The kernels of a GPU backend that the ops of this crate launch.
pub trait Gpu: KernelText {
    /// Kernels index arrays of fewer elements. The host computes with larger ones.
    const MAX_ELEMENTS: usize;
    /// Most axes of a strided copy.
    const MAX_COPY_AXES: usize;
    /// Most points that [`link_points`](Gpu::link_points) takes.
    const MAX_POINTS: usize;
    /// Bytes of the offset of a slice of a gather.
    const OFFSET_SIZE: usize;
    /// The longest row that [`fft`](Gpu::fft) takes.
    const LONGEST_FFT: usize;
    /// Whether [`sort`](Gpu::sort) and [`search`](Gpu::search) take complex numbers.
    const SORTS_COMPLEX: bool = false;

    /// A copy between strided layouts.
    fn strided_copy(stream: &Stream, copy: &StridedCopy<'_>) -> Result<Launch>;

    /// A copy whose source and target are contiguous along different axes.
    fn transposed_copy(stream: &Stream, copy: &TransposedCopy<'_>) -> Result<Launch>;

    /// `count` copies of an element of `size` bytes.
    fn filled(stream: &Stream, element: [u8; 8], size: usize, count: usize) -> Result<Launch>;

    /// Gathers slices. Buffers: the source, the indices or offsets, the output.
    fn gather(stream: &Stream, slices: &GatheredSlices<'_>) -> Result<Launch>;

    /// The offset of the slice that each index points at. Buffers: the indices, the offsets.
    fn slice_starts(stream: &Stream, starts: &SliceStarts<'_>) -> Result<Launch>;

    /// Gathers elements of `size` bytes along an axis. Buffers: the array, the indices, the output.
    fn take_along(stream: &Stream, size: usize, along: &AlongAxis<'_>) -> Result<Launch>;

    /// The offset of the element that each index points at, in 32 bits. Buffers: the indices, the offsets.
    fn element_offsets(stream: &Stream, along: &AlongAxis<'_>) -> Result<Launch>;

    /// Combines slices of neighbours with an array, and the order of the points by their starts. Buffers: the
    /// updates, the starts, the order, the array. `None`: the backend has no kernel for it.
    fn combine_runs(
        _stream: &Stream,
        _runs: &CombinedRuns,
        _starts: &Buffer,
    ) -> Result<Option<(Launch, Buffer)>> {
        Ok(None)
    }

    /// Combines slices with an array. Buffers: the updates, the starts, the links, the array.
    fn combine_slices(stream: &Stream, slices: &CombinedSlices<'_>) -> Result<Launch>;

    /// Fourier transforms of rows. Buffers: the input, the output.
    fn fft(stream: &Stream, rows: &FourierRows) -> Result<Launch>;

    /// Quantizes groups of elements. Buffers: the elements, the codes, the scales, and the biases of affine
    /// formats.
    fn quantize(stream: &Stream, format: QuantFormat, dtype: Dtype, groups: usize) -> Result<Launch>;

    /// Dequantizes words of codes of a floating-point format. Buffers: the codes, the scales, the output.
    fn dequantize(stream: &Stream, format: QuantFormat, dtype: Dtype, words: usize) -> Result<Launch>;

    /// The text of the gated delta rule. Buffers of its kernel: queries, keys, values, decays, rates, states,
    /// marks, the output, the new states.
    const GATED_DELTA: &'static str;

    /// Whether [`row_op`](Gpu::row_op) takes rows of a type.
    fn takes_row_op(dtype: Dtype) -> bool;

    /// Softmax, log-sum-exp or a norm of rows. Buffers: the source, the weight, the bias, the sink. `None` if
    /// rows must be in memory, or while a kernel with a filled slot is not compiled.
    fn row_op(stream: &Stream, rows: &RowOpKernel<'_>) -> Result<Option<Launch>>;

    /// Rotary position embedding. Buffers: the input, the offsets, the periods, the output.
    fn rope(stream: &Stream, rotation: &Rotation<'_>) -> Result<Launch>;

    /// Whether the kernel of random bits has a slot for what it stores.
    const RANDOM_EPILOGUE: bool = false;

    /// `words` random words of 32 bits. Buffers: the key unless the host knows it, what the epilogue reads,
    /// the output. `None` while a kernel with an epilogue is not compiled.
    fn random_bits(
        stream: &Stream,
        words: usize,
        key: Option<[u32; 2]>,
        sink: &Sink,
    ) -> Result<Option<Launch>>;

    /// Sorts rows into a buffer: the elements, or their indices, of which equal elements keep their order
    /// (`places`).
    fn sort(rows: &SortRows<'_>, output: &Buffer, places: bool) -> Result<()>;

    /// Partitions rows around the element at index `kth`: the elements, or their indices (`places`). Buffers:
    /// the rows, the output. `None`: the backend has no kernel for such rows, and sorts them.
    fn partition(_rows: &SortRows<'_>, _kth: usize, _places: bool) -> Result<Option<Launch>> {
        Ok(None)
    }

    /// Where `count` elements belong in a sorted row of `length`. Buffers: the row, the elements, the output.
    fn search(stream: &Stream, dtype: Dtype, right: bool, length: usize, count: usize) -> Result<Launch>;

    /// Links the points with equal keys of 32 bits, in the order of the points, as `combine_slices` reads
    /// them.
    fn link_points(stream: &Stream, keys: &Buffer, points: usize) -> Result<Buffer>;
}

/// The implementations of this crate for a backend.
pub struct Shared<G>(PhantomData<G>);

/// Adds the ops of this crate to the table of a backend.
pub fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table
        .extend(along_axis::register)
        .extend(append::register)
        .extend(attention_gradient::register)
        .extend(norm_gradient::register)
        .extend(concat::register)
        .extend(cross_entropy::register)
        .extend(diagonal::register)
        .extend(fft::register)
        .extend(fp8::register)
        .extend(gated_delta::register)
        .extend(gather::register)
        .extend(hadamard::register)
        .extend(products::register)
        .extend(quant::register)
        .extend(random::register)
        .extend(rope::register)
        .extend(row_op::register)
        .extend(scatter::register)
        .extend(sort::register)
}

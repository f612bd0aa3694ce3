//! The kernels that ops which all GPU backends share launch.

use hesper_backend_gpu::{
    AlongAxis, CombinedSlices, FourierRows, GatheredSlices, Gpu, KernelText, Launch, Rotation, RowOpKernel,
    Sink, SliceStarts, SortRows, StridedCopy, TransposedCopy, is_float,
};
use hesper_core::ops::quant::QuantFormat;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Stream};

use crate::{MetalBackend, copy, fft, index, launch, norm, quant, random, rope, sort};

impl Gpu for MetalBackend {
    const MAX_ELEMENTS: usize = launch::MAX_ELEMENTS;
    const MAX_COPY_AXES: usize = MetalBackend::MAX_AXES;
    const MAX_POINTS: usize = launch::MAX_ELEMENTS;
    const OFFSET_SIZE: usize = 4;
    const LONGEST_FFT: usize = fft::LONGEST;
    const GATED_DELTA: &'static str = text!("gated_delta.metal");
    const SORTS_COMPLEX: bool = true;

    fn strided_copy(stream: &Stream, copy: &StridedCopy<'_>) -> Result<Launch> {
        copy::strided(stream, copy)
    }

    fn transposed_copy(stream: &Stream, copy: &TransposedCopy<'_>) -> Result<Launch> {
        copy::transposed(stream, copy)
    }

    fn filled(stream: &Stream, element: [u8; 8], size: usize, count: usize) -> Result<Launch> {
        copy::filled(stream, element, size, count)
    }

    fn gather(stream: &Stream, slices: &GatheredSlices<'_>) -> Result<Launch> {
        index::gather(stream, slices)
    }

    fn slice_starts(stream: &Stream, starts: &SliceStarts<'_>) -> Result<Launch> {
        index::slice_starts(stream, starts)
    }

    fn take_along(stream: &Stream, size: usize, along: &AlongAxis<'_>) -> Result<Launch> {
        index::take_along(stream, size, along)
    }

    fn element_offsets(stream: &Stream, along: &AlongAxis<'_>) -> Result<Launch> {
        index::element_offsets(stream, along)
    }

    fn combine_slices(stream: &Stream, slices: &CombinedSlices<'_>) -> Result<Launch> {
        index::combine_slices(stream, slices)
    }

    fn link_points(stream: &Stream, keys: &Buffer, points: usize) -> Result<Buffer> {
        index::link_points(stream, keys, points)
    }

    fn takes_row_op(dtype: Dtype) -> bool {
        is_float(dtype)
    }

    fn row_op(stream: &Stream, rows: &RowOpKernel<'_>) -> Result<Option<Launch>> {
        norm::row_op(stream, rows)
    }

    fn rope(stream: &Stream, rotation: &Rotation<'_>) -> Result<Launch> {
        rope::rope(stream, rotation)
    }

    fn random_bits(stream: &Stream, words: usize, key: Option<[u32; 2]>, _: &Sink) -> Result<Option<Launch>> {
        random::random_bits(stream, words, key).map(Some)
    }

    fn sort(rows: &SortRows<'_>, output: &Buffer, places: bool) -> Result<()> {
        sort::sort(rows, output, places)
    }

    fn search(stream: &Stream, dtype: Dtype, right: bool, length: usize, count: usize) -> Result<Launch> {
        sort::search(stream, dtype, right, length, count)
    }

    fn fft(stream: &Stream, rows: &FourierRows) -> Result<Launch> {
        fft::fft(stream, rows)
    }

    fn quantize(stream: &Stream, format: QuantFormat, dtype: Dtype, groups: usize) -> Result<Launch> {
        quant::quantize(stream, format, dtype, groups)
    }

    fn dequantize(stream: &Stream, format: QuantFormat, dtype: Dtype, words: usize) -> Result<Launch> {
        quant::dequantize(stream, format, dtype, words)
    }
}

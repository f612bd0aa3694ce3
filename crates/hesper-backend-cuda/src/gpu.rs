//! The kernels that ops which all GPU backends share launch.

use hesper_backend_gpu::{
    AlongAxis, CombinedRuns, CombinedSlices, FourierRows, GatheredSlices, Gpu, Launch, Rotation, RowOpKernel,
    Sink, SliceStarts, SortRows, StridedCopy, TransposedCopy,
};
use hesper_core::ops::quant::QuantFormat;
use hesper_core::{Dtype, Result};
use hesper_runtime::{Buffer, Stream};

use crate::quant::convert;
use crate::{Cuda, along_axis, copy, fft, gather, index_arrays, norm, random, rope, scatter, search, sort};

impl Gpu for Cuda {
    /// Kernels index with 64 bits.
    const MAX_ELEMENTS: usize = usize::MAX;
    const MAX_COPY_AXES: usize = copy::MAX_AXES;
    const MAX_POINTS: usize = u32::MAX as usize;
    const OFFSET_SIZE: usize = 8;
    const LONGEST_FFT: usize = fft::LONGEST;
    const GATED_DELTA: &'static str = include_str!("gated_delta.cuh");

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
        gather::gather(stream, slices)
    }

    fn slice_starts(stream: &Stream, starts: &SliceStarts<'_>) -> Result<Launch> {
        index_arrays::slice_starts(stream, starts)
    }

    fn take_along(stream: &Stream, size: usize, along: &AlongAxis<'_>) -> Result<Launch> {
        along_axis::take_along(stream, size, along)
    }

    fn element_offsets(stream: &Stream, along: &AlongAxis<'_>) -> Result<Launch> {
        along_axis::element_offsets(stream, along)
    }

    fn combine_slices(stream: &Stream, slices: &CombinedSlices<'_>) -> Result<Launch> {
        scatter::combine_slices(stream, slices)
    }

    fn combine_runs(
        stream: &Stream,
        runs: &CombinedRuns,
        starts: &Buffer,
    ) -> Result<Option<(Launch, Buffer)>> {
        scatter::combine_runs(stream, runs, starts)
    }

    fn link_points(stream: &Stream, keys: &Buffer, points: usize) -> Result<Buffer> {
        scatter::link_points(stream, keys, points)
    }

    fn takes_row_op(dtype: Dtype) -> bool {
        norm::takes_row_op(dtype)
    }

    fn row_op(stream: &Stream, rows: &RowOpKernel<'_>) -> Result<Option<Launch>> {
        norm::row_op(stream, rows)
    }

    fn rope(stream: &Stream, rotation: &Rotation<'_>) -> Result<Launch> {
        rope::rope(stream, rotation)
    }

    const RANDOM_EPILOGUE: bool = true;

    fn random_bits(
        stream: &Stream,
        words: usize,
        key: Option<[u32; 2]>,
        sink: &Sink,
    ) -> Result<Option<Launch>> {
        random::random_bits(stream, words, key, sink)
    }

    fn sort(rows: &SortRows<'_>, output: &Buffer, places: bool) -> Result<()> {
        sort::sort(rows, output, places)
    }

    fn partition(rows: &SortRows<'_>, kth: usize, places: bool) -> Result<Option<Launch>> {
        sort::partition(rows, kth, places)
    }

    fn search(stream: &Stream, dtype: Dtype, right: bool, length: usize, count: usize) -> Result<Launch> {
        search::search(stream, dtype, right, length, count)
    }

    fn fft(stream: &Stream, rows: &FourierRows) -> Result<Launch> {
        fft::fft(stream, rows)
    }

    fn quantize(stream: &Stream, format: QuantFormat, dtype: Dtype, groups: usize) -> Result<Launch> {
        convert::quantize(stream, format, dtype, groups)
    }

    fn dequantize(stream: &Stream, format: QuantFormat, dtype: Dtype, words: usize) -> Result<Launch> {
        convert::dequantize(stream, format, dtype, words)
    }
}

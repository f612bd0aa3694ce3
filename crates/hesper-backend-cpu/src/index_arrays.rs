//! Binds index arrays to commands and reads them there.

use crate::walk::{ElementLayout, GRAIN, Strided, collapse, each_row, par_chunks};
use hesper_core::Dtype;
use hesper_core::backend::Lowering;
use hesper_core::ops::index_arrays::{IndexedAxis, Indices};
use hesper_runtime::{Encoder, NativeError, View};
use smallvec::SmallVec;

/// Index arrays of one shape, one for each indexed axis. Each element of the shape selects a slice.
#[derive(Debug)]
pub(crate) struct IndexArrays(SmallVec<[(Strided, Dtype); 2]>);

/// The layouts of index arrays in the views of a command.
#[derive(Debug)]
pub(crate) struct BoundIndexArrays(SmallVec<[(ElementLayout, Dtype); 2]>);

impl IndexArrays {
    /// The inputs of an op from `first` on.
    pub(crate) fn inputs(l: &Lowering<'_>, first: usize) -> Self {
        IndexArrays((first..l.input_count()).map(|at| (Strided::input(l, at), l.input_dtype(at))).collect())
    }

    /// Binds them to a command as inputs.
    pub(crate) fn read<'e>(&'e self, mut encoder: Encoder<'e>) -> Encoder<'e> {
        for (array, _) in &self.0 {
            encoder = encoder.read_range(&array.data.buffer, array.bytes.clone());
        }
        encoder
    }

    /// Their layouts, for the command that binds them.
    pub(crate) fn layout(&self) -> BoundIndexArrays {
        BoundIndexArrays(self.0.iter().map(|(array, dtype)| (array.layout(), *dtype)).collect())
    }
}

impl BoundIndexArrays {
    /// The number of slices that they select.
    pub(crate) fn points(&self) -> usize {
        self.0.first().map_or(1, |(array, _)| array.shape.iter().product())
    }

    /// Their elements in the views of a command.
    pub(crate) fn open<'a>(
        &'a self,
        views: &'a [View<'_>],
        axes: SmallVec<[IndexedAxis; 4]>,
    ) -> std::result::Result<OpenIndexArrays<'a>, NativeError> {
        let indices = views.iter().zip(&self.0).map(|(view, (_, dtype))| Indices::of(view, *dtype));
        Ok(OpenIndexArrays { arrays: self, indices: indices.collect::<std::result::Result<_, _>>()?, axes })
    }
}

/// Index arrays inside of a command.
pub(crate) struct OpenIndexArrays<'a> {
    arrays: &'a BoundIndexArrays,
    indices: SmallVec<[Indices<'a>; 4]>,
    axes: SmallVec<[IndexedAxis; 4]>,
}

impl OpenIndexArrays<'_> {
    /// The offsets of the slices of the points from `first` on.
    pub(crate) fn offsets(&self, first: usize, to: &mut [isize]) {
        to.fill(0);
        for (((array, _), indices), axis) in self.arrays.0.iter().zip(&self.indices).zip(&self.axes) {
            let (shape, [strides]) = collapse(&array.shape, [&array.strides]);
            each_row(&shape, [&strides], first, to.len(), |range, [start], [step]| {
                indices.add_to(&mut to[range], array.offset + start, step, *axis);
            });
        }
    }

    /// The offsets of all slices.
    pub(crate) fn all_offsets(&self) -> Vec<isize> {
        let mut all = vec![0; self.arrays.points()];
        par_chunks(&mut all, GRAIN, |first, part| self.offsets(first, part));
        all
    }
}

//! Matrix products: one row by SIMD groups, others by tiles of `simdgroup_matrix`, complex numbers by a
//! thread to an element. Operands are read in place, whatever their strides.

use hesper_backend_gpu::{KernelText as _, fill, is_float};
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose, reach};
use hesper_core::ops::command::Commands;
use hesper_core::ops::matmul::Matmul;
use hesper_core::{Dtype, Result};

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits};

const TEXT: &str = text!("gemm.metal");
/// Side of a tile of the text.
pub(crate) const TILE: usize = 64;
/// Side of a tile of complex numbers, which has a thread for each element.
const SIDE: usize = 16;
/// Threads that compute a tile.
pub(crate) const TILE_THREADS: usize = 128;
/// Rows up to which a matrix is read once for each.
pub(crate) const MAX_VECTOR_ROWS: usize = 4;

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<Matmul>()
}

/// Strides of an operand for the axes of the result: zero where it is broadcast.
fn strides(l: &Lowering<'_>, at: usize) -> Vec<isize> {
    let (shape, data, rank) = (l.input_shape(at), l.input(at), l.shape().len());
    let missing = rank - shape.len();
    let stride = |axis: usize| if shape[axis] == 1 { 0 } else { data.strides[axis] };
    (0..rank).map(|axis| axis.checked_sub(missing).map_or(0, stride)).collect()
}

impl Lower<Matmul> for MetalBackend {
    fn lower(op: &Matmul, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let rank = l.shape().len();
        let complex = l.dtype() == Dtype::Complex64;
        if !is_float(l.dtype()) && !complex || rank > MetalBackend::MAX_AXES + 2 || !fits(l) {
            return Ok(None);
        }
        let k = l.input_shape(0)[l.input_shape(0).len() - 1];
        if op.add && k == 0 {
            // The sum has no terms: the scaled addend is left.
            return compose(l, |inputs| inputs[2].multiply(op.beta.0));
        }
        l.bring()?;
        let (shape, size, stream) = (l.shape(), l.dtype().size(), l.stream());
        let output = l.output()?;
        let result = Data::contiguous(output.clone(), shape);
        if k == 0 || shape.contains(&0) {
            fill::<MetalBackend>(stream, &output, 0..output.len(), [0; 8], size)?;
            return Ok(Some(result));
        }
        let (m, n) = (shape[rank - 2], shape[rank - 1]);
        // Without an addend the left operand is bound in its place, and not read.
        let inputs = [0, 1, if op.add { 2 } else { 0 }];
        let all = inputs.map(|at| strides(l, at));
        let reached = inputs.map(|at| reach(l.input(at), l.input_shape(at), size));
        let mut constants = Constants::default();
        for strides in &all {
            let axes: Vec<_> = shape[..rank - 2].iter().copied().zip(strides.iter().copied()).collect();
            constants = constants.axes(if axes.is_empty() { &[(1, 0)] } else { &axes });
        }
        constants = constants.sizes(&[m, n, k]);
        for strides in &all {
            constants = constants.offset(strides[rank - 2]).offset(strides[rank - 1]);
        }
        constants = constants.sizes(&reached.clone().map(|(_, first)| first)).sizes(&[n]);
        constants = constants.float(op.alpha.0 as f32).float(op.beta.0 as f32);
        let mut command = stream.command("matmul");
        for (at, (bytes, _)) in inputs.into_iter().zip(reached) {
            command = command.read_range(&l.input(at).buffer, bytes);
        }
        let command = command.write(&output);
        let batch: usize = shape[..rank - 2].iter().product();
        let vector = m <= MAX_VECTOR_ROWS;
        let (name, groups, threads) = match () {
            () if complex => ("complex_product", [n.div_ceil(SIDE), m.div_ceil(SIDE), batch], SIDE * SIDE),
            () if vector && (all[1][rank - 2] == 1 || k == 1) => {
                ("gemv_rows", [n.div_ceil(32), m, batch], 256)
            }
            () if vector && (all[1][rank - 1] == 1 || n == 1) => {
                ("gemv_columns", [n.div_ceil(32), m, batch], 256)
            }
            () => ("gemm", [n.div_ceil(TILE), m.div_ceil(TILE), batch], TILE_THREADS),
        };
        let kernel = Kernel::new(stream, TEXT, name);
        let kernel = if complex { kernel } else { kernel.of(l.dtype()) };
        kernel.of(op.add).groups(constants, groups, threads)?.encode(command)?;
        Ok(Some(result))
    }
}

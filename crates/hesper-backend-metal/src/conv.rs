//! Convolutions as products by tiles, whose left operand is made of windows as it is read.

use hesper_backend_gpu::{fill, is_float, read_all};
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::conv::{Axis, Convolution};

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits};
use crate::matmul::{TILE, TILE_THREADS};

const TEXT: &str = text!("gemm.metal", "conv.metal");

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<Convolution>()
}

impl Lower<Convolution> for MetalBackend {
    fn lower(op: &Convolution, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (geometry, rank) = (&op.0, op.0.axes.len());
        if !is_float(l.dtype()) || rank > 3 || !fits(l) {
            return Ok(None);
        }
        l.bring()?;
        let (operands, output) = ([l.row_major(0)?, l.row_major(1)?], l.output()?);
        let result = Data::contiguous(output.clone(), l.shape());
        let lengths = |shape: &[usize]| -> [usize; 3] {
            std::array::from_fn(|at| if at < rank { shape[at + 1] } else { 1 })
        };
        let each = |of: fn(&Axis) -> usize| -> [usize; 3] {
            std::array::from_fn(|at| geometry.axes.get(at).map_or(1, of))
        };
        let (taps, positions) = (lengths(&geometry.weight), lengths(&geometry.output));
        let channels = geometry.input[rank + 1] / geometry.groups;
        let m = geometry.input[0] * positions.iter().product::<usize>();
        let n = geometry.weight[0] / geometry.groups;
        let k = taps.iter().product::<usize>() * channels;
        if m * n * k == 0 {
            fill::<MetalBackend>(l.stream(), &output, 0..output.len(), [0; 8], l.dtype().size())?;
            return Ok(Some(result));
        }
        let none = [(1, 0)];
        let constants = Constants::default().axes(&none).axes(&none).axes(&none);
        // The strides of operands are not read.
        let constants = constants.sizes(&[m, n, k, 0, 0, 0, 0, 0, 0, 0, 0, 0, geometry.weight[0]]);
        let constants = constants.float(1.0).float(0.0);
        let constants = constants.sizes(&lengths(&geometry.input)).sizes(&positions).sizes(&taps);
        let constants = constants.sizes(&each(|axis| axis.stride));
        let constants = constants.offsets(geometry.axes.iter().map(|axis| axis.low), 3, 0);
        let constants =
            constants.sizes(&each(|axis| axis.kernel_dilation)).sizes(&each(|axis| axis.input_dilation));
        let constants = constants.sizes(&[channels, geometry.groups]);
        let command = read_all(l.stream().command("conv"), l, 0, &operands).write(&output);
        let groups = [n.div_ceil(TILE), m.div_ceil(TILE), geometry.groups];
        let kernel = Kernel::new(l.stream(), TEXT, "convolve").of(l.dtype());
        kernel.groups(constants, groups, TILE_THREADS)?.encode(command)?;
        Ok(Some(result))
    }
}

//! Products with gathered quantized matrices, as a graph of other ops.

use hesper_core::backend::{Data, Lower, Lowering, compose};
use hesper_core::ops::quant::gathered::GatherQmm;
use hesper_core::{Array, Error, QuantMode, Result};

use crate::Cuda;

impl Lower<GatherQmm> for Cuda {
    fn lower(op: &GatherQmm, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (format, transpose) = (op.format, op.transpose);
        compose(l, |inputs| {
            let [x, left, right, codes, scales, rest @ ..] = inputs else {
                return Err(Error::value("gather_qmm", "five inputs expected"));
            };
            let of = |array: &Array| array.take(right.clone(), Some(0));
            let (codes, scales) = (of(codes)?, of(scales)?);
            let biases = rest.first().map(of).transpose()?;
            let (group, bits) = (Some(format.group()), Some(format.bits()));
            let mode = QuantMode::of(format);
            let w = codes.dequantize(&scales, biases.as_ref(), group, bits, mode, Some(x.dtype()))?;
            let w = if transpose { w.swapaxes(-1, -2)? } else { w };
            x.take(left.clone(), Some(0))?.matmul(&w)
        })
    }
}

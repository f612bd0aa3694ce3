//! Conversion to 8-bit floats (E4M3).

use crate::parallel::{GRAIN, par_chunks_mut};
use crate::walk::Strided;
use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, Op};
use hesper_core::ops::command::Commands;
use hesper_core::ops::quant::fp8::ToFp8;

use crate::Cpu;

impl Lower<ToFp8> for Cpu {
    fn lower(op: &ToFp8, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (x, output) = (Strided::row_major(l, 0)?, l.output()?);
        let command = l.stream().command(op.name()).read_range(&x.data.buffer, x.bytes).write(&output);
        command.run(|native| {
            let [x, out] = native.take()?;
            let x = x.as_slice::<f32>()?;
            par_chunks_mut(out.as_mut_slice::<u8>()?, GRAIN, |task, codes| {
                for (code, x) in codes.iter_mut().zip(&x[task * GRAIN..]) {
                    *code = to_e4m3(*x);
                }
            });
            Ok(())
        })?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

/// The nearest E4M3, ties to even. Values beyond the range saturate.
fn to_e4m3(x: f32) -> u8 {
    let sign = (x.to_bits() >> 24) as u8 & 0x80;
    let size = x.abs().min(448.0);
    if x.is_nan() {
        return sign | 0x7f;
    }
    // Subnormal below 2^-6; above, three bits of the fraction are kept.
    if size < 1.0 / 64.0 {
        return sign | (size * 512.0).round_ties_even() as u8;
    }
    let bits = size.to_bits();
    let rounded = (bits + 0x7_ffff + (bits >> 20 & 1)) >> 20;
    sign | (rounded - (120 << 3)) as u8
}

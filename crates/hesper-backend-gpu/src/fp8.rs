//! Conversion to 8-bit floats (E4M3), as a graph of other ops.

use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder, compose};
use hesper_core::ops::quant::fp8::ToFp8;
use hesper_core::{Array, Dtype, Result, select};

use crate::{Gpu, Shared};

pub(crate) fn register<G: Gpu>(table: OpTableBuilder<G>) -> OpTableBuilder<G> {
    table.with_shared::<Shared<G>, ToFp8>()
}

impl<G: Gpu> Lower<ToFp8> for Shared<G> {
    fn lower(_: &ToFp8, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose(l, fp8)
    }
}

/// The nearest 8-bit floats (E4M3) of float32, as bytes.
fn fp8(inputs: &[Array]) -> Result<Array> {
    let x = &inputs[0];
    let word = |number: i64| Array::integer(number, Dtype::Uint32);
    let sign = x.view(Dtype::Uint32)?.right_shift(24)?.bitwise_and(&word(0x80)?)?;
    let size = x.abs()?.minimum(448.0)?;
    let small = size.multiply(512.0)?.round(0)?.astype(Dtype::Uint32)?;
    let bits = size.view(Dtype::Uint32)?;
    let odd = bits.right_shift(20)?.bitwise_and(&word(1)?)?;
    let large = bits.add(&word(0x7_ffff)?)?.add(odd)?.right_shift(20)?.subtract(&word(120 << 3)?)?;
    let code = select(&size.less(1.0 / 64.0)?, &small, &large)?;
    let code = select(&x.isnan()?, &word(0x7f)?, &code)?;
    sign.bitwise_or(&code)?.astype(Dtype::Uint8)
}

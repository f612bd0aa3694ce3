//! Custom kernels. The sanitizer runs on the host.

use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::custom::CustomLaunch;

use crate::Cuda;

pub(crate) fn register(table: OpTableBuilder<Cuda>) -> OpTableBuilder<Cuda> {
    table.with::<CustomLaunch>()
}

impl Lower<CustomLaunch> for Cuda {
    fn lower(op: &CustomLaunch, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if op.checked {
            return Ok(None);
        }
        l.bring()?;
        op.dispatch(l).map(Some)
    }
}

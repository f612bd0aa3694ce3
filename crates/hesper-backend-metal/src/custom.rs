//! Custom kernels. The sanitizer runs on the host, and so do kernels that Metal cannot express.

use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, OpTableBuilder};
use hesper_core::ops::custom::{CustomLaunch, KernelMode};
use hesper_kernel::metal::{Options, check};

use crate::MetalBackend;

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<CustomLaunch>()
}

impl Lower<CustomLaunch> for MetalBackend {
    fn lower(op: &CustomLaunch, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if op.checked || op.launch.grid.iter().any(|size| *size > u64::from(u32::MAX)) {
            return Ok(None);
        }
        if op.mode != KernelMode::AsWritten {
            let options = Options { bounds: true, ..Options::default() };
            if check(op.compiled.0.kernel()?, &options).is_err() {
                return Ok(None);
            }
        }
        l.bring()?;
        op.dispatch(l).map(Some)
    }
}

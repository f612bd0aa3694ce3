//! Cumulative sums, products and extremes.

use hesper_backend_gpu::{read, scan_instance};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::scan::{Scan, ScanKind};
use hesper_core::{Dtype, Result};

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits};

const TEXT: &str = text!("scan.metal");

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<Scan>()
}

impl Lower<Scan> for MetalBackend {
    fn lower(scan: &Scan, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let known = match l.dtype() {
            Dtype::Bool => false,
            Dtype::Complex64 => scan.kind != ScanKind::LogSum,
            _ => true,
        };
        if !known || l.input_dtype(0) != l.dtype() || !fits(l) {
            return Ok(None);
        }
        l.bring()?;
        let (stream, shape) = (l.stream(), l.shape());
        let (x, output) = (l.row_major(0)?, l.output()?);
        let outer: usize = shape[..scan.along].iter().product();
        let inner: usize = shape[scan.along + 1..].iter().product();
        let length = shape[scan.along];
        let command = read(stream.command(scan.name()), l, 0, &x).write(&output);
        if outer * inner * length == 0 {
            command.run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, shape)));
        }
        let op = scan_instance::<MetalBackend>(scan.kind, l.dtype());
        let kernel = |name: &str| Kernel::new(stream, TEXT, name).of(&op);
        let constants = Constants::default().sizes(&[length, inner]).flag(scan.reverse).flag(scan.inclusive);
        let launch = match inner {
            0..=1 => kernel("scan_rows").groups(constants, [outer, 1, 1], 256)?,
            _ => kernel("scan_columns").elements(constants, outer * inner)?,
        };
        launch.encode(command)?;
        Ok(Some(Data::contiguous(output, shape)))
    }
}

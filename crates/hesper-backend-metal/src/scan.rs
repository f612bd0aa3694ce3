//! Cumulative sums, products and extremes.

use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::scan::{Scan, ScanKind};
use hesper_core::{Dtype, Result};

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits, read, type_name};

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
        let of = type_name(l.dtype());
        let op = match scan.kind {
            ScanKind::Sum => format!("Sum<{of}>"),
            ScanKind::Product => format!("Product<{of}>"),
            ScanKind::LogSum => format!("LogSum<{of}>"),
            ScanKind::Max => format!("Extreme<{of}, true>"),
            ScanKind::Min => format!("Extreme<{of}, false>"),
        };
        let constants = Constants::default().sizes(&[length, inner]).flag(scan.reverse).flag(scan.inclusive);
        if inner > 1 {
            let entry = format!("scan_columns<{op}>");
            Kernel { text: TEXT, entry: &entry }.elements(stream, command, &constants, outer * inner)?;
        } else {
            let entry = format!("scan_rows<{op}>");
            Kernel { text: TEXT, entry: &entry }.groups(stream, command, &constants, [outer, 1, 1], 256)?;
        }
        Ok(Some(Data::contiguous(output, shape)))
    }
}

//! Cumulative sums, products and extremes. Elements come from memory or from a slot, and results go to memory
//! with an epilogue or without.

use hesper_backend_gpu::{KernelText, Sink, Source, scan_instance};
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::scan::{Scan, ScanKind};
use hesper_core::{Dtype, Result, Shape};

use crate::MetalBackend;
use crate::launch::{Constants, Kernel, fits};

const TEXT: &str = text!("scan.metal");

pub(crate) fn register(table: OpTableBuilder<MetalBackend>) -> OpTableBuilder<MetalBackend> {
    table.with::<Scan>()
}

impl Lower<Scan> for MetalBackend {
    fn lower(scan: &Scan, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if !takes(scan, l.dtype()) || l.input_dtype(0) != l.dtype() || !fits(l) {
            return Ok(None);
        }
        l.bring()?;
        let shape: Shape = l.shape().into();
        let outer: usize = shape[..scan.along].iter().product();
        let inner: usize = shape[scan.along + 1..].iter().product();
        let length = shape[scan.along];
        if outer * inner * length == 0 {
            let output = l.output()?;
            l.stream().command(scan.name()).write(&output).run(|_| Ok(()))?;
            return Ok(Some(Data::contiguous(output, &shape)));
        }
        let source = Source::row_major(l)?;
        let sink = Sink::of(l, source.reads())?;
        let op = scan_instance::<MetalBackend>(scan.kind, l.dtype());
        let constants = Constants::default().sizes(&[length, inner]).flag(scan.reverse).flag(scan.inclusive);
        let (name, (grid, threadgroup)) = match inner {
            0..=1 => ("scan_rows", ([outer * 256, 1, 1], [256, 1, 1])),
            _ => ("scan_columns", MetalBackend::element_grid(outer * inner)),
        };
        let kernel = Kernel::new(l.stream(), TEXT, name).of(&op).slot(source.slot()).epilogue(sink.slot());
        let Some(launch) = kernel.try_threads(constants, grid, threadgroup)? else {
            l.materialize()?;
            l.without_epilogue();
            return Self::lower(scan, l);
        };
        let output = sink.output(l)?;
        launch.encode(sink.bind(source.bind(l.stream().command(scan.name())), &output))?;
        Ok(Some(Data::contiguous(output, &shape)))
    }

    fn takes_rows(scan: &Scan, _: &[usize], dtype: Dtype) -> bool {
        takes(scan, dtype)
    }

    fn takes_epilogue(scan: &Scan, _: &[usize], dtype: Dtype) -> bool {
        takes(scan, dtype)
    }
}

/// Whether there are kernels for an op and a type of elements.
fn takes(scan: &Scan, dtype: Dtype) -> bool {
    match dtype {
        Dtype::Bool => false,
        Dtype::Complex64 => scan.kind != ScanKind::LogSum,
        _ => true,
    }
}

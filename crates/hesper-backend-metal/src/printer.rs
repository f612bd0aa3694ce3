//! Kernels of the kernel language as Metal text.

use std::sync::Arc;

use hesper_kernel::bounds::{self, Violation};
use hesper_kernel::ir::Kernel;
use hesper_kernel::metal::{Options, emit_proven};
use hesper_metal::{MetalText, Printer, ReportReader};
use hesper_runtime::PipelineSource;

/// Prints sources whose payload is a kernel. A specialisation `bounds` asks for checks of all accesses but
/// those of the line `proven`.
pub(crate) fn printer() -> Printer {
    Arc::new(|source| {
        let kernel = source.payload.clone()?.downcast::<Kernel>().ok()?;
        Some(print(source, kernel))
    })
}

fn print(source: &PipelineSource, kernel: Arc<Kernel>) -> Result<MetalText, String> {
    let lines = || source.specialisation.as_str().lines();
    let options = Options { bounds: lines().any(|line| line == "bounds"), ..Options::default() };
    let mask = lines().find_map(|line| line.strip_prefix("proven "));
    let proven = mask.and_then(|mask| bounds::from_mask(&kernel, mask)).unwrap_or_default();
    let printed = emit_proven(&kernel, &options, &proven).map_err(|error| error.to_string())?;
    let reader = move |words: &[u64; 4]| Violation::reported(&kernel, words).map(|found| found.to_string());
    Ok(MetalText {
        text: printed.text,
        specialisation: format!("entry {}", printed.entry),
        report: options.bounds.then(|| Arc::new(reader) as ReportReader),
    })
}

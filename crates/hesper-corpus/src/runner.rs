//! Runs the corpus through any executor of kernels.

use crate::case::Case;

/// Something that can run a custom kernel.
pub trait Executor {
    /// Compiles and runs the case and returns the bytes of every output, row-major, in order.
    fn run(&mut self, case: &Case) -> Result<Vec<Vec<u8>>, String>;
}

impl<F: FnMut(&Case) -> Result<Vec<Vec<u8>>, String>> Executor for F {
    fn run(&mut self, case: &Case) -> Result<Vec<Vec<u8>>, String> {
        self(case)
    }
}

/// The outcome of a run over many cases.
#[derive(Debug, Default)]
pub struct Report {
    /// Names of the cases whose outputs matched.
    pub passed: Vec<&'static str>,
    /// Name and reason of every case that failed to run or to match.
    pub failed: Vec<(&'static str, String)>,
}

impl Report {
    /// True when no case failed.
    pub fn is_clean(&self) -> bool {
        self.failed.is_empty()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} passed, {} failed", self.passed.len(), self.failed.len())?;
        self.failed.iter().try_for_each(|(name, why)| writeln!(f, "  {name}: {why}"))
    }
}

/// Runs every case and compares its outputs with the reference.
pub fn run_cases(cases: &[Case], executor: &mut dyn Executor) -> Report {
    let mut report = Report::default();
    for case in cases {
        match executor.run(case).and_then(|outputs| case.check(&outputs)) {
            Ok(()) => report.passed.push(case.name),
            Err(why) => report.failed.push((case.name, why)),
        }
    }
    report
}

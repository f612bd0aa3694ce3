//! Tests of the interpreter and of checked mode, on kernels made with the builder.

mod checked;
mod control;
mod fuzz;
mod groups;
mod memory;
mod races;

use super::*;
use crate::ir::*;
use crate::launch::Arg;

/// An argument of a test run.
pub(super) enum Data<'a> {
    In(&'a [u8]),
    Out(&'a mut [u8]),
    Fresh(&'a mut [u8]),
}

pub(super) fn run_with(
    kernel: &Kernel,
    launch: Launch,
    args: Vec<Data<'_>>,
    options: &Options<'_>,
) -> Result<Report, RunError> {
    let args = args
        .into_iter()
        .map(|a| match a {
            Data::In(b) => Arg::read(b),
            Data::Out(b) => Arg::write(b),
            Data::Fresh(b) => Arg::write(b).uninitialised(),
        })
        .collect();
    let mut bindings = Bindings::new(args).unwrap();
    run(kernel, &launch, &mut bindings, options)
}

/// Runs in checked mode and asserts that nothing is found.
pub(super) fn run_clean(kernel: &Kernel, launch: Launch, args: Vec<Data<'_>>) {
    let report = run_with(kernel, launch, args, &Options::checked()).unwrap();
    let found: Vec<String> = report.findings.iter().map(|f| f.to_string()).collect();
    assert!(report.is_clean(), "{}", found.join("\n"));
}

/// Runs in checked mode and gives what was found.
pub(super) fn findings(kernel: &Kernel, launch: Launch, args: Vec<Data<'_>>) -> Vec<Finding> {
    run_with(kernel, launch, args, &Options::checked()).unwrap().findings
}

pub(super) fn linear(threads: u64, group: u64) -> Launch {
    Launch::linear(threads, group).unwrap()
}

pub(super) fn bytes<const N: usize, T: Copy>(xs: &[T], f: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    xs.iter().flat_map(|&x| f(x)).collect()
}

pub(super) fn f32s(b: &[u8]) -> Vec<f32> {
    b.chunks_exact(4).map(|c| f32::from_ne_bytes(c.try_into().unwrap())).collect()
}

pub(super) fn u32s(b: &[u8]) -> Vec<u32> {
    b.chunks_exact(4).map(|c| u32::from_ne_bytes(c.try_into().unwrap())).collect()
}

/// A kernel with one writable buffer of `elem`, whose body gets the buffer and the thread's
/// position in the grid.
pub(super) fn kernel(elem: Type, body: impl FnOnce(&mut Builder, ValueId, ValueId)) -> Kernel {
    let mut b = Builder::new("test");
    let out = b.buffer("out", Space::Device, elem, Access::Atomic);
    let i = b.builtin(Builtin::ThreadPositionInGrid, 0);
    let l = b.loc(1, 1);
    b.at(l);
    body(&mut b, out, i);
    b.finish().unwrap()
}

/// Runs a kernel of [`kernel`] cleanly over `n` fresh words.
pub(super) fn words(n: usize, launch: Launch, k: &Kernel) -> Vec<u32> {
    let mut out = vec![0; n * 4];
    run_clean(k, launch, vec![Data::Fresh(&mut out)]);
    u32s(&out)
}

//! Kernels of the simulated GPU: Rust functions that access the bound buffers like a kernel does.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::edge::FunctionConstant;

/// A kernel. It runs the threads of a [`Launch`]; an error is a page fault of its command buffer.
pub type SimKernel = Arc<dyn Fn(&Launch<'_>) -> Result<(), String> + Send + Sync>;

/// A compiled function of a text.
#[derive(Clone)]
pub struct SimFunction {
    /// What it computes.
    pub run: SimKernel,
    /// Whether a dispatch may be run in parts.
    pub divisible: bool,
    /// Bytes of threadgroup memory that it declares.
    pub threadgroup_memory: usize,
}

impl SimFunction {
    /// A function whose dispatches may be run in parts.
    pub fn divisible(run: SimKernel) -> Self {
        SimFunction { run, divisible: true, threadgroup_memory: 0 }
    }
}

/// A text to compile.
pub struct SimText<'a> {
    /// The text.
    pub text: &'a str,
    /// Values of its function constants; none while a library is made.
    pub constants: &'a [FunctionConstant],
}

/// The functions of a text, by their names.
#[derive(Clone, Default)]
pub struct SimFunctions {
    /// Those that can run.
    pub functions: HashMap<String, SimFunction>,
    /// Those that need values of function constants, with the message that says so.
    pub unspecialised: HashMap<String, String>,
}

/// Makes the functions of a text. The error is the compiler's message.
pub type SimCompiler = Arc<dyn Fn(&SimText<'_>) -> Result<SimFunctions, String> + Send + Sync>;

/// What is bound to one index.
#[derive(Debug, Clone)]
pub(super) enum Argument {
    Nothing,
    Bytes(Vec<u8>),
    /// An address inside of a live buffer, the bytes from there to its end, and its offset.
    Buffer(*mut u8, usize, usize),
}

/// A part of a dispatch.
pub struct Launch<'a> {
    /// The text of the kernel's library.
    pub text: &'a str,
    /// Threads in each dimension.
    pub grid: [u64; 3],
    /// Threads of a threadgroup.
    pub threadgroup: [u64; 3],
    /// The threads to run, counted along x, then y, then z.
    pub threads: Range<u64>,
    pub(super) threadgroup_memory: &'a BTreeMap<usize, usize>,
    pub(super) arguments: &'a [Argument],
}

impl Launch<'_> {
    /// The number of buffers in front of the constants.
    pub fn buffers(&self) -> usize {
        let bytes = self.arguments.iter().position(|argument| matches!(argument, Argument::Bytes(_)));
        let is_buffer = |argument: &&Argument| matches!(argument, Argument::Buffer(..));
        bytes.unwrap_or_else(|| self.arguments.iter().take_while(is_buffer).count())
    }

    /// The constants.
    pub fn constants(&self) -> &[u8] {
        match self.arguments.get(self.buffers()) {
            Some(Argument::Bytes(bytes)) => bytes,
            _ => &[],
        }
    }

    /// The bytes that are bound at an index in place of a buffer.
    pub(super) fn bytes(&self, index: usize) -> Option<&[u8]> {
        match self.arguments.get(index) {
            Some(Argument::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    fn place(&self, index: usize, at: u64, len: usize) -> Result<*mut u8, String> {
        match self.arguments.get(index) {
            Some(Argument::Buffer(address, bytes, _)) => {
                let end = usize::try_from(at).ok().and_then(|at| at.checked_add(len));
                if end.is_none_or(|end| end > *bytes) {
                    return Err(format!("byte {at} of buffer {index} lies outside of its {bytes} bytes"));
                }
                // SAFETY: `at` lies inside of the buffer.
                Ok(unsafe { address.add(at as usize) })
            }
            _ => Err(format!("buffer {index} is null")),
        }
    }

    /// Reads `N` bytes of a buffer from the byte `at` on.
    pub fn load<const N: usize>(&self, index: usize, at: u64) -> Result<[u8; N], String> {
        let place = self.place(index, at, N)?;
        // SAFETY: `place` checked that the bytes lie inside of a live buffer.
        Ok(unsafe { place.cast::<[u8; N]>().read_unaligned() })
    }

    /// Writes `N` bytes.
    pub fn store<const N: usize>(&self, index: usize, at: u64, bytes: [u8; N]) -> Result<(), String> {
        let place = self.place(index, at, N)?;
        // SAFETY: `place` checked that the bytes lie inside of a live buffer.
        unsafe { place.cast::<[u8; N]>().write_unaligned(bytes) };
        Ok(())
    }

    /// The address and the length of a buffer, for an interpreter.
    pub fn raw(&self, index: usize) -> Result<(*mut u8, usize), String> {
        match self.arguments.get(index) {
            Some(Argument::Buffer(address, len, _)) => Ok((*address, *len)),
            _ => Err(format!("buffer {index} is null")),
        }
    }

    /// The length of a threadgroup argument, if the host has set it.
    pub fn threadgroup_length(&self, index: u32) -> Option<usize> {
        self.threadgroup_memory.get(&(index as usize)).copied()
    }

    /// The offset at which a buffer is bound.
    pub fn offset(&self, index: usize) -> usize {
        match self.arguments.get(index) {
            Some(Argument::Buffer(_, _, offset)) => *offset,
            _ => 0,
        }
    }
}

/// The device's copies and clears, and the kernels of the runtime's workload, whose texts begin with their
/// names.
pub(super) fn known(text: &str) -> Vec<(&'static str, SimFunction)> {
    let functions: Vec<(&str, SimKernel)> = match text.split_once(' ') {
        Some((name @ ("mix" | "half"), _)) => {
            vec![(if name == "mix" { "mix" } else { "half" }, Arc::new(mix))]
        }
        _ if text.contains("hesper_copy_16") => vec![
            ("hesper_copy_16", Arc::new(copy::<16>)),
            ("hesper_copy_4", Arc::new(copy::<4>)),
            ("hesper_copy_1", Arc::new(copy::<1>)),
            ("hesper_clear_16", Arc::new(clear::<16>)),
            ("hesper_clear_4", Arc::new(clear::<4>)),
            ("hesper_clear_1", Arc::new(clear::<1>)),
        ],
        _ => Vec::new(),
    };
    functions.into_iter().map(|(name, run)| (name, SimFunction::divisible(run))).collect()
}

fn copy<const N: usize>(launch: &Launch<'_>) -> Result<(), String> {
    let mut threads = launch.threads.clone();
    threads.try_for_each(|at| launch.store(1, at * N as u64, launch.load::<N>(0, at * N as u64)?))
}

fn clear<const N: usize>(launch: &Launch<'_>) -> Result<(), String> {
    launch.threads.clone().try_for_each(|at| launch.store(0, at * N as u64, [0; N]))
}

/// The texts `mix K` and `half K` of [`workload`](hesper_runtime::sim::workload): the last buffer becomes the
/// mix of those before it, or of itself if there is no other.
fn mix(launch: &Launch<'_>) -> Result<(), String> {
    let (name, k) = launch.text.split_once(' ').unwrap_or_default();
    let k: u32 = k.parse().map_err(|_| launch.text.to_string())?;
    let out = launch.buffers().checked_sub(1).ok_or("nothing is bound")?;
    let inputs = if out == 0 { 0..1 } else { 0..out };
    let written = if name == "half" { launch.grid[0] / 2 } else { launch.grid[0] };
    for at in launch.threads.clone().filter(|at| *at < written) {
        let values: Result<Vec<u32>, String> =
            inputs.clone().map(|index| Ok(u32::from_le_bytes(launch.load(index, 4 * at)?))).collect();
        let mixed = hesper_runtime::sim::workload::mix(k, values?);
        launch.store(out, 4 * at, mixed.to_le_bytes())?;
    }
    Ok(())
}

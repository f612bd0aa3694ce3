//! A loaded kernel, and a command made ready to launch.
//!
//! What the driver would answer with an error (or, worse, read past the end of) is checked here, command
//! by command, before anything is enqueued: number and sizes of parameters, blocks, threads.

use std::ffi::{CString, c_void};
use std::sync::{Arc, OnceLock};

use hesper_kernel::ir;
use hesper_runtime::{Binding, Dispatch};

use crate::context::{Context, Current, Extent};
use crate::disk::Compiled;
use crate::error::{CudaError, Result};
use crate::options::Specialisation;
use crate::sys::{self, CUdeviceptr, CUfunction, CUmodule};

/// Blocks along x from which on threads take several turns: enough of them are left for any device.
const MANY: u32 = 8192;

/// A kernel in a device's context.
pub(crate) struct Kernel {
    /// A number that no other kernel of the process has: handles are used again.
    pub(crate) id: u64,
    pub(crate) function: CUfunction,
    pub(crate) shared: u32,
    /// How many neighbouring blocks along x make a cluster; 0 if they do not.
    pub(crate) cluster: u32,
    /// Which bindings it reads before it waits for kernels it depends on, if it waits by itself.
    pub(crate) ahead: Option<Vec<usize>>,
    /// The kernel of the kernel language, if it checks its accesses: it takes the lengths of its buffers and the address
    /// of a report.
    pub(crate) checks: Option<Arc<ir::Kernel>>,
    grid: bool,
    turns: u32,
    /// Whether it is a kernel of the kernel language: constants come each at a multiple of eight bytes.
    language: bool,
    /// Whether blocks may all be counted along x.
    flat: bool,
    max_threads: usize,
    parameters: Vec<(usize, usize)>,
    module: CUmodule,
    context: Arc<Context>,
}

/// Whether kernels may begin while those before them still run; `HESPER_EARLY=0` says no.
fn begin_early() -> bool {
    static SAID: OnceLock<bool> = OnceLock::new();
    *SAID.get_or_init(|| std::env::var("HESPER_EARLY").map_or(true, |text| text != "0"))
}

impl Kernel {
    /// Loads compiled code.
    pub(crate) fn load(
        context: &Arc<Context>,
        current: &Current<'_>,
        id: u64,
        compiled: &Compiled,
        wanted: &Specialisation,
    ) -> Result<Self> {
        let name = CString::new(compiled.name.as_str())
            .map_err(|_| CudaError::Kernel("the entry contains a zero byte".into()))?;
        let module = current.load_module(&compiled.image)?;
        let mut kernel = Kernel {
            id,
            function: CUfunction::NULL,
            shared: wanted.shared,
            cluster: 0,
            // Older devices know no such waiting.
            ahead: wanted
                .ahead
                .clone()
                .filter(|_| context.properties().capability >= (9, 0) && begin_early()),
            checks: None,
            grid: wanted.grid,
            turns: wanted.turns.max(1),
            language: wanted.language,
            flat: wanted.flat,
            max_threads: 0,
            parameters: Vec::new(),
            module,
            context: context.clone(),
        };
        // SAFETY: the module is loaded; from here on the kernel's drop unloads it.
        kernel.function = unsafe { current.function(module, &name) }.map_err(|error| match error {
            CudaError::Driver { code: 500, .. } => CudaError::Kernel(format!(
                "the text has no kernel `{}` (is it `extern \"C\"`?)",
                wanted.entry
            )),
            other => other,
        })?;
        // SAFETY: the function belongs to the loaded module.
        unsafe {
            kernel.max_threads =
                current.function_attribute(kernel.function, sys::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
            kernel.parameters = current.parameters(kernel.function)?;
            // Older drivers know no clusters.
            let cluster =
                current.function_attribute(kernel.function, sys::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
            kernel.cluster = cluster.unwrap_or(0) as u32;
            if wanted.shared > 48 << 10 {
                let most = context.properties().max_shared;
                let fixed =
                    current.function_attribute(kernel.function, sys::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
                if wanted.shared as usize + fixed > most as usize {
                    return Err(CudaError::Kernel(format!(
                        "{} bytes of shared memory, of which {fixed} fixed, are more than the device's {most}",
                        wanted.shared as usize + fixed
                    )));
                }
                current.allow_shared(kernel.function, wanted.shared as usize)?;
            }
        }
        Ok(kernel)
    }

    /// Checks a dispatch and appends its parameters to `bytes`; a kernel that checks its accesses takes a report.
    pub(crate) fn prepare(
        &self,
        dispatch: &Dispatch,
        bindings: &[Binding],
        report: CUdeviceptr,
        bytes: &mut Vec<u8>,
    ) -> Result<Launch, String> {
        let threads: u64 = dispatch.threadgroup.iter().product();
        if threads > self.max_threads as u64 {
            return Err(format!(
                "a threadgroup of {threads} threads is more than the {} that this kernel's registers allow",
                self.max_threads
            ));
        }
        let (mut grid, mut block) = ([0; 3], [0; 3]);
        let most: [u64; 3] = [i32::MAX as u64, 65535, 65535];
        let mut blocks = [0u64; 3];
        for axis in 0..3 {
            blocks[axis] = dispatch.grid[axis].div_ceil(dispatch.threadgroup[axis]);
            block[axis] = dispatch.threadgroup[axis] as u32;
        }
        if self.flat && (blocks[1] > most[1] || blocks[2] > most[2]) {
            blocks = [blocks[0].saturating_mul(blocks[1]).saturating_mul(blocks[2]), 1, 1];
        }
        for axis in 0..3 {
            if blocks[axis] > most[axis] {
                return Err(format!(
                    "{} threadgroups in dimension {axis} are more than {}",
                    blocks[axis], most[axis]
                ));
            }
            grid[axis] = blocks[axis] as u32;
        }
        if grid[0] >= MANY {
            grid[0] = grid[0].div_ceil(self.turns);
        }
        if block[2] > 64 {
            return Err(format!("a threadgroup of {} threads in dimension 2 is more than 64", block[2]));
        }
        let start = bytes.len();
        let layout = Layout { parameters: &self.parameters, grid: self.grid, spread: self.language };
        let mut checks = Vec::new();
        if self.checks.is_some() {
            checks.extend(bindings.iter().map(|binding| binding.len() as u64));
            checks.push(report);
        }
        layout.pack(
            bindings.iter().map(|binding| binding.memory().id + binding.offset() as u64),
            &dispatch.constants,
            &checks,
            dispatch.grid,
            bytes,
        )?;
        Ok(Launch {
            kernel: self.id,
            function: self.function,
            extent: Extent { grid, block, shared: self.shared },
            bytes: start..bytes.len(),
        })
    }

    /// Where each parameter lies in a launch's bytes.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = usize> {
        self.parameters.iter().map(|(offset, _)| *offset)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if let Ok(current) = self.context.enter() {
            // SAFETY: nobody uses the kernel any more; in a lost context the call changes nothing.
            let _ = unsafe { current.unload_module(self.module) };
        }
    }
}

/// A kernel's launch, checked.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) kernel: u64,
    pub(crate) function: CUfunction,
    pub(crate) extent: Extent,
    /// Its parameters in the submission's bytes.
    pub(crate) bytes: std::ops::Range<usize>,
}

/// The addresses of each parameter of a launch, for the driver.
pub(crate) fn addresses(kernel: &Kernel, parameters: &mut [u8], out: &mut Vec<*mut c_void>) {
    out.clear();
    let base = parameters.as_mut_ptr();
    // Offsets lie inside: `Layout::pack` made room for all of them.
    out.extend(kernel.offsets().map(|offset| base.wrapping_add(offset).cast::<c_void>()));
}

/// How a kernel wants its parameters.
struct Layout<'a> {
    parameters: &'a [(usize, usize)],
    grid: bool,
    /// Whether each constant comes at a multiple of eight bytes.
    spread: bool,
}

impl Layout<'_> {
    fn pack(
        &self,
        pointers: impl ExactSizeIterator<Item = CUdeviceptr>,
        constants: &[u8],
        checks: &[u64],
        grid: [u64; 3],
        bytes: &mut Vec<u8>,
    ) -> Result<(), String> {
        let count = pointers.len();
        let behind = checks.len() + usize::from(self.grid);
        let Some(fixed) = self.parameters.len().checked_sub(count + behind) else {
            return Err(format!(
                "the command binds {count} ranges, the kernel has {} parameters{}",
                self.parameters.len(),
                if self.grid { ", the grid among them" } else { "" }
            ));
        };
        if let Some(wrong) = self.parameters[..count].iter().position(|(_, size)| *size != 8) {
            return Err(format!(
                "the command binds {count} ranges, but the kernel's parameter {wrong} is no pointer ({} bytes)",
                self.parameters[wrong].1
            ));
        }
        let consts = &self.parameters[count..count + fixed];
        let gathered: Vec<u8>;
        let constants = if self.spread {
            gathered = gather(consts, constants)?;
            &gathered[..]
        } else {
            constants
        };
        let (first, end) = match consts {
            [] => (0, 0),
            [(first, _), ..] => {
                (*first, consts.iter().map(|(offset, size)| offset + size).max().unwrap_or(0))
            }
        };
        let expected = end - first;
        // A struct that ends in padding may come with it.
        if constants.len() < expected || constants.len() > expected.next_multiple_of(8) {
            return Err(format!(
                "the command gives {} bytes of constants, the kernel takes {expected} behind {count} pointers",
                constants.len()
            ));
        }
        let total = self.parameters.iter().map(|(offset, size)| offset + size).max().unwrap_or(0);
        let start = bytes.len();
        bytes.resize((start + total).next_multiple_of(16), 0);
        let space = &mut bytes[start..];
        for (pointer, (offset, _)) in pointers.zip(self.parameters) {
            space[*offset..offset + 8].copy_from_slice(&pointer.to_ne_bytes());
        }
        space[first..end].copy_from_slice(&constants[..expected]);
        for (word, (offset, size)) in checks.iter().zip(&self.parameters[count + fixed..]) {
            if *size != 8 {
                return Err(format!("a length or the report takes 8 bytes, not {size}"));
            }
            space[*offset..offset + 8].copy_from_slice(&word.to_ne_bytes());
        }
        if self.grid {
            let (offset, size) = self.parameters[self.parameters.len() - 1];
            if size != 24 {
                return Err(format!("the kernel's last parameter takes the grid, 24 bytes, and has {size}"));
            }
            for (axis, threads) in grid.iter().enumerate() {
                let at = offset + 8 * axis;
                space[at..at + 8].copy_from_slice(&threads.to_ne_bytes());
            }
        }
        Ok(())
    }
}

/// Constants that come each at a multiple of eight bytes, where the kernel expects them.
fn gather(parameters: &[(usize, usize)], constants: &[u8]) -> Result<Vec<u8>, String> {
    let Some((first, _)) = parameters.first() else { return Ok(Vec::new()) };
    let end = parameters.iter().map(|(offset, size)| offset + size).max().unwrap_or(*first);
    let mut gathered = vec![0; end - first];
    let mut at = 0;
    for (offset, size) in parameters {
        let value = constants.get(at..at + size).ok_or_else(|| {
            format!("the command gives {} bytes of constants, the kernel takes more", constants.len())
        })?;
        gathered[offset - first..offset - first + size].copy_from_slice(value);
        at += size.next_multiple_of(8);
    }
    Ok(gathered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(
        parameters: &[(usize, usize)],
        grid: bool,
        pointers: &[u64],
        constants: &[u8],
    ) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let layout = Layout { parameters, grid, spread: false };
        layout.pack(pointers.iter().copied(), constants, &[], [7, 8, 9], &mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn pointers_scalars_and_the_grid_land_where_the_kernel_expects_them() {
        // (float*, float*, int, double, grid): the double is aligned.
        let layout = [(0, 8), (8, 8), (16, 4), (24, 8), (32, 24)];
        let mut constants = vec![0u8; 16];
        constants[..4].copy_from_slice(&5i32.to_ne_bytes());
        constants[8..].copy_from_slice(&2.5f64.to_ne_bytes());
        let bytes = pack(&layout, true, &[0x1000, 0x2000], &constants).unwrap();
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!((word(0), word(8)), (0x1000, 0x2000));
        assert_eq!(bytes[16..20], 5i32.to_ne_bytes());
        assert_eq!(bytes[24..32], 2.5f64.to_ne_bytes());
        assert_eq!((word(32), word(40), word(48)), (7, 8, 9));
    }

    #[test]
    fn constants_of_the_kernel_language_are_gathered_from_multiples_of_eight() {
        let layout = [(8, 4), (12, 1), (16, 8)];
        let constants: Vec<u8> = (1..=24).collect();
        let gathered = gather(&layout, &constants).unwrap();
        assert_eq!(gathered[..5], [1, 2, 3, 4, 9]);
        assert_eq!(gathered[8..], [17, 18, 19, 20, 21, 22, 23, 24]);
        assert!(gather(&layout, &constants[..20]).is_err());
        assert!(gather(&[], &[]).unwrap().is_empty());
    }

    #[test]
    fn lengths_and_the_report_lie_between_the_constants_and_the_grid() {
        // (float*, float*, int, length, length, report, grid)
        let parameters = [(0, 8), (8, 8), (16, 4), (24, 8), (32, 8), (40, 8), (48, 24)];
        let layout = Layout { parameters: &parameters, grid: true, spread: true };
        let mut bytes = Vec::new();
        let pointers = [0x1000u64, 0x2000].into_iter();
        layout.pack(pointers, &[5, 0, 0, 0, 0, 0, 0, 0], &[40, 80, 0x3000], [7, 8, 9], &mut bytes).unwrap();
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|c| u64::from_ne_bytes(c.try_into().unwrap())).collect();
        assert_eq!(words[..9], [0x1000, 0x2000, 5, 40, 80, 0x3000, 7, 8, 9]);
    }

    #[test]
    fn padding_behind_the_last_constant_may_come_along() {
        let layout = [(0, 8), (8, 8), (16, 4)];
        assert!(pack(&layout, false, &[1], &[0; 12]).is_ok());
        assert!(pack(&layout, false, &[1], &[0; 16]).is_ok());
        assert!(pack(&layout, false, &[1], &[0; 17]).is_err());
        assert!(pack(&layout, false, &[1], &[0; 11]).is_err());
    }

    #[test]
    fn what_does_not_fit_the_kernel_is_refused_with_numbers() {
        let layout = [(0, 8), (8, 4)];
        assert!(pack(&layout, false, &[1, 2], &[]).unwrap_err().contains("parameter 1 is no pointer"));
        assert!(pack(&layout, false, &[1, 2, 3], &[]).unwrap_err().contains("binds 3 ranges"));
        assert!(pack(&layout, false, &[1], &[]).unwrap_err().contains("takes 4"));
        assert!(pack(&layout, true, &[1], &[]).unwrap_err().contains("24 bytes"));
        assert!(pack(&[], false, &[], &[]).is_ok());
    }
}

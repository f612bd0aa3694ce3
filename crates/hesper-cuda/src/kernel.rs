//! Loaded kernels and prepared launches.
//!
//! Launches are checked before anything is enqueued (number and sizes of parameters, blocks, threads): the
//! driver would fail, or read past the end of the parameters.

use std::ffi::{CString, c_void};
use std::sync::{Arc, OnceLock};

use hesper_kernel::ir;
use hesper_runtime::{Binding, Dispatch};

use crate::context::{Context, Current, Extent};
use crate::disk_cache::Compiled;
use crate::error::{CudaError, Result};
use crate::specialisation::Specialisation;
use crate::sys::{self, CUdeviceptr, CUfunction, CUmodule};

/// The number of blocks along x from which on a thread handles several positions; enough blocks remain for
/// any device.
const MIN_BLOCKS_TO_COARSEN: u32 = 8192;
/// The bytes of shared memory, static and dynamic together, that a block has without asking for more.
const SHARED_BY_DEFAULT: usize = 48 << 10;

/// A kernel loaded into the context of a device.
pub(crate) struct Kernel {
    /// Unique in the process, unlike handles, which are reused.
    pub(crate) id: u64,
    pub(crate) function: CUfunction,
    pub(crate) shared: u32,
    /// The number of blocks along x in a cluster; 0 without clusters.
    pub(crate) cluster: u32,
    /// The bindings that a dependent kernel reads before it waits; `None` for an ordinary kernel.
    pub(crate) ahead: Option<Vec<usize>>,
    /// The kernel of the kernel language, if it checks its accesses: it takes the lengths of its buffers and
    /// the address of a report.
    pub(crate) checks: Option<Arc<ir::Kernel>>,
    grid: bool,
    turns: u32,
    /// Whether it is a kernel of the kernel language, whose constants lie at multiples of eight bytes.
    language: bool,
    /// Whether all blocks may be laid out along x.
    flat: bool,
    max_threads: usize,
    parameters: Vec<(usize, usize)>,
    module: CUmodule,
    context: Arc<Context>,
}

/// Whether dependent launch is enabled; `HESPER_DEPENDENT_LAUNCH=0` disables it.
fn dependent_launch_enabled() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| std::env::var("HESPER_DEPENDENT_LAUNCH").map_or(true, |text| text != "0"))
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
        // SAFETY: an `Image` is complete and unchanged since the compiler produced it.
        let module = unsafe { current.load_module(compiled.image.bytes()) }?;
        let mut kernel = Kernel {
            id,
            function: CUfunction::NULL,
            shared: wanted.shared,
            cluster: 0,
            // Older devices do not support dependent launch.
            ahead: wanted
                .ahead
                .clone()
                .filter(|_| context.properties().capability >= (9, 0) && dependent_launch_enabled()),
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
        // SAFETY: the module is loaded; from here on dropping the kernel unloads it.
        kernel.function = unsafe { current.function(module, &name) }.map_err(|error| match error {
            CudaError::Driver { code: 500, .. } => CudaError::Kernel(format!(
                "the text has no kernel `{}`; declare it `extern \"C\"`",
                wanted.entry
            )),
            other => other,
        })?;
        // SAFETY: the function belongs to the loaded module.
        unsafe {
            kernel.max_threads =
                current.function_attribute(kernel.function, sys::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?;
            kernel.parameters = current.parameters(kernel.function)?;
            // Older drivers do not support clusters.
            let cluster =
                current.function_attribute(kernel.function, sys::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
            kernel.cluster = cluster.unwrap_or(0) as u32;
            if wanted.shared > 0 {
                let fixed =
                    current.function_attribute(kernel.function, sys::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
                let (total, limit) =
                    (wanted.shared as usize + fixed, context.properties().max_shared as usize);
                if total > limit {
                    return Err(CudaError::Kernel(format!(
                        "cannot use {total} bytes of shared memory, {fixed} of them static: the device has {limit}"
                    )));
                }
                if total > SHARED_BY_DEFAULT {
                    current.allow_shared(kernel.function, wanted.shared as usize)?;
                }
            }
        }
        Ok(kernel)
    }

    /// Checks a dispatch and appends its parameters to `bytes`. `report` is passed to a kernel that checks
    /// its accesses.
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
                "cannot launch a threadgroup of {threads} threads: the registers of this kernel allow {}",
                self.max_threads
            ));
        }
        let (mut grid, mut block) = ([0; 3], [0; 3]);
        let limit: [u64; 3] = [i32::MAX as u64, 65535, 65535];
        let mut blocks = [0u64; 3];
        for axis in 0..3 {
            blocks[axis] = dispatch.grid[axis].div_ceil(dispatch.threadgroup[axis]);
            block[axis] = dispatch.threadgroup[axis] as u32;
        }
        if self.flat && (blocks[1] > limit[1] || blocks[2] > limit[2]) {
            blocks = [blocks[0].saturating_mul(blocks[1]).saturating_mul(blocks[2]), 1, 1];
        }
        for axis in 0..3 {
            if blocks[axis] > limit[axis] {
                return Err(format!(
                    "cannot launch {} threadgroups in dimension {axis}: the limit is {}",
                    blocks[axis], limit[axis]
                ));
            }
            grid[axis] = blocks[axis] as u32;
        }
        if grid[0] >= MIN_BLOCKS_TO_COARSEN {
            grid[0] = grid[0].div_ceil(self.turns);
        }
        if block[2] > 64 {
            return Err(format!(
                "cannot launch a threadgroup of {} threads in dimension 2: the limit is 64",
                block[2]
            ));
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

    /// The offset of each parameter in the bytes of a launch.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = usize> {
        self.parameters.iter().map(|(offset, _)| *offset)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if let Ok(current) = self.context.enter_to_release() {
            // SAFETY: the kernel is no longer used; in a lost context the call has no effect.
            let _ = unsafe { current.unload_module(self.module) };
        }
    }
}

/// A checked launch.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) kernel: u64,
    pub(crate) function: CUfunction,
    pub(crate) extent: Extent,
    /// The range of its parameters in the bytes of the submission.
    pub(crate) bytes: std::ops::Range<usize>,
}

/// Collects the addresses of the parameters of a launch for the driver.
pub(crate) fn addresses(kernel: &Kernel, parameters: &mut [u8], out: &mut Vec<*mut c_void>) {
    out.clear();
    let base = parameters.as_mut_ptr();
    // `Layout::pack` made room for all offsets.
    out.extend(kernel.offsets().map(|offset| base.wrapping_add(offset).cast::<c_void>()));
}

/// The layout of a kernel's parameters.
struct Layout<'a> {
    parameters: &'a [(usize, usize)],
    grid: bool,
    /// Whether each constant lies at a multiple of eight bytes.
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
                if self.grid { ", including the grid" } else { "" }
            ));
        };
        if let Some(wrong) = self.parameters[..count].iter().position(|(_, size)| *size != 8) {
            return Err(format!(
                "the command binds {count} ranges, but the kernel's parameter {wrong} has {} bytes and is no pointer",
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
        // A struct may be passed with its trailing padding.
        if constants.len() < expected || constants.len() > expected.next_multiple_of(8) {
            return Err(format!(
                "the command passes {} bytes of constants, the kernel takes {expected} after {count} pointers",
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
                return Err(format!(
                    "the kernel's parameter for a length or the report has {size} bytes instead of 8"
                ));
            }
            space[*offset..offset + 8].copy_from_slice(&word.to_ne_bytes());
        }
        if self.grid {
            let (offset, size) = self.parameters[self.parameters.len() - 1];
            if size != 24 {
                return Err(format!("the kernel's last parameter, the grid, has {size} bytes instead of 24"));
            }
            for (axis, threads) in grid.iter().enumerate() {
                let at = offset + 8 * axis;
                space[at..at + 8].copy_from_slice(&threads.to_ne_bytes());
            }
        }
        Ok(())
    }
}

/// Moves constants from multiples of eight bytes to the offsets of the kernel.
fn gather(parameters: &[(usize, usize)], constants: &[u8]) -> Result<Vec<u8>, String> {
    let Some((first, _)) = parameters.first() else { return Ok(Vec::new()) };
    let end = parameters.iter().map(|(offset, size)| offset + size).max().unwrap_or(*first);
    let mut gathered = vec![0; end - first];
    let mut at = 0;
    for (offset, size) in parameters {
        let value = constants.get(at..at + size).ok_or_else(|| {
            format!("the command passes {} bytes of constants, the kernel takes more", constants.len())
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
    fn pointers_scalars_and_the_grid_are_packed_at_the_offsets_of_the_kernel() {
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
    fn trailing_padding_of_the_constants_is_accepted() {
        let layout = [(0, 8), (8, 8), (16, 4)];
        assert!(pack(&layout, false, &[1], &[0; 12]).is_ok());
        assert!(pack(&layout, false, &[1], &[0; 16]).is_ok());
        assert!(pack(&layout, false, &[1], &[0; 17]).is_err());
        assert!(pack(&layout, false, &[1], &[0; 11]).is_err());
    }

    #[test]
    fn constants_and_bindings_that_do_not_fit_are_refused_with_their_sizes() {
        let layout = [(0, 8), (8, 4)];
        assert!(pack(&layout, false, &[1, 2], &[]).unwrap_err().contains("parameter 1 has 4 bytes"));
        assert!(pack(&layout, false, &[1, 2, 3], &[]).unwrap_err().contains("binds 3 ranges"));
        assert!(pack(&layout, false, &[1], &[]).unwrap_err().contains("takes 4"));
        assert!(pack(&layout, true, &[1], &[]).unwrap_err().contains("instead of 24"));
        assert!(pack(&[], false, &[], &[]).is_ok());
    }
}

//! One launch of a kernel, in terms shared by every executor: how many threads, in groups of
//! which size, over which memory.
//!
//! [`Bindings`] is safe to build from slices (Rust's borrows rule out aliasing) and checked
//! against overlap when built from raw parts. An executor may rely on every writable range being
//! disjoint from every other range.

use std::marker::PhantomData;

use crate::ir::{Kernel, ParamKind};

/// Lanes of a SIMD group.
pub const SIMD_WIDTH: u64 = 32;
/// The most threads in a threadgroup.
pub const MAX_THREADS_PER_THREADGROUP: u64 = 1024;

/// Size of a launch. The grid counts *threads*; where it is no multiple of the threadgroup, the
/// last groups along an axis are smaller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Launch {
    /// Threads along x, y, z. An axis of 0 launches nothing.
    pub grid: [u64; 3],
    /// Threads of a full threadgroup along x, y, z.
    pub threadgroup: [u64; 3],
}

/// Why a launch is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A threadgroup axis is 0, or the group has too many threads.
    #[error(
        "threadgroup {0:?} is not allowed: every axis must be at least 1 and the product at most {MAX_THREADS_PER_THREADGROUP}"
    )]
    Threadgroup([u64; 3]),
    /// The grid's thread count does not fit 64 bits, or an axis is beyond 2^48.
    #[error(
        "grid {0:?} is too large: an axis takes at most 2^48 threads, and their product must fit 64 bits"
    )]
    Grid([u64; 3]),
    /// The number of bindings is wrong.
    #[error("kernel {kernel} takes {expected} arguments, {found} were bound")]
    Count {
        /// The kernel.
        kernel: String,
        /// Parameters it has.
        expected: usize,
        /// Bindings given.
        found: usize,
    },
    /// A written parameter is bound to read-only memory.
    #[error("argument {index} ({name}) is written by kernel {kernel} but bound read-only")]
    ReadOnly {
        /// The kernel.
        kernel: String,
        /// Parameter number.
        index: usize,
        /// Parameter name.
        name: String,
    },
    /// A by-value parameter is bound to the wrong number of bytes.
    #[error("argument {index} ({name}) of kernel {kernel} takes {expected} bytes, {found} were bound")]
    ValueSize {
        /// The kernel.
        kernel: String,
        /// Parameter number.
        index: usize,
        /// Parameter name.
        name: String,
        /// Bytes of the type.
        expected: u64,
        /// Bytes bound.
        found: u64,
    },
    /// A writable range overlaps another range.
    #[error("arguments {first} and {second} overlap in memory and at least one is writable")]
    Overlap {
        /// The earlier argument.
        first: usize,
        /// The later argument.
        second: usize,
    },
}

impl Launch {
    /// A launch, checked.
    pub fn new(grid: [u64; 3], threadgroup: [u64; 3]) -> Result<Launch, LaunchError> {
        let launch = Launch { grid, threadgroup };
        launch.check()?;
        Ok(launch)
    }

    /// A launch over one axis.
    pub fn linear(threads: u64, threadgroup: u64) -> Result<Launch, LaunchError> {
        Launch::new([threads, 1, 1], [threadgroup, 1, 1])
    }

    /// Whether the sizes are allowed.
    pub fn check(&self) -> Result<(), LaunchError> {
        let [x, y, z] = self.threadgroup;
        let threads = x.checked_mul(y).and_then(|t| t.checked_mul(z));
        if !threads.is_some_and(|t| (1..=MAX_THREADS_PER_THREADGROUP).contains(&t)) {
            return Err(LaunchError::Threadgroup(self.threadgroup));
        }
        let [x, y, z] = self.grid;
        let threads = x.checked_mul(y).and_then(|t| t.checked_mul(z));
        if threads.is_none() || self.grid.iter().any(|&a| a > 1 << 48) {
            return Err(LaunchError::Grid(self.grid));
        }
        Ok(())
    }

    /// Threads in the grid.
    pub fn threads(&self) -> u64 {
        self.grid.iter().product()
    }

    /// Threadgroups along each axis.
    pub fn groups(&self) -> [u64; 3] {
        [0, 1, 2].map(|a| self.grid[a].div_ceil(self.threadgroup[a]))
    }

    /// Number of threadgroups.
    pub fn group_count(&self) -> u64 {
        self.groups().iter().product()
    }

    /// Position of threadgroup number `index` (x fastest).
    pub fn group_at(&self, index: u64) -> [u64; 3] {
        let [x, y, _] = self.groups();
        [index % x, index / x % y, index / x / y]
    }

    /// Actual size of the threadgroup at `group`.
    pub fn group_size(&self, group: [u64; 3]) -> [u64; 3] {
        [0, 1, 2].map(|a| {
            self.threadgroup[a].min(self.grid[a] - (group[a] * self.threadgroup[a]).min(self.grid[a]))
        })
    }
}

/// Memory bound to one parameter.
#[derive(Debug)]
pub struct Arg<'a> {
    ptr: *mut u8,
    len: u64,
    writable: bool,
    initialised: bool,
    life: PhantomData<&'a mut [u8]>,
}

// SAFETY: an `Arg` is a borrow of bytes; through a shared `Arg` safe code reaches only the
// address and the length. Executors that dereference it do so in their own unsafe code, under
// the disjointness that `Bindings` promises.
unsafe impl Send for Arg<'_> {}
// SAFETY: as above.
unsafe impl Sync for Arg<'_> {}

impl<'a> Arg<'a> {
    /// Memory the kernel may only read.
    pub fn read(bytes: &'a [u8]) -> Arg<'a> {
        Arg {
            ptr: bytes.as_ptr().cast_mut(),
            len: bytes.len() as u64,
            writable: false,
            initialised: true,
            life: PhantomData,
        }
    }

    /// Memory the kernel may read and write.
    pub fn write(bytes: &'a mut [u8]) -> Arg<'a> {
        Arg {
            ptr: bytes.as_mut_ptr(),
            len: bytes.len() as u64,
            writable: true,
            initialised: true,
            life: PhantomData,
        }
    }

    /// Memory from raw parts.
    ///
    /// # Safety
    ///
    /// For `'a`, `ptr` must be valid for reads of `len` bytes (and for writes if `writable`),
    /// the bytes must be initialised memory as far as Rust is concerned, and nothing else may
    /// write them, nor read them if `writable`, while a kernel runs over them.
    pub unsafe fn from_raw(ptr: *mut u8, len: u64, writable: bool) -> Arg<'a> {
        Arg { ptr, len, writable, initialised: true, life: PhantomData }
    }

    /// Declares the contents meaningless (a fresh output): checked mode then reports reads of
    /// bytes the kernel has not written.
    pub fn uninitialised(mut self) -> Arg<'a> {
        self.initialised = false;
        self
    }

    /// First byte.
    pub fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the kernel may write.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether the contents mean something before the kernel runs.
    pub fn is_initialised(&self) -> bool {
        self.initialised
    }

    fn overlaps(&self, other: &Arg<'_>) -> bool {
        if self.len == 0 || other.len == 0 {
            return false;
        }
        let (a, b) = (self.ptr as u128, other.ptr as u128);
        a < b + u128::from(other.len) && b < a + u128::from(self.len)
    }
}

/// The memory of a launch, one [`Arg`] per parameter. No writable range overlaps another.
#[derive(Debug)]
pub struct Bindings<'a> {
    args: Vec<Arg<'a>>,
}

impl<'a> Bindings<'a> {
    /// Binds `args` in the order of the kernel's parameters.
    pub fn new(args: Vec<Arg<'a>>) -> Result<Bindings<'a>, LaunchError> {
        for (second, b) in args.iter().enumerate() {
            for (first, a) in args[..second].iter().enumerate() {
                if (a.writable || b.writable) && a.overlaps(b) {
                    return Err(LaunchError::Overlap { first, second });
                }
            }
        }
        Ok(Bindings { args })
    }

    /// The bound memory.
    pub fn args(&self) -> &[Arg<'a>] {
        &self.args
    }

    /// Whether the bindings fit the kernel's parameters. Executors call this first.
    pub fn check(&self, kernel: &Kernel) -> Result<(), LaunchError> {
        if self.args.len() != kernel.params.len() {
            return Err(LaunchError::Count {
                kernel: kernel.name.clone(),
                expected: kernel.params.len(),
                found: self.args.len(),
            });
        }
        for (index, (arg, param)) in self.args.iter().zip(&kernel.params).enumerate() {
            match param.kind {
                ParamKind::Value(ty) if arg.len != ty.size() => {
                    return Err(LaunchError::ValueSize {
                        kernel: kernel.name.clone(),
                        index,
                        name: param.name.clone(),
                        expected: ty.size(),
                        found: arg.len,
                    });
                }
                ParamKind::Buffer { access, .. } if access.writes() && !arg.writable => {
                    return Err(LaunchError::ReadOnly {
                        kernel: kernel.name.clone(),
                        index,
                        name: param.name.clone(),
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

//! The memory of a run: bound arguments, threadgroup and thread variables, by object.
//!
//! A pointer names its object, so nothing outside the objects can be reached: [`Memory::range`]
//! is the only way to an address, and it checks the bounds.

use std::sync::Arc;

use super::finding;
use crate::ir::{Kernel, ParamKind, Space};
use crate::launch::Bindings;

/// A pointer value: object number (0 is null) and byte offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pointer {
    pub object: u64,
    pub offset: i64,
}

impl Pointer {
    pub fn from_words(w: &[u64]) -> Pointer {
        Pointer { object: w[0], offset: w[1] as i64 }
    }

    pub fn to_words(self) -> [u64; 2] {
        [self.object, self.offset as u64]
    }
}

/// The storage of an object's bytes.
#[derive(Clone, Copy, Debug)]
enum Storage {
    Null,
    /// A bound argument.
    Arg {
        ptr: *mut u8,
    },
    /// At this offset of the threadgroup's memory.
    Threadgroup {
        base: usize,
    },
    /// A constant table of the kernel.
    Table {
        index: usize,
    },
    /// At this offset of each thread's memory.
    Thread {
        base: usize,
    },
}

pub(super) struct Object {
    storage: Storage,
    pub len: u64,
    pub writable: bool,
    pub space: Space,
    pub description: finding::Memory,
}

/// A checked range of bytes.
#[derive(Clone, Copy)]
pub(super) struct ByteRange {
    pub object: usize,
    pub offset: u64,
    pub size: usize,
}

pub(super) struct Memory<'a> {
    objects: Vec<Object>,
    first_threadgroup: usize,
    first_thread: usize,
    first_table: usize,
    tables: Vec<Arc<[u8]>>,
    threadgroup: Vec<u8>,
    thread: Vec<u8>,
    thread_stride: usize,
    /// The run borrows the bindings exclusively.
    bindings: std::marker::PhantomData<&'a mut Bindings<'a>>,
}

impl Memory<'_> {
    /// The memory of a kernel over its bindings, which were checked to fit it.
    pub fn new<'a>(kernel: &Kernel, bindings: &'a mut Bindings<'_>, max_threads: usize) -> Memory<'a> {
        let describe =
            |space, name: &str, elem, len| finding::Memory { space, name: name.to_string(), elem, len };
        let mut objects = vec![Object {
            storage: Storage::Null,
            len: 0,
            writable: false,
            space: Space::Device,
            description: describe(Space::Device, "null", None, 0),
        }];
        for (param, arg) in kernel.params.iter().zip(bindings.args()) {
            let (space, elem, writable) = match param.kind {
                ParamKind::Buffer { space, elem, access } => (space, elem, access.writes()),
                ParamKind::Value(ty) => (Space::Constant, ty, false),
            };
            objects.push(Object {
                storage: Storage::Arg { ptr: arg.ptr() },
                len: arg.len(),
                writable: writable && arg.is_writable(),
                space,
                description: describe(space, &param.name, Some(elem), arg.len()),
            });
        }
        let first_threadgroup = objects.len();
        let (threadgroup_size, offsets) = kernel.threadgroup_layout();
        for (v, base) in kernel.threadgroup_vars.iter().zip(offsets) {
            objects.push(Object {
                storage: Storage::Threadgroup { base: base as usize },
                len: v.size,
                writable: true,
                space: Space::Threadgroup,
                description: describe(Space::Threadgroup, &v.name, None, v.size),
            });
        }
        let first_thread = objects.len();
        let (thread_size, offsets) = kernel.thread_layout();
        for (v, base) in kernel.thread_vars.iter().zip(offsets) {
            objects.push(Object {
                storage: Storage::Thread { base: base as usize },
                len: v.size,
                writable: true,
                space: Space::Thread,
                description: describe(Space::Thread, &v.name, None, v.size),
            });
        }
        let first_table = objects.len();
        for (index, v) in kernel.const_vars.iter().enumerate() {
            let len = v.data.len() as u64;
            objects.push(Object {
                storage: Storage::Table { index },
                len,
                writable: false,
                space: Space::Constant,
                description: describe(Space::Constant, &v.name, None, len),
            });
        }
        Memory {
            objects,
            first_threadgroup,
            first_thread,
            first_table,
            tables: kernel.const_vars.iter().map(|v| v.data.clone()).collect(),
            threadgroup: vec![0; threadgroup_size as usize],
            thread: vec![0; thread_size as usize * max_threads],
            thread_stride: thread_size as usize,
            bindings: std::marker::PhantomData,
        }
    }

    /// Fresh (zero) threadgroup and thread memory for the next group.
    pub fn start_group(&mut self) {
        self.threadgroup.fill(0);
        self.thread.fill(0);
    }

    pub fn param(&self, i: u32) -> Pointer {
        self.start_of(1 + i as usize)
    }

    pub fn threadgroup_var(&self, i: u32) -> Pointer {
        self.start_of(self.first_threadgroup + i as usize)
    }

    pub fn thread_var(&self, i: u32) -> Pointer {
        self.start_of(self.first_thread + i as usize)
    }

    pub fn table(&self, i: u32) -> Pointer {
        self.start_of(self.first_table + i as usize)
    }

    fn start_of(&self, object: usize) -> Pointer {
        Pointer { object: object as u64, offset: 0 }
    }

    /// The object of a pointer; the null object if the number is out of range.
    pub fn object(&self, p: Pointer) -> &Object {
        self.objects.get(p.object as usize).unwrap_or(&self.objects[0])
    }

    /// The range of `size` bytes at `p` if it lies inside its object.
    pub fn range(&self, p: Pointer, size: u64) -> Option<ByteRange> {
        let object = self.object(p);
        let offset = u64::try_from(p.offset).ok()?;
        let end = offset.checked_add(size)?;
        let real = !matches!(object.storage, Storage::Null);
        (real && end <= object.len).then_some(ByteRange {
            object: p.object as usize,
            offset,
            size: size as usize,
        })
    }

    /// The bytes of a range, as seen by `thread`.
    pub fn read(&self, at: ByteRange, thread: usize) -> [u8; 32] {
        let mut out = [0; 32];
        let to = &mut out[..at.size];
        let offset = at.offset as usize;
        match self.objects[at.object].storage {
            Storage::Null => {}
            Storage::Arg { ptr } => {
                // SAFETY: `range` checked that the bytes lie inside the argument, which is
                // valid for reads; `self` borrows the bindings exclusively, so nothing writes
                // meanwhile.
                unsafe { std::ptr::copy_nonoverlapping(ptr.add(offset), to.as_mut_ptr(), at.size) }
            }
            Storage::Table { index } => to.copy_from_slice(&self.tables[index][offset..][..at.size]),
            Storage::Threadgroup { base } => {
                to.copy_from_slice(&self.threadgroup[base + offset..][..at.size]);
            }
            Storage::Thread { base } => {
                let from = thread * self.thread_stride + base + offset;
                to.copy_from_slice(&self.thread[from..][..at.size]);
            }
        }
        out
    }

    /// Writes the bytes of a range, unless its object is read-only.
    pub fn write(&mut self, at: ByteRange, thread: usize, bytes: &[u8; 32]) {
        let object = &self.objects[at.object];
        if !object.writable {
            return;
        }
        let from = &bytes[..at.size];
        let offset = at.offset as usize;
        match object.storage {
            // Never writable.
            Storage::Null | Storage::Table { .. } => {}
            Storage::Arg { ptr } => {
                // SAFETY: `range` checked that the bytes lie inside the argument, which is
                // valid for writes (`writable` holds only if the binding is writable); `self`
                // borrows the bindings exclusively.
                unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), ptr.add(offset), at.size) }
            }
            Storage::Threadgroup { base } => {
                self.threadgroup[base + offset..][..at.size].copy_from_slice(from);
            }
            Storage::Thread { base } => {
                let to = thread * self.thread_stride + base + offset;
                self.thread[to..][..at.size].copy_from_slice(from);
            }
        }
    }
}

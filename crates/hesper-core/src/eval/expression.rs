//! Expressions of fused ops, and the cache of their kernels.
//!
//! An expression is what a group computes: ops, types, the operands of each op, the stored values. Its
//! [`Form`] is the layout of inputs and the iteration. Together they are the [`KernelKey`]: everything that
//! the content of a kernel depends on, compared by value. One cache holds the kernels for devices, those for
//! rows on the host, and the functions for slots.

use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use hesper_kernel::exec;
use hesper_runtime::{Label, Pipeline};
use smallvec::SmallVec;

use super::cache::Cache;
use super::graph::Emit;
use crate::Dtype;
use crate::error::Result;
use crate::graph::SlotFunctions;
use crate::ids::WordHash;
use crate::registry::Fusion;

/// An operand of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Input(u32),
    Member(u32),
}

/// An input of an expression: its type, and whether it is a scalar passed by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ExpressionInput {
    pub(super) dtype: Dtype,
    pub(super) known: bool,
}

/// An op of an expression.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub(super) op: Emit,
    pub(super) dtype: Dtype,
    /// The index of its first operand in `sources`.
    first: u32,
}

/// A group of element-wise ops, independent of the layout of its inputs.
#[derive(Default, Clone, PartialEq, Eq, Hash)]
pub(super) struct Expression {
    pub(super) inputs: Vec<ExpressionInput>,
    pub(super) members: Vec<Member>,
    /// The operands of all members; those of one member are consecutive.
    pub(super) sources: Vec<Source>,
    /// Members that are stored.
    pub(super) outputs: Vec<u32>,
}

impl Expression {
    pub(super) fn clear(&mut self) {
        self.inputs.clear();
        self.members.clear();
        self.sources.clear();
        self.outputs.clear();
    }

    /// Adds an input.
    pub(super) fn input(&mut self, dtype: Dtype, known: bool) {
        self.inputs.push(ExpressionInput { dtype, known });
    }

    /// Adds an op whose operands are the sources from `first` on.
    pub(super) fn member(&mut self, op: Emit, first: usize, dtype: Dtype, stored: bool) {
        if stored {
            self.outputs.push(self.members.len() as u32);
        }
        self.members.push(Member { op, dtype, first: first as u32 });
    }

    /// The ops with their operands.
    pub(super) fn members(&self) -> impl Iterator<Item = (&Member, &[Source])> {
        self.members.iter().enumerate().map(|(at, member)| {
            let end = self.members.get(at + 1).map_or(self.sources.len(), |next| next.first as usize);
            (member, &self.sources[member.first as usize..end])
        })
    }

    /// The types of the stored values.
    pub(super) fn output_dtypes(&self) -> impl Iterator<Item = Dtype> {
        self.outputs.iter().map(|at| self.members[*at as usize].dtype)
    }

    /// Whether an op uses the index of its element.
    pub(super) fn is_indexed(&self) -> bool {
        self.members.iter().any(|member| member.op.indexed)
    }

    /// A label for traces: the op, or the number of ops.
    pub(super) fn label(&self) -> Label {
        match &self.members[..] {
            [only] => only.op.name.into(),
            all => format!("fused {} ops", all.len()).into(),
        }
    }
}

/// How a kernel finds an input's element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Layout {
    /// A scalar passed by value.
    Known,
    /// Row-major: the same index as the output.
    Plain,
    /// Row-major, and overwritten by the output of this index.
    InPlace(u8),
    /// By an offset and strides; the stride of the innermost axis is 0, 1 or an argument.
    Strided(Inner),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Inner {
    Zero,
    One,
    Any,
}

/// What a kernel is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Target {
    /// A device, by the number of its runtime.
    Device(u64),
    /// Calls on the host, for some rows at a time; those of an epilogue take the rows of its op.
    Rows,
    EpilogueRows,
    /// The slots of kernels of GPUs, for what they read and for what they store.
    Slot,
    EpilogueSlot,
}

/// How a kernel iterates over the elements of an expression.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Form {
    pub(super) target: Target,
    /// The number of axes after contiguous ones are merged.
    pub(super) rank: usize,
    /// Elements per thread.
    pub(super) lanes: usize,
    /// Whether the grid may exceed the largest number of groups that some devices allow along an outer axis;
    /// of a slot, whether the index of an element may need more than 32 bits.
    pub(super) tall: bool,
    pub(super) layouts: SmallVec<[Layout; 8]>,
}

/// A compiled kernel for a device, and its label.
pub(super) type Built = (Arc<Pipeline>, Label);

/// A kernel in the cache.
#[derive(Clone)]
pub(super) enum Kernel {
    /// Weak, so that only the runtime's cache and work in flight keep a pipeline: the limits of that cache
    /// bound all pipelines.
    Device(Weak<Pipeline>, Label),
    Rows(Arc<exec::Program>),
    Slot(Arc<SlotFunctions>),
}

/// Everything that the content of a kernel depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
struct KernelKey {
    expression: Arc<Fused>,
    form: Form,
}

/// The largest number of cached kernels.
const MAX_KERNELS: usize = 4096;

fn kernels() -> MutexGuard<'static, Cache<KernelKey, Kernel>> {
    static KERNELS: Mutex<Cache<KernelKey, Kernel>> = Mutex::new(Cache::new(MAX_KERNELS));
    KERNELS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// An expression of a program with its hash and the kernel of its last launch.
pub(super) struct Fused {
    pub(super) expression: Expression,
    /// Whether its kernel computes with float64, as far as is known.
    double: AtomicBool,
    hash: u64,
    last: Mutex<Option<(Form, Weak<Pipeline>, Label)>>,
}

impl PartialEq for Fused {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.hash == other.hash && self.expression == other.expression
    }
}

impl Eq for Fused {}

impl Hash for Fused {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Fused {
    pub(super) fn new(expression: Expression) -> Self {
        let hash = BuildHasherDefault::<WordHash>::default().hash_one(&expression);
        let types = expression.members.iter().map(|member| member.dtype);
        let double = types
            .chain(expression.inputs.iter().map(|input| input.dtype))
            .any(|dtype| matches!(dtype, Dtype::Float64 | Dtype::Complex128));
        Fused { expression, double: AtomicBool::new(double), hash, last: Mutex::new(None) }
    }

    /// Whether a backend has a kernel for it.
    pub(super) fn fits(&self, fusion: Fusion) -> bool {
        let buffers = self.expression.inputs.len() + self.expression.outputs.len();
        (fusion.double || !self.double.load(Ordering::Relaxed)) && buffers <= fusion.max_buffers
    }

    /// Notes that its kernel computes with float64.
    pub(super) fn needs_double(&self) {
        self.double.store(true, Ordering::Relaxed);
    }

    fn last(&self) -> MutexGuard<'_, Option<(Form, Weak<Pipeline>, Label)>> {
        self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The cached kernel of a form for a device.
    pub(super) fn find(self: &Arc<Self>, form: &Form) -> Option<Built> {
        if let Some((last, pipeline, label)) = &*self.last()
            && last == form
            && let Some(pipeline) = pipeline.upgrade()
        {
            return Some((pipeline, label.clone()));
        }
        let key = KernelKey { expression: self.clone(), form: form.clone() };
        let Some(Kernel::Device(pipeline, label)) = kernels().get(&key) else { return None };
        let found = (pipeline.upgrade()?, label);
        self.remember(key.form, &found);
        Some(found)
    }

    /// Caches the kernel of a form for a device.
    pub(super) fn keep(self: &Arc<Self>, form: Form, (pipeline, label): &Built) {
        let kernel = Kernel::Device(Arc::downgrade(pipeline), label.clone());
        kernels().insert(KernelKey { expression: self.clone(), form: form.clone() }, kernel, 1);
        self.remember(form, &(pipeline.clone(), label.clone()));
    }

    fn remember(&self, form: Form, (pipeline, label): &Built) {
        *self.last() = Some((form, Arc::downgrade(pipeline), label.clone()));
    }

    /// What the cache has of a form, found or built.
    pub(super) fn find_or_build<K: Cached>(
        self: &Arc<Self>,
        form: Form,
        build: impl FnOnce() -> Result<K>,
    ) -> Result<Arc<K>> {
        let key = KernelKey { expression: self.clone(), form };
        let found = kernels().get(&key);
        if let Some(found) = found.and_then(K::from_kernel) {
            return Ok(found);
        }
        let built = Arc::new(build()?);
        kernels().insert(key, K::into_kernel(built.clone()), 1);
        Ok(built)
    }
}

/// What the cache owns: kernels for rows on the host, and functions for slots.
pub(super) trait Cached: Sized {
    fn into_kernel(this: Arc<Self>) -> Kernel;
    fn from_kernel(kernel: Kernel) -> Option<Arc<Self>>;
}

macro_rules! cached {
    ($($of:ty as $variant:ident),*) => {$(
        impl Cached for $of {
            fn into_kernel(this: Arc<Self>) -> Kernel {
                Kernel::$variant(this)
            }

            fn from_kernel(kernel: Kernel) -> Option<Arc<Self>> {
                if let Kernel::$variant(found) = kernel { Some(found) } else { None }
            }
        }
    )*};
}

cached!(exec::Program as Rows, SlotFunctions as Slot);

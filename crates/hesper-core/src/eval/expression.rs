//! Expressions of fused ops, and the one cache of their kernels.
//!
//! An expression says what a group computes: ops, types, which value each reads, what is stored. Where inputs lie is its
//! [`Form`]. Both together are the [`KernelKey`]: all that the content of a kernel depends on, compared as values. Kernels
//! for devices and for rows on the host are found by it in one cache.

use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use hesper_kernel::exec;
use hesper_runtime::{Label, Pipeline};
use smallvec::SmallVec;

use super::cache::Cache;
use super::graph::Emit;
use crate::Dtype;
use crate::error::Result;
use crate::ids::WordHash;

/// What a member of an expression reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Input(u32),
    Member(u32),
}

/// An input of an expression: its type, and whether it is a number passed by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Given {
    pub(super) dtype: Dtype,
    pub(super) known: bool,
}

/// An op of an expression.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub(super) op: Emit,
    pub(super) dtype: Dtype,
    /// The first of its sources.
    first: u32,
}

/// A group of element-wise ops over inputs that may lie anywhere.
#[derive(Default, Clone, PartialEq, Eq, Hash)]
pub(super) struct Expression {
    pub(super) inputs: Vec<Given>,
    pub(super) members: Vec<Member>,
    /// What members read, those of a member together.
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

    /// One more input.
    pub(super) fn input(&mut self, dtype: Dtype, known: bool) {
        self.inputs.push(Given { dtype, known });
    }

    /// One more op. It reads the sources from `first` on.
    pub(super) fn member(&mut self, op: Emit, first: usize, dtype: Dtype, stored: bool) {
        if stored {
            self.outputs.push(self.members.len() as u32);
        }
        self.members.push(Member { op, dtype, first: first as u32 });
    }

    /// The ops, and what each reads.
    pub(super) fn members(&self) -> impl Iterator<Item = (&Member, &[Source])> {
        self.members.iter().enumerate().map(|(at, member)| {
            let end = self.members.get(at + 1).map_or(self.sources.len(), |next| next.first as usize);
            (member, &self.sources[member.first as usize..end])
        })
    }

    /// The types of what is stored.
    pub(super) fn output_dtypes(&self) -> impl Iterator<Item = Dtype> {
        self.outputs.iter().map(|at| self.members[*at as usize].dtype)
    }

    /// Whether an op asks where its element is.
    pub(super) fn is_indexed(&self) -> bool {
        self.members.iter().any(|member| member.op.indexed)
    }

    /// For people: the op, or how many of them.
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
    /// A number passed by value.
    Known,
    /// At the index of the output.
    Plain,
    /// The same, and the output of this number is stored in its place.
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
    /// Calls on the host, piece by piece.
    Rows,
}

/// How an expression goes over its elements.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Form {
    pub(super) target: Target,
    /// How many axes are left when those that lie side by side are joined.
    pub(super) rank: usize,
    /// Elements to a thread.
    pub(super) lanes: usize,
    /// Whether the grid may have more groups along an outer axis than some devices take.
    pub(super) tall: bool,
    pub(super) layouts: SmallVec<[Layout; 8]>,
}

/// A compiled kernel for a device, and its label.
pub(super) type Built = (Arc<Pipeline>, Label);

/// A kernel in the cache.
#[derive(Clone)]
enum Kernel {
    /// For as long as the runtime keeps the pipeline, or work in flight does: the limits of the runtime's cache bound
    /// all pipelines.
    Device(Weak<Pipeline>, Label),
    Rows(Arc<exec::Program>),
}

/// All that the content of a kernel depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
struct KernelKey {
    expression: Arc<Fused>,
    form: Form,
}

/// Most kernels that are remembered.
const MAX_KERNELS: usize = 4096;

fn kernels() -> MutexGuard<'static, Cache<KernelKey, Kernel>> {
    static KERNELS: Mutex<Cache<KernelKey, Kernel>> = Mutex::new(Cache::new(MAX_KERNELS));
    KERNELS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// An expression of a program, its hash, and the kernel that it used last.
pub(super) struct Fused {
    pub(super) expression: Expression,
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
        Fused { expression, hash, last: Mutex::new(None) }
    }

    fn last(&self) -> MutexGuard<'_, Option<(Form, Weak<Pipeline>, Label)>> {
        self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The kernel of a form for a device, if it was built before.
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

    /// Keeps the kernel of a form for a device.
    pub(super) fn keep(self: &Arc<Self>, form: Form, (pipeline, label): &Built) {
        let kernel = Kernel::Device(Arc::downgrade(pipeline), label.clone());
        kernels().insert(KernelKey { expression: self.clone(), form: form.clone() }, kernel, 1);
        self.remember(form, &(pipeline.clone(), label.clone()));
    }

    fn remember(&self, form: Form, (pipeline, label): &Built) {
        *self.last() = Some((form, Arc::downgrade(pipeline), label.clone()));
    }

    /// The kernel of a form for rows on the host, found or built.
    pub(super) fn row_kernel(
        self: &Arc<Self>,
        form: Form,
        build: impl FnOnce() -> Result<exec::Program>,
    ) -> Result<Arc<exec::Program>> {
        let key = KernelKey { expression: self.clone(), form };
        let found = kernels().get(&key);
        if let Some(Kernel::Rows(program)) = found {
            return Ok(program);
        }
        let program = Arc::new(build()?);
        kernels().insert(key, Kernel::Rows(program.clone()), 1);
        Ok(program)
    }
}

//! The interface of backends, and the registry of those that are linked. See [`backend`](crate::backend).

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use hesper_kernel::bounds::Proof;
#[cfg(feature = "kernels")]
use hesper_kernel::custom::WrittenKernel;
use hesper_runtime::{Buffer, DeviceInfo, PipelineSource, Runtime, Stream};

use crate::Dtype;
use crate::error::{Error, Result};
use crate::graph::{CompositeSet, Data, Lowering, Op};
use crate::ids::WordHash;
use crate::shape::is_row_major;

/// The backends that are linked. See the module's documentation.
#[linkme::distributed_slice]
pub static BACKENDS: [fn() -> &'static dyn Backend];

/// How a kind of device computes ops.
pub trait Backend: Send + Sync {
    /// A short name: `cpu`, `cuda`.
    fn name(&self) -> &'static str;

    /// What its devices are to programs.
    fn kind(&self) -> BackendKind;

    /// Whether it implements every op. Then inputs are moved to its device before an implementation sees
    /// them, and nothing falls back from it. The host's backend has every op; others fall back to it.
    fn has_every_op(&self) -> bool {
        self.kind() == BackendKind::Host
    }

    /// How many devices there are. Must not start anything where there are none.
    fn device_count(&self) -> usize;

    /// Opens a device by its number.
    fn open(&self, number: usize) -> Result<Runtime>;

    /// Whether it computes on such a device, which may have been opened elsewhere.
    fn drives(&self, info: &DeviceInfo) -> bool;

    /// Its implementations of ops.
    fn ops(&self) -> &OpTable;

    /// Whether its ops take elements of a type; the host computes with the others. Fused kernels take every
    /// type.
    fn takes(&self, dtype: Dtype) -> bool {
        let _ = dtype;
        true
    }

    /// How the planner fuses for it.
    fn fusion(&self) -> Fusion;

    /// The source of a fused kernel, with what the device's compiler needs to know. `flat` says that the
    /// grid's second and third dimension are one.
    fn fused_source(&self, source: PipelineSource, flat: bool) -> PipelineSource {
        let _ = flat;
        source
    }

    /// The source of a custom kernel for a launch that `proof` was made for.
    fn custom_source(&self, source: PipelineSource, proof: &Proof, unchecked: bool) -> PipelineSource {
        let _ = (proof, unchecked);
        source
    }

    /// The source of a custom kernel as it is written, if the device's compiler takes Metal's C++. Its
    /// arguments are the bindings of the command, in order.
    #[cfg(feature = "kernels")]
    fn written_source(&self, name: &std::sync::Arc<str>, written: &WrittenKernel) -> Option<PipelineSource> {
        let _ = (name, written);
        None
    }

    /// The multiple of bytes at which inputs of custom kernels in constant memory are bound.
    fn constant_alignment(&self) -> usize {
        1
    }

    /// Encodes a row-major copy of strided memory.
    fn copy(&self, stream: &Stream, data: &Data, shape: &[usize], dtype: Dtype) -> Result<Buffer>;

    /// Fills a byte range of a buffer with an element of `size` bytes.
    fn fill(
        &self,
        stream: &Stream,
        buffer: &Buffer,
        range: Range<usize>,
        element: [u8; 8],
        size: usize,
    ) -> Result<()>;
}

/// The kind of devices of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendKind {
    /// The processor that the program runs on. There is one such backend; it implements every op.
    Host,
    /// An accelerator: `gpu:N` in programs.
    Gpu,
}

/// How the planner fuses for a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fusion {
    /// Threads of a group, if a thread of a fused kernel handles several neighbouring elements. `None` if the
    /// device's executor vectorizes kernels of one element per thread by itself.
    pub vector_threads: Option<u64>,
    /// Whether an output may be stored in the place of an input that nothing reads any more.
    pub in_place: bool,
    /// Whether kernels compute with float64; if not, the host runs those that do.
    pub double: bool,
    /// How many buffers a kernel can bind; the host runs those that need more.
    pub max_buffers: usize,
    /// Whether a few element-wise ops take less time than storing their result and reading it back: then an
    /// intermediate value that several kernels read is computed by each of them.
    pub recompute: bool,
}

impl Default for Fusion {
    /// One element per thread, nothing in place, no limits, every value computed once.
    fn default() -> Self {
        Fusion {
            vector_threads: None,
            in_place: false,
            double: true,
            max_buffers: usize::MAX,
            recompute: false,
        }
    }
}

/// An implementation of an op by a backend.
pub trait Lower<O: Op> {
    /// Encodes the op's commands and gives the memory that they fill; `None` if there is no implementation
    /// for these inputs, and then nothing was encoded. Inputs may lie on another device until
    /// [`Lowering::bring`] moves them.
    fn lower(op: &O, lowering: &mut Lowering<'_>) -> Result<Option<Data>>;

    /// Whether the implementation takes its first input, of such a shape and type, from a group of
    /// element-wise ops that is computed as it is read: as rows ([`Lowering::take_fused_rows`]) or in the
    /// slot of a kernel ([`Lowering::slot`]).
    fn takes_rows(op: &O, shape: &[usize], dtype: Dtype) -> bool {
        let _ = (op, shape, dtype);
        false
    }

    /// Whether the implementation can apply a group of element-wise ops to its result, of such a shape and
    /// type, before it stores it: to rows ([`Lowering::epilogue_rows`]) or in the second slot of a kernel
    /// ([`Lowering::epilogue_slot`]).
    fn takes_epilogue(op: &O, shape: &[usize], dtype: Dtype) -> bool {
        let _ = (op, shape, dtype);
        false
    }
}

/// An implementation whose op type was erased.
#[derive(Debug, Clone, Copy)]
struct Implementation {
    lower: fn(&dyn Op, &mut Lowering<'_>) -> Result<Option<Data>>,
    takes_rows: fn(&dyn Op, &[usize], Dtype) -> bool,
    takes_epilogue: fn(&dyn Op, &[usize], Dtype) -> bool,
}

/// A backend's implementations by op type.
#[derive(Debug, Default)]
pub struct OpTable {
    implementations: HashMap<TypeId, Implementation, BuildHasherDefault<WordHash>>,
    composites: CompositeSet,
}

/// An [`OpTable`] as it is filled.
pub struct OpTableBuilder<B>(OpTable, PhantomData<B>);

impl OpTable {
    /// The table of a backend `B`, to be filled.
    pub fn of<B>() -> OpTableBuilder<B> {
        OpTableBuilder(OpTable::default(), PhantomData)
    }

    /// Lowers an op; `None` if there is no implementation for it or for these inputs.
    pub(crate) fn lower(&self, op: &dyn Op, lowering: &mut Lowering<'_>) -> Result<Option<Data>> {
        self.get(op).map_or(Ok(None), |found| (found.lower)(op, lowering))
    }

    /// Whether the implementation of an op takes its `first` input from a group, and whether it applies a
    /// group to its `result`: see [`Lower::takes_rows`] and [`Lower::takes_epilogue`].
    pub(crate) fn fuses(
        &self,
        op: &dyn Op,
        first: Option<(&[usize], Dtype)>,
        result: Option<(&[usize], Dtype)>,
    ) -> (bool, bool) {
        let Some(found) = self.get(op) else { return (false, false) };
        let rows = first.is_some_and(|(shape, dtype)| (found.takes_rows)(op, shape, dtype));
        (rows, result.is_some_and(|(shape, dtype)| (found.takes_epilogue)(op, shape, dtype)))
    }

    fn get(&self, op: &dyn Op) -> Option<&Implementation> {
        self.implementations.get(&(op as &dyn Any).type_id())
    }

    /// The composite ops that have an implementation: the planner makes no others.
    pub fn composites(&self) -> CompositeSet {
        self.composites
    }
}

impl<B> OpTableBuilder<B> {
    /// Adds the implementation of an op.
    pub fn with<O: Op>(self) -> Self
    where
        B: Lower<O>,
    {
        self.with_shared::<B, O>()
    }

    /// Adds the implementation of an op by `L`, which several backends share.
    pub fn with_shared<L: Lower<O>, O: Op>(mut self) -> Self {
        fn lower<L: Lower<O>, O: Op>(op: &dyn Op, lowering: &mut Lowering<'_>) -> Result<Option<Data>> {
            (op as &dyn Any).downcast_ref::<O>().map_or(Ok(None), |op| L::lower(op, lowering))
        }
        fn takes_rows<L: Lower<O>, O: Op>(op: &dyn Op, shape: &[usize], dtype: Dtype) -> bool {
            (op as &dyn Any).downcast_ref::<O>().is_some_and(|op| L::takes_rows(op, shape, dtype))
        }
        fn takes_epilogue<L: Lower<O>, O: Op>(op: &dyn Op, shape: &[usize], dtype: Dtype) -> bool {
            (op as &dyn Any).downcast_ref::<O>().is_some_and(|op| L::takes_epilogue(op, shape, dtype))
        }
        let implementation = Implementation {
            lower: lower::<L, O>,
            takes_rows: takes_rows::<L, O>,
            takes_epilogue: takes_epilogue::<L, O>,
        };
        self.0.implementations.insert(TypeId::of::<O>(), implementation);
        self.0.composites = self.0.composites.with(O::composite());
        self
    }

    /// Adds another part of the table.
    pub fn extend(self, part: impl FnOnce(Self) -> Self) -> Self {
        part(self)
    }

    /// The filled table.
    pub fn build(self) -> OpTable {
        self.0
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

static ADDED: Mutex<Vec<&'static dyn Backend>> = Mutex::new(Vec::new());

/// Adds a backend at run time. Its devices are numbered behind those of linked backends if no program has
/// asked for a GPU before; a runtime that was opened elsewhere finds it at any time.
pub fn register(backend: &'static dyn Backend) {
    lock(&ADDED).push(backend);
}

/// All backends: those that are linked, then those that were added.
pub fn backends() -> Vec<&'static dyn Backend> {
    let linked = BACKENDS.iter().map(|backend| backend());
    linked.chain(lock(&ADDED).iter().copied()).collect()
}

/// The host's backend.
pub(crate) fn host() -> Result<&'static dyn Backend> {
    static HOST: OnceLock<&'static dyn Backend> = OnceLock::new();
    if let Some(host) = HOST.get() {
        return Ok(*host);
    }
    let found = backends().into_iter().find(|backend| backend.kind() == BackendKind::Host);
    let found = found.ok_or_else(|| {
        Error::value(
            "device",
            "no backend for the host is linked: depend on the crate `hesper`, not on `hesper-core` alone",
        )
    })?;
    Ok(*HOST.get_or_init(|| found))
}

/// The backend of a runtime, kept with it.
#[derive(Default)]
struct Attached(OnceLock<&'static dyn Backend>);

/// The backend that computes on a stream's device.
pub fn of_stream(stream: &Stream) -> Result<&'static dyn Backend> {
    match stream.attached::<Attached>().and_then(|attached| attached.0.get()) {
        Some(found) => Ok(*found),
        None => of_runtime(&stream.runtime()),
    }
}

/// The backend that computes on a runtime's device. A backend that was added last comes first.
pub fn of_runtime(runtime: &Runtime) -> Result<&'static dyn Backend> {
    let attached = runtime.attached::<Attached>();
    if let Some(found) = attached.and_then(|attached| attached.0.get()) {
        return Ok(*found);
    }
    let info = runtime.info();
    let found = backends().into_iter().rev().find(|backend| backend.drives(info));
    let found = found.ok_or_else(|| {
        let known: Vec<&str> = backends().iter().map(|backend| backend.name()).collect();
        Error::value("device", format!("no backend computes on {}: linked are {known:?}", info.name))
    })?;
    Ok(attached.map_or(found, |attached| *attached.0.get_or_init(|| found)))
}

/// A row-major copy of strided memory, made on a stream's device. Memory of another device is moved there
/// first.
pub fn copy(stream: &Stream, data: &Data, shape: &[usize], dtype: Dtype) -> Result<Buffer> {
    of_stream(stream)?.copy(stream, &data.on(&stream.runtime())?, shape, dtype)
}

impl Lowering<'_> {
    /// The backend that computes on the stream's device.
    pub fn backend(&self) -> Result<&'static dyn Backend> {
        of_stream(self.stream())
    }

    /// An input row by row: itself, or a copy made on the op's stream.
    pub fn row_major(&self, at: usize) -> Result<Data> {
        let (data, shape) = (self.input(at), self.input_shape(at));
        if is_row_major(shape, &data.strides) {
            return Ok(data.clone());
        }
        let buffer = copy(self.stream(), data, shape, self.input_dtype(at))?;
        Ok(Data::contiguous(buffer, shape))
    }

    /// The output, copied from strided memory.
    pub fn copy_of(&self, at: usize) -> Result<Data> {
        let buffer = copy(self.stream(), self.input(at), self.input_shape(at), self.input_dtype(at))?;
        Ok(Data::contiguous(buffer, self.shape()))
    }
}

/// The part of a buffer that a view reaches, in bytes, and where in it the view's first element is.
pub fn reach(data: &Data, shape: &[usize], size: usize) -> (Range<usize>, usize) {
    let (mut low, mut high) = (data.offset, data.offset);
    if shape.contains(&0) {
        let at = data.offset.max(0) as usize * size;
        return (at..at, 0);
    }
    for (length, stride) in shape.iter().zip(&data.strides) {
        let far = (*length as isize - 1) * stride;
        low += far.min(0);
        high += far.max(0);
    }
    (low as usize * size..(high as usize + 1) * size, (data.offset - low) as usize)
}

static FALLBACKS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Counts an op that is computed on the host because its device has no implementation.
pub(crate) fn count_fallback(op: &'static str) {
    *lock(&FALLBACKS).entry(op).or_default() += 1;
}

/// Which ops were computed on the host because their device has no implementation, and how often.
///
/// ```
/// use hesper::placement;
/// for (op, times) in placement::fallbacks() {
///     println!("{op} ran {times} times on the host for want of a kernel");
/// }
/// ```
pub fn fallbacks() -> Vec<(&'static str, u64)> {
    lock(&FALLBACKS).iter().map(|(name, count)| (*name, *count)).collect()
}

/// A backend for the unit tests of this crate, which cannot link the host's: fused kernels and copies.
#[cfg(test)]
#[allow(unsafe_code, reason = "the registration is placed in a linker section")]
mod testing {
    use super::*;

    struct Testing;

    #[linkme::distributed_slice(BACKENDS)]
    static REGISTERED: fn() -> &'static dyn Backend = || &Testing;

    static OPS: std::sync::LazyLock<OpTable> = std::sync::LazyLock::new(OpTable::default);

    impl Backend for Testing {
        fn name(&self) -> &'static str {
            "testing"
        }

        fn kind(&self) -> BackendKind {
            BackendKind::Host
        }

        fn device_count(&self) -> usize {
            1
        }

        fn open(&self, _: usize) -> Result<Runtime> {
            Ok(Runtime::new(hesper_cpu::CpuDevice::new()))
        }

        fn drives(&self, info: &DeviceInfo) -> bool {
            info.native_commands
        }

        fn ops(&self) -> &OpTable {
            &OPS
        }

        fn fusion(&self) -> Fusion {
            Fusion { in_place: true, ..Fusion::default() }
        }

        fn copy(&self, stream: &Stream, data: &Data, shape: &[usize], dtype: Dtype) -> Result<Buffer> {
            let (count, size) = (shape.iter().product::<usize>(), dtype.size());
            let output = stream.alloc(count * size)?;
            let (shape, strides, offset) = (shape.to_vec(), data.strides.clone(), data.offset);
            stream.encode("copy").read(&data.buffer).write(&output).run(move |native| {
                let [from, to] = native.take()?;
                let (from, to) = (from.bytes()?, to.bytes_mut()?);
                for (number, element) in to.chunks_exact_mut(size).enumerate() {
                    let (mut rest, mut at) = (number, offset);
                    for (length, stride) in shape.iter().zip(&strides).rev() {
                        at += (rest % length) as isize * stride;
                        rest /= length;
                    }
                    element.copy_from_slice(&from[at as usize * size..][..size]);
                }
                Ok(())
            })?;
            Ok(output)
        }

        fn fill(&self, _: &Stream, _: &Buffer, _: Range<usize>, _: [u8; 8], _: usize) -> Result<()> {
            Err(Error::value("fill", "is not part of the testing backend"))
        }
    }
}

//! A third device and its backend, made outside of the array crate: memory that the host cannot address, one
//! worker thread, and the reference interpreter for kernels.
//!
//! Fused and custom kernels run as the planner builds them. Matrix products are kernels in the kernel
//! language, a softmax is a graph of other ops, and every other op falls back to the host.

use std::alloc::{Layout, alloc, dealloc};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex};
use std::thread;

use hesper::backend::{Backend, BackendKind, Data, Fusion, Lower, Lowering, OpTable, compose};
use hesper::ops::composite::Composite;
use hesper::ops::composite::add_norm::AddNorm;
use hesper::ops::composite::silu_gate::SiluGate;
use hesper::ops::matmul::Matmul;
use hesper::ops::norm::RowOp;
use hesper::placement::{self, Device as DeviceKind};
use hesper::{CustomKernel, Dtype, Error, Result, axes, stack};
use hesper_kernel::interp;
use hesper_kernel::ir::{Kernel, ParamKind};
use hesper_kernel::launch::{Arg, Bindings, Launch};
use hesper_runtime::{
    Binding, Buffer, CommandRef, CompiledPipeline, Device, DeviceError, DeviceInfo, Dispatch, FaultKind,
    OpRef, PipelineSource, Progress, RawMemory, RawPipeline, RawStream, Runtime, Scope, Stream, Work,
};

const ALIGNMENT: usize = 64;

/// The device.
pub struct Reference {
    info: DeviceInfo,
    ids: AtomicU64,
    worker: Sender<Work>,
}

impl Reference {
    pub fn new() -> Self {
        let (worker, work) = channel::<Work>();
        // One thread runs all submissions in the order in which they arrive. What a submission waits for
        // arrived before.
        thread::spawn(move || work.into_iter().for_each(run));
        let info = DeviceInfo {
            name: "reference interpreter".into(),
            kind: "reference",
            unified_memory: false,
            native_commands: false,
            total_memory: 1 << 30,
            alignment: ALIGNMENT,
            max_buffer: 1 << 30,
            multiprocessors: 1,
            max_threads_per_group: 1024,
            simd_width: 32,
            shared_memory: 1 << 15,
            batch: 8,
            max_in_flight: 8,
        };
        Reference { info, ids: AtomicU64::new(1), worker }
    }
}

fn layout(len: usize) -> Layout {
    Layout::from_size_align(len, ALIGNMENT).unwrap()
}

fn address(memory: &RawMemory, offset: usize) -> *mut u8 {
    (memory.id as *mut u8).wrapping_add(offset)
}

// SAFETY: allocations are exclusive, aligned and live until they are freed. The worker runs submissions one
// after the other and finishes each once.
unsafe impl Device for Reference {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn allocate(&self, len: usize) -> Result<RawMemory, DeviceError> {
        // SAFETY: the runtime asks for more than zero bytes.
        let address = unsafe { alloc(layout(len)) };
        if address.is_null() {
            return Err(DeviceError::OutOfMemory("no memory".into()));
        }
        // The host must not see the address: the runtime copies by `read` and `write`.
        Ok(RawMemory { id: address as u64, host: None, len })
    }

    unsafe fn free(&self, memory: RawMemory) {
        // SAFETY: `allocate` gave it with this layout.
        unsafe { dealloc(address(&memory, 0), layout(memory.len)) };
    }

    unsafe fn read(&self, memory: &RawMemory, offset: usize, out: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: the range lies inside of live memory that no unfinished work writes.
        unsafe { address(memory, offset).copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    unsafe fn write(&self, memory: &RawMemory, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the range lies inside of live memory that no unfinished work names.
        unsafe { address(memory, offset).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        Ok(())
    }

    fn create_stream(&self) -> Result<RawStream, DeviceError> {
        Ok(RawStream(self.ids.fetch_add(1, Ordering::Relaxed)))
    }

    unsafe fn destroy_stream(&self, _: RawStream) {}

    fn compile(&self, source: &PipelineSource) -> Result<CompiledPipeline, DeviceError> {
        let kernel = source.payload.as_deref().and_then(|payload| payload.downcast_ref::<Kernel>());
        let Some(kernel) = kernel else {
            return Err(DeviceError::Compile(format!("no compiler for {}", source.language)));
        };
        let kernel = Box::into_raw(Box::new(kernel.clone()));
        Ok(CompiledPipeline { raw: RawPipeline(kernel as u64), bytes: size_of::<Kernel>() })
    }

    unsafe fn release(&self, pipeline: RawPipeline) {
        // SAFETY: the number is the address that `compile` gave, and no work names it any more.
        drop(unsafe { Box::from_raw(pipeline.0 as *mut Kernel) });
    }

    unsafe fn submit(&self, _: RawStream, work: Work) -> Result<(), (Work, DeviceError)> {
        self.worker
            .send(work)
            .map_err(|refused| (refused.0, DeviceError::Failed("the worker has ended".into())))
    }

    fn wait(&self, _: RawStream, _: u64) -> Progress {
        Progress::Delegated
    }
}

/// Runs the commands of a submission in order.
fn run(mut work: Work) {
    for index in 0..work.len() {
        if let Some(fault) = work.blocked_by(index) {
            work.fail_command(index, fault);
            continue;
        }
        let command = work.command(index);
        let outcome = match command.op {
            // SAFETY: commands run one after the other, each once.
            OpRef::Native => unsafe { work.run_native(index, None) }.map_err(|error| format!("{error:?}")),
            _ => run_command(&command),
        };
        if let Err(message) = outcome {
            let label = work.command(index).label.to_string();
            let fault = work.fault_at(&label, FaultKind::Failed, Scope::Command, message);
            work.fail_command(index, fault);
        }
    }
    work.finish();
}

fn run_command(command: &CommandRef<'_>) -> Result<(), String> {
    match (command.op, command.bindings) {
        (OpRef::Copy, [from, to]) => {
            let (source, target) = (address(from.memory(), from.offset()), address(to.memory(), to.offset()));
            // SAFETY: both ranges lie inside of live memory and do not overlap: the runtime checked them.
            unsafe { source.copy_to_nonoverlapping(target, from.len()) };
            Ok(())
        }
        (OpRef::Clear, [range]) => {
            // SAFETY: the range lies inside of live memory.
            unsafe { address(range.memory(), range.offset()).write_bytes(0, range.len()) };
            Ok(())
        }
        (OpRef::Dispatch(dispatch), bindings) => interpret(dispatch, bindings),
        _ => Err("a command with the wrong number of bindings".into()),
    }
}

fn interpret(dispatch: &Dispatch, bindings: &[Binding]) -> Result<(), String> {
    // SAFETY: the number is the address that `compile` gave; the submission keeps the pipeline.
    let kernel = unsafe { &*(dispatch.pipeline().0 as *const Kernel) };
    let (mut buffers, mut constants): (_, &[u8]) = (bindings.iter(), &dispatch.constants);
    let mut list = Vec::new();
    for param in &kernel.params {
        list.push(match &param.kind {
            ParamKind::Value(ty) => {
                let size = ty.size() as usize;
                let bytes = constants.get(..size).ok_or("a constant is missing")?;
                constants = constants.get(size.next_multiple_of(8)..).unwrap_or_default();
                Arg::read(bytes)
            }
            ParamKind::Buffer { .. } => {
                let one = buffers.next().ok_or("a buffer is missing")?;
                let start = address(one.memory(), one.offset());
                // SAFETY: the range lies inside of live memory, and no other command runs.
                unsafe { Arg::from_raw(start, one.len() as u64, one.access().writes()) }
            }
        });
    }
    let mut bindings = Bindings::new(list).map_err(|error| error.to_string())?;
    let launch = Launch::new(dispatch.grid, dispatch.threadgroup).map_err(|error| error.to_string())?;
    interp::run(kernel, &launch, &mut bindings, &interp::Options::default())
        .map_err(|error| error.to_string())?;
    Ok(())
}

/// How the device computes ops.
pub struct ReferenceBackend;

static OPS: LazyLock<OpTable> = LazyLock::new(|| {
    let table = OpTable::of::<ReferenceBackend>().with::<Matmul>().with::<RowOp>();
    table.with::<AddNorm>().with::<SiluGate>().build()
});

impl Backend for ReferenceBackend {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn kind(&self) -> BackendKind {
        BackendKind::Gpu
    }

    fn device_count(&self) -> usize {
        0
    }

    fn open(&self, _: usize) -> Result<Runtime> {
        Ok(Runtime::new(Reference::new()))
    }

    fn drives(&self, info: &DeviceInfo) -> bool {
        info.kind == "reference"
    }

    fn ops(&self) -> &OpTable {
        &OPS
    }

    fn fusion(&self) -> Fusion {
        Fusion { recompute: true, ..Fusion::default() }
    }

    /// On the host and back.
    fn copy(&self, stream: &Stream, data: &Data, shape: &[usize], dtype: Dtype) -> Result<Buffer> {
        let host = placement::default_stream(DeviceKind::Cpu)?;
        let backend = hesper::backend::of_stream(&host)?;
        let copied = backend.copy(&host, &data.on(&host.runtime())?, shape, dtype)?;
        Ok(copied.on(&stream.runtime())?)
    }

    fn fill(
        &self,
        stream: &Stream,
        buffer: &Buffer,
        range: Range<usize>,
        element: [u8; 8],
        size: usize,
    ) -> Result<()> {
        let elements = element[..size].repeat(range.len() / size);
        let source = stream.runtime().upload(&elements)?;
        Ok(stream.encode("fill").read(&source).write_range(buffer, range).copy()?)
    }
}

/// Products of float32 matrices as a kernel in the kernel language.
impl Lower<Matmul> for ReferenceBackend {
    fn lower(op: &Matmul, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        const TEXT: &str = "
            uint column = thread_position_in_grid.x;
            uint row = thread_position_in_grid.y;
            float sum = 0;
            for (uint at = 0; at < K; at++) {
                sum += a[row * K + at] * b[at * N + column];
            }
            out[row * N + column] = sum;";
        let matrices = (0..2).all(|at| l.input_shape(at).len() == 2);
        if op.add || !matrices || l.dtype() != Dtype::Float32 || l.shape().contains(&0) {
            return Ok(None);
        }
        let (m, n, k) = (l.shape()[0], l.shape()[1], l.input_shape(0)[1]);
        compose(l, |inputs| {
            let kernel = CustomKernel::new("product", &["a", "b"], &["out"], TEXT)?;
            let call = kernel.call(inputs).template_int("K", k as i32).template_int("N", n as i32);
            let call = call.grid([n as u64, m as u64, 1]).threadgroup([n.min(32) as u64, 1, 1]);
            let outputs = call.output(&[m, n], Dtype::Float32).run()?;
            outputs.into_iter().next().ok_or_else(|| Error::value("matmul", "no output"))
        })
    }
}

/// A softmax as a graph of other ops.
impl Lower<RowOp> for ReferenceBackend {
    fn lower(op: &RowOp, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        if *op != RowOp::Softmax || l.dtype() != Dtype::Float32 {
            return Ok(None);
        }
        compose(l, |inputs| {
            let x = &inputs[0];
            let powers = x.subtract(x.max(axes(-1).keepdims())?)?.exp()?;
            powers.divide(powers.sum(axes(-1).keepdims())?)
        })
    }
}

/// Asked for each composite op: whether the device has a kernel for its inputs.
pub static TAKES_COMPOSITE: Mutex<fn(&'static str) -> Result<bool>> = Mutex::new(|_| Ok(true));

/// A composite op as the graph that it stands for.
fn composite(op: &dyn Composite, l: &mut Lowering<'_>) -> Result<Option<Data>> {
    let takes = *TAKES_COMPOSITE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !takes(op.name())? {
        return Ok(None);
    }
    compose(l, |inputs| {
        let mut results = op.composed(inputs)?;
        if results.len() > 1 { stack(&results, 0) } else { Ok(results.swap_remove(0)) }
    })
}

impl Lower<AddNorm> for ReferenceBackend {
    fn lower(op: &AddNorm, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        composite(op, l)
    }
}

impl Lower<SiluGate> for ReferenceBackend {
    fn lower(op: &SiluGate, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        composite(op, l)
    }
}

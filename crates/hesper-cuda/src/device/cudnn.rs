//! Convolutions by cuDNN, which is optional and loaded on first use.
//!
//! [`CudaShared::convolution`] returns whether the library can compute a convolution. Native commands call
//! [`Convolution::run`]. It checks every operand against its binding, so the call is safe. Plans that are not
//! deterministic, or that compute with less than the precision of the elements, are excluded. For large work
//! with several plans, the first run measures them.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, Once, OnceLock};

use hesper_runtime::{Native, NativeError, NativeResult};

use super::CudaShared;
use super::submit::NativeContext;
use crate::error::{CudaError, Result};
use crate::host::lock;
use crate::library;
use crate::shutdown;
use crate::sys::{CU_EVENT_DEFAULT, CUevent, CUstream, Cudnn, Driver};

/// Bytes of scratch that a convolution binds.
pub const SCRATCH: usize = 64 << 20;
/// The most convolutions whose plans are cached; a full cache is cleared.
const MAX_CACHED_SHAPES: usize = 512;
/// The most plans that are measured.
const MAX_MEASURED_PLANS: usize = 6;
/// The number of multiplications from which on plans are measured.
const MIN_WORK_TO_MEASURE: usize = 1 << 31;

/// The element type of a convolution. Sums have 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConvolutionType {
    /// 16-bit floats.
    F16,
    /// Brain floats.
    Bf16,
    /// 32-bit floats.
    F32,
}

impl ConvolutionType {
    fn code(self) -> i32 {
        match self {
            ConvolutionType::F32 => 0,
            ConvolutionType::F16 => 2,
            ConvolutionType::Bf16 => 9,
        }
    }

    fn size(self) -> usize {
        if self == ConvolutionType::F32 { 4 } else { 2 }
    }
}

/// The result of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConvolutionKind {
    /// The output, from input and weights.
    Forward,
    /// The weights' gradient, from the input and the output's gradient.
    Weights,
}

/// A convolution with channels innermost: `[batch, space, channels]`, weights `[output channels, space, input
/// channels of a group]`. A command binds input and weights (for the gradient of the weights: input and the
/// output's gradient), scratch of [`SCRATCH`] bytes, and the result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// The result.
    pub kind: ConvolutionKind,
    /// The element type.
    pub dtype: ConvolutionType,
    /// The batch size.
    pub batch: usize,
    /// Channels of the input and of the output, of all groups.
    pub channels: [usize; 2],
    /// The number of groups.
    pub groups: usize,
    /// Spatial lengths of input, weights and output; two or three axes.
    pub space: [Vec<usize>; 3],
    /// The stride of each axis.
    pub stride: Vec<usize>,
    /// The dilation of each axis.
    pub dilation: Vec<usize>,
    /// Zero padding before and after each axis.
    pub padding: [Vec<usize>; 2],
}

/// The library, with a handle for one device's context.
pub struct Dnn {
    calls: &'static Cudnn,
    /// The library allows one thread at a time per handle.
    handle: Mutex<Handle>,
    known: Mutex<HashMap<Convolution, Option<Arc<Plans>>>>,
}

struct Handle(*mut c_void);

// SAFETY: any thread may use a handle, one at a time.
unsafe impl Send for Handle {}

/// The plans of a convolution, best first by the library's estimate.
struct Plans {
    all: Vec<Plan>,
    chosen: OnceLock<usize>,
}

struct Plan {
    plan: Object,
    /// The configuration, which the plan uses.
    _config: Object,
    scratch: usize,
}

/// An object of the library, destroyed on drop.
struct Object {
    calls: &'static Cudnn,
    raw: *mut c_void,
}

// SAFETY: finalized objects do not change, and are used under the lock of the handle.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the object is owned and alive.
        unsafe { (self.calls.destroy_descriptor)(self.raw) };
    }
}

fn calls() -> Result<&'static Cudnn> {
    static CALLS: OnceLock<Result<Cudnn>> = OnceLock::new();
    CALLS.get_or_init(library::cudnn).as_ref().map_err(Clone::clone)
}

fn check(call: &'static str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(CudaError::Library { library: "cuDNN", call, code }),
    }
}

// The library's codes of object kinds and attribute types.
const CONVOLUTION: c_int = 1;
const ENGINE: c_int = 2;
const ENGINE_CONFIG: c_int = 3;
const HEURISTICS: c_int = 4;
const EXECUTION_PLAN: c_int = 5;
const FORWARD: c_int = 10;
const BACKWARD_FILTER: c_int = 11;
const OPERATION_GRAPH: c_int = 15;
const VARIANT_PACK: c_int = 16;
const TENSOR: c_int = 17;
const OF_HANDLE: c_int = 0;
const OF_DATA_TYPE: c_int = 1;
const OF_INT64: c_int = 3;
const OF_FLOAT: c_int = 4;
const OF_POINTER: c_int = 6;
const OF_CONVOLUTION_MODE: c_int = 7;
const OF_HEURISTICS_MODE: c_int = 8;
const OF_NUMERICAL_NOTE: c_int = 11;
const OF_OBJECT: c_int = 15;

impl Object {
    fn new(calls: &'static Cudnn, kind: c_int) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the library stores one handle.
        check("cudnnBackendCreateDescriptor", unsafe { (calls.create_descriptor)(kind, &mut raw) })?;
        Ok(Object { calls, raw })
    }

    fn set<T>(&self, attribute: c_int, of: c_int, values: &[T]) -> Result<()> {
        // SAFETY: the library copies the given number of values, of the type of the attribute.
        check("cudnnBackendSetAttribute", unsafe {
            (self.calls.set_attribute)(self.raw, attribute, of, values.len() as i64, values.as_ptr().cast())
        })
    }

    fn finish(self) -> Result<Self> {
        // SAFETY: the object is alive.
        check("cudnnBackendFinalize", unsafe { (self.calls.finalize)(self.raw) })?;
        Ok(self)
    }

    /// Fills `values` and returns the number of values filled.
    fn get<T>(&self, attribute: c_int, of: c_int, values: &mut [T]) -> Result<usize> {
        let mut count = 0i64;
        // SAFETY: there is room for the given number of values, of the type of the attribute.
        check("cudnnBackendGetAttribute", unsafe {
            (self.calls.get_attribute)(
                self.raw,
                attribute,
                of,
                values.len() as i64,
                &mut count,
                values.as_mut_ptr().cast(),
            )
        })?;
        Ok((count.max(0) as usize).min(values.len()))
    }
}

impl CudaShared {
    /// The library for convolutions; an error lists the candidates that were tried.
    fn dnn(&self) -> Result<&Dnn> {
        self.dnn.get(|| {
            let calls = calls()?;
            let _current = self.context.enter()?;
            let mut handle = std::ptr::null_mut();
            // SAFETY: the device's context is current; the library stores one handle.
            check("cudnnCreate", unsafe { (calls.create)(&mut handle) })?;
            shutdown::register_again();
            Ok(Dnn { calls, handle: Mutex::new(Handle(handle)), known: Mutex::default() })
        })
    }

    /// Whether the library is installed and computes this convolution.
    pub fn convolution(&self, what: &Convolution) -> bool {
        self.dnn().is_ok_and(|dnn| dnn.plans(self, what).is_some())
    }
}

impl Dnn {
    fn plans(&self, shared: &CudaShared, what: &Convolution) -> Option<Arc<Plans>> {
        if let Some(known) = lock(&self.known).get(what) {
            return known.clone();
        }
        let handle = lock(&self.handle);
        let found = shared.context.enter().and_then(|_current| what.plans(self.calls, handle.0));
        drop(handle);
        // Do not cache a failure: memory may have been short.
        let found = Some(found.ok()?)
            .filter(|all| !all.is_empty())
            .map(|all| Arc::new(Plans { all, chosen: OnceLock::new() }));
        let mut known = lock(&self.known);
        if known.len() >= MAX_CACHED_SHAPES {
            known.clear();
        }
        known.insert(what.clone(), found.clone());
        found
    }
}

impl Drop for Dnn {
    fn drop(&mut self) {
        lock(&self.known).clear();
        // SAFETY: the handle is owned, alive and no longer used.
        unsafe { (self.calls.destroy)(lock(&self.handle).0) };
    }
}

impl Convolution {
    /// The shapes of input, weights and output in memory order.
    fn shapes(&self) -> [Vec<usize>; 3] {
        let [channels, outs] = self.channels;
        let ends = [(self.batch, channels), (outs, channels / self.groups.max(1)), (self.batch, outs)];
        std::array::from_fn(|at| {
            let mut shape = vec![ends[at].0];
            shape.extend(&self.space[at]);
            shape.push(ends[at].1);
            shape
        })
    }

    /// The number of multiplications.
    fn work(&self) -> usize {
        let [_, weights, output] = self.shapes();
        let one = weights[1..].iter().product::<usize>();
        output.iter().product::<usize>().saturating_mul(one)
    }

    fn tensor(&self, calls: &'static Cudnn, shape: &[usize], name: i64) -> Result<Object> {
        // The library's axis order is batch, channels, space, whatever the strides.
        let last = shape.len() - 1;
        let mut strides = vec![1i64; shape.len()];
        for axis in (0..last).rev() {
            strides[axis] = strides[axis + 1] * shape[axis + 1] as i64;
        }
        let order = |of: &dyn Fn(usize) -> i64| -> Vec<i64> {
            [0, last].into_iter().chain(1..last).map(of).collect()
        };
        let tensor = Object::new(calls, TENSOR)?;
        tensor.set(901, OF_DATA_TYPE, &[self.dtype.code()])?;
        tensor.set(902, OF_INT64, &order(&|axis| shape[axis] as i64))?;
        tensor.set(903, OF_INT64, &order(&|axis| strides[axis]))?;
        tensor.set(906, OF_INT64, &[name])?;
        tensor.set(900, OF_INT64, &[16i64])?;
        tensor.finish()
    }

    /// The plans that the library offers, best first.
    fn plans(&self, calls: &'static Cudnn, handle: *mut c_void) -> Result<Vec<Plan>> {
        let shapes = self.shapes();
        let [x, w, y] = [0, 1, 2].map(|at| self.tensor(calls, &shapes[at], at as i64 + 1));
        let (x, w, y) = (x?, w?, y?);
        let longs = |list: &[usize]| list.iter().map(|one| *one as i64).collect::<Vec<i64>>();
        let shape = Object::new(calls, CONVOLUTION)?;
        shape.set(100, OF_DATA_TYPE, &[ConvolutionType::F32.code()])?;
        shape.set(101, OF_CONVOLUTION_MODE, &[1i32])?;
        shape.set(106, OF_INT64, &[self.stride.len() as i64])?;
        shape.set(102, OF_INT64, &longs(&self.dilation))?;
        shape.set(103, OF_INT64, &longs(&self.stride))?;
        shape.set(105, OF_INT64, &longs(&self.padding[0]))?;
        shape.set(104, OF_INT64, &longs(&self.padding[1]))?;
        let shape = shape.finish()?;
        // Attributes: the factors, the convolution, and the three arrays.
        let (kind, first, arrays) = match self.kind {
            ConvolutionKind::Forward => (FORWARD, 700, [(703, &w), (704, &x), (705, &y)]),
            ConvolutionKind::Weights => (BACKWARD_FILTER, 712, [(715, &w), (716, &x), (717, &y)]),
        };
        let operation = Object::new(calls, kind)?;
        operation.set(first, OF_FLOAT, &[1.0f32])?;
        operation.set(first + 1, OF_FLOAT, &[0.0f32])?;
        operation.set(first + 2, OF_OBJECT, &[shape.raw])?;
        for (attribute, array) in arrays {
            operation.set(attribute, OF_OBJECT, &[array.raw])?;
        }
        let operation = operation.finish()?;
        let graph = Object::new(calls, OPERATION_GRAPH)?;
        graph.set(800, OF_HANDLE, &[handle])?;
        graph.set(801, OF_OBJECT, &[operation.raw])?;
        let graph = graph.finish()?;
        let heuristics = Object::new(calls, HEURISTICS)?;
        heuristics.set(201, OF_OBJECT, &[graph.raw])?;
        heuristics.set(200, OF_HEURISTICS_MODE, &[3i32])?;
        let heuristics = heuristics.finish()?;
        let configs = (0..16).map(|_| Object::new(calls, ENGINE_CONFIG)).collect::<Result<Vec<Object>>>()?;
        let mut raw: Vec<*mut c_void> = configs.iter().map(|config| config.raw).collect();
        let count = heuristics.get(202, OF_OBJECT, &mut raw)?;
        let most = if self.work() < MIN_WORK_TO_MEASURE { 1 } else { MAX_MEASURED_PLANS };
        let mut plans = Vec::new();
        for config in configs.into_iter().take(count) {
            if plans.len() == most {
                break;
            }
            if self.exact(calls, &config).unwrap_or(false)
                && let Ok(plan) = self.plan(calls, handle, config)
                && plan.scratch <= SCRATCH
            {
                plans.push(plan);
            }
        }
        Ok(plans)
    }

    /// Whether a plan keeps the precision of the elements and is deterministic.
    fn exact(&self, calls: &'static Cudnn, config: &Object) -> Result<bool> {
        let engine = Object::new(calls, ENGINE)?;
        let mut raw = [engine.raw];
        config.get(300, OF_OBJECT, &mut raw)?;
        let mut notes = [-1i32; 16];
        let count = engine.get(1303, OF_NUMERICAL_NOTE, &mut notes)?;
        // Tensor cores, rounded inputs, reduced-precision sums, FFTs, non-determinism, Winograd.
        let single = self.dtype == ConvolutionType::F32;
        Ok(!notes[..count].iter().any(|note| matches!(note, 1..=8) || (single && *note == 0)))
    }

    fn plan(&self, calls: &'static Cudnn, handle: *mut c_void, config: Object) -> Result<Plan> {
        let plan = Object::new(calls, EXECUTION_PLAN)?;
        plan.set(400, OF_HANDLE, &[handle])?;
        plan.set(401, OF_OBJECT, &[config.raw])?;
        let plan = plan.finish()?;
        let mut scratch = [0i64];
        plan.get(402, OF_INT64, &mut scratch)?;
        Ok(Plan { plan, _config: config, scratch: scratch[0].max(0) as usize })
    }

    /// Enqueues the convolution on the stream of a native command of a CUDA device.
    pub fn run(&self, native: &mut Native<'_, '_>) -> NativeResult {
        let context = native.context().and_then(|context| context.downcast_ref::<NativeContext>());
        let context = context.ok_or("the command does not run on a CUDA device")?;
        let bound = native.bindings();
        if bound.len() != 4 {
            return Err(format!("a convolution binds 4 ranges, got {}", bound.len()).into());
        }
        let [x, w, y] = self.shapes();
        // The binding of each array.
        let (second, result) = match self.kind {
            ConvolutionKind::Forward => (w, y),
            ConvolutionKind::Weights => (y, w),
        };
        for (at, shape) in [(0, x), (1, second), (3, result)] {
            let needed = shape.iter().try_fold(self.dtype.size(), |bytes, length| bytes.checked_mul(*length));
            if needed.is_none_or(|needed| needed > bound[at].len()) {
                return Err(NativeError::from(format!("the convolution exceeds its binding {at}")));
            }
        }
        if bound[2].len() < SCRATCH || !bound[3].access().writes() || !bound[2].access().writes() {
            return Err(NativeError::from("the convolution must bind its scratch and its result to write"));
        }
        let at = |index: usize| context.address(&bound[index]);
        // Input, weights, output.
        let pointers = match self.kind {
            ConvolutionKind::Forward => [at(0), at(1), at(3)],
            ConvolutionKind::Weights => [at(0), at(3), at(1)],
        };
        self.launch(context, pointers, at(2)).map_err(|error| error.to_string().into())
    }

    fn launch(&self, context: &NativeContext, pointers: [u64; 3], scratch: u64) -> Result<()> {
        let dnn = context.shared().dnn()?;
        let missing = CudaError::Library { library: "cuDNN", call: "plan", code: 3 };
        let plans = dnn.plans(context.shared(), self).ok_or(missing)?;
        let pack = Object::new(dnn.calls, VARIANT_PACK)?;
        pack.set(1000, OF_INT64, &[1i64, 2, 3])?;
        pack.set(1001, OF_POINTER, &pointers)?;
        pack.set(1003, OF_POINTER, &[scratch])?;
        let pack = pack.finish()?;
        let handle = lock(&dnn.handle);
        // SAFETY: handle and stream belong to the context, which is current.
        check("cudnnSetStream", unsafe { (dnn.calls.set_stream)(handle.0, context.stream()) })?;
        let execute = |plan: &Plan| {
            // SAFETY: `run` checked that all arrays lie inside of their bindings, which live until the
            // command is finished; the plan needs no more scratch than is bound.
            check("cudnnBackendExecute", unsafe { (dnn.calls.execute)(handle.0, plan.plan.raw, pack.raw) })
        };
        let chosen = match plans.chosen.get() {
            Some(chosen) => *chosen,
            None => {
                let best = if plans.all.len() > 1 { fastest(context, &plans.all, execute)? } else { 0 };
                *plans.chosen.get_or_init(|| best)
            }
        };
        let done = execute(&plans.all[chosen]);
        static FIRST: Once = Once::new();
        shutdown::register_again_once(&FIRST);
        done
    }
}

/// Measures each plan and returns the fastest.
fn fastest(context: &NativeContext, plans: &[Plan], execute: impl Fn(&Plan) -> Result<()>) -> Result<usize> {
    let driver = context.context().driver();
    let current = context.context().enter()?;
    let stream = CUstream(context.stream());
    let event = || Ok(Timing { driver, raw: current.create_event(CU_EVENT_DEFAULT)? });
    let (start, end): (Timing, Timing) = (event()?, event()?);
    let mut best = (f32::INFINITY, 0);
    for (number, plan) in plans.iter().enumerate() {
        // The first run loads code.
        if execute(plan).is_err() {
            continue;
        }
        let mut taken = 0.0f32;
        // SAFETY: events and stream belong to the current context and are alive.
        unsafe {
            driver.check("cuEventRecord", (driver.event_record)(start.raw, stream))?;
            execute(plan)?;
            execute(plan)?;
            driver.check("cuEventRecord", (driver.event_record)(end.raw, stream))?;
            driver.check("cuEventSynchronize", (driver.event_synchronize)(end.raw))?;
            let elapsed = (driver.event_elapsed_time)(&mut taken, start.raw, end.raw);
            driver.check("cuEventElapsedTime", elapsed)?;
        }
        if taken < best.0 {
            best = (taken, number);
        }
    }
    Ok(best.1)
}

/// An event with timing, destroyed on drop.
struct Timing {
    driver: &'static Driver,
    raw: CUevent,
}

impl Drop for Timing {
    fn drop(&mut self) {
        // SAFETY: the event is owned and alive.
        unsafe { (self.driver.event_destroy)(self.raw) };
    }
}

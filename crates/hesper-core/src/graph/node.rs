//! Arrays: handles on nodes of the graph.
//!
//! An [`Array`] is a shape, an element type and either the op that will compute it or the memory that
//! holds it. Ops check their arguments at once and compute nothing; evaluation (see
//! [`eval`](crate::eval)) turns ops into commands, and an array that has been evaluated drops the op
//! and the inputs that made it.

pub(crate) mod node_pool;
mod quick;
mod unlink;

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use hesper_runtime::{Buffer, Runtime, Stream};
use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::eval::Owned;
use crate::ops::OpRef;
use crate::shape::{Shape, Strides, is_row_major, row_major, size_of};
use crate::transform::scope::{Scope, outermost};
use crate::{Dtype, Element, placement};

pub use quick::is_quick;

/// A lazy array. Cloning is cheap; any thread may build, evaluate, read or drop it.
///
/// ```
/// use hesper::Array;
/// let x = Array::from_slice(&[1.0f32, 2.0, 3.0]);
/// let y = (&x * 2.0 + 1.0).exp()?;
/// assert_eq!(y.shape(), [3]);
/// assert!((y.to_vec::<f32>()?[0] - 3f32.exp()).abs() < 1e-4);
/// # Ok::<(), hesper::Error>(())
/// ```
#[derive(Clone)]
pub struct Array(pub(crate) Arc<Node>);

/// A node of the graph.
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) shape: Shape,
    pub(crate) dtype: Dtype,
    pub(crate) stream: Stream,
    /// The outermost transformation that the node was built in, if it depends on what that one varies.
    pub(crate) scope: Option<Arc<Scope>>,
    pub(crate) visit: Visit,
    state: Mutex<State>,
}

/// The last evaluation that visited the node, and the node's slot in it. Written only while claims are
/// taken, and then read only by the evaluation that has claimed the node.
#[derive(Default)]
pub(crate) struct Visit {
    pub(crate) number: AtomicU64,
    pub(crate) slot: AtomicU32,
}

/// The bytes of an element that the host knows. Aligned, so that its holders are copied by words.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(8))]
pub(crate) struct KnownBytes(pub(crate) [u8; 8]);

/// What is known of a node's value.
pub(crate) enum State {
    /// Not computed: the op and its inputs. An evaluation that claims it takes the call, unless a
    /// transformation still needs that: then it stays here, and the node says that it is `claimed`.
    Lazy { call: Call, claimed: bool },
    /// An evaluation has the call. It makes the node ready, failed or lazy again.
    Claimed,
    /// Its memory, filled or about to be: the runtime knows what fills it.
    Ready(Data),
    /// The same, and the call that made it: a transformation still needs it. Boxed, as it is rare.
    Kept(Box<(Data, Call)>),
    /// A single number that the host knows; gets memory when needed.
    Known(KnownBytes),
    /// It cannot be computed any more: an op failed after it had overwritten an input. The first cause.
    /// Without a cause, an op has the memory, and only that op can reach the node.
    Failed(Option<Box<Error>>),
}

/// An op and its inputs.
#[derive(Clone)]
pub struct Call {
    pub op: OpRef,
    pub inputs: SmallVec<[Array; 3]>,
}

/// Where an array's elements are.
#[derive(Debug)]
pub struct Data {
    /// The memory.
    pub buffer: Buffer,
    /// Of the first element, in elements.
    pub offset: isize,
    /// Of each axis, in elements.
    pub strides: Strides,
}

impl Clone for Data {
    fn clone(&self) -> Self {
        // From a slice: the elements are copied as bytes.
        Data { buffer: self.buffer.clone(), offset: self.offset, strides: Strides::from_slice(&self.strides) }
    }
}

impl Data {
    /// Row-major elements from the first byte on.
    pub fn contiguous(buffer: Buffer, shape: &[usize]) -> Self {
        Data { buffer, offset: 0, strides: row_major(shape) }
    }

    /// The same elements on a device: itself, or a copy that is kept beside its memory.
    pub fn on(&self, runtime: &Runtime) -> Result<Data> {
        let buffer = self.buffer.on(runtime)?;
        Ok(Data { buffer, offset: self.offset, strides: Strides::from_slice(&self.strides) })
    }
}

static IDS: AtomicU64 = AtomicU64::new(1);

impl Array {
    fn new(shape: Shape, dtype: Dtype, stream: &Stream, scope: Option<Arc<Scope>>, state: State) -> Self {
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let visit = Visit::default();
        if let Some(mut recycled) = node_pool::take()
            && let Some(node) = Arc::get_mut(&mut recycled)
        {
            (node.id, node.shape, node.dtype, node.scope, node.visit) = (id, shape, dtype, scope, visit);
            if node.stream.id() != stream.id() {
                node.stream = stream.clone();
            }
            *node.state.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()) = state;
            return Array(recycled);
        }
        let stream = stream.clone();
        Array(Arc::new(Node { id, shape, dtype, stream, scope, visit, state: Mutex::new(state) }))
    }

    /// An array that `op` will compute from `inputs`.
    pub(crate) fn lazy(shape: Shape, dtype: Dtype, op: OpRef, inputs: SmallVec<[Array; 3]>) -> Result<Self> {
        size_of(&shape)?;
        let scope = outermost(&inputs);
        let state = State::Lazy { call: Call { op, inputs }, claimed: false };
        placement::with_current(|stream| Array::new(shape, dtype, stream, scope, state))
    }

    /// The same on a given stream.
    pub(crate) fn lazy_on(
        stream: Stream,
        shape: Shape,
        dtype: Dtype,
        op: OpRef,
        inputs: SmallVec<[Array; 3]>,
    ) -> Self {
        let scope = outermost(&inputs);
        Array::new(shape, dtype, &stream, scope, State::Lazy { call: Call { op, inputs }, claimed: false })
    }

    /// An array that a transformation varies.
    pub(crate) fn varied(
        scope: &Arc<Scope>,
        shape: Shape,
        dtype: Dtype,
        op: OpRef,
        inputs: SmallVec<[Array; 3]>,
    ) -> Result<Self> {
        let scope = outermost(&inputs).unwrap_or_else(|| scope.clone());
        let state = State::Lazy { call: Call { op, inputs }, claimed: false };
        placement::with_current(|stream| Array::new(shape, dtype, stream, Some(scope), state))
    }

    /// An array on memory that exists.
    pub(crate) fn ready(shape: Shape, dtype: Dtype, data: Data) -> Result<Self> {
        placement::with_current(|stream| Array::new(shape, dtype, stream, None, State::Ready(data)))
    }

    /// The lengths of its axes.
    pub fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    /// The type of its elements.
    ///
    /// ```
    /// use hesper::{Dtype, array};
    /// let x = array![[1.0, 2.0], [3.0, 4.0]].astype(Dtype::Float16)?;
    /// assert_eq!((x.shape(), x.dtype()), (&[2, 2][..], Dtype::Float16));
    /// assert_eq!((x.ndim(), x.size(), x.nbytes()), (2, 4, 8));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn dtype(&self) -> Dtype {
        self.0.dtype
    }

    /// The stream that computes it.
    ///
    /// ```
    /// use hesper::{array, placement};
    /// let on = placement::Device::Cpu.stream()?;
    /// let x = placement::with_stream(&on, || array![1.0, 2.0].exp())?;
    /// assert_eq!(x.stream().id(), on.id());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn stream(&self) -> &Stream {
        &self.0.stream
    }

    /// The number of its axes.
    pub fn ndim(&self) -> usize {
        self.0.shape.len()
    }

    /// The number of its elements.
    pub fn size(&self) -> usize {
        self.0.shape.iter().product()
    }

    /// Bytes of all elements.
    pub fn nbytes(&self) -> usize {
        self.size() * self.dtype().size()
    }

    /// Whether its memory exists (the commands that fill it may still run).
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![1.0, 2.0].exp()?;
    /// assert!(!x.is_evaluated());
    /// x.eval()?;
    /// assert!(x.is_evaluated());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn is_evaluated(&self) -> bool {
        matches!(*self.state(), State::Ready(_) | State::Kept(..) | State::Known(_))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// An array of no axes whose one element is known.
    pub(crate) fn known(bytes: &[u8], dtype: Dtype) -> Result<Self> {
        let mut element = KnownBytes::default();
        element.0[..bytes.len()].copy_from_slice(bytes);
        placement::with_current(|stream| Array::new(Shape::new(), dtype, stream, None, State::Known(element)))
    }

    /// What `f` says of the memory of an array, if it has some.
    pub(crate) fn with_data<R>(&self, f: impl FnOnce(&Data) -> R) -> Option<R> {
        match &*self.state() {
            State::Ready(data) => Some(f(data)),
            State::Kept(kept) => Some(f(&kept.0)),
            State::Lazy { .. } | State::Claimed | State::Known(_) | State::Failed(_) => None,
        }
    }

    /// The memory of an array that is not lazy.
    pub(crate) fn data(&self) -> Result<Data> {
        let element = match &*self.state() {
            State::Ready(data) => return Ok(data.clone()),
            State::Kept(kept) => return Ok(kept.0.clone()),
            State::Known(element) => *element,
            State::Lazy { call, .. } => {
                let what = format!("{} was not evaluated before its result was read", call.op.name());
                return Err(Error::value("evaluation", what));
            }
            State::Claimed => {
                return Err(Error::value(
                    "evaluation",
                    "an array was read while another evaluation computes it",
                ));
            }
            State::Failed(cause) => return Err(failure(cause)),
        };
        // The state is not locked meanwhile: an upload may wait for memory.
        let buffer = placement::cpu().upload(&element.0[..self.dtype().size()])?;
        let data = Data::contiguous(buffer, &[]);
        match &mut *self.state() {
            // Another thread uploaded it first.
            State::Ready(data) => Ok(data.clone()),
            state => {
                *state = State::Ready(data.clone());
                Ok(data)
            }
        }
    }

    /// Takes the memory out of an array, if this is the only handle on the array and on its memory. Then only
    /// the caller can reach it: to overwrite it, or to [give it back](Array::give_back).
    pub(crate) fn take_owned(&mut self) -> Option<Owned> {
        if self.is_varied() {
            return None;
        }
        let node = Arc::get_mut(&mut self.0)?;
        let state = node.state.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        let data = match std::mem::replace(state, State::Failed(None)) {
            State::Ready(data) => data,
            State::Kept(kept) => kept.0,
            other => {
                *state = other;
                return None;
            }
        };
        match Owned::of(data) {
            Ok(owned) => Some(owned),
            Err(data) => {
                *state = State::Ready(data);
                None
            }
        }
    }

    /// Takes memory back that was [taken](Array::take_owned) and not overwritten.
    pub(crate) fn give_back(&self, data: Data) {
        let mut state = self.state();
        if matches!(*state, State::Failed(None)) {
            *state = State::Ready(data);
        }
    }

    /// Whether this is the only handle on the node: then no other thread can get one.
    pub(crate) fn is_sole(&mut self) -> bool {
        Arc::get_mut(&mut self.0).is_some()
    }

    /// The call that makes the array, as far as it is still known. `None` while the array is evaluated: the
    /// evaluation has the call, and may overwrite its inputs.
    pub(crate) fn call(&self) -> Option<Call> {
        match &*self.state() {
            State::Lazy { call, .. } => Some(call.clone()),
            State::Kept(kept) => Some(kept.1.clone()),
            State::Claimed | State::Ready(_) | State::Known(_) | State::Failed(_) => None,
        }
    }

    /// Whether an open transformation may ask for its call.
    pub(crate) fn is_varied(&self) -> bool {
        self.0.scope.as_ref().is_some_and(|scope| scope.is_open())
    }

    /// Drops the op and the inputs of an evaluated array, unless a transformation needs them.
    pub(crate) fn forget(&self) {
        if self.is_varied() {
            return;
        }
        let mut state = self.state();
        if let State::Kept(kept) = &*state {
            let data = kept.0.clone();
            let old = std::mem::replace(&mut *state, State::Ready(data));
            // The inputs may be a large graph: they are dropped without the lock.
            drop(state);
            drop(old);
        }
    }

    /// Whether both have one shape and one stream.
    pub(crate) fn is_alike(&self, other: &Array) -> bool {
        self.0.shape == other.0.shape && self.0.stream.id() == other.0.stream.id()
    }

    /// Whether both are handles of the same array. To compare elements, use [`Array::array_equal`].
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![1, 2];
    /// assert!(x.ptr_eq(&x.clone()));
    /// assert!(!x.ptr_eq(&array![1, 2]));
    /// ```
    pub fn ptr_eq(&self, other: &Array) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Computes the array; returns when it is computed, or has failed.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![1.0, 4.0].sqrt()?;
    /// x.eval()?; // later readers find the elements in memory
    /// assert!(x.is_evaluated());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn eval(&self) -> Result<()> {
        crate::eval::schedule(&[self])?;
        Ok(self.data()?.buffer.wait()?)
    }

    /// Calls `f` with the elements, row by row, after computing them.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![3, 1, 2].multiply(10)?;
    /// assert_eq!(x.read(|elements: &[i32]| elements.iter().max().copied())?, Some(30));
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn read<T: Element, R>(&self, f: impl FnOnce(&[T]) -> R) -> Result<R> {
        if self.dtype() != T::DTYPE {
            return Err(Error::Type {
                op: "read".into(),
                what: format!("elements of {} asked of an array", T::DTYPE),
                dtype: self.dtype(),
            });
        }
        self.read_bytes(|bytes| f(bytemuck::cast_slice(bytes)))
    }

    /// Calls `f` with the bytes of the elements, row by row, after computing them.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![1u16, 2];
    /// assert_eq!(x.read_bytes(<[u8]>::to_vec)?, [1u16.to_ne_bytes(), 2u16.to_ne_bytes()].concat());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn read_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> Result<R> {
        crate::eval::schedule(&[self])?;
        let mut data = self.data()?;
        if !is_row_major(self.shape(), &data.strides) {
            let row_by_row = self.contiguous()?;
            crate::eval::schedule(&[&row_by_row])?;
            data = row_by_row.data()?;
        }
        let start = if self.size() == 0 { 0 } else { data.offset as usize * self.dtype().size() };
        let guard = data.buffer.read_range(start..start + self.nbytes())?;
        let result = f(guard.bytes());
        // Those of a mapped file may have gone while they were read.
        guard.check()?;
        Ok(result)
    }

    /// The elements, row by row.
    ///
    /// ```
    /// use hesper::array;
    /// let x = array![[1.0, 2.0], [3.0, 4.0]];
    /// assert_eq!(x.t()?.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// assert!(x.to_vec::<f64>().is_err()); // a vector of another type: astype first
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.read(<[T]>::to_vec)
    }

    /// The one element of an array of size one.
    ///
    /// ```
    /// use hesper::array;
    /// assert_eq!(array![1.0, 2.5].sum(())?.item::<f32>()?, 3.5);
    /// assert!(array![1.0, 2.5].item::<f32>().is_err());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn item<T: Element>(&self) -> Result<T> {
        if self.size() != 1 {
            return Err(Error::value(
                "item",
                format!("an array of shape {:?} has no single element", self.shape()),
            ));
        }
        self.read(|elements: &[T]| elements[0])
    }

    /// A one-dimensional array with a copy of `elements`.
    ///
    /// Panics where the host has no memory for it; [`Array::try_from_slice`] gives an error.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let x = Array::from_slice(&[1.5f64, 2.5]);
    /// assert_eq!((x.shape(), x.dtype()), (&[2][..], Dtype::Float64));
    /// ```
    pub fn from_slice<T: Element>(elements: &[T]) -> Self {
        match Array::try_from_slice(elements, &[elements.len()]) {
            Ok(array) => array,
            Err(error) => panic!("{error}"),
        }
    }

    /// An array of a shape with a copy of `elements`, row by row.
    ///
    /// ```
    /// use hesper::Array;
    /// let x = Array::try_from_slice(&[1, 2, 3, 4, 5, 6], &[2, 3])?;
    /// assert_eq!(x.sum(1)?.to_vec::<i32>()?, [6, 15]);
    /// assert!(Array::try_from_slice(&[1, 2, 3], &[2, 3]).is_err());
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn try_from_slice<T: Element>(elements: &[T], shape: &[usize]) -> Result<Self> {
        Array::from_bytes(bytemuck::cast_slice(elements), T::DTYPE, shape)
    }

    /// An array of a shape and type with a copy of its bytes, row by row.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let x = Array::from_bytes(&[1, 0, 1], Dtype::Bool, &[3])?;
    /// assert_eq!(x.to_bools()?, [true, false, true]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn from_bytes(bytes: &[u8], dtype: Dtype, shape: &[usize]) -> Result<Self> {
        let size = size_of(shape)?;
        if size * dtype.size() != bytes.len() {
            let what = format!("{} bytes do not make an array of {dtype} and shape {shape:?}", bytes.len());
            return Err(Error::shape("array", what));
        }
        let buffer = placement::cpu().upload(bytes)?;
        Array::ready(shape.into(), dtype, Data::contiguous(buffer, shape))
    }

    /// A read-only array on memory that `owner` owns (a mapped file, an array of another
    /// library), without a copy.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// use hesper::HostMemory;
    /// struct Lines(Vec<u8>);
    /// // SAFETY: a vector's bytes do not move with it, and nothing changes them.
    /// unsafe impl HostMemory for Lines {
    ///     fn bytes(&self) -> &[u8] {
    ///         &self.0
    ///     }
    /// }
    /// let x = Array::adopt(Lines(vec![1, 2, 3, 4]), "lines", Dtype::Uint8, &[2, 2])?;
    /// assert_eq!(x.sum(0)?.to_vec::<u32>()?, [4, 6]);
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn adopt(
        owner: impl hesper_runtime::HostMemory,
        what: &'static str,
        dtype: Dtype,
        shape: &[usize],
    ) -> Result<Self> {
        let (needed, len) = (size_of(shape)? * dtype.size(), owner.bytes().len());
        if needed != len {
            let text = format!("{len} bytes of {what} do not make an array of {dtype} and shape {shape:?}");
            return Err(Error::shape("adopt", text));
        }
        if !(owner.bytes().as_ptr() as usize).is_multiple_of(dtype.size()) {
            let copy = owner.bytes().to_vec();
            return Array::from_bytes(&copy, dtype, shape);
        }
        let buffer = placement::cpu().adopt(owner, what)?;
        Array::ready(shape.into(), dtype, Data::contiguous(buffer, shape))
    }
}

/// Why an array has failed.
pub(crate) fn failure(cause: &Option<Box<Error>>) -> Error {
    match cause {
        Some(cause) => (**cause).clone(),
        None => Error::value("evaluation", "an op has taken the memory of the array"),
    }
}

/// A graph of a million nodes is dropped without recursion: see [`unlink`].
impl Drop for Node {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        if matches!(state, State::Ready(_) | State::Known(_)) {
            return;
        }
        match std::mem::replace(state, State::Known(KnownBytes::default())) {
            State::Lazy { call, .. } => unlink::unlink(call),
            State::Kept(kept) => unlink::unlink(kept.1),
            State::Claimed | State::Ready(_) | State::Known(_) | State::Failed(_) => {}
        }
    }
}

/// The elements, as `Display` prints them, if they are computed; else shape, type and op. Computes nothing.
impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &*self.state() {
            State::Lazy { call, claimed: false } => Some(format!("lazy {}", call.op.name())),
            State::Lazy { call, claimed: true } => Some(format!("being evaluated {}", call.op.name())),
            State::Claimed => Some("being evaluated".to_string()),
            State::Failed(_) => Some("failed".to_string()),
            State::Ready(_) | State::Kept(..) | State::Known(_) => None,
        };
        match state {
            Some(state) => write!(f, "Array({:?}, {}, {state})", self.shape(), self.dtype()),
            None => fmt::Display::fmt(self, f),
        }
    }
}

//! Arrays: handles on nodes of the graph.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};

use hesper_runtime::{Buffer, Runtime, Stream};
use smallvec::SmallVec;

use super::op::OpRef;
use super::operand::Owned;
use super::scope::Scope;
use super::unlink;
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::shape::{self, Shape, Strides, row_major};

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
    pub(crate) state: Mutex<State>,
}

/// The last walk that met the node, and the node's slot in it. A walk that reads a node which is computed may
/// find there what another one has written, and asks its own table then.
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

impl Array {
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

    /// The length of an axis; a negative one counts from the last.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let x = Array::zeros(&[2, 3], Dtype::Float32)?;
    /// assert_eq!((x.dim(0)?, x.dim(-1)?), (2, 3));
    /// assert_eq!(x.dim(2).unwrap_err().to_string(), "dim: axis 2 is out of range for an array of 2 dimensions");
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn dim(&self, axis: isize) -> Result<usize> {
        Ok(self.shape()[shape::axis("dim", axis, self.ndim())?])
    }

    /// The lengths of its axes, if it has `N` of them.
    ///
    /// ```
    /// use hesper::{Array, Dtype};
    /// let x = Array::zeros(&[2, 3], Dtype::Float32)?;
    /// let [rows, columns] = x.dims()?;
    /// assert_eq!((rows, columns), (2, 3));
    /// assert_eq!(x.dims::<3>().unwrap_err().to_string(), "dims: the array of shape [2, 3] has 2 axes, not 3");
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn dims<const N: usize>(&self) -> Result<[usize; N]> {
        self.shape().try_into().map_err(|_| {
            let what = format!("the array of shape {:?} has {} axes, not {N}", self.shape(), self.ndim());
            Error::shape("dims", what).with_shapes([self])
        })
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

    /// What `f` says of the memory of an array, if it has some.
    pub(crate) fn with_data<R>(&self, f: impl FnOnce(&Data) -> R) -> Option<R> {
        match &*self.state() {
            State::Ready(data) => Some(f(data)),
            State::Kept(kept) => Some(f(&kept.0)),
            State::Lazy { .. } | State::Claimed | State::Known(_) | State::Failed(_) => None,
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

    /// Shape, type and stream.
    pub(crate) fn like(&self) -> (&[usize], Dtype, &Stream) {
        (&self.0.shape, self.0.dtype, &self.0.stream)
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

impl Error {
    /// The same error with the shapes that do not fit.
    ///
    /// ```
    /// use hesper::{Array, Dtype, Error};
    /// let x = Array::ones(&[2, 3], Dtype::Float32)?;
    /// match x.matmul(&x) {
    ///     Err(Error::Shape { shapes, .. }) => assert_eq!(shapes, [[2, 3], [2, 3]]),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok::<(), hesper::Error>(())
    /// ```
    pub fn with_shapes<'a>(self, given: impl IntoIterator<Item = &'a Array>) -> Self {
        match self {
            Error::Shape { op, what, .. } => {
                let shapes = given.into_iter().map(|array| array.shape().to_vec()).collect();
                Error::Shape { op, what, shapes }
            }
            other => other,
        }
    }
}

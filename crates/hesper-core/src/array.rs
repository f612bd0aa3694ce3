//! Builds arrays: lazy ones on the current stream, and ones on memory of the host.

pub(crate) mod node_pool;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hesper_runtime::Stream;
use smallvec::SmallVec;

use crate::dtype::{Dtype, Element};
use crate::error::{Error, Result};
use crate::graph::scope::{Scope, outermost};
use crate::graph::{Array, Call, Data, KnownBytes, Node, OpRef, State, Visit, failure};
use crate::placement;
use crate::shape::{Shape, size_of};

/// The id of a new node. Threads reserve ids in blocks, so that they do not meet for each node.
fn new_id() -> u64 {
    const BLOCK: u64 = 256;
    static NEXT: AtomicU64 = AtomicU64::new(BLOCK);
    thread_local! {
        static RESERVED: Cell<u64> = const { Cell::new(0) };
    }
    let reserved = RESERVED.get();
    // At the end of a block.
    let id = if reserved.is_multiple_of(BLOCK) { NEXT.fetch_add(BLOCK, Ordering::Relaxed) } else { reserved };
    RESERVED.set(id + 1);
    id
}

impl Array {
    fn new(shape: Shape, dtype: Dtype, stream: &Stream, scope: Option<Arc<Scope>>, state: State) -> Self {
        let id = new_id();
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

    /// An array on memory that exists, with the shape, type and stream of another.
    pub(crate) fn ready_on(like: &Array, data: Data) -> Self {
        let (shape, dtype, stream) = like.like();
        Array::new(shape.into(), dtype, stream, None, State::Ready(data))
    }

    /// An array of no axes whose one element is known.
    pub(crate) fn known(bytes: &[u8], dtype: Dtype) -> Result<Self> {
        let mut element = KnownBytes::default();
        element.0[..bytes.len()].copy_from_slice(bytes);
        placement::with_current(|stream| Array::new(Shape::new(), dtype, stream, None, State::Known(element)))
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

//! Predicts whether an evaluation is quick.

use crate::graph::{Array, State};

/// The largest number of nodes, and of bytes in all of them, that counts as quick.
const MAX_NODES: usize = 64;
const MAX_BYTES: usize = 1 << 20;

/// Whether evaluating arrays and waiting for them is certain to be quick: a few small ops remain, and nothing
/// is in flight on their streams. Callers use it to decide whether to wait on another thread.
///
/// ```
/// use hesper::{Array, Dtype, is_quick};
/// let x = Array::from_slice(&[1.0f32, 2.0]);
/// assert!(is_quick(&[x.exp()?]));
/// assert!(!is_quick(&[Array::ones(&[4096, 4096], Dtype::Float32)?.exp()?]));
/// # Ok::<(), hesper::Error>(())
/// ```
pub fn is_quick(arrays: &[Array]) -> bool {
    let (mut nodes, mut bytes, mut idle) = (0, 0usize, None);
    let mut stack: Vec<Array> = arrays.to_vec();
    while let Some(array) = stack.pop() {
        nodes += 1;
        bytes = bytes.saturating_add(array.nbytes());
        if nodes > MAX_NODES || bytes > MAX_BYTES {
            return false;
        }
        if idle != Some(array.0.stream.id()) {
            if array.0.stream.in_flight() > 0 {
                return false;
            }
            idle = Some(array.0.stream.id());
        }
        if let State::Lazy { call, .. } = &*array.state() {
            if call.op.get().is_opaque() {
                return false;
            }
            stack.extend(call.inputs.iter().cloned());
        }
    }
    true
}

//! A pool of graph nodes, so that building a graph does not allocate.
//!
//! A graph has thousands of small nodes, and allocating them costs as much as planning them. An evaluation
//! recycles the nodes that it drops. A thread that builds arrays takes nodes from its own list and refills
//! that from a shared one. Both lists are bounded. Only nodes of the default streams of devices are pooled: a
//! node holds its stream, and a pooled node would keep any other stream alive.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::graph::{Array, KnownBytes, Node, State};
use crate::placement;

/// The largest number of nodes in the shared list, and in the list of a thread.
const MAX_SHARED: usize = 1 << 14;
const PER_THREAD: usize = 64;

static SHARED: Mutex<Vec<Arc<Node>>> = Mutex::new(Vec::new());
/// The length of the shared list, read without its lock.
static SHARED_COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LOCAL: RefCell<Vec<Arc<Node>>> = const { RefCell::new(Vec::new()) };
}

fn shared() -> MutexGuard<'static, Vec<Arc<Node>>> {
    SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Clears the node of an array for reuse. `None` if there is another handle on it, or if it is not of a
/// default stream.
pub(crate) fn recycle(mut array: Array) -> Option<Arc<Node>> {
    let node = Arc::get_mut(&mut array.0)?;
    if !placement::is_default(&node.stream) {
        return None;
    }
    node.scope = None;
    if node.shape.spilled() {
        node.shape = Default::default();
    }
    *node.state.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()) =
        State::Known(KnownBytes::default());
    Some(array.0)
}

/// Moves recycled nodes to the pool. Nodes beyond its limits are dropped.
pub(crate) fn give(nodes: &mut Vec<Arc<Node>>) {
    // While a thread ends, its list may have been destroyed.
    let _ = LOCAL.try_with(|local| {
        let mut local = local.borrow_mut();
        let room = PER_THREAD.saturating_sub(local.len()).min(nodes.len());
        local.extend(nodes.drain(nodes.len() - room..));
    });
    if !nodes.is_empty() {
        let mut shared = shared();
        let room = MAX_SHARED.saturating_sub(shared.len()).min(nodes.len());
        shared.extend(nodes.drain(nodes.len() - room..));
        SHARED_COUNT.store(shared.len(), Ordering::Relaxed);
    }
    nodes.clear();
}

/// A recycled node, if there is one.
pub(crate) fn take() -> Option<Arc<Node>> {
    LOCAL
        .try_with(|local| {
            let mut local = local.borrow_mut();
            if local.is_empty() && SHARED_COUNT.load(Ordering::Relaxed) > 0 {
                let mut shared = shared();
                let rest = shared.len().saturating_sub(PER_THREAD);
                local.extend(shared.drain(rest..));
                SHARED_COUNT.store(rest, Ordering::Relaxed);
            }
            local.pop()
        })
        .ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recycled_nodes_hold_no_inputs_and_are_reused() {
        let x = Array::from_slice(&[1.0f32, 2.0]);
        let y = x.add(1.0).unwrap();
        let node = Arc::as_ptr(&y.0);
        let held = Arc::strong_count(&x.0);
        give(&mut Vec::from_iter(recycle(y)));
        assert_eq!(Arc::strong_count(&x.0), held - 1);
        let z = x.multiply(3.0).unwrap();
        // The scalar operand is a node, too.
        let used = z.call().is_some_and(|call| Arc::as_ptr(&call.inputs[1].0) == node);
        assert!(used || Arc::as_ptr(&z.0) == node);
        assert_eq!(z.to_vec::<f32>().unwrap(), [3.0, 6.0]);
    }

    #[test]
    fn nodes_with_other_handles_and_nodes_of_other_streams_are_not_recycled() {
        let x = Array::from_slice(&[1.0f32]);
        let (y, other) = (x.add(1.0).unwrap(), placement::cpu().stream().unwrap());
        assert!(recycle(y.clone()).is_none());
        assert_eq!(y.to_vec::<f32>().unwrap(), [2.0]);
        let z = placement::with_stream(&other, || x.add(1.0)).unwrap();
        assert!(recycle(z).is_none());
    }
}

//! Nodes that nobody needs any more, for those to come.
//!
//! A graph is thousands of small nodes, and what the allocator takes for them is as much as planning them. An evaluation
//! keeps the nodes that it lets go of, empty; a thread that builds arrays takes them from a list of its own, which it fills
//! from one that all share. Both are bounded. Only nodes of the host's default stream are kept: a stream of the
//! program's ends with the last array that names it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::{Array, KnownBytes, Node, State};
use crate::place;

/// Most nodes that all threads share, and that a thread keeps for itself.
const MOST: usize = 1 << 14;
const OWN: usize = 64;

static SHARED: Mutex<Vec<Arc<Node>>> = Mutex::new(Vec::new());
/// How many are shared: a thread that finds none does not lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LOCAL: RefCell<Vec<Arc<Node>>> = const { RefCell::new(Vec::new()) };
}

fn shared() -> MutexGuard<'static, Vec<Arc<Node>>> {
    SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The node of an array that nobody else holds, without what it held.
pub(crate) fn emptied(mut array: Array) -> Option<Arc<Node>> {
    let node = Arc::get_mut(&mut array.0)?;
    if !place::is_host_default(&node.stream) {
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

/// Takes empty nodes, and leaves none.
pub(crate) fn give(nodes: &mut Vec<Arc<Node>>) {
    // A thread that ends has no list any more.
    let _ = LOCAL.try_with(|local| {
        let mut local = local.borrow_mut();
        let room = OWN.saturating_sub(local.len()).min(nodes.len());
        local.extend(nodes.drain(nodes.len() - room..));
    });
    if !nodes.is_empty() {
        let mut shared = shared();
        let room = MOST.saturating_sub(shared.len()).min(nodes.len());
        shared.extend(nodes.drain(nodes.len() - room..));
        COUNT.store(shared.len(), Ordering::Relaxed);
    }
    nodes.clear();
}

/// An empty node, if there is one.
pub(crate) fn take() -> Option<Arc<Node>> {
    LOCAL
        .try_with(|local| {
            let mut local = local.borrow_mut();
            if local.is_empty() && COUNT.load(Ordering::Relaxed) > 0 {
                let mut shared = shared();
                let rest = shared.len().saturating_sub(OWN);
                local.extend(shared.drain(rest..));
                COUNT.store(rest, Ordering::Relaxed);
            }
            local.pop()
        })
        .ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_were_let_go_of_hold_nothing_and_are_used_again() {
        let x = Array::from_slice(&[1.0f32, 2.0]);
        let y = x.add(1.0).unwrap();
        let node = Arc::as_ptr(&y.0);
        let held = Arc::strong_count(&x.0);
        give(&mut Vec::from_iter(emptied(y)));
        assert_eq!(Arc::strong_count(&x.0), held - 1);
        let z = x.multiply(3.0).unwrap();
        // The number beside it is a node, too.
        let used = z.call().is_some_and(|call| Arc::as_ptr(&call.inputs[1].0) == node);
        assert!(used || Arc::as_ptr(&z.0) == node);
        assert_eq!(z.to_vec::<f32>().unwrap(), [3.0, 6.0]);
    }

    #[test]
    fn nodes_that_somebody_holds_and_nodes_of_other_streams_are_not_taken() {
        let x = Array::from_slice(&[1.0f32]);
        let (y, other) = (x.add(1.0).unwrap(), place::cpu().stream().unwrap());
        assert!(emptied(y.clone()).is_none());
        assert_eq!(y.to_vec::<f32>().unwrap(), [2.0]);
        let z = place::with_stream(&other, || x.add(1.0)).unwrap();
        assert!(emptied(z).is_none());
    }
}

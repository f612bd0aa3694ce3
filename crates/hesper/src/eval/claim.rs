//! Claims: which evaluation computes a node.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::plan::{Plan, plan};
use crate::array::{Array, Data, State};
use crate::error::{Error, Result};

/// Held while claims are taken, so that they are taken all together.
static CLAIMING: Mutex<u64> = Mutex::new(0);
/// Told when claims end.
static ENDED: Condvar = Condvar::new();

/// The nodes that one evaluation has taken, inputs first. Whatever it does not resolve is lazy again when it
/// is dropped: what was not lowered, and what was computed inside of a kernel and is held by nobody.
pub(super) struct Claim {
    number: u64,
    nodes: Vec<Option<Array>>,
}

impl Claim {
    /// Takes everything lazy that `roots` need. If another evaluation has some of it, waits until that
    /// one has ended, holding nothing.
    pub(super) fn take(roots: &[&Array]) -> (Claim, Plan) {
        let mut lock: MutexGuard<'_, u64> = CLAIMING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        loop {
            *lock += 1;
            match collect(roots, *lock) {
                Some(nodes) => {
                    for node in &nodes {
                        let mut state = node.state();
                        // The state is replaced for a moment; nobody else looks without the lock on it.
                        *state = match std::mem::replace(&mut *state, State::Known([0; 8])) {
                            State::Lazy(call) => State::Claimed(call),
                            other => other,
                        };
                    }
                    let number = *lock;
                    drop(lock);
                    let plan = plan(&nodes, number);
                    return (Claim { number, nodes: nodes.into_iter().map(Some).collect() }, plan);
                }
                None => lock = ENDED.wait(lock).unwrap_or_else(|poisoned| poisoned.into_inner()),
            }
        }
    }

    /// The place of a node among the claimed ones, if it is one of them.
    pub(super) fn place(&self, node: &Array) -> Option<usize> {
        place(node, self.number)
    }

    /// A node that is still needed.
    pub(super) fn node(&self, at: usize) -> Result<&Array> {
        self.nodes[at].as_ref().ok_or_else(|| Error::value("evaluation", "a node was let go too early"))
    }

    /// A node has its memory.
    pub(super) fn resolve(&mut self, at: usize, data: Data) -> Result<()> {
        let node = self.node(at)?;
        let kept = node.0.scope.as_ref().is_some_and(|scope| scope.is_open());
        let mut state = node.state();
        let old = std::mem::replace(&mut *state, State::Known([0; 8]));
        *state = match (old, kept) {
            (State::Claimed(call), true) => State::Kept(data, call),
            (old, _) => {
                *state = State::Ready(data);
                // The inputs of the call may go with it; the lock is not held then.
                drop(state);
                drop(old);
                return Ok(());
            }
        };
        Ok(())
    }

    /// Lets go of a node that nothing in the plan needs any more, and its memory with it, unless somebody
    /// else holds it.
    pub(super) fn release(&mut self, at: usize) {
        if self.nodes[at].as_ref().is_some_and(|node| Arc::strong_count(&node.0) == 1) {
            self.nodes[at] = None;
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for node in self.nodes.iter().flatten() {
            let mut state = node.state();
            if matches!(*state, State::Claimed(_)) {
                *state = match std::mem::replace(&mut *state, State::Known([0; 8])) {
                    State::Claimed(call) => State::Lazy(call),
                    other => other,
                };
            }
        }
        drop(CLAIMING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        ENDED.notify_all();
    }
}

/// The lazy nodes that `roots` need, inputs first; `None` if one of them is claimed by somebody else.
/// Goes through the graph without recursion.
fn collect(roots: &[&Array], number: u64) -> Option<Vec<Array>> {
    enum Visit {
        Enter(Array),
        Leave(Array),
    }
    let mut nodes = Vec::new();
    let mut stack: Vec<Visit> = roots.iter().rev().map(|root| Visit::Enter((*root).clone())).collect();
    while let Some(visit) = stack.pop() {
        match visit {
            Visit::Leave(array) => {
                array.0.visit.place.store(nodes.len(), Ordering::Relaxed);
                nodes.push(array);
            }
            Visit::Enter(array) => {
                if array.0.visit.number.load(Ordering::Relaxed) == number {
                    continue;
                }
                let at = stack.len();
                match &*array.state() {
                    State::Ready(_) | State::Kept(..) | State::Known(_) => continue,
                    State::Claimed(_) => return None,
                    State::Lazy(call) => {
                        stack.extend(call.inputs.iter().rev().map(|input| Visit::Enter(input.clone())));
                    }
                }
                array.0.visit.number.store(number, Ordering::Relaxed);
                stack.insert(at, Visit::Leave(array));
            }
        }
    }
    Some(nodes)
}

/// The place of a node among those of an evaluation, if that one has claimed it.
pub(super) fn place(node: &Array, number: u64) -> Option<usize> {
    let visit = &node.0.visit;
    (visit.number.load(Ordering::Relaxed) == number).then(|| visit.place.load(Ordering::Relaxed))
}

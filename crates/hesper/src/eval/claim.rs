//! Claims: which evaluation computes a node.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard};

use crate::array::{Array, Call, Data, State};

/// Held while claims are taken, so that they are taken all together.
static CLAIMING: Mutex<()> = Mutex::new(());
/// Told when claims end.
static ENDED: Condvar = Condvar::new();

/// The nodes that one evaluation has taken, inputs first. Whatever it does not resolve is lazy again when it
/// is dropped: what was not lowered, and what was computed inside of a kernel and is held by nobody.
pub(super) struct Claim {
    nodes: Vec<Array>,
    /// Calls of resolved nodes, dropped at the end: their inputs may be large graphs or memory.
    calls: Vec<Call>,
}

impl Claim {
    /// Takes everything lazy that `roots` need. If another evaluation has some of it, waits until that
    /// one has ended, holding nothing.
    pub(super) fn take(roots: &[&Array]) -> Claim {
        let mut lock: MutexGuard<'_, ()> = CLAIMING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        loop {
            match collect(roots) {
                Some(nodes) => {
                    for node in &nodes {
                        let mut state = node.state();
                        // The state is replaced for a moment; nobody else looks without the lock on it.
                        *state = match std::mem::replace(&mut *state, State::Known([0; 8])) {
                            State::Lazy(call) => State::Claimed(call),
                            other => other,
                        };
                    }
                    return Claim { nodes, calls: Vec::new() };
                }
                None => lock = ENDED.wait(lock).unwrap_or_else(|poisoned| poisoned.into_inner()),
            }
        }
    }

    pub(super) fn nodes(&self) -> &[Array] {
        &self.nodes
    }

    /// A node has its memory.
    pub(super) fn resolve(&mut self, at: usize, data: Data) {
        let node = &self.nodes[at];
        let kept = node.0.scope.as_ref().is_some_and(|scope| scope.is_open());
        let mut state = node.state();
        if let State::Claimed(call) = std::mem::replace(&mut *state, State::Known([0; 8])) {
            if kept {
                *state = State::Kept(data, call);
                return;
            }
            self.calls.push(call);
        }
        *state = State::Ready(data);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for node in &self.nodes {
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
fn collect(roots: &[&Array]) -> Option<Vec<Array>> {
    enum Visit {
        Enter(Array),
        Leave(Array),
    }
    let mut seen: HashSet<u64> = HashSet::new();
    let mut nodes = Vec::new();
    let mut stack: Vec<Visit> = roots.iter().rev().map(|root| Visit::Enter((*root).clone())).collect();
    while let Some(visit) = stack.pop() {
        match visit {
            Visit::Leave(array) => nodes.push(array),
            Visit::Enter(array) => {
                if seen.contains(&array.0.id) {
                    continue;
                }
                let inputs = match &*array.state() {
                    State::Ready(_) | State::Kept(..) | State::Known(_) => continue,
                    State::Claimed(_) => return None,
                    State::Lazy(call) => call.inputs.clone(),
                };
                seen.insert(array.0.id);
                stack.push(Visit::Leave(array));
                stack.extend(inputs.into_iter().rev().map(Visit::Enter));
            }
        }
    }
    Some(nodes)
}

//! Claims: which evaluation computes a node.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::plan::{Graph, Plan, Role, plan};
use crate::array::{Array, Data, State, Visit};
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
                Some((nodes, graph)) => {
                    let number = *lock;
                    drop(lock);
                    // Each use is a reference, and one is that of `nodes`.
                    let plan = plan(&nodes, &graph, |_, uses| uses + 1);
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
        let kept = node.is_varied();
        let mut state = node.state();
        let old = std::mem::replace(&mut *state, State::Known([0; 8]));
        *state = match (old, kept) {
            (State::Lazy { call, .. }, true) => State::Kept(Box::new((data, call))),
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
        self.nodes.iter().flatten().for_each(give_free);
        drop(CLAIMING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        ENDED.notify_all();
    }
}

/// Ends the claim on a node.
fn give_free(node: &Array) {
    if let State::Lazy { claimed, .. } = &mut *node.state() {
        *claimed = false;
    }
}

/// Claims the lazy nodes that `roots` need, inputs first; claims none and gives `None` if somebody else has
/// claimed one of them. Goes through the graph without recursion.
fn collect(roots: &[&Array], number: u64) -> Option<(Vec<Array>, Graph)> {
    enum Next {
        Enter(Array),
        Leave(Array),
    }
    let (mut nodes, mut graph) = (Vec::new(), Graph::default());
    let mut stack: Vec<Next> = roots.iter().rev().map(|root| Next::Enter((*root).clone())).collect();
    while let Some(next) = stack.pop() {
        match next {
            Next::Leave(array) => {
                if let State::Lazy { call, .. } = &*array.state() {
                    let reads = call.inputs.iter().filter_map(|input| place(input, number));
                    let lazy = |input: &&Array| place(input, number).is_some();
                    let first = call.inputs.first().filter(lazy).map(|input| &input.0);
                    let first = first.map(|input| (&input.shape[..], input.dtype, &input.stream));
                    graph.push(reads, Role::of(&call.op, &array.0.stream, first));
                }
                array.0.visit.place.store(nodes.len(), Ordering::Relaxed);
                nodes.push(array);
            }
            Next::Enter(array) => {
                let visit = &array.0.visit;
                if visit.number.load(Ordering::Relaxed) == number {
                    continue;
                }
                let at = stack.len();
                let mut state = array.state();
                // Whoever has claimed it finds its place there while he lowers: it is not written over.
                if !matches!(*state, State::Lazy { claimed: true, .. }) {
                    visit.number.store(number, Ordering::Relaxed);
                    visit.place.store(Visit::NOWHERE, Ordering::Relaxed);
                }
                match &mut *state {
                    State::Ready(_) | State::Kept(..) | State::Known(_) => continue,
                    State::Lazy { claimed: true, .. } => {
                        nodes.iter().for_each(give_free);
                        for next in &stack {
                            if let Next::Leave(node) = next {
                                give_free(node);
                            }
                        }
                        return None;
                    }
                    State::Lazy { call, claimed } => {
                        *claimed = true;
                        let unmet = call
                            .inputs
                            .iter()
                            .rev()
                            .filter(|input| input.0.visit.number.load(Ordering::Relaxed) != number);
                        stack.extend(unmet.map(|input| Next::Enter(input.clone())));
                    }
                }
                drop(state);
                stack.insert(at, Next::Leave(array));
            }
        }
    }
    Some((nodes, graph))
}

/// The place of a node among those of an evaluation, if that one has claimed it.
pub(super) fn place(node: &Array, number: u64) -> Option<usize> {
    let visit = &node.0.visit;
    if visit.number.load(Ordering::Relaxed) != number {
        return None;
    }
    Some(visit.place.load(Ordering::Relaxed)).filter(|place| *place != Visit::NOWHERE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_that_meets_claimed_nodes_leaves_their_places_alone() {
        let x = Array::from_slice(&[1.0f32]).add(1.0).unwrap();
        let y = x.exp().unwrap();
        let (claim, _) = Claim::take(&[&y]);
        let places = (claim.place(&x), claim.place(&y));
        assert_eq!(places, (Some(0), Some(1)));
        let other = y.multiply(2.0).unwrap();
        let number = {
            let mut lock = CLAIMING.lock().unwrap();
            *lock += 1;
            *lock
        };
        assert!(collect(&[&other], number).is_none());
        assert_eq!((claim.place(&x), claim.place(&y)), places);
    }
}

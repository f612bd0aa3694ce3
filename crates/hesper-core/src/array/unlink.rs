//! Dropping graphs without recursion.
//!
//! A dropped node pushes its call onto a list of the thread, and only the outermost drop empties the list. So the stack
//! does not grow with the graph, however a node is reached: as an input, several times by one call, or through an
//! op (constants of a compiled function, captured values of a derivative rule).

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use super::Call;

thread_local! {
    /// Calls that wait to be dropped, while a drop is under way. Empty otherwise, and without a destructor: nodes are
    /// dropped while a thread ends, too.
    static PENDING: ManuallyDrop<RefCell<Option<Vec<Call>>>> = const { ManuallyDrop::new(RefCell::new(None)) };
}

/// Drops a call, now or, inside of another such drop, when that one comes to it.
pub(super) fn unlink(call: Call) {
    let mut next = PENDING.with(|pending| match &mut *pending.borrow_mut() {
        Some(list) => {
            list.push(call);
            None
        }
        idle => {
            *idle = Some(Vec::new());
            Some(call)
        }
    });
    while let Some(call) = next {
        // A captured value whose destructor panics must not take the rest of the graph, or the thread, with it.
        hesper_runtime::panics::discard(call);
        next = PENDING.with(|pending| {
            let mut pending = pending.borrow_mut();
            let next = pending.as_mut().and_then(Vec::pop);
            if next.is_none() {
                *pending = None;
            }
            next
        });
    }
}

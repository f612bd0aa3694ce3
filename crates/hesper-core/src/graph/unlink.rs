//! Dropping graphs without recursion.
//!
//! A dropped node pushes its call onto a thread-local list, and only the outermost drop drains the list. So
//! the stack does not grow with the graph, whether a node is reached as an input, several times from one
//! call, or through an op (constants of a compiled function, captured values of a derivative rule).

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use super::Call;

thread_local! {
    /// Calls to be dropped by the drop in progress; `None` if there is none. It has no destructor, because
    /// nodes are also dropped while a thread ends.
    static PENDING: ManuallyDrop<RefCell<Option<Vec<Call>>>> = const { ManuallyDrop::new(RefCell::new(None)) };
}

/// Drops a call. Inside of another such drop, the call is queued for that one.
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
        // A panic in the destructor of a captured value must not stop the drop of the other nodes.
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

//! The channel between an engine and the client of a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::task::{Context, Poll, Wake};
use std::thread;
use std::time::Duration;

use hesper_serve::protocol::{Event, channel};

fn started(cached_tokens: usize) -> Event {
    Event::Started { cached_tokens }
}

#[test]
fn events_arrive_in_order_and_end_with_the_sender() {
    let (sender, receiver) = channel();
    let thread = thread::spawn(move || (0..1000).for_each(|n| sender.send(started(n)).unwrap()));
    for n in 0..1000 {
        assert_eq!(receiver.recv(), Some(started(n)));
    }
    thread.join().unwrap();
    assert_eq!(receiver.recv(), None);
    assert_eq!(receiver.recv_timeout(Duration::MAX), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn waiting_times_out_and_a_dropped_receiver_is_reported() {
    let (sender, receiver) = channel();
    assert_eq!(receiver.recv_timeout(Duration::from_millis(5)), Err(RecvTimeoutError::Timeout));
    drop(receiver);
    assert_eq!(sender.send(started(1)), Err(started(1)));
}

#[test]
fn a_task_is_woken_by_an_event_and_by_the_end() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = count.clone().into();
    let context = Context::from_waker(&waker);
    let (sender, receiver) = channel();
    assert_eq!(receiver.poll_recv(&context), Poll::Pending);
    sender.send(started(1)).unwrap();
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert_eq!(receiver.poll_recv(&context), Poll::Ready(Some(started(1))));
    assert_eq!(receiver.poll_recv(&context), Poll::Pending);
    drop(sender);
    assert_eq!(count.0.load(Ordering::SeqCst), 2);
    assert_eq!(receiver.poll_recv(&context), Poll::Ready(None));
}

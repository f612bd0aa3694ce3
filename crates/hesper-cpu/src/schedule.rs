//! The schedule: the streams whose work may run, and the threads that run it.
//!
//! Each stream is a queue. Its head may run when the submissions that it waits for on other streams are
//! finished. A ready stream is queued as a job of the compute pool, or a waiting thread runs it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use hesper_runtime::{Binding, Dispatch, IdMap, Progress, RawStream, Work};

use crate::compute::{Compute, Job};
use crate::kernel::HostKernel;

#[derive(Default)]
struct Queue {
    queued: VecDeque<Work>,
    /// A thread runs the head.
    running: bool,
    finished: u64,
    /// Streams whose head waits for this one.
    waiters: Vec<u64>,
}

/// All streams of one device.
#[derive(Default)]
pub(crate) struct Schedule {
    queues: Mutex<Queues>,
}

type Queues = IdMap<Queue>;

fn is_done(queues: &Queues, stream: u64, index: u64) -> bool {
    queues.get(&stream).is_none_or(|queue| queue.finished >= index)
}

/// A stream that the head of `stream` waits for.
fn blocking_stream(queues: &Queues, stream: u64) -> Option<u64> {
    let head = queues.get(&stream)?.queued.front()?;
    let wait = head.waits().iter().find(|wait| !is_done(queues, wait.raw.0, wait.index))?;
    Some(wait.raw.0)
}

impl Schedule {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn open(&self, stream: u64) {
        self.queues().insert(stream, Queue::default());
    }

    /// Removes a stream whose work is finished. It may be removed right after its last submission, so the
    /// streams that wait for that one are scheduled here.
    pub(crate) fn close(self: &Arc<Self>, stream: u64) {
        let ready = {
            let mut queues = self.queues();
            let waiters = queues.remove(&stream).map(|queue| queue.waiters).unwrap_or_default();
            Self::ready_among(&mut queues, waiters)
        };
        self.schedule_ready(ready);
    }

    fn ready_among(queues: &mut Queues, mut streams: Vec<u64>) -> Vec<u64> {
        streams.retain(|stream| {
            queues.get(stream).is_some_and(|queue| !queue.running) && Self::is_ready(queues, *stream)
        });
        streams
    }

    fn schedule_ready(self: &Arc<Self>, ready: Vec<u64>) {
        for stream in ready {
            Compute::global().push(self.clone(), stream);
        }
    }

    /// Queues work. Schedules the stream unless the caller is about to wait for the work.
    pub(crate) fn submit(self: &Arc<Self>, stream: RawStream, work: Work) {
        let awaited = work.is_awaited();
        let ready = {
            let mut queues = self.queues();
            let Some(queue) = queues.get_mut(&stream.0) else { return };
            queue.queued.push_back(work);
            let idle = queue.queued.len() == 1 && !queue.running;
            idle && Self::is_ready(&mut queues, stream.0) && !awaited
        };
        if ready {
            Compute::global().push(self.clone(), stream.0);
        }
    }

    /// Whether the head may run; if not, registers the stream with the one that it waits for.
    fn is_ready(queues: &mut Queues, stream: u64) -> bool {
        match blocking_stream(queues, stream) {
            None => queues.get(&stream).is_some_and(|queue| !queue.queued.is_empty()),
            Some(other) => {
                if let Some(queue) = queues.get_mut(&other)
                    && !queue.waiters.contains(&stream)
                {
                    queue.waiters.push(stream);
                }
                false
            }
        }
    }

    /// Takes the head of a stream, if it may run and no thread runs it.
    fn claim(&self, stream: u64) -> Option<Work> {
        let mut queues = self.queues();
        if queues.get(&stream)?.running || !Self::is_ready(&mut queues, stream) {
            return None;
        }
        let queue = queues.get_mut(&stream)?;
        queue.running = true;
        queue.queued.pop_front()
    }

    /// Runs and finishes claimed work, and schedules the streams that waited for it. Returns whether the
    /// stream has more runnable work, which is left to the caller.
    fn run_work(self: &Arc<Self>, stream: u64, mut work: Work) -> bool {
        let index = work.index();
        let cancelled = work.cancellation();
        let dispatch = |dispatch: &Dispatch, bindings: &[Binding]| {
            // SAFETY: the pipeline's number is the address of a kernel of this device, and the running work
            // holds the pipeline.
            let kernel = unsafe { &*(dispatch.pipeline().0 as *const HostKernel) };
            kernel.run(dispatch, bindings, &cancelled)
        };
        for position in 0..work.len() {
            // SAFETY: commands run in encode order, submissions in stream order after their waits, and all
            // memory of this device has a host address.
            unsafe { work.run_on_host(position, &dispatch) };
        }
        work.finish();
        let (ready, more) = {
            let mut queues = self.queues();
            let Some(queue) = queues.get_mut(&stream) else { return false };
            queue.finished = index;
            queue.running = false;
            let others = std::mem::take(&mut queue.waiters);
            let more = !queue.queued.is_empty() && Self::is_ready(&mut queues, stream);
            (Self::ready_among(&mut queues, others), more)
        };
        self.schedule_ready(ready);
        more
    }

    /// Runs the work that a submission depends on, and the submission, as far as a slot is free and no other
    /// thread runs them.
    pub(crate) fn help(self: &Arc<Self>, stream: RawStream, index: u64) -> Progress {
        loop {
            let next = {
                let mut queues = self.queues();
                if is_done(&queues, stream.0, index) {
                    return Progress::Done;
                }
                let mut next = stream.0;
                let mut hops = 0;
                while let Some(other) = blocking_stream(&queues, next) {
                    // The caller may sleep while another thread runs the blocking stream: register, so that
                    // that thread schedules this stream next.
                    Self::is_ready(&mut queues, next);
                    next = other;
                    hops += 1;
                    if hops > queues.len() {
                        break;
                    }
                }
                next
            };
            // Claim inside of the slot, so that no work is taken without a slot to run it.
            let ran = Compute::global().with_slot(|| {
                let work = self.claim(next)?;
                let reached = next == stream.0 && work.index() >= index;
                // This thread continues with the stream that it waits for; any other stream goes to the pool.
                if self.run_work(next, work) && (reached || next != stream.0) {
                    Compute::global().push(self.clone(), next);
                }
                Some(reached)
            });
            match ran {
                Some(Some(true)) => return Progress::Done,
                Some(Some(false)) => {}
                Some(None) => return Progress::Delegated,
                None => {
                    // All slots are taken: the next free one takes this job.
                    Compute::global().push(self.clone(), next);
                    return Progress::Delegated;
                }
            }
        }
    }
}

impl Job for Schedule {
    fn run(self: Arc<Self>, stream: u64) {
        if let Some(work) = self.claim(stream)
            && self.run_work(stream, work)
        {
            Compute::global().push_next(self, stream);
        }
    }
}

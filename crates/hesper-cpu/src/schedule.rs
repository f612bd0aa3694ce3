//! The schedule: which stream's work may run, and who runs it.
//!
//! Each stream is a queue. Its head may run when what it waits for on other streams is finished. A
//! stream that may run gets a turn on the compute pool, or is run by a thread that waits for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use hesper_runtime::{Binding, Dispatch, IdMap, Progress, RawStream, Work};

use crate::compute::{Compute, Job};
use crate::kernel::{Compiled, KernelArgs};

#[derive(Default)]
struct Queue {
    works: VecDeque<Work>,
    /// Somebody runs the head.
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

/// The stream that keeps the head of `stream` from running.
fn obstacle(queues: &Queues, stream: u64) -> Option<u64> {
    let head = queues.get(&stream)?.works.front()?;
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

    /// Forgets a stream whose work is all finished; a stream may end with its last submission, so
    /// those who wait for that one are told here.
    pub(crate) fn close(self: &Arc<Self>, stream: u64) {
        let ready = {
            let mut queues = self.queues();
            let waiters = queues.remove(&stream).map(|queue| queue.waiters).unwrap_or_default();
            Self::ready_among(&mut queues, waiters)
        };
        self.tell(ready);
    }

    fn ready_among(queues: &mut Queues, mut streams: Vec<u64>) -> Vec<u64> {
        streams.retain(|stream| {
            queues.get(stream).is_some_and(|queue| !queue.running) && Self::is_ready(queues, *stream)
        });
        streams
    }

    fn tell(self: &Arc<Self>, ready: Vec<u64>) {
        for stream in ready {
            Compute::global().push(self.clone(), stream);
        }
    }

    /// Takes work. If nobody is about to wait for it, the pool is told.
    pub(crate) fn submit(self: &Arc<Self>, stream: RawStream, work: Work) {
        let awaited = work.is_awaited();
        let tell = {
            let mut queues = self.queues();
            let Some(queue) = queues.get_mut(&stream.0) else { return };
            queue.works.push_back(work);
            let idle = queue.works.len() == 1 && !queue.running;
            idle && Self::is_ready(&mut queues, stream.0) && !awaited
        };
        if tell {
            Compute::global().push(self.clone(), stream.0);
        }
    }

    /// Whether the head may run; if not, the stream is told when it may.
    fn is_ready(queues: &mut Queues, stream: u64) -> bool {
        match obstacle(queues, stream) {
            None => queues.get(&stream).is_some_and(|queue| !queue.works.is_empty()),
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

    /// Takes the head of a stream, if it may run and nobody runs it.
    fn claim(&self, stream: u64) -> Option<Work> {
        let mut queues = self.queues();
        if queues.get(&stream)?.running || !Self::is_ready(&mut queues, stream) {
            return None;
        }
        let queue = queues.get_mut(&stream)?;
        queue.running = true;
        queue.works.pop_front()
    }

    /// Runs and finishes claimed work, and lets those go on who waited for it. Gives whether the stream has more that
    /// may run, which is left to the caller.
    fn run(self: &Arc<Self>, stream: u64, mut work: Work) -> bool {
        let index = work.index();
        let cancelled = work.cancellation();
        let dispatch = |dispatch: &Dispatch, bindings: &[Binding]| {
            // SAFETY: the pipeline's number is the address of a kernel that the device made, and the work
            // that is being run holds the pipeline.
            let Compiled(kernel) = unsafe { &*(dispatch.pipeline().0 as *const Compiled) };
            kernel.run(&KernelArgs { dispatch, bindings, compute: Compute::global(), cancelled: &cancelled })
        };
        for position in 0..work.len() {
            // SAFETY: commands run one after the other in the order of their submission, submissions
            // in the order of their stream, after what they wait for; host memory is host-visible.
            unsafe { work.run_on_host(position, &dispatch) };
        }
        work.finish();
        let (ready, more) = {
            let mut queues = self.queues();
            let Some(queue) = queues.get_mut(&stream) else { return false };
            queue.finished = index;
            queue.running = false;
            let others = std::mem::take(&mut queue.waiters);
            let more = !queue.works.is_empty() && Self::is_ready(&mut queues, stream);
            (Self::ready_among(&mut queues, others), more)
        };
        self.tell(ready);
        more
    }

    /// Runs what stands between the caller and the end of a submission, as long as there is a place for
    /// it and nobody else is at it.
    pub(crate) fn help(self: &Arc<Self>, stream: RawStream, index: u64) -> Progress {
        loop {
            let next = {
                let mut queues = self.queues();
                if is_done(&queues, stream.0, index) {
                    return Progress::Done;
                }
                let mut next = stream.0;
                let mut hops = 0;
                while let Some(other) = obstacle(&queues, next) {
                    // The caller may sleep while somebody else runs what stands in the way: whoever does must
                    // know who comes next.
                    Self::is_ready(&mut queues, next);
                    next = other;
                    hops += 1;
                    if hops > queues.len() {
                        break;
                    }
                }
                next
            };
            // The work is claimed inside, so that it is not taken without a place to run it.
            let ran = Compute::global().with_place(|| {
                let work = self.claim(next)?;
                let reached = next == stream.0 && work.index() >= index;
                // What the caller waits for comes next, here.
                if self.run(next, work) && (reached || next != stream.0) {
                    Compute::global().push(self.clone(), next);
                }
                Some(reached)
            });
            match ran {
                Some(Some(true)) => return Progress::Done,
                Some(Some(false)) => {}
                Some(None) => return Progress::Elsewhere,
                None => {
                    // All places are taken: whoever leaves one takes this up.
                    Compute::global().push(self.clone(), next);
                    return Progress::Elsewhere;
                }
            }
        }
    }
}

impl Job for Schedule {
    fn turn(self: Arc<Self>, stream: u64) {
        if let Some(work) = self.claim(stream)
            && self.run(stream, work)
        {
            Compute::global().push_next(self, stream);
        }
    }
}

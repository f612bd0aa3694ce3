//! Compilation of kernels with filled slots, in the background.
//!
//! An op does not wait for such a kernel: it reads memory, which the group fills first, until the kernel is
//! compiled. A kernel that is needed only once is not compiled at all. A kernel that the compiler refuses is
//! not tried again. [`eval::fusion_waits`] compiles at once instead, and reports errors.

use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use hesper_core::{Result, eval};
use hesper_runtime::{Pipeline, PipelineSource, Runtime};

use crate::pipelines::{KNOWN, Key};

/// A kernel that was asked for and is not compiled.
#[derive(PartialEq)]
enum State {
    /// It was needed once.
    Met,
    /// A thread compiles it.
    Compiling,
    /// The compiler refused it.
    Refused,
}

/// Most kernels that are remembered.
const MAX_STATES: usize = 4096;

fn states() -> MutexGuard<'static, HashMap<Key, State>> {
    static STATES: LazyLock<Mutex<HashMap<Key, State>>> = LazyLock::new(Mutex::default);
    STATES.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Job {
    key: Key,
    runtime: Runtime,
    source: PipelineSource,
}

/// The kernel of a key, if it is compiled. `source` gives its text.
pub(crate) fn pipeline(
    key: Key,
    runtime: &Runtime,
    source: impl FnOnce(&Key) -> Result<PipelineSource>,
) -> Result<Option<Arc<Pipeline>>> {
    if let Some((found, ())) = KNOWN.find(&key) {
        return Ok(Some(found));
    }
    if eval::fusion_waits() {
        let pipeline = runtime.pipeline(&source(&key)?)?;
        KNOWN.insert(key, &pipeline, ());
        return Ok(Some(pipeline));
    }
    let mut states = states();
    match states.get_mut(&key) {
        None => {
            if states.len() >= MAX_STATES {
                states.retain(|_, state| *state == State::Compiling);
            }
            states.insert(key, State::Met);
            return Ok(None);
        }
        Some(state @ State::Met) => *state = State::Compiling,
        Some(_) => return Ok(None),
    }
    drop(states);
    let sent = source(&key).is_ok_and(|source| {
        let job = Job { key: key.clone(), runtime: runtime.clone(), source };
        queue().is_some_and(|queue| queue.send(job).is_ok())
    });
    if !sent {
        self::states().insert(key, State::Refused);
    }
    Ok(None)
}

/// The queue of the thread that compiles; `None` if the thread could not be started.
fn queue() -> Option<Sender<Job>> {
    static QUEUE: LazyLock<Option<Sender<Job>>> = LazyLock::new(|| {
        let (sender, jobs) = channel::<Job>();
        let work = move || jobs.into_iter().for_each(compile);
        std::thread::Builder::new().name("hesper-fusion".into()).spawn(work).ok().map(|_| sender)
    });
    QUEUE.clone()
}

fn compile(Job { key, runtime, source }: Job) {
    match runtime.pipeline(&source) {
        Ok(pipeline) => {
            KNOWN.insert(key.clone(), &pipeline, ());
            states().remove(&key);
        }
        Err(_) => _ = states().insert(key, State::Refused),
    }
}

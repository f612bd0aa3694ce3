//! The worker's side: an engine that takes orders from standard input and writes reports to standard output.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, mpsc};

use super::{Order, REPORT_EVERY, Report, messages, writer};
use crate::protocol::{Events, Generator, Health, Refusal, Request, Snapshot};

/// Submits a request. A panic refuses it: it must not end the worker, and with it all other requests.
fn submit(engine: &dyn Generator, request: Request) -> Result<Events, Refusal> {
    let submitted = catch_unwind(AssertUnwindSafe(|| engine.submit(request)));
    submitted.unwrap_or_else(|_| Err(Refusal::Invalid("the engine panicked when it read the request".into())))
}

/// Loads an engine and executes the orders of a supervisor until standard input is closed. The worker reports
/// its state from the beginning, so that one that is stopped while it loads is noticed. Nothing else may
/// write to standard output.
pub fn serve<E>(load: impl FnOnce() -> Result<Arc<dyn Generator>, E>) -> Result<(), E> {
    let reports: mpsc::Sender<Report> = writer(std::io::stdout());
    let loaded: Arc<OnceLock<Arc<dyn Generator>>> = Arc::default();
    let (state, to) = (loaded.clone(), reports.clone());
    std::thread::spawn(move || {
        loop {
            let (health, snapshot) = match state.get() {
                Some(engine) => (engine.health(), engine.snapshot()),
                None => (Health::Loading { what: "the model in a worker".into() }, Snapshot::default()),
            };
            if to.send(Report::State { health, snapshot: Box::new(snapshot) }).is_err() {
                return;
            }
            std::thread::sleep(REPORT_EVERY);
        }
    });
    let engine = load()?;
    let _ = loaded.set(engine.clone());
    let ids: Arc<Mutex<HashMap<u64, String>>> = Arc::default();
    for order in messages::<Order>(std::io::stdin().lock()) {
        match order {
            Order::Cancel { key } => {
                let id = ids.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get(&key).cloned();
                if let Some(id) = id {
                    engine.cancel(&id);
                }
            }
            Order::Submit { key, request } => match submit(&*engine, *request) {
                Err(refusal) => {
                    let _ = reports.send(Report::Refused { key, refusal });
                }
                Ok(events) => {
                    let _ = reports.send(Report::Accepted { key });
                    let (to, ids) = (reports.clone(), ids.clone());
                    ids.lock()
                        .unwrap_or_else(|poisoned| poisoned.into_inner())
                        .insert(key, events.id.clone());
                    std::thread::spawn(move || {
                        while let Some(event) = events.next() {
                            let _ = to.send(Report::Event { key, event });
                        }
                        ids.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&key);
                    });
                }
            },
        }
    }
    Ok(())
}

//! The worker's side: an engine that takes orders from standard input and writes reports to standard output.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, mpsc};

use super::{Order, REPORT_EVERY, Report, messages, writer};
use crate::protocol::{Events, Generator, Refusal, Request};

/// Submits a request. A panic refuses it: it must not end the worker, and with it all other requests.
fn submit(engine: &dyn Generator, request: Request) -> Result<Events, Refusal> {
    let submitted = catch_unwind(AssertUnwindSafe(|| engine.submit(request)));
    submitted.unwrap_or_else(|_| Err(Refusal::Invalid("the engine panicked when it read the request".into())))
}

/// Executes the orders of a supervisor until standard input is closed. Nothing else may write to standard
/// output.
pub fn serve(engine: Arc<dyn Generator>) {
    let reports: mpsc::Sender<Report> = writer(std::io::stdout());
    let (state, to) = (engine.clone(), reports.clone());
    std::thread::spawn(move || {
        loop {
            let report = Report::State { health: state.health(), snapshot: Box::new(state.snapshot()) };
            if to.send(report).is_err() {
                return;
            }
            std::thread::sleep(REPORT_EVERY);
        }
    });
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
}

//! A generator that follows the script of a test.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hesper_serve::protocol::{
    Event, Events, Failure, FailureKind, Finish, Generator, Health, Histogram, Phase, Refusal, Request,
    RequestState, Snapshot, Token, Usage, channel,
};

/// How an answer ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    Done(Finish),
    Failed(FailureKind),
    /// The sender is dropped without a last event.
    Vanish,
    /// Never, until it is cancelled.
    Hang,
}

#[derive(Clone)]
pub struct Script {
    pub pieces: Vec<String>,
    pub delay: Duration,
    pub end: End,
    pub refusal: Option<Refusal>,
}

#[derive(Default)]
pub struct Scripted {
    script: Mutex<Option<Script>>,
    health: Mutex<Option<Health>>,
    requests: Mutex<Vec<Request>>,
    running: Arc<Mutex<HashMap<String, Arc<AtomicBool>>>>,
}

impl Scripted {
    /// Generates these pieces and ends.
    pub fn say(&self, pieces: &[&str]) {
        self.script(Script {
            pieces: pieces.iter().map(|piece| piece.to_string()).collect(),
            delay: Duration::ZERO,
            end: End::Done(Finish::Stop),
            refusal: None,
        });
    }

    pub fn script(&self, script: Script) {
        *self.script.lock().unwrap() = Some(script);
    }

    pub fn change(&self, change: impl FnOnce(&mut Script)) {
        change(self.script.lock().unwrap().as_mut().unwrap());
    }

    pub fn set_health(&self, health: Health) {
        *self.health.lock().unwrap() = Some(health);
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Waits until nothing runs.
    pub fn wait_idle(&self) -> bool {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            if self.running.lock().unwrap().is_empty() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Waits until something runs.
    pub fn wait_running(&self) {
        let start = Instant::now();
        while self.running.lock().unwrap().is_empty() {
            assert!(start.elapsed() < Duration::from_secs(10), "no request has arrived");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Generator for Scripted {
    fn submit(&self, request: Request) -> Result<Events, Refusal> {
        self.requests.lock().unwrap().push(request.clone());
        let script = self.script.lock().unwrap().clone().unwrap();
        if let Some(refusal) = script.refusal {
            return Err(refusal);
        }
        let (sender, receiver) = channel();
        let cancelled = Arc::new(AtomicBool::new(false));
        self.running.lock().unwrap().insert(request.id.clone(), cancelled.clone());
        let (flag, running, id) = (cancelled.clone(), self.running.clone(), request.id.clone());
        std::thread::spawn(move || {
            let _ = sender.send(Event::Started { cached_tokens: 2 });
            if request.embed.is_some() {
                let _ = sender.send(Event::Embedding(vec![0.5, -1.0, request.prompt.len() as f32]));
            }
            let mut count = 0;
            for piece in script.pieces.iter().take(request.max_tokens) {
                std::thread::sleep(script.delay);
                if flag.load(Ordering::SeqCst) {
                    break;
                }
                count += 1;
                let logprob = request.logprobs.map(|_| -0.5);
                let top =
                    (0..request.logprobs.unwrap_or(0) as u32).map(|id| (id + 2, -0.5 - id as f32)).collect();
                let _ = sender.send(Event::Token(Token {
                    id: 1 + count as u32,
                    text: piece.clone(),
                    logprob,
                    top,
                }));
            }
            while script.end == End::Hang && !flag.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(2));
            }
            let usage =
                Usage { prompt_tokens: request.prompt.len(), cached_tokens: 2, completion_tokens: count };
            running.lock().unwrap().remove(&request.id);
            let finish = match (flag.load(Ordering::SeqCst), script.end) {
                (true, _) | (false, End::Hang) => Finish::Cancelled,
                (false, End::Done(finish)) => finish,
                (false, End::Failed(kind)) => {
                    let _ =
                        sender.send(Event::Failed(Failure { kind, message: "the device is on fire".into() }));
                    return;
                }
                (false, End::Vanish) => return,
            };
            let _ = sender.send(Event::Done { finish, usage });
        });
        Ok(Events::new(id, receiver, move || cancelled.store(true, Ordering::SeqCst)))
    }

    fn cancel(&self, id: &str) -> bool {
        let running = self.running.lock().unwrap();
        running.get(id).map(|flag| flag.store(true, Ordering::SeqCst)).is_some()
    }

    fn health(&self) -> Health {
        self.health.lock().unwrap().clone().unwrap_or(Health::Ok)
    }

    fn snapshot(&self) -> Snapshot {
        let state = |id: &str, phase| RequestState {
            id: id.into(),
            phase,
            prompt_tokens: 3,
            computed_tokens: 3,
            generated_tokens: 1,
            pages: vec![0],
            seconds: 0.5,
        };
        let histogram = Histogram { bounds: vec![0.1, 1.0], counts: vec![2, 3, 1], sum: 4.5 };
        Snapshot {
            completed: 6,
            pages: 8,
            pages_used: 2,
            page_tokens: 32,
            requests: vec![
                state("a", Phase::Decode),
                state("b", Phase::Queued),
                state("c", Phase::Preempted),
            ],
            time_to_first_token: histogram,
            ..Snapshot::default()
        }
    }

    fn drain(&self, limit: Duration) {
        let start = Instant::now();
        while start.elapsed() < limit && !self.running.lock().unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(2));
        }
        for flag in self.running.lock().unwrap().values() {
            flag.store(true, Ordering::SeqCst);
        }
    }
}

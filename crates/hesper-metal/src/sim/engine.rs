//! The simulated GPU: what can happen next, and the choice among it.

use std::ops::Range;

use hesper_runtime::sim::Rng;
use hesper_runtime::{Rule, Violation};

use super::kernel::{Argument, Launch};
use super::objects::{CommandOp, Objects, SimObject, Status};
use super::{Call, Failure, FaultPlan};
use crate::edge::{CommandError, CompletedHandler, ErrorCode};

/// A step that runs outside of the engine's lock.
pub(super) enum Outside {
    Handler(CompletedHandler, Result<(), CommandError>),
    Task(Box<dyn FnOnce() + Send>),
}

/// What can happen next.
#[derive(Clone, Copy)]
enum Choice {
    /// A part of a dispatch: command buffer, operation, dispatch.
    Run(u64, usize, usize),
    Signal(u64, usize),
    Fail(u64),
    Complete(u64),
    Handler(usize),
    LateHandler(usize),
    Task(usize),
}

/// The state of the simulated Metal.
pub(super) struct Engine {
    rng: Rng,
    pub(super) objects: Objects,
    /// Command buffers that the GPU has, in the order of their commits.
    active: Vec<u64>,
    committed: u64,
    handlers: Vec<(CompletedHandler, Result<(), CommandError>)>,
    /// Command buffers, by their number, whose handlers are called when nothing else is left to do.
    late: Vec<u64>,
    late_handlers: Vec<(CompletedHandler, Result<(), CommandError>)>,
    tasks: Vec<Box<dyn FnOnce() + Send>>,
    /// Threads that run a step outside of the lock.
    pub(super) busy: usize,
    failure: Option<Failure>,
    faults: Vec<FaultPlan>,
    refuse: Option<usize>,
    counts: Vec<(Call, u64)>,
    /// The failure of every command buffer from now on.
    pub(super) outage: Option<ErrorCode>,
    pub(super) violations: Vec<Violation>,
    pub(super) misuse: Vec<String>,
    /// Pipelines that were compiled: into an archive, or without one.
    pub(super) compilations: u64,
    pub(super) fingerprint: u64,
}

impl Engine {
    pub(super) fn new(
        seed: u64,
        failure: Option<Failure>,
        faults: Vec<FaultPlan>,
        refuse: Option<usize>,
        late: Vec<u64>,
    ) -> Self {
        Engine {
            rng: Rng::new(seed ^ 0x4d45_5441_4c00),
            objects: Objects::default(),
            active: Vec::new(),
            committed: 0,
            handlers: Vec::new(),
            late,
            late_handlers: Vec::new(),
            tasks: Vec::new(),
            busy: 0,
            failure,
            faults,
            refuse,
            counts: Vec::new(),
            outage: None,
            violations: Vec::new(),
            misuse: Vec::new(),
            compilations: 0,
            fingerprint: seed,
        }
    }

    pub(super) fn calls(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// Counts a call; false if it is to be refused.
    pub(super) fn allows(&mut self, call: Call) -> bool {
        let total = self.calls();
        let at = self.counts.iter().position(|(known, _)| *known == call).unwrap_or_else(|| {
            self.counts.push((call, 0));
            self.counts.len() - 1
        });
        let nth = self.counts[at].1;
        self.counts[at].1 += 1;
        let refused = match self.failure {
            Some(Failure::Nth(kind, n)) => kind == call && n == nth,
            Some(Failure::Any(n)) => n == total,
            None => false,
        };
        let random = call == Call::CommandBuffer && self.refuse.is_some_and(|refuse| self.rng.one_in(refuse));
        !refused && !random
    }

    pub(super) fn violate(&mut self, rule: Rule, command: &str, what: String) {
        self.violations.push(Violation { rule, command: command.to_string(), what });
    }

    pub(super) fn misuse(&mut self, what: String) {
        self.misuse.push(what);
    }

    /// Notes that a command buffer needs an object, which must be alive.
    pub(super) fn use_object(&mut self, commands: u64, object: u64, call: &str) {
        if !self.objects.is_alive(object) {
            let name = self.objects.name(object);
            let rule = match self.objects.pipeline(object) {
                Some(_) => Rule::Identity,
                None => Rule::Retention,
            };
            self.violate(rule, call, format!("names {name} after it was released"));
        }
        if let Some(commands) = self.objects.commands(commands) {
            commands.uses.push(object);
        }
        if let Some(entry) = self.objects.get_mut(object) {
            entry.used += 1;
        }
    }

    fn drop_uses(&mut self, commands: u64) {
        let uses = self.objects.commands(commands).map(|commands| std::mem::take(&mut commands.uses));
        for object in uses.unwrap_or_default() {
            if let Some(entry) = self.objects.get_mut(object) {
                entry.used -= 1;
            }
        }
    }

    pub(super) fn release(&mut self, id: u64) {
        let name = self.objects.name(id);
        let used = self.objects.get(id).map_or(0, |entry| entry.used);
        if used > 0 && self.objects.is_alive(id) {
            let rule = if self.objects.pipeline(id).is_some() { Rule::Identity } else { Rule::Retention };
            self.violate(rule, "release", format!("destroys {name} while a command buffer needs it"));
        }
        if self.objects.is_resident(id) {
            self.misuse(format!("{name} is released as a member of a residency set"));
        }
        let mut left_open = false;
        let mut abandoned = false;
        match self.objects.get_mut(id).map(|entry| &mut entry.kind) {
            Some(SimObject::Commands(commands)) => {
                left_open = commands.open_encoder.is_some();
                abandoned = commands.status == Status::Encoding;
            }
            Some(SimObject::Encoder(encoder)) => left_open = encoder.open,
            _ => {}
        }
        if left_open {
            self.misuse(format!("{name} is released before endEncoding"));
        }
        if abandoned {
            self.drop_uses(id);
        }
        if !self.objects.release(id) {
            self.misuse(format!("{name} is released twice"));
        }
    }

    pub(super) fn commit(&mut self, id: u64) {
        let name = self.objects.name(id);
        let number = self.committed;
        let planned = self.faults.iter().find(|plan| plan.command_buffer == number).copied();
        let injected = (!self.allows(Call::Execute)).then_some(ErrorCode::Internal);
        let after = self.rng.below(4);
        let code = self.outage.or(planned.map(|plan| plan.code)).or(injected);
        let Some(commands) = self.objects.commands(id) else { return };
        if commands.status != Status::Encoding {
            return self.misuse(format!("{name} is committed twice"));
        }
        if commands.open_encoder.is_some() {
            return self.misuse(format!("{name} is committed before endEncoding"));
        }
        commands.status = Status::Committed;
        commands.number = number;
        commands.fault = code.map(|code| (code, format!("injected into {name}"), after));
        self.committed += 1;
        if matches!(code, Some(ErrorCode::AccessRevoked | ErrorCode::DeviceRemoved)) {
            self.outage = code;
        }
        self.resolve_fences(id);
        self.active.push(id);
    }

    /// Finds the encoders that the encoders of a command buffer wait for.
    fn resolve_fences(&mut self, id: u64) {
        let mut never: Vec<u64> = Vec::new();
        let Some(commands) = self.objects.commands(id) else { return };
        let (queue, mut ops) = (commands.queue, std::mem::take(&mut commands.ops));
        if let Some(SimObject::Queue { last_update, .. }) =
            self.objects.get_mut(queue).map(|entry| &mut entry.kind)
        {
            for (at, op) in ops.iter_mut().enumerate() {
                let CommandOp::Encode(encoder) = op else { continue };
                never.extend(encoder.waits.iter().filter(|fence| !last_update.contains_key(*fence)));
                encoder.after =
                    encoder.waits.iter().filter_map(|fence| last_update.get(fence).copied()).collect();
                last_update.extend(encoder.updates.iter().map(|fence| (*fence, (id, at))));
            }
        }
        if let Some(commands) = self.objects.commands(id) {
            commands.ops = ops;
        }
        for fence in never {
            let (fence, commands) = (self.objects.name(fence), self.objects.name(id));
            self.misuse(format!("{commands} waits for {fence}, which nothing has updated"));
        }
    }

    /// Whether an operation has ended.
    fn is_done(&self, id: u64, at: usize) -> bool {
        let Some(SimObject::Commands(commands)) = self.objects.get(id).map(|entry| &entry.kind) else {
            return true;
        };
        if commands.status == Status::Completed {
            return true;
        }
        match &commands.ops[at] {
            // A failed command buffer does not let later ones of its queue overtake earlier ones.
            CommandOp::Encode(encoder) if commands.failed => self.may_start(encoder),
            _ if commands.failed => true,
            CommandOp::Wait(event, value) => self.objects.event(*event) >= *value,
            CommandOp::Signal(_, _, done) => *done,
            CommandOp::Encode(encoder) => {
                self.may_start(encoder) && encoder.dispatches.iter().all(|dispatch| dispatch.is_done())
            }
        }
    }

    fn may_start(&self, encoder: &super::objects::SimEncoder) -> bool {
        encoder.after.iter().all(|(id, at)| self.is_done(*id, *at))
    }

    fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        for &id in &self.active {
            let Some(SimObject::Commands(commands)) = self.objects.get(id).map(|entry| &entry.kind) else {
                continue;
            };
            if !commands.failed && matches!(commands.fault, Some((_, _, 0))) {
                choices.push(Choice::Fail(id));
            }
            let mut all_done = true;
            for (at, op) in commands.ops.iter().enumerate() {
                if self.is_done(id, at) {
                    continue;
                }
                match op {
                    // Holds everything behind it.
                    CommandOp::Wait(..) => {
                        all_done = false;
                        break;
                    }
                    CommandOp::Signal(..) if all_done => choices.push(Choice::Signal(id, at)),
                    CommandOp::Signal(..) => {}
                    CommandOp::Encode(encoder) if self.may_start(encoder) => {
                        let open = |dispatch: &&super::objects::SimDispatch| !dispatch.is_done();
                        let epoch =
                            encoder.dispatches.iter().filter(open).map(|dispatch| dispatch.epoch).min();
                        let ready = encoder
                            .dispatches
                            .iter()
                            .enumerate()
                            .filter(|(_, dispatch)| !dispatch.is_done() && Some(dispatch.epoch) == epoch);
                        choices.extend(ready.map(|(nth, _)| Choice::Run(id, at, nth)));
                    }
                    CommandOp::Encode(_) => {}
                }
                all_done = false;
            }
            if all_done {
                choices.push(Choice::Complete(id));
            }
        }
        choices.extend((0..self.handlers.len()).map(Choice::Handler));
        choices.extend((0..self.tasks.len()).map(Choice::Task));
        if choices.is_empty() {
            choices.extend((0..self.late_handlers.len()).map(Choice::LateHandler));
        }
        choices
    }

    /// Makes a step, or returns one that the caller runs outside of the lock. `None` if there is nothing to
    /// do.
    pub(super) fn step(&mut self) -> Option<Option<Outside>> {
        let choices = self.choices();
        if choices.is_empty() {
            return None;
        }
        let nth = self.rng.below(choices.len());
        let choice = choices[nth];
        let mark = (nth as u64) << 32 ^ choices.len() as u64;
        self.fingerprint = (self.fingerprint.rotate_left(7) ^ mark).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match choice {
            Choice::Run(id, at, nth) => self.run(id, at, nth),
            Choice::Signal(id, at) => self.signal(id, at),
            Choice::Fail(id) => {
                let fault = self.objects.commands(id).and_then(|commands| commands.fault.take());
                if let Some((code, message, _)) = fault {
                    self.fail(id, code, message);
                }
            }
            Choice::Complete(id) => self.complete(id),
            Choice::Handler(at) => {
                let (handler, outcome) = self.handlers.swap_remove(at);
                return Some(Some(Outside::Handler(handler, outcome)));
            }
            Choice::LateHandler(at) => {
                let (handler, outcome) = self.late_handlers.swap_remove(at);
                return Some(Some(Outside::Handler(handler, outcome)));
            }
            Choice::Task(at) => return Some(Some(Outside::Task(self.tasks.remove(at)))),
        }
        Some(None)
    }

    pub(super) fn add_task(&mut self, task: Box<dyn FnOnce() + Send>) {
        self.tasks.push(task);
    }

    fn signal(&mut self, id: u64, at: usize) {
        let Some(commands) = self.objects.commands(id) else { return };
        let CommandOp::Signal(event, value, done) = &mut commands.ops[at] else { return };
        *done = true;
        let (event, value) = (*event, *value);
        self.set_event(event, value);
    }

    pub(super) fn set_event(&mut self, event: u64, value: u64) {
        let name = self.objects.name(event);
        let mut backwards = None;
        if let Some(SimObject::Event(now)) = self.objects.get_mut(event).map(|entry| &mut entry.kind) {
            if value <= *now {
                backwards = Some(*now);
            } else {
                *now = value;
            }
        }
        if let Some(now) = backwards {
            self.misuse(format!("the value of {name} goes from {now} to {value}"));
        }
    }

    /// Runs a part of a dispatch.
    fn run(&mut self, id: u64, at: usize, nth: usize) {
        if let Some(commands) = self.objects.commands(id)
            && let Some((code, message, after)) = &mut commands.fault
        {
            if *after == 0 {
                let (code, message) = (*code, message.clone());
                return self.fail(id, code, message);
            }
            *after -= 1;
        }
        let Some(dispatch) = self.objects.commands(id).and_then(|commands| match &commands.ops[at] {
            CommandOp::Encode(encoder) => Some(encoder.dispatches[nth].clone()),
            _ => None,
        }) else {
            return;
        };
        let Some(pipeline) = self.objects.pipeline(dispatch.pipeline) else { return };
        let text = pipeline.text.clone();
        let Some(function) = pipeline.function.clone() else {
            let name = self.objects.name(dispatch.pipeline);
            let what = format!("runs {name} after it was released");
            self.violate(Rule::Identity, &dispatch.label, what.clone());
            return self.fail(id, ErrorCode::InvalidResource, what);
        };
        let arguments: Result<Vec<Argument>, u64> =
            dispatch.slots.iter().map(|slot| self.objects.argument(slot)).collect();
        let arguments = match arguments {
            Ok(arguments) => arguments,
            Err(buffer) => {
                let what = format!("uses {} after it was released", self.objects.name(buffer));
                self.violate(Rule::Retention, &dispatch.label, what.clone());
                return self.fail(id, ErrorCode::InvalidResource, what);
            }
        };
        let (threads, ran) = (dispatch.threads(), dispatch.ran);
        let end = match function.divisible && ran == 0 && threads > 1 && self.rng.one_in(3) {
            true => 1 + self.rng.below(threads as usize - 1) as u64,
            false => threads,
        };
        let launch = Launch {
            text: &text,
            grid: dispatch.grid,
            threadgroup: dispatch.threadgroup,
            threads: Range { start: ran, end },
            threadgroup_memory: &dispatch.threadgroup_memory,
            arguments: &arguments,
        };
        let outcome = (function.run)(&launch);
        if let Some(commands) = self.objects.commands(id)
            && let CommandOp::Encode(encoder) = &mut commands.ops[at]
        {
            encoder.dispatches[nth].ran = end;
        }
        if let Err(message) = outcome {
            if message.ends_with("is null") {
                self.violate(Rule::Materialised, &dispatch.label, message.clone());
            }
            self.fail(id, ErrorCode::PageFault, format!("{}: {message}", dispatch.label));
        }
    }

    /// Fails a command buffer: the rest of it does not run. Whether it still signals is chosen by the seed,
    /// if it has passed its waits.
    fn fail(&mut self, id: u64, code: ErrorCode, message: String) {
        let coin = self.rng.one_in(2);
        let Some(SimObject::Commands(commands)) = self.objects.get(id).map(|entry| &entry.kind) else {
            return;
        };
        let passed = commands.ops.iter().all(|op| match op {
            CommandOp::Wait(event, value) => self.objects.event(*event) >= *value,
            _ => true,
        });
        let Some(commands) = self.objects.commands(id) else { return };
        commands.failed = true;
        commands.signals = coin && passed;
        commands.fault = Some((code, message, 0));
    }

    fn complete(&mut self, id: u64) {
        let Some(commands) = self.objects.commands(id) else { return };
        let outcome = match commands.fault.take() {
            Some((code, message, _)) => Err(CommandError { code, message }),
            None => Ok(()),
        };
        commands.status = Status::Completed;
        let ops = std::mem::take(&mut commands.ops);
        let open = ops.iter().filter_map(|op| match op {
            CommandOp::Signal(event, value, false) => Some((*event, *value)),
            _ => None,
        });
        let signals: Vec<(u64, u64)> = if commands.signals { open.collect() } else { Vec::new() };
        let late = self.late.contains(&commands.number);
        if let Some(handler) = commands.handler.take() {
            let handlers = if late { &mut self.late_handlers } else { &mut self.handlers };
            handlers.push((handler, outcome));
        }
        signals.into_iter().for_each(|(event, value)| self.set_event(event, value));
        self.active.retain(|active| *active != id);
        self.drop_uses(id);
    }

    /// Whether nothing runs and nothing is left to do.
    pub(super) fn is_idle(&self) -> bool {
        let handlers = self.handlers.is_empty() && self.late_handlers.is_empty();
        self.active.is_empty() && handlers && self.tasks.is_empty()
    }
}

//! What the next step computes: a state machine without a model, without clocks and without threads.
//!
//! A job waits, then runs: its prompt is computed in chunks, then a token in each step. [`Scheduler::plan`]
//! says which jobs take part in the next step and in which pages their rows are. The caller runs it and
//! reports what was computed ([`Scheduler::computed`]) and which tokens were chosen ([`Scheduler::push`]).
//! [`Scheduler::plan_ahead`] plans one more step while a step is in flight: a job whose token is not known
//! yet has [`UNKNOWN_TOKEN`] in it.
//!
//! Jobs are ranked by priority, then by arrival. A job that runs has the pages of its computed tokens. If
//! pages run out, prefixes that no job uses go first, then the last ranked job is preempted: it gives up its
//! pages, waits, and is computed again later. The first ranked job is never preempted, so some job always
//! makes progress.
//!
//! Where guesses of the next tokens are made ([`Limits::drafts`]), a piece of a job that decodes has them
//! behind its token. The caller says how many were right; their rows count as computed.
//!
//! **A text does not depend on other jobs.** Where the rounding of a row depends on the rows beside it
//! ([`Limits::fixed_pieces`]), chunks always begin and end at multiples of the chunk length, whatever was
//! found in the prefix cache, and tokens that a preempted job had generated are computed one by one again, as
//! they were before. Only whole chunks are kept in the prefix cache.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use hesper_lm::{PageCounts, SCRATCH_PAGE};

use super::draft::Drafts;
use super::pace::Pace;
pub use super::pace::Time;
use super::prefix::PrefixTree;
use crate::protocol::Phase;

/// Numbers a job, in the order of arrival.
pub type JobId = u64;

/// The token of a piece that the step in flight chooses.
pub const UNKNOWN_TOKEN: u32 = u32::MAX;

/// The sizes of a scheduler.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Tokens of a page.
    pub page: usize,
    /// Tokens of a chunk: a multiple of a page.
    pub chunk: usize,
    /// Whether a prompt is computed chunk by chunk. Otherwise a piece of it is as many chunks as a step has
    /// room for, and how the prompt is divided depends on other jobs.
    pub fixed_pieces: bool,
    /// Pages in all.
    pub pages: usize,
    /// Pages that the prefix cache may hold.
    pub prefix_pages: usize,
    /// Jobs that run at once.
    pub running: usize,
    /// Jobs that wait.
    pub waiting: usize,
    /// The most tokens of a step. A step has at least one chunk if a job needs one.
    pub step_tokens: usize,
    /// Whether tokens of prompts are limited by what the steps cost, beside `step_tokens`
    /// ([`Scheduler::measured`]).
    pub is_paced: bool,
    /// The most tokens still to be generated that admission reserves pages for.
    pub reserve: usize,
    /// Tokens that every layer sees at most, if all have a window.
    pub window: Option<usize>,
    /// The most guesses of the next tokens of a job. They are made while few jobs decode.
    pub drafts: usize,
}

/// What a job needs.
#[derive(Debug, Clone)]
pub struct JobSpec {
    /// The tokens of the prompt, at least one.
    pub prompt: Vec<u32>,
    /// The largest number of tokens to generate.
    pub max_tokens: usize,
    /// Higher goes first.
    pub priority: i32,
    /// Who gets an equal share, and shares prefixes with itself only.
    pub tenant: u64,
    /// Whether its prefix may be found and kept.
    pub use_prefix: bool,
    /// When it expires, on the clock of the caller.
    pub deadline: Option<Duration>,
}

/// Why a job is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejected {
    /// It needs more pages than there are.
    TooLarge {
        /// Pages it needs.
        needed: usize,
    },
    /// Too many jobs wait.
    QueueFull,
}

/// A job that is not finished.
#[derive(Debug)]
pub struct Job {
    spec: JobSpec,
    /// Prompt and generated tokens.
    tokens: Vec<u32>,
    /// Tokens whose rows are in pages.
    computed: usize,
    /// Tokens whose rows are in pages or computed by steps in flight.
    planned: usize,
    /// Tokens behind `tokens` that steps in flight choose.
    unknown: usize,
    pages: Vec<u32>,
    running: bool,
    /// Tokens that were found in the prefix cache when it ran first.
    cached: Option<usize>,
    drafts: Drafts,
}

impl Job {
    fn prompt(&self) -> usize {
        self.spec.prompt.len()
    }

    /// Whether its prompt is computed, or will be by the steps in flight.
    fn decodes(&self) -> bool {
        self.planned >= self.prompt()
    }

    /// Whether there is a token for one more decode step.
    fn has_next(&self) -> bool {
        self.decodes()
            && self.planned < self.tokens.len() + self.unknown
            && self.generated() + self.unknown < self.spec.max_tokens
    }

    /// Forgets the steps in flight.
    fn discard(&mut self) {
        (self.planned, self.unknown) = (self.computed, 0);
    }

    /// Generated tokens.
    pub fn generated(&self) -> usize {
        self.tokens.len() - self.prompt()
    }

    /// Tokens of the prompt, and those that are computed.
    pub fn progress(&self) -> (usize, usize) {
        (self.prompt(), self.computed.min(self.prompt()))
    }

    /// What it does.
    pub fn phase(&self) -> Phase {
        match (self.running, self.cached) {
            (true, _) if self.computed >= self.prompt() => Phase::Decode,
            (true, _) => Phase::Prefill,
            (false, Some(_)) => Phase::Preempted,
            (false, None) => Phase::Queued,
        }
    }

    /// Tokens of the prompt that were found in the prefix cache.
    pub fn cached(&self) -> usize {
        self.cached.unwrap_or(0)
    }

    /// Its pages.
    pub fn pages(&self) -> &[u32] {
        &self.pages
    }
}

/// New tokens of one job in a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The job.
    pub job: JobId,
    /// Tokens before the new ones.
    pub start: usize,
    /// The new tokens. One that is not known yet is [`UNKNOWN_TOKEN`].
    pub tokens: Vec<u32>,
    /// How many of them are guesses, the last ones.
    pub drafts: usize,
    /// The pages of the job.
    pub pages: Vec<u32>,
    /// Whether the next token is chosen, by the logits of the last token that is no guess. The tokens behind
    /// right guesses are chosen by theirs.
    pub sample: bool,
}

/// What a step computes.
#[derive(Debug, Default)]
pub struct Plan {
    /// Jobs that run for the first time, with the number of their tokens in the prefix cache.
    pub started: Vec<(JobId, usize)>,
    /// The next token of each job that decodes, with guesses of those behind it; or several tokens that a
    /// preempted job had generated.
    pub decode: Vec<Piece>,
    /// Chunks of prompts.
    pub chunks: Vec<Piece>,
    /// Jobs that were preempted.
    pub preempted: usize,
}

impl Plan {
    /// All pieces, those that decode first.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.decode.iter().chain(&self.chunks)
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.decode.is_empty() && self.chunks.is_empty()
    }

    /// Rows of jobs that decode.
    pub fn decode_rows(&self) -> usize {
        self.decode.iter().map(|piece| piece.tokens.len()).sum()
    }
}

/// The most rows of a step with guesses: with more, a row costs as much as the token that it may save.
const MAX_DRAFT_ROWS: usize = 16;

/// Steps without a failure after which twice as many jobs may run.
const RECOVERY_STEPS: usize = 8;

/// See the [module](self).
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    counts: PageCounts,
    prefix: PrefixTree,
    jobs: BTreeMap<JobId, Job>,
    next: JobId,
    /// Tokens that were computed for each tenant that has jobs.
    service: HashMap<u64, u64>,
    /// Jobs that may run at once: lower than the limit after failures.
    running_limit: usize,
    good_steps: usize,
    pace: Pace,
    /// Whether the next chunk is of the prompt with the fewest tokens left, and not of the oldest one.
    shortest_next: bool,
}

impl Scheduler {
    /// A scheduler without jobs.
    pub fn new(limits: Limits) -> Self {
        Scheduler {
            counts: PageCounts::new(limits.pages),
            prefix: PrefixTree::new(limits.chunk, limits.prefix_pages),
            jobs: BTreeMap::new(),
            next: 0,
            service: HashMap::new(),
            running_limit: limits.running,
            good_steps: 0,
            pace: Pace::default(),
            shortest_next: false,
            limits,
        }
    }

    /// The sizes.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A job, if it is not finished.
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id)
    }

    /// Whether there are no jobs.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Jobs that wait.
    pub fn waiting(&self) -> usize {
        self.jobs.values().filter(|job| !job.running).count()
    }

    /// Pages that jobs use, and pages that only the prefix cache uses.
    pub fn pages_used(&self) -> (usize, usize) {
        let cached = self.prefix.evictable(&self.counts);
        (self.counts.capacity() - self.counts.free() - cached, cached)
    }

    /// Jobs in the order of the queue.
    pub fn ranked(&self) -> Vec<JobId> {
        let mut all: Vec<(&JobId, &Job)> = self.jobs.iter().collect();
        all.sort_by_key(|(id, job)| (std::cmp::Reverse(job.spec.priority), **id));
        all.into_iter().map(|(id, _)| *id).collect()
    }

    /// Pages of a sequence of `tokens` tokens: with a window those that a chunk sees.
    fn pages_of(&self, tokens: usize) -> usize {
        let Limits { page, chunk, window, .. } = self.limits;
        let seen = window.map_or(tokens, |window| tokens.min(window + chunk + page));
        seen.div_ceil(page)
    }

    /// Accepts a job, or refuses it.
    pub fn submit(&mut self, spec: JobSpec) -> Result<JobId, Rejected> {
        let needed = self.pages_of(spec.prompt.len() + spec.max_tokens.saturating_sub(1));
        if needed > self.limits.pages {
            return Err(Rejected::TooLarge { needed });
        }
        if self.waiting() >= self.limits.waiting {
            return Err(Rejected::QueueFull);
        }
        // A tenant that was idle does not get the share of the time that it was away.
        if !self.jobs.values().any(|job| job.spec.tenant == spec.tenant) {
            let least =
                self.jobs.values().filter_map(|job| self.service.get(&job.spec.tenant)).min().copied();
            if self.jobs.is_empty() {
                self.service.clear();
            }
            let own = self.service.entry(spec.tenant).or_default();
            *own = (*own).max(least.unwrap_or(0));
        }
        self.next += 1;
        let tokens = spec.prompt.clone();
        let job = Job {
            spec,
            tokens,
            computed: 0,
            planned: 0,
            unknown: 0,
            pages: Vec::new(),
            running: false,
            cached: None,
            drafts: Drafts::default(),
        };
        self.jobs.insert(self.next, job);
        Ok(self.next)
    }

    /// Removes a job that is finished, failed or cancelled.
    pub fn remove(&mut self, id: JobId) -> Option<Job> {
        let mut job = self.jobs.remove(&id)?;
        job.pages.drain(..).for_each(|page| self.counts.release(page));
        Some(job)
    }

    /// Jobs whose deadline has passed.
    pub fn expired(&self, now: Duration) -> Vec<JobId> {
        let expired = |job: &Job| job.spec.deadline.is_some_and(|deadline| deadline <= now);
        self.jobs.iter().filter(|(_, job)| expired(job)).map(|(id, _)| *id).collect()
    }

    /// The earliest deadline.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.jobs.values().filter_map(|job| job.spec.deadline).min()
    }

    /// Gives up the pages of a job.
    fn preempt(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.pages.drain(..).for_each(|page| self.counts.release(page));
            (job.running, job.computed) = (false, 0);
            job.discard();
        }
    }

    /// The rows of all pages are lost: every job is computed again. After a failure fewer jobs run at once,
    /// until steps succeed again: so a job that makes every step fail is alone at last. Returns that job, if
    /// it was alone.
    pub fn lost(&mut self) -> Option<JobId> {
        let running: Vec<JobId> =
            self.jobs.iter().filter(|(_, job)| job.running).map(|(id, _)| *id).collect();
        running.iter().for_each(|id| self.preempt(*id));
        self.prefix.clear(&mut self.counts);
        (self.running_limit, self.good_steps) = ((running.len() / 2).max(1), 0);
        match running[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// What tokens of a prompt cost. Where pieces have passes through the model of their own, in tokens of
    /// whole chunks: a pass has a part that does not depend on the number of tokens.
    fn weight(&self, tokens: usize) -> usize {
        match self.limits.fixed_pieces {
            true => (tokens.next_multiple_of(self.limits.chunk) + tokens).div_ceil(2),
            false => tokens,
        }
    }

    /// A plan took so long.
    pub fn measured(&mut self, plan: &Plan, time: Time) {
        let tokens = plan.chunks.iter().map(|piece| self.weight(piece.tokens.len())).sum();
        self.pace.measured(plan.decode_rows(), tokens, time);
    }

    /// A step succeeded.
    pub fn succeeded(&mut self) {
        self.good_steps += 1;
        if self.good_steps >= RECOVERY_STEPS && self.running_limit < self.limits.running {
            (self.running_limit, self.good_steps) = ((2 * self.running_limit).min(self.limits.running), 0);
        }
    }

    /// The last ranked job that runs.
    fn last_running(&self) -> Option<JobId> {
        let running = self.jobs.iter().filter(|(_, job)| job.running);
        running.min_by_key(|(id, job)| (job.spec.priority, std::cmp::Reverse(**id))).map(|(id, _)| *id)
    }

    /// Pages that a job will need beyond those it has, as far as admission reserves them.
    fn projected(&self, job: &Job) -> usize {
        let left = job.spec.max_tokens.saturating_sub(job.generated()).min(self.limits.reserve);
        let live = job.pages.iter().filter(|page| **page != SCRATCH_PAGE).count();
        self.pages_of(job.tokens.len() + left).saturating_sub(live)
    }

    /// The waiting job that is next: by priority, then the tenant that was served least, then by arrival.
    fn next_waiting(&self) -> Option<JobId> {
        let service = |job: &Job| self.service.get(&job.spec.tenant).copied().unwrap_or(0);
        let waiting = self.jobs.iter().filter(|(_, job)| !job.running);
        waiting
            .min_by_key(|(id, job)| (std::cmp::Reverse(job.spec.priority), service(job), **id))
            .map(|(id, _)| *id)
    }

    /// Lets waiting jobs run as long as there is room. Returns false if a running job has to give way and
    /// must not, since steps are in flight.
    fn admit(&mut self, plan: &mut Plan, in_flight: bool) -> bool {
        let mut running = self.jobs.values().filter(|job| job.running).count();
        while let Some(id) = self.next_waiting() {
            let job = &self.jobs[&id];
            let (chunk, page) = (self.limits.chunk, self.limits.page);
            // At least one token is computed: its logits choose the first token.
            let known = match job.spec.use_prefix {
                true => {
                    self.prefix.find(job.spec.tenant, &job.spec.prompt[..(job.prompt() - 1) / chunk * chunk])
                }
                false => Vec::new(),
            };
            // With one more user they are not evicted.
            known.iter().for_each(|page| self.counts.share(*page));
            let reserved: usize =
                self.jobs.values().filter(|job| job.running).map(|job| self.projected(job)).sum();
            let needed = self.projected(&self.jobs[&id]).saturating_sub(known.len());
            let free = self.counts.free() + self.prefix.evictable(&self.counts);
            let fits = running == 0 || (running < self.running_limit && needed + reserved <= free);
            if !fits {
                known.iter().for_each(|page| self.counts.release(*page));
                let victim = self
                    .last_running()
                    .filter(|last| self.jobs[last].spec.priority < self.jobs[&id].spec.priority);
                match victim {
                    Some(_) if in_flight => return false,
                    Some(victim) => {
                        self.preempt(victim);
                        plan.preempted += 1;
                        running -= 1;
                        continue;
                    }
                    None => return true,
                }
            }
            running += 1;
            let Some(job) = self.jobs.get_mut(&id) else { return true };
            (job.running, job.computed, job.pages) = (true, known.len() * page, known);
            job.discard();
            if job.cached.is_none() {
                job.cached = Some(job.computed);
                plan.started.push((id, job.computed));
            }
            self.release_unseen(id);
        }
        true
    }

    /// Releases pages of tokens that no layer sees any more.
    fn release_unseen(&mut self, id: JobId) {
        let (Some(window), Some(job)) = (self.limits.window, self.jobs.get_mut(&id)) else { return };
        let unseen = (job.computed + 1).saturating_sub(window) / self.limits.page;
        for page in job.pages.iter_mut().take(unseen).filter(|page| **page != SCRATCH_PAGE) {
            self.counts.release(*page);
            *page = SCRATCH_PAGE;
        }
    }

    /// Gives a job the pages for `tokens` more tokens, from prefixes that no job uses if none is free.
    /// Returns whether it has them.
    fn extend(&mut self, id: JobId, tokens: usize) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else { return false };
        let needed = (job.planned + tokens).div_ceil(self.limits.page);
        while job.pages.len() < needed {
            match self.counts.take() {
                Some(page) => job.pages.push(page),
                None if self.prefix.evict(&mut self.counts) => {}
                None => return false,
            }
        }
        true
    }

    fn piece(&mut self, id: JobId, count: usize) -> Option<Piece> {
        let job = self.jobs.get_mut(&id)?;
        *self.service.entry(job.spec.tenant).or_default() += count as u64;
        let (start, end) = (job.planned, job.planned + count);
        let sample = end == job.tokens.len() + job.unknown;
        let token = |at: usize| job.tokens.get(at).copied().unwrap_or(UNKNOWN_TOKEN);
        let tokens = (start..end).map(token).collect();
        (job.planned, job.unknown) = (end, job.unknown + usize::from(sample));
        Some(Piece { job: id, start, tokens, drafts: 0, pages: job.pages.clone(), sample })
    }

    /// Tokens of the next piece of a job that decodes: those that are known, if it was preempted.
    fn next_tokens(&self, id: JobId) -> usize {
        let job = &self.jobs[&id];
        let most = if self.limits.fixed_pieces { 1 } else { self.limits.chunk };
        job.tokens.len().saturating_sub(job.planned).clamp(1, most)
    }

    /// Adds guesses to the pieces of jobs that decode, if there are few. They take free pages only.
    fn add_drafts(&mut self, plan: &mut Plan) {
        let mut rows = plan.decode_rows();
        for piece in plan.decode.iter_mut().filter(|piece| piece.sample) {
            let most = self.limits.drafts.min(MAX_DRAFT_ROWS.saturating_sub(rows));
            let Some(job) = self.jobs.get_mut(&piece.job).filter(|_| most > 0) else { continue };
            // The last token is not computed.
            let left = job.spec.max_tokens - job.generated();
            let guesses = job.drafts.guess(&job.tokens, most.min(left.saturating_sub(1)));
            let pages = (job.planned + guesses.len()).div_ceil(self.limits.page);
            if guesses.is_empty() || pages.saturating_sub(job.pages.len()) > self.counts.free() {
                continue;
            }
            piece.tokens.extend_from_slice(guesses);
            (piece.drafts, rows) = (guesses.len(), rows + guesses.len());
            while job.pages.len() < pages
                && let Some(page) = self.counts.take()
            {
                job.pages.push(page);
            }
            piece.pages.clone_from(&job.pages);
        }
    }

    /// Tokens of the next piece of a prompt in a step that has room for `left` tokens: at least the rest of a
    /// chunk.
    fn next_piece(&self, id: JobId, left: usize) -> usize {
        let (job, chunk) = (&self.jobs[&id], self.limits.chunk);
        let room = if self.limits.fixed_pieces { 0 } else { job.planned.saturating_add(left) };
        let end = if room >= job.prompt() { room } else { room / chunk * chunk };
        end.max((job.planned / chunk + 1) * chunk).min(job.prompt()) - job.planned
    }

    /// The next step. The jobs of a plan keep their pages until the next plan, unless they are removed. Steps
    /// in flight are discarded.
    pub fn plan(&mut self) -> Plan {
        self.jobs.values_mut().for_each(Job::discard);
        let mut plan = Plan::default();
        self.add_pieces(&mut plan, false);
        if plan.is_empty() && plan.preempted > 0 {
            // All gave way to each other; the first of them has room now.
            self.add_pieces(&mut plan, false);
        }
        plan
    }

    /// The step after the one in flight, as if that had been computed. No job is preempted: where one would
    /// have to be, the plan is empty.
    pub fn plan_ahead(&mut self) -> Plan {
        let mut plan = Plan::default();
        self.add_pieces(&mut plan, true);
        plan
    }

    /// Takes the pieces out of a plan.
    fn undo(&mut self, plan: &mut Plan) {
        for piece in plan.decode.drain(..).chain(plan.chunks.drain(..)).rev() {
            if let Some(job) = self.jobs.get_mut(&piece.job) {
                (job.planned, job.unknown) = (piece.start, job.unknown - usize::from(piece.sample));
            }
        }
    }

    fn add_pieces(&mut self, plan: &mut Plan, in_flight: bool) {
        if !self.admit(plan, in_flight) {
            return;
        }
        let ranked = self.ranked();
        for id in &ranked {
            // It may have been preempted for one that ranks higher.
            while self.jobs[id].running && self.jobs[id].has_next() {
                let count = self.next_tokens(*id);
                if self.extend(*id, count) {
                    plan.decode.extend(self.piece(*id, count));
                    break;
                }
                if in_flight {
                    return self.undo(plan);
                }
                let Some(last) = self.last_running() else { break };
                self.preempt(last);
                plan.preempted += 1;
            }
        }
        if !in_flight {
            self.add_drafts(plan);
        }
        let mut left = self.limits.step_tokens.saturating_sub(plan.decode_rows());
        if self.limits.is_paced {
            let waiting = |job: &Job| self.weight(job.prompt().saturating_sub(job.planned));
            let waiting = self.jobs.values().map(waiting).sum();
            let paced = self.pace.prompt_tokens(plan.decode_rows(), waiting);
            left = left.min(paced.unwrap_or(self.limits.chunk));
        }
        loop {
            let service = |id: &JobId| self.service.get(&self.jobs[id].spec.tenant).copied().unwrap_or(0);
            let next = ranked.iter().filter(|id| self.jobs[*id].running && !self.jobs[*id].decodes());
            // The oldest prompt and the one with the fewest tokens left take turns: a long prompt delays no
            // short one, and short ones do not delay a long one forever.
            let rank = |id: &&JobId| {
                let job = &self.jobs[*id];
                let left = if self.shortest_next { job.prompt() - job.planned } else { 0 };
                (std::cmp::Reverse(job.spec.priority), service(id), left, **id)
            };
            let next = next.min_by_key(rank);
            let Some(id) = next.copied() else { break };
            let mut count = self.next_piece(id, left);
            if !self.extend(id, count) {
                count = self.next_piece(id, 0);
            }
            let weight = if self.limits.is_paced { self.weight(count) } else { count };
            if weight > left && !plan.chunks.is_empty() {
                break;
            }
            if !self.extend(id, count) {
                // Those that decode end some day. If there are none, another prompt has to give way.
                if in_flight || !plan.is_empty() {
                    break;
                }
                let Some(last) = self.last_running() else { break };
                self.preempt(last);
                plan.preempted += 1;
                continue;
            }
            left = left.saturating_sub(weight);
            self.shortest_next = !self.shortest_next;
            plan.chunks.extend(self.piece(id, count));
        }
    }

    /// The rows of a piece of the last plan are computed, and its first `right` guesses were right.
    pub fn computed(&mut self, piece: &Piece, right: usize) {
        let Some(job) =
            self.jobs.get_mut(&piece.job).filter(|job| job.running && job.computed == piece.start)
        else {
            return;
        };
        job.computed += piece.tokens.len() - piece.drafts + right;
        job.planned = job.planned.max(job.computed);
        job.drafts.judged(piece.drafts, right);
        let chunks = job.computed.min(job.prompt()) / self.limits.chunk;
        if job.spec.use_prefix && chunks > piece.start / self.limits.chunk {
            let (tokens, pages) = (chunks * self.limits.chunk, chunks * self.limits.chunk / self.limits.page);
            let (tokens, pages) = (&job.spec.prompt[..tokens], &job.pages[..pages]);
            self.prefix.insert(job.spec.tenant, tokens, pages, &mut self.counts);
        }
        self.release_unseen(piece.job);
    }

    /// A token of a job was chosen.
    pub fn push(&mut self, id: JobId, token: u32) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.tokens.push(token);
            job.unknown = job.unknown.saturating_sub(1);
        }
    }

    /// Checks that the users of every page are those that are counted, and that no page is written to and
    /// shared.
    pub fn check(&self) -> Result<(), String> {
        let mut users: HashMap<u32, u32> = HashMap::new();
        let held = self.jobs.values().flat_map(|job| job.pages.iter().copied()).chain(self.prefix.pages());
        held.filter(|page| *page != SCRATCH_PAGE).for_each(|page| *users.entry(page).or_default() += 1);
        for page in 1..=self.counts.capacity() as u32 {
            let (expected, counted) = (users.get(&page).copied().unwrap_or(0), self.counts.users(page));
            if counted != expected {
                return Err(format!("page {page} has {expected} users and counts {counted}"));
            }
        }
        if self.counts.free() + users.len() != self.counts.capacity() {
            return Err(format!("{} pages are free and {} used", self.counts.free(), users.len()));
        }
        // Shared pages hold whole chunks of prompts that are computed: no job writes to them.
        for (id, job) in &self.jobs {
            let ordered = job.computed <= job.planned && job.planned <= job.pages.len() * self.limits.page;
            if !ordered || job.planned > job.tokens.len() + job.unknown || (!job.running && job.planned > 0) {
                return Err(format!("job {id} has planned rows that it cannot have: {job:?}"));
            }
            let chunks = job.computed.min(job.prompt()) / self.limits.chunk;
            let written = job.pages.iter().skip(chunks * self.limits.chunk / self.limits.page);
            if let Some(page) = written.into_iter().find(|page| self.counts.users(**page) != 1) {
                return Err(format!("job {id} writes to page {page}, which is shared"));
            }
        }
        Ok(())
    }
}

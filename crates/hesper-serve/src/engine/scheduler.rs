//! The scheduler decides what the next step computes: a state machine without a model, clock or threads.
//!
//! A job waits, then runs: its prompt is computed in chunks (prefill), then one token in each step (decode).
//! [`Scheduler::plan`] says which jobs take part in the next step and which pages hold their KV rows. The
//! caller runs the step and reports what was computed ([`Scheduler::computed`]) and which tokens were chosen
//! ([`Scheduler::push`]). [`Scheduler::plan_ahead`] plans one more step while a step is in flight. Tokens
//! that the step in flight chooses are [`UNKNOWN_TOKEN`] in that plan.
//!
//! Jobs are ranked by priority, then by arrival. A running job holds the pages of its computed tokens. If
//! pages run out, prefixes that no job uses are evicted first. Then the lowest ranked running job is
//! preempted: its pages are released, it waits, and it is recomputed later. The highest ranked job is never
//! preempted, so some job always makes progress.
//!
//! Jobs whose prompts begin alike compute the common chunks once: while a step computes a chunk for one of
//! them, the others do not compute it, and they find it in the prefix cache after the step.
//!
//! With speculative decoding ([`Limits::drafts`]) a piece of a decoding job has draft tokens after its own
//! token. The caller reports how many were accepted. Their rows count as computed.
//!
//! **The output of a job does not depend on other jobs.** If the rounding of a row depends on the other rows
//! of a pass ([`Limits::fixed_pieces`]), chunks begin and end at multiples of the chunk length, whatever the
//! prefix cache holds, and a preempted job recomputes its generated tokens one by one, as before. The prefix
//! cache holds whole chunks only.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use hesper_lm::{PageCounts, SCRATCH_PAGE};

use super::draft::Drafts;
use super::pace::Pace;
pub use super::pace::Time;
use super::prefix::PrefixTree;
use crate::protocol::Phase;

/// The number of a job, in the order of arrival.
pub type JobId = u64;

/// Stands for a token that the step in flight chooses.
pub const UNKNOWN_TOKEN: u32 = u32::MAX;

/// The limits of a scheduler.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Tokens of a page.
    pub page: usize,
    /// Tokens of a chunk: a multiple of a page.
    pub chunk: usize,
    /// Whether a piece of a prompt is one chunk. Otherwise it is as many chunks as a step has room for, and
    /// how the prompt is divided depends on other jobs.
    pub fixed_pieces: bool,
    /// The number of pages.
    pub pages: usize,
    /// The most pages that the prefix cache may hold.
    pub prefix_pages: usize,
    /// The most jobs that run at once.
    pub running: usize,
    /// The most jobs that wait.
    pub waiting: usize,
    /// The most tokens of a step. A step has at least one chunk, even above this limit, if a job needs one.
    pub step_tokens: usize,
    /// Whether the prompt tokens of a step are also limited by the measured cost of steps
    /// ([`Scheduler::measured`]).
    pub is_paced: bool,
    /// The most tokens still to be generated for which admission reserves pages.
    pub reserve: usize,
    /// The largest attention window of the layers, if all layers have one.
    pub window: Option<usize>,
    /// The most draft tokens of a job in a step. There are none while many jobs decode.
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
    /// Tenants get equal shares of the engine and do not share prefixes with each other.
    pub tenant: u64,
    /// Whether it uses the prefix cache.
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
    /// Tokens whose KV rows are in pages.
    computed: usize,
    /// Tokens whose KV rows are in pages or are being computed by steps in flight.
    planned: usize,
    /// Tokens after `tokens` that steps in flight choose.
    unknown: usize,
    pages: Vec<u32>,
    running: bool,
    /// Tokens that were found in the prefix cache, once it has run.
    cached: Option<usize>,
    drafts: Drafts,
}

impl Job {
    fn prompt_len(&self) -> usize {
        self.spec.prompt.len()
    }

    /// Whether its prompt is computed, or will be after the steps in flight.
    fn decodes(&self) -> bool {
        self.planned >= self.prompt_len()
    }

    /// Whether there is a token for one more decode step.
    fn has_next(&self) -> bool {
        self.decodes()
            && self.planned < self.tokens.len() + self.unknown
            && self.generated() + self.unknown < self.spec.max_tokens
    }

    /// Discards the steps in flight.
    fn discard(&mut self) {
        (self.planned, self.unknown) = (self.computed, 0);
    }

    /// Generated tokens.
    pub fn generated(&self) -> usize {
        self.tokens.len() - self.prompt_len()
    }

    /// Tokens of the prompt, and those that are computed.
    pub fn progress(&self) -> (usize, usize) {
        (self.prompt_len(), self.computed.min(self.prompt_len()))
    }

    /// Its phase.
    pub fn phase(&self) -> Phase {
        match (self.running, self.cached) {
            (true, _) if self.computed >= self.prompt_len() => Phase::Decode,
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
    /// How many of them are draft tokens, at the end.
    pub drafts: usize,
    /// The pages of the job.
    pub pages: Vec<u32>,
    /// Whether the next token is sampled, from the logits of the last token before the draft. Tokens after
    /// accepted draft tokens are sampled from the logits of those.
    pub sample: bool,
}

/// What a step computes.
#[derive(Debug, Default)]
pub struct Plan {
    /// Jobs that run for the first time, with the number of tokens found in the prefix cache.
    pub started: Vec<(JobId, usize)>,
    /// The next token of each decoding job, with its draft tokens; or several tokens that a preempted job had
    /// generated.
    pub decode: Vec<Piece>,
    /// Chunks of prompts.
    pub chunks: Vec<Piece>,
    /// Jobs that were preempted.
    pub preempted: usize,
    /// Tokens of prompts that jobs found in the prefix cache after they had started.
    pub reused: usize,
}

impl Plan {
    /// All pieces, the decoding ones first.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.decode.iter().chain(&self.chunks)
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.decode.is_empty() && self.chunks.is_empty()
    }

    /// The number of rows of decoding jobs.
    pub fn decode_rows(&self) -> usize {
        self.decode.iter().map(|piece| piece.tokens.len()).sum()
    }
}

/// The most decoding rows of a step with draft tokens. With more, a row costs as much as the token that it
/// may save.
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
    last_id: JobId,
    /// Tokens that were planned for each tenant, for equal shares.
    service: HashMap<u64, u64>,
    /// The most jobs that run at once: below [`Limits::running`] after failures.
    running_limit: usize,
    /// Steps without a failure since `running_limit` has changed.
    good_steps: usize,
    pace: Pace,
    /// Whether the next chunk comes from the prompt with the fewest tokens left instead of the oldest one.
    shortest_next: bool,
}

impl Scheduler {
    /// A scheduler without jobs.
    pub fn new(limits: Limits) -> Self {
        Scheduler {
            counts: PageCounts::new(limits.pages),
            prefix: PrefixTree::new(limits.chunk, limits.prefix_pages),
            jobs: BTreeMap::new(),
            last_id: 0,
            service: HashMap::new(),
            running_limit: limits.running,
            good_steps: 0,
            pace: Pace::default(),
            shortest_next: false,
            limits,
        }
    }

    /// The limits.
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

    /// The number of waiting jobs.
    pub fn waiting(&self) -> usize {
        self.jobs.values().filter(|job| !job.running).count()
    }

    /// The number of pages that jobs use, and of pages that only the prefix cache uses.
    pub fn pages_used(&self) -> (usize, usize) {
        let cached = self.prefix.evictable(&self.counts);
        (self.counts.capacity() - self.counts.free() - cached, cached)
    }

    /// All jobs by rank, the highest first.
    pub fn ranked(&self) -> Vec<JobId> {
        let mut all: Vec<(&JobId, &Job)> = self.jobs.iter().collect();
        all.sort_by_key(|(id, job)| (std::cmp::Reverse(job.spec.priority), **id));
        all.into_iter().map(|(id, _)| *id).collect()
    }

    /// The most pages that a sequence of `tokens` tokens needs at once: with a window, those that a chunk
    /// sees.
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
        // An idle tenant earns no credit: it starts with the least service of the active tenants.
        if !self.jobs.values().any(|job| job.spec.tenant == spec.tenant) {
            let least =
                self.jobs.values().filter_map(|job| self.service.get(&job.spec.tenant)).min().copied();
            if self.jobs.is_empty() {
                self.service.clear();
            }
            let own = self.service.entry(spec.tenant).or_default();
            *own = (*own).max(least.unwrap_or(0));
        }
        self.last_id += 1;
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
        self.jobs.insert(self.last_id, job);
        Ok(self.last_id)
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

    /// Releases the pages of a job, which then waits.
    fn preempt(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.pages.drain(..).for_each(|page| self.counts.release(page));
            (job.running, job.computed) = (false, 0);
            job.discard();
        }
    }

    /// Records that all KV rows are lost: every job is recomputed. Half as many jobs run at once until steps
    /// succeed again, so that a job that makes every step fail runs alone in the end. Returns the job that
    /// ran alone in the failed step, if one did.
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

    /// The cost of a piece of a prompt, in tokens. With `fixed_pieces` a piece is a pass of its own, which
    /// has a fixed cost: half of the padding to whole chunks is added.
    fn weight(&self, tokens: usize) -> usize {
        match self.limits.fixed_pieces {
            true => (tokens.next_multiple_of(self.limits.chunk) + tokens).div_ceil(2),
            false => tokens,
        }
    }

    /// Records the time that a plan took.
    pub fn measured(&mut self, plan: &Plan, time: Time) {
        let tokens = plan.chunks.iter().map(|piece| self.weight(piece.tokens.len())).sum();
        self.pace.measured(plan.decode_rows(), tokens, time);
    }

    /// Records that a step succeeded.
    pub fn succeeded(&mut self) {
        self.good_steps += 1;
        if self.good_steps >= RECOVERY_STEPS && self.running_limit < self.limits.running {
            (self.running_limit, self.good_steps) = ((2 * self.running_limit).min(self.limits.running), 0);
        }
    }

    /// The lowest ranked running job.
    fn last_running(&self) -> Option<JobId> {
        let running = self.jobs.iter().filter(|(_, job)| job.running);
        running.min_by_key(|(id, job)| (job.spec.priority, std::cmp::Reverse(**id))).map(|(id, _)| *id)
    }

    /// The pages that admission reserves for a job in addition to those it has.
    fn projected(&self, job: &Job) -> usize {
        let left = job.spec.max_tokens.saturating_sub(job.generated()).min(self.limits.reserve);
        let live = job.pages.iter().filter(|page| **page != SCRATCH_PAGE).count();
        self.pages_of(job.tokens.len() + left).saturating_sub(live)
    }

    /// The next job to admit: by priority, then of the tenant with the least service, then by arrival.
    fn next_waiting(&self) -> Option<JobId> {
        let service = |job: &Job| self.service.get(&job.spec.tenant).copied().unwrap_or(0);
        let waiting = self.jobs.iter().filter(|(_, job)| !job.running);
        waiting
            .min_by_key(|(id, job)| (std::cmp::Reverse(job.spec.priority), service(job), **id))
            .map(|(id, _)| *id)
    }

    /// Admits waiting jobs as long as there is room, and preempts running jobs of lower priority. Returns
    /// false if a job would have to be preempted while a step is in flight, which is not allowed.
    fn admit(&mut self, plan: &mut Plan, in_flight: bool) -> bool {
        let mut running = self.jobs.values().filter(|job| job.running).count();
        while let Some(id) = self.next_waiting() {
            let job = &self.jobs[&id];
            let (chunk, page) = (self.limits.chunk, self.limits.page);
            // Leave out the last token of the prompt: its logits are needed for the first generated token.
            let cached = match job.spec.use_prefix {
                true => self
                    .prefix
                    .find(job.spec.tenant, &job.spec.prompt[..(job.prompt_len() - 1) / chunk * chunk]),
                false => Vec::new(),
            };
            // Count the job as a user now, so that the pages are not evicted.
            cached.iter().for_each(|page| self.counts.share(*page));
            let reserved: usize =
                self.jobs.values().filter(|job| job.running).map(|job| self.projected(job)).sum();
            let needed = self.projected(&self.jobs[&id]).saturating_sub(cached.len());
            let free = self.counts.free() + self.prefix.evictable(&self.counts);
            let fits = running == 0 || (running < self.running_limit && needed + reserved <= free);
            if !fits {
                cached.iter().for_each(|page| self.counts.release(*page));
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
            (job.running, job.computed, job.pages) = (true, cached.len() * page, cached);
            job.discard();
            if job.cached.is_none() {
                job.cached = Some(job.computed);
                plan.started.push((id, job.computed));
            }
            self.release_unseen(id);
        }
        true
    }

    /// Releases the pages that are outside the window of every layer.
    fn release_unseen(&mut self, id: JobId) {
        let (Some(window), Some(job)) = (self.limits.window, self.jobs.get_mut(&id)) else { return };
        let unseen = (job.computed + 1).saturating_sub(window) / self.limits.page;
        for page in job.pages.iter_mut().take(unseen).filter(|page| **page != SCRATCH_PAGE) {
            self.counts.release(*page);
            *page = SCRATCH_PAGE;
        }
    }

    /// Allocates pages for `tokens` more tokens of a job. Evicts prefixes that no job uses if no page is
    /// free. Returns whether the job has all pages that it needs.
    fn allocate_pages(&mut self, id: JobId, tokens: usize) -> bool {
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

    /// Plans the next `count` tokens of a job.
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

    /// The length of the next piece of a decoding job: more than 1 only if it was preempted and recomputes
    /// the tokens that it had generated.
    fn decode_piece_len(&self, id: JobId) -> usize {
        let job = &self.jobs[&id];
        let most = if self.limits.fixed_pieces { 1 } else { self.limits.chunk };
        job.tokens.len().saturating_sub(job.planned).clamp(1, most)
    }

    /// Adds draft tokens to the pieces of decoding jobs, if there are few. Allocates free pages only: evicts
    /// and preempts nothing for them.
    fn add_drafts(&mut self, plan: &mut Plan) {
        let mut rows = plan.decode_rows();
        for piece in plan.decode.iter_mut().filter(|piece| piece.sample) {
            let most = self.limits.drafts.min(MAX_DRAFT_ROWS.saturating_sub(rows));
            let Some(job) = self.jobs.get_mut(&piece.job).filter(|_| most > 0) else { continue };
            // A step yields one token more than it accepts draft tokens.
            let left = job.spec.max_tokens - job.generated();
            let draft = job.drafts.propose(&job.tokens, most.min(left.saturating_sub(1)));
            let pages = (job.planned + draft.len()).div_ceil(self.limits.page);
            if draft.is_empty() || pages.saturating_sub(job.pages.len()) > self.counts.free() {
                continue;
            }
            piece.tokens.extend_from_slice(draft);
            (piece.drafts, rows) = (draft.len(), rows + draft.len());
            while job.pages.len() < pages
                && let Some(page) = self.counts.take()
            {
                job.pages.push(page);
            }
            piece.pages.clone_from(&job.pages);
        }
    }

    /// The length of the next piece of a prompt in a step that has room for `left` tokens: at least the rest
    /// of a chunk.
    fn prompt_piece_len(&self, id: JobId, left: usize) -> usize {
        let (job, chunk) = (&self.jobs[&id], self.limits.chunk);
        let room = if self.limits.fixed_pieces { 0 } else { job.planned.saturating_add(left) };
        let end = if room >= job.prompt_len() { room } else { room / chunk * chunk };
        end.max((job.planned / chunk + 1) * chunk).min(job.prompt_len()) - job.planned
    }

    /// Gives a job the chunks that the prefix cache has now and did not have when the job started. Returns
    /// the number of their tokens.
    fn reuse(&mut self, id: JobId) -> usize {
        let Limits { page, chunk, .. } = self.limits;
        let is_between_chunks =
            |job: &&mut Job| job.planned == job.computed && job.computed.is_multiple_of(chunk);
        let job = self.jobs.get_mut(&id).filter(|job| job.spec.use_prefix);
        let Some(job) = job.filter(is_between_chunks) else { return 0 };
        let most = (job.prompt_len() - 1) / chunk * chunk;
        let found = self.prefix.find(job.spec.tenant, &job.spec.prompt[..most]);
        let (first, tokens) = (job.computed / page, found.len() * page);
        let count = tokens.saturating_sub(job.computed);
        if count > 0 {
            // Own pages after the computed tokens were allocated for a step that was discarded.
            found[first..].iter().for_each(|page| self.counts.share(*page));
            job.pages.drain(first..).for_each(|page| self.counts.release(page));
            job.pages.extend_from_slice(&found[first..]);
            (job.computed, job.planned) = (tokens, tokens);
            job.cached = job.cached.map(|cached| (cached + count).min(tokens));
            self.release_unseen(id);
        }
        count
    }

    /// Whether a step that is planned or in flight computes the next chunk of a prompt for another job, from
    /// which the prefix cache gets it.
    fn is_computed_elsewhere(&self, id: JobId) -> bool {
        let (job, Limits { chunk, page, prefix_pages, .. }) = (&self.jobs[&id], &self.limits);
        let end = job.planned + chunk;
        // The last token of a prompt is always computed.
        let can_wait = job.spec.use_prefix && job.planned == job.computed && end < job.prompt_len();
        if !can_wait || !job.planned.is_multiple_of(*chunk) || *prefix_pages < end / page {
            return false;
        }
        self.jobs.iter().any(|(other_id, other)| {
            *other_id != id
                && (other.spec.tenant, other.spec.use_prefix) == (job.spec.tenant, true)
                && (other.computed < end && end <= other.planned)
                && other.spec.prompt.get(..end) == Some(&job.spec.prompt[..end])
        })
    }

    /// Plans the next step and discards the steps in flight. The jobs of a plan keep their pages until the
    /// next plan, unless they are removed.
    pub fn plan(&mut self) -> Plan {
        self.jobs.values_mut().for_each(Job::discard);
        let mut plan = Plan::default();
        self.add_pieces(&mut plan, false);
        if plan.is_empty() && plan.preempted > 0 {
            // Jobs were preempted until none was left in the plan. The highest ranked one has room now.
            self.add_pieces(&mut plan, false);
        }
        plan
    }

    /// Plans the step after the one in flight, as if that had been computed. Preempts no job: if one would
    /// have to be, the plan is empty.
    pub fn plan_ahead(&mut self) -> Plan {
        let mut plan = Plan::default();
        self.add_pieces(&mut plan, true);
        plan
    }

    /// Removes the pieces from a plan.
    fn undo(&mut self, plan: &mut Plan) {
        for piece in plan.decode.drain(..).chain(plan.chunks.drain(..)).rev() {
            if let Some(job) = self.jobs.get_mut(&piece.job) {
                (job.planned, job.unknown) = (piece.start, job.unknown - usize::from(piece.sample));
            }
        }
    }

    /// Admits jobs, then plans the decoding jobs, their draft tokens, and pieces of prompts.
    fn add_pieces(&mut self, plan: &mut Plan, in_flight: bool) {
        if !self.admit(plan, in_flight) {
            return;
        }
        let ranked = self.ranked();
        for id in &ranked {
            // A job of a higher rank may have preempted it.
            while self.jobs[id].running && self.jobs[id].has_next() {
                let count = self.decode_piece_len(*id);
                if self.allocate_pages(*id, count) {
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
            let waiting = |job: &Job| self.weight(job.prompt_len().saturating_sub(job.planned));
            let waiting = self.jobs.values().map(waiting).sum();
            let paced = self.pace.prompt_tokens(plan.decode_rows(), waiting);
            left = left.min(paced.unwrap_or(self.limits.chunk));
        }
        let mut waits = Vec::new();
        loop {
            let service = |id: &JobId| self.service.get(&self.jobs[id].spec.tenant).copied().unwrap_or(0);
            let next = ranked.iter().filter(|id| self.jobs[*id].running && !self.jobs[*id].decodes());
            let next = next.filter(|id| !waits.contains(*id));
            // The oldest prompt and the one with the fewest tokens left take turns, so that a long prompt
            // does not delay short ones and many short ones do not starve a long one.
            let rank = |id: &&JobId| {
                let job = &self.jobs[*id];
                let left = if self.shortest_next { job.prompt_len() - job.planned } else { 0 };
                (std::cmp::Reverse(job.spec.priority), service(id), left, **id)
            };
            let next = next.min_by_key(rank);
            let Some(id) = next.copied() else { break };
            plan.reused += self.reuse(id);
            if self.is_computed_elsewhere(id) {
                waits.push(id);
                continue;
            }
            let mut count = self.prompt_piece_len(id, left);
            if !self.allocate_pages(id, count) {
                count = self.prompt_piece_len(id, 0);
            }
            let weight = if self.limits.is_paced { self.weight(count) } else { count };
            if weight > left && !plan.chunks.is_empty() {
                break;
            }
            if !self.allocate_pages(id, count) {
                // Decoding jobs will release pages when they finish. If there are none, preempt a job.
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

    /// Records that a piece was computed and that its first `accepted` draft tokens were accepted.
    pub fn computed(&mut self, piece: &Piece, accepted: usize) {
        let Some(job) =
            self.jobs.get_mut(&piece.job).filter(|job| job.running && job.computed == piece.start)
        else {
            return;
        };
        job.computed += piece.tokens.len() - piece.drafts + accepted;
        job.planned = job.planned.max(job.computed);
        job.drafts.record(piece.drafts, accepted);
        let chunks = job.computed.min(job.prompt_len()) / self.limits.chunk;
        if job.spec.use_prefix && chunks > piece.start / self.limits.chunk {
            let (tokens, pages) = (chunks * self.limits.chunk, chunks * self.limits.chunk / self.limits.page);
            let (tokens, pages) = (&job.spec.prompt[..tokens], &job.pages[..pages]);
            self.prefix.insert(job.spec.tenant, tokens, pages, &mut self.counts);
        }
        self.release_unseen(piece.job);
    }

    /// Records a token that was chosen for a job.
    pub fn push(&mut self, id: JobId, token: u32) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.tokens.push(token);
            job.unknown = job.unknown.saturating_sub(1);
        }
    }

    /// Checks that the user count of every page is right, and that no job writes to a shared page.
    pub fn check(&self) -> Result<(), String> {
        let mut users: HashMap<u32, u32> = HashMap::new();
        let held = self.jobs.values().flat_map(|job| job.pages.iter().copied()).chain(self.prefix.pages());
        held.filter(|page| *page != SCRATCH_PAGE).for_each(|page| *users.entry(page).or_default() += 1);
        for page in 1..=self.counts.capacity() as u32 {
            let (expected, counted) = (users.get(&page).copied().unwrap_or(0), self.counts.users(page));
            if counted != expected {
                return Err(format!("page {page} has {expected} users; its count is {counted}"));
            }
        }
        if self.counts.free() + users.len() != self.counts.capacity() {
            return Err(format!(
                "{} pages are free and {} are used; that is not all of them",
                self.counts.free(),
                users.len()
            ));
        }
        // Only pages of whole, computed prompt chunks may be shared: no job writes to those.
        for (id, job) in &self.jobs {
            let ordered = job.computed <= job.planned && job.planned <= job.pages.len() * self.limits.page;
            if !ordered || job.planned > job.tokens.len() + job.unknown || (!job.running && job.planned > 0) {
                return Err(format!("job {id} has an inconsistent number of planned tokens: {job:?}"));
            }
            let chunks = job.computed.min(job.prompt_len()) / self.limits.chunk;
            let written = job.pages.iter().skip(chunks * self.limits.chunk / self.limits.page);
            if let Some(page) = written.into_iter().find(|page| self.counts.users(**page) != 1) {
                return Err(format!("job {id} writes to page {page}, which is shared"));
            }
        }
        Ok(())
    }
}

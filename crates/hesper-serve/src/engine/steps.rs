//! The steps of the model: rows and chunks of a plan through the decoder, and tokens from its logits.
//!
//! [`Steps::launch`] encodes a step, [`Steps::finish`] waits for it and gives its tokens to the requests.
//! Where the device chooses every token of a step, the next one is launched in between: it takes its tokens
//! from the device.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use hesper_core::placement::Device;
use hesper_core::{Array, Submission, concatenate};
use hesper_lm::{
    DeviceChoice, Finish, KvCache, LanguageModel, NOT_CHOSEN, PageFormat, PagedCache, Result, SCRATCH_PAGE,
    Sampler, Sampling, Sequence, choose_tokens, log_probabilities,
};

use super::EngineOptions;
use super::pace::Time;
use super::scheduler::{JobId, Piece, Plan, UNKNOWN_TOKEN};
use super::state::State;
use crate::protocol::{self, Failure, FailureKind, Token};

/// The most rows of a step on the CPU: with more, products of packed weights take another path and round
/// differently.
const MAX_CPU_ROWS: usize = 64;

/// The fewest rows for which products of all kinds of weights take the same path on the CPU.
const MIN_CPU_ROWS: usize = 5;

/// Rows of a step with heads of keys from which on attention on a GPU does not split a sequence: with fewer
/// groups of them than the device has multiprocessors, the parts depend on the longest sequence.
const UNSPLIT_GROUPS: usize = 256;

/// Tokens of a prompt whose attention and products take the kernels of long ones.
const LONG_PROMPT: usize = 2048;

/// The most rows of a step on a GPU for which attention is one launch.
const MAX_GPU_ROWS: usize = 256;

/// The rows of every decode step on a GPU in a fixed order: enough for all requests, so that products always
/// have the same number of rows, and for attention that does not split sequences.
fn fixed_rows(running: usize, kv_heads: usize) -> usize {
    running.max(UNSPLIT_GROUPS.div_ceil(kv_heads.max(1))).min(MAX_GPU_ROWS)
}

/// Which tokens may come next in a text.
pub(super) trait TokenFilter: fmt::Debug + Send {
    /// The tokens that may come next, if not all may: bit `t % 32` of word `t / 32` for token `t`.
    fn allowed(&mut self) -> std::result::Result<Option<Vec<u32>>, String>;

    /// Takes a token that was allowed. Returns whether the text is complete.
    fn accept(&mut self, token: u32) -> std::result::Result<bool, String>;
}

/// The text of a request that runs.
#[derive(Debug)]
struct Text {
    sequence: Sequence,
    filter: Option<Box<dyn TokenFilter>>,
    /// The number of most likely tokens to report.
    logprobs: Option<usize>,
}

/// What a step gave one request.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A token, and whether it is the last one.
    Token(Token, Option<protocol::Finish>),
    /// The request fails.
    Failed(Failure),
}

/// What a step has computed, also if it failed in the middle.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Pieces of the plan that are computed.
    pub(super) pieces: usize,
    pub(super) outcomes: Vec<(JobId, Outcome)>,
    /// How long the rows that decode took.
    pub(super) decode: Option<Time>,
    /// How long the prompts took, which come behind them.
    pub(super) prompts: Option<Time>,
    /// The host has chosen another token than the device: a step that was launched meanwhile goes on with the
    /// wrong one.
    pub(super) diverged: bool,
}

/// A step in flight.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) plan: Plan,
    passes: Vec<Pass>,
    /// The tokens that the device has chosen, of all passes.
    tokens: Option<Array>,
    /// Where those of each job are.
    places: HashMap<JobId, u32>,
}

/// One pass through the model: pieces of the same number of tokens.
#[derive(Debug)]
struct Pass {
    pieces: Range<usize>,
    submissions: Vec<Submission>,
    /// If a token is chosen.
    logits: Option<Array>,
    /// The tokens of all rows, if the device chooses some.
    tokens: Option<Array>,
    /// The pieces whose tokens the host chooses, and their logits.
    by_host: Vec<usize>,
    host_logits: Option<Array>,
}

/// Runs the steps of a model.
#[derive(Debug)]
pub(super) struct Steps {
    language: Arc<LanguageModel>,
    cache: PagedCache,
    format: PageFormat,
    device: Device,
    texts: HashMap<JobId, Text>,
    /// Rows that a decode step has at least: padding rows are added to fewer, so that products round alike.
    min_rows: usize,
    max_rows: usize,
    /// Pages that had memory after the last step.
    allocated: usize,
    look_ahead: bool,
    /// Whether prompts go through the model together, where they round as the number of rows has it.
    joins_prompts: bool,
    /// When the device had finished the last pass, and whether it was seen to finish: not if it had before
    /// the loop asked.
    finished: (Instant, bool),
}

impl Steps {
    /// Steps without room for pages. Computes a token to learn how large pages are and how products round.
    pub(super) fn probe(
        language: Arc<LanguageModel>,
        format: PageFormat,
        page: usize,
        device: Device,
        options: &EngineOptions,
    ) -> Result<Self> {
        let cache = PagedCache::new(language.model().config(), format, page, 0)?;
        let texts = HashMap::new();
        let (min_rows, max_rows, allocated) = (1, usize::MAX, 0);
        let look_ahead = options.look_ahead.unwrap_or(device != Device::Cpu);
        let (joins_prompts, finished) =
            (device != Device::Cpu && !options.fixed_order, (Instant::now(), false));
        let mut steps = Steps {
            language,
            cache,
            format,
            device,
            texts,
            min_rows,
            max_rows,
            allocated,
            look_ahead,
            joins_prompts,
            finished,
        };
        let mut probe = |rows: usize| -> Result<Vec<u32>> {
            steps.bind(&vec![Vec::new(); rows], &vec![0; rows])?;
            let ids = Array::try_from_slice(&vec![0u32; rows], &[rows, 1])?;
            let logits = steps.language.model().propose(&ids, &mut steps.cache)?;
            let vocabulary = steps.language.model().config().vocab_size;
            let bits = logits
                .read(|logits: &[f32]| logits[..vocabulary].iter().map(|one| one.to_bits()).collect())?;
            steps.cache.rollback()?;
            Ok(bits)
        };
        let alone = probe(1)?;
        if device == Device::Cpu {
            let differ = probe(MIN_CPU_ROWS)? != alone;
            (steps.min_rows, steps.max_rows) = (if differ { MIN_CPU_ROWS } else { 1 }, MAX_CPU_ROWS);
        } else if options.fixed_order {
            let rows = fixed_rows(options.max_running, steps.language.model().config().kv_heads);
            (steps.min_rows, steps.max_rows) = (rows, rows);
        }
        Ok(steps)
    }

    /// The same with room for pages.
    pub(super) fn with_pages(mut self, pages: usize) -> Result<Self> {
        let page = self.cache.page_tokens();
        self.cache = PagedCache::new(self.language.model().config(), self.format, page, pages)?;
        Ok(self)
    }

    /// Computes steps of one to `rows` rows, a chunk and a long prompt, without results, on a GPU: their
    /// kernels are compiled before a request waits for them.
    pub(super) fn warm_up(&mut self, rows: usize, chunk: usize) -> Result<()> {
        if self.device == Device::Cpu {
            return Ok(());
        }
        let rows = rows.min(self.max_rows);
        let counts =
            std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count < rows);
        let sampling = Sampling { temperature: 1.0, top_k: 40, top_p: 0.9, ..Sampling::default() };
        let drawn = Sampler::new(&sampling)?.device_choice(0).unwrap_or(DeviceChoice::GREEDY);
        let long = LONG_PROMPT.min(self.language.model().config().context_length);
        for (rows, tokens) in counts.chain([rows]).map(|rows| (rows, 1)).chain([(1, chunk), (1, long)]) {
            let rows = if tokens == 1 { rows.max(self.min_rows) } else { rows };
            let pages = vec![SCRATCH_PAGE; tokens.div_ceil(self.cache.page_tokens())];
            self.bind(&vec![pages; rows], &vec![0; rows])?;
            let ids = Array::try_from_slice(&vec![0u32; rows * tokens], &[rows, tokens])?;
            let logits = self.language.model().propose(&ids, &mut self.cache)?;
            let greedy = choose_tokens(&logits, &vec![DeviceChoice::GREEDY; rows])?;
            hesper_core::eval([&greedy, &choose_tokens(&logits, &vec![drawn; rows])?])?;
            self.cache.rollback()?;
        }
        Ok(())
    }

    /// Bytes of a page.
    pub(super) fn page_bytes(&self) -> usize {
        self.cache.page_bytes()
    }

    /// The device that computes.
    pub(super) fn device(&self) -> Device {
        self.device
    }

    /// Takes over the texts of requests that start, and forgets those of requests that have ended.
    pub(super) fn update(&mut self, state: &mut State, plan: &Plan) -> Vec<(JobId, Failure)> {
        self.texts.retain(|job, _| state.request(*job).is_some());
        let mut failures = Vec::new();
        for (job, _) in &plan.started {
            let Some(active) = state.request_mut(*job) else { continue };
            match Sequence::new(&active.request.prompt, &active.options) {
                Ok(mut sequence) => {
                    sequence.choose_on_device(self.look_ahead || self.device != Device::Cpu);
                    let (filter, logprobs) = (active.filter.take(), active.request.logprobs);
                    self.texts.insert(*job, Text { sequence, filter, logprobs });
                }
                Err(error) => {
                    failures.push((*job, Failure { kind: FailureKind::Request, message: error.to_string() }))
                }
            }
        }
        failures
    }

    /// Chooses the sequences of the next step.
    fn bind(&mut self, tables: &[Vec<u32>], lengths: &[usize]) -> Result<()> {
        let table = |table: &Vec<u32>| if table.is_empty() { vec![SCRATCH_PAGE] } else { table.clone() };
        Ok(self.cache.bind(tables.iter().map(table).collect(), lengths.to_vec())?)
    }

    /// Begins to compute a plan, behind the step in flight. After an error nothing of it counts as computed.
    pub(super) fn launch(&mut self, plan: Plan, in_flight: Option<&Launched>) -> Result<Launched> {
        let (mut passes, mut places, mut all) = (Vec::new(), HashMap::new(), Vec::new());
        if in_flight.is_none() {
            self.finished = (Instant::now(), true);
        }
        let (decodes, max_rows) = (plan.decode.len(), self.max_rows.min(plan.decode.len()).max(1));
        let rows = (0..decodes).step_by(max_rows).map(|at| (at, (decodes - at).min(max_rows)));
        let chunks = self.passes_of(&plan.chunks).map(|pieces| (decodes + pieces.start, pieces.len()));
        for (at, count) in rows.chain(chunks) {
            let pieces: Vec<&Piece> = plan.pieces().skip(at).take(count).collect();
            let padded = if at < decodes { count.max(self.min_rows) } else { count };
            let pass = self.pass(&pieces, at..at + count, padded, in_flight)?;
            if let Some(tokens) = &pass.tokens {
                let before: usize = all.iter().map(|tokens: &Array| tokens.shape()[0]).sum();
                places.extend(pieces.iter().zip(before as u32..).map(|(piece, place)| (piece.job, place)));
                all.push(tokens.clone());
            }
            passes.push(pass);
        }
        let tokens = match &all[..] {
            [] => None,
            [only] => Some(only.clone()),
            all => Some(concatenate(all, 0)?),
        };
        Ok(Launched { plan, passes, tokens, places })
    }

    /// The pieces of prompts that go through the model together: on a GPU without a fixed order, neighbours
    /// that begin and end at the same positions.
    fn passes_of<'a>(&self, chunks: &'a [Piece]) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let (mut next, joins) = (0, self.joins_prompts);
        std::iter::from_fn(move || {
            let first = chunks.get(next)?;
            let is_like = |piece: &&Piece| {
                (piece.start, piece.tokens.len()) == (first.start, first.tokens.len()) && joins
            };
            let count = 1 + chunks[next + 1..].iter().take_while(is_like).count();
            next += count;
            Some(next - count..next)
        })
    }

    /// Whether the next step can be launched before a step is finished: the device chooses all of its tokens.
    pub(super) fn can_look_ahead(&self, step: &Launched) -> bool {
        self.look_ahead && step.passes.iter().all(|pass| pass.by_host.is_empty())
    }

    /// The tokens of pieces as an array of shape (rows, tokens). Those that are not known come from the step
    /// in flight.
    fn ids(&self, pieces: &[&Piece], rows: usize, in_flight: Option<&Launched>) -> Result<Array> {
        let count = pieces[0].tokens.len();
        let mut ids: Vec<u32> = pieces.iter().flat_map(|piece| piece.tokens.iter().copied()).collect();
        ids.resize(rows * count, 0);
        let step = in_flight.and_then(|step| Some((step, step.tokens.as_ref()?)));
        let Some((step, tokens)) = step.filter(|_| ids.contains(&UNKNOWN_TOKEN)) else {
            return Ok(Array::try_from_slice(&ids, &[rows, count])?);
        };
        // Those that are known are behind the tokens of the step.
        let behind = tokens.shape()[0] as u32;
        let place = |(at, id): (usize, &u32)| match (id, pieces.get(at)) {
            (&UNKNOWN_TOKEN, Some(piece)) => step.places.get(&piece.job).copied().unwrap_or(0),
            (_, Some(_)) => behind + at as u32,
            (_, None) => (at as u32).min(behind - 1),
        };
        let places: Vec<u32> = ids.iter().enumerate().map(place).collect();
        if places.iter().copied().eq(0..behind) {
            return Ok(tokens.reshape(&[rows as isize, 1])?);
        }
        let all = match places.iter().any(|place| *place >= behind) {
            true => concatenate(&[tokens.clone(), Array::try_from_slice(&ids, &[rows])?], 0)?,
            false => tokens.clone(),
        };
        Ok(all.take(Array::try_from_slice(&places, &[rows, 1])?, Some(0))?)
    }

    /// Begins to compute pieces of the same number of tokens in `rows` sequences; those beyond the pieces are
    /// padding.
    fn pass(
        &mut self,
        pieces: &[&Piece],
        range: Range<usize>,
        rows: usize,
        in_flight: Option<&Launched>,
    ) -> Result<Pass> {
        let mut tables: Vec<Vec<u32>> = pieces.iter().map(|piece| piece.pages.clone()).collect();
        let mut starts: Vec<usize> = pieces.iter().map(|piece| piece.start).collect();
        tables.resize(rows, Vec::new());
        starts.resize(rows, 0);
        self.bind(&tables, &starts)?;
        let ids = self.ids(pieces, rows, in_flight)?;
        let logits = self.language.model().propose(&ids, &mut self.cache)?;
        let (mut by_host, mut by_device) = (Vec::new(), false);
        let mut choices = vec![DeviceChoice::GREEDY; rows];
        for (at, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.sample) {
            let Some(text) = self.texts.get(&piece.job) else { continue };
            // The text has not got the token of the step in flight.
            match text.device_choice(u64::from(piece.tokens.contains(&UNKNOWN_TOKEN))) {
                Some(choice) => (choices[at], by_device) = (choice, true),
                None => by_host.push(at),
            }
        }
        let tokens = if by_device { Some(choose_tokens(&logits, &choices)?) } else { None };
        let host_logits = match by_host.len() {
            0 => None,
            count if count == rows => Some(logits.clone()),
            _ => Some(logits.take(by_host.iter().map(|at| *at as u32).collect::<Array>(), Some(0))?),
        };
        // Logits that choose no token are never computed.
        let submissions =
            hesper_core::async_eval(tokens.iter().chain(&host_logits).chain(self.cache.arrays()))?;
        let logits = tokens.is_some().then_some(logits);
        Ok(Pass { pieces: range, submissions, logits, tokens, by_host, host_logits })
    }

    /// Waits for a step and gives its tokens to the requests. After an error the pieces that are not in
    /// `progress` can be computed again.
    pub(super) fn finish(&mut self, step: &Launched, progress: &mut Progress) -> Result<()> {
        for pass in &step.passes {
            let was_done = pass.submissions.iter().all(Submission::is_done);
            for submission in &pass.submissions {
                submission.wait().map_err(hesper_core::Error::from)?;
            }
            let (began, is_known) = std::mem::replace(&mut self.finished, (Instant::now(), !was_done));
            let time = match (is_known, was_done) {
                (true, false) => Time::Exact(self.finished.0.saturating_duration_since(began)),
                (true, true) => Time::AtMost(self.finished.0.saturating_duration_since(began)),
                (false, _) => Time::Unknown,
            };
            self.finish_pass(&step.plan, pass, progress)?;
            progress.pieces = pass.pieces.end;
            let sum = match pass.pieces.end <= step.plan.decode.len() {
                true => &mut progress.decode,
                false => &mut progress.prompts,
            };
            *sum = Some(sum.map_or(time, |sum| sum.plus(time)));
        }
        if self.cache.allocated() > self.allocated {
            // The old pools have sizes that nothing else needs.
            self.allocated = self.cache.allocated();
            self.device.runtime()?.clear_cache();
        }
        Ok(())
    }

    fn finish_pass(&mut self, plan: &Plan, pass: &Pass, progress: &mut Progress) -> Result<()> {
        // What can fail comes first: a step that fails is computed again.
        let pieces: Vec<&Piece> = plan.pieces().skip(pass.pieces.start).take(pass.pieces.len()).collect();
        let vocabulary = self.language.model().config().vocab_size;
        let (language, texts, outcomes) = (&self.language, &mut self.texts, &mut progress.outcomes);
        let tokens = pass.tokens.as_ref().map(|tokens| tokens.to_vec::<u32>()).transpose()?;
        let chosen = |at: usize| match &tokens {
            Some(tokens) if pieces[at].sample && !pass.by_host.contains(&at) => Some(tokens[at]),
            _ => None,
        };
        let damaged: Vec<usize> = (0..pieces.len()).filter(|at| chosen(*at) == Some(NOT_CHOSEN)).collect();
        let mut next = |rows: &[usize], logits: &[f32]| {
            for (at, row) in rows.iter().zip(logits.chunks_exact(vocabulary)) {
                let piece = pieces[*at];
                if let Some(text) = texts.get_mut(&piece.job) {
                    outcomes.push((piece.job, text.next(language, row, piece.start + piece.tokens.len())));
                }
            }
        };
        let of_damaged = match &pass.logits {
            Some(logits) if !damaged.is_empty() => {
                let rows = damaged.iter().map(|at| *at as u32).collect::<Array>();
                logits.take(rows, Some(0))?.to_vec::<f32>()?
            }
            _ => Vec::new(),
        };
        if let Some(logits) = &pass.host_logits {
            logits.read(|logits: &[f32]| next(&pass.by_host, logits))?;
        }
        progress.diverged |= !damaged.is_empty();
        next(&damaged, &of_damaged);
        for (at, piece) in pieces.iter().enumerate() {
            let token = chosen(at).filter(|token| *token != NOT_CHOSEN);
            if let (Some(text), Some(token)) = (texts.get_mut(&piece.job), token) {
                let taken = text.sequence.push_chosen(language, token, piece.start + piece.tokens.len());
                let taken = taken.map_err(|error| error.to_string());
                outcomes.push((piece.job, outcome(taken, None, Vec::new())));
            }
        }
        Ok(())
    }

    /// Discards what a step that failed has begun. Returns whether the rows of the pages are as they were.
    pub(super) fn roll_back(&mut self) -> bool {
        self.cache.rollback().is_ok()
    }

    /// Forgets all rows and frees their memory.
    pub(super) fn reset(&mut self) {
        self.cache.reset();
        self.allocated = 0;
    }
}

impl Text {
    /// How the device chooses the token behind the next `ahead` ones, if it does: then logits stay there.
    fn device_choice(&self, ahead: u64) -> Option<DeviceChoice> {
        let is_plain = self.filter.is_none() && self.logprobs.is_none();
        is_plain.then(|| self.sequence.device_choice(ahead)).flatten()
    }

    fn choose(
        &mut self,
        language: &LanguageModel,
        logits: &[f32],
        length: usize,
    ) -> std::result::Result<hesper_lm::Piece, String> {
        let allowed = self.filter.as_mut().map_or(Ok(None), |filter| filter.allowed())?;
        let text = |error: hesper_lm::Error| error.to_string();
        let token = self.sequence.choose(logits, allowed.as_deref()).map_err(text)?;
        let complete = self.filter.as_mut().map_or(Ok(false), |filter| filter.accept(token))?;
        let mut piece = self.sequence.push(language, token, length).map_err(text)?;
        if complete && piece.finish.is_none() {
            piece.text.push_str(&self.sequence.rest(language).map_err(text)?.0);
            piece.finish = Some(Finish::Stop);
        }
        Ok(piece)
    }

    /// The next token by its logits, behind `length` tokens.
    fn next(&mut self, language: &LanguageModel, logits: &[f32], length: usize) -> Outcome {
        let piece = self.choose(language, logits, length);
        let (logprob, top) = match (self.logprobs, &piece) {
            (Some(top), Ok(piece)) => {
                let (own, top) = log_probabilities(logits, piece.token, top);
                (Some(own), top)
            }
            _ => (None, Vec::new()),
        };
        outcome(piece, logprob, top)
    }
}

/// What a request gets of a chosen token.
fn outcome(
    piece: std::result::Result<hesper_lm::Piece, String>,
    logprob: Option<f32>,
    top: Vec<(u32, f32)>,
) -> Outcome {
    let piece = match piece {
        Ok(piece) => piece,
        Err(message) => return Outcome::Failed(Failure { kind: FailureKind::Request, message }),
    };
    let finish = piece.finish.map(|finish| match finish {
        Finish::End | Finish::Stop => protocol::Finish::Stop,
        Finish::Length | Finish::Context => protocol::Finish::Length,
    });
    Outcome::Token(Token { id: piece.token, text: piece.text, logprob, top }, finish)
}

#[cfg(test)]
mod tests {
    use super::fixed_rows;

    #[test]
    fn the_rows_of_a_fixed_order_hold_all_requests_and_leave_no_sequence_split() {
        assert_eq!(fixed_rows(64, 8), 64);
        assert_eq!(fixed_rows(64, 2), 128);
        assert_eq!(fixed_rows(1, 8), 32);
        assert_eq!(fixed_rows(1, 1), 256);
        // More requests than rows: steps of several passes, each of them full.
        assert_eq!(fixed_rows(1000, 8), 256);
    }
}

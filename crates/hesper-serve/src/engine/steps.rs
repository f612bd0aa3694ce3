//! Runs steps: sends the pieces of a plan through the model and samples tokens from the logits.
//!
//! A pass through the model takes pieces of different lengths together: decoding rows with their draft
//! tokens, and prompts. On the CPU the bits of a row do not depend on the other rows of a pass of at most
//! [`MAX_CPU_ROWS`] rows, so a step is divided into passes of at most that many.
//!
//! [`Steps::launch`] encodes a step. [`Steps::finish`] waits for it and samples its tokens. If the device
//! samples every token of a step, the next step can be launched before that: it reads the tokens on the
//! device.

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
use super::pool::Pool;
use super::scheduler::{JobId, Piece, Plan, UNKNOWN_TOKEN};
use super::state::State;
use crate::protocol::{self, Failure, FailureKind, Token};

/// The most rows of a pass on the CPU. With more, products of packed weights take another path and round
/// differently.
const MAX_CPU_ROWS: usize = 64;

/// The fewest rows for which products of all kinds of weights take the same path on the CPU.
const MIN_CPU_ROWS: usize = 5;

/// With at least this many pairs of a row and a KV head, attention on a GPU does not split sequences. With
/// fewer pairs than multiprocessors it does, and the split depends on the longest sequence.
const UNSPLIT_GROUPS: usize = 256;

/// A prompt of this many tokens uses the kernels for long prompts, in attention and in products.
const LONG_PROMPT: usize = 2048;

/// The most rows for which attention on a GPU is one launch.
const MAX_GPU_ROWS: usize = 256;

/// The rows of every decode pass on a GPU with `fixed_order`: enough for all requests, so that products
/// always have the same number of rows, and enough that attention does not split sequences.
fn fixed_rows(running: usize, kv_heads: usize) -> usize {
    running.max(UNSPLIT_GROUPS.div_ceil(kv_heads.max(1))).min(MAX_GPU_ROWS)
}

/// Whether the next step is launched before the tokens of a step are read.
pub(super) fn looks_ahead(options: &EngineOptions, device: Device) -> bool {
    let drafts = options.draft_tokens.is_some_and(|count| count > 0);
    options.look_ahead.unwrap_or(device != Device::Cpu && !drafts)
}

/// Decides which tokens may come next in a sequence.
pub(super) trait TokenFilter: fmt::Debug + Send {
    /// A mask of the tokens that may come next: bit `t % 32` of word `t / 32` for token `t`. `None` if all
    /// may.
    fn allowed(&mut self) -> std::result::Result<Option<Vec<u32>>, String>;

    /// Appends a token that was allowed. Returns whether the sequence is complete.
    fn accept(&mut self, token: u32) -> std::result::Result<bool, String>;
}

/// The sequence of a running request.
#[derive(Debug)]
struct RunningSequence {
    sequence: Sequence,
    filter: Option<Box<dyn TokenFilter>>,
    /// How many of the most likely tokens to report. `None` reports no log probabilities.
    logprobs: Option<usize>,
    /// The hidden states, if the request is for an embedding.
    pool: Option<Pool>,
}

/// The result of a step for one request.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A token, and why it is the last one if it is.
    Token(Token, Option<protocol::Finish>),
    /// The embedding of the prompt.
    Embedding(Vec<f32>),
    /// The request fails.
    Failed(Failure),
}

/// What a step has computed. Valid even if the step failed.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// How many pieces of the plan are computed.
    pub(super) pieces: usize,
    pub(super) outcomes: Vec<(JobId, Outcome)>,
    /// Accepted draft tokens of the pieces that had a draft.
    pub(super) accepted: HashMap<JobId, usize>,
    /// How long the passes took.
    pub(super) time: Option<Time>,
    /// The host has chosen a token that the device could not. A step that was launched ahead has used a wrong
    /// token and must be discarded.
    pub(super) diverged: bool,
}

/// A step in flight.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) plan: Plan,
    passes: Vec<Pass>,
    /// The tokens that the device chooses, of all passes.
    tokens: Option<Array>,
    /// The index in `tokens` of the token of each job.
    token_index: HashMap<JobId, u32>,
}

/// A part of a piece: the index of the piece in the plan, and a range of its tokens.
type Part = (usize, Range<usize>);

/// One pass through the model.
#[derive(Debug)]
struct Pass {
    /// How many pieces of the plan are complete after this pass.
    complete: usize,
    submissions: Vec<Submission>,
    /// The pieces that get tokens.
    outputs: Vec<Output>,
    /// The logits, if the device chooses tokens from them.
    logits: Option<Array>,
    /// The tokens that the device chooses, one for each row of the logits.
    tokens: Option<Array>,
    /// The logits of the outputs whose tokens the host chooses, in the order of the outputs.
    host_logits: Option<Array>,
    /// Parts of prompts of which embeddings are made.
    pooled: Vec<Part>,
    /// Their hidden states, as far as they are needed.
    states: Option<Array>,
}

/// A piece that gets tokens.
#[derive(Debug)]
struct Output {
    /// Its index in the plan.
    piece: usize,
    /// Its first row in the logits of the pass. The rows of its draft tokens follow.
    row: usize,
    by_host: bool,
}

/// Runs the steps of a model.
#[derive(Debug)]
pub(super) struct Steps {
    language: Arc<LanguageModel>,
    cache: PagedCache,
    format: PageFormat,
    device: Device,
    sequences: HashMap<JobId, RunningSequence>,
    /// The fewest rows of a pass. Shorter passes are padded, so that all products round alike.
    min_rows: usize,
    max_rows: usize,
    /// Pages that were allocated after the last step.
    allocated: usize,
    look_ahead: bool,
    /// Whether prompts get separate passes, so that every decode pass has the same number of rows.
    fixed_order: bool,
    /// When the loop learned that the last pass was finished, and whether the pass finished at that moment.
    /// It did not if it was finished before the loop waited for it.
    finished: (Instant, bool),
}

impl Steps {
    /// Steps without pages. Computes a token to find the size of a page and whether the number of rows
    /// changes the rounding of products.
    pub(super) fn probe(
        language: Arc<LanguageModel>,
        format: PageFormat,
        page: usize,
        device: Device,
        options: &EngineOptions,
    ) -> Result<Self> {
        let cache = PagedCache::new(language.model().config(), format, page, 0)?;
        let sequences = HashMap::new();
        let (min_rows, max_rows, allocated) = (1, usize::MAX, 0);
        let look_ahead = looks_ahead(options, device);
        let (fixed_order, finished) = (device != Device::Cpu && options.fixed_order, (Instant::now(), false));
        let mut steps = Steps {
            language,
            cache,
            format,
            device,
            sequences,
            min_rows,
            max_rows,
            allocated,
            look_ahead,
            fixed_order,
            finished,
        };
        let mut probe = |rows: usize| -> Result<Vec<u32>> {
            let logits = steps.dummy_pass(&vec![(0, 1); rows])?;
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

    /// Allows `pages` pages.
    pub(super) fn with_pages(mut self, pages: usize) -> Result<Self> {
        let page = self.cache.page_tokens();
        self.cache = PagedCache::new(self.language.model().config(), self.format, page, pages)?;
        Ok(self)
    }

    /// On a GPU, runs steps of 1 to `rows` decoding rows, prompts, and both together, and discards the
    /// results. This compiles their kernels before a request waits for them.
    pub(super) fn warm_up(&mut self, rows: usize, chunk: usize) -> Result<()> {
        if self.device == Device::Cpu {
            return Ok(());
        }
        // Pools that grow under load would be copied, and kernels compiled again for their new shape. If
        // there is too little memory, they grow as far as it reaches.
        let reserved = self.cache.reserve().map_err(hesper_lm::Error::from);
        let reserved = reserved.and_then(|()| Ok(self.dummy_pass(&[(0, 1)])?.eval()?));
        match reserved {
            Ok(()) => self.cache.rollback()?,
            Err(_) => self.cache.reset(),
        }
        let rows = rows.min(self.max_rows);
        let counts =
            std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count < rows);
        let counts = counts.chain([rows]).map(|rows| vec![(0, 1); rows.max(self.min_rows)]);
        let context = self.language.model().config().context_length;
        let long = LONG_PROMPT.min(context);
        let mut steps: Vec<Vec<(usize, usize)>> = counts.collect();
        // Prompts alone, at the start of a sequence and after other tokens, also with lengths that are no
        // multiple of a chunk.
        steps.extend([vec![(0, chunk)], vec![(0, long)], vec![(0, 3)], vec![(0, chunk / 2 + 3)]]);
        let after_chunk = |count: usize| (chunk.min(context - count), count);
        steps.extend([chunk, chunk / 2 + 3].map(|count| vec![after_chunk(count.min(context))]));
        let long_piece = 4 * chunk.min(context / 4).max(1);
        if !self.fixed_order {
            // A burst of prompts alone, up to a full step.
            steps.extend([4, 16].map(|count| vec![(0, long_piece); count]));
            // Prompts together with decoding rows and with other prompts.
            for rows in [1, 2, rows] {
                let decode = vec![(3, 1); rows];
                for prompts in [
                    vec![(0, chunk)],
                    vec![(0, chunk / 2 + 3), after_chunk(chunk.min(context))],
                    vec![(0, 17), (0, 17), (0, 40)],
                    vec![(0, long_piece), after_chunk(17.min(context))],
                    vec![(0, long_piece); 4],
                    vec![(long_piece.min(context - long_piece), long_piece); 2],
                ] {
                    steps.push([decode.clone(), prompts].concat());
                }
            }
        }
        let sampling = Sampling { temperature: 1.0, top_k: 40, top_p: 0.9, ..Sampling::default() };
        let drawn = Sampler::new(&sampling)?.device_choice(0).unwrap_or(DeviceChoice::GREEDY);
        for step in steps {
            let logits = self.dummy_pass(&step)?;
            let rows = step.len();
            let greedy = choose_tokens(&logits, &vec![DeviceChoice::GREEDY; rows])?;
            hesper_core::eval([&greedy, &choose_tokens(&logits, &vec![drawn; rows])?])?;
            self.cache.rollback()?;
        }
        self.allocated = self.cache.allocated();
        Ok(())
    }

    /// Runs a pass of dummy sequences, each given by its length and the number of its new tokens. Writes
    /// their KV rows to the scratch page. Returns the logits of the last token of each sequence.
    fn dummy_pass(&mut self, sequences: &[(usize, usize)]) -> Result<Array> {
        let page = self.cache.page_tokens();
        let pages = |(start, count): &(usize, usize)| vec![SCRATCH_PAGE; (start + count).div_ceil(page)];
        let starts = sequences.iter().map(|(start, _)| *start).collect();
        self.cache.bind(sequences.iter().map(pages).collect(), starts)?;
        let counts: Vec<usize> = sequences.iter().map(|(_, count)| *count).collect();
        let ends = counts.iter().scan(0, |end, count| {
            *end += *count as u32;
            Some(*end - 1)
        });
        let (outputs, total): (Vec<u32>, usize) = (ends.collect(), counts.iter().sum());
        let ids = Array::try_from_slice(&vec![0u32; total], &[total])?;
        self.language.model().propose_ragged(&ids, &counts, &outputs, &mut self.cache)
    }

    /// Bytes of a page.
    pub(super) fn page_bytes(&self) -> usize {
        self.cache.page_bytes()
    }

    /// The device that computes.
    pub(super) fn device(&self) -> Device {
        self.device
    }

    /// Adds the sequences of the requests that `plan` starts and removes those of finished requests. Returns
    /// the requests that cannot start.
    pub(super) fn update(&mut self, state: &mut State, plan: &Plan) -> Vec<(JobId, Failure)> {
        self.sequences.retain(|job, _| state.request(*job).is_some());
        let mut failures = Vec::new();
        for (job, _) in &plan.started {
            let Some(active) = state.request_mut(*job) else { continue };
            match Sequence::new(&active.request.prompt, &active.options) {
                Ok(mut sequence) => {
                    sequence.choose_on_device(self.look_ahead || self.device != Device::Cpu);
                    let (filter, logprobs) = (active.filter.take(), active.request.logprobs);
                    let pool = active.request.embed.map(Pool::new);
                    self.sequences.insert(*job, RunningSequence { sequence, filter, logprobs, pool });
                }
                Err(error) => {
                    failures.push((*job, Failure { kind: FailureKind::Request, message: error.to_string() }))
                }
            }
        }
        failures
    }

    /// Launches a plan, after the step in flight if there is one. After an error nothing of the plan counts
    /// as computed.
    pub(super) fn launch(&mut self, plan: Plan, in_flight: Option<&Launched>) -> Result<Launched> {
        let (mut passes, mut token_index, mut all) = (Vec::new(), HashMap::new(), Vec::new());
        if in_flight.is_none() {
            self.finished = (Instant::now(), true);
        }
        let pieces: Vec<&Piece> = plan.pieces().collect();
        for parts in self.divide(&pieces, plan.decode.len()) {
            let pass = self.pass(&pieces, &parts, in_flight)?;
            if let Some(tokens) = &pass.tokens {
                let before: usize = all.iter().map(|tokens: &Array| tokens.shape()[0]).sum();
                let index = |output: &Output| (pieces[output.piece].job, (before + output.row) as u32);
                token_index.extend(pass.outputs.iter().map(index));
                all.push(tokens.clone());
            }
            passes.push(pass);
        }
        let tokens = match &all[..] {
            [] => None,
            [only] => Some(only.clone()),
            all => Some(concatenate(all, 0)?),
        };
        Ok(Launched { plan, passes, tokens, token_index })
    }

    /// Divides pieces, of which the first `decodes` decode, into passes of at most `max_rows` rows. A piece
    /// with draft tokens is not split. With `fixed_order` each piece of a prompt is a pass.
    fn divide(&self, pieces: &[&Piece], decodes: usize) -> Vec<Vec<Part>> {
        let (mut passes, mut room): (Vec<Vec<Part>>, usize) = (Vec::new(), 0);
        for (at, piece) in pieces.iter().enumerate() {
            let (mut from, count, alone) = (0, piece.tokens.len(), self.fixed_order && at >= decodes);
            while from < count {
                if room == 0 || alone || (piece.drafts > 0 && room < count) {
                    passes.push(Vec::new());
                    room = self.max_rows.max(if alone || piece.drafts > 0 { count } else { 1 });
                }
                let to = count.min(from.saturating_add(room));
                passes.last_mut().into_iter().for_each(|parts| parts.push((at, from..to)));
                (room, from) = (room - (to - from), to);
            }
        }
        passes
    }

    /// Whether the next step can be launched before `step` is finished: only if the device chooses all of its
    /// tokens.
    pub(super) fn can_look_ahead(&self, step: &Launched) -> bool {
        let by_host = |pass: &Pass| pass.outputs.iter().any(|output| output.by_host);
        self.look_ahead && !step.passes.iter().any(by_host)
    }

    /// The input tokens of `parts`, padded to `rows` rows. Unknown tokens come from the step in flight.
    fn ids(
        &self,
        pieces: &[&Piece],
        parts: &[Part],
        rows: usize,
        in_flight: Option<&Launched>,
    ) -> Result<Array> {
        let tokens = parts.iter().flat_map(|(piece, range)| {
            let piece = pieces[*piece];
            piece.tokens[range.clone()].iter().map(|token| (piece.job, *token))
        });
        let (jobs, mut ids): (Vec<JobId>, Vec<u32>) = tokens.unzip();
        ids.resize(rows, 0);
        let step = in_flight.and_then(|step| Some((step, step.tokens.as_ref()?)));
        let Some((step, tokens)) = step.filter(|_| ids.contains(&UNKNOWN_TOKEN)) else {
            return Ok(Array::try_from_slice(&ids, &[rows])?);
        };
        // Gather from the tokens of the step in flight, with the known tokens appended to them.
        let chosen = tokens.shape()[0] as u32;
        let index = |(at, id): (usize, &u32)| match (id, jobs.get(at)) {
            (&UNKNOWN_TOKEN, Some(job)) => step.token_index.get(job).copied().unwrap_or(0),
            (_, Some(_)) => chosen + at as u32,
            (_, None) => (at as u32).min(chosen - 1),
        };
        let indices: Vec<u32> = ids.iter().enumerate().map(index).collect();
        if indices.iter().copied().eq(0..chosen) {
            return Ok(tokens.clone());
        }
        let all = match indices.iter().any(|index| *index >= chosen) {
            true => concatenate(&[tokens.clone(), Array::try_from_slice(&ids, &[rows])?], 0)?,
            false => tokens.clone(),
        };
        Ok(all.take(Array::try_from_slice(&indices, &[rows])?, Some(0))?)
    }

    /// Launches a pass of parts of pieces, padded to the fewest rows that a pass may have.
    fn pass(&mut self, pieces: &[&Piece], parts: &[Part], in_flight: Option<&Launched>) -> Result<Pass> {
        let piece = |part: &Part| pieces[part.0];
        let mut counts: Vec<usize> = parts.iter().map(|(_, tokens)| tokens.len()).collect();
        let mut starts: Vec<usize> = parts.iter().map(|part| piece(part).start + part.1.start).collect();
        let mut tables: Vec<Vec<u32>> = parts.iter().map(|part| piece(part).pages.clone()).collect();
        let total: usize = counts.iter().sum();
        let is_decode = counts.iter().all(|count| *count == 1);
        let padding = match self.fixed_order && !is_decode {
            true => 0,
            false => self.min_rows.saturating_sub(total),
        };
        counts.resize(parts.len() + padding, 1);
        starts.resize(parts.len() + padding, 0);
        tables.resize(parts.len() + padding, vec![SCRATCH_PAGE]);
        let rows = total + padding;
        // A decode pass computes the logits of all rows, so that their number does not depend on which rows
        // are sampled.
        let (mut outputs, mut logit_rows, mut end) = (Vec::new(), Vec::new(), 0);
        let (mut pooled, mut state_rows): (Vec<Part>, Vec<u32>) = (Vec::new(), Vec::new());
        for (part, count) in parts.iter().zip(&counts) {
            end += count;
            let (piece, wanted) = (piece(part), 1 + piece(part).drafts);
            let is_end = piece.sample && part.1.end == piece.tokens.len();
            if let Some(pool) = self.sequences.get(&piece.job).and_then(|running| running.pool.as_ref()) {
                let needed = pool.needed(*count, is_end);
                state_rows.extend(needed.map(|row| (end - count + row) as u32));
                pooled.push(part.clone());
            } else if is_end {
                let row = if is_decode { end - 1 } else { logit_rows.len() };
                logit_rows.extend((end - wanted..end).map(|row| row as u32));
                outputs.push(Output { piece: part.0, row, by_host: false });
            }
        }
        if is_decode {
            logit_rows = (0..rows as u32).collect();
        } else if !self.fixed_order {
            let first = logit_rows.first().copied().unwrap_or(0);
            logit_rows.resize(logit_rows.len().max(self.min_rows), first);
        } else if logit_rows.is_empty() {
            logit_rows.push(0);
        }
        self.cache.bind(tables, starts)?;
        let ids = self.ids(pieces, parts, rows, in_flight)?;
        let (model, cache) = (self.language.model(), &mut self.cache);
        let (logits, states) = model.propose_with_states(&ids, &counts, &logit_rows, &state_rows, cache)?;
        let (mut by_host, mut by_device) = (Vec::new(), false);
        let mut choices = vec![DeviceChoice::GREEDY; logit_rows.len()];
        for output in &mut outputs {
            let piece = pieces[output.piece];
            // The sequence does not have the token of the step in flight yet.
            let ahead = u64::from(piece.tokens.contains(&UNKNOWN_TOKEN));
            let running = self.sequences.get(&piece.job).filter(|_| piece.drafts == 0);
            match running.and_then(|running| running.device_choice(ahead)) {
                Some(choice) => (choices[output.row], by_device) = (choice, true),
                None => {
                    output.by_host = true;
                    by_host.extend((output.row..=output.row + piece.drafts).map(|row| row as u32));
                }
            }
        }
        let tokens = if by_device { Some(choose_tokens(&logits, &choices)?) } else { None };
        let host_logits = match by_host.len() {
            0 => None,
            count if count == logit_rows.len() => Some(logits.clone()),
            _ => Some(logits.take(Array::try_from_slice(&by_host, &[by_host.len()])?, Some(0))?),
        };
        // Logits from which no token is chosen are not evaluated.
        let results = tokens.iter().chain(&host_logits).chain(&states);
        let submissions = hesper_core::async_eval(results.chain(self.cache.arrays()))?;
        let logits = tokens.is_some().then_some(logits);
        let complete =
            parts.last().map_or(0, |(at, range)| at + usize::from(range.end == pieces[*at].tokens.len()));
        Ok(Pass { complete, submissions, outputs, logits, tokens, host_logits, pooled, states })
    }

    /// Waits for a step and appends its tokens to the sequences. After an error the pieces that `progress`
    /// does not count can be computed again.
    pub(super) fn finish(&mut self, step: &Launched, progress: &mut Progress) -> Result<()> {
        for pass in &step.passes {
            let was_done = pass.submissions.iter().all(Submission::is_done);
            for submission in &pass.submissions {
                submission.wait().map_err(hesper_core::Error::from)?;
            }
            let (began, is_exact) = std::mem::replace(&mut self.finished, (Instant::now(), !was_done));
            let time = match (is_exact, was_done) {
                (true, false) => Time::Exact(self.finished.0.saturating_duration_since(began)),
                (true, true) => Time::AtMost(self.finished.0.saturating_duration_since(began)),
                (false, _) => Time::Unknown,
            };
            self.finish_pass(&step.plan, pass, progress)?;
            progress.pieces = pass.complete;
            progress.time = Some(progress.time.map_or(time, |sum| sum.plus(time)));
        }
        if self.cache.allocated() > self.allocated {
            // The page pools have grown. No other allocation fits the memory of the old ones, so free it.
            self.allocated = self.cache.allocated();
            self.device.runtime()?.clear_cache();
        }
        Ok(())
    }

    fn finish_pass(&mut self, plan: &Plan, pass: &Pass, progress: &mut Progress) -> Result<()> {
        // Read everything from the device before any sequence changes: a step that fails is retried.
        let pieces: Vec<&Piece> = plan.pieces().collect();
        let vocabulary = self.language.model().config().vocab_size;
        let (language, sequences) = (&self.language, &mut self.sequences);
        let tokens = pass.tokens.as_ref().map(|tokens| tokens.to_vec::<u32>()).transpose()?;
        let states =
            pass.states.as_ref().map(|states| states.to_vec::<f32>()).transpose()?.unwrap_or_default();
        let by_device = pass.outputs.iter().filter(|output| !output.by_host);
        let chosen: Vec<(&Piece, usize, u32)> = match &tokens {
            Some(tokens) => by_device.map(|one| (pieces[one.piece], one.row, tokens[one.row])).collect(),
            None => Vec::new(),
        };
        let unchosen = chosen.iter().filter(|(_, _, token)| *token == NOT_CHOSEN);
        let (unchosen, rows): (Vec<&Piece>, Vec<u32>) =
            unchosen.map(|(piece, row, _)| (*piece, *row as u32)).unzip();
        let unchosen_logits = match &pass.logits {
            Some(logits) if !unchosen.is_empty() => {
                logits.take(Array::try_from_slice(&rows, &[rows.len()])?, Some(0))?.to_vec::<f32>()?
            }
            _ => Vec::new(),
        };
        let by_host = pass.outputs.iter().filter(|output| output.by_host);
        let by_host: Vec<&Piece> = by_host.map(|output| pieces[output.piece]).collect();
        let mut take = |pieces: &[&Piece], logits: &[f32]| {
            let mut rows = logits.chunks_exact(vocabulary);
            for piece in pieces {
                let rows: Vec<&[f32]> = rows.by_ref().take(1 + piece.drafts).collect();
                let Some(running) = sequences.get_mut(&piece.job) else { continue };
                let accepted = running.take(language, piece, &rows, &mut progress.outcomes);
                if piece.drafts > 0 {
                    progress.accepted.insert(piece.job, accepted);
                }
            }
        };
        if let Some(logits) = &pass.host_logits {
            logits.read(|logits: &[f32]| take(&by_host, logits))?;
        }
        take(&unchosen, &unchosen_logits);
        progress.diverged |= !unchosen.is_empty();
        for (piece, _, token) in chosen.iter().filter(|(_, _, token)| *token != NOT_CHOSEN) {
            if let Some(running) = sequences.get_mut(&piece.job) {
                let taken = running.sequence.push_chosen(language, *token, piece.start + piece.tokens.len());
                let taken = taken.map_err(|error| error.to_string());
                progress.outcomes.push((piece.job, outcome(taken, None, Vec::new())));
            }
        }
        let (width, mut states) = (language.model().config().hidden_size, &states[..]);
        for (at, range) in &pass.pooled {
            let piece = pieces[*at];
            let pool = sequences.get_mut(&piece.job).and_then(|running| running.pool.as_mut());
            let Some(pool) = pool else { continue };
            let is_end = piece.sample && range.end == piece.tokens.len();
            let (rows, rest) = states.split_at(pool.needed(range.len(), is_end).len() * width);
            pool.add(piece.start, [range.start, range.end].map(|at| piece.start + at), rows, width);
            states = rest;
            if is_end {
                let outcome = match pool.embedding() {
                    Ok(embedding) => Outcome::Embedding(embedding),
                    Err(message) => Outcome::Failed(Failure { kind: FailureKind::Request, message }),
                };
                progress.outcomes.push((piece.job, outcome));
            }
        }
        Ok(())
    }

    /// Discards what a failed step has written. Returns whether the KV rows are as they were before it.
    pub(super) fn roll_back(&mut self) -> bool {
        self.cache.rollback().is_ok()
    }

    /// Drops all KV rows and frees their memory.
    pub(super) fn reset(&mut self) {
        self.cache.reset();
        self.allocated = 0;
    }
}

impl RunningSequence {
    /// How the device chooses the token after the next `ahead` ones. `None` if the host has to choose it.
    fn device_choice(&self, ahead: u64) -> Option<DeviceChoice> {
        let is_plain = self.filter.is_none() && self.logprobs.is_none();
        is_plain.then(|| self.sequence.device_choice(ahead)).flatten()
    }

    /// Samples a token from its logits and appends it. `length` is the length of the sequence without it.
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

    /// Samples the token after a piece, and one more after each draft token as long as the drafts are
    /// accepted. Returns the number of accepted draft tokens.
    fn take(
        &mut self,
        language: &LanguageModel,
        piece: &Piece,
        rows: &[&[f32]],
        outcomes: &mut Vec<(JobId, Outcome)>,
    ) -> usize {
        let known = piece.tokens.len() - piece.drafts;
        for (accepted, row) in rows.iter().enumerate() {
            let outcome = self.next(language, row, piece.start + known + accepted);
            let is_accepted = matches!(&outcome, Outcome::Token(token, None)
                if piece.tokens.get(known + accepted) == Some(&token.id));
            outcomes.push((piece.job, outcome));
            if !is_accepted {
                return accepted;
            }
        }
        0
    }

    /// Samples the next token from its logits, with its log probabilities if the request asks for them.
    fn next(&mut self, language: &LanguageModel, logits: &[f32], length: usize) -> Outcome {
        let piece = self.choose(language, logits, length);
        let (logprob, top) = match (self.logprobs, &piece) {
            (Some(top), Ok(piece)) => {
                let (own, mut top) = log_probabilities(logits, piece.token, top);
                // JSON has no infinite numbers: a supervisor would miss the token.
                top.iter_mut().for_each(|entry| entry.1 = entry.1.max(f32::MIN));
                (Some(own.max(f32::MIN)), top)
            }
            _ => (None, Vec::new()),
        };
        outcome(piece, logprob, top)
    }
}

/// The outcome for a request whose token was chosen, or could not be.
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
    fn fixed_rows_hold_all_requests_and_avoid_split_sequences() {
        assert_eq!(fixed_rows(64, 8), 64);
        assert_eq!(fixed_rows(64, 2), 128);
        assert_eq!(fixed_rows(1, 8), 32);
        assert_eq!(fixed_rows(1, 1), 256);
        // More requests than rows: a step has several passes of 256 rows.
        assert_eq!(fixed_rows(1000, 8), 256);
    }
}

//! The steps of the model: the pieces of a plan through the decoder, and tokens from its logits.
//!
//! A pass through the model takes pieces of any lengths together: those that decode, guesses behind them, and
//! prompts. On the CPU a row has the same bits whatever is beside it, as long as there are at most
//! [`MAX_CPU_ROWS`] rows, so pieces are divided into passes of that many.
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

/// Whether the next step begins before the tokens of a step are read.
pub(super) fn looks_ahead(options: &EngineOptions, device: Device) -> bool {
    let drafts = options.draft_tokens.is_some_and(|count| count > 0);
    options.look_ahead.unwrap_or(device != Device::Cpu && !drafts)
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
    /// Guesses that were right, of pieces that had some.
    pub(super) right: HashMap<JobId, usize>,
    /// How long the passes took.
    pub(super) time: Option<Time>,
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

/// Tokens of a piece of a plan: the index of the piece, and which of its tokens.
type Part = (usize, Range<usize>);

/// One pass through the model.
#[derive(Debug)]
struct Pass {
    /// Pieces of the plan that are complete behind it.
    complete: usize,
    submissions: Vec<Submission>,
    /// The pieces that get tokens.
    outputs: Vec<Output>,
    /// If the device chooses a token.
    logits: Option<Array>,
    /// The tokens that the device chooses, for every row of the logits.
    tokens: Option<Array>,
    /// Logits of the outputs whose tokens the host chooses, one after the other.
    host_logits: Option<Array>,
}

/// A piece that gets tokens.
#[derive(Debug)]
struct Output {
    /// Its index in the plan.
    piece: usize,
    /// Its first row in the logits of the pass. Rows of its guesses follow.
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
    texts: HashMap<JobId, Text>,
    /// Rows that a decode step has at least: padding rows are added to fewer, so that products round alike.
    min_rows: usize,
    max_rows: usize,
    /// Pages that had memory after the last step.
    allocated: usize,
    look_ahead: bool,
    /// Whether prompts have passes of their own, so that the number of rows of every pass is fixed.
    fixed_order: bool,
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
        let look_ahead = looks_ahead(options, device);
        let (fixed_order, finished) = (device != Device::Cpu && options.fixed_order, (Instant::now(), false));
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
            fixed_order,
            finished,
        };
        let mut probe = |rows: usize| -> Result<Vec<u32>> {
            let logits = steps.padding(&vec![(0, 1); rows])?;
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

    /// Computes steps of one to `rows` rows, prompts and both, without results, on a GPU: their kernels are
    /// compiled before a request waits for them.
    pub(super) fn warm_up(&mut self, rows: usize, chunk: usize) -> Result<()> {
        if self.device == Device::Cpu {
            return Ok(());
        }
        let rows = rows.min(self.max_rows);
        let counts =
            std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count < rows);
        let counts = counts.chain([rows]).map(|rows| vec![(0, 1); rows.max(self.min_rows)]);
        let context = self.language.model().config().context_length;
        let long = LONG_PROMPT.min(context);
        let mut steps: Vec<Vec<(usize, usize)>> = counts.collect();
        // Prompts alone, at the beginning and behind other tokens, with ends anywhere.
        steps.extend([vec![(0, chunk)], vec![(0, long)], vec![(0, 3)], vec![(0, chunk / 2 + 3)]]);
        let behind = |count: usize| (chunk.min(context - count), count);
        steps.extend([chunk, chunk / 2 + 3].map(|count| vec![behind(count.min(context))]));
        if !self.fixed_order {
            // Prompts beside rows that decode, and beside each other.
            for rows in [1, 2, rows] {
                let decode = vec![(3, 1); rows];
                for prompts in [
                    vec![(0, chunk)],
                    vec![(0, chunk / 2 + 3), behind(chunk.min(context))],
                    vec![(0, 17), (0, 17), (0, 40)],
                    vec![(0, 4 * chunk.min(context / 4)), behind(17.min(context))],
                ] {
                    steps.push([decode.clone(), prompts].concat());
                }
            }
        }
        let sampling = Sampling { temperature: 1.0, top_k: 40, top_p: 0.9, ..Sampling::default() };
        let drawn = Sampler::new(&sampling)?.device_choice(0).unwrap_or(DeviceChoice::GREEDY);
        for step in steps {
            let logits = self.padding(&step)?;
            let rows = step.len();
            let greedy = choose_tokens(&logits, &vec![DeviceChoice::GREEDY; rows])?;
            hesper_core::eval([&greedy, &choose_tokens(&logits, &vec![drawn; rows])?])?;
            self.cache.rollback()?;
        }
        Ok(())
    }

    /// A step without a piece: sequences of so many tokens with so many new ones, whose rows nobody reads.
    /// Gives logits for each sequence.
    fn padding(&mut self, sequences: &[(usize, usize)]) -> Result<Array> {
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

    /// Begins to compute a plan, behind the step in flight. After an error nothing of it counts as computed.
    pub(super) fn launch(&mut self, plan: Plan, in_flight: Option<&Launched>) -> Result<Launched> {
        let (mut passes, mut places, mut all) = (Vec::new(), HashMap::new(), Vec::new());
        if in_flight.is_none() {
            self.finished = (Instant::now(), true);
        }
        let pieces: Vec<&Piece> = plan.pieces().collect();
        for parts in self.divide(&pieces, plan.decode.len()) {
            let pass = self.pass(&pieces, &parts, in_flight)?;
            if let Some(tokens) = &pass.tokens {
                let before: usize = all.iter().map(|tokens: &Array| tokens.shape()[0]).sum();
                let place = |output: &Output| (pieces[output.piece].job, (before + output.row) as u32);
                places.extend(pass.outputs.iter().map(place));
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

    /// Divides pieces, of which the first `decodes` decode, into passes of as many rows as a pass may have. A
    /// piece with guesses stays whole. In a fixed order prompts have passes of their own.
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

    /// Whether the next step can be launched before a step is finished: the device chooses all of its tokens.
    pub(super) fn can_look_ahead(&self, step: &Launched) -> bool {
        let by_host = |pass: &Pass| pass.outputs.iter().any(|output| output.by_host);
        self.look_ahead && !step.passes.iter().any(by_host)
    }

    /// The tokens of parts, one after the other, and of `rows` rows in all. Those that are not known come
    /// from the step in flight.
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
        // Those that are known are behind the tokens of the step.
        let behind = tokens.shape()[0] as u32;
        let place = |(at, id): (usize, &u32)| match (id, jobs.get(at)) {
            (&UNKNOWN_TOKEN, Some(job)) => step.places.get(job).copied().unwrap_or(0),
            (_, Some(_)) => behind + at as u32,
            (_, None) => (at as u32).min(behind - 1),
        };
        let places: Vec<u32> = ids.iter().enumerate().map(place).collect();
        if places.iter().copied().eq(0..behind) {
            return Ok(tokens.clone());
        }
        let all = match places.iter().any(|place| *place >= behind) {
            true => concatenate(&[tokens.clone(), Array::try_from_slice(&ids, &[rows])?], 0)?,
            false => tokens.clone(),
        };
        Ok(all.take(Array::try_from_slice(&places, &[rows])?, Some(0))?)
    }

    /// Begins to compute parts of pieces, with padding if they have fewer rows than a pass has at least.
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
        // Logits of all rows if each is of another piece: then the number of rows does not depend on what is
        // sampled.
        let (mut outputs, mut logit_rows, mut end) = (Vec::new(), Vec::new(), 0);
        for (part, count) in parts.iter().zip(&counts) {
            end += count;
            let (piece, wanted) = (piece(part), 1 + piece(part).drafts);
            if piece.sample && part.1.end == piece.tokens.len() {
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
        let logits = self.language.model().propose_ragged(&ids, &counts, &logit_rows, &mut self.cache)?;
        let (mut by_host, mut by_device) = (Vec::new(), false);
        let mut choices = vec![DeviceChoice::GREEDY; logit_rows.len()];
        for output in &mut outputs {
            let piece = pieces[output.piece];
            // The text has not got the token of the step in flight.
            let ahead = u64::from(piece.tokens.contains(&UNKNOWN_TOKEN));
            let text = self.texts.get(&piece.job).filter(|_| piece.drafts == 0);
            match text.and_then(|text| text.device_choice(ahead)) {
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
        // Logits that choose no token are never computed.
        let submissions =
            hesper_core::async_eval(tokens.iter().chain(&host_logits).chain(self.cache.arrays()))?;
        let logits = tokens.is_some().then_some(logits);
        let complete =
            parts.last().map_or(0, |(at, range)| at + usize::from(range.end == pieces[*at].tokens.len()));
        Ok(Pass { complete, submissions, outputs, logits, tokens, host_logits })
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
            progress.pieces = pass.complete;
            progress.time = Some(progress.time.map_or(time, |sum| sum.plus(time)));
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
        let pieces: Vec<&Piece> = plan.pieces().collect();
        let vocabulary = self.language.model().config().vocab_size;
        let (language, texts) = (&self.language, &mut self.texts);
        let tokens = pass.tokens.as_ref().map(|tokens| tokens.to_vec::<u32>()).transpose()?;
        let by_device = pass.outputs.iter().filter(|output| !output.by_host);
        let chosen: Vec<(&Piece, usize, u32)> = match &tokens {
            Some(tokens) => by_device.map(|one| (pieces[one.piece], one.row, tokens[one.row])).collect(),
            None => Vec::new(),
        };
        let damaged = chosen.iter().filter(|(_, _, token)| *token == NOT_CHOSEN);
        let (damaged, rows): (Vec<&Piece>, Vec<u32>) =
            damaged.map(|(piece, row, _)| (*piece, *row as u32)).unzip();
        let of_damaged = match &pass.logits {
            Some(logits) if !damaged.is_empty() => {
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
                let Some(text) = texts.get_mut(&piece.job) else { continue };
                let right = text.take(language, piece, &rows, &mut progress.outcomes);
                if piece.drafts > 0 {
                    progress.right.insert(piece.job, right);
                }
            }
        };
        if let Some(logits) = &pass.host_logits {
            logits.read(|logits: &[f32]| take(&by_host, logits))?;
        }
        take(&damaged, &of_damaged);
        progress.diverged |= !damaged.is_empty();
        for (piece, _, token) in chosen.iter().filter(|(_, _, token)| *token != NOT_CHOSEN) {
            if let Some(text) = texts.get_mut(&piece.job) {
                let taken = text.sequence.push_chosen(language, *token, piece.start + piece.tokens.len());
                let taken = taken.map_err(|error| error.to_string());
                progress.outcomes.push((piece.job, outcome(taken, None, Vec::new())));
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

    /// The next token by the logits behind a piece, and one more behind each guess as long as they are right.
    /// Returns the number of right guesses.
    fn take(
        &mut self,
        language: &LanguageModel,
        piece: &Piece,
        rows: &[&[f32]],
        outcomes: &mut Vec<(JobId, Outcome)>,
    ) -> usize {
        let known = piece.tokens.len() - piece.drafts;
        for (right, row) in rows.iter().enumerate() {
            let outcome = self.next(language, row, piece.start + known + right);
            let goes_on = matches!(&outcome, Outcome::Token(token, None)
                if piece.tokens.get(known + right) == Some(&token.id));
            outcomes.push((piece.job, outcome));
            if !goes_on {
                return right;
            }
        }
        0
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

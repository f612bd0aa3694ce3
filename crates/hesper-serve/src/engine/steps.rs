//! The steps of the model: rows and chunks of a plan through the decoder, and tokens from its logits.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use hesper_core::Array;
use hesper_core::placement::Device;
use hesper_lm::{
    Finish, KvCache, LanguageModel, NAN_LOGITS, PageFormat, PagedCache, Result, SCRATCH_PAGE, Sequence,
    greedy_tokens, log_probabilities,
};

use super::scheduler::{JobId, Piece, Plan};
use super::state::State;
use crate::protocol::{self, Failure, FailureKind, Token};

/// The most rows of a step on the CPU: with more, products of packed weights take another path and round differently.
const MAX_CPU_ROWS: usize = 64;

/// The fewest rows for which products of all kinds of weights take the same path on the CPU.
const MIN_CPU_ROWS: usize = 5;

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
    /// Pieces of the plan that are computed: so many rows, then so many chunks.
    pub(super) rows: usize,
    pub(super) chunks: usize,
    pub(super) outcomes: Vec<(JobId, Outcome)>,
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
}

impl Steps {
    /// Steps without room for pages. Computes a token to learn how large pages are and how products round.
    pub(super) fn probe(
        language: Arc<LanguageModel>,
        format: PageFormat,
        page: usize,
        device: Device,
    ) -> Result<Self> {
        let cache = PagedCache::new(language.model().config(), format, page, 0)?;
        let texts = HashMap::new();
        let (min_rows, max_rows, allocated) = (1, usize::MAX, 0);
        let mut steps = Steps { language, cache, format, device, texts, min_rows, max_rows, allocated };
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
        }
        Ok(steps)
    }

    /// The same with room for pages.
    pub(super) fn with_pages(mut self, pages: usize) -> Result<Self> {
        let page = self.cache.page_tokens();
        self.cache = PagedCache::new(self.language.model().config(), self.format, page, pages)?;
        Ok(self)
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
                Ok(sequence) => {
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

    /// Computes a plan. After an error the pieces that are not in `progress` can be computed again.
    pub(super) fn run(&mut self, plan: &Plan, progress: &mut Progress) -> Result<()> {
        for rows in plan.decode.chunks(self.max_rows) {
            self.pieces(rows, rows.len().max(self.min_rows), &mut progress.outcomes)?;
            progress.rows += rows.len();
        }
        for chunk in &plan.chunks {
            self.pieces(std::slice::from_ref(chunk), 1, &mut progress.outcomes)?;
            progress.chunks += 1;
        }
        Ok(())
    }

    /// Computes pieces of the same number of tokens in `rows` sequences; those beyond the pieces are padding.
    fn pieces(&mut self, pieces: &[Piece], rows: usize, outcomes: &mut Vec<(JobId, Outcome)>) -> Result<()> {
        let count = pieces[0].tokens.len();
        let mut tables: Vec<Vec<u32>> = pieces.iter().map(|piece| piece.pages.clone()).collect();
        let mut starts: Vec<usize> = pieces.iter().map(|piece| piece.start).collect();
        let mut ids: Vec<u32> = pieces.iter().flat_map(|piece| piece.tokens.iter().copied()).collect();
        tables.resize(rows, Vec::new());
        starts.resize(rows, 0);
        ids.resize(rows * count, 0);
        self.bind(&tables, &starts)?;
        let model = self.language.model();
        let logits = model.propose(&Array::try_from_slice(&ids, &[rows, count])?, &mut self.cache)?;
        if pieces.iter().any(|piece| piece.sample) {
            let chosen = self.device_choices(pieces, &logits)?;
            let by_logits = |at: &usize| pieces[*at].sample && chosen[*at].is_none();
            let by_logits: Vec<usize> = (0..pieces.len()).filter(by_logits).collect();
            let (language, texts) = (&self.language, &mut self.texts);
            // What can fail comes first: a step that fails is computed again.
            if !by_logits.is_empty() {
                let logits = match by_logits.len() == rows {
                    true => logits,
                    false => {
                        logits.take(by_logits.iter().map(|at| *at as u32).collect::<Array>(), Some(0))?
                    }
                };
                logits.read(|logits: &[f32]| {
                    for (at, row) in by_logits.iter().zip(logits.chunks_exact(model.config().vocab_size)) {
                        let piece = &pieces[*at];
                        if let Some(text) = texts.get_mut(&piece.job) {
                            outcomes.push((piece.job, text.next(language, row, piece.start + count)));
                        }
                    }
                })?;
            }
            for (piece, token) in pieces.iter().zip(chosen) {
                if let (Some(text), Some(token)) = (texts.get_mut(&piece.job), token) {
                    let taken = text.sequence.push(language, token, piece.start + count);
                    outcomes.push((
                        piece.job,
                        outcome(taken.map_err(|error| error.to_string()), None, Vec::new()),
                    ));
                }
            }
        } else {
            // The logits are never computed.
            hesper_core::eval(self.cache.arrays())?;
        }
        self.cache.commit(count);
        if self.cache.allocated() > self.allocated {
            // The old pools have sizes that nothing else needs.
            self.allocated = self.cache.allocated();
            self.device.runtime()?.clear_cache();
        }
        Ok(())
    }

    /// The tokens of pieces that the device chooses: those of texts that take the most likely token, whatever it is. Their
    /// logits stay on the device.
    fn device_choices(&self, pieces: &[Piece], logits: &Array) -> Result<Vec<Option<u32>>> {
        let chooses = |piece: &Piece| {
            let text = self.texts.get(&piece.job).filter(|_| piece.sample);
            text.is_some_and(|text| {
                text.sequence.is_device_greedy() && text.filter.is_none() && text.logprobs.is_none()
            })
        };
        if !pieces.iter().any(chooses) {
            return Ok(vec![None; pieces.len()]);
        }
        let tokens = greedy_tokens(logits)?;
        hesper_core::eval(std::iter::once(&tokens).chain(self.cache.arrays()))?;
        let tokens = tokens.to_vec::<u32>()?;
        let own = |(piece, token): (&Piece, u32)| {
            Some(token).filter(|token| chooses(piece) && *token != NAN_LOGITS)
        };
        Ok(pieces.iter().zip(tokens).map(own).collect())
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

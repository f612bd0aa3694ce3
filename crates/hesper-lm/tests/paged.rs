//! A paged cache outside of the library, through the trait alone: pages are shared between sequences and copied when one
//! of them writes, sequences come and go between steps, and a full pool refuses a step without changing anything.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use hesper::{Array, Dtype, concatenate};
use hesper_lm::{CacheKind, LanguageModel, LoadOptions};
use hesper_nn::{Error, KvCache, KvRows, KvView, Positions, Result};
use support::{Folder, Small, some_tokens};

/// Tokens of a page.
const PAGE: usize = 4;

/// Keys and values of up to [`PAGE`] tokens for every layer.
#[derive(Debug, Clone, Default)]
struct Page {
    users: usize,
    layers: Vec<Option<[Array; 2]>>,
}

#[derive(Debug)]
struct PagedCache {
    positions: Positions,
    pages: Vec<Page>,
    /// The pages of each sequence.
    tables: Vec<Vec<usize>>,
}

impl PagedCache {
    fn new(layers: usize, pages: usize) -> Self {
        let page = Page { users: 0, layers: vec![None; layers] };
        PagedCache { positions: Positions::new(1), pages: vec![page; pages], tables: vec![Vec::new()] }
    }

    fn used(&self) -> usize {
        self.pages.iter().filter(|page| page.users > 0).count()
    }

    /// Adds a sequence that shares all pages of another one.
    fn fork(&mut self, sequence: usize) {
        let table = self.tables[sequence].clone();
        table.iter().for_each(|page| self.pages[*page].users += 1);
        self.tables.push(table);
        let mut own = Positions::new(1);
        own.begin(self.positions.lengths()[sequence]).unwrap();
        own.end();
        own.commit(self.positions.lengths()[sequence]);
        self.positions.join(&own);
    }
}

/// Rows `from..to` of an array of shape (1, heads, rows, elements).
fn rows(array: &Array, from: usize, to: usize) -> hesper::Result<Array> {
    let end = [1, array.shape()[1], to, array.shape()[3]].map(|at| at as isize);
    array.slice(&[0, 0, from as isize, 0], &end, &[1; 4])
}

impl KvCache for PagedCache {
    fn positions(&self) -> &Positions {
        &self.positions
    }

    fn positions_mut(&mut self) -> &mut Positions {
        &mut self.positions
    }

    fn arrays(&self) -> Vec<&Array> {
        self.pages.iter().flat_map(|page| page.layers.iter().flatten().flatten()).collect()
    }

    fn can_roll_back(&self) -> bool {
        true
    }

    fn begin(&mut self, tokens: usize) -> Result<()> {
        let pending = self.positions.pending();
        let starts: Vec<usize> = self.positions.lengths().iter().map(|length| length + pending).collect();
        // A new page where there is none, and a copy of a page that another sequence uses too.
        let mut wanted = Vec::new();
        for (sequence, start) in starts.iter().enumerate() {
            for at in start / PAGE..(start + tokens).div_ceil(PAGE) {
                let page = self.tables[sequence].get(at).copied();
                if page.is_none_or(|page| self.pages[page].users > 1) {
                    wanted.push((sequence, at, page));
                }
            }
        }
        let free: Vec<usize> = (0..self.pages.len()).filter(|at| self.pages[*at].users == 0).collect();
        if free.len() < wanted.len() {
            return Err(Error::CacheFull { needed: wanted.len() * PAGE, free: free.len() * PAGE });
        }
        for ((sequence, at, old), new) in wanted.into_iter().zip(free) {
            let layers = vec![None; self.pages[new].layers.len()];
            let layers = old.map_or(layers, |old| self.pages[old].layers.clone());
            self.pages[new] = Page { users: 1, layers };
            match old {
                Some(old) => {
                    self.pages[old].users -= 1;
                    self.tables[sequence][at] = new;
                }
                None => self.tables[sequence].push(new),
            }
        }
        self.positions.begin(tokens)
    }

    fn append(
        &mut self,
        layer: usize,
        keys: &Array,
        values: &Array,
        window: Option<usize>,
    ) -> Result<KvView> {
        let step = self.positions.step_mut()?;
        let (longest, tokens) = (step.rows(), step.tokens());
        let mut all: [Vec<Array>; 2] = Default::default();
        for (sequence, start) in step.starts().iter().enumerate() {
            for (part, new) in [keys, values].into_iter().enumerate() {
                let shape = new.shape().iter().map(|length| *length as isize).collect::<Vec<_>>();
                let (at, next) = (sequence as isize, sequence as isize + 1);
                let new = new.slice(&[at, 0, 0, 0], &[next, shape[1], shape[2], shape[3]], &[1; 4])?;
                let mut seen = Vec::new();
                for (at, page) in self.tables[sequence].iter().enumerate() {
                    let first = at * PAGE;
                    let (from, to) = (first.max(*start), (first + PAGE).min(start + tokens));
                    let page = &mut self.pages[*page].layers[layer];
                    if from < to {
                        let mut pieces = Vec::new();
                        if from > first
                            && let Some(old) = page
                        {
                            pieces.push(rows(&old[part], 0, from - first)?);
                        }
                        pieces.push(rows(&new, from - start, to - start)?);
                        let written = concatenate(&pieces, 2)?;
                        let page = page.get_or_insert_with(|| [written.clone(), written.clone()]);
                        page[part] = written;
                    }
                    if let Some(page) = page.as_ref().filter(|_| first < start + tokens) {
                        seen.push(rows(&page[part], 0, (start + tokens - first).min(PAGE))?);
                    }
                }
                let rest = longest - start - tokens;
                seen.push(Array::zeros(&[1, new.shape()[1], rest, new.shape()[3]], Dtype::Float32)?);
                all[part].push(concatenate(&seen, 2)?);
            }
        }
        let [keys, values] = all;
        Ok(KvView {
            keys: KvRows::Dense(concatenate(&keys, 0)?),
            values: KvRows::Dense(concatenate(&values, 0)?),
            mask: step.mask(window)?,
        })
    }

    fn remove(&mut self, sequence: usize) -> Result<()> {
        self.tables.swap_remove(sequence).iter().for_each(|page| self.pages[*page].users -= 1);
        self.positions.remove(sequence);
        Ok(())
    }
}

fn model(name: &str) -> (Folder, LanguageModel) {
    let folder = Folder::new(name);
    Small::new("llama", 71, true, None).write(&folder.0);
    let language = LanguageModel::load(&folder.0, &LoadOptions::default()).unwrap();
    (folder, language)
}

/// Logits of a step, a row for each sequence.
fn step(language: &LanguageModel, tokens: &[&[u32]], cache: &mut dyn KvCache) -> Vec<Vec<f32>> {
    let ids = Array::try_from_slice(&tokens.concat(), &[tokens.len(), tokens[0].len()]).unwrap();
    let logits = language.model().step(&ids, cache).unwrap().to_vec::<f32>().unwrap();
    logits.chunks(logits.len() / tokens.len()).map(<[f32]>::to_vec).collect()
}

fn close(given: &[f32], expected: &[f32]) {
    let off = given.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off < 1e-4, "off by {off}");
}

#[test]
fn sequences_share_a_prefix_and_go_their_own_ways() {
    let (_folder, language) = model("paged");
    let layers = language.model().config().layers;
    let mut paged = PagedCache::new(layers, 16);
    let mut alone = [0, 1].map(|_| CacheKind::Growing.create(language.model().config()).unwrap());
    let prefix = some_tokens(10, 96, 1);
    let own = [some_tokens(8, 96, 2), some_tokens(8, 96, 3)];
    let first = step(&language, &[&prefix], &mut paged);
    for cache in &mut alone {
        close(&first[0], &step(&language, &[&prefix], &mut **cache)[0]);
    }
    assert_eq!(paged.used(), 3);
    paged.fork(0);
    assert_eq!(paged.used(), 3);
    for at in 0..4 {
        let both = step(&language, &[&own[0][at..=at], &own[1][at..=at]], &mut paged);
        for (sequence, cache) in alone.iter_mut().enumerate() {
            close(&both[sequence], &step(&language, &[&own[sequence][at..=at]], &mut **cache)[0]);
        }
    }
    // Two pages of the prefix are shared, the third was copied by the first writer.
    assert_eq!((paged.used(), paged.lengths()), (6, &[14, 14][..]));
    paged.remove(0).unwrap();
    let rest = step(&language, &[&own[1][4..]], &mut paged);
    close(&rest[0], &step(&language, &[&own[1][4..]], &mut *alone[1])[0]);
    assert_eq!(paged.lengths(), [18]);
}

#[test]
fn a_full_cache_refuses_a_step_and_is_as_before() {
    let (_folder, language) = model("full");
    let mut paged = PagedCache::new(language.model().config().layers, 3);
    let tokens = some_tokens(12, 96, 4);
    step(&language, &[&tokens[..9]], &mut paged);
    paged.fork(0);
    let ids = Array::try_from_slice(&tokens[8..10], &[2, 1]).unwrap();
    let error = language.model().step(&ids, &mut paged).unwrap_err().to_string();
    assert!(error.contains("full") && error.contains("0"), "{error}");
    assert_eq!((paged.used(), paged.lengths()), (3, &[9, 9][..]));
    paged.remove(1).unwrap();
    let mut alone = CacheKind::Growing.create(language.model().config()).unwrap();
    step(&language, &[&tokens[..9]], &mut *alone);
    let expected = step(&language, &[&tokens[9..]], &mut *alone);
    close(&step(&language, &[&tokens[9..]], &mut paged)[0], &expected[0]);
}

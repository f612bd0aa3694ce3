//! The cache in pages: sequences share pages and copy them before they write, come and go between steps, and
//! get the logits that they get alone.

use crate::support::{Folder, Small, some_tokens};
use hesper::Array;
use hesper_lm::{
    CacheKind, KvCache, LanguageModel, LoadOptions, PageCounts, PageFormat, PagedCache, SCRATCH_PAGE,
};
use hesper_nn::{KvView, Positions, Segment};

/// Tokens of a page.
const PAGE: usize = 4;

fn model(name: &str, family: &'static str, window: Option<usize>) -> (Folder, LanguageModel) {
    let folder = Folder::new(name);
    let mut small = Small::new(family, 71, true, None);
    small.window = window;
    small.write(&folder.0);
    let language = LanguageModel::load(&folder.0, &LoadOptions::default()).unwrap();
    (folder, language)
}

/// A sequence: its pages and its length.
#[derive(Clone, Default)]
struct Sequence {
    table: Vec<u32>,
    length: usize,
}

/// A cache with the users of its pages.
struct Pool {
    pages: PageCounts,
    cache: PagedCache,
}

impl Pool {
    fn new(language: &LanguageModel, format: PageFormat, pages: usize) -> Self {
        let cache = PagedCache::new(language.model().config(), format, PAGE, pages).unwrap();
        Pool { pages: PageCounts::new(pages), cache }
    }

    fn fork(&mut self, sequence: &Sequence) -> Sequence {
        sequence.table.iter().for_each(|page| self.pages.share(*page));
        sequence.clone()
    }

    fn release(&mut self, sequence: Sequence) {
        sequence.table.iter().for_each(|page| self.pages.release(*page));
    }

    fn used(&self) -> usize {
        self.pages.capacity() - self.pages.free()
    }

    /// Logits of a step, a row for each sequence.
    fn step(
        &mut self,
        language: &LanguageModel,
        all: &mut [&mut Sequence],
        tokens: &[&[u32]],
    ) -> Vec<Vec<f32>> {
        let count = tokens[0].len();
        for sequence in all.iter_mut() {
            if let Some(page) = sequence.table.get_mut(sequence.length / PAGE) {
                let own = self.pages.writable(*page).unwrap();
                if own != *page {
                    self.cache.copy_page(*page, own).unwrap();
                }
                *page = own;
            }
            while sequence.table.len() * PAGE < sequence.length + count {
                sequence.table.push(self.pages.take().unwrap());
            }
        }
        let tables = all.iter().map(|one| one.table.clone()).collect();
        self.cache.bind(tables, all.iter().map(|one| one.length).collect()).unwrap();
        all.iter_mut().for_each(|one| one.length += count);
        step(language, tokens, &mut self.cache)
    }
}

/// Logits of a step, a row for each sequence.
fn step(language: &LanguageModel, tokens: &[&[u32]], cache: &mut dyn KvCache) -> Vec<Vec<f32>> {
    let ids = Array::try_from_slice(&tokens.concat(), &[tokens.len(), tokens[0].len()]).unwrap();
    let logits = language.model().step(&ids, cache).unwrap().to_vec::<f32>().unwrap();
    logits.chunks(logits.len() / tokens.len()).map(<[f32]>::to_vec).collect()
}

fn close(given: &[f32], expected: &[f32], tolerance: f32) {
    let off = given.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off < tolerance, "off by {off}");
}

#[test]
fn sequences_share_a_prefix_and_go_their_own_ways() {
    let exact = CacheKind::Growing;
    let cases = [
        ("llama", None, PageFormat::Exact, exact, 1e-4),
        ("qwen3", None, PageFormat::Exact, exact, 1e-4),
        ("llama", Some(6), PageFormat::Exact, exact, 1e-4),
        ("llama", Some(6), PageFormat::Half, exact, 1e-2),
        ("llama", None, PageFormat::Half, exact, 1e-2),
        (
            "qwen3",
            None,
            PageFormat::Quantized { bits: 8, group: 32 },
            CacheKind::Quantized { bits: 8, group: 32 },
            1e-4,
        ),
        (
            "qwen3",
            None,
            PageFormat::Quantized { bits: 4, group: 32 },
            CacheKind::Quantized { bits: 4, group: 32 },
            1e-4,
        ),
    ];
    for (at, (family, window, format, kind, tolerance)) in cases.into_iter().enumerate() {
        let (_folder, language) = model(&format!("paged-{at}"), family, window);
        let mut pool = Pool::new(&language, format, 16);
        let mut alone = [0, 1].map(|_| kind.create(language.model().config()).unwrap());
        let prefix = some_tokens(10, 96, 1);
        let own = [some_tokens(8, 96, 2), some_tokens(8, 96, 3)];
        let mut first = Sequence::default();
        let logits = pool.step(&language, &mut [&mut first], &[&prefix]);
        for cache in &mut alone {
            close(&logits[0], &step(&language, &[&prefix], &mut **cache)[0], tolerance);
        }
        assert_eq!(pool.used(), 3);
        let mut second = pool.fork(&first);
        assert_eq!(pool.used(), 3);
        for at in 0..4 {
            let tokens: [&[u32]; 2] = [&own[0][at..=at], &own[1][at..=at]];
            let both = pool.step(&language, &mut [&mut first, &mut second], &tokens);
            for (sequence, cache) in alone.iter_mut().enumerate() {
                close(&both[sequence], &step(&language, &[tokens[sequence]], &mut **cache)[0], tolerance);
            }
        }
        // Two pages of the prefix are shared, the third was copied by the first writer.
        assert_eq!(pool.used(), 6);
        pool.release(first);
        assert_eq!(pool.used(), 4);
        let rest = pool.step(&language, &mut [&mut second], &[&own[1][4..]]);
        close(&rest[0], &step(&language, &[&own[1][4..]], &mut *alone[1])[0], tolerance);
        pool.release(second);
        assert_eq!(pool.used(), 0);
    }
}

#[test]
fn a_decode_step_gives_the_bits_of_contiguous_rows_in_any_company() {
    // More rows than one step of the kernel takes, so that pages end within a step.
    let (_folder, language) = model("paged-bits", "llama", None);
    let mut pool = Pool::new(&language, PageFormat::Exact, 40);
    let prompts = [some_tokens(50, 96, 5), some_tokens(21, 96, 6), some_tokens(3, 96, 7)];
    let mut sequences = [Sequence::default(), Sequence::default(), Sequence::default()];
    let mut caches: Vec<_> =
        prompts.iter().map(|_| CacheKind::Growing.create(language.model().config()).unwrap()).collect();
    for ((prompt, sequence), cache) in prompts.iter().zip(&mut sequences).zip(&mut caches) {
        // Prompts in one piece take another kernel in contiguous rows.
        for token in prompt.chunks(1) {
            let paged = pool.step(&language, &mut [sequence], &[token]);
            assert_eq!(paged, step(&language, &[token], &mut **cache));
        }
    }
    for token in 0..8u32 {
        let tokens = [[token], [token + 20], [token + 40]];
        let tokens: Vec<&[u32]> = tokens.iter().map(|one| &one[..]).collect();
        let [a, b, c] = &mut sequences;
        let together = pool.step(&language, &mut [a, b, c], &tokens);
        for (at, cache) in caches.iter_mut().enumerate() {
            assert_eq!(together[at], step(&language, &tokens[at..=at], &mut **cache)[0], "sequence {at}");
        }
    }
}

#[test]
fn gathered_rows_give_the_same_bits_in_any_company() {
    let quantized = PageFormat::Quantized { bits: 8, group: 32 };
    for (at, (family, format)) in
        [("qwen3", PageFormat::Exact), ("llama", PageFormat::Half), ("qwen3", quantized)]
            .into_iter()
            .enumerate()
    {
        let (_folder, language) = model(&format!("paged-gathered-{at}"), family, None);
        let mut pool = Pool::new(&language, format, 60);
        let mut sequences = [Sequence::default(), Sequence::default(), Sequence::default()];
        for (sequence, length) in sequences.iter_mut().zip([77, 21, 3]) {
            pool.step(&language, &mut [sequence], &[&some_tokens(length, 96, length as u64)]);
        }
        for token in 0..4u32 {
            let tokens = [[token], [token + 20], [token + 40]];
            let tokens: Vec<&[u32]> = tokens.iter().map(|one| &one[..]).collect();
            // The step alone writes the rows that the common step writes again.
            let alone: Vec<Vec<f32>> = sequences
                .iter_mut()
                .zip(&tokens)
                .map(|(sequence, tokens)| {
                    let logits = pool.step(&language, &mut [sequence], &[tokens]);
                    sequence.length -= 1;
                    logits[0].clone()
                })
                .collect();
            let [a, b, c] = &mut sequences;
            assert_eq!(pool.step(&language, &mut [a, b, c], &tokens), alone, "{family} {format:?}");
        }
    }
}

/// Tokens that stand alone in their sequences, prompts of several lengths and one that continues, through the
/// model together and one token after the other. Gives the logits of the last token of each, both times.
fn ragged(language: &LanguageModel, format: PageFormat) -> [Vec<Vec<f32>>; 2] {
    let mut pool = Pool::new(language, format, 120);
    let lengths = [40, 7, 0, 0, 19];
    let counts = [1, 1, 23, 6, 9];
    let mut sequences = lengths.map(|_| Sequence::default());
    for (sequence, length) in sequences.iter_mut().zip(lengths).filter(|(_, length)| *length > 0) {
        pool.step(language, &mut [sequence], &[&some_tokens(length, 96, length as u64)]);
    }
    let pieces: Vec<Vec<u32>> =
        counts.iter().map(|count| some_tokens(*count, 96, 50 + *count as u64)).collect();
    let mut one_by_one = Vec::new();
    for (sequence, piece) in sequences.iter_mut().zip(&pieces) {
        for token in piece {
            // Padding, so that products take the path of several rows.
            let mut others = [0, 1, 2, 3].map(|_| Sequence::default());
            let [a, b, c, d] = &mut others;
            let tokens = [&[*token][..], &[1], &[1], &[1], &[1]];
            let logits = pool.step(language, &mut [sequence, a, b, c, d], &tokens);
            others.into_iter().for_each(|other| pool.release(other));
            if std::ptr::eq(token, &piece[piece.len() - 1]) {
                one_by_one.push(logits[0].clone());
            }
        }
        sequence.length -= piece.len();
    }
    let tables = sequences.iter().map(|one| one.table.clone()).collect();
    pool.cache.bind(tables, lengths.to_vec()).unwrap();
    let ends: Vec<u32> = counts
        .iter()
        .scan(0, |end, count| {
            *end += *count as u32;
            Some(*end - 1)
        })
        .collect();
    let ids = Array::try_from_slice(&pieces.concat(), &[40]).unwrap();
    let logits = language.model().propose_ragged(&ids, &counts, &ends, &mut pool.cache).unwrap();
    let logits = logits.to_vec::<f32>().unwrap();
    [logits.chunks(logits.len() / 5).map(<[f32]>::to_vec).collect(), one_by_one]
}

#[test]
fn a_row_has_the_same_bits_whatever_goes_through_the_model_with_it() {
    let quantized = PageFormat::Quantized { bits: 8, group: 32 };
    for (at, (family, window, format)) in [
        ("llama", None, PageFormat::Exact),
        ("llama", Some(6), PageFormat::Exact),
        ("gpt2", None, PageFormat::Half),
        ("qwen3", None, quantized),
    ]
    .into_iter()
    .enumerate()
    {
        let (_folder, language) = model(&format!("paged-ragged-{at}"), family, window);
        let [together, one_by_one] = ragged(&language, format);
        assert_eq!(together, one_by_one, "{family} {format:?}");
    }
}

/// A cache in pages as on a device without a kernel for rows of several tokens.
#[derive(Debug)]
struct Segmented(PagedCache);

impl KvCache for Segmented {
    fn positions(&self) -> &Positions {
        self.0.positions()
    }

    fn positions_mut(&mut self) -> &mut Positions {
        self.0.positions_mut()
    }

    fn arrays(&self) -> Vec<&Array> {
        self.0.arrays()
    }

    fn can_roll_back(&self) -> bool {
        self.0.can_roll_back()
    }

    fn begin(&mut self, tokens: &[usize]) -> Result<(), hesper_nn::Error> {
        self.0.begin(tokens)
    }

    fn append(
        &mut self,
        layer: usize,
        keys: &Array,
        values: &Array,
        window: Option<usize>,
    ) -> Result<KvView, hesper_nn::Error> {
        self.0.append(layer, keys, values, window)
    }

    fn append_segments(
        &mut self,
        layer: usize,
        keys: &Array,
        values: &Array,
        window: Option<usize>,
    ) -> Result<Vec<Segment<'_>>, hesper_nn::Error> {
        self.0.append_segments(layer, keys, values, window)
    }
}

#[test]
fn sequences_attend_one_by_one_where_no_kernel_takes_their_rows() {
    let quantized = PageFormat::Quantized { bits: 8, group: 32 };
    for (at, (family, window, format)) in [
        ("llama", None, PageFormat::Exact),
        ("llama", Some(6), PageFormat::Exact),
        ("gpt2", None, PageFormat::Half),
        ("qwen3", None, PageFormat::Exact),
        ("qwen3", None, quantized),
    ]
    .into_iter()
    .enumerate()
    {
        let (_folder, language) = model(&format!("paged-segments-{at}"), family, window);
        let config = language.model().config();
        let tables: Vec<Vec<u32>> = (0..5).map(|at| (1 + 12 * at..13 + 12 * at).collect()).collect();
        let counts = [1, 1, 23, 9, 9];
        let ids = Array::try_from_slice(&some_tokens(43, 96, 3), &[43]).unwrap();
        // The last two begin at the same position and attend together.
        let starts = vec![3, 6, 0, 5, 5];
        let run = |cache: &mut dyn KvCache| {
            let outputs: Vec<u32> = (0..43).collect();
            let logits = language.model().propose_ragged(&ids, &counts, &outputs, cache).unwrap();
            logits.to_vec::<f32>().unwrap()
        };
        let cache = || {
            let mut cache = PagedCache::new(config, format, PAGE, 70).unwrap();
            for (table, start) in tables.iter().zip(&starts).filter(|(_, start)| **start > 0) {
                cache.bind(vec![table.clone()], vec![0]).unwrap();
                step(&language, &[&some_tokens(*start, 96, 8)], &mut cache);
            }
            cache.bind(tables.clone(), starts.clone()).unwrap();
            cache
        };
        let [rows, segments] = [run(&mut cache()), run(&mut Segmented(cache()))];
        close(&segments, &rows, 1e-3);
    }
}

#[test]
fn a_cache_that_takes_equal_numbers_of_tokens_says_so() {
    let (_folder, language) = model("paged-unequal", "llama", None);
    let mut cache = CacheKind::Growing.create(language.model().config()).unwrap();
    let mut other = CacheKind::Growing.create(language.model().config()).unwrap();
    step(&language, &[&[1, 2]], &mut *cache);
    step(&language, &[&[1, 2, 3]], &mut *other);
    cache.join(other).unwrap();
    let ids = Array::from_slice(&[1u32, 2, 3]);
    let error = language.model().propose_ragged(&ids, &[1, 2], &[0, 2], &mut *cache).unwrap_err().to_string();
    assert!(error.contains("same number"), "{error}");
    let error = language.model().propose_ragged(&ids, &[1, 1], &[0, 1], &mut *cache).unwrap_err().to_string();
    assert!(error.contains("3 token ids"), "{error}");
    assert!(!step(&language, &[&[1], &[2]], &mut *cache).is_empty());
}

#[test]
fn rows_of_another_sequence_that_are_not_finite_do_not_matter() {
    for family in ["llama", "qwen3"] {
        let (_folder, language) = model(&format!("paged-nan-{family}"), family, None);
        let mut pool = Pool::new(&language, PageFormat::Exact, 8);
        let (mut short, mut long) = (Sequence::default(), Sequence::default());
        pool.step(&language, &mut [&mut short], &[&some_tokens(2, 96, 8)]);
        pool.step(&language, &mut [&mut long], &[&some_tokens(9, 96, 9)]);
        let (short_, long_) = (short.clone(), long.clone());
        let expected = pool.step(&language, &mut [&mut short, &mut long], &[&[1], &[2]]);
        let shape = pool.cache.arrays()[0].shape().to_vec();
        let rows = Array::full(&[1, shape[1] / 2, 1, shape[3]], f32::NAN, None).unwrap();
        // The row behind the last one of the short sequence, in every layer.
        pool.cache.bind(vec![short_.table.clone()], vec![3]).unwrap();
        pool.cache.begin(&[1]).unwrap();
        for layer in 0..language.model().config().layers {
            pool.cache.append(layer, &rows, &rows, None).unwrap();
        }
        pool.cache.rollback().unwrap();
        let (mut short, mut long) = (short_, long_);
        assert_eq!(pool.step(&language, &mut [&mut short, &mut long], &[&[1], &[2]]), expected, "{family}");
    }
}

#[test]
fn pages_that_no_layer_sees_can_be_released() {
    // Rows are read where they are, or gathered.
    for format in [PageFormat::Exact, PageFormat::Half] {
        let (_folder, language) = model(&format!("paged-window-{format:?}"), "llama", Some(6));
        let mut pool = Pool::new(&language, format, 16);
        let (mut kept, mut released) = (Sequence::default(), Sequence::default());
        let tokens = some_tokens(30, 96, 4);
        let [first, second] =
            [&mut kept, &mut released].map(|one| pool.step(&language, &mut [one], &[&tokens[..11]]));
        assert_eq!(first, second);
        let mut at = 11;
        for count in [1, 1, 5, 1, 6] {
            for page in &mut released.table[..(at + 1 - 6) / PAGE] {
                pool.pages.release(*page);
                *page = SCRATCH_PAGE;
            }
            let new = &tokens[at..at + count];
            let both = [&mut kept, &mut released].map(|one| pool.step(&language, &mut [one], &[new]));
            assert_eq!(both[0], both[1], "{format:?} at {at}");
            at += count;
        }
        assert!(pool.used() < 2 * at.div_ceil(PAGE));
    }
}

#[test]
fn a_table_without_room_refuses_a_step_and_changes_nothing() {
    let (_folder, language) = model("paged-full", "llama", None);
    let mut pool = Pool::new(&language, PageFormat::Exact, 3);
    let tokens = some_tokens(12, 96, 4);
    let mut sequence = Sequence::default();
    pool.step(&language, &mut [&mut sequence], &[&tokens[..8]]);
    pool.cache.bind(vec![sequence.table.clone()], vec![8]).unwrap();
    let ids = Array::try_from_slice(&tokens[8..9], &[1, 1]).unwrap();
    let error = language.model().step(&ids, &mut pool.cache).unwrap_err().to_string();
    assert!(error.contains("full"), "{error}");
    assert_eq!(pool.cache.lengths(), [8]);
    let mut alone = CacheKind::Growing.create(language.model().config()).unwrap();
    step(&language, &[&tokens[..8]], &mut *alone);
    let paged = pool.step(&language, &mut [&mut sequence], &[&tokens[8..]]);
    close(&paged[0], &step(&language, &[&tokens[8..]], &mut *alone)[0], 1e-4);
    let error = pool.cache.bind(vec![vec![9]], vec![0]).unwrap_err().to_string();
    assert!(error.contains("no page 9"), "{error}");
    let config = language.model().config();
    assert!(PagedCache::new(config, PageFormat::Quantized { bits: 3, group: 32 }, PAGE, 3).is_err());
    assert!(PagedCache::new(config, PageFormat::Exact, 0, 3).is_err());
    let mut pages = PageCounts::new(1);
    let page = pages.take().unwrap();
    assert_eq!((pages.take(), pages.writable(page)), (None, Some(page)));
    pages.share(page);
    assert_eq!(pages.writable(page), None);
}

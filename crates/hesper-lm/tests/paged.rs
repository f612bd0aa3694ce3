//! The cache in pages: sequences share pages and copy them before they write, come and go between steps, and
//! get the logits that they get alone.

use crate::support::{Folder, Small, some_tokens};
use hesper::Array;
use hesper_lm::{
    CacheKind, KvCache, LanguageModel, LoadOptions, PageCounts, PageFormat, PagedCache, SCRATCH_PAGE,
};

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
        let paged = pool.step(&language, &mut [sequence], &[prompt]);
        assert_eq!(paged, step(&language, &[prompt], &mut **cache));
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

#[test]
fn pieces_of_prompts_go_through_the_model_together() {
    let (_folder, language) = model("paged-together", "llama", None);
    // Sequences of the same length, whose mask is causal, and of others.
    for lengths in [[0, 0, 0], [19, 19, 19], [40, 7, 0]] {
        let mut pool = Pool::new(&language, PageFormat::Exact, 90);
        let mut sequences = [Sequence::default(), Sequence::default(), Sequence::default()];
        for (sequence, length) in sequences.iter_mut().zip(lengths).filter(|(_, length)| *length > 0) {
            pool.step(&language, &mut [sequence], &[&some_tokens(length, 96, length as u64)]);
        }
        let pieces: Vec<Vec<u32>> = (0..3).map(|seed| some_tokens(23, 96, 50 + seed)).collect();
        let pieces: Vec<&[u32]> = pieces.iter().map(|piece| &piece[..]).collect();
        let mut alone = Vec::new();
        for (sequence, piece) in sequences.iter_mut().zip(&pieces) {
            alone.push(pool.step(&language, &mut [sequence], &[piece]).remove(0));
            sequence.length -= piece.len();
        }
        let [a, b, c] = &mut sequences;
        let together = pool.step(&language, &mut [a, b, c], &pieces);
        for (given, expected) in together.iter().zip(&alone) {
            close(given, expected, 1e-4);
        }
    }
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
        pool.cache.begin(1).unwrap();
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

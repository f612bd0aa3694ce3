//! Memory of decoding. Alone in its process, since it reads the counters of the process.

use crate::alone;
use crate::support::{Folder, Small, some_tokens};
use hesper_lm::{Batch, CacheKind, GenerateOptions, Generation, LanguageModel, LoadOptions};

#[test]
fn decoding_takes_no_memory_beyond_its_blocks() {
    let _alone = alone();
    let folder = Folder::new("memory");
    Small::new("llama", 21, true, None).write(&folder.0);
    let language = LanguageModel::load(&folder.0, &LoadOptions::default()).unwrap();
    let mut cache = CacheKind::Growing.create(language.model().config()).unwrap();
    let options = GenerateOptions { max_tokens: 100, ..GenerateOptions::default() };
    let mut generation = Generation::new(&language, &[1, 2, 3], &mut *cache, &options).unwrap();
    let mut run = |count: usize| {
        for _ in 0..count {
            generation.next().unwrap().unwrap();
        }
        hesper::placement::cpu().counters()
    };
    run(10);
    hesper::placement::cpu().reset_peak();
    let first = run(10);
    let second = run(60);
    assert_eq!(second.active, first.active);
    assert_eq!(second.peak, first.peak);
}

#[test]
fn a_batch_takes_the_memory_of_its_tokens() {
    let _alone = alone();
    let folder = Folder::new("batch-memory");
    Small::new("llama", 22, true, None).write(&folder.0);
    let language = LanguageModel::load(&folder.0, &LoadOptions::default()).unwrap();
    let cpu = hesper::placement::cpu();
    // Two layers with two heads of keys and of values, of 16 floats.
    let (sequences, prompt, generated, row) = (64, 40, 30, 2 * 4 * 16 * 4);
    let options = GenerateOptions { max_tokens: generated, ignore_eos: true, ..GenerateOptions::default() };
    let mut batch = Batch::new(&language);
    cpu.clear_cache();
    cpu.reset_peak();
    let before = cpu.counters();
    for seed in 0..sequences {
        batch.add(&some_tokens(prompt, 96, seed), &options).unwrap();
    }
    while !batch.is_empty() {
        batch.step().unwrap();
    }
    let rows = sequences as usize * (prompt + generated) * row;
    let taken = cpu.counters().peak - before.active;
    // The last page of each sequence, an eighth of free pages, and a layer twice while it grows.
    assert!(taken < rows * 5 / 2, "{taken} bytes for {rows} bytes of rows");
}

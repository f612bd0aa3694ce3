//! Memory of decoding. Alone in its process, since it reads the counters of the process.

use crate::alone;
use crate::support::{Folder, Small};
use hesper_lm::{CacheKind, GenerateOptions, Generation, LanguageModel, LoadOptions};

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

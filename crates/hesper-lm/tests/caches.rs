//! What every kind of cache keeps, refuses and undoes.

use crate::support::{Folder, Small, some_tokens};
use hesper::Array;
use hesper_lm::{CacheKind, KvCache, LanguageModel, LoadOptions};

const QUANTIZED: CacheKind = CacheKind::Quantized { bits: 8, group: 32 };
const ROTATING: CacheKind = CacheKind::Rotating { keep: 2, window: 9 };

fn model(name: &str) -> (Folder, LanguageModel) {
    let folder = Folder::new(name);
    Small::new("qwen3", 81, true, None).write(&folder.0);
    let language = LanguageModel::load(&folder.0, &LoadOptions::default()).unwrap();
    (folder, language)
}

fn create(language: &LanguageModel, kind: CacheKind) -> Box<dyn KvCache> {
    kind.create(language.model().config()).unwrap()
}

fn ids(tokens: &[u32]) -> Array {
    Array::try_from_slice(tokens, &[1, tokens.len()]).unwrap()
}

fn step(language: &LanguageModel, tokens: &[u32], cache: &mut dyn KvCache) -> Vec<f32> {
    language.model().step(&ids(tokens), cache).unwrap().to_vec::<f32>().unwrap()
}

#[test]
fn pending_tokens_count_when_they_are_committed_and_are_gone_when_rolled_back() {
    let (_folder, language) = model("pending");
    let tokens = some_tokens(8, 96, 1);
    for kind in [CacheKind::Growing, QUANTIZED] {
        let mut cache = create(&language, kind);
        step(&language, &tokens[..6], &mut *cache);
        let expected = {
            let mut other = create(&language, kind);
            step(&language, &tokens[..6], &mut *other);
            step(&language, &tokens[6..], &mut *other)
        };
        // Evaluated or not, tokens that are rolled back change nothing.
        for evaluated in [true, false] {
            let logits = language.model().propose(&ids(&[3, 4, 5]), &mut *cache).unwrap();
            if evaluated {
                logits.eval().unwrap();
            }
            assert_eq!((cache.lengths(), cache.positions().pending()), (&[6][..], 3));
            cache.rollback().unwrap();
            assert_eq!((cache.lengths(), cache.positions().pending()), (&[6][..], 0));
        }
        // Two steps, one behind the other.
        language.model().propose(&ids(&tokens[6..7]), &mut *cache).unwrap();
        let logits = language.model().propose(&ids(&tokens[7..]), &mut *cache).unwrap();
        cache.commit(1);
        assert_eq!((cache.lengths(), cache.positions().pending()), (&[7][..], 1));
        cache.commit(1);
        assert_eq!((cache.lengths(), cache.positions().pending()), (&[8][..], 0));
        let given = logits.to_vec::<f32>().unwrap();
        let off = given.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-4, "{kind:?}: off by {off}");
    }
}

#[test]
fn a_step_that_is_refused_leaves_the_cache_as_it_was() {
    let (_folder, language) = model("refused");
    let tokens = some_tokens(20, 96, 2);
    for kind in [CacheKind::Growing, QUANTIZED, ROTATING] {
        let mut cache = create(&language, kind);
        step(&language, &tokens[..12], &mut *cache);
        let mut refused = |given: &Array, culprit: &str| {
            let error = language.model().step(given, &mut *cache).unwrap_err().to_string();
            assert!(error.contains(culprit), "{kind:?}: {error}");
        };
        refused(&ids(&[1; 117]), "128");
        refused(&ids(&[]), "empty");
        refused(&Array::try_from_slice(&[1u32, 2], &[2, 1]).unwrap(), "2 sequences");
        refused(&Array::from_slice(&[1u32, 2]), "[2]");
        // A layer that the cache does not have fails in the middle of a step.
        cache.begin(&[1]).unwrap();
        let row = Array::zeros(&[1, 2, 1, 32], hesper::Dtype::Float32).unwrap();
        cache.append(0, &row, &row, None).unwrap();
        assert!(cache.append(7, &row, &row, None).unwrap_err().to_string().contains("layer 7"));
        let mut other = create(&language, kind);
        step(&language, &tokens[..12], &mut *other);
        for token in &tokens[12..] {
            assert_eq!(
                step(&language, &[*token], &mut *cache),
                step(&language, &[*token], &mut *other),
                "{kind:?}"
            );
        }
    }
}

#[test]
fn sequences_are_joined_and_removed_by_caches_that_can() {
    let (_folder, language) = model("sequences");
    let filled = |kind: CacheKind, length: usize| {
        let mut cache = create(&language, kind);
        step(&language, &some_tokens(length, 96, length as u64), &mut *cache);
        cache
    };
    for kind in [CacheKind::Growing, QUANTIZED] {
        assert!(kind.is_batchable());
        let mut cache = filled(kind, 5);
        cache.join(filled(kind, 9)).unwrap();
        cache.join(filled(kind, 2)).unwrap();
        assert_eq!(cache.lengths(), [5, 9, 2]);
        assert!(cache.remove(3).unwrap_err().to_string().contains("sequence 3"));
        for other in [filled(ROTATING, 3), create(&language, kind)] {
            assert!(cache.join(other).is_err());
            assert_eq!(cache.lengths(), [5, 9, 2]);
        }
        cache.remove(0).unwrap();
        assert_eq!(cache.lengths(), [2, 9]);
        language.model().propose(&Array::try_from_slice(&[1u32, 2], &[2, 1]).unwrap(), &mut *cache).unwrap();
        assert!(cache.remove(0).unwrap_err().to_string().contains("pending"));
        assert!(cache.join(filled(kind, 3)).unwrap_err().to_string().contains("pending"));
        cache.rollback().unwrap();
        cache.remove(1).unwrap();
        cache.remove(0).unwrap();
        assert_eq!((cache.lengths().len(), cache.nbytes()), (0, 0));
    }
    let mut rotating = filled(ROTATING, 4);
    assert!(!ROTATING.is_batchable());
    assert!(rotating.join(filled(ROTATING, 4)).is_err() && rotating.remove(0).is_err());
    assert!(rotating.truncate(2).unwrap_err().to_string().contains("truncated"));
    assert_eq!(rotating.lengths(), [4]);
    let other = CacheKind::Quantized { bits: 4, group: 32 };
    let error = filled(QUANTIZED, 2).join(filled(other, 2)).unwrap_err().to_string();
    assert!(error.contains("quantization"), "{error}");
}

#[test]
fn invalid_kinds_are_refused() {
    let (_folder, language) = model("kinds");
    let error = |kind: CacheKind| kind.create(language.model().config()).map(|_| ()).unwrap_err().to_string();
    assert!(error(CacheKind::Rotating { keep: 4, window: 4 }).contains("window of 4"));
    assert!(error(CacheKind::Quantized { bits: 3, group: 32 }).contains("3 bits"));
    assert!(error(CacheKind::Quantized { bits: 8, group: 48 }).contains("48"));
    assert!(error(CacheKind::Quantized { bits: 8, group: 64 }).contains("head dimension 32"));
}

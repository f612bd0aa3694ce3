//! Attention against the definition: masks, grouped heads, sinks, odd sizes, every SIMD level.

use crate::common::{Rng, close, levels};
use half::{bf16, f16};
use hesper_compute::internals::prefill_within;
use hesper_compute::{
    AttentionShape, Float, HeadSlice, Heads, HeadsMut, Mask, MaskSlice, Par, Serial, attention,
    attention_slices,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum MaskKind {
    All,
    Causal,
    Marked,
    Added,
}

struct Case<T> {
    shape: AttentionShape,
    q: Vec<T>,
    k: Vec<T>,
    v: Vec<T>,
    marks: Vec<bool>,
    added: Vec<T>,
    sinks: Option<Vec<f32>>,
    kind: MaskKind,
}

impl<T: Float> Case<T> {
    fn new(shape: AttentionShape, kind: MaskKind, sinks: bool, rng: &mut Rng) -> Self {
        let s = &shape;
        let scores = s.q_len * s.kv_len;
        Self {
            q: rng.floats(s.batch * s.q_heads * s.q_len * s.head_dim),
            k: rng.floats(s.batch * s.kv_heads * s.kv_len * s.head_dim),
            v: rng.floats(s.batch * s.kv_heads * s.kv_len * s.value_dim),
            marks: (0..s.q_heads * scores).map(|_| rng.below(3) > 0).collect(),
            added: rng.floats(s.batch * scores),
            sinks: sinks.then(|| rng.floats(s.q_heads)),
            shape,
            kind,
        }
    }

    fn mask(&self) -> Mask<T> {
        let s = &self.shape;
        let scores = (s.q_len * s.kv_len) as isize;
        match self.kind {
            MaskKind::All => Mask::All,
            MaskKind::Causal => Mask::Causal,
            // One for every head, shared by the batch.
            MaskKind::Marked => {
                Mask::Marked { ptr: self.marks.as_ptr().cast(), strides: [0, scores, s.kv_len as isize, 1] }
            }
            // One for every sequence, shared by the heads.
            MaskKind::Added => {
                Mask::Added { ptr: self.added.as_ptr(), strides: [scores, 0, s.kv_len as isize, 1] }
            }
        }
    }

    fn run(&self, par: &dyn Par) -> Vec<T> {
        let s = &self.shape;
        let mut out = vec![T::from_f32(f32::NAN); s.batch * s.q_heads * s.q_len * s.value_dim];
        let strides =
            |heads: usize, len: usize, d: usize| [(heads * len * d) as isize, (len * d) as isize, d as isize];
        let heads = |v: &[T], heads, len, d| Heads { ptr: v.as_ptr(), strides: strides(heads, len, d) };
        let to = HeadsMut { ptr: out.as_mut_ptr(), strides: strides(s.q_heads, s.q_len, s.value_dim) };
        // SAFETY: the strides are those of the vectors.
        unsafe {
            attention(
                par,
                *s,
                heads(&self.q, s.q_heads, s.q_len, s.head_dim),
                heads(&self.k, s.kv_heads, s.kv_len, s.head_dim),
                heads(&self.v, s.kv_heads, s.kv_len, s.value_dim),
                to,
                0.7,
                self.mask(),
                self.sinks.as_deref(),
            )
            .unwrap();
        }
        out
    }

    fn reference(&self) -> Vec<f32> {
        let s = &self.shape;
        let mut out = vec![];
        for b in 0..s.batch {
            for h in 0..s.q_heads {
                let kh = b * s.kv_heads + h / (s.q_heads / s.kv_heads);
                for i in 0..s.q_len {
                    let q = &self.q[((b * s.q_heads + h) * s.q_len + i) * s.head_dim..][..s.head_dim];
                    let mut scores: Vec<f64> = (0..s.kv_len)
                        .map(|j| {
                            let k = &self.k[(kh * s.kv_len + j) * s.head_dim..][..s.head_dim];
                            let dot: f64 = q
                                .iter()
                                .zip(k)
                                .map(|(a, b)| f64::from(a.to_f32()) * f64::from(b.to_f32()))
                                .sum();
                            let score = 0.7 * dot;
                            let hidden = match self.kind {
                                MaskKind::Causal => j + s.q_len > i + s.kv_len,
                                MaskKind::Marked => !self.marks[(h * s.q_len + i) * s.kv_len + j],
                                _ => false,
                            };
                            if hidden {
                                f64::from(f32::MIN)
                            } else if self.kind == MaskKind::Added {
                                score + f64::from(self.added[(b * s.q_len + i) * s.kv_len + j].to_f32())
                            } else {
                                score
                            }
                        })
                        .collect();
                    let sink = self.sinks.as_ref().map(|s| f64::from(s[h]));
                    let top = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
                    scores.iter_mut().for_each(|x| *x = (*x - top).exp());
                    let sum: f64 = scores.iter().sum::<f64>() + sink.map_or(0.0, |x| (x - top).exp());
                    for e in 0..s.value_dim {
                        let v: f64 = (0..s.kv_len)
                            .map(|j| {
                                scores[j] * f64::from(self.v[(kh * s.kv_len + j) * s.value_dim + e].to_f32())
                            })
                            .sum();
                        out.push((v / sum) as f32);
                    }
                }
            }
        }
        out
    }
}

const SHAPES: [(usize, usize, usize, usize, usize, usize, usize); 11] = [
    (1, 1, 1, 1, 1, 4, 4),
    (2, 4, 2, 1, 70, 64, 64),
    (1, 8, 2, 1, 1100, 32, 40),
    (1, 3, 3, 2, 65, 17, 9),
    (1, 6, 1, 5, 30, 16, 16),
    (1, 2, 1, 75, 75, 24, 24),
    (2, 2, 2, 30, 301, 40, 33),
    (1, 2, 2, 80, 50, 20, 64),
    (1, 1, 1, 150, 530, 64, 48),
    // More query heads for a key head than fit a block, and heads that do not fill one.
    (1, 100, 1, 3, 200, 16, 24),
    (2, 14, 2, 21, 193, 8, 130),
];

fn check<T: Float>(tol: f32) {
    let mut rng = Rng::new(31);
    for (batch, q_heads, kv_heads, q_len, kv_len, head_dim, value_dim) in SHAPES {
        let shape = AttentionShape { batch, q_heads, kv_heads, q_len, kv_len, head_dim, value_dim };
        for (kind, sinks) in [
            (MaskKind::All, false),
            (MaskKind::Causal, false),
            (MaskKind::Marked, false),
            (MaskKind::Added, true),
            (MaskKind::Causal, true),
        ] {
            let case = Case::<T>::new(shape, kind, sinks, &mut rng);
            let want = case.reference();
            for (one, three) in levels() {
                let (a, b) = (case.run(&one), case.run(&three));
                for (i, (x, y)) in a.iter().zip(&want).enumerate() {
                    close(x.to_f32(), *y, tol, (shape, kind, sinks, one.1, i));
                }
                let bits = |v: &[T]| v.iter().map(|x| x.to_f32().to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&a), bits(&b), "threads differ at {shape:?} {kind:?}");
            }
        }
    }
}

#[test]
fn f32_attention_matches_the_definition() {
    check::<f32>(3e-6);
}

#[test]
fn bf16_attention_matches_the_definition() {
    check::<bf16>(5e-3);
}

#[test]
fn f16_attention_matches_the_definition() {
    check::<f16>(7e-4);
}

#[test]
fn a_nan_key_affects_only_the_queries_that_see_it() {
    let shape = AttentionShape {
        batch: 1,
        q_heads: 2,
        kv_heads: 2,
        q_len: 60,
        kv_len: 200,
        head_dim: 16,
        value_dim: 16,
    };
    let mut case = Case::<f32>::new(shape, MaskKind::Causal, false, &mut Rng::new(3));
    // Key 170 of the first head is visible to queries from 30 on: the 60 queries are aligned with the last 60
    // keys.
    case.k[170 * 16 + 5] = f32::NAN;
    for (one, _) in levels() {
        for (i, row) in case.run(&one).chunks(16).enumerate() {
            let (head, query) = (i / 60, i % 60);
            let seen = head == 0 && query >= 30;
            assert_eq!(row.iter().all(|x| x.is_nan()), seen, "head {head} query {query} at {:?}", one.1);
            assert_eq!(row.iter().any(|x| x.is_nan()), seen, "head {head} query {query} at {:?}", one.1);
        }
    }
}

#[test]
fn heads_that_do_not_form_groups_are_refused() {
    let shape = AttentionShape { batch: 1, q_heads: 3, kv_heads: 2, ..Default::default() };
    let h = Heads { ptr: std::ptr::null::<f32>(), strides: [0; 3] };
    let out = HeadsMut { ptr: std::ptr::null_mut::<f32>(), strides: [0; 3] };
    // SAFETY: the shape has no elements.
    let r = unsafe { attention(&Serial, shape, h, h, h, out, 1.0, Mask::All, None) };
    assert!(r.is_err());
}

#[test]
fn rows_that_leave_their_slice_are_refused() {
    let shape =
        AttentionShape { batch: 1, q_heads: 2, kv_heads: 1, q_len: 1, kv_len: 3, head_dim: 4, value_dim: 4 };
    let data = [0.5f32; 16];
    let mut out = [0.0f32; 8];
    let at = |first, strides| HeadSlice { data: &data, first, strides };
    let mut run = |k, mask| {
        let (q, v) = (at(0, [0, 4, 4]), at(4, [0, 0, 4]));
        attention_slices(&Serial, shape, q, k, v, &mut out, 1.0, mask, None)
    };
    let good = at(12, [0, 0, -4]);
    assert!(run(good, MaskSlice::All).is_ok());
    assert!(run(at(5, [0, 0, 4]), MaskSlice::All).is_err());
    assert!(run(at(4, [0, 0, -4]), MaskSlice::All).is_err());
    let marks = [1u8; 5];
    let marked = |strides| MaskSlice::Marked { data: &marks, first: 0, strides };
    assert!(run(good, marked([0, 2, 0, 1])).is_ok());
    assert!(run(good, marked([0, 3, 0, 1])).is_err());
}

#[test]
fn results_do_not_depend_on_how_many_heads_are_packed_together() {
    let shape = AttentionShape {
        batch: 2,
        q_heads: 6,
        kv_heads: 3,
        q_len: 20,
        kv_len: 210,
        head_dim: 12,
        value_dim: 20,
    };
    let value = |i: usize| ((i * 37 % 61) as f32 - 30.0) / 20.0;
    let numbers = |n: usize| (0..n).map(value).collect::<Vec<f32>>();
    let (q, k, v) = (numbers(2 * 6 * 20 * 12), numbers(2 * 3 * 210 * 12), numbers(2 * 3 * 210 * 20));
    let contiguous = |h: usize, n: usize, d: usize| [(h * n * d) as isize, (n * d) as isize, d as isize];
    let mut runs = vec![];
    for max_packed in [1, 20_000, 8 << 20] {
        let mut out = vec![f32::NAN; 2 * 6 * 20 * 20];
        let inputs = [
            Heads { ptr: q.as_ptr(), strides: contiguous(6, 20, 12) },
            Heads { ptr: k.as_ptr(), strides: contiguous(3, 210, 12) },
            Heads { ptr: v.as_ptr(), strides: contiguous(3, 210, 20) },
        ];
        let to = HeadsMut { ptr: out.as_mut_ptr(), strides: contiguous(6, 20, 20) };
        // SAFETY: the strides are those of the vectors, and the output is written here alone.
        unsafe { prefill_within(&Serial, shape, inputs, to, max_packed) };
        runs.push(out);
    }
    assert!(runs[0].iter().all(|x| x.is_finite()));
    assert!(runs[0] == runs[1] && runs[1] == runs[2]);
}

//! Attention: decoding against a long cache, and a causal prefill.

use half::bf16;
use hesper_compute::{AttentionShape, Float, Heads, HeadsMut, Mask, Par, attention};

use crate::measure::{best, peak_flops, read_rate};

fn time<T: Float>(par: &dyn Par, s: AttentionShape, mask: Mask<T>) -> f64 {
    let value = |i: usize| T::from_f32(((i * 7919) % 255) as f32 / 128.0 - 1.0);
    let heads = |h: usize, len: usize| (0..s.batch * h * len * s.head_dim).map(value).collect::<Vec<T>>();
    let (q, k, v) = (heads(s.q_heads, s.q_len), heads(s.kv_heads, s.kv_len), heads(s.kv_heads, s.kv_len));
    let mut out = vec![T::from_f32(0.0); q.len()];
    let strides =
        |h: usize, len: usize| [h * len * s.head_dim, len * s.head_dim, s.head_dim].map(|x| x as isize);
    best(|| {
        let at = |p: &[T], h, len| Heads { ptr: p.as_ptr(), strides: strides(h, len) };
        let to = HeadsMut { ptr: out.as_mut_ptr(), strides: strides(s.q_heads, s.q_len) };
        let (q, k, v) =
            (at(&q, s.q_heads, s.q_len), at(&k, s.kv_heads, s.kv_len), at(&v, s.kv_heads, s.kv_len));
        // SAFETY: the strides are those of the vectors.
        unsafe { attention(par, s, q, k, v, to, 0.088, mask, None).unwrap() };
    })
}

pub fn run(par: &dyn Par) {
    let base = AttentionShape {
        batch: 1,
        q_heads: 32,
        kv_heads: 8,
        q_len: 1,
        kv_len: 4096,
        head_dim: 128,
        value_dim: 128,
    };
    let rate = read_rate(par, 32 << 20);
    let peak = peak_flops(par);
    println!("threads {}, read {:.1} GB/s, f32 peak {:.1} GFLOP/s", par.threads(), rate / 1e9, peak / 1e9);
    let elements = (2 * base.kv_heads * base.kv_len * base.head_dim) as f64;
    for (name, t, size) in [
        ("f32", time::<f32>(par, base, Mask::All), 4.0),
        ("bf16", time::<bf16>(par, base, Mask::All), 2.0),
        ("f16", time::<half::f16>(par, base, Mask::All), 2.0),
    ] {
        let r = elements * size / t;
        println!(
            "decode  {name:5} kv 4096 {:8.3} ms {:6.1} GB/s {:5.2} of a read",
            t * 1e3,
            r / 1e9,
            r / rate
        );
    }
    let s = AttentionShape { q_len: 1024, kv_len: 1024, ..base };
    let flops = 2.0 * (s.q_heads * s.q_len * s.kv_len * s.head_dim * 2) as f64 / 2.0;
    for (name, t) in
        [("f32", time::<f32>(par, s, Mask::Causal)), ("bf16", time::<bf16>(par, s, Mask::Causal))]
    {
        println!(
            "prefill {name:5} 1024 causal {:8.3} ms {:6.1} GFLOP/s {:5.2} of f32 peak",
            t * 1e3,
            flops / t / 1e9,
            flops / t / peak
        );
    }
}

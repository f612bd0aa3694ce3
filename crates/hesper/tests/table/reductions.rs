//! Reductions, scans, norms.

use hesper::{Array, fast, linalg};

use super::{Case, case, ints, single, x};

pub fn cases() -> Vec<Case> {
    let t = x(1, &[2, 3, 4]);
    let zeros = Array::from_slice(&[2.0f64, 0.0, 3.0]);
    vec![
        case("sum", &[t.clone()], |x| x[0].sum(Some(&[0, 2]), false)),
        case("sum kept", &[t.clone()], |x| x[0].sum(None, true)),
        case("mean", &[t.clone()], |x| x[0].mean(Some(&[1]), true)),
        case("prod", &[t.clone()], |x| x[0].prod(Some(&[0, 2]), false)),
        case("prod with a zero", &[zeros.clone()], |x| x[0].prod(None, false)),
        case("prod with two zeros", &[Array::from_slice(&[2.0, 0.0, 3.0, 0.0])], |x| x[0].prod(None, false)),
        case("cumprod with zeros", &[Array::from_slice(&[2.0, 0.0, 3.0, 0.0, 1.5])], |x| {
            x[0].cumprod(Some(0), false, true)
        }),
        case("cumprod with zeros, back, without itself", &[zeros.clone()], |x| {
            x[0].cumprod(Some(0), true, false)
        }),
        case("max", &[t.clone()], |x| x[0].max(Some(&[2]), false)),
        case("min", &[t.clone()], |x| x[0].min(None, false)),
        case("var", &[t.clone()], |x| x[0].var(Some(&[2]), false, 1)),
        single("var single", &[t.clone()], |x| x[0].var(Some(&[2]), false, 1)),
        single("std single", &[t.clone()], |x| x[0].std(Some(&[0]), true, 0)),
        case("median of three", &[t.clone()], |x| x[0].median(Some(&[1]), false)),
        case("median of four", &[t.clone()], |x| x[0].median(Some(&[2]), true)),
        case("logsumexp", &[t.clone()], |x| x[0].logsumexp(Some(&[1]), false)),
        case("logsumexp of rows", &[t.clone()], |x| x[0].logsumexp(Some(&[2]), false)),
        case("softmax", &[t.clone()], |x| x[0].softmax(Some(&[-1]), false)),
        case("softmax inside", &[t.clone()], |x| x[0].softmax(Some(&[1]), false)),
        case("log_softmax", &[t.clone()], |x| x[0].log_softmax(Some(&[-1]))),
        case("cumsum", &[t.clone()], |x| x[0].cumsum(Some(1), false, true)),
        case("cumsum back", &[t.clone()], |x| x[0].cumsum(Some(2), true, false)),
        case("cumprod", &[t.clone()], |x| x[0].cumprod(Some(2), false, true)),
        case("cumprod without itself", &[t.clone()], |x| x[0].cumprod(Some(2), false, false)),
        case("cummax", &[t.clone()], |x| x[0].cummax(Some(2), false, true)),
        case("cummin back", &[t.clone()], |x| x[0].cummin(Some(1), true, true)),
        case("logcumsumexp", &[t.clone()], |x| x[0].logcumsumexp(Some(2), false, true)),
        case("logcumsumexp back", &[t.clone()], |x| x[0].logcumsumexp(Some(1), true, true)),
        case("logcumsumexp of part", &[t.clone()], |x| {
            x[0].logcumsumexp(Some(2), false, true)?.slice(&[0, 0, 1], &[2, 3, 2], &[1, 1, 1])
        }),
        case("logcumsumexp without itself", &[t.clone()], |x| {
            x[0].logcumsumexp(Some(2), false, false)?.slice(&[0, 0, 1], &[2, 3, 4], &[1, 1, 1])
        }),
        case("cummax without itself", &[t.clone()], |x| {
            x[0].cummax(Some(2), false, false)?.slice(&[0, 0, 1], &[2, 3, 4], &[1, 1, 1])
        }),
        case("diff", &[t.clone()], |x| x[0].diff(1, 2)),
        case("rms_norm", &[t.clone(), x(2, &[4])], |x| fast::rms_norm(&x[0], Some(&x[1]), 1e-5)),
        case("layer_norm", &[t.clone(), x(3, &[4]), x(4, &[4])], |x| {
            fast::layer_norm(&x[0], Some(&x[1]), Some(&x[2]), 1e-5)
        }),
        case("layer_norm with a bias alone", &[t.clone(), x(4, &[4])], |x| {
            fast::layer_norm(&x[0], None, Some(&x[1]), 1e-5)
        }),
        single("cross_entropy", &[x(5, &[3, 4])], |x| fast::cross_entropy(&x[0], &ints(&[1, 3, 0]))),
        case("sum of bools", &[t.clone()], |x| x[0].greater(0)?.sum(None, false)).flat(),
        case("all", &[t.clone()], |x| x[0].greater(-2)?.all(Some(&[1]), false)).flat(),
        case("any", &[t.clone()], |x| x[0].greater(0.9)?.any(Some(&[0]), false)).flat(),
        case("argmax", &[t.clone()], |x| x[0].argmax(Some(1), false)).flat(),
        case("argmin", &[t.clone()], |x| x[0].argmin(None, true)).flat(),
        case("norm", &[t.clone()], |x| linalg::norm(&x[0], linalg::Norm::Euclidean, Some(&[1]), false)),
        case("sort with ties", &[Array::from_slice(&[1.0, 0.0, 1.0])], |x| x[0].sort(None)).flat(),
        case("max of equals", &[Array::from_slice(&[1.0, 0.0, 1.0])], |x| x[0].max(None, false)).flat(),
    ]
}

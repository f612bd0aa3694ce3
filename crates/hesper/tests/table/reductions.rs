//! Reductions and scans: the cases of the crate's tables, and others. Norms.

use hesper::ops::domain::Domain;
use hesper::{Array, Result, axes, fast, linalg};

use super::{Case, case, ints, of_domains, sample, single, x};

type Reduction = Box<dyn Fn(&Array) -> Result<Array>>;

/// The result of a scan, less the first one if it is of no element.
fn of_elements(y: Array, reverse: bool, inclusive: bool) -> Result<Array> {
    let length = y.shape()[1] as isize;
    let (start, stop) = match (inclusive, reverse) {
        (true, _) => (0, length),
        (false, false) => (1, length),
        (false, true) => (0, length - 1),
    };
    y.slice(&[0, start, 0], &[2, stop, 4], &[1, 1, 1])
}

/// The cases of the tables: every entry over several axes and with every flag.
fn tables() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let over = || [axes([0, 2]), axes(1).keepdims(), axes(2), axes(()).keepdims()];
    let mut add = |name: &str, domain: Domain, what: String, f: Reduction| {
        let input = sample(domain, cases.len(), &[2, 3, 4]);
        cases.push(of_domains(format!("{name} [{domain:?}] {what}"), &[input], move |x| f(&x[0])));
    };
    macro_rules! add_cases {
        ($($(#[doc = $doc:literal])+ $name:ident $(| $alias:ident)* ($signature:ident) = |$($x:ident),+| $body:expr;
            rust $example:literal => $shown:literal;
            $(python $args:literal => $result:literal $(, method $method:ident)?;)?
            cases $([$domain:ident])+;)*) => {
            $($(add_cases!(@$signature $name Domain::$domain);)+)*
        };
        (@axes $name:ident $domain:expr) => {
            for axes in over() {
                let what = format!("over {axes:?}");
                add(stringify!($name), $domain, what, Box::new(move |x| x.$name(&axes)));
            }
        };
        (@axis $name:ident $domain:expr) => {
            for axis in [axes(0), axes(1).keepdims(), axes(2), axes(()).keepdims()] {
                let what = format!("over {axis:?}");
                add(stringify!($name), $domain, what, Box::new(move |x| x.$name(&axis)));
            }
        };
        (@spread $name:ident $domain:expr) => {
            for (axes, ddof) in over().into_iter().zip([0, 1, 1, 2]) {
                let what = format!("over {axes:?}");
                add(stringify!($name), $domain, what, Box::new(move |x| x.$name(&axes, ddof)));
            }
        };
        (@scan $name:ident $domain:expr) => {
            for (reverse, inclusive) in [(false, true), (true, true), (false, false), (true, false)] {
                let what = format!("reverse {reverse}, inclusive {inclusive}");
                let scan = move |x: &Array| {
                    of_elements(x.$name(Some(1), reverse, inclusive)?, reverse, inclusive)
                };
                add(stringify!($name), $domain, what, Box::new(scan));
            }
            for axis in [Some(2), None] {
                let what = format!("along {axis:?}");
                add(stringify!($name), $domain, what, Box::new(move |x| x.$name(axis, false, true)));
            }
        };
    }
    hesper::reduction_ops!(add_cases);
    hesper::scan_ops!(add_cases);
    cases
}

pub fn cases() -> Vec<Case> {
    let t = x(1, &[2, 3, 4]);
    let zeros = Array::from_slice(&[2.0f64, 0.0, 3.0]);
    let mut cases = tables();
    cases.extend([
        case("prod with a zero", &[zeros.clone()], |x| x[0].prod(())),
        case("prod with two zeros", &[Array::from_slice(&[2.0, 0.0, 3.0, 0.0])], |x| x[0].prod(())),
        case("cumprod with zeros", &[Array::from_slice(&[2.0, 0.0, 3.0, 0.0, 1.5])], |x| {
            x[0].cumprod(Some(0), false, true)
        }),
        case("cumprod with zeros, back, without itself", &[zeros.clone()], |x| {
            x[0].cumprod(Some(0), true, false)
        }),
        case("softmax", &[t.clone()], |x| x[0].softmax(-1)),
        case("softmax inside", &[t.clone()], |x| x[0].softmax(1)),
        case("log_softmax", &[t.clone()], |x| x[0].log_softmax(-1)),
        case("diff", &[t.clone()], |x| x[0].diff(1, 2)),
        case("rms_norm", &[t.clone(), x(2, &[4])], |x| fast::rms_norm(&x[0], Some(&x[1]), 1e-5)),
        case("layer_norm", &[t.clone(), x(3, &[4]), x(4, &[4])], |x| {
            fast::layer_norm(&x[0], Some(&x[1]), Some(&x[2]), 1e-5)
        }),
        case("layer_norm with a bias alone", &[t.clone(), x(4, &[4])], |x| {
            fast::layer_norm(&x[0], None, Some(&x[1]), 1e-5)
        }),
        single("cross_entropy", &[x(5, &[3, 4])], |x| fast::cross_entropy(&x[0], &ints(&[1, 3, 0]))),
        case("all", &[t.clone()], |x| x[0].greater(-2)?.all(1)).flat(),
        case("any", &[t.clone()], |x| x[0].greater(0.9)?.any(0)).flat(),
        case("norm", &[t.clone()], |x| linalg::norm(&x[0], linalg::Norm::Euclidean, 1)),
        case("sort with ties", &[Array::from_slice(&[1.0, 0.0, 1.0])], |x| x[0].sort(None)).flat(),
        case("max of equals", &[Array::from_slice(&[1.0, 0.0, 1.0])], |x| x[0].max(())).flat(),
    ]);
    cases
}

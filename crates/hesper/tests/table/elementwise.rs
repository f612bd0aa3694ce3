//! Element-wise ops: the cases of the crate's tables, and of functions that are made of such ops.

use hesper::ops::domain::Domain;
use hesper::{Array, Category, Dtype, Result, select};

use super::{Case, case, complex, many, positive, x};

/// Shapes of two operands.
const SHAPES: [[&[usize]; 2]; 5] =
    [[&[2, 3], &[2, 3]], [&[2, 3], &[3]], [&[2, 1], &[2, 3]], [&[1, 3], &[2, 1]], [&[2, 3], &[]]];

/// Numbers of a domain.
fn sample(domain: Domain, seed: usize, shape: &[usize]) -> Array {
    let (low, high) = domain.range();
    let between = |low: f64, high: f64| x(seed, shape) * ((high - low) / 2.0) + (high + low) / 2.0;
    let numbers = match domain {
        Domain::Complex | Domain::ComplexRight => complex(seed, shape) + (high + low) / 2.0,
        Domain::Integer | Domain::Count => {
            between(low, high + 1.0).floor().unwrap().astype(Dtype::Int32).unwrap()
        }
        _ => between(low, high),
    };
    numbers.contiguous().unwrap()
}

/// A case of a table: smooth, if numbers of its type are.
fn of_table(at: usize, name: &str, domains: &[Domain], call: fn(&[Array]) -> Result<Array>) -> Case {
    let shapes = if domains.len() == 1 { &SHAPES[0] } else { &SHAPES[at % SHAPES.len()] };
    let place = domains.iter().zip(shapes).enumerate();
    let inputs: Vec<Array> = place.map(|(n, (domain, shape))| sample(*domain, 2 * at + n, shape)).collect();
    let name = Box::leak(format!("{name} {domains:?}").into_boxed_str());
    let smooth = |x: &Array| x.dtype().is(Category::Inexact);
    let all_smooth = inputs.iter().all(smooth) && smooth(&call(&inputs).unwrap());
    let single = inputs.iter().any(|x| x.dtype() == Dtype::Complex64);
    let case = case(name, &inputs, call);
    let case = if single { case.rough(1e-2, 3e-3) } else { case };
    if all_smooth { case } else { case.flat() }
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    macro_rules! add_cases {
        ($($(#[doc = $doc:literal])+ $name:ident $(| $alias:ident)* ($($other:ident),*): $types:ident
            = |$($x:ident),+| $body:expr $(=> $derivative:expr)?;
            $(python $args:literal => $result:literal $(, method $method:ident)?;)?
            cases $([$($domain:ident),+])+;)*) => {
            $(let call = add_cases!(@call $name $($other)*);
            $(cases.push(of_table(cases.len(), stringify!($name), &[$(Domain::$domain),+], call));)+)*
        };
        (@call $name:ident) => { |x: &[Array]| x[0].$name() };
        (@call $name:ident $other:ident) => { |x: &[Array]| x[0].$name(&x[1]) };
    }
    hesper::arithmetic_ops!(add_cases);
    hesper::function_ops!(add_cases);
    hesper::logic_ops!(add_cases);
    let s = &[2, 3][..];
    cases.push(case("full", &[x(1, &[])], |x| Array::full(&[2, 2], &x[0], None)));
    cases.push(
        many("divmod", &[x(1, s) * 3.0, positive(2, s)], |x| {
            let (whole, rest) = x[0].divmod(&x[1])?;
            Ok(vec![whole, rest])
        })
        .flat(),
    );
    cases.push(case("where", &[x(1, s), x(2, s), x(3, &[3])], |x| select(&x[0].greater(0)?, &x[1], &x[2])));
    cases.push(case("astype", &[x(1, s)], |x| x[0].astype(Dtype::Float64)));
    cases.push(case("clip", &[x(1, s)], |x| x[0].clip(Some(-0.5), Some(0.5))));
    cases
}

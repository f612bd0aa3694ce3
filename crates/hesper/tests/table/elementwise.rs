//! Element-wise ops: the cases of the crate's tables, and of functions that are made of such ops.

use hesper::ops::domain::Domain;
use hesper::{Array, Dtype, Result, select};

use super::{Case, case, many, of_domains, positive, sample, x};

/// Shapes of two operands.
const SHAPES: [[&[usize]; 2]; 5] =
    [[&[2, 3], &[2, 3]], [&[2, 3], &[3]], [&[2, 1], &[2, 3]], [&[1, 3], &[2, 1]], [&[2, 3], &[]]];

/// A case of a table.
fn of_table(at: usize, name: &str, domains: &[Domain], call: fn(&[Array]) -> Result<Array>) -> Case {
    let shapes = if domains.len() == 1 { &SHAPES[0] } else { &SHAPES[at % SHAPES.len()] };
    let place = domains.iter().zip(shapes).enumerate();
    let inputs: Vec<Array> = place.map(|(n, (domain, shape))| sample(*domain, 2 * at + n, shape)).collect();
    of_domains(format!("{name} {domains:?}"), &inputs, call)
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    macro_rules! add_cases {
        ($($(#[doc = $doc:literal])+ $name:ident $(| $alias:ident)* ($($other:ident),*): $types:ident
            = |$($x:ident),+| $body:expr $(=> $derivative:expr)?;
            rust $example:literal => $shown:literal;
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

//! The table of all ops: functions at a point, each made of one op or of a few, with what is true of their
//! numbers.
//!
//! Tests of transformations, and of the simulated device, go over it. [`untested`] says which ops of the
//! crate no case has: a new op needs a case, and with it passes every test here.
#![allow(dead_code, reason = "each test uses a part of the table")]

mod elementwise;
mod matrices;
mod movement;
mod others;
mod products;
mod reductions;

use std::collections::BTreeSet;

use hesper::export::{Graph, op_names};
use hesper::ops::domain::Domain;
use hesper::{Array, Category, Dtype, Result};

pub type Function = Box<dyn Fn(&[Array]) -> Result<Vec<Array>>>;

/// A function at a point, and how exact its numbers are.
pub struct Case {
    pub name: &'static str,
    pub function: Function,
    pub inputs: Vec<Array>,
    /// How far differences go.
    pub step: f64,
    pub tolerance: f64,
    /// Whether its derivatives are those of differences; what is no such function has none.
    pub smooth: bool,
}

impl Case {
    /// A function whose derivatives are not asked for.
    pub fn flat(self) -> Self {
        Case { smooth: false, ..self }
    }

    /// A function whose differences are taken further apart.
    pub fn rough(self, step: f64, tolerance: f64) -> Self {
        Case { step, tolerance, ..self }
    }
}

/// Numbers between -1 and 1 that look random and are always the same.
pub fn numbers(seed: usize, shape: &[usize], dtype: Dtype) -> Array {
    let count: usize = shape.iter().product();
    let list: Vec<f64> = (0..count)
        .map(|at| (((at + 1) as f64) * 12.9898 + seed as f64 * 78.233).sin() * 43758.5453)
        .collect();
    let list: Vec<f64> = list.iter().map(|x| 2.0 * (x - x.floor()) - 1.0).collect();
    Array::try_from_slice(&list, shape).unwrap().astype(dtype).unwrap()
}

pub fn x(seed: usize, shape: &[usize]) -> Array {
    numbers(seed, shape, Dtype::Float64)
}

/// The same between 0.2 and 1.8.
pub fn positive(seed: usize, shape: &[usize]) -> Array {
    (x(seed, shape) * 0.8 + 1.0).contiguous().unwrap()
}

pub fn complex(seed: usize, shape: &[usize]) -> Array {
    let (re, im) = (numbers(seed, shape, Dtype::Float32), numbers(seed + 50, shape, Dtype::Float32));
    (re.astype(Dtype::Complex64).unwrap() + im * [0.0f32, 1.0]).contiguous().unwrap()
}

/// Numbers of a domain.
pub fn sample(domain: Domain, seed: usize, shape: &[usize]) -> Array {
    let (low, high) = domain.range();
    let between = |low: f64, high: f64| x(seed, shape) * ((high - low) / 2.0) + (high + low) / 2.0;
    let numbers = match domain {
        Domain::Complex | Domain::ComplexRight => complex(seed, shape) + (high + low) / 2.0,
        Domain::Integer | Domain::Count => {
            between(low, high + 1.0).floor().unwrap().astype(Dtype::Int32).unwrap()
        }
        Domain::Bool => between(low, high).greater(0).unwrap(),
        Domain::Single => between(low, high).astype(Dtype::Float32).unwrap(),
        _ => between(low, high),
    };
    numbers.contiguous().unwrap()
}

pub fn ints(list: &[i32]) -> Array {
    Array::from_slice(list)
}

pub fn bools(list: &[i32]) -> Array {
    ints(list).not_equal(0).unwrap()
}

/// Numbers like those of an array, which its derivatives are multiplied by.
pub fn like(seed: usize, y: &Array) -> Array {
    match y.dtype() {
        Dtype::Complex64 => complex(seed, y.shape()),
        dtype => numbers(seed, y.shape(), dtype),
    }
}

pub fn case(name: &'static str, inputs: &[Array], f: impl Fn(&[Array]) -> Result<Array> + 'static) -> Case {
    many(name, inputs, move |x: &[Array]| Ok(vec![f(x)?]))
}

/// A function with several results.
pub fn many(
    name: &'static str,
    inputs: &[Array],
    f: impl Fn(&[Array]) -> Result<Vec<Array>> + 'static,
) -> Case {
    let function = Box::new(f);
    Case { name, function, inputs: inputs.to_vec(), step: 1e-6, tolerance: 1e-6, smooth: true }
}

fn narrow(inputs: &[Array]) -> Vec<Array> {
    let one = |x: &Array| {
        if x.dtype() == Dtype::Float64 {
            x.astype(Dtype::Float32).unwrap().contiguous().unwrap()
        } else {
            x.clone()
        }
    };
    inputs.iter().map(one).collect()
}

/// A function of float32.
pub fn single(name: &'static str, inputs: &[Array], f: impl Fn(&[Array]) -> Result<Array> + 'static) -> Case {
    case(name, &narrow(inputs), f).rough(1e-2, 3e-3)
}

/// A function of float32 with several results.
pub fn single_many(
    name: &'static str,
    inputs: &[Array],
    f: impl Fn(&[Array]) -> Result<Vec<Array>> + 'static,
) -> Case {
    many(name, &narrow(inputs), f).rough(1e-2, 3e-3)
}

/// A function of numbers of domains: smooth, if it is one of floats to floats.
pub fn of_domains(name: String, inputs: &[Array], f: impl Fn(&[Array]) -> Result<Array> + 'static) -> Case {
    let is_float = |x: &Array| x.dtype().is(Category::Inexact);
    let smooth = inputs.iter().all(is_float) && is_float(&f(inputs).unwrap());
    let is_single = inputs.iter().any(|x| matches!(x.dtype(), Dtype::Float32 | Dtype::Complex64));
    let case = Case { smooth, ..case(Box::leak(name.into_boxed_str()), inputs, f) };
    if is_single { case.rough(1e-2, 3e-3) } else { case }
}

/// All cases, in groups.
pub fn groups() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("element-wise", elementwise::cases()),
        ("movement", movement::cases()),
        ("reductions", reductions::cases()),
        ("products", products::cases()),
        ("matrices", matrices::cases()),
        ("others", others::cases()),
    ]
}

/// The cases of one group.
pub fn group(name: &str) -> Vec<Case> {
    groups().into_iter().find(|(other, _)| *other == name).unwrap().1
}

/// The ops of the crate that no case has.
pub fn untested(cases: &[Case]) -> Vec<&'static str> {
    let known: BTreeSet<&str> = op_names().collect();
    let mut seen = BTreeSet::new();
    for case in cases {
        let graph = Graph::trace(&case.inputs, &[], false, |x| (case.function)(x));
        let graph = graph.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        for step in graph.steps() {
            assert!(known.contains(&step.op[..]), "{}: {} has no reader", case.name, step.op);
            seen.insert(step.op.to_string());
        }
    }
    known.into_iter().filter(|name| !seen.contains(*name)).collect()
}

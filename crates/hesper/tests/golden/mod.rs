//! Reads golden cases: one a line, `op parameters inputs = outputs`. An array is `dtype:shape:bytes in hex`,
//! an input may end in a view: `@t` all axes reversed, `@r` every axis backwards, `@s` every other element
//! of the last axis, `@b` stretched by a new first axis of two.

// Each test file uses a part of this.
#![allow(dead_code)]

use half::{bf16, f16};
use hesper::{Array, Dtype, Error};

/// One line of a file.
pub struct Case {
    pub line: usize,
    pub op: String,
    pub params: Vec<String>,
    pub inputs: Vec<Array>,
    /// None where the op must refuse.
    pub outputs: Option<Vec<Array>>,
}

pub fn cases(text: &str) -> Vec<Case> {
    text.lines().enumerate().map(|(at, line)| case(at + 1, line)).collect()
}

fn case(line: usize, text: &str) -> Case {
    let (left, right) = text.split_once('=').unwrap();
    let mut left = left.split_whitespace();
    let op = left.next().unwrap().to_string();
    let params = left.next().unwrap().split([',', ';']).map(str::to_string).collect();
    let outputs = (right.trim() != "error").then(|| right.split_whitespace().map(array).collect());
    Case { line, op, params, inputs: left.map(array).collect(), outputs }
}

pub fn dtype(name: &str) -> Dtype {
    Dtype::ALL.into_iter().find(|dtype| dtype.name() == name).unwrap()
}

pub fn array(text: &str) -> Array {
    let (text, view) = text.split_once('@').unwrap_or((text, ""));
    let [name, shape, hex] = text.split(':').collect::<Vec<_>>()[..] else { panic!("{text}") };
    let shape: Vec<usize> =
        shape.split(',').filter(|axis| !axis.is_empty()).map(|axis| axis.parse().unwrap()).collect();
    let bytes: Vec<u8> =
        (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
    let x = Array::from_bytes(&bytes, dtype(name), &shape).unwrap();
    let lengths: Vec<isize> = shape.iter().map(|axis| *axis as isize).collect();
    let rank = shape.len();
    match view {
        "" => x,
        "t" => x.t().unwrap(),
        "r" => x.slice(&vec![-1; rank], &vec![isize::MIN; rank], &vec![-1; rank]).unwrap(),
        "s" => {
            let mut steps = vec![1; rank];
            steps[rank - 1] = 2;
            x.slice(&vec![0; rank], &lengths, &steps).unwrap()
        }
        "b" => x.broadcast_to(&[&[2], &shape[..]].concat()).unwrap(),
        other => panic!("{other}"),
    }
}

/// The elements as pairs of float64: real and imaginary part.
fn numbers(x: &Array) -> Result<Vec<[f64; 2]>, Error> {
    macro_rules! read {
        ($t:ty) => {
            x.to_vec::<$t>()?.into_iter().map(|x| [f64::from(x), 0.0]).collect()
        };
    }
    Ok(match x.dtype() {
        Dtype::Bool => x.to_bools()?.into_iter().map(|x| [f64::from(u8::from(x)), 0.0]).collect(),
        Dtype::Uint8 => read!(u8),
        Dtype::Uint16 => read!(u16),
        Dtype::Uint32 => read!(u32),
        Dtype::Uint64 => x.to_vec::<u64>()?.into_iter().map(|x| [x as f64, 0.0]).collect(),
        Dtype::Int8 => read!(i8),
        Dtype::Int16 => read!(i16),
        Dtype::Int32 => read!(i32),
        Dtype::Int64 => x.to_vec::<i64>()?.into_iter().map(|x| [x as f64, 0.0]).collect(),
        Dtype::Float16 => read!(f16),
        Dtype::Bfloat16 => read!(bf16),
        Dtype::Float32 => read!(f32),
        Dtype::Float64 => read!(f64),
        Dtype::Complex64 => {
            x.to_vec::<[f32; 2]>()?.into_iter().map(|[re, im]| [re.into(), im.into()]).collect()
        }
        Dtype::Complex128 => x.to_vec::<[f64; 2]>()?,
    })
}

/// How far numbers of a type may be from the expected, in parts of their size.
pub fn rounding(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Float16 => 2e-3,
        Dtype::Bfloat16 => 1.6e-2,
        // The oracle computes most functions of float64 in float32.
        Dtype::Float32 | Dtype::Complex64 | Dtype::Float64 => 4e-6,
        _ => 0.0,
    }
}

/// What is wrong with a result, if anything.
pub fn difference(found: &Array, expected: &Array, tolerance: f64) -> Option<String> {
    if (found.shape(), found.dtype()) != (expected.shape(), expected.dtype()) {
        return Some(format!("{found:?} instead of {expected:?}"));
    }
    let (found, wanted) = match (numbers(found), numbers(expected)) {
        (Ok(found), Ok(wanted)) => (found, wanted),
        (Err(error), _) | (_, Err(error)) => return Some(error.to_string()),
    };
    let near = |x: &[f64; 2], y: &[f64; 2]| {
        let size = if y[0].is_finite() && y[1].is_finite() { y[0].hypot(y[1]) } else { 0.0 };
        let part = |at: usize| {
            let allowed = tolerance * size.max(0.04);
            x[at] == y[at] || (x[at].is_nan() && y[at].is_nan()) || (x[at] - y[at]).abs() <= allowed
        };
        part(0) && part(1)
    };
    let wrong = found.iter().zip(&wanted).position(|(x, y)| !near(x, y))?;
    Some(format!("element {wrong}: {:?} instead of {:?}", found[wrong], wanted[wrong]))
}

/// Runs all cases, and tells all that went wrong.
pub fn check(
    text: &str,
    run: impl Fn(&Case) -> Result<Vec<Array>, Error>,
    tolerance: impl Fn(&Case, Dtype) -> f64,
) {
    let mut wrong = Vec::new();
    let all = cases(text);
    for case in &all {
        let what = match (run(case), &case.outputs) {
            (Err(_), None) => None,
            (Err(error), Some(_)) => Some(error.to_string()),
            (Ok(found), None) => Some(format!("{found:?} instead of an error")),
            (Ok(found), Some(expected)) => found
                .iter()
                .zip(expected)
                .find_map(|(found, expected)| difference(found, expected, tolerance(case, expected.dtype()))),
        };
        if let Some(what) = what {
            wrong
                .push(format!("line {}: {} {:?} {:?}: {what}", case.line, case.op, case.params, case.inputs));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases are wrong:\n{}", wrong.len(), all.len(), wrong.join("\n"));
}

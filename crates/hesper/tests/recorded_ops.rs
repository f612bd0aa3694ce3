//! Reductions, scans, sorts, norms and products, compared with recorded results of a reference.
//!
//! A line of the file is an op with its parameters, its inputs (type, shape, view, bytes) and its results
//! (type, shape, bytes), or `error`.

use std::collections::HashMap;

use half::{bf16, f16};
use hesper::linalg::Norm;
use hesper::{Array, Dtype, Result, axes, einsum, fast, linalg};

fn dtype(name: &str) -> Dtype {
    Dtype::ALL.into_iter().find(|dtype| dtype.name() == name).unwrap()
}

fn shape(text: &str) -> Vec<usize> {
    text.split(',').filter(|part| !part.is_empty()).map(|part| part.parse().unwrap()).collect()
}

fn bytes(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn input(text: &str) -> Array {
    let parts: Vec<&str> = text.split(':').collect();
    let array = Array::from_bytes(&bytes(parts[3]), dtype(parts[0]), &shape(parts[1])).unwrap();
    let rank = array.ndim();
    match parts[2] {
        "n" => Ok(array),
        "t" => array.t(),
        "r" => array.slice(&vec![isize::MAX; rank], &vec![isize::MIN; rank], &vec![-1; rank]),
        "s" => array.slice(&vec![0; rank], &vec![isize::MAX; rank], &vec![2; rank]),
        _ => array.broadcast_to(&[&[2], array.shape()].concat()),
    }
    .unwrap()
}

struct Params<'a>(HashMap<&'a str, &'a str>);

impl Params<'_> {
    fn flag(&self, name: &str) -> bool {
        self.0.get(name) == Some(&"1")
    }

    fn number(&self, name: &str) -> f64 {
        self.0[name].parse().unwrap()
    }

    fn axis(&self) -> Option<isize> {
        self.0["axis"].parse().ok()
    }

    fn axes(&self, name: &str) -> Option<Vec<isize>> {
        match self.0[name] {
            "none" => None,
            "[]" => Some(Vec::new()),
            list => Some(list.split(',').map(|axis| axis.parse().unwrap()).collect()),
        }
    }
}

fn run(op: &str, text: &str, x: &[Array]) -> Result<Vec<Array>> {
    let params = Params(text.split(' ').filter_map(|param| param.split_once('=')).collect());
    let p = &params;
    let named = if p.0.contains_key("axes") { p.axes("axes") } else { None };
    let over = &axes(named.as_deref()).keepdims_if(p.flag("keepdims"));
    let a = &x[0];
    let one = match op {
        "sum" => a.sum(over),
        "prod" => a.prod(over),
        "mean" => a.mean(over),
        "var" => a.var(over, p.number("ddof") as isize),
        "std" => a.std(over, p.number("ddof") as isize),
        "max" => a.max(over),
        "min" => a.min(over),
        "all" => a.all(over),
        "any" => a.any(over),
        "count_nonzero" => a.count_nonzero(over),
        "median" => a.median(over),
        "logsumexp" => a.logsumexp(over),
        "softmax" => a.softmax(over),
        "argmax" => a.argmax(axes(p.axis()).keepdims_if(over.is_kept())),
        "argmin" => a.argmin(axes(p.axis()).keepdims_if(over.is_kept())),
        "cumsum" => a.cumsum(p.axis(), p.flag("reverse"), p.flag("inclusive")),
        "cumprod" => a.cumprod(p.axis(), p.flag("reverse"), p.flag("inclusive")),
        "cummax" => a.cummax(p.axis(), p.flag("reverse"), p.flag("inclusive")),
        "cummin" => a.cummin(p.axis(), p.flag("reverse"), p.flag("inclusive")),
        "logcumsumexp" => a.logcumsumexp(p.axis(), p.flag("reverse"), p.flag("inclusive")),
        "diff" => a.diff(p.number("n") as usize, p.number("axis") as isize),
        "sort" => a.sort(p.axis()),
        "argsort" => a.argsort(p.axis()),
        "searchsorted" => a.searchsorted(&x[1], p.flag("right")),
        "unique" => {
            let found = a.unique(p.number("size") as usize, None)?;
            return Ok(vec![found.values, found.index, found.inverse, found.counts]);
        }
        "matmul" => a.matmul(&x[1]),
        "addmm" => a.addmm(&x[1], &x[2], p.number("alpha") as f32, p.number("beta") as f32),
        "rms_norm" => fast::rms_norm(a, p.flag("weight").then(|| &x[1]), 1e-5),
        "layer_norm" => {
            let (weight, bias) = (p.flag("weight").then(|| &x[1]), p.flag("bias").then(|| &x[x.len() - 1]));
            fast::layer_norm(a, weight, bias, 1e-5)
        }
        "cross_entropy" => fast::cross_entropy(a, &x[1]),
        "norm" => {
            let norm = p.0["order"].parse().map_or(Norm::Euclidean, Norm::Order);
            linalg::norm(a, norm, over)
        }
        "outer" => a.outer(&x[1]),
        "inner" => a.inner(&x[1]),
        "kron" => a.kron(&x[1]),
        "vecdot" => a.vecdot(&x[1], p.number("axis") as isize),
        "tensordot" => a.tensordot(&x[1], &p.axes("axes").unwrap(), &p.axes("others").unwrap()),
        "einsum" => einsum(text, &x.iter().collect::<Vec<_>>()),
        other => panic!("no op {other}"),
    };
    Ok(vec![one?])
}

/// All elements as doubles; complex ones as two.
fn doubles(dtype: Dtype, bytes: &[u8]) -> Vec<f64> {
    fn all<const N: usize>(bytes: &[u8], f: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.chunks_exact(N).map(|chunk| f(chunk.try_into().unwrap())).collect()
    }
    match dtype {
        Dtype::Float16 => all(bytes, |b| f16::from_le_bytes(b).to_f64()),
        Dtype::Bfloat16 => all(bytes, |b| bf16::from_le_bytes(b).to_f64()),
        Dtype::Float32 | Dtype::Complex64 => all(bytes, |b| f64::from(f32::from_le_bytes(b))),
        Dtype::Float64 => all(bytes, f64::from_le_bytes),
        _ => bytes.iter().map(|b| f64::from(*b)).collect(),
    }
}

fn tolerance(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Float16 => 6e-3,
        Dtype::Bfloat16 => 5e-2,
        Dtype::Float32 | Dtype::Complex64 => 2e-5,
        Dtype::Float64 => 1e-6,
        _ => 0.0,
    }
}

fn check(line: &str, got: &Array, expected: &str) -> std::result::Result<(), String> {
    let parts: Vec<&str> = expected.split(':').collect();
    let (want_type, want_shape, want) = (dtype(parts[0]), shape(parts[1]), bytes(parts[2]));
    if got.dtype() != want_type || got.shape() != want_shape {
        return Err(format!("{line}\n  gives {got:?}, not {want_type} of {want_shape:?}"));
    }
    let bytes = got.read_bytes(<[u8]>::to_vec).map_err(|error| format!("{line}\n  fails: {error}"))?;
    let (got, want) = (doubles(want_type, &bytes), doubles(want_type, &want));
    let loose = tolerance(want_type);
    let near =
        |a: f64, b: f64| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= loose * b.abs().max(1.0);
    if got.iter().zip(&want).all(|(a, b)| near(*a, *b)) && got.len() == want.len() {
        return Ok(());
    }
    Err(format!("{line}\n  gives {got:?},\n  not {want:?}"))
}

#[test]
fn results_are_those_of_the_reference() {
    let mut failures = Vec::new();
    for line in include_str!("golden/numbers.txt").lines() {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let (op, params) = parts[0].split_once(' ').unwrap();
        let inputs: Vec<Array> = parts[1].split(' ').map(input).collect();
        match (run(op, params, &inputs), parts[2]) {
            (Err(_), "error") => {}
            (Ok(_), "error") => failures.push(format!("{line}\n  is no error")),
            (Err(error), _) => failures.push(format!("{line}\n  is refused: {error}")),
            (Ok(got), expected) => {
                let expected = expected.split(' ');
                failures
                    .extend(got.iter().zip(expected).filter_map(|(got, want)| check(line, got, want).err()));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures[..failures.len().min(25)].join("\n")
    );
}

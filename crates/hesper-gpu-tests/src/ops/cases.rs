//! The compared computations: every op, several dtypes, and layouts that are contiguous, strided, transposed,
//! broadcast, empty or odd.

use hesper::fast;
use hesper::ops::domain::Domain;
use hesper::placement::{self, Device};
use hesper::{Array, Category, Conv, CustomKernel, Dtype, Error, Operand, Pad, axes, random, transform};

use crate::compare::Case;

/// The computation of a case.
pub type CaseResult = Result<Vec<Array>, Error>;

/// The dtypes of most cases.
pub const FLOATS: [Dtype; 3] = [Dtype::Float32, Dtype::Bfloat16, Dtype::Float16];

/// Ordinary values between about -2 and 2.
pub fn data(shape: &[usize], dtype: Dtype, seed: u64) -> Array {
    let count: usize = shape.iter().product();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let values: Vec<f32> = (0..count)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 4.0
        })
        .collect();
    let make = || -> Result<Array, Error> {
        let whole = Array::try_from_slice(&values, shape)?;
        let whole = match dtype {
            Dtype::Float16 | Dtype::Bfloat16 | Dtype::Float32 | Dtype::Float64 | Dtype::Complex64 => whole,
            Dtype::Bool => whole.greater(0.0)?,
            _ => whole.multiply(25.0)?.abs()?,
        };
        let whole = whole.astype(dtype)?;
        whole.eval()?;
        Ok(whole)
    };
    match placement::with_device(Device::Cpu, make).and_then(|result| result) {
        Ok(array) => array,
        Err(error) => panic!("test data: {error}"),
    }
}

/// Indices below `most`.
pub fn indices(shape: &[usize], most: usize, seed: u64) -> Array {
    let count: usize = shape.iter().product();
    let values: Vec<i32> =
        (0..count).map(|at| ((at as u64 * 7919 + seed * 104729 + 13) % most as u64) as i32).collect();
    match Array::try_from_slice(&values, shape) {
        Ok(array) => array,
        Err(error) => panic!("test data: {error}"),
    }
}

/// The first size on a GPU; the second one on the simulated Metal, whose reference interpreter is slow.
pub fn sized<T>(gpu: T, simulated: T) -> T {
    if std::env::var_os("HESPER_METAL").is_some_and(|value| value == "sim") { simulated } else { gpu }
}

/// The list of cases.
pub struct Cases(Vec<Case>);

impl Cases {
    pub fn add(
        &mut self,
        name: impl Into<String>,
        tolerance: f64,
        run: impl Fn() -> CaseResult + Send + Sync + 'static,
    ) {
        self.0.push(Case { name: name.into(), tolerance, run: Box::new(run) });
    }
}

/// Functions of 16-bit floats that GPUs compute with their own single-precision functions and round: results
/// may differ by one ulp.
const HALF_FUNCTIONS: [&str; 24] = [
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "cos",
    "cosh",
    "erf",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "power",
    "sigmoid",
    "sin",
    "sinh",
    "tan",
    "tanh",
];

fn half_tolerance(name: &str, dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Bfloat16 if HALF_FUNCTIONS.contains(&name) => 4e-3,
        Dtype::Float16 if HALF_FUNCTIONS.contains(&name) => 5e-4,
        _ => 0.0,
    }
}

/// The tolerance of a dtype, relative to the magnitude of the values.
pub fn tolerance(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Bfloat16 => 1e-2,
        Dtype::Float16 => 2e-3,
        Dtype::Float64 => 1e-11,
        _ => 2e-5,
    }
}

pub fn all() -> Vec<Case> {
    let mut cases = Cases(Vec::new());
    elementwise(&mut cases);
    layouts(&mut cases);
    crate::reduction_cases::add(&mut cases);
    crate::product_cases::add(&mut cases);
    movement(&mut cases);
    networks(&mut cases);
    crate::attention::all(&mut cases);
    sequences(&mut cases);
    others(&mut cases);
    custom(&mut cases);
    transforms(&mut cases);
    crate::linalg_cases::add(&mut cases);
    crate::more_cases::add(&mut cases);
    cases.0
}

type Call = fn(&[Array]) -> Result<Array, Error>;

/// Values of a domain.
pub fn sample(domain: Domain, shape: &[usize], dtype: Dtype, seed: u64) -> Array {
    let (low, high) = domain.range();
    let make = || -> Result<Array, Error> {
        let values = data(shape, Dtype::Float32, seed);
        let values = values.multiply((high - low) / 4.0)?.add((high + low) / 2.0)?;
        let whole = match domain {
            Domain::Complex | Domain::ComplexRight => {
                let parts = data(shape, Dtype::Float32, seed + 50).multiply(Operand::Complex([0.0, 0.5]))?;
                values.add(parts)?
            }
            Domain::Integer | Domain::Count => values.rint()?.astype(dtype)?,
            Domain::Bool => values.greater(0.0)?,
            _ => values.astype(dtype)?,
        };
        whole.eval()?;
        Ok(whole)
    };
    match placement::with_device(Device::Cpu, make).and_then(|made| made) {
        Ok(array) => array,
        Err(error) => panic!("test data: {error}"),
    }
}

/// The dtypes of a domain.
pub fn dtypes(domain: Domain) -> &'static [Dtype] {
    match domain {
        Domain::Integer | Domain::Count => &[Dtype::Int32, Dtype::Int64, Dtype::Int8],
        Domain::Bool => &[Dtype::Bool],
        Domain::Complex | Domain::ComplexRight => &[Dtype::Complex64],
        Domain::Single => &[Dtype::Float32],
        _ => &FLOATS,
    }
}

/// A case of a table of ops: every dtype of its domains, in several layouts.
fn of_table(cases: &mut Cases, name: &str, domains: &'static [Domain], call: Call) {
    for dtype in dtypes(domains[0]).iter().copied() {
        let close = if dtype == Dtype::Complex64 { 1e-5 } else { half_tolerance(name, dtype) };
        cases.add(format!("{name} {domains:?} {dtype}"), close, move || {
            let inputs = |shape: &[usize]| -> Vec<Array> {
                let place = domains.iter().zip(1..);
                place.map(|(domain, seed)| sample(*domain, shape, dtype, seed)).collect()
            };
            // Odd and even lengths, an unaligned view, strides, and a broadcast row as the last operand.
            let x = inputs(&[1037]);
            let cut = |start, stop, step| x.iter().map(|x| x.slice(&[start], &[stop], &[step])).collect();
            let (part, strided): (Result<Vec<_>, _>, Result<Vec<_>, _>) = (cut(3, 900, 1), cut(0, 1037, 2));
            let mut table = inputs(&[33, 40]);
            if let [_, last] = &mut table[..] {
                *last = last.slice(&[4, 0], &[5, 40], &[1, 1])?;
            }
            Ok(vec![call(&x)?, call(&part?)?, call(&strided?)?, call(&table)?])
        });
    }
}

/// A function of the table on numbers of all magnitudes, and on many of its domain: a result next to the
/// middle between two numbers shows every wrong digit.
fn all_magnitudes(cases: &mut Cases, name: &str, domains: &'static [Domain], call: Call) {
    cases.add(format!("{name} of all magnitudes"), 0.0, move || {
        let n = sized(1 << 16, 1 << 8);
        let patterns = |seed: u64| {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let values: Vec<f32> = (0..n)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    f32::from_bits((state >> 32) as u32)
                })
                .collect();
            Array::from_slice(&values)
        };
        let seeds = 1..=domains.len() as u64;
        let any: Vec<Array> = seeds.clone().map(patterns).collect();
        let usual: Vec<Array> = domains
            .iter()
            .zip(seeds)
            .map(|(domain, seed)| sample(*domain, &[n], Dtype::Float32, seed))
            .collect();
        Ok(vec![call(&any)?, call(&usual)?])
    });
}

/// The cases of the tables of ops.
fn tables(cases: &mut Cases) {
    macro_rules! add_cases {
        ($($(#[doc = $doc:literal])+ $name:ident $(| $alias:ident)* ($($other:ident),*): $types:ident
            = |$($x:ident),+| $body:expr $(=> $derivative:expr)?;
            rust $example:literal => $shown:literal;
            $(python $args:literal => $result:literal $(, method $method:ident)?;)?
            cases $([$($domain:ident),+])+;)*) => {
            $(let call: Call = add_cases!(@call $name $($other)*);
            $(of_table(cases, stringify!($name), &[$(Domain::$domain),+], call);)+
            let first = [$(&[$(Domain::$domain),+][..]),+][0];
            if dtypes(first[0]).contains(&Dtype::Float32) {
                all_magnitudes(cases, stringify!($name), first, call);
            })*
        };
        (@call $name:ident) => { |x| x[0].$name() };
        (@call $name:ident $other:ident) => { |x| x[0].$name(&x[1]) };
    }
    hesper::arithmetic_ops!(add_cases);
    hesper::function_ops!(add_cases);
    hesper::logic_ops!(add_cases);
}

fn elementwise(cases: &mut Cases) {
    tables(cases);
    for dtype in FLOATS {
        cases.add(format!("round {dtype}"), 0.0, move || {
            let x = data(&[1037], dtype, 1);
            let (part, strided) = (x.slice(&[3], &[900], &[1])?, x.slice(&[0], &[1037], &[2])?);
            Ok(vec![x.round(1)?, part.round(1)?, strided.round(1)?])
        });
    }
    for dtype in [
        Dtype::Int8,
        Dtype::Uint8,
        Dtype::Int16,
        Dtype::Int32,
        Dtype::Int64,
        Dtype::Uint32,
        Dtype::Bool,
        Dtype::Float64,
        Dtype::Complex64,
    ] {
        cases.add(
            format!("arithmetic {dtype}"),
            if dtype == Dtype::Complex64 { 1e-5 } else { 0.0 },
            move || {
                let (x, y) = (data(&[33, 40], dtype, 1), data(&[33, 40], dtype, 2));
                let row = data(&[40], dtype, 3);
                Ok(vec![x.add(&y)?, x.multiply(&y)?, x.add(&row)?, x.equal(&y)?, x.astype(Dtype::Float32)?])
            },
        );
    }
    for dtype in [Dtype::Float32, Dtype::Bfloat16] {
        cases.add(
            format!("fused chain {dtype}"),
            if dtype == Dtype::Bfloat16 { 1e-2 } else { 0.0 },
            move || {
                let x = data(&[64, 1024], dtype, 5);
                let (a, b) = (data(&[1024], dtype, 6), data(&[64, 1], dtype, 7));
                let y = x.multiply(&a)?.add(&b)?.tanh()?.multiply(x.sigmoid()?)?.add(&x)?;
                Ok(vec![y.clone(), y.multiply(0.001)?.astype(Dtype::Int32)?])
            },
        );
    }
    cases.add("select and clip", 0.0, || {
        let (x, y) = (data(&[7, 129], Dtype::Float32, 1), data(&[7, 129], Dtype::Float32, 2));
        Ok(vec![hesper::select(&x.greater(&y)?, &x, &y)?, x.clip(Some(-0.5), Some(0.5))?])
    });
    cases.add("a long row of many axes", 0.0, || {
        let x = data(&[70000, 2, 3], Dtype::Float32, 3);
        let turned = x.transpose(&[1, 2, 0])?;
        Ok(vec![turned.add(1.0)?, x.transpose(&[2, 0, 1])?.multiply(2.0)?])
    });
    cases.add("empty", 0.0, || {
        let x = Array::zeros(&[0, 5], Dtype::Float32)?;
        Ok(vec![x.add(1.0)?, x.sum(0)?, x.exp()?.sum(())?])
    });
}

fn layouts(cases: &mut Cases) {
    for dtype in [Dtype::Uint8, Dtype::Bfloat16, Dtype::Float32, Dtype::Int64] {
        cases.add(format!("copies {dtype}"), 0.0, move || {
            let x = data(&[65, 34, 130], dtype, 4);
            let all = [
                x.transpose(&[2, 1, 0])?,
                x.transpose(&[0, 2, 1])?,
                x.transpose(&[1, 0, 2])?,
                x.flip([0, 2])?,
                x.slice(&[1, 2, 3], &[60, 34, 130], &[2, 1, 3])?,
                x.slice(&[0, 0, 0], &[65, 34, 128], &[1, 1, 1])?,
                x.slice(&[0, 0, 1], &[1, 34, 2], &[1, 1, 1])?.broadcast_to(&[3, 34, 5])?,
            ];
            all.iter().map(Array::contiguous).collect()
        });
    }
    cases.add("reshape, view, tile, repeat, roll", 0.0, || {
        let x = data(&[12, 18], Dtype::Float32, 4);
        Ok(vec![
            x.t()?.reshape(&[9, -1])?,
            x.view(Dtype::Uint16)?,
            x.tile(&[2, 3])?,
            x.repeat(3, Some(1))?,
            x.roll(&[5], 1)?,
            x.pad(&[(1, 2), (3, 0)], &Pad::Constant(1.5.into()))?,
        ])
    });
}

fn movement(cases: &mut Cases) {
    for dtype in [Dtype::Float32, Dtype::Bfloat16, Dtype::Uint8, Dtype::Int64] {
        cases.add(format!("concatenate, take, update {dtype}"), 0.0, move || {
            let (x, y) = (data(&[20, 33], dtype, 1), data(&[20, 7], dtype, 2));
            Ok(vec![
                hesper::concatenate(&[x.clone(), y.clone()], 1)?,
                hesper::concatenate(&[x.clone(), x.slice(&[0, 0], &[5, 33], &[1, 1])?, x.clone()], 0)?,
                hesper::stack(&[x.clone(), x.flip(1)?], 1)?,
                x.take(indices(&[4, 5], 20, 3), Some(0))?,
                x.take(indices(&[6], 33, 4), Some(1))?,
                x.take_along_axis(&indices(&[20, 5], 33, 5), Some(1))?,
                x.slice_update(&y, &[0, 4], &[20, 11], &[1, 1])?,
                x.slice_update(&y.slice(&[0, 0], &[10, 7], &[1, 1])?, &[0, 4], &[20, 11], &[2, 1])?,
                x.put_along_axis(&indices(&[20, 3], 33, 6), &data(&[20, 3], dtype, 7), Some(1))?,
                x.diagonal(1, 0, 1)?,
                x.tril(0)?,
            ])
        });
    }
    cases.add("scatter", 1e-5, || {
        let x = data(&[20, 8], Dtype::Float32, 1);
        let at = indices(&[6], 20, 3);
        let updates = data(&[6, 1, 8], Dtype::Float32, 2);
        Ok(vec![
            x.scatter(&[at.clone()], &updates, &[0])?,
            x.scatter_add(&[at.clone()], &updates, &[0])?,
            x.scatter_max(&[at], &updates, &[0])?,
        ])
    });
    cases.add("append", 0.0, || {
        let mut block = Array::zeros(&[2, 3, 0, 8], Dtype::Float32)?;
        for step in 0..4 {
            let row = data(&[2, 3, 1, 8], Dtype::Float32, step as u64);
            block = fast::append(&block, &row, &[step, step], 4)?;
        }
        let grown = fast::append(&block, &data(&[2, 3, 2, 8], Dtype::Float32, 9), &[4, 2], 8)?;
        Ok(vec![block, grown])
    });
}

fn networks(cases: &mut Cases) {
    for dtype in FLOATS {
        cases.add(format!("rope {dtype}"), tolerance(dtype), move || {
            let x = data(&[2, 4, 5, 64], dtype, 1);
            let freqs = data(&[32], Dtype::Float32, 2).abs()?.add(1.0)?;
            Ok(vec![
                fast::rope(&x, 64, false, Some(10000.0), 1.0, 3, None)?,
                fast::rope(&x, 32, true, Some(10000.0), 0.5, 7, None)?,
                fast::rope(&x, 64, false, None, 1.0, 3, Some(&freqs))?,
            ])
        });
        cases.add(format!("convolutions {dtype}"), tolerance(dtype) * 5.0, move || {
            let x = data(&[2, 14, 15, 8], dtype, 1);
            let w = data(&[16, 3, 3, 8], dtype, 2);
            let grouped = data(&[16, 3, 3, 2], dtype, 3);
            let line = data(&[2, 30, 8], dtype, 4);
            Ok(vec![
                x.conv2d(&w, [1, 1], [1, 1], [1, 1], 1)?,
                x.conv2d(&w, [2, 1], [0, 2], [1, 2], 1)?,
                x.conv2d(&grouped, [1, 1], [1, 1], [1, 1], 4)?,
                line.conv1d(&data(&[12, 5, 8], dtype, 5), 2, 1, 1, 1)?,
                x.conv_general(&w, &Conv { flip: true, ..Conv::default() })?,
                x.conv2d(&w, [2, 2], [1, 1], [1, 1], 1)?,
                x.slice(&[0, 1, 0, 0], &[2, 12, 15, 8], &[1, 1, 1, 1])?.conv2d(
                    &w,
                    [1, 2],
                    [1, 1],
                    [1, 1],
                    1,
                )?,
                data(&sized([2, 33, 35, 64], [1, 9, 11, 64]), dtype, 6).conv2d(
                    &data(&[64, 3, 3, 64], dtype, 7),
                    [1; 2],
                    [1; 2],
                    [1; 2],
                    1,
                )?,
                data(&[1, 6, 7, 8, 16], dtype, 8).conv3d(
                    &data(&[16, 3, 3, 3, 16], dtype, 9),
                    [1; 3],
                    [1; 3],
                    [1; 3],
                    1,
                )?,
            ])
        });
        cases.add(format!("gradients of convolutions {dtype}"), tolerance(dtype) * 8.0, move || {
            let mut all = Vec::new();
            for (stride, groups) in [(1, 1), (2, 1), (1, 4)] {
                let loss = move |x: &[Array]| {
                    x[0].conv2d(&x[1], [stride; 2], [1, 1], [1, 1], groups)?.multiply(&x[2])?.sum(())
                };
                let out = if stride == 1 { [2, 18, 20, 16] } else { [2, 9, 10, 16] };
                let inputs = [
                    data(&[2, 18, 20, 8], dtype, 1),
                    data(&[16, 3, 3, 8 / groups], dtype, 2),
                    data(&out, dtype, 3),
                ];
                all.extend(transform::grad(loss, &[0, 1])(&inputs)?);
            }
            Ok(all)
        });
    }
}

fn sequences(cases: &mut Cases) {
    for dtype in Dtype::ALL.into_iter().filter(|dtype| !dtype.is(Category::Complex)) {
        cases.add(format!("sorts {dtype}"), 0.0, move || {
            let x = data(&[7, 301], dtype, 2);
            Ok(vec![
                x.sort(Some(1))?,
                x.argsort(Some(1))?,
                x.sort(Some(0))?,
                x.topk(5, Some(1))?,
                x.sort(None)?,
            ])
        });
    }
    // Rows of all sizes of blocks, with equal elements and NaN.
    for dtype in [Dtype::Float32, Dtype::Bfloat16, Dtype::Int8, Dtype::Int64, Dtype::Float64] {
        cases.add(format!("sorted rows of all lengths {dtype}"), 0.0, move || {
            let mut all = Vec::new();
            for length in [1, 31, 33, 100, 400, 600, 1500, 3000, sized(5000, 64), sized(9000, 65)] {
                let x = data(&[3, length], Dtype::Float32, length as u64).log()?.multiply(8.0)?.rint()?;
                let x = if dtype.is(Category::Inexact) {
                    x
                } else {
                    hesper::select(&x.isfinite()?, &x, &x.zeros_like()?)?
                };
                let x = x.astype(dtype)?;
                all.extend([x.sort(Some(1))?, x.argsort(Some(1))?]);
            }
            Ok(all)
        });
    }
    for dtype in [Dtype::Float32, Dtype::Int32, Dtype::Bfloat16] {
        cases.add(format!("scans {dtype}"), tolerance(dtype), move || {
            let x = data(&[7, 301, 5], dtype, 1);
            Ok(vec![
                x.cumsum(Some(1), false, true)?,
                x.cumsum(Some(1), true, false)?,
                x.cumsum(Some(2), false, true)?,
                x.cummax(Some(0), false, true)?,
                x.cummin(Some(1), false, true)?,
                x.cumsum(None, false, true)?,
            ])
        });
    }
    for dtype in [Dtype::Float32, Dtype::Bfloat16, Dtype::Int8, Dtype::Int64, Dtype::Float64] {
        cases.add(format!("partitions {dtype}"), 0.0, move || {
            let mut all = Vec::new();
            let nan = data(&[3, 700], Dtype::Float32, 7).log()?.astype(dtype)?;
            let same = Array::zeros(&[2, 300], dtype)?;
            for x in [data(&[7, 301], dtype, 2), data(&[2, sized(9001, 1201)], dtype, 3), nan, same] {
                let length = x.shape()[1] as isize;
                for kth in [0, 3, length / 2, length - 5, length - 1] {
                    let places = x.argpartition(kth, Some(1))?;
                    for x in [x.partition(kth, Some(1))?, x.take_along_axis(&places, Some(1))?] {
                        all.push(x.slice_axis(1, 0, kth, 1)?.sort(Some(1))?);
                        all.push(x.slice_axis(1, kth, kth + 1, 1)?);
                        all.push(x.slice_axis(1, kth + 1, length, 1)?.sort(Some(1))?);
                    }
                    all.push(places.sort(Some(1))?);
                }
            }
            Ok(all)
        });
    }
    cases.add("long scans and sorts", 1e-3, || {
        let x = data(&sized([3, 70001], [2, 9001]), Dtype::Float32, 2);
        Ok(vec![x.cumsum(Some(1), false, true)?, x.sort(Some(1))?, x.argsort(Some(1))?])
    });
}

fn others(cases: &mut Cases) {
    cases.add("random", 1e-5, || {
        let key = random::key(7)?;
        Ok(vec![
            random::bits(&[33, 7], Some(&key))?,
            random::uniform(0.0, 1.0, &[1000], Dtype::Float32, Some(&key))?,
            random::normal(&[1000], Dtype::Float32, 0.0, 1.0, Some(&key))?,
            random::split(&key, 5)?,
        ])
    });
    cases.add("arange, eye, linspace", 0.0, || {
        Ok(vec![
            Array::arange(1000, None)?,
            Array::eye(33, 40, 1, Dtype::Float32)?,
            Array::linspace(0.0, 3.0, 77, Dtype::Float32)?,
            Array::full(&[5, 7], 3.5, None)?,
        ])
    });
    cases.add("linear algebra", 1e-3, || {
        let x = data(&[4, 8, 8], Dtype::Float32, 1);
        let square =
            x.matmul(&x.swapaxes(-1, -2)?)?.add(&Array::eye(8, 8, 0, Dtype::Float32)?.multiply(4.0)?)?;
        Ok(vec![hesper::linalg::cholesky(&square, false)?, hesper::linalg::inv(&square)?])
    });
    cases.add("fourier transforms", 1e-4, || {
        let x = data(&[3, 64], Dtype::Float32, 1);
        Ok(vec![hesper::fft::rfft(&x, None, -1, hesper::fft::Norm::Backward)?])
    });
    cases.add("hadamard", 1e-4, || Ok(vec![data(&[3, 64], Dtype::Float32, 1).hadamard_transform(None)?]));
}

fn custom(cases: &mut Cases) {
    cases.add("custom kernels", 1e-6, || {
        let text = "uint i = thread_position_in_grid.x; out[i] = a * x[i] + y[i];";
        let kernel = CustomKernel::new("axpy", &["a", "x", "y"], &["out"], text)?;
        let (x, y) = (data(&[1000], Dtype::Float32, 1), data(&[1000], Dtype::Float32, 2));
        let a = Array::scalar(2.0, Dtype::Float32)?;
        let run = kernel.call(&[a, x, y]).grid([1000, 1, 1]).threadgroup([256, 1, 1]);
        let mut all = run.output(&[1000], Dtype::Float32).run()?;
        let text = "uint i = thread_position_in_grid.x; float v = simd_sum(x[i]);
                    threadgroup float part[32]; uint lane = thread_index_in_simdgroup;
                    if (lane == 0) part[simdgroup_index_in_threadgroup] = v;
                    threadgroup_barrier(mem_flags::mem_threadgroup);
                    if (thread_position_in_threadgroup.x == 0) {
                        float s = 0; for (int k = 0; k < 8; ++k) s += part[k];
                        out[threadgroup_position_in_grid.x] = s; }";
        let kernel = CustomKernel::new("sums", &["x"], &["out"], text)?;
        let x = data(&[2048], Dtype::Float32, 3);
        let run = kernel.call(&[x]).grid([2048, 1, 1]).threadgroup([256, 1, 1]);
        all.extend(run.output(&[8], Dtype::Float32).run()?);
        let text = "uint i = thread_position_in_grid.x;
                    out[i] = x[(i / x_shape[1]) * x_strides[0] + (i % x_shape[1]) * x_strides[1]];";
        let kernel = CustomKernel::with_options("strided", &["x"], &["out"], text, "", false, false)?;
        let x = data(&[20, 30], Dtype::Float32, 3).t()?;
        let run = kernel.call(&[x]).grid([600, 1, 1]).threadgroup([64, 1, 1]).init_value(7.0);
        all.extend(run.output(&[700], Dtype::Float32).run()?);
        Ok(all)
    });
    // So many threadgroups that a thread handles several positions, with a remainder.
    cases.add("custom kernels of many threads", 0.0, || {
        let mut all = Vec::new();
        for (dtype, text) in [
            (Dtype::Float32, "uint i = thread_position_in_grid.x; out[i] = 2.0f * x[i] + 1.0f;"),
            (Dtype::Uint8, "uint i = thread_position_in_grid.x; if (x[i] > 3) out[i] = x[i];"),
        ] {
            let kernel = CustomKernel::new("each", &["x"], &["out"], text)?;
            let n = sized(300_001, 30_001);
            let x = data(&[n], dtype, 1);
            let run = kernel.call(&[x]).grid([n as u64, 1, 1]).threadgroup([32, 1, 1]).init_value(7.0);
            all.extend(run.output(&[n], dtype).run()?);
        }
        let text = "uint2 i = thread_position_in_grid.xy; uint n = threads_per_grid.x;
                    out[i.y * n + i.x] = x[i.x * 3 + i.y];";
        let kernel = CustomKernel::new("turned", &["x"], &["out"], text)?;
        let x = data(&[32_801, 3], Dtype::Bfloat16, 2);
        let run = kernel.call(&[x]).grid([32_801, 3, 1]).threadgroup([4, 2, 1]);
        all.extend(run.output(&[3, 32_801], Dtype::Bfloat16).run()?);
        Ok(all)
    });
}

fn transforms(cases: &mut Cases) {
    cases.add("gradient of a small network", 1e-3, || {
        let loss = |x: &[Array]| {
            let h = x[0].matmul(&x[1])?.add(&x[2])?.tanh()?;
            h.matmul(&x[3])?.square()?.mean(())
        };
        let inputs = [
            data(&[16, 32], Dtype::Float32, 1),
            data(&[32, 64], Dtype::Float32, 2),
            data(&[64], Dtype::Float32, 3),
            data(&[64, 8], Dtype::Float32, 4),
        ];
        transform::grad(loss, &[1, 2, 3])(&inputs)
    });
    cases.add("compiled function", 1e-5, || {
        let f = transform::compile(|x: &[Array]| {
            let y = x[0].multiply(2.0)?.add(&x[1])?.exp()?;
            Ok(vec![y.sum(axes(1).keepdims())?.multiply(&y)?, y.sort(Some(1))?])
        });
        let inputs = [data(&[8, 128], Dtype::Float32, 1), data(&[128], Dtype::Float32, 2)];
        let mut all = f(&inputs)?;
        all.extend(f(&inputs)?);
        Ok(all)
    });
    cases.add("both devices in one graph", 1e-5, || {
        let x = data(&[64, 64], Dtype::Float32, 1);
        let y = x.exp()?;
        let here = placement::with_device(Device::Cpu, || y.add(1.0))??;
        let back = here.multiply(&y)?;
        let sorted = back.sort(Some(1))?;
        Ok(vec![sorted.add(&y)?, here, sorted.slice(&[0, 3], &[64, 9], &[1, 1])?.sum(0)?])
    });
}

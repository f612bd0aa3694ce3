//! The ops of the sweep. Their names are those of `peers/sweep_gpu.py`, which has the same work for the
//! peers.

use hesper::{Array, Dtype, Result, concatenate, fast, fft, random, select, stack};

/// The arrays of a case.
pub struct Inputs {
    pub x: Array,
    y: Array,
    row: Array,
    back: Array,
    rows: Array,
    mask: Array,
    shape: [usize; 2],
}

/// Values between 0.1 and 0.9, evaluated.
fn draw(shape: [usize; 2], dtype: Dtype) -> Result<Array> {
    let drawn = random::uniform(0.1, 0.9, &shape, Dtype::Float32, None)?.astype(dtype)?;
    drawn.eval()?;
    Ok(drawn)
}

impl Inputs {
    /// Matrices of `2^log2` elements of a type, stored by rows or, `transposed`, by columns.
    pub fn new(log2: u32, dtype: Dtype, transposed: bool) -> Result<Self> {
        let (rows, columns) = (1usize << (log2 / 2), 1usize << (log2 - log2 / 2));
        let matrix = || {
            let shape = if transposed { [columns, rows] } else { [rows, columns] };
            let drawn = draw(shape, dtype)?;
            if transposed { drawn.t() } else { Ok(drawn) }
        };
        let (x, y, mask) = (matrix()?, matrix()?, matrix()?.greater(0.5)?);
        let points = random::randint(0, rows as i64, &[rows], Dtype::Int32, None)?;
        hesper::eval(&[mask.clone(), points.clone()])?;
        Ok(Inputs {
            x,
            y,
            row: draw([1, columns], dtype)?.reshape(&[-1])?,
            back: draw([columns, rows], dtype)?,
            rows: points,
            mask,
            shape: [rows, columns],
        })
    }
}

/// The computation of a case.
type Work = Box<dyn Fn(&Inputs) -> Result<Array>>;

/// A measured op: its name, its largest size as an exponent of two, and the computation.
pub struct Case {
    pub name: String,
    pub largest: u32,
    pub work: Work,
}

#[derive(Default)]
struct Cases(Vec<Case>);

impl Cases {
    fn add(&mut self, name: &str, largest: u32, work: impl Fn(&Inputs) -> Result<Array> + 'static) {
        self.0.push(Case { name: name.into(), largest, work: Box::new(work) });
    }
}

macro_rules! unary {
    ($to:ident: $($name:ident)*) => { $($to.add(stringify!($name), 27, |a| a.x.$name());)* };
}

macro_rules! binary {
    ($to:ident: $($name:ident)*) => { $($to.add(stringify!($name), 27, |a| a.x.$name(&a.y));)* };
}

/// Reductions of rows and columns, and of all elements where the peers have it.
macro_rules! reductions {
    ($to:ident: $($name:ident($($more:expr),*))*; $($part:ident)*) => {
        $($to.add(concat!(stringify!($name), " rows"), 27, |a| a.x.$name(-1 $(, $more)*));
        $to.add(concat!(stringify!($name), " columns"), 27, |a| a.x.$name(0 $(, $more)*));
        $to.add(concat!(stringify!($name), " all"), 27, |a| a.x.$name(() $(, $more)*));)*
        $($to.add(concat!(stringify!($part), " rows"), 27, |a| a.x.$part(-1));
        $to.add(concat!(stringify!($part), " columns"), 27, |a| a.x.$part(0));)*
    };
}

pub fn cases() -> Vec<Case> {
    let mut to = Cases::default();
    unary!(to: abs arccos arccosh arcsin arcsinh arctan arctanh ceil cos cosh erf erfinv exp expm1 floor isfinite
        isinf isnan log log10 log1p log2 logical_not negative reciprocal rsqrt sigmoid sign sin sinh sqrt square
        tan tanh);
    to.add("round", 27, |a| a.x.round(0));
    binary!(to: add subtract multiply divide power maximum minimum floor_divide remainder arctan2 logaddexp equal
        not_equal less greater less_equal greater_equal logical_and logical_or);
    reductions!(to: sum() mean() max() min() var(0) std(0); prod argmax argmin all any logsumexp);
    for (name, axis) in [("rows", -1), ("columns", 0)] {
        to.add(&format!("cumsum {name}"), 27, move |a| a.x.cumsum(axis, false, true));
        to.add(&format!("cumprod {name}"), 27, move |a| a.x.cumprod(axis, false, true));
    }
    to.add("softmax", 27, |a| a.x.softmax(-1));
    to.add("sort", 24, |a| a.x.sort(-1));
    to.add("argsort", 24, |a| a.x.argsort(-1));
    to.add("topk", 24, |a| a.x.topk(a.shape[1].min(8), -1));
    to.add("matmul", 22, |a| a.x.matmul(&a.back));
    to.add("matrix times vector", 27, |a| a.x.matmul(&a.row));
    to.add("where", 27, |a| select(&a.mask, &a.x, &a.y));
    to.add("clip", 27, |a| a.x.clip(Some(0.2), Some(0.7)));
    to.add("copy", 27, |a| a.x.add(0)?.contiguous());
    to.add("transpose copy", 27, |a| a.x.t()?.contiguous());
    to.add("cast", 27, |a| a.x.astype(Dtype::Float16));
    to.add("concatenate", 26, |a| concatenate(&[a.x.clone(), a.y.clone()], 1));
    to.add("stack", 26, |a| stack(&[a.x.clone(), a.y.clone()], 0));
    to.add("take rows", 27, |a| a.x.take(&a.rows, 0));
    to.add("add at rows", 24, |a| a.x.scatter_add(&[a.rows.clone()], &a.y.expand_dims(1)?, &[0]));
    to.add("roll", 27, |a| a.x.roll(&[3], 1));
    to.add("repeat", 26, |a| a.x.repeat(2, 1));
    to.add("tile", 26, |a| a.x.tile(&[2, 1]));
    to.add("broadcast add", 27, |a| a.x.add(&a.row));
    to.add("gelu chain", 27, |a| {
        let inner = a.x.add(a.x.power(3)?.multiply(0.04)?)?.multiply(0.8)?.tanh()?;
        a.x.multiply(0.5)?.multiply(inner.add(1)?)
    });
    to.add("rms_norm", 27, |a| fast::rms_norm(&a.x, Some(&a.row), 1e-5));
    to.add("layer_norm", 27, |a| fast::layer_norm(&a.x, Some(&a.row), Some(&a.row), 1e-5));
    to.add("random uniform", 27, |a| random::uniform(0.0, 1.0, &a.shape, Dtype::Float32, None));
    to.add("random normal", 27, |a| random::normal(&a.shape, Dtype::Float32, 0.0, 1.0, None));
    to.add("fft", 24, |a| fft::fft(&a.x, None, -1, fft::Norm::Backward));
    to.0
}

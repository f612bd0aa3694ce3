//! The ops of generated programs: each computes one more array from those before it. The fuzzer uses them,
//! too.
#![allow(dead_code, reason = "not every user generates every op")]

use hesper::{Array, CustomKernel, Dtype, Result, axes, concatenate, fast, select, transform};

/// One op. Numbers are indices of earlier arrays, or of a table of functions.
#[derive(Debug, Clone)]
pub enum Op {
    Unary(usize, usize),
    Binary(usize, usize, usize),
    Scale(usize, f32),
    Select(usize, usize, usize),
    Cast(usize, Dtype),
    Transpose(usize),
    Slice(usize, isize),
    Flatten(usize),
    Broadcast(usize),
    Reduce(usize, usize, isize),
    Matmul(usize),
    Concatenate(usize, usize),
    Update(usize, usize),
    Sort(usize),
    Cumsum(usize),
    Take(usize),
    Norm(usize),
    Kernel(usize, usize),
}

/// Functions of one array.
pub const UNARY: [fn(&Array) -> Result<Array>; 15] = [
    |x| x.sin(),
    |x| x.tanh(),
    |x| x.sigmoid(),
    |x| x.square(),
    |x| x.negative(),
    |x| x.abs()?.add(0.5)?.sqrt(),
    |x| x.abs()?.add(1.0)?.log(),
    |x| x.square()?.add(1.0)?.rsqrt(),
    |x| x.erf(),
    |x| x.sign()?.multiply(x),
    |x| x.floor()?.add(x),
    |x| x.add(x)?.add(x),
    |x| x.cos(),
    |x| x.sigmoid()?.exp(),
    |x| transform::stop_gradient(x)?.add(x),
];

/// Functions of two arrays.
pub const BINARY: [fn(&Array, &Array) -> Result<Array>; 7] = [
    |x, y| x.add(y),
    |x, y| x.subtract(y),
    |x, y| x.multiply(y),
    |x, y| x.maximum(y),
    |x, y| x.divide(y.square()?.add(1.0)?),
    |x, y| x.logaddexp(y),
    |x, y| x.minimum(y),
];

impl Op {
    /// Applies the op to earlier arrays. Bounds the size of the result, and clips its elements so that
    /// rounding errors do not grow.
    pub fn apply(&self, all: &[Array], max_size: usize) -> Result<Array> {
        let result = self.unbounded(all)?;
        let result = if result.size() > max_size { result.mean(axes(()).keepdims())? } else { result };
        result.clip(Some(-1e3), Some(1e3))
    }

    fn unbounded(&self, all: &[Array]) -> Result<Array> {
        match self {
            Op::Unary(which, a) => UNARY[*which](&all[*a]),
            Op::Binary(which, a, b) => BINARY[*which](&all[*a], &fit(&all[*a], &all[*b])?),
            Op::Scale(a, by) => all[*a].multiply(*by)?.add(0.25),
            Op::Select(a, b, c) => {
                let (x, y) = (&all[*a], fit(&all[*a], &all[*b])?);
                select(&fit(x, &all[*c])?.greater(0.0)?, x, &y)
            }
            Op::Cast(a, dtype) => all[*a].multiply(3.0)?.astype(*dtype)?.astype(Dtype::Float32),
            Op::Transpose(a) => matrix(&all[*a])?.swapaxes(-1, -2),
            Op::Slice(a, step) => slice(&matrix(&all[*a])?, *step),
            Op::Flatten(a) => all[*a].reshape(&[-1]),
            Op::Broadcast(a) => {
                let x = matrix(&all[*a])?.mean(axes(-2).keepdims())?;
                let mut shape = x.shape().to_vec();
                let rows = shape.len() - 2;
                shape[rows] = 2;
                x.broadcast_to(&shape)
            }
            Op::Reduce(a, kind, axis) => {
                let (x, over) = (matrix(&all[*a])?, Some(&[*axis][..]));
                match kind {
                    0 => x.sum(axes(over).keepdims()),
                    1 => x.max(axes(over).keepdims()),
                    2 => x.mean(over),
                    _ => x.softmax(over),
                }
            }
            Op::Matmul(a) => {
                let x = matrix(&all[*a])?;
                x.matmul(&x.swapaxes(-1, -2)?)
            }
            Op::Concatenate(a, b) => {
                let x = matrix(&all[*a])?;
                let y = fit(&x, &all[*b])?.broadcast_to(x.shape())?;
                concatenate(&[x, y], -2)
            }
            Op::Update(a, b) => {
                let x = matrix(&all[*a])?;
                let rank = x.ndim();
                let y = fit(&x, &all[*b])?.broadcast_to(x.shape())?;
                let mut stop: Vec<isize> = x.shape().iter().map(|n| *n as isize).collect();
                stop[rank - 2] = 1;
                let part = y.slice(&vec![0; rank], &stop, &vec![1; rank])?;
                x.slice_update(&part, &vec![0; rank], &stop, &vec![1; rank])
            }
            Op::Sort(a) => matrix(&all[*a])?.sort(Some(-1)),
            Op::Cumsum(a) => matrix(&all[*a])?.cumsum(Some(-1), false, true),
            Op::Take(a) => matrix(&all[*a])?.take(Array::from_slice(&[0, -1, 0]), Some(-1)),
            Op::Norm(a) => fast::rms_norm(&matrix(&all[*a])?, None, 1e-5),
            Op::Kernel(which, a) => kernel(*which, &all[*a]),
        }
    }

    /// Whether the op can be differentiated and vectorised.
    pub fn is_transformable(&self) -> bool {
        !matches!(self, Op::Kernel(..))
    }
}

/// Three kernels of one name.
fn kernel(which: usize, x: &Array) -> Result<Array> {
    let text = [
        "uint i = thread_position_in_grid.x; out[i] = x[i] + 0.5f;",
        "uint i = thread_position_in_grid.x; out[i] = x[i] * x[i];",
        "uint i = thread_position_in_grid.x; out[i] = i % 2 == 0 ? x[i] : -x[i];",
    ][which];
    let kernel = CustomKernel::new("step", &["x"], &["out"], text)?;
    // Too many elements for a constant, so that all three have one signature.
    let flat = concatenate(&[x.reshape(&[-1])?, Array::zeros(&[8], Dtype::Float32)?], 0)?;
    let n = flat.size() as u64;
    let call = kernel.call(&[flat]).grid([n, 1, 1]).threadgroup([32, 1, 1]);
    Ok(call.output(&[n as usize], Dtype::Float32).run()?.swap_remove(0))
}

/// The array with at least two axes.
fn matrix(x: &Array) -> Result<Array> {
    match x.ndim() {
        0 => x.reshape(&[1, 1]),
        1 => x.expand_dims(0),
        _ => Ok(x.clone()),
    }
}

/// The second array if it broadcasts to the first, else its mean.
fn fit(x: &Array, y: &Array) -> Result<Array> {
    let fits = y.ndim() <= x.ndim()
        && y.shape().iter().rev().zip(x.shape().iter().rev()).all(|(one, other)| one == other || *one == 1);
    if fits { Ok(y.clone()) } else { y.mean(()) }
}

/// All of the last axis with a step.
fn slice(x: &Array, step: isize) -> Result<Array> {
    let last = x.ndim() - 1;
    let length = x.shape()[last] as isize;
    let mut start = vec![0; last + 1];
    let mut stop: Vec<isize> = x.shape().iter().map(|n| *n as isize).collect();
    if step < 0 {
        (start[last], stop[last]) = (length - 1, -length - 1);
    }
    let mut steps = vec![1; last + 1];
    steps[last] = step;
    x.slice(&start, &stop, &steps)
}

//! The commands behind [`random`](crate::random): words of a key, random order, choice, and the root of a
//! covariance.

use std::sync::Mutex;

use hesper_cpu::{Compute, Cores};
use hesper_runtime::NativeResult;
use smallvec::{SmallVec, smallvec};

use super::logic::select;
use super::{Op, OpRef};
use crate::Dtype;
use crate::array::{Array, Data};
use crate::error::Result;
use crate::eval::Lowering;
use crate::export::{Export, Record, Replay};
use crate::gpu::compose;
use crate::ops::command::Commands;
use crate::shape::{Shape, row_major, signed};
use crate::transform::rule::{Backward, Batch, Cotangents, zeros_like};

/// Words of a key.
#[derive(Debug)]
struct Bits;

impl Op for Bits {
    fn name(&self) -> &'static str {
        "random bits"
    }

    fn export(&self) -> Export {
        Record::new("random_bits").into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let key = l.row_major(0)?;
        let output = l.output()?;
        let start = key.offset as usize * 4;
        l.stream().command(self.name()).read_range(&key.buffer, start..start + 8).write(&output).run(
            |native| -> NativeResult {
                let [key, words] = native.take()?;
                let [k0, k1] = *key.as_slice::<u32>()? else { return Err("a key has two words".into()) };
                hesper_compute::random_words(&Cores, [k0, k1], words.as_mut_slice::<u32>()?);
                Ok(())
            },
        )?;
        Ok(Data::contiguous(output, l.shape()))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        l.bring()?;
        let (key, output) = (l.row_major(0)?, l.output()?);
        crate::gpu::moves::words(l.stream(), &key, &output)?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

/// Words of a key, in a shape.
pub(crate) fn bits_of(key: Array, shape: &[usize]) -> Result<Array> {
    Array::lazy(shape.into(), Dtype::Uint32, OpRef::Static(&Bits), smallvec![key])
}

/// Rows of an array in the order that sorts random words; equal words keep their order.
#[derive(Debug)]
struct PermuteRows;

impl Op for PermuteRows {
    fn name(&self) -> &'static str {
        "permutation"
    }

    fn export(&self) -> Export {
        Record::new("permutation").into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let (rows, words) = (l.row_major(0)?, l.row_major(1)?);
        let output = l.output()?;
        let count = l.shape()[0];
        let bytes = l.shape().iter().product::<usize>() * l.dtype().size();
        let row = bytes / count.max(1);
        let (start, first) = (rows.offset as usize * l.dtype().size(), words.offset as usize * 4);
        l.stream()
            .command(self.name())
            .read_range(&rows.buffer, start..start + bytes)
            .read_range(&words.buffer, first..first + count * 4)
            .write(&output)
            .run(move |native| -> NativeResult {
                let [rows, words, out] = native.take()?;
                let (rows, words) = (rows.bytes()?, words.as_slice::<u32>()?);
                let mut order = vec![0u32; count];
                hesper_compute::argsort(&Cores, words, count, &mut order).map_err(|e| e.to_string())?;
                if row == 4 {
                    let (rows, out) = (bytemuck::cast_slice::<_, [u8; 4]>(rows), out.bytes_mut()?);
                    for (to, from) in out.chunks_exact_mut(4).zip(order) {
                        to.copy_from_slice(&rows[from as usize]);
                    }
                } else if row > 0 {
                    for (to, from) in out.bytes_mut()?.chunks_exact_mut(row).zip(order) {
                        to.copy_from_slice(&rows[from as usize * row..][..row]);
                    }
                }
                Ok(())
            })?;
        Ok(Data::contiguous(output, l.shape()))
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose::compose(l, compose::permuted)
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let order = rule.inputs[1].argsort(Some(0))?;
        let rows = rule.cotangent()?.expand_dims(&[1])?;
        rule.only(zeros_like(&rule.inputs[0])?.scatter_add(&[order], &rows, &[0]))
    }
}

/// The rows in the order that sorts `words`.
pub(crate) fn permute_rows(rows: &Array, words: &Array) -> Result<Array> {
    let inputs = smallvec![rows.clone(), words.clone()];
    Array::lazy(rows.0.shape.clone(), rows.dtype(), OpRef::Static(&PermuteRows), inputs)
}

/// The place of the largest float32 of each row.
#[derive(Debug)]
struct Choose;

impl Op for Choose {
    fn name(&self) -> &'static str {
        "categorical"
    }

    fn export(&self) -> Export {
        Record::new("categorical").into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let input = l.row_major(0)?;
        let output = l.output()?;
        let shape = l.input_shape(0);
        let length = shape[shape.len() - 1];
        let bytes = shape.iter().product::<usize>() * 4;
        let start = input.offset as usize * 4;
        l.stream().command(self.name()).read_range(&input.buffer, start..start + bytes).write(&output).run(
            move |native| -> NativeResult {
                let [from, to] = native.take()?;
                let from = from.as_slice::<f32>()?;
                let to = to.as_mut_slice::<u32>()?;
                let grain = (65536 / length.max(1)).max(1);
                let slots: Vec<Mutex<&mut [u32]>> = to.chunks_mut(grain).map(Mutex::new).collect();
                Compute::global().run(slots.len(), &|task| {
                    let mut slot = slots[task].lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    for (at, out) in slot.iter_mut().enumerate() {
                        let row = task * grain + at;
                        *out = largest(&from[row * length..(row + 1) * length]);
                    }
                });
                Ok(())
            },
        )?;
        Ok(Data::contiguous(output, l.shape()))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.front(0)?])
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        compose::compose(l, compose::choose)
    }
}

/// The first place of the largest number.
fn largest(row: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (at, value) in row.iter().enumerate() {
        if *value > best.1 {
            best = (at, *value);
        }
    }
    best.0 as u32
}

/// Where along an axis the largest number is.
pub(crate) fn choose(numbers: &Array, axis: usize) -> Result<Array> {
    let axis = axis as isize;
    let mut order: SmallVec<[isize; 6]> = (0..numbers.ndim() as isize).filter(|one| *one != axis).collect();
    order.push(axis);
    let last = numbers.transpose(&order)?;
    let [rest @ .., length] = last.shape() else { return Ok(last) };
    if *length == 0 {
        let what = format!("a distribution over no values, in logits of shape {:?}", numbers.shape());
        return Err(crate::Error::value("categorical", what));
    }
    let shape: Shape = rest.into();
    Array::lazy(shape, Dtype::Uint32, OpRef::Static(&Choose), smallvec![last])
}

/// Pairs of float32 as complex numbers: the same memory.
#[derive(Debug)]
struct AsComplex;

impl Op for AsComplex {
    fn name(&self) -> &'static str {
        "as complex"
    }

    fn export(&self) -> Export {
        Record::new("as_complex").into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let mut pairs = l.row_major(0)?;
        if pairs.offset % 2 != 0 {
            // A complex number would begin in the middle of another.
            pairs = l.copy_of(0)?;
        }
        Ok(Data { buffer: pairs.buffer, offset: pairs.offset / 2, strides: row_major(l.shape()) })
    }

    fn lower_gpu(&self, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        l.bring()?;
        self.lower(l).map(Some)
    }

    fn is_linear(&self) -> bool {
        true
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        let cotangent = rule.cotangent()?;
        let pairs = crate::stack(&[cotangent.real()?, cotangent.imag()?], -1)?;
        rule.only(pairs.reshape(&signed(rule.inputs[0].shape())))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.front(0)?])
    }
}

/// Pairs of float32 as complex numbers of a shape.
pub(crate) fn as_complex(pairs: &Array, shape: &[usize]) -> Result<Array> {
    Array::lazy(shape.into(), Dtype::Complex64, OpRef::Static(&AsComplex), smallvec![pairs.clone()])
}

/// The symmetric root of symmetric matrices of float32.
#[derive(Debug)]
struct SymmetricRoot;

impl Op for SymmetricRoot {
    fn name(&self) -> &'static str {
        "covariance root"
    }

    fn export(&self) -> Export {
        Record::new("symmetric_root").into()
    }

    fn lower(&self, l: &mut Lowering<'_>) -> Result<Data> {
        let input = l.row_major(0)?;
        let output = l.output()?;
        let side = l.shape()[l.shape().len() - 1];
        let start = input.offset as usize * 4;
        let bytes = l.shape().iter().product::<usize>() * 4;
        l.stream().command(self.name()).read_range(&input.buffer, start..start + bytes).write(&output).run(
            move |native| -> NativeResult {
                let [from, to] = native.take()?;
                let from = from.as_slice::<f32>()?;
                let to = to.as_mut_slice::<f32>()?;
                let matrix = (side * side).max(1);
                for (from, to) in from.chunks_exact(matrix).zip(to.chunks_exact_mut(matrix)) {
                    root(from, to, side);
                }
                Ok(())
            },
        )?;
        Ok(Data::contiguous(output, l.shape()))
    }

    fn vjp(&self, rule: &Backward<'_>) -> Result<Cotangents> {
        // With roots `r` on the diagonal, a change of the matrix is divided by `r_i + r_j`.
        let (values, basis) = crate::linalg::eigh(&rule.inputs[0], false)?;
        let turned = basis.swapaxes(-1, -2)?;
        let roots = values.maximum(0)?.sqrt()?;
        let sums = roots.expand_dims(&[-1])?.add(&roots.expand_dims(&[-2])?)?;
        let (flat, zero) = (sums.equal(0)?, zeros_like(&sums)?);
        let factors = select(&flat, &zero, &select(&flat, &sums.ones_like()?, &sums)?.reciprocal()?)?;
        let inner = turned.matmul(&rule.cotangent()?)?.matmul(&basis)?.multiply(&factors)?;
        let whole = basis.matmul(&inner)?.matmul(&turned)?;
        rule.only(whole.add(&whole.swapaxes(-1, -2)?)?.multiply(0.5))
    }

    fn vmap(&self, rule: &Batch<'_>) -> Result<(Array, usize)> {
        rule.apply(rule.op.clone(), smallvec![rule.front(0)?])
    }
}

/// The symmetric root of one matrix by Jacobi's rotations: `V sqrt(D) V^T` of `V D V^T`.
fn root(from: &[f32], to: &mut [f32], n: usize) {
    let at = |row: usize, column: usize| row * n + column;
    let mut a: Vec<f64> = from.iter().map(|x| f64::from(*x)).collect();
    let mut v = vec![0.0f64; n * n];
    (0..n).for_each(|i| v[at(i, i)] = 1.0);
    // Converges quadratically; thirty sweeps are far more than any matrix needs.
    for _ in 0..30 {
        let off: f64 =
            (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[at(i, j)] * a[at(i, j)]).sum();
        let diagonal: f64 = (0..n).map(|i| a[at(i, i)] * a[at(i, i)]).sum();
        if off.is_nan() || off <= diagonal * 1e-30 {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                rotate(&mut a, &mut v, n, p, q);
            }
        }
    }
    for row in 0..n {
        for column in 0..n {
            let sum: f64 =
                (0..n).map(|k| v[at(row, k)] * a[at(k, k)].max(0.0).sqrt() * v[at(column, k)]).sum();
            to[at(row, column)] = sum as f32;
        }
    }
}

/// The rotation that makes the element at `(p, q)` zero.
fn rotate(a: &mut [f64], v: &mut [f64], n: usize, p: usize, q: usize) {
    let at = |row: usize, column: usize| row * n + column;
    let off = a[at(p, q)];
    if off == 0.0 {
        return;
    }
    let theta = (a[at(q, q)] - a[at(p, p)]) / (2.0 * off);
    let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
    let c = 1.0 / (t * t + 1.0).sqrt();
    let s = t * c;
    for k in 0..n {
        let (x, y) = (a[at(k, p)], a[at(k, q)]);
        (a[at(k, p)], a[at(k, q)]) = (c * x - s * y, s * x + c * y);
    }
    for k in 0..n {
        let (x, y) = (a[at(p, k)], a[at(q, k)]);
        (a[at(p, k)], a[at(q, k)]) = (c * x - s * y, s * x + c * y);
        let (x, y) = (v[at(k, p)], v[at(k, q)]);
        (v[at(k, p)], v[at(k, q)]) = (c * x - s * y, s * x + c * y);
    }
}

/// The symmetric root of the matrices of the last two axes.
pub(crate) fn symmetric_root(matrices: &Array) -> Result<Array> {
    let op = OpRef::Static(&SymmetricRoot);
    Array::lazy(matrices.0.shape.clone(), Dtype::Float32, op, smallvec![matrices.clone()])
}

pub(super) fn read_bits(replay: &Replay<'_>) -> Result<Array> {
    let [key] = replay.inputs()?;
    if key.dtype() != Dtype::Uint32 || key.size() != 2 {
        return Err(replay.wrong("no key"));
    }
    bits_of(key.clone(), replay.shape())
}

pub(super) fn read_permutation(replay: &Replay<'_>) -> Result<Array> {
    let [rows, words] = replay.inputs()?;
    if words.dtype() != Dtype::Uint32 || words.ndim() != 1 || rows.shape().first() != words.shape().first() {
        return Err(replay.wrong("words that do not fit its rows"));
    }
    permute_rows(rows, words)
}

pub(super) fn read_categorical(replay: &Replay<'_>) -> Result<Array> {
    let [numbers] = replay.inputs()?;
    if numbers.dtype() != Dtype::Float32 || numbers.ndim() == 0 {
        return Err(replay.wrong("no rows of float32"));
    }
    choose(numbers, numbers.ndim() - 1)
}

pub(super) fn read_as_complex(replay: &Replay<'_>) -> Result<Array> {
    let [pairs] = replay.inputs()?;
    replay.unmoved()?;
    let size = crate::shape::size_of(replay.shape())?;
    if pairs.dtype() != Dtype::Float32 || size.checked_mul(2) != Some(pairs.size()) {
        return Err(replay.wrong("no pairs of float32"));
    }
    as_complex(pairs, replay.shape())
}

pub(super) fn read_symmetric_root(replay: &Replay<'_>) -> Result<Array> {
    let [matrices] = replay.inputs()?;
    match *matrices.shape() {
        [.., rows, columns] if rows == columns && matrices.dtype() == Dtype::Float32 => {
            symmetric_root(matrices)
        }
        _ => Err(replay.wrong("no square matrices of float32")),
    }
}

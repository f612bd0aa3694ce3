//! Random bits of a key, rows in random order, choices, and the root of a covariance.

use std::sync::Mutex;

use hesper_core::Result;
use hesper_core::backend::{Data, Lower, Lowering, Op, OpTableBuilder};
use hesper_core::ops::command::Commands;
use hesper_core::ops::random::{Bits, Choose, PermuteRows, SymmetricRoot};
use hesper_cpu::{Compute, Cores};
use hesper_runtime::NativeResult;

use crate::Cpu;

pub(crate) fn register(table: OpTableBuilder<Cpu>) -> OpTableBuilder<Cpu> {
    table.with::<Bits>().with::<Choose>().with::<PermuteRows>().with::<SymmetricRoot>()
}

impl Lower<Bits> for Cpu {
    fn lower(op: &Bits, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let key = l.row_major(0)?;
        let output = l.output()?;
        let start = key.offset as usize * 4;
        l.stream().command(op.name()).read_range(&key.buffer, start..start + 8).write(&output).run(
            |native| -> NativeResult {
                let [key, words] = native.take()?;
                let [k0, k1] = *key.as_slice::<u32>()? else {
                    return Err("a random key must have two elements".into());
                };
                hesper_compute::random_words(&Cores, [k0, k1], words.as_mut_slice::<u32>()?);
                Ok(())
            },
        )?;
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

impl Lower<PermuteRows> for Cpu {
    fn lower(op: &PermuteRows, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let (rows, words) = (l.row_major(0)?, l.row_major(1)?);
        let output = l.output()?;
        let count = l.shape()[0];
        let bytes = l.shape().iter().product::<usize>() * l.dtype().size();
        let row = bytes / count.max(1);
        let (start, first) = (rows.offset as usize * l.dtype().size(), words.offset as usize * 4);
        l.stream()
            .command(op.name())
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
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

impl Lower<Choose> for Cpu {
    fn lower(op: &Choose, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let input = l.row_major(0)?;
        let output = l.output()?;
        let shape = l.input_shape(0);
        let length = shape[shape.len() - 1];
        let bytes = shape.iter().product::<usize>() * 4;
        let start = input.offset as usize * 4;
        l.stream().command(op.name()).read_range(&input.buffer, start..start + bytes).write(&output).run(
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
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

/// The index of the largest element, the first if there are several.
fn largest(row: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (at, value) in row.iter().enumerate() {
        if *value > best.1 {
            best = (at, *value);
        }
    }
    best.0 as u32
}

impl Lower<SymmetricRoot> for Cpu {
    fn lower(op: &SymmetricRoot, l: &mut Lowering<'_>) -> Result<Option<Data>> {
        let input = l.row_major(0)?;
        let output = l.output()?;
        let side = l.shape()[l.shape().len() - 1];
        let start = input.offset as usize * 4;
        let bytes = l.shape().iter().product::<usize>() * 4;
        l.stream().command(op.name()).read_range(&input.buffer, start..start + bytes).write(&output).run(
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
        Ok(Some(Data::contiguous(output, l.shape())))
    }
}

/// The symmetric square root of one matrix by Jacobi rotations: `V sqrt(D) V^T` of `V D V^T`.
fn root(from: &[f32], to: &mut [f32], n: usize) {
    let at = |row: usize, column: usize| row * n + column;
    let mut a: Vec<f64> = from.iter().map(|x| f64::from(*x)).collect();
    let mut v = vec![0.0f64; n * n];
    (0..n).for_each(|i| v[at(i, i)] = 1.0);
    // Convergence is quadratic: thirty sweeps are more than any matrix needs.
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

/// The Jacobi rotation that zeroes the element at `(p, q)`.
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

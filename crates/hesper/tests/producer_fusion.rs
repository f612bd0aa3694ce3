//! Producer fusion: element-wise ops that are computed as an op reads their rows, with the same bits as op by
//! op.

use crate::alone;
use hesper::eval::{Apart, why_apart};
use hesper::{Array, Dtype, Result, axes, eval, fast, placement, random, transform};

fn bytes(array: &Array) -> Vec<u8> {
    let flat = array.reshape(&[-1]).unwrap();
    match array.dtype().size() {
        1 => flat.view(Dtype::Uint8).unwrap().to_vec::<u8>().unwrap(),
        2 => bytemuck::cast_slice(&flat.view(Dtype::Uint16).unwrap().to_vec::<u16>().unwrap()).to_vec(),
        4 => bytemuck::cast_slice(&flat.view(Dtype::Uint32).unwrap().to_vec::<u32>().unwrap()).to_vec(),
        _ => bytemuck::cast_slice(&flat.view(Dtype::Uint64).unwrap().to_vec::<u64>().unwrap()).to_vec(),
    }
}

fn normal(shape: &[usize], seed: u64) -> Array {
    random::normal(shape, Dtype::Float32, 0.0, 1.0, Some(&random::key(seed).unwrap())).unwrap()
}

/// The result of `f` with fusion, and the number of commands.
fn counted(f: &dyn Fn() -> Result<Array>) -> (Vec<u8>, u64) {
    let result = f().unwrap();
    let before = placement::cpu().counters().encoded;
    eval::eval([&result]).unwrap();
    let commands = placement::cpu().counters().encoded - before;
    (bytes(&result), commands)
}

/// Checks that `f` takes `commands` commands and gives the same bits as op by op.
fn same(what: &str, commands: u64, f: &dyn Fn() -> Result<Array>) {
    let (fused, used) = counted(f);
    eval::set_fusion(false);
    let apart = counted(f).0;
    eval::set_fusion(true);
    assert!(fused == apart, "{what}: not the numbers of one op after the other");
    assert_eq!(used, commands, "{what}: commands");
}

/// An element-wise chain of a few ops.
fn chain(x: &Array, other: &Array) -> Result<Array> {
    x.multiply(other)?.tanh()?.add(x)?.multiply(0.5f32)
}

type RowOp = fn(&Array) -> Result<Array>;

const ROW_OPS: [(&str, RowOp); 8] = [
    ("sum", |x| x.sum(-1)),
    ("mean", |x| x.mean(axes(-1).keepdims())),
    ("max", |x| x.max(-1)),
    ("min", |x| x.min(axes(-1).keepdims())),
    ("prod", |x| x.prod(-1)),
    ("softmax", |x| x.softmax(-1)),
    ("logsumexp", |x| x.logsumexp(-1)),
    ("rms_norm", |x| fast::rms_norm(x, None, 1e-5)),
];

#[test]
fn rows_computed_as_they_are_read_equal_rows_in_memory() {
    let _alone = alone();
    // Rows that fit a piece, longer rows, and rows that are split.
    for (shape, seed) in [([64, 100], 1), ([7, 4097], 2), ([40, 20000], 3), ([9, 70000], 4)] {
        let (x, w) = (normal(&shape, seed), normal(&shape[1..], seed + 9));
        let column = normal(&[shape[0], 1], seed + 20);
        let turned = normal(&[shape[1], shape[0]], seed + 30).transpose(&[1, 0]).unwrap();
        let every = normal(&[shape[0], 2 * shape[1]], seed + 40)
            .slice(&[0, 1], &[shape[0] as isize, 2 * shape[1] as isize], &[1, 2])
            .unwrap();
        eval::eval([&x, &w, &column, &turned, &every]).unwrap();
        // All cores compute a few long rows before they are normalized.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let few = shape[0] < 2 * cores && shape[0] * shape[1] > 1 << 16;
        for (name, op) in ROW_OPS {
            let whole = few && ["softmax", "logsumexp", "rms_norm"].contains(&name);
            for (layout, other) in
                [("itself", &x), ("row", &w), ("column", &column), ("turned", &turned), ("every", &every)]
            {
                same(&format!("{name} of {shape:?} by {layout}"), 1 + u64::from(whole), &|| {
                    op(&chain(&x, other)?)
                });
            }
        }
    }
}

#[test]
fn a_whole_array_is_reduced_as_it_is_computed() {
    let _alone = alone();
    let (x, b) = (normal(&[33, 5, 2000], 5), normal(&[33, 1, 2000], 6));
    eval::eval([&x, &b]).unwrap();
    same("sum of all", 1, &|| chain(&x, &b)?.sum(()));
    same("mean of two axes", 1, &|| chain(&x, &b)?.mean([1, 2]));
    same("largest of all", 1, &|| chain(&x, &b)?.max(axes(()).keepdims()));
    let half = |dtype| move |x: &Array, b: &Array| chain(&x.astype(dtype)?, &b.astype(dtype)?)?.sum(());
    same("sum of bfloat16, and the other operand", 2, &|| half(Dtype::Bfloat16)(&x, &b));
    same("sum of float16, and the other operand", 2, &|| half(Dtype::Float16)(&x, &b));
    let whole = x.multiply(1000.0f32).unwrap().astype(Dtype::Int32).unwrap();
    eval::eval([&whole]).unwrap();
    same("sum of integers", 1, &|| whole.multiply(&whole)?.add(7)?.sum(()));
    same("largest of integers", 1, &|| whole.multiply(3)?.max(-1));
}

#[test]
fn norms_read_fused_inputs() {
    let _alone = alone();
    let (x, y) = (normal(&[16, 3, 768], 7), normal(&[16, 3, 768], 8));
    let (w, b) = (normal(&[768], 9), normal(&[768], 10));
    eval::eval([&x, &y, &w, &b]).unwrap();
    same("layer_norm", 1, &|| fast::layer_norm(&x.add(&y)?, Some(&w), Some(&b), 1e-5));
    same("rms_norm", 1, &|| fast::rms_norm(&x.add(&y)?, Some(&w), 1e-5));
    // A computed weight goes to memory, with one more kernel.
    same("a computed weight", 2, &|| fast::rms_norm(&x.add(&y)?, Some(&w.add(1.0f32)?), 1e-5));
    let mask = normal(&[1, 3, 768], 11).greater(0.0f32).unwrap();
    let low = Array::full(&[], f32::NEG_INFINITY, Some(Dtype::Float32)).unwrap();
    eval::eval([&mask, &low]).unwrap();
    same("a mask", 1, &|| hesper::select(&mask, &x.multiply(0.125f32)?, &low)?.softmax(-1));
}

#[test]
fn values_that_are_needed_in_memory_are_not_fused() {
    let _alone = alone();
    let x = normal(&[64, 1000], 12);
    eval::eval([&x]).unwrap();
    // The program has a handle.
    let y = x.exp().unwrap();
    let held = y.clone();
    let sum = y.sum(()).unwrap();
    assert_eq!(why_apart(&y, &sum), Some(Apart::Held));
    drop(held);
    assert_eq!(why_apart(&y, &sum), None);
    eval::eval([&sum]).unwrap();
    assert_eq!(bytes(&y), bytes(&x.exp().unwrap()));
    // Two readers.
    same("two readers", 4, &|| {
        let y = x.exp()?;
        y.sum(())?.add(y.max(())?)
    });
    // Other axes, and rows too short for the row kernels.
    same("columns", 2, &|| x.exp()?.sum(0));
    same("short rows", 2, &|| x.reshape(&[-1, 8])?.exp()?.sum(-1));
    let empty = Array::zeros(&[3, 0], Dtype::Float32).unwrap();
    assert_eq!(empty.exp().unwrap().sum(-1).unwrap().to_vec::<f32>().unwrap(), [0.0; 3]);
}

#[test]
fn compiled_functions_fuse_producers() {
    let _alone = alone();
    let (x, w) = (normal(&[32, 300], 13), normal(&[300], 14));
    let f = |x: &[Array]| -> Result<Vec<Array>> {
        let y = chain(&x[0], &x[1])?;
        let shares = y.add(1.0f32)?.softmax(-1)?;
        Ok(vec![shares.multiply(&y)?.sum(-1)?, y.mean(())?])
    };
    let expected = f(&[x.clone(), w.clone()]).unwrap();
    eval::eval(&expected).unwrap();
    let compiled = transform::compile(f);
    for _ in 0..2 {
        let got = compiled(&[x.clone(), w.clone()]).unwrap();
        eval::eval(&got).unwrap();
        assert_eq!(bytes(&got[0]), bytes(&expected[0]));
        assert_eq!(bytes(&got[1]), bytes(&expected[1]));
    }
}

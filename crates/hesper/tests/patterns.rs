//! Ops that become one composite op: which do, that the numbers stay those of one op after the other, and
//! what happens where the composite op is declined or fails.

use crate::alone;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use crate::reference::{Reference, ReferenceBackend, TAKES_COMPOSITE};
use hesper::eval::{Apart, StepKind, why_apart};
use hesper::fast::AttentionMask;
use hesper::{
    Array, Dtype, Error, PackedArray, PackedFormat, Result, Split, backend, concatenate, eval, fast,
    placement, random, transform,
};
use hesper_runtime::{Runtime, Stream};

const FLOATS: [Dtype; 3] = [Dtype::Float32, Dtype::Float16, Dtype::Bfloat16];

/// A stream of a device that has `add_norm` and `silu_gate`.
fn opened() -> (Runtime, Stream) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        backend::register(&ReferenceBackend);
        *TAKES_COMPOSITE.lock().unwrap() = takes_composite;
    });
    let runtime = Runtime::builder(Reference::new()).validate(true).build();
    let stream = runtime.stream().unwrap();
    (runtime, stream)
}

/// What the device does with composite ops.
#[derive(Debug, Clone, Copy)]
enum Composites {
    Lower,
    Decline,
    Fail,
}

/// What it does, and the composite ops that it met.
static COMPOSITES: Mutex<(Composites, Vec<&str>)> = Mutex::new((Composites::Lower, Vec::new()));

fn composites() -> MutexGuard<'static, (Composites, Vec<&'static str>)> {
    COMPOSITES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn takes_composite(name: &'static str) -> Result<bool> {
    let mut state = composites();
    state.1.push(name);
    match state.0 {
        Composites::Lower => Ok(true),
        Composites::Decline => Ok(false),
        Composites::Fail => Err(Error::value(name, "told to fail")),
    }
}

fn set(what: Composites) {
    composites().0 = what;
}

fn met() -> Vec<&'static str> {
    std::mem::take(&mut composites().1)
}

fn bytes(array: &Array) -> Vec<u8> {
    let flat = array.reshape(&[-1]).unwrap().contiguous().unwrap();
    match array.dtype().size() {
        2 => bytemuck::cast_slice(&flat.view(Dtype::Uint16).unwrap().to_vec::<u16>().unwrap()).to_vec(),
        _ => bytemuck::cast_slice(&flat.view(Dtype::Uint32).unwrap().to_vec::<u32>().unwrap()).to_vec(),
    }
}

fn normal(shape: &[usize], seed: u64, dtype: Dtype) -> Array {
    let key = random::key(seed).unwrap();
    let array = random::normal(shape, Dtype::Float32, 0.0, 1.5, Some(&key)).unwrap().astype(dtype).unwrap();
    array.eval().unwrap();
    array
}

type Build<'a> = &'a dyn Fn() -> Result<Vec<Array>>;

/// What a graph gives, evaluated together.
fn values(build: Build<'_>) -> Vec<Vec<u8>> {
    let arrays = build().unwrap();
    eval::eval(&arrays).unwrap();
    arrays.iter().map(bytes).collect()
}

/// What a graph gives with each op alone.
fn apart(build: Build<'_>) -> Vec<Vec<u8>> {
    eval::set_fusion(false);
    let values = values(build);
    eval::set_fusion(true);
    values
}

/// Checks which composite ops the device gets for a graph, twice, and that the numbers are those of its ops
/// alone.
fn becomes(what: &str, stream: &Stream, names: &[&str], build: Build<'_>) {
    placement::with_stream(stream, || {
        let expected = apart(build);
        assert_eq!(met(), [""; 0], "{what}: without fusion");
        for _ in 0..2 {
            assert!(values(build) == expected, "{what}: not the numbers of one op after the other");
            assert_eq!(met(), names, "{what}");
        }
    });
}

fn norm(x: &Array, weight: &Array) -> Result<Array> {
    fast::rms_norm(x, Some(weight), 1e-5)
}

fn gated(gate: &Array, up: &Array) -> Result<Array> {
    gate.multiply(gate.sigmoid()?)?.multiply(up)
}

fn halves(both: &Array) -> Result<[Array; 2]> {
    let mut parts = both.split(Split::Sections(2), -1)?.into_iter();
    Ok([parts.next().unwrap(), parts.next().unwrap()])
}

#[test]
fn a_sum_and_its_norm_become_one_op_with_two_results() {
    let _alone = alone();
    let (runtime, stream) = opened();
    for dtype in FLOATS {
        let (x, y, w) = (normal(&[3, 24], 1, dtype), normal(&[3, 24], 2, dtype), normal(&[24], 3, dtype));
        let one = &["add_norm"][..];
        becomes("both results", &stream, one, &|| {
            let sum = x.add(&y)?;
            Ok(vec![norm(&sum, &w)?, sum])
        });
        becomes("the norm alone", &stream, one, &|| Ok(vec![norm(&x.add(&y)?, &w)?]));
        becomes("another reader of the sum", &stream, one, &|| {
            let sum = x.add(&y)?;
            Ok(vec![sum.multiply(2.0)?.exp()?, norm(&sum, &w)?])
        });
        becomes("a chain of layers", &stream, &["add_norm"; 3], &|| {
            let mut sum = x.clone();
            let mut next = y.clone();
            for _ in 0..3 {
                sum = sum.add(&next)?;
                next = norm(&sum, &w)?.reshape(&[24, 3])?.reshape(&[3, 24])?;
            }
            Ok(vec![sum, next])
        });
        let turned = normal(&[24, 3], 4, dtype);
        becomes("a view", &stream, one, &|| Ok(vec![norm(&turned.t()?.add(&y)?, &w)?]));
        let row = normal(&[24], 5, dtype);
        becomes("a broadcast", &stream, &[], &|| Ok(vec![norm(&x.add(&row)?, &w)?]));
        becomes("an op that fuses with the sum", &stream, &[], &|| {
            Ok(vec![norm(&x.multiply(&y)?.add(&y)?, &w)?])
        });
        becomes("a weight that is computed from the sum", &stream, &[], &|| {
            let sum = x.add(&y)?;
            Ok(vec![norm(&sum, &sum.slice_axis(0, 0, 1, 1)?.reshape(&[24])?)?])
        });
        becomes("nothing to normalize", &stream, &[], &|| {
            Ok(vec![norm(&x.slice_axis(0, 0, 0, 1)?.add(y.slice_axis(0, 0, 0, 1)?)?, &w)?])
        });
    }
    let (x, w) = (normal(&[3, 24], 1, Dtype::Float32), normal(&[24], 3, Dtype::Float32));
    becomes("no weight", &stream, &[], &|| Ok(vec![fast::rms_norm(&x.add(&x)?, None, 1e-5)?]));
    becomes("an array with itself", &stream, &["add_norm"], &|| Ok(vec![norm(&x.add(&x)?, &w)?]));
    assert!(runtime.validation().unwrap().violations().is_empty());
}

#[test]
fn a_gate_and_what_it_multiplies_become_one_op() {
    let _alone = alone();
    let (runtime, stream) = opened();
    for dtype in FLOATS {
        let both = normal(&[2, 3, 16], 1, dtype);
        let one = &["silu_gate"][..];
        becomes("halves", &stream, one, &|| {
            let [gate, up] = halves(&both)?;
            Ok(vec![gated(&gate, &up)?])
        });
        becomes("factors the other way round", &stream, one, &|| {
            let [gate, up] = halves(&both)?;
            Ok(vec![up.multiply(gate.sigmoid()?.multiply(&gate)?)?])
        });
        becomes("an op behind it", &stream, one, &|| {
            let [gate, up] = halves(&both)?;
            Ok(vec![gated(&gate, &up)?.add(1.0)?.exp()?])
        });
        becomes("halves that something else reads", &stream, one, &|| {
            let [gate, up] = halves(&both)?;
            Ok(vec![gated(&gate, &up)?, gate.sum(-1)?, up])
        });
        becomes("the second half as the gate", &stream, &[], &|| {
            let [up, gate] = halves(&both)?;
            Ok(vec![gated(&gate, &up)?])
        });
        // The same graph but for where it is cut.
        becomes("parts that are not halves", &stream, &[], &|| {
            let (gate, up) = (both.slice_axis(2, 0, 6, 1)?, both.slice_axis(2, 6, 12, 1)?);
            Ok(vec![gated(&gate, &up)?])
        });
        becomes("halves of another axis", &stream, &[], &|| {
            let (gate, up) = (both.slice_axis(0, 0, 1, 1)?, both.slice_axis(0, 1, 2, 1)?);
            Ok(vec![gated(&gate, &up)?])
        });
        let other = normal(&[2, 3, 16], 2, dtype);
        becomes("halves of two arrays", &stream, &[], &|| {
            Ok(vec![gated(&halves(&both)?[0], &halves(&other)?[1])?])
        });
        becomes("another reader of the logistic function", &stream, &[], &|| {
            let [gate, up] = halves(&both)?;
            let open = gate.sigmoid()?;
            Ok(vec![gate.multiply(&open)?.multiply(&up)?, open.reshape(&[-1])?.sum(())?])
        });
        becomes("silu as a result", &stream, &[], &|| {
            let [gate, up] = halves(&both)?;
            let silu = gate.multiply(gate.sigmoid()?)?;
            Ok(vec![silu.multiply(&up)?, silu])
        });
    }
    assert!(runtime.validation().unwrap().violations().is_empty());
}

#[test]
fn a_plain_decoder_gets_the_composite_ops_of_its_layers() {
    let _alone = alone();
    let (_runtime, stream) = opened();
    let x = normal(&[2, 16], 1, Dtype::Float32);
    let (w, square) = (normal(&[16], 2, Dtype::Float32), normal(&[16, 16], 3, Dtype::Float32));
    let (wide, narrow) = (normal(&[16, 48], 4, Dtype::Float32), normal(&[24, 16], 5, Dtype::Float32));
    // The first norm has no sum before it.
    let names = ["add_norm", "silu_gate", "add_norm", "add_norm", "silu_gate", "add_norm"];
    becomes("two layers and a norm", &stream, &names, &|| {
        let mut x = x.clone();
        for _ in 0..2 {
            x = x.add(norm(&x, &w)?.matmul(&square)?)?;
            let [gate, up] = halves(&norm(&x, &w)?.matmul(&wide)?)?;
            x = x.add(gated(&gate, &up)?.matmul(&narrow)?)?;
        }
        Ok(vec![norm(&x, &w)?])
    });
}

#[test]
fn what_somebody_holds_is_computed() {
    let _alone = alone();
    let (_runtime, stream) = opened();
    placement::with_stream(&stream, || {
        let both = normal(&[3, 16], 1, Dtype::Float32);
        let [gate, up] = halves(&both).unwrap();
        let silu = gate.multiply(gate.sigmoid().unwrap()).unwrap();
        let result = silu.multiply(&up).unwrap();
        let found = bytes(&result);
        assert_eq!(met(), [""; 0], "the product is held");
        drop(result);
        assert_eq!(bytes(&silu.multiply(&up).unwrap()), found);
        let (x, w) = (normal(&[3, 16], 2, Dtype::Float32), normal(&[16], 3, Dtype::Float32));
        let sum = x.add(&x).unwrap();
        let normed = norm(&sum, &w).unwrap();
        normed.eval().unwrap();
        assert_eq!(met(), ["add_norm"]);
        assert!(sum.is_evaluated(), "a held sum is a result");
        assert_eq!(bytes(&sum), bytes(&x.multiply(2.0).unwrap()));
    });
}

#[test]
fn a_declined_composite_op_is_the_graph_that_it_stands_for() {
    let _alone = alone();
    let (_runtime, stream) = opened();
    let (x, y, w) = (
        normal(&[3, 24], 1, Dtype::Float32),
        normal(&[3, 24], 2, Dtype::Float32),
        normal(&[24], 3, Dtype::Float32),
    );
    set(Composites::Decline);
    becomes("both", &stream, &["add_norm", "silu_gate"], &|| {
        let sum = x.add(&y)?;
        let [gate, up] = halves(&norm(&sum, &w)?)?;
        Ok(vec![gated(&gate, &up)?, sum])
    });
    set(Composites::Lower);
}

#[test]
fn a_composite_op_that_fails_can_be_tried_again() {
    let _alone = alone();
    let (_runtime, stream) = opened();
    placement::with_stream(&stream, || {
        let (x, w) = (normal(&[3, 24], 1, Dtype::Float32), normal(&[24], 3, Dtype::Float32));
        let build = || -> Result<[Array; 2]> {
            let sum = x.exp()?.reshape(&[24, 3])?.reshape(&[3, 24])?.add(&x)?;
            let [gate, up] = halves(&norm(&sum, &w)?)?;
            Ok([gated(&gate, &up)?, sum])
        };
        let expected = build().unwrap().each_ref().map(bytes);
        let arrays = build().unwrap();
        set(Composites::Fail);
        for _ in 0..2 {
            let error = eval::eval(&arrays).unwrap_err().to_string();
            assert!(error.contains("add_norm") && error.contains("told to fail"), "{error}");
        }
        set(Composites::Lower);
        assert_eq!(arrays.each_ref().map(bytes), expected);
        met();
    });
}

#[test]
fn compiled_and_differentiated_functions_have_the_same_numbers() {
    let _alone = alone();
    let (_runtime, stream) = opened();
    placement::with_stream(&stream, || {
        let (x, y, w) = (
            normal(&[3, 24], 1, Dtype::Float32),
            normal(&[3, 24], 2, Dtype::Float32),
            normal(&[24], 3, Dtype::Float32),
        );
        let f = |x: &[Array]| -> Result<Vec<Array>> {
            let sum = x[0].add(&x[1])?;
            let [gate, up] = halves(&norm(&sum, &x[2])?)?;
            Ok(vec![gated(&gate, &up)?, sum])
        };
        let given = [x, y, w];
        let plain = values(&|| f(&given));
        assert_eq!(met(), ["add_norm", "silu_gate"]);
        let compiled = transform::compile(f);
        for _ in 0..2 {
            assert!(values(&|| compiled(&given)) == plain);
            assert_eq!(met(), ["add_norm", "silu_gate"]);
        }
        let loss = |x: &[Array]| f(x)?[0].sum(());
        let slopes = || transform::grad(loss, &[0, 2])(&given);
        assert!(values(&|| slopes()) == apart(&|| slopes()));
        met();
    });
}

#[test]
fn the_reason_names_the_composite_op() {
    let _alone = alone();
    let (_runtime, stream) = opened();
    placement::with_stream(&stream, || {
        let (x, w) = (normal(&[3, 24], 1, Dtype::Float32), normal(&[24], 3, Dtype::Float32));
        let sum = x.add(&x).unwrap();
        let normed = norm(&sum, &w).unwrap();
        assert_eq!(why_apart(&sum, &normed), None, "one kernel");
        let more = normed.exp().unwrap();
        let why = why_apart(&sum, &more).unwrap();
        assert_eq!(why, Apart::Composite("add_norm"));
        assert!(why.to_string().contains("add_norm"), "{why}");
        met();
    });
}

fn packed(format: PackedFormat, rows: usize, cols: usize, seed: u64) -> PackedArray {
    PackedArray::quantize(&normal(&[rows, cols], seed, Dtype::Float32), format).unwrap()
}

/// Checks how many commands a graph takes on the host, and that the numbers are those of its ops alone.
fn takes(what: &str, commands: u64, build: Build<'_>) {
    let expected = apart(build);
    for _ in 0..2 {
        let arrays = build().unwrap();
        let before = placement::cpu().counters().encoded;
        eval::eval(&arrays).unwrap();
        let used = placement::cpu().counters().encoded - before;
        let found: Vec<Vec<u8>> = arrays.iter().map(bytes).collect();
        assert!(found == expected, "{what}: not the numbers of one op after the other");
        assert_eq!(used, commands, "{what}: commands");
    }
}

#[test]
fn a_compiled_function_of_a_few_element_wise_ops_is_fused_with_its_neighbours() {
    let _alone = alone();
    let (x, y) = (normal(&[3, 24], 1, Dtype::Bfloat16), normal(&[3, 24], 2, Dtype::Bfloat16));
    let silu = transform::compile(|x| Ok(vec![x[0].multiply(x[0].sigmoid()?)?]));
    silu(&[x.clone()]).unwrap();
    takes("silu between sums", 1, &|| Ok(vec![silu(&[x.add(&y)?])?.remove(0).multiply(&y)?]));
}

#[test]
fn products_of_one_row_with_several_matrices_become_one_command() {
    let _alone = alone();
    for dtype in FLOATS {
        let weight = |rows, seed| normal(&[rows, 64], seed, dtype);
        let (q, k, v, other) = (weight(48, 1), weight(16, 2), weight(16, 3), weight(40, 4));
        let product = |x: &Array, weight: &Array| x.matmul(&weight.t()?);
        let x = normal(&[1, 1, 64], 5, dtype);
        takes("three", 1, &|| Ok(vec![product(&x, &q)?, product(&x, &k)?, product(&x, &v)?]));
        takes("a gate", 2, &|| Ok(vec![gated(&product(&x, &other)?, &product(&x, &other)?)?]));
        takes("of a result that is held", 2, &|| {
            let x = x.add(1.0)?;
            Ok(vec![product(&x, &q)?, product(&x, &k)?, x])
        });
        takes("more than fit", 2, &|| {
            [&q, &k, &v, &other, &q].iter().map(|weight| product(&x, weight)).collect()
        });
        let rows = normal(&[1, 2, 64], 6, dtype);
        takes("two rows", 2, &|| Ok(vec![product(&rows, &q)?, product(&rows, &k)?]));
        let wide = normal(&[1, 64], 7, dtype);
        takes("an addend", 2, &|| {
            Ok(vec![product(&wide, &q)?, k.t()?.slice_axis(0, 0, 1, 1)?.addmm(&wide, &k.t()?, 1.0, 1.0)?])
        });
        // The second matrix is computed after the first product.
        takes("a matrix that is a result", 4, &|| {
            let first = product(&x, &q)?;
            let matrix = k.add(first.sum(())?)?;
            Ok(vec![product(&x, &matrix)?, first])
        });
    }
}

fn rope(x: &Array, position: i32) -> Result<Array> {
    fast::rope(x, 8, false, Some(10_000.0), 1.0, position, None)
}

/// A cache with rows for the heads from `head` on, at row 3.
fn updated(cache: &Array, rows: &Array, head: isize) -> Result<Array> {
    let [batch, heads, length, width] = [0, 1, 2, 3].map(|axis| rows.shape()[axis] as isize);
    cache.slice_update(rows, &[0, head, 3, 0], &[batch, head + heads, 3 + length, width], &[1; 4])
}

#[test]
fn heads_of_one_token_are_rotated_as_a_cache_or_attention_takes_them() {
    let _alone = alone();
    let none = AttentionMask::None;
    for dtype in FLOATS {
        let heads = |count: isize, seed| {
            let tokens = normal(&[2, 1, 10 * count as usize], seed, dtype);
            tokens.reshape(&[2, 1, count, 10]).unwrap().transpose(&[0, 2, 1, 3]).unwrap()
        };
        let (q, k, v) = (heads(6, 1), heads(2, 2), heads(2, 3));
        let cache = |heads| normal(&[2, heads, 5, 10], 4, dtype);
        let rows = |cache: &Array, head| cache.slice(&[0, head, 0, 0], &[2, head + 2, 4, 10], &[1; 4]);
        takes("keys", 1, &|| Ok(vec![updated(&cache(2), &rope(&k, 3)?, 0)?]));
        takes("keys behind other heads", 1, &|| Ok(vec![updated(&cache(4), &rope(&k, 3)?, 2)?]));
        let held = cache(2);
        takes("keys of a cache that is held", 2, &|| Ok(vec![updated(&held, &rope(&k, 3)?, 0)?]));
        takes("keys that are a result too", 2, &|| {
            let k = rope(&k, 3)?;
            Ok(vec![updated(&cache(2), &k, 0)?, k])
        });
        takes("keys of two tokens", 2, &|| {
            let k = normal(&[2, 2, 2, 10], 5, dtype);
            Ok(vec![updated(&cache(2), &rope(&k, 3)?, 0)?])
        });
        let attention = |q: &Array, mask| {
            fast::scaled_dot_product_attention(q, &rows(&held, 0)?, &rows(&held, 0)?, 0.3, mask, None)
        };
        takes("queries", 1, &|| Ok(vec![attention(&rope(&q, 3)?, none)?]));
        takes("the queries of the last token", 1, &|| {
            Ok(vec![attention(&rope(&q, 3)?, AttentionMask::Causal)?])
        });
        let mask = Array::ones(&[1, 4], Dtype::Bool).unwrap();
        mask.eval().unwrap();
        takes("a mask", 2, &|| Ok(vec![attention(&rope(&q, 3)?, AttentionMask::Array(&mask))?]));
        let periods = Array::from_slice(&[1.0f32, 3.0, 9.0, 27.0]);
        takes("periods", 2, &|| {
            let rope = |x: &Array| fast::rope(x, 8, true, None, 0.5, 3, Some(&periods));
            Ok(vec![updated(&cache(2), &rope(&k)?, 0)?, attention(&rope(&q)?, none)?])
        });
        let offset = Array::from_slice(&[3i32]);
        takes("a position that is computed", 4, &|| {
            let rope = |x: &Array| fast::rope(x, 8, false, Some(10_000.0), 1.0, &offset, None);
            Ok(vec![updated(&cache(2), &rope(&k)?, 0)?, attention(&rope(&q)?, none)?])
        });
        let step = |position: i32| -> Result<Vec<Array>> {
            let (keys, values) = (updated(&cache(2), &rope(&k, position)?, 0)?, updated(&cache(2), &v, 0)?);
            let (k, v) = (rows(&keys, 0)?, rows(&values, 0)?);
            let y = fast::scaled_dot_product_attention(&rope(&q, position)?, &k, &v, 0.3, none, None)?;
            Ok(vec![keys, values, y])
        };
        takes("a step", 3, &|| step(3));
        takes("a step at another position, which is not planned again", 3, &|| step(4));
        let plan = step(3).unwrap().remove(2).explain().unwrap();
        let names = plan.steps.iter().filter_map(|step| match step.kind {
            StepKind::Composite(name) => Some(name),
            _ => None,
        });
        assert_eq!(names.collect::<Vec<_>>(), ["rope_update", "rope_attention"], "{plan}");
    }
}

#[test]
fn products_with_packed_matrices_take_norms_and_epilogues_in() {
    let _alone = alone();
    for (rows, format) in [(1, PackedFormat::Q8_0), (3, PackedFormat::Q4_0), (70, PackedFormat::Q4_1)] {
        let x = normal(&[rows, 64], 1, Dtype::Float32);
        let (w, y) = (normal(&[64], 2, Dtype::Float32), normal(&[rows, 40], 3, Dtype::Float32));
        let (a, b, c) = (packed(format, 40, 64, 4), packed(format, 40, 64, 5), packed(format, 24, 64, 6));
        let what = |what: &str| format!("{what}, {rows} rows");
        takes(&what("plus"), 1, &|| Ok(vec![a.matmul(&x)?.add(&y)?]));
        takes(&what("plus, the other way round"), 1, &|| Ok(vec![y.add(a.matmul(&x)?)?]));
        takes(&what("norm"), 1, &|| Ok(vec![a.matmul(&norm(&x, &w)?)?]));
        takes(&what("norm and plus"), 1, &|| Ok(vec![a.matmul(&norm(&x, &w)?)?.add(&y)?]));
        takes(&what("norm and gate"), 1, &|| {
            let x = norm(&x, &w)?;
            Ok(vec![gated(&a.matmul(&x)?, &b.matmul(&x)?)?])
        });
        takes(&what("gate"), 1, &|| Ok(vec![gated(&a.matmul(&x)?, &b.matmul(&x)?)?]));
        takes(&what("norm and concatenation"), 1, &|| {
            let x = norm(&x, &w)?;
            Ok(vec![concatenate(&[a.matmul(&x)?, b.matmul(&x)?, c.matmul(&x)?], -1)?])
        });
        takes(&what("a norm that is a result too"), 2, &|| {
            let x = norm(&x, &w)?;
            Ok(vec![gated(&a.matmul(&x)?, &b.matmul(&x)?)?, x])
        });
        takes(&what("a product that is a result too"), 2, &|| {
            let product = a.matmul(&x)?;
            Ok(vec![product.add(&y)?, product])
        });
        takes(&what("products of two arrays"), 4, &|| {
            Ok(vec![gated(&a.matmul(&x)?, &b.matmul(&x.abs()?)?)?])
        });
        takes(&what("a product with itself"), 2, &|| {
            let product = a.matmul(&x)?;
            Ok(vec![product.add(&product)?])
        });
        let row = normal(&[40], 7, Dtype::Float32);
        takes(&what("a row that is added to all"), 2, &|| Ok(vec![a.matmul(&x)?.add(&row)?]));
        let three = |x: &Array| -> Result<Vec<Array>> {
            Ok(vec![a.matmul(x)?, b.matmul(x)?, c.matmul(x)?.reshape(&[-1, 2, 12])?])
        };
        takes(&what("side by side"), if rows > 64 { 3 } else { 1 }, &|| three(&x));
        takes(&what("side by side after a norm"), if rows > 64 { 4 } else { 1 }, &|| three(&norm(&x, &w)?));
        // Columns of several rows are not contiguous: the host declines them.
        takes(&what("columns of products"), if rows == 1 { 2 } else { 3 }, &|| {
            let both = concatenate(&three(&norm(&x, &w)?)?[..2], -1)?;
            let (half, up) = (both.slice_axis(1, 0, 40, 1)?, both.slice_axis(1, 8, 72, 1)?);
            Ok(vec![a.matmul(&up)?.add(&half)?])
        });
    }
}

#[test]
fn products_of_rows_along_several_axes_match_too() {
    let _alone = alone();
    let x = normal(&[2, 3, 64], 1, Dtype::Float32);
    let (w, y) = (normal(&[64], 2, Dtype::Float32), normal(&[2, 3, 40], 3, Dtype::Float32));
    let (a, b) = (packed(PackedFormat::Q8_0, 40, 64, 4), packed(PackedFormat::Q4_0, 40, 64, 5));
    takes("norm and gate", 1, &|| {
        let x = norm(&x, &w)?;
        Ok(vec![gated(&a.matmul(&x)?, &b.matmul(&x)?)?])
    });
    takes("plus", 1, &|| Ok(vec![a.matmul(&x)?.add(&y)?]));
    takes("side by side after a norm", 1, &|| {
        let x = norm(&x, &w)?;
        Ok(vec![a.matmul(&x)?, b.matmul(&x)?])
    });
    let wide = packed(PackedFormat::Q8_0, 8, 192, 6);
    takes("rows of another length than those of the norm", 2, &|| {
        Ok(vec![wide.matmul(&norm(&x, &w)?.reshape(&[2, 192])?)?])
    });
    let half = x.astype(Dtype::Float16).unwrap();
    half.eval().unwrap();
    takes("half precision", 2, &|| Ok(vec![a.matmul(&half)?.add(&y.astype(Dtype::Float16)?)?]));
}

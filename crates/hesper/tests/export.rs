//! Exported functions: every op round-trips with the same bits, shapes may be free, and no file causes a
//! panic.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use hesper::export::{Exporter, Graph, Imported, Value, ValueRef, export_function, import_function};
use hesper::transform::{self, CustomFunction};
use hesper::{
    Array, Conv, CustomKernel, Dtype, Error, Index, PackedArray, PackedFormat, Pad, QuantMode, Result,
    Update, axes, concatenate, einsum, fast, fft, linalg, random, select, stack,
};

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hesper-export-test-{}-{number}", std::process::id()));
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

type Function = Box<dyn Fn(&[Array]) -> Result<Vec<Array>>>;

struct Case {
    name: &'static str,
    function: Function,
    inputs: Vec<Array>,
}

fn case(name: &'static str, inputs: &[Array], f: impl Fn(&[Array]) -> Result<Array> + 'static) -> Case {
    many(name, inputs, move |x| Ok(vec![f(x)?]))
}

fn many(name: &'static str, inputs: &[Array], f: impl Fn(&[Array]) -> Result<Vec<Array>> + 'static) -> Case {
    Case { name, function: Box::new(f), inputs: inputs.to_vec() }
}

/// Pseudorandom elements between -1 and 1.
fn x(seed: usize, shape: &[usize]) -> Array {
    let count: usize = shape.iter().product();
    let list: Vec<f32> = (0..count)
        .map(|at| (((at + 1) as f64) * 12.9898 + seed as f64 * 78.233).sin() * 43758.5453)
        .map(|x| (2.0 * (x - x.floor()) - 1.0) as f32)
        .collect();
    Array::try_from_slice(&list, shape).unwrap()
}

fn ints(list: &[i32]) -> Array {
    Array::from_slice(list)
}

fn bits(arrays: &[Array]) -> Vec<(Vec<usize>, Dtype, Vec<u8>)> {
    arrays
        .iter()
        .map(|array| (array.shape().to_vec(), array.dtype(), array.read_bytes(<[u8]>::to_vec).unwrap()))
        .collect()
}

fn round_trip(f: impl FnOnce(&[Array]) -> Result<Vec<Array>>, inputs: &[Array]) -> Result<Imported> {
    let file = Folder::new();
    export_function(&file.0, f, inputs, false)?;
    import_function(&file.0)
}

fn positive_definite(n: usize) -> Array {
    let a = x(9, &[n, n]);
    a.matmul(&a.t().unwrap()).unwrap().add(Array::eye(n, n, 0, Dtype::Float32).unwrap()).unwrap()
}

fn elementwise() -> Vec<Case> {
    let s = &[2, 3][..];
    macro_rules! unary {
        ($($name:ident),* $(,)?) => { vec![$(case(stringify!($name), &[x(1, s)], |x| x[0].$name())),*] };
    }
    macro_rules! binary {
        ($($name:ident),* $(,)?) => {
            vec![$(case(stringify!($name), &[x(1, s), x(2, &[3])], |x| x[0].$name(&x[1]))),*]
        };
    }
    let mut cases = unary!(
        abs,
        negative,
        square,
        sqrt,
        exp,
        log,
        sin,
        tanh,
        erf,
        sigmoid,
        floor,
        sign,
        isnan,
        reciprocal,
        logical_not
    );
    cases
        .extend(binary!(add, subtract, multiply, divide, maximum, power, less, equal, logical_or, remainder));
    cases.push(case("where", &[x(1, s), x(2, s), x(3, &[3])], |x| select(&x[0].greater(0)?, &x[1], &x[2])));
    cases.push(case("astype", &[x(1, s)], |x| x[0].astype(Dtype::Float16)));
    cases.push(case("full", &[x(1, &[])], |x| Array::full(&[2, 2], &x[0], None)));
    cases.push(case("bitwise", &[ints(&[1, 2, 3])], |x| x[0].bitwise_and(3)?.left_shift(2)));
    cases.push(case("complex", &[x(1, s)], |x| x[0].astype(Dtype::Complex64)?.exp()?.imag()));
    cases
}

fn movement() -> Vec<Case> {
    let t = x(1, &[2, 3, 4]);
    vec![
        case("reshape", &[t.clone()], |x| x[0].reshape(&[4, -1])),
        case("transpose", &[t.clone()], |x| x[0].transpose(&[2, 0, 1])),
        case("broadcast_to", &[x(2, &[3, 1])], |x| x[0].broadcast_to(&[2, 3, 4])),
        case("slice", &[t.clone()], |x| x[0].slice(&[0, 1, 1], &[2, 3, 4], &[1, 1, 2])),
        case("slice backwards", &[t.clone()], |x| x[0].slice(&[1, 2, 3], &[-9, 0, -9], &[-1, -1, -2])),
        case("slice of nothing", &[t.clone()], |x| x[0].slice(&[1, 2, 3], &[1, 3, 4], &[1, 1, -1])),
        case("contiguous", &[t.clone()], |x| x[0].t()?.contiguous()),
        case("concatenate", &[t.clone(), x(3, &[2, 1, 4])], |x| concatenate(x, 1)),
        case("stack", &[t.clone(), x(4, &[2, 3, 4])], |x| stack(x, 2)),
        case("pad", &[t.clone()], |x| x[0].pad(&[(1, 0), (0, 2), (1, 1)], &Pad::Constant(0.into()))),
        case("pad edge", &[t.clone()], |x| x[0].pad(&[(1, 0), (0, 2), (1, 1)], &Pad::Edge)),
        case("flip", &[t.clone()], |x| x[0].flip([0, 2])),
        case("tile", &[t.clone()], |x| x[0].tile(&[2, 1, 2])),
        case("diagonal", &[x(5, &[3, 2, 4])], |x| x[0].diagonal(1, 0, 2)),
        case("diag", &[x(6, &[3])], |x| x[0].diag(-1)),
        case("tril", &[x(8, &[3, 4])], |x| x[0].tril(0)),
        case("as_strided", &[x(9, &[12])], |x| x[0].as_strided(&[3, 4], &[2, 2], 1)),
        case("view", &[x(10, &[2, 4])], |x| x[0].view(Dtype::Int16)),
        case("einsum diagonal", &[x(11, &[3, 3])], |x| einsum("ii->i", &[&x[0]])),
        case("einsum", &[x(12, &[3, 4]), x(13, &[4, 2])], |x| einsum("ij,jk->ik", &[&x[0], &x[1]])),
        case("stop_gradient", &[t], |x| transform::stop_gradient(&x[0])?.multiply(&x[0])),
    ]
}

fn indexing() -> Vec<Case> {
    let t = x(1, &[4, 3]);
    let at = ints(&[2, 0, -1]);
    vec![
        case("take", &[t.clone(), at.clone()], |x| x[0].take(&x[1], Some(0))),
        case("gather", &[t.clone(), at.clone()], |x| x[0].gather(&x[1..], &[0], &[2, 3])),
        case("take_along_axis", &[t.clone()], |x| x[0].take_along_axis(&x[0].argsort(Some(0))?, Some(0))),
        case("put_along_axis", &[t.clone(), x(2, &[1, 3])], |x| {
            x[0].put_along_axis(&Array::zeros(&[1, 3], Dtype::Int32)?, &x[1], Some(0))
        }),
        case("scatter", &[t.clone(), at.clone(), x(3, &[3, 1, 3])], |x| x[0].scatter(&x[1..2], &x[2], &[0])),
        case("scatter_max", &[t.clone(), at.clone(), x(3, &[3, 1, 3])], |x| {
            x[0].scatter_max(&x[1..2], &x[2], &[0])
        }),
        case("index", &[t.clone()], |x| x[0].index([Index::Int(-1)])),
        case("index_update", &[t.clone(), x(4, &[2, 3])], |x| {
            x[0].index_update([Index::Slice { start: Some(1), stop: Some(3), step: 1 }], &x[1], Update::Add)
        }),
        case("slice_update", &[t.clone(), x(5, &[1, 2])], |x| {
            x[0].slice_update(&x[1], &[3, 2], &[isize::MIN, isize::MIN], &[-2, -2])
        }),
        case("dynamic_slice", &[t.clone(), ints(&[1])], |x| x[0].dynamic_slice(&x[1], &[0], &[2, 3])),
        case("dynamic_slice_update", &[t.clone(), x(6, &[2, 3]), ints(&[1])], |x| {
            x[0].dynamic_slice_update(&x[1], &x[2], &[0])
        }),
        case("append", &[x(1, &[1, 2, 2, 3]), x(2, &[1, 2, 1, 3])], |x| fast::append(&x[0], &x[1], &[2], 4)),
        case("sort", &[t.clone()], |x| x[0].sort(Some(0))),
        case("partition", &[t.clone()], |x| x[0].partition(-2, Some(0))),
        case("argpartition", &[t.clone()], |x| x[0].argpartition(1, Some(1))),
        case("topk", &[t.clone()], |x| x[0].topk(2, Some(0))),
        case("median", &[t.clone()], |x| x[0].median(0)),
        case("searchsorted", &[x(7, &[5]), x(8, &[2, 2])], |x| x[0].sort(None)?.searchsorted(&x[1], true)),
        many("unique", &[ints(&[3, 1, 3, 2]).reshape(&[2, 2]).unwrap()], |x| {
            let found = x[0].unique(3, None)?;
            Ok(vec![found.values, found.index, found.inverse, found.counts])
        }),
    ]
}

fn reductions() -> Vec<Case> {
    let t = x(1, &[4, 3]);
    let mut cases = vec![
        case("sum", &[t.clone()], |x| x[0].sum(axes(0).keepdims())),
        case("sum of bools", &[t.clone()], |x| x[0].greater(0)?.sum(())),
        case("mean", &[t.clone()], |x| x[0].mean(())),
        case("prod", &[t.clone()], |x| x[0].prod(1)),
        case("max", &[t.clone()], |x| x[0].max(1)),
        case("min", &[t.clone()], |x| x[0].min(axes(()).keepdims())),
        case("all", &[t.clone()], |x| x[0].greater(-2)?.all(())),
        case("any", &[t.clone()], |x| x[0].greater(2)?.any(0)),
        case("var", &[t.clone()], |x| x[0].var(0, 1)),
        case("std", &[t.clone()], |x| x[0].std((), 0)),
        case("argmax", &[t.clone()], |x| x[0].argmax(1)),
        case("argmin", &[t.clone()], |x| x[0].argmin(())),
        case("logsumexp", &[t.clone()], |x| x[0].logsumexp(1)),
        case("softmax", &[t.clone()], |x| x[0].softmax(-1)),
        case("cross_entropy", &[t.clone(), ints(&[0, 2, 1, -1])], |x| fast::cross_entropy(&x[0], &x[1])),
        case("rms_norm", &[t.clone(), x(2, &[3])], |x| fast::rms_norm(&x[0], Some(&x[1]), 1e-5)),
        case("layer_norm", &[t.clone(), x(3, &[3])], |x| fast::layer_norm(&x[0], None, Some(&x[1]), 1e-5)),
    ];
    for (name, kind) in [("cumsum", 0), ("cumprod", 1), ("cummax", 2), ("cummin", 3), ("logcumsumexp", 4)] {
        cases.push(case(name, &[t.clone()], move |x| match kind {
            0 => x[0].cumsum(Some(0), true, false),
            1 => x[0].cumprod(Some(1), false, true),
            2 => x[0].cummax(Some(0), false, true),
            3 => x[0].cummin(Some(0), true, true),
            _ => x[0].logcumsumexp(Some(0), false, true),
        }));
    }
    cases
}

fn products() -> Vec<Case> {
    let (a, b) = (x(1, &[2, 3, 4]), x(2, &[4, 5]));
    let q = x(3, &[1, 4, 3, 8]);
    let kv = x(4, &[1, 2, 5, 8]);
    vec![
        case("matmul", &[a.clone(), b.clone()], |x| x[0].matmul(&x[1])),
        case("matmul of vectors", &[x(1, &[4]), x(2, &[4])], |x| x[0].matmul(&x[1])),
        case("addmm", &[x(5, &[5]), a.clone(), b], |x| x[0].addmm(&x[1], &x[2], 0.5, 2.0)),
        case("gather_mm", &[a.clone(), x(6, &[3, 4, 2]), ints(&[2, 0])], |x| {
            x[0].gather_mm(&x[1], None, Some(&x[2]))
        }),
        case("segmented_mm", &[x(1, &[2, 6]), x(2, &[6, 3]), ints(&[0, 2, 2, 6])], |x| {
            x[0].segmented_mm(&x[1], &x[2].reshape(&[2, 2])?)
        }),
        case("conv", &[x(7, &[1, 9, 4]), x(8, &[2, 3, 2])], |x| {
            let conv = Conv { stride: vec![2], padding: vec![(1, 2)], groups: 2, ..Conv::default() };
            x[0].conv_general(&x[1], &conv)
        }),
        case("attention", &[q.clone(), kv.clone()], |x| {
            fast::scaled_dot_product_attention(&x[0], &x[1], &x[1], 0.3, fast::AttentionMask::Causal, None)
        }),
        case("masked attention", &[q.clone(), kv, x(9, &[3, 5]), x(10, &[4])], |x| {
            let mask = fast::AttentionMask::Array(&x[2]);
            fast::scaled_dot_product_attention(&x[0], &x[1], &x[1], 0.3, mask, Some(&x[3]))
        }),
        case("rope", &[q.clone()], |x| fast::rope(&x[0], 8, false, Some(1e4), 1.0, 3, None)),
        case("rope by frequencies", &[q, ints(&[2]), x(11, &[4])], |x| {
            fast::rope(&x[0], 8, true, None, 1.0, &x[1], Some(&x[2]))
        }),
        case("hadamard", &[x(12, &[2, 12])], |x| x[0].hadamard_transform(None)),
        case("fft", &[x(13, &[2, 6])], |x| fft::fft(&x[0], Some(8), -1, fft::Norm::Ortho)),
        case("irfft", &[x(14, &[2, 6])], |x| {
            fft::irfft(&fft::rfft(&x[0], None, 0, fft::Norm::Backward)?, Some(3), 0, fft::Norm::Backward)
        }),
        many("gated_delta", &[x(15, &[1, 2, 1, 4]), x(16, &[1, 2, 1, 4]), x(17, &[1, 2, 1])], |x| {
            let (answers, state) = fast::gated_delta_update(&x[0], &x[0], &x[1], &x[2], &x[2], None, None)?;
            Ok(vec![answers, state])
        }),
    ]
}

fn matrices() -> Vec<Case> {
    let a = positive_definite(3);
    vec![
        case("inv", &[a.clone()], |x| linalg::inv(&x[0])),
        case("tri_inv", &[a.clone()], |x| linalg::tri_inv(&x[0], true)),
        case("solve", &[a.clone(), x(2, &[3])], |x| linalg::solve(&x[0], &x[1])),
        case("solve_triangular", &[a.clone(), x(2, &[3, 2])], |x| {
            linalg::solve_triangular(&x[0], &x[1], false)
        }),
        case("cholesky", &[a.clone()], |x| linalg::cholesky(&x[0], true)),
        case("det", &[a.clone()], |x| linalg::det(&x[0])),
        many("qr", &[x(3, &[4, 3])], |x| linalg::qr(&x[0]).map(|(q, r)| vec![q, r])),
        many("svd", &[x(3, &[4, 3])], |x| linalg::svd(&x[0]).map(|(u, s, v)| vec![u, s, v])),
        case("singular_values", &[x(3, &[4, 3])], |x| linalg::singular_values(&x[0])),
        many("eigh", &[a.clone()], |x| linalg::eigh(&x[0], false).map(|(v, w)| vec![v, w])),
        case("eigvalsh", &[a.clone()], |x| linalg::eigvalsh(&x[0], true)),
        many("eig", &[a.clone()], |x| linalg::eig(&x[0]).map(|(v, w)| vec![v, w])),
        case("eigvals", &[a], |x| linalg::eigvals(&x[0])),
    ]
}

fn quantized() -> Vec<Case> {
    let w = x(1, &[4, 64]);
    let stack = x(2, &[3, 4, 64]);
    let affine = QuantMode::Affine;
    let packed = PackedArray::quantize(&w, PackedFormat::Q8_0).unwrap();
    let bytes = packed.bytes().clone();
    vec![
        many("quantize", &[w.clone()], move |x| {
            let (codes, scales, biases) = x[0].quantize(None, None, affine)?;
            Ok([codes, scales].into_iter().chain(biases).collect())
        }),
        case("dequantize", &[w.clone()], |x| {
            let (codes, scales, _) = x[0].quantize(None, None, QuantMode::Mxfp8)?;
            codes.dequantize(&scales, None, None, None, QuantMode::Mxfp8, None)
        }),
        case("quantized_matmul", &[x(3, &[2, 2, 64])], move |x| {
            let (codes, scales, biases) = w.quantize(None, None, affine)?;
            x[0].quantized_matmul(&codes, &scales, biases.as_ref(), true, None, None, affine)
        }),
        case("gather_qmm", &[x(4, &[2, 1, 64]), ints(&[2, 0])], move |x| {
            let (codes, scales, biases) = stack.quantize(None, None, affine)?;
            x[0].gather_qmm(&codes, &scales, biases.as_ref(), None, Some(&x[1]), true, None, None, affine)
        }),
        case("fp8", &[x(5, &[5])], |x| x[0].to_fp8()?.from_fp8(Dtype::Float32)),
        case("packed_matmul", &[x(6, &[2, 64])], move |x| packed.matmul(&x[0])),
        case("packed rows", &[bytes.clone(), ints(&[3, 0])], |x| {
            PackedArray::new(&x[0], PackedFormat::Q8_0, &[4, 64])?.rows(&x[1], Dtype::Float16)
        }),
        case("unpacked", &[bytes], |x| {
            PackedArray::new(&x[0], PackedFormat::Q8_0, &[4, 64])?.dequantize(Dtype::Float32)
        }),
    ]
}

fn others() -> Vec<Case> {
    let key = random::key(7).unwrap();
    let source = "uint i = thread_position_in_grid.x; out[i] = T(inp[i]) * N;";
    let kernel = CustomKernel::new("scaled", &["inp"], &["out"], source).unwrap();
    let function = CustomFunction::new(|x| Ok(vec![x[0].sin()?, x[0].cos()?]))
        .with_vjp(|_, cotangents, _| Ok(vec![cotangents[0].multiply(7)?]));
    let compiled = transform::compile(|x| Ok(vec![x[0].exp()?.add(1.0)?]));
    let again = transform::checkpoint(|x| Ok(vec![x[0].exp()?.sin()?]));
    vec![
        case("random uniform", &[key.clone()], |x| {
            random::uniform(0.0, 1.0, &[3], Dtype::Float32, Some(&x[0]))
        }),
        case("random normal", &[key.clone()], |x| {
            random::normal(&[3], Dtype::Complex64, 0.0, 1.0, Some(&x[0]))
        }),
        case("permutation", &[key.clone(), x(1, &[4, 2])], |x| random::permute(&x[1], 0, Some(&x[0]))),
        case("categorical", &[key, x(2, &[2, 5])], |x| {
            random::categorical(&x[1], -1, random::Draws::One, Some(&x[0]))
        }),
        case("custom kernel", &[x(3, &[4])], move |x| {
            let call = kernel.call(x).grid([4, 1, 1]).threadgroup([4, 1, 1]);
            let call = call.template_dtype("T", Dtype::Float32).template_int("N", 3);
            Ok(call.output(&[4], Dtype::Float32).run()?.remove(0))
        }),
        many("custom function", &[x(4, &[3])], move |x| function.call(x)),
        case("compiled function", &[x(5, &[3])], move |x| Ok(compiled(x)?.remove(0))),
        case("checkpoint", &[x(6, &[3])], move |x| Ok(again(x)?.remove(0))),
        many("depends", &[x(7, &[3])], |x| transform::depends(&[x[0].exp()?], &[x[0].sin()?])),
        many("arguments and constants", &[x(8, &[3])], |x| Ok(vec![x[0].clone(), ints(&[1, 2])])),
    ]
}

fn all() -> Vec<Case> {
    [elementwise(), movement(), indexing(), reductions(), products(), matrices(), quantized(), others()]
        .into_iter()
        .flatten()
        .collect()
}

#[test]
fn every_op_round_trips_with_the_same_bits() {
    for Case { name, function, inputs } in all() {
        let imported = round_trip(&function, &inputs).unwrap_or_else(|error| panic!("{name}: {error}"));
        let found = imported.call(&inputs, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(bits(&found), bits(&function(&inputs).unwrap()), "{name}");
    }
}

#[test]
fn derivatives_round_trip_with_the_same_bits() {
    let mut tried = 0;
    for Case { name, function, inputs } in all() {
        let slope = |x: &[Array]| {
            let ones =
                |outputs: &[Array]| outputs.iter().map(|one| Some(one.ones_like()).transpose()).collect();
            Ok(transform::vjp_with(&function, x, ones)?.1)
        };
        let Ok(expected) = slope(&inputs) else { continue };
        if hesper::eval(&expected).is_err() {
            continue;
        }
        tried += 1;
        let imported = round_trip(slope, &inputs).unwrap_or_else(|error| panic!("{name}: {error}"));
        let found = imported.call(&inputs, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(bits(&found), bits(&expected), "{name}");
    }
    assert!(tried > 60, "{tried} functions have a derivative");
}

#[test]
fn vmapped_functions_are_exported_and_imported() {
    for Case { name, function, inputs } in all() {
        let batched: Vec<Array> =
            inputs.iter().map(|one| stack(&[one.clone(), one.clone()], 0).unwrap()).collect();
        let vmapped = |x: &[Array]| {
            let axes = vec![Some(0); x.len()];
            transform::vmap_with(&function, x, &axes, |count| Ok(vec![Some(0); count]))
        };
        let Ok(expected) = vmapped(&batched) else { continue };
        if hesper::eval(&expected).is_err() {
            continue;
        }
        let imported = round_trip(vmapped, &batched).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(bits(&imported.call(&batched, &[]).unwrap()), bits(&expected), "{name}");
    }
}

#[test]
fn an_imported_function_is_differentiated_vectorised_and_compiled() {
    let imported = round_trip(|x| Ok(vec![x[0].square()?.sum(())?]), &[x(1, &[3])]).unwrap();
    let f = |x: &[Array]| imported.call(x, &[]);
    let given = x(2, &[3]);
    let slope = transform::grad(|x: &[Array]| Ok(f(x)?.remove(0)), &[0])(&[given.clone()]).unwrap();
    assert_eq!(bits(&slope), bits(&[given.multiply(2.0).unwrap()]));
    let rows = transform::vmap(f, &[Some(0)], &[Some(0)])(&[x(3, &[4, 3])]).unwrap();
    assert_eq!(rows[0].shape(), [4]);
    let compiled = transform::compile(f)(&[given.clone()]).unwrap();
    assert_eq!(bits(&compiled), bits(&f(&[given]).unwrap()));
}

/// The outputs for other shapes than those that the function was exported with.
fn free(f: impl Fn(&[Array]) -> Result<Vec<Array>>, traced: &[Array], given: &[Array]) -> Result<Vec<Array>> {
    let file = Folder::new();
    export_function(&file.0, &f, traced, true)?;
    import_function(&file.0)?.call(given, &[])
}

#[test]
fn shapes_may_be_free() {
    type One = Box<dyn Fn(&[Array]) -> Result<Array>>;
    type Shapes = Vec<&'static [usize]>;
    let list: Vec<(&str, One, Shapes, Shapes)> = vec![
        ("add", Box::new(|x| x[0].add(&x[1])), vec![&[3], &[3]], vec![&[5], &[1]]),
        ("reshape", Box::new(|x| x[0].reshape(&[-1, 2])), vec![&[4, 6]], vec![&[3, 6]]),
        (
            "split axis",
            Box::new(|x| x[0].reshape(&[x[0].shape()[0] as isize, 2, 3])),
            vec![&[4, 6]],
            vec![&[5, 6]],
        ),
        ("flatten", Box::new(|x| x[0].flatten(0, -1)), vec![&[4, 6]], vec![&[3, 5]]),
        ("unflatten", Box::new(|x| x[0].unflatten(1, &[2, -1])), vec![&[4, 6]], vec![&[3, 6]]),
        ("expand", Box::new(|x| x[0].expand_dims(1)?.add(x[0].expand_dims(0)?)), vec![&[4]], vec![&[3]]),
        ("squeeze", Box::new(|x| x[0].squeeze(1)), vec![&[4, 1]], vec![&[3, 1]]),
        ("matmul", Box::new(|x| x[0].matmul(&x[1])), vec![&[4, 6], &[6, 2]], vec![&[3, 5], &[5, 7]]),
        ("t", Box::new(|x| x[0].t()?.matmul(&x[0])), vec![&[4, 6]], vec![&[3, 5]]),
        ("mean", Box::new(|x| x[0].mean(0)), vec![&[4, 6]], vec![&[3, 6]]),
        ("var", Box::new(|x| x[0].var((), 1)), vec![&[4, 6]], vec![&[3, 6]]),
        ("softmax", Box::new(|x| x[0].softmax(-1)), vec![&[4, 6]], vec![&[3, 7]]),
        ("first", Box::new(|x| x[0].index([Index::Int(0)])), vec![&[4, 6]], vec![&[5, 6]]),
        (
            "columns",
            Box::new(|x| x[0].slice(&[0, 1], &[isize::MAX, 3], &[1, 1])),
            vec![&[4, 6]],
            vec![&[5, 6]],
        ),
        ("flip", Box::new(|x| x[0].flip(0)), vec![&[4, 6]], vec![&[5, 6]]),
        ("take", Box::new(|x| x[0].take(ints(&[1, 0]), Some(1))), vec![&[4, 6]], vec![&[5, 7]]),
        ("sort", Box::new(|x| x[0].sort(Some(0))), vec![&[4, 6]], vec![&[5, 7]]),
        (
            "conv",
            Box::new(|x| x[0].conv1d(&x[1], 2, 1, 1, 1)),
            vec![&[1, 9, 4], &[2, 3, 4]],
            vec![&[3, 12, 4], &[2, 3, 4]],
        ),
        ("concatenate", Box::new(|x| concatenate(x, 0)), vec![&[4, 6], &[2, 6]], vec![&[5, 7], &[1, 7]]),
        (
            "addmm",
            Box::new(|x| x[1].addmm(&x[0], &x[2], 1.0, 1.0)),
            vec![&[3, 6], &[4], &[6, 4]],
            vec![&[5, 6], &[4], &[6, 4]],
        ),
        ("zeros_like", Box::new(|x| x[0].zeros_like()?.subtract(&x[0])), vec![&[4]], vec![&[5]]),
        (
            "gradient",
            Box::new(|x| Ok(transform::grad(|x| x[0].square()?.sum(()), &[0])(x)?.remove(0))),
            vec![&[3, 4]],
            vec![&[5, 4]],
        ),
        (
            "gradient of a mean",
            Box::new(|x| Ok(transform::grad(|x| x[0].square()?.mean(()), &[0])(x)?.remove(0))),
            vec![&[3, 4]],
            vec![&[5, 4]],
        ),
        (
            "gradient of a deviation",
            Box::new(|x| Ok(transform::grad(|x| x[0].std((), 1), &[0])(x)?.remove(0))),
            vec![&[3, 4]],
            vec![&[5, 2]],
        ),
        (
            "attention",
            Box::new(|x| {
                let mask = fast::AttentionMask::Array(&x[1]);
                fast::scaled_dot_product_attention(&x[0], &x[0], &x[0], 1.0, mask, None)
            }),
            vec![&[1, 2, 3, 4], &[3, 3]],
            vec![&[2, 2, 5, 4], &[5, 5]],
        ),
    ];
    for (name, f, traced, given) in list {
        let arrays = |shapes: &[&[usize]]| -> Vec<Array> {
            shapes.iter().enumerate().map(|(at, shape)| x(at, shape)).collect()
        };
        let f = |x: &[Array]| Ok(vec![f(x)?]);
        let given = arrays(&given);
        let found = free(f, &arrays(&traced), &given).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(bits(&found), bits(&f(&given).unwrap()), "{name}");
    }
}

/// The shape of a function's result for another shape than it was traced with.
fn free_shape(f: fn(&Array) -> Result<Array>, traced: &[usize], given: &[usize]) -> Result<Vec<usize>> {
    let results = free(|x| Ok(vec![f(&x[0])?]), &[x(1, traced)], &[x(2, given)])?;
    Ok(results[0].shape().to_vec())
}

#[test]
fn calls_that_name_axes_change_the_same_axes_of_other_shapes() -> Result<()> {
    assert_eq!(free_shape(|x| x.expand_dims(1), &[1, 1], &[1, 3])?, [1, 1, 3]);
    assert_eq!(free_shape(|x| x.index([Index::all(), Index::NewAxis]), &[1, 1], &[1, 3])?, [1, 1, 3]);
    assert_eq!(free_shape(|x| x.squeeze(0), &[1, 1], &[1, 3])?, [3]);
    assert_eq!(free_shape(|x| x.index([Index::all(), Index::Int(0)]), &[1, 1], &[3, 1])?, [3]);
    assert_eq!(free_shape(|x| x.flatten(0, 1), &[1, 3, 3], &[2, 5, 3])?, [10, 3]);
    assert_eq!(free_shape(|x| x.unflatten(0, &[4, -1]), &[4, 3], &[8, 5])?, [4, 2, 5]);
    for wrong in [
        free_shape(|x| x.squeeze(1), &[4, 1], &[1, 3]),
        free_shape(|x| x.unflatten(0, &[2, -1]), &[4, 3], &[7, 3]),
    ] {
        assert!(wrong.unwrap_err().to_string().contains("does not follow"));
    }
    Ok(())
}

#[test]
fn constants_that_are_not_computed_become_steps() -> Result<()> {
    let weight = x(3, &[4]);
    let graph = Graph::trace(&[x(1, &[4])], &[], false, |x| -> Result<Vec<Array>> {
        let range = Array::arange(4, Some(Dtype::Float32))?.multiply(&weight)?;
        let (codes, ..) = Array::ones(&[2, 64], Dtype::Float32)?.quantize(None, None, QuantMode::Affine)?;
        Ok(vec![x[0].add(range)?, codes, x[0].clone()])
    })?;
    assert_eq!((graph.constants().len(), graph.steps().len()), (2, 1));
    let whole = graph.expanded();
    let names: Vec<&str> = whole.steps().iter().map(|step| step.op.as_ref()).collect();
    assert_eq!(names, ["arange", "multiply", "full", "quantize", "add"]);
    assert_eq!(whole.steps()[4].inputs, [ValueRef::Argument(0), ValueRef::Value(1)]);
    assert_eq!(whole.outputs(), [ValueRef::Value(6), ValueRef::Value(3), ValueRef::Argument(0)]);
    assert!(whole.constants().iter().all(Array::is_evaluated));
    Ok(())
}

#[test]
fn a_shape_that_cannot_be_inferred_is_an_error_that_names_the_op() {
    let slice = |x: &[Array]| Ok(vec![x[0].slice(&[0], &[-1], &[1])?]);
    let error = free(slice, &[x(1, &[4])], &[x(1, &[6])]).unwrap_err().to_string();
    assert!(error.contains("`slice`") && error.contains("[6]") && error.contains("[4]"), "{error}");
    let reshape = |x: &[Array]| Ok(vec![x[0].reshape(&[2, 3])?]);
    assert!(free(reshape, &[x(1, &[6])], &[x(1, &[8])]).unwrap_err().to_string().contains("`reshape`"));
    // With two for the first axis, or with its length?
    let reshape = |x: &[Array]| Ok(vec![x[0].reshape(&[2, -1])?]);
    assert!(free(reshape, &[x(1, &[2, 3, 4])], &[x(1, &[4, 3, 4])]).is_err());
    let mean = |x: &[Array]| Ok(vec![x[0].mean(0)?]);
    assert!(free(mean, &[x(1, &[1, 2])], &[x(1, &[4, 2])]).is_err());
}

#[test]
fn one_file_holds_several_traces_and_each_constant_once() {
    let file = Folder::new();
    let weight = x(1, &[64, 64]);
    let mut exporter = Exporter::new(&file.0).metadata("{\"layers\": 2}");
    for count in 1..4 {
        let f = |x: &[Array]| Ok::<_, Error>(vec![x[0].matmul(&weight)?]);
        exporter.trace(&[x(2, &[count, 64])], &[], f).unwrap();
    }
    let again = exporter.trace(&[x(2, &[1, 64])], &[], |x| Ok::<_, Error>(x.to_vec())).unwrap_err();
    assert!(again.to_string().contains("only once"), "{again}");
    exporter.finish().unwrap();
    let length = std::fs::metadata(&file.0).unwrap().len();
    assert!(length < 2 * 64 * 64 * 4, "{length} bytes");
    let imported = import_function(&file.0).unwrap();
    assert_eq!(imported.metadata(), "{\"layers\": 2}");
    assert_eq!(imported.signatures().count(), 3);
    let given = x(3, &[2, 64]);
    assert_eq!(bits(&imported.call(&[given.clone()], &[]).unwrap()), bits(&[given.matmul(&weight).unwrap()]));
}

#[test]
fn constants_are_stored_in_their_layout() {
    let weight = x(1, &[32, 16]);
    let f = |x: &[Array]| {
        let turned = weight.t()?;
        let wide = Array::from_slice(&[1.0f32]).broadcast_to(&[1000, 1000])?;
        Ok(vec![
            x[0].matmul(&turned)?,
            x[0].matmul(&turned)?.matmul(&weight)?,
            wide.multiply(&x[0].sum(())?)?,
        ])
    };
    let file = Folder::new();
    let given = x(2, &[3, 16]);
    export_function(&file.0, f, &[given.clone()], false).unwrap();
    let length = std::fs::metadata(&file.0).unwrap().len();
    assert!(length < 32 * 16 * 4 + 2000, "{length} bytes");
    let imported = import_function(&file.0).unwrap();
    assert_eq!(imported.graphs()[0].constants().len(), 2);
    assert_eq!(bits(&imported.call(&[given.clone()], &[]).unwrap()), bits(&f(&[given]).unwrap()));
}

#[test]
fn arguments_are_positional_or_named() {
    let file = Folder::new();
    let mut exporter = Exporter::new(&file.0);
    let named = [("z".to_string(), x(2, &[2])), ("b".to_string(), x(3, &[3]))];
    // Named arguments are sorted by name.
    exporter
        .trace(&[x(1, &[1])], &named, |x| {
            assert_eq!((x[1].shape(), x[2].shape()), (&[3][..], &[2][..]));
            Ok::<_, Error>(vec![x[0].add(&x[1])?, x[2].negative()?])
        })
        .unwrap();
    exporter.finish().unwrap();
    let f = import_function(&file.0).unwrap();
    let (a, b, z) = (x(4, &[1]), x(5, &[3]), x(6, &[2]));
    let found = f.call(&[a.clone()], &[("z", &z), ("b", &b)]).unwrap();
    assert_eq!(bits(&found), bits(&[a.add(&b).unwrap(), z.negative().unwrap()]));
    for wrong in [
        f.call(&[a.clone()], &[("z", &z)]),
        f.call(&[a.clone()], &[("z", &z), ("c", &b)]),
        f.call(&[a.clone(), b.clone(), z.clone()], &[]),
        f.call(&[a.astype(Dtype::Float16).unwrap()], &[("z", &z), ("b", &b)]),
        f.call(&[b.clone()], &[("z", &z), ("b", &b)]),
    ] {
        let text = wrong.unwrap_err().to_string();
        assert!(text.contains("1 positional inputs and 2 keyword inputs"), "{text}");
        assert!(text.contains("1: (1) float32") && text.contains("\"b\": (3) float32"), "{text}");
    }
}

#[test]
fn an_op_that_cannot_be_exported_is_named() {
    let leaked = transform::grad(
        |outer: &[Array]| {
            round_trip(|x| Ok(vec![x[0].add(&outer[0])?]), &[x(1, &[2])])?;
            outer[0].sum(())
        },
        &[0],
    );
    let error = leaked(&[x(1, &[2])]).unwrap_err().to_string();
    assert!(error.contains("another transformation"), "{error}");
    let evaluated = round_trip(|x| x[0].exp()?.eval().map(|()| x.to_vec()), &[x(1, &[2])]).unwrap_err();
    assert!(evaluated.to_string().contains("export_function"), "{evaluated}");
}

#[test]
fn a_graph_lists_its_steps() {
    let bias = x(1, &[2]);
    let graph = Graph::trace(&[x(2, &[3, 2])], &[], false, |x| {
        Ok::<_, Error>(vec![x[0].t()?.t()?.add(&bias)?.sum(0)?])
    })
    .unwrap();
    let names: Vec<&str> = graph.steps().iter().map(|step| &*step.op).collect();
    assert_eq!(names, ["transpose", "transpose", "add", "reduce"]);
    assert_eq!(graph.steps()[0].attributes[0].1, Value::Ints(vec![1, 0]));
    assert_eq!(graph.steps()[2].inputs, [ValueRef::Value(1), ValueRef::Constant(0)]);
    assert_eq!(graph.meta(graph.outputs()[0]), Some((&[2][..], Dtype::Float32)));
}

/// The checksum, as the format is documented.
fn checksum(bytes: &[u8]) -> u64 {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len() / 8 * 8 + 8, 0);
    padded.chunks_exact(8).fold(bytes.len() as u64, |sum, word| {
        let word = u64::from_le_bytes(word.try_into().unwrap());
        (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

/// A file of a body and constants, with the right checksums and lengths.
fn assembled(body: &[u8], data: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 64];
    file[..8].copy_from_slice(b"HESPERFN");
    file[8] = 1;
    file.extend(body);
    file.resize(file.len().next_multiple_of(64), 0);
    file.extend(data);
    let length = file.len() as u64;
    file[16..24].copy_from_slice(&(body.len() as u64).to_le_bytes());
    file[24..32].copy_from_slice(&checksum(body).to_le_bytes());
    file[32..40].copy_from_slice(&length.to_le_bytes());
    let sum = checksum(&file[..40]);
    file[40..48].copy_from_slice(&sum.to_le_bytes());
    file
}

/// A file of a function of many ops.
fn sample(shapeless: bool) -> Vec<u8> {
    let weight = x(1, &[4, 4]);
    let f = |a: &[Array]| {
        let y = a[0].matmul(&weight)?.softmax(-1)?;
        let z = y.reshape(&[-1])?.sort(Some(0))?.reshape(&[2, 3, 4])?.transpose(&[1, 0, 2])?;
        let z = z.slice(&[0, 1, 3], &[3, 2, -9], &[1, 1, -1])?.mean(axes(0).keepdims())?;
        let (q, r) = linalg::qr(&y.slice(&[0, 0, 0], &[1, 3, 4], &[1, 1, 1])?.squeeze(0)?)?;
        let w = fast::rms_norm(&y, Some(&a[1]), 1e-5)?.take(ints(&[1, 0]), Some(1))?;
        let gone = y.scatter_add(&[ints(&[0])], &Array::ones(&[1, 1, 3, 4], Dtype::Float32)?, &[0])?;
        let wave = fft::rfft(&y, None, -1, fft::Norm::Backward)?.abs()?.cumsum(Some(1), false, true)?;
        let folded = y.conv1d(&Array::ones(&[1, 2, 4], Dtype::Float32)?, 1, 0, 1, 1)?;
        Ok(vec![z, q, r, w, gone, wave, folded, y.pad(&[(1, 1)], &Pad::Constant(2.into()))?])
    };
    let file = Folder::new();
    export_function(&file.0, f, &[x(2, &[2, 3, 4]), x(3, &[4])], shapeless).unwrap();
    std::fs::read(&file.0).unwrap()
}

/// The body of a file, and its constants.
fn parts(file: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let length = u64::from_le_bytes(file[16..24].try_into().unwrap()) as usize;
    (file[64..64 + length].to_vec(), file[(64 + length).next_multiple_of(64)..].to_vec())
}

#[test]
fn damaged_files_are_errors_that_name_the_damage() {
    let file = sample(false);
    assert!(Imported::from_bytes(file.clone()).is_ok());
    let text = |bytes: Vec<u8>| Imported::from_bytes(bytes).unwrap_err().to_string();
    assert!(text(Vec::new()).contains("0 bytes"));
    assert!(text(b"not a function at all".repeat(9)).contains("does not begin"));
    let mut newer = file.clone();
    newer[8] = 2;
    assert!(text(newer).contains("version 2: this build reads version 1"));
    for at in [20, 33, 45] {
        let mut damaged = file.clone();
        damaged[at] ^= 1;
        assert!(text(damaged).contains("header is damaged"));
    }
    let mut damaged = file.clone();
    damaged[100] ^= 1;
    assert!(text(damaged).contains("body is damaged"));
    let mut damaged = file.clone();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert!(text(damaged).contains("is damaged"));
    for length in [10, 64, 100, file.len() / 2, file.len() - 1] {
        assert!(Imported::from_bytes(&file[..length]).is_err(), "{length} bytes");
    }
    let mut longer = file.clone();
    longer.push(0);
    assert!(text(longer).contains("in a file of"));
}

#[test]
fn no_file_causes_a_panic() {
    let mut seed = 0x1234_5678_9abc_def0u64;
    let mut next = move |limit: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % limit as u64) as usize
    };
    let (mut opened, mut ran) = (0, 0);
    for shapeless in [false, true] {
        let (whole, data) = parts(&sample(shapeless));
        assert_eq!(assembled(&whole, &data), sample(shapeless));
        for round in 0..4000 {
            let mut body = whole.clone();
            for _ in 0..1 + next(3) {
                let at = next(body.len());
                match next(6) {
                    0 => body[at] = next(256) as u8,
                    1 => body[at] ^= 1 << next(8),
                    2 => body[at] = body[at].wrapping_add(1),
                    3 => body[at] = [0, 1, 0x7f, 0x80, 0xff][next(5)],
                    4 => {
                        // A piece of it in another place.
                        let from = next(body.len());
                        let piece: Vec<u8> = body[from..].iter().take(1 + next(16)).copied().collect();
                        let end = (at + piece.len()).min(body.len());
                        body[at..end].copy_from_slice(&piece[..end - at]);
                    }
                    _ => {
                        let end = (at + 1 + next(8)).min(body.len());
                        body.drain(at..end);
                    }
                }
            }
            let Ok(imported) = Imported::from_bytes(assembled(&body, &data)) else { continue };
            opened += 1;
            let small = |graph: &Graph| {
                let sizes = graph.steps().iter().flat_map(|step| &step.outputs);
                sizes.map(|(shape, _)| shape.iter().product::<usize>()).all(|size| size < 1 << 16)
            };
            if !imported.graphs().iter().all(small) {
                continue;
            }
            let other = if shapeless { 1 + round % 4 } else { 2 };
            if let Ok(outputs) = imported.call(&[x(2, &[other, 3, 4]), x(3, &[4])], &[]) {
                ran += 1;
                for output in outputs {
                    let outcome = output.eval().map_err(|error| error.to_string());
                    assert!(!outcome.is_err_and(|text| text.contains("panic")), "round {round}");
                }
            }
        }
    }
    assert!(opened > 80 && ran > 20, "{opened} files opened, {ran} functions ran");
}

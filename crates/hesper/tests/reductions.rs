//! Reductions, scans and sorts of sizes that reach all paths: segments, blocks, wide rows, many cores.

use hesper::{Array, Dtype, axes};

/// Whole numbers whose sums are exact in float32.
fn grid(shape: &[usize]) -> (Vec<f32>, Array) {
    let numbers: Vec<f32> =
        (0..shape.iter().product::<usize>()).map(|at| (at * 7919 % 13) as f32 - 6.0).collect();
    let array = Array::try_from_slice(&numbers, shape).unwrap();
    (numbers, array)
}

#[test]
fn sums_over_any_axis_of_large_arrays_are_exact() {
    let (a, b, c) = (37, 260, 41);
    let (numbers, x) = grid(&[a, b, c]);
    let at = |i: usize, j: usize, k: usize| numbers[(i * b + j) * c + k];
    let all: f32 = numbers.iter().sum();
    assert_eq!(x.sum(()).unwrap().item::<f32>().unwrap(), all);
    let expect = |over: &[isize], f: &dyn Fn(usize, usize, usize) -> usize, size: usize| {
        let mut sums = vec![0.0; size];
        for i in 0..a {
            for j in 0..b {
                for k in 0..c {
                    sums[f(i, j, k)] += at(i, j, k);
                }
            }
        }
        assert_eq!(x.sum(over).unwrap().to_vec::<f32>().unwrap(), sums, "over {over:?}");
    };
    expect(&[0], &|_, j, k| j * c + k, b * c);
    expect(&[1], &|i, _, k| i * c + k, a * c);
    expect(&[2], &|i, j, _| i * b + j, a * b);
    expect(&[0, 1], &|_, _, k| k, c);
    expect(&[0, 2], &|_, j, _| j, b);
    expect(&[1, 2], &|i, _, _| i, a);
}

#[test]
fn transposed_reversed_and_strided_views_reduce_without_a_copy_and_right() {
    let (_, x) = grid(&[300, 500]);
    let views = [
        x.t().unwrap(),
        x.slice(&[-1, -1], &[-301, -501], &[-1, -1]).unwrap(),
        x.slice(&[0, 1], &[300, 500], &[3, 2]).unwrap(),
        x.slice(&[0, 0], &[1, 500], &[1, 1]).unwrap().broadcast_to(&[40, 500]).unwrap(),
    ];
    for view in views {
        let copy = Array::try_from_slice(&view.to_vec::<f32>().unwrap(), view.shape()).unwrap();
        for over in [Some(&[0isize][..]), Some(&[1]), None] {
            let (a, b) = (view.sum(axes(over).keepdims()).unwrap(), copy.sum(axes(over).keepdims()).unwrap());
            assert_eq!(a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap(), "{view:?} over {over:?}");
        }
        for over in [Some(0), Some(1), None] {
            let (a, b) = (view.argmax(over).unwrap(), copy.argmax(over).unwrap());
            assert_eq!(a.to_vec::<u32>().unwrap(), b.to_vec::<u32>().unwrap(), "{view:?} over {over:?}");
        }
    }
}

/// Numbers below `n`, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Elements as bits; NaN is NaN.
fn bits(x: &Array) -> Vec<u64> {
    let parts = match x.dtype() {
        Dtype::Complex64 | Dtype::Complex128 => vec![x.real().unwrap(), x.imag().unwrap()],
        _ => vec![x.clone()],
    };
    let double = |x: &Array| x.astype(Dtype::Float64).unwrap().to_vec::<f64>().unwrap();
    let one = |x: f64| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() };
    parts.iter().flat_map(double).map(one).collect()
}

#[test]
fn every_reduction_of_a_view_has_the_bits_of_its_contiguous_copy() {
    let mut random = Random(7);
    let dtypes = [
        Dtype::Float32,
        Dtype::Float64,
        Dtype::Float16,
        Dtype::Bfloat16,
        Dtype::Complex64,
        Dtype::Complex128,
        Dtype::Int32,
        Dtype::Uint8,
        Dtype::Int64,
        Dtype::Bool,
    ];
    for round in 0..90 {
        let rank = 1 + random.below(4);
        let mut shape: Vec<usize> = (0..rank).map(|_| [1, 2, 5, 9, 33][random.below(5)]).collect();
        shape[random.below(rank)] *= [1, 1, 16, 300][random.below(4)];
        let size = shape.iter().product::<usize>();
        let dtype = dtypes[round % dtypes.len()];
        let numbers: Vec<f32> = (0..size).map(|_| random.below(1 << 20) as f32 / 1e5 - 5.0).collect();
        let whole = Array::try_from_slice(&numbers, &shape).unwrap();
        let whole = match dtype {
            Dtype::Bool => whole.greater(-4.9f32).unwrap(),
            // Zeros of both signs, and NaN.
            Dtype::Float32 if round % 2 == 0 => {
                whole.sqrt().unwrap().multiply(&(&whole - 3.0)).unwrap().floor().unwrap()
            }
            Dtype::Complex64 | Dtype::Complex128 => whole.astype(dtype).unwrap().exp().unwrap(),
            _ => whole.astype(dtype).unwrap(),
        };
        let mut order: Vec<isize> = (0..rank as isize).collect();
        (1..rank).for_each(|at| order.swap(at, random.below(at + 1)));
        let (mut starts, mut stops, mut steps) = (vec![], vec![], vec![]);
        for length in shape.iter().map(|length| *length as isize) {
            let (start, stop, step) = match random.below(4) {
                0 => (length - 1, -length - 1, -1),
                1 => (0, length, 2),
                2 if length > 2 => (1, length - 1, 1),
                _ => (0, length, 1),
            };
            starts.push(start);
            stops.push(stop);
            steps.push(step);
        }
        let mut view = whole.slice(&starts, &stops, &steps).unwrap().transpose(&order).unwrap();
        if random.below(4) == 0 {
            let mut wide = view.shape().to_vec();
            wide.insert(0, 3);
            view = view.broadcast_to(&wide).unwrap().moveaxis(0, random.below(rank + 1) as isize).unwrap();
        }
        view.eval().unwrap();
        let copy = view.contiguous().unwrap();
        let some: Vec<isize> = (0..view.ndim() as isize).filter(|_| random.below(2) == 0).collect();
        for over in [Some(&some[..]), None] {
            let reduced = |x: &Array| {
                [
                    x.sum(over),
                    x.mean(axes(over).keepdims()),
                    x.prod(over),
                    x.max(over),
                    x.min(over),
                    x.all(over),
                    x.any(axes(over).keepdims()),
                    x.count_nonzero(over),
                    x.var(over, 1),
                    x.std(over, 0),
                ]
                .map(|found| bits(&found.unwrap()))
            };
            for (at, (got, want)) in reduced(&view).iter().zip(&reduced(&copy)).enumerate() {
                assert!(got == want, "reduction {at} of {view:?} over {over:?}, {dtype:?}, round {round}");
            }
        }
        for axis in 0..view.ndim() as isize {
            for arg in [|x: &Array, axis: isize| x.argmax(axis), |x: &Array, axis: isize| x.argmin(axis)] {
                let [got, want] = [&view, &copy].map(|x| bits(&arg(x, axis).unwrap()));
                assert!(got == want, "index in {view:?} along {axis}, {dtype:?}, round {round}");
            }
        }
    }
}

#[test]
fn sums_of_floats_are_near_the_true_sum() {
    let numbers: Vec<f32> = (0..1_000_000).map(|at| 0.1 + (at % 10) as f32 * 1e-3).collect();
    let exact: f64 = numbers.iter().map(|x| f64::from(*x)).sum();
    let x = Array::from_slice(&numbers);
    let sum = f64::from(x.sum(()).unwrap().item::<f32>().unwrap());
    assert!((sum / exact - 1.0).abs() < 1e-6, "{sum} and {exact}");
    let column = x.reshape(&[500_000, 2]).unwrap().sum(0).unwrap();
    let sum: f64 = column.to_vec::<f32>().unwrap().iter().map(|x| f64::from(*x)).sum();
    assert!((sum / exact - 1.0).abs() < 1e-6, "{sum} and {exact}");
}

#[test]
fn variance_survives_a_large_mean() {
    let numbers: Vec<f32> = (0..10_000).map(|at| 10_000.0 + (at % 2) as f32).collect();
    let var = Array::from_slice(&numbers).var((), 0).unwrap().item::<f32>().unwrap();
    assert!((var - 0.25).abs() < 1e-4, "{var}");
}

#[test]
fn the_first_of_equal_extremes_is_found_in_long_rows() {
    let mut numbers = vec![0i32; 200_000];
    (numbers[70_001], numbers[150_000], numbers[70_000]) = (9, 9, 8);
    let x = Array::from_slice(&numbers);
    assert_eq!(x.argmax(()).unwrap().item::<u32>().unwrap(), 70_001);
    assert_eq!(x.argmin(()).unwrap().item::<u32>().unwrap(), 0);
}

#[test]
fn long_running_sums_equal_short_ones_in_every_direction() {
    let (numbers, x) = grid(&[150_000]);
    for (reverse, inclusive) in [(false, true), (false, false), (true, true), (true, false)] {
        let mut acc = 0.0f32;
        let mut expected = vec![0.0; numbers.len()];
        for step in 0..numbers.len() {
            let at = if reverse { numbers.len() - 1 - step } else { step };
            let before = acc;
            acc += numbers[at];
            expected[at] = if inclusive { acc } else { before };
        }
        let got = x.cumsum(None, reverse, inclusive).unwrap().to_vec::<f32>().unwrap();
        assert!(got == expected, "reverse {reverse}, inclusive {inclusive}");
    }
    let (_, wide) = grid(&[30, 1100]);
    let columns = wide.cumsum(Some(0), false, true).unwrap().to_vec::<f32>().unwrap();
    let rows = wide.t().unwrap().cumsum(Some(1), false, true).unwrap().t().unwrap().to_vec::<f32>().unwrap();
    assert!(columns == rows);
}

#[test]
fn long_rows_are_sorted_with_nan_last_and_zeros_in_place() {
    let mut numbers: Vec<f32> =
        (0..700_000u64).map(|at| (at * 2_654_435_761 % 100_003) as f32 - 50_000.0).collect();
    (numbers[10], numbers[600_000]) = (f32::NAN, f32::NAN);
    let (zero, minus) = (numbers.len() - 1, numbers.len() - 2);
    (numbers[minus], numbers[zero]) = (-0.0, 0.0);
    let x = Array::from_slice(&numbers);
    let sorted = x.sort(Some(0)).unwrap().to_vec::<f32>().unwrap();
    assert!(sorted[..699_998].is_sorted() && sorted[699_998..].iter().all(|x| x.is_nan()));
    let order = x.argsort(Some(0)).unwrap().to_vec::<u32>().unwrap();
    let by_order: Vec<u32> = order.iter().map(|at| numbers[*at as usize].to_bits()).collect();
    assert!(sorted.iter().map(|x| x.to_bits()).eq(by_order), "sort and argsort differ");
}

#[test]
fn partitions_put_one_element_in_its_place() {
    let (numbers, x) = grid(&[4, 999]);
    let parts = x.partition(-10, Some(-1)).unwrap().to_vec::<f32>().unwrap();
    let places = x.argpartition(-10, Some(-1)).unwrap().to_vec::<u32>().unwrap();
    for row in 0..4 {
        let original = &numbers[row * 999..(row + 1) * 999];
        let mut sorted = original.to_vec();
        sorted.sort_by(f32::total_cmp);
        let by_place: Vec<f32> =
            places[row * 999..(row + 1) * 999].iter().map(|at| original[*at as usize]).collect();
        for part in [&parts[row * 999..(row + 1) * 999], &by_place] {
            assert_eq!(part[989], sorted[989]);
            assert!(
                part[..989].iter().all(|x| *x <= part[989]) && part[989..].iter().all(|x| *x >= part[989])
            );
        }
    }
    let mut top = x.topk(3, None).unwrap().to_vec::<f32>().unwrap();
    top.sort_by(f32::total_cmp);
    assert_eq!(top, [6.0, 6.0, 6.0]);
    assert!(x.topk(1000, Some(-1)).is_err() && x.partition(999, Some(-1)).is_err());
}

#[test]
fn softmax_along_any_axis_of_any_view_is_that_of_its_rows() {
    let (_, whole) = grid(&[5, 24, 3, 16]);
    let whole = whole.multiply(0.01f32).unwrap();
    let views = [
        whole.clone(),
        whole.transpose(&[0, 2, 1, 3]).unwrap(),
        whole.transpose(&[3, 1, 0, 2]).unwrap(),
        whole.slice(&[1, 2, 0, 0], &[4, 20, 3, 16], &[1, 1, 1, 1]).unwrap(),
        whole.slice(&[0, 0, 0, 0], &[5, 24, 3, 16], &[1, 2, 1, 1]).unwrap(),
        whole.astype(Dtype::Float16).unwrap(),
        whole.astype(Dtype::Float64).unwrap(),
    ];
    for (view, x) in views.iter().enumerate() {
        let tol = if x.dtype() == Dtype::Float16 { 2e-3 } else { 2e-6 };
        for axis in 0..4isize {
            let near = |got: &Array, want: &Array| {
                let far = got.subtract(want).unwrap().abs().unwrap().astype(Dtype::Float32).unwrap();
                assert_eq!(got.shape(), want.shape());
                assert!(far.max(()).unwrap().item::<f32>().unwrap() < tol, "view {view}, axis {axis}");
            };
            // Rows of a copy in which the axis comes last.
            let rows = x.moveaxis(axis, -1).unwrap().add(0.0f32).unwrap();
            let want = rows.softmax(-1).unwrap().moveaxis(-1, axis).unwrap();
            near(&x.softmax(axis).unwrap(), &want);
            let want = rows.logsumexp(-1).unwrap();
            near(&x.logsumexp(axis).unwrap(), &want);
            let kept = x.logsumexp(axes(axis).keepdims()).unwrap();
            near(&kept, &want.expand_dims(axis).unwrap());
            let weighted = |x: &Array| x.softmax(axis)?.square()?.sum(());
            let of_rows = |x: &Array| x.moveaxis(axis, -1)?.add(0.0f32)?.softmax(-1)?.square()?.sum(());
            let [got, want] = [
                hesper::transform::grad(move |x: &[Array]| weighted(&x[0]), &[0])(&[x.clone()]),
                hesper::transform::grad(move |x: &[Array]| of_rows(&x[0]), &[0])(&[x.clone()]),
            ]
            .map(|found| found.unwrap().remove(0));
            near(&got, &want);
        }
    }
}

#[test]
fn small_integers_and_bools_reduce_alike_over_any_view() {
    let (values, _) = grid(&[7, 33, 41]);
    let bytes: Vec<u8> = values.iter().map(|v| (*v as i64 * 37 % 251) as u8).collect();
    let x = Array::try_from_slice(&bytes, &[7, 33, 41]).unwrap();
    for dtype in [Dtype::Uint8, Dtype::Int8, Dtype::Int16, Dtype::Uint16, Dtype::Bool] {
        let x = x.astype(dtype).unwrap();
        let views = [
            x.clone(),
            x.transpose(&[2, 0, 1]).unwrap(),
            x.slice(&[0, 0, 0], &[7, 33, 41], &[1, 3, 2]).unwrap(),
        ];
        for x in views {
            let wide = x.astype(Dtype::Int32).unwrap();
            for over in [None, Some(&[0isize][..]), Some(&[1]), Some(&[2]), Some(&[0, 2])] {
                let read = |y: Array| y.astype(Dtype::Int32).unwrap().to_vec::<i32>().unwrap();
                assert_eq!(read(x.max(over).unwrap()), read(wide.max(over).unwrap()), "{dtype:?}");
                assert_eq!(read(x.min(over).unwrap()), read(wide.min(over).unwrap()), "{dtype:?}");
                assert_eq!(read(x.sum(over).unwrap()), read(wide.sum(over).unwrap()), "{dtype:?}");
                assert_eq!(read(x.all(over).unwrap()), read(wide.all(over).unwrap()), "{dtype:?}");
                assert_eq!(read(x.any(over).unwrap()), read(wide.any(over).unwrap()), "{dtype:?}");
                let counts = |y: &Array| read(y.count_nonzero(over).unwrap());
                assert_eq!(counts(&x), counts(&wide), "{dtype:?}");
            }
        }
    }
}

#[test]
fn softmax_of_long_and_of_middle_axes_sums_to_one() {
    let (_, x) = grid(&[3, 50, 70]);
    for over in [&[0isize][..], &[1], &[2], &[0, 2]] {
        let sums = x.softmax(over).unwrap().sum(over).unwrap();
        assert!(sums.to_vec::<f32>().unwrap().iter().all(|sum| (sum - 1.0).abs() < 1e-5), "over {over:?}");
    }
    let half = x.astype(Dtype::Float16).unwrap().softmax(-1).unwrap();
    assert_eq!(half.dtype(), Dtype::Float16);
}

#[test]
fn products_of_batches_read_broadcast_operands_in_place() {
    let (_, a) = grid(&[6, 5, 8]);
    let (_, b) = grid(&[8, 9]);
    let once = a.matmul(&b).unwrap().to_vec::<f32>().unwrap();
    let stretched = a.matmul(&b.broadcast_to(&[6, 8, 9]).unwrap()).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(once, stretched);
    let sliced = a.slice(&[0, 1, 2], &[6, 5, 8], &[2, 2, 3]).unwrap();
    let copy = Array::try_from_slice(&sliced.to_vec::<f32>().unwrap(), sliced.shape()).unwrap();
    let right = b.slice(&[0, 0], &[2, 9], &[1, 2]).unwrap();
    let want = copy.matmul(&right.contiguous().unwrap()).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(sliced.matmul(&right).unwrap().to_vec::<f32>().unwrap(), want);
}

#[test]
fn paths_of_contractions_are_cheap_and_reported() {
    let (_, a) = grid(&[2, 10]);
    let (_, b) = grid(&[10, 10]);
    let (_, c) = grid(&[10, 2]);
    let (path, report) = hesper::einsum_path("ij,jk,kl->il", &[&a, &b, &c]).unwrap();
    assert_eq!(path, [[0, 1], [0, 1]]);
    assert!(report.contains("Naive FLOP count:  1200\n"), "{report}");
    assert!(report.contains("Optimized FLOP count:  480\n"), "{report}");
}

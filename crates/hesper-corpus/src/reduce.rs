//! Reductions, selections, histograms and scans.

use crate::array::{Array, DType};
use crate::case::{Case, Expected};
use crate::data::{integers, uniform};
use crate::kernel;

pub fn add(all: &mut Vec<Case>) {
    select_cases(all);
    histogram_cases(all);
    scan_cases(all);
    segment_cases(all);
    whole_cases(all);
}

fn select_cases(all: &mut Vec<Case>) {
    let argmax_case = |name, dtype: DType, rows: usize, n: usize, group: usize| {
        // Few distinct values, so that ties are common.
        Case::new(name, kernel!("argmax"), argmax)
            .with("x", integers(40, dtype, &[rows, n], -60, 60))
            .int("N", n as i64)
            .exact("out", DType::U32, &[rows])
            .launch([rows * group, 1, 1], [group, 1, 1])
    };
    all.push(argmax_case("argmax_int", DType::I32, 9, 500, 96));
    all.push(argmax_case("argmax_small_group", DType::I8, 5, 300, 45));
    all.push(
        Case::new("argmax_float", kernel!("argmax"), argmax)
            .with("x", uniform(41, DType::F32, &[4, 1000], -5.0, -1.0))
            .int("N", 1000)
            .exact("out", DType::U32, &[4])
            .launch([4 * 256, 1, 1], [256, 1, 1]),
    );
    let top = |name, dtype: DType, rows: usize, n: usize, k: usize| {
        Case::new(name, kernel!("top_k"), top_k)
            .with("x", uniform(42, dtype, &[rows, n], -9.0, 9.0))
            .ty("T", dtype)
            .int("N", n as i64)
            .int("K", k as i64)
            .exact("values", dtype, &[rows, k])
            .exact("indices", DType::U32, &[rows, k])
            .launch([rows, 1, 1], [8, 1, 1])
    };
    all.push(top("top_k_float", DType::F32, 13, 100, 5));
    all.push(top("top_k_half", DType::F16, 5, 64, 8));
}

fn argmax(c: &Case) -> Vec<Expected> {
    let first_largest =
        |row: &[f64]| (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
    vec![Expected::Ints(c.f("x").chunks(c.arg("N")).map(|r| first_largest(r) as i64).collect())]
}

fn top_k(c: &Case) -> Vec<Expected> {
    let (mut values, mut indices) = (Vec::new(), Vec::new());
    for row in c.f("x").chunks(c.arg("N")) {
        let mut order: Vec<usize> = (0..row.len()).collect();
        // A stable sort keeps the first of equals first.
        order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
        values.extend(order[..c.arg("K")].iter().map(|i| row[*i]));
        indices.extend(order[..c.arg("K")].iter().map(|i| *i as i64));
    }
    vec![Expected::Floats(values), Expected::Ints(indices)]
}

fn histogram_cases(all: &mut Vec<Case>) {
    all.push(
        Case::new("histogram_device", kernel!("histogram"), |c| {
            let mut bins = vec![0i64; c.arg("BINS")];
            c.i("data").iter().for_each(|v| bins[*v as usize * c.arg("BINS") / 256] += 1);
            vec![Expected::Ints(bins)]
        })
        .with("data", integers(43, DType::U8, &[3001], 0, 256))
        .int("BINS", 16)
        .exact("bins", DType::U32, &[16])
        .launch([3001, 1, 1], [256, 1, 1])
        .atomic()
        .init(0.0),
    );
    all.push(
        Case::new("histogram_private", kernel!("histogram_private"), |c| {
            let mut bins = vec![0i64; c.arg("BINS")];
            c.i("values").iter().filter(|v| **v >= 0).for_each(|v| bins[*v as usize % c.arg("BINS")] += 1);
            vec![Expected::Ints(bins)]
        })
        .with("values", integers(44, DType::I32, &[2500], -100, 900))
        .int("BINS", 50)
        .int("N", 2500)
        .exact("bins", DType::U32, &[50])
        .launch([300, 1, 1], [128, 1, 1])
        .atomic()
        .init(0.0),
    );
}

fn scan_cases(all: &mut Vec<Case>) {
    let one = |name, dtype: DType, rows: usize, n: usize, group: usize, inclusive: bool| {
        let case = Case::new(name, kernel!("scan"), scan)
            .ty("T", dtype)
            .int("N", n as i64)
            .flag("inclusive", inclusive)
            .launch([group, rows, 1], [group, 1, 1]);
        if dtype.is_float() {
            case.with("x", uniform(45, dtype, &[rows, n], -1.0, 1.0)).close(
                "out",
                dtype,
                &[rows, n],
                2e-5,
                1e-5,
            )
        } else {
            case.with("x", integers(46, dtype, &[rows, n], -500, 500)).exact("out", dtype, &[rows, n])
        }
    };
    all.push(one("scan_inclusive_int", DType::I32, 3, 300, 128, true));
    all.push(one("scan_exclusive_int", DType::I32, 4, 65, 32, false));
    all.push(one("scan_inclusive_float", DType::F32, 2, 500, 64, true));
}

fn scan(c: &Case) -> Vec<Expected> {
    let inclusive = c.arg("inclusive") == 1;
    let row = |r: &[f64]| {
        let mut sum = 0.0;
        let step = |v: &f64| {
            let before = sum;
            sum += v;
            if inclusive { sum } else { before }
        };
        r.iter().map(step).collect::<Vec<_>>()
    };
    let out: Vec<f64> = c.f("x").chunks(c.arg("N")).flat_map(row).collect();
    if c.input("x").dtype.is_float() {
        vec![Expected::Floats(out)]
    } else {
        vec![Expected::Ints(out.iter().map(|v| *v as i64).collect())]
    }
}

fn segment_cases(all: &mut Vec<Case>) {
    let (rows, width) = (100, 13);
    let ids: Vec<i64> = (0..rows as i64).map(|r| r * r / 700).collect();
    let segments = *ids.last().expect("there are rows") as usize + 1;
    all.push(
        Case::new("segmented_sum_atomic", kernel!("segmented_sum"), segmented_sum)
            .with("x", uniform(47, DType::F32, &[rows, width], -1.0, 1.0))
            .with("ids", Array::ints(DType::I32, &[rows], &ids))
            .int("CHUNK", 8)
            .close("out", DType::F32, &[segments, width], 1e-5, 1e-5)
            .launch([width, rows.div_ceil(8), 1], [8, 8, 1])
            .atomic()
            .init(0.0),
    );
    let offsets = [0, 5, 5, 70, 71, 200, 333];
    all.push(
        Case::new("segmented_reduce_int64_offsets", kernel!("segmented_reduce"), segmented_reduce)
            .with("x", uniform(48, DType::F32, &[333], -1.0, 1.0))
            .with("offsets", Array::ints(DType::I64, &[7], &offsets))
            .close("sums", DType::F32, &[6], 1e-5, 1e-5)
            .exact("maxima", DType::F32, &[6])
            .exact("empty", DType::Bool, &[6])
            .launch([32, 6, 1], [32, 4, 1]),
    );
}

fn segmented_sum(c: &Case) -> Vec<Expected> {
    let (x, ids, width) = (c.f("x"), c.i("ids"), c.input("x").shape[1]);
    let mut out = vec![0.0; c.outputs[0].len()];
    for (e, v) in x.iter().enumerate() {
        out[ids[e / width] as usize * width + e % width] += v;
    }
    vec![Expected::Floats(out)]
}

fn segmented_reduce(c: &Case) -> Vec<Expected> {
    let x = c.f("x");
    let offsets: Vec<usize> = c.i("offsets").iter().map(|v| *v as usize).collect();
    let parts: Vec<&[f64]> = offsets.windows(2).map(|w| &x[w[0]..w[1]]).collect();
    vec![
        Expected::Floats(parts.iter().map(|p| p.iter().sum()).collect()),
        Expected::Floats(parts.iter().map(|p| p.iter().copied().fold(f64::NEG_INFINITY, f64::max)).collect()),
        Expected::Ints(parts.iter().map(|p| i64::from(p.is_empty())).collect()),
    ]
}

fn whole_cases(all: &mut Vec<Case>) {
    all.push(
        Case::new("reduce_all_atomics", kernel!("reduce_all"), |c| {
            let x = c.i("x");
            let groups: Vec<&[i64]> = x.chunks(64 * 4).flat_map(|g| g.chunks(32 * 4)).collect();
            let tops = groups.iter().map(|g| g.iter().max().expect("not empty") & 0xff);
            let marks = (1i64 << groups.len()) - 1;
            let (low, high) = (*x.iter().min().expect("not empty"), *x.iter().max().expect("not empty"));
            vec![Expected::Ints(vec![low, high, x.iter().sum(), tops.fold(0, |a, b| a | b), marks])]
        })
        .with("x", integers(49, DType::I32, &[701], -1000, 1000))
        .int("N", 701)
        .exact("extremes", DType::I32, &[5])
        .launch([176, 1, 1], [64, 1, 1])
        .atomic()
        .init(0.0),
    );
    let (n, k) = (300, 11);
    all.push(
        Case::new("kmeans_assign_structs", kernel!("kmeans_assign"), kmeans)
            .with("points", uniform(50, DType::F32, &[n, 3], -1.0, 1.0))
            .with("centroids", uniform(51, DType::F32, &[k, 3], -1.0, 1.0))
            .int("K", k as i64)
            .exact("label", DType::I32, &[n])
            .exact("population", DType::I32, &[k])
            .launch([n, 1, 1], [64, 1, 1])
            .atomic()
            .init(0.0),
    );
}

fn kmeans(c: &Case) -> Vec<Expected> {
    let (points, centroids) = (c.f("points"), c.f("centroids"));
    let mut population = vec![0; c.arg("K")];
    let mut nearest = |p: &[f64]| {
        let distance = |k: usize| (0..3).map(|a| (p[a] - centroids[3 * k + a]).powi(2)).sum::<f64>();
        let best =
            (0..c.arg("K")).min_by(|a, b| distance(*a).total_cmp(&distance(*b))).expect("some centroid");
        population[best] += 1;
        best as i64
    };
    let label = points.chunks(3).map(&mut nearest).collect();
    vec![Expected::Ints(label), Expected::Ints(population)]
}

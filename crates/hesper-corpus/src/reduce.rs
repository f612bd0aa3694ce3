//! Reductions, selections, histograms and scans.

use crate::array::DType;
use crate::case::{Case, Expected};
use crate::data::{integers, uniform};
use crate::kernel;

pub fn add(all: &mut Vec<Case>) {
    select_cases(all);
    histogram_cases(all);
    scan_cases(all);
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

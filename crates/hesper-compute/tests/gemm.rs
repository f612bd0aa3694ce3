//! Matrix products against the definition, over sizes, strides, types and SIMD levels.

use crate::common::{Rng, close, levels};
use half::{bf16, f16};
use hesper_compute::internals::bf16_product;
use hesper_compute::{
    AtLevel, Caches, Float, GemmOptions, MatMut, MatRef, Mismatch, Par, Serial, Simd, Stack, Threads, gemm,
    gemm_stacked,
};

const SIZES: [(usize, usize, usize); 24] = [
    (1, 1, 1),
    (1, 7, 3),
    (1, 130, 257),
    (2, 33, 65),
    (3, 64, 1000),
    (4, 4, 4),
    (5, 31, 17),
    (7, 1, 300),
    (12, 32, 64),
    (13, 33, 63),
    (17, 48, 385),
    (24, 16, 2),
    (40, 3, 129),
    (61, 67, 71),
    (64, 2, 33),
    (100, 100, 1),
    (193, 70, 390),
    (205, 257, 33),
    (230, 40, 800),
    (300, 65, 20),
    (8, 8, 8),
    (34, 113, 40),
    (131, 120, 40),
    (120, 131, 520),
];

/// A matrix in one of several layouts, and the view of it.
struct Layout<T> {
    data: Vec<T>,
    offset: usize,
    rs: isize,
    cs: isize,
}

fn layouts<T: Copy>(values: &[T], rows: usize, cols: usize, fill: T) -> Vec<Layout<T>> {
    let place = |rs: isize, cs: isize, offset: usize, len: usize| {
        let mut data = vec![fill; len];
        for i in 0..rows {
            for j in 0..cols {
                data[(offset as isize + i as isize * rs + j as isize * cs) as usize] = values[i * cols + j];
            }
        }
        Layout { data, offset, rs, cs }
    };
    let (r, c) = (rows as isize, cols as isize);
    vec![
        place(c, 1, 0, rows * cols),
        place(1, r, 0, rows * cols),
        place(c + 3, 1, 1, rows * (cols + 3) + 1),
        place(2 * c + 1, 2, 0, rows * (2 * cols + 1)),
        place(-c, -1, rows * cols - 1, rows * cols),
    ]
}

impl<T> Layout<T> {
    fn view(&self, rows: usize, cols: usize) -> MatRef<'_, T> {
        // SAFETY: `place` made room for every element.
        unsafe { MatRef::from_raw(self.data.as_ptr().add(self.offset), rows, cols, self.rs, self.cs) }
    }

    fn view_mut(&mut self, rows: usize, cols: usize) -> MatMut<'_, T> {
        // SAFETY: `place` made room for every element, all distinct.
        unsafe { MatMut::from_raw(self.data.as_mut_ptr().add(self.offset), rows, cols, self.rs, self.cs) }
    }

    fn get(&self, i: usize, j: usize) -> &T {
        &self.data[(self.offset as isize + i as isize * self.rs + j as isize * self.cs) as usize]
    }
}

fn reference(a: &[f64], b: &[f64], m: usize, n: usize, k: usize) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for p in 0..k {
            for j in 0..n {
                c[i * n + j] += a[i * k + p] * b[p * n + j];
            }
        }
    }
    c
}

fn check_floats<T: Float + hesper_compute::Element<Sum = f32>>(tol: f32) {
    let mut rng = Rng::new(7);
    for (m, n, k) in SIZES {
        let (a, b): (Vec<T>, Vec<T>) = (rng.floats(m * k), rng.floats(k * n));
        let old: Vec<T> = rng.floats(m * n);
        let wide = |v: &[T]| v.iter().map(|x| f64::from(x.to_f32())).collect::<Vec<_>>();
        let want = reference(&wide(&a), &wide(&b), m, n, k);
        let nan = T::from_f32(f32::NAN);
        let (la, lb, lc) = (layouts(&a, m, k, nan), layouts(&b, k, n, nan), layouts(&old, m, n, nan));
        for (one, three) in levels() {
            for case in 0..7 {
                let (va, vb) = (&la[case % 5], &lb[(case + case / 5) % 5]);
                let c = &lc[(case * 2) % 5];
                let mut runs = vec![];
                for par in [&one as &dyn Par, &three] {
                    let mut c = Layout { data: c.data.clone(), ..*c };
                    let options = match case {
                        1 => GemmOptions { alpha: 0.5, beta: 2.0 },
                        3 => GemmOptions { alpha: 2.0, ..Default::default() },
                        5 => GemmOptions { alpha: -1.0, beta: 1.0 },
                        6 => GemmOptions { beta: 1.0, ..Default::default() },
                        _ => GemmOptions::default(),
                    };
                    gemm(par, va.view(m, k), vb.view(k, n), c.view_mut(m, n), &options).unwrap();
                    for i in 0..m {
                        for j in 0..n {
                            let w = want[i * n + j] as f32;
                            let w = match case {
                                1 => 0.5 * w + 2.0 * old[i * n + j].to_f32(),
                                3 => 2.0 * w,
                                5 => old[i * n + j].to_f32() - w,
                                6 => old[i * n + j].to_f32() + w,
                                _ => w,
                            };
                            let t = tol * (k as f32).sqrt().max(1.0);
                            close(c.get(i, j).to_f32(), w, t, (m, n, k, case, one.1, i, j));
                        }
                    }
                    runs.push(c.data.iter().map(|x| x.to_f32().to_bits()).collect::<Vec<_>>());
                }
                assert_eq!(runs[0], runs[1], "one and three threads differ at {:?}", (m, n, k, case, one.1));
            }
        }
    }
}

#[test]
fn f32_products_match_the_definition_in_every_layout() {
    check_floats::<f32>(2e-6);
}

#[test]
fn bf16_products_are_summed_in_f32_and_rounded_once() {
    check_floats::<bf16>(4.1e-3);
}

#[test]
fn f16_products_are_summed_in_f32_and_rounded_once() {
    check_floats::<f16>(5.1e-4);
}

#[test]
fn f64_products_match_the_definition() {
    let mut rng = Rng::new(3);
    for (m, n, k) in SIZES {
        let a: Vec<f64> = (0..m * k).map(|_| f64::from(rng.float())).collect();
        let b: Vec<f64> = (0..k * n).map(|_| f64::from(rng.float())).collect();
        let want = reference(&a, &b, m, n, k);
        let (la, lb) = (layouts(&a, m, k, f64::NAN), layouts(&b, k, n, f64::NAN));
        for (one, _) in levels() {
            for (va, vb) in la.iter().zip(lb.iter().rev()) {
                let mut c = vec![f64::NAN; m * n];
                let out = MatMut::row_major(&mut c, m, n).unwrap();
                gemm(&one, va.view(m, k), vb.view(k, n), out, &GemmOptions::default()).unwrap();
                for (g, w) in c.iter().zip(&want) {
                    assert!((g - w).abs() < 1e-12 * k as f64, "{:?}: {g} {w}", (m, n, k, one.1));
                }
            }
        }
    }
}

#[test]
fn a_k_longer_than_one_pass_is_summed_in_parts() {
    let (m, n, k) = (14, 20, 40_001);
    let mut rng = Rng::new(5);
    let (a, b): (Vec<bf16>, Vec<bf16>) = (rng.floats(m * k), rng.floats(k * n));
    let wide = |v: &[bf16]| v.iter().map(|x| f64::from(x.to_f32())).collect::<Vec<_>>();
    let want = reference(&wide(&a), &wide(&b), m, n, k);
    let mut c = vec![bf16::ZERO; m * n];
    gemm(
        &Threads(2),
        MatRef::row_major(&a, m, k).unwrap(),
        MatRef::row_major(&b, k, n).unwrap(),
        MatMut::row_major(&mut c, m, n).unwrap(),
        &GemmOptions::default(),
    )
    .unwrap();
    for (g, w) in c.iter().zip(&want) {
        close(g.to_f32(), *w as f32, 5e-3, "long k");
    }
}

/// Two threads of a machine with these caches.
struct WithCaches(Caches);

impl Par for WithCaches {
    fn threads(&self) -> usize {
        2
    }

    fn run(&self, n: usize, f: &(dyn Fn(usize) + Sync)) {
        Threads(2).run(n, f);
    }

    fn caches(&self) -> Caches {
        self.0
    }
}

#[test]
fn a_product_has_the_same_bits_whatever_the_caches_are() {
    let (m, n, k) = (401, 700, 1030);
    let mut rng = Rng::new(6);
    let (a, b): (Vec<f32>, Vec<f32>) = (rng.floats(m * k), rng.floats(k * n));
    let products = [(1 << 16, 1 << 18), (1 << 18, 2 << 20), (1 << 20, 32 << 20), (8 << 20, 256 << 20)].map(
        |(l2, last)| {
            let mut c = vec![0.0f32; m * n];
            let (a, b) = (MatRef::row_major(&a, m, k).unwrap(), MatRef::row_major(&b, k, n).unwrap());
            let to = MatMut::row_major(&mut c, m, n).unwrap();
            gemm(&WithCaches(Caches { l2, last }), a, b, to, &GemmOptions::default()).unwrap();
            c
        },
    );
    products.iter().for_each(|c| assert!(c == &products[0]));
    let wide = |v: &[f32]| v.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
    for (got, want) in products[0].iter().zip(reference(&wide(&a), &wide(&b), m, n, k)) {
        close(*got, want as f32, 1e-4, "small caches");
    }
}

#[test]
fn an_empty_k_leaves_beta_times_the_old_result() {
    let mut c = [1.0f32, 2.0];
    let options = GemmOptions { beta: 3.0, ..Default::default() };
    let (a, b) = (MatRef::row_major(&[], 1, 0).unwrap(), MatRef::row_major(&[], 0, 2).unwrap());
    gemm(&Serial, a, b, MatMut::row_major(&mut c, 1, 2).unwrap(), &options).unwrap();
    assert_eq!(c, [3.0, 6.0]);
}

#[test]
fn infinities_do_not_leak_out_of_padding() {
    let (m, n, k) = (13, 33, 17);
    let a = vec![f32::INFINITY; m * k];
    let b = vec![1.0f32; k * n];
    for s in Simd::available() {
        let mut c = vec![0.0; m * n];
        let out = MatMut::row_major(&mut c, m, n).unwrap();
        let (a, b) = (MatRef::row_major(&a, m, k).unwrap(), MatRef::row_major(&b, k, n).unwrap());
        gemm(&AtLevel(Serial, s), a, b, out, &GemmOptions::default()).unwrap();
        assert!(c.iter().all(|x| *x == f32::INFINITY));
    }
}

#[test]
fn mismatched_sizes_are_named() {
    let x = [0.0f32; 6];
    let mut c = [0.0f32; 4];
    let (a, b) = (MatRef::row_major(&x, 2, 3).unwrap(), MatRef::row_major(&x, 2, 2).unwrap());
    let out = MatMut::row_major(&mut c, 2, 2).unwrap();
    let e = gemm(&Serial, a, b, out, &GemmOptions::default()).unwrap_err();
    assert_eq!(e, Mismatch::Product { left: [2, 3], right: [2, 2], result: [2, 2] });
    assert!(e.to_string().starts_with("matrices of shape [2, 3] and [2, 2] have no product"), "{e}");
    let short = MatRef::row_major(&x, 3, 3).unwrap_err();
    assert_eq!(short.to_string(), "elements of a matrix: at least 9 needed, given 6");
    let before = MatRef::strided(&x, 0, 2, 2, -2, 1).unwrap_err();
    assert!(matches!(before, Mismatch::BeforeStart { .. }), "{before}");
}

#[test]
fn a_product_is_subtracted_in_place() {
    let mut rng = Rng::new(17);
    // One block of rows, several blocks, and a K of several ranges; the rows of the result have gaps.
    for (m, n, k) in [(7, 40, 33), (250, 70, 12), (300, 100, 1100), (230, 33, 700)] {
        let (a, b): (Vec<f32>, Vec<f32>) = (rng.floats(m * k), rng.floats(k * n));
        let old: Vec<f32> = rng.floats(m * (n + 3));
        let wide = |v: &[f32]| v.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
        let want = reference(&wide(&a), &wide(&b), m, n, k);
        for (one, three) in levels() {
            let mut runs = vec![];
            for par in [&one as &dyn Par, &three] {
                let mut c = old.clone();
                let options = GemmOptions { alpha: -1.0, beta: 1.0 };
                // SAFETY: rows of `n` elements, `n + 3` apart, lie in the vector.
                let view = unsafe { MatMut::from_raw(c.as_mut_ptr(), m, n, n as isize + 3, 1) };
                let (a, b) = (MatRef::row_major(&a, m, k).unwrap(), MatRef::row_major(&b, k, n).unwrap());
                gemm(par, a, b, view, &options).unwrap();
                for (at, (new, old)) in c.iter().zip(&old).enumerate() {
                    let (i, j) = (at / (n + 3), at % (n + 3));
                    if j < n {
                        close(*new, old - want[i * n + j] as f32, 1e-4, (m, n, k, one.1, i, j));
                    } else {
                        assert_eq!(new, old);
                    }
                }
                runs.push(c);
            }
            assert_eq!(runs[0], runs[1]);
        }
    }
}

#[test]
fn dot_and_axpy_match_plain_loops_at_every_level() {
    let mut rng = Rng::new(18);
    for n in [0, 1, 7, 15, 16, 31, 64, 65, 129, 1000] {
        let (x, y): (Vec<f32>, Vec<f32>) = (rng.floats(n), rng.floats(n));
        let want: f64 = x.iter().zip(&y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
        let (xd, yd): (Vec<f64>, Vec<f64>) =
            (x.iter().map(|x| f64::from(*x)).collect(), y.iter().map(|y| f64::from(*y)).collect());
        for (one, _) in levels() {
            close(hesper_compute::dot(one.1, &x, &y), want as f32, 1e-5, (n, one.1));
            assert!((hesper_compute::dot(one.1, &xd, &yd) - want).abs() < 1e-12);
            let (mut sum, mut wide) = (y.clone(), yd.clone());
            hesper_compute::axpy(one.1, -3.0, &x, &mut sum);
            hesper_compute::axpy(one.1, -3.0, &xd, &mut wide);
            for i in 0..n {
                close(sum[i], y[i] - 3.0 * x[i], 1e-6, (n, one.1, i));
                assert!((wide[i] - (yd[i] - 3.0 * xd[i])).abs() < 1e-14);
            }
        }
    }
}

#[test]
fn stacked_products_match_single_products() {
    let mut rng = Rng::new(21);
    // Many small products, a few large ones, and a single one.
    for (lengths, m, n, k) in
        [(vec![3, 17], 8, 8, 8), (vec![2, 3], 5, 17, 3), (vec![1, 2], 70, 130, 230), (vec![], 4, 9, 6)]
    {
        let count: usize = lengths.iter().product();
        let (a, b): (Vec<f32>, Vec<f32>) = (rng.floats(count * m * k), rng.floats(count * k * n));
        // The left matrices in reverse, the right ones transposed and broadcast along the last axis.
        let inner = lengths.last().copied().unwrap_or(1);
        let (mut left, mut right) = (vec![], vec![]);
        if !lengths.is_empty() {
            left = vec![-((inner * m * k) as isize), -((m * k) as isize)];
            right = vec![(k * n) as isize, 0];
        }
        let stacks = (
            Stack { data: &a, first: (count - 1) * m * k, rows: k as isize, cols: 1, batch: &left },
            Stack { data: &b, first: 0, rows: 1, cols: k as isize, batch: &right },
        );
        for (one, three) in levels() {
            let mut want = vec![0.0; count * m * n];
            for (at, c) in want.chunks_mut(m * n).enumerate() {
                let a = MatRef::row_major(&a[(count - 1 - at) * m * k..], m, k).unwrap();
                let b = MatRef::row_major(&b[at / inner * k * n..], n, k).unwrap().transposed();
                let c = MatMut::row_major(c, m, n).unwrap();
                gemm(&one, a, b, c, &GemmOptions::default()).unwrap();
            }
            for par in [&one as &dyn Par, &three] {
                let mut out = vec![f32::NAN; count * m * n];
                let (x, y) = stacks;
                gemm_stacked(par, &lengths, (m, n, k), x, y, &mut out, &GemmOptions::default()).unwrap();
                assert!(out == want, "{:?}", (&lengths, m, n, k, one.1));
            }
        }
    }
}

#[test]
fn stacks_that_reach_out_of_their_slice_are_refused() {
    let x = [0.0f32; 12];
    let stack = |first, rows, batch| Stack { data: &x, first, rows, cols: 1, batch };
    let mut out = [0.0f32; 8];
    let run = |a, b, lengths: &[usize], out: &mut [f32]| {
        gemm_stacked(&Serial, lengths, (2, 2, 2), a, b, out, &GemmOptions::default())
    };
    run(stack(0, 2, &[4]), stack(8, 2, &[-8]), &[2], &mut out).unwrap();
    assert!(run(stack(0, 2, &[9]), stack(0, 2, &[0]), &[2], &mut out).is_err());
    assert!(run(stack(0, 2, &[0]), stack(3, 2, &[-4]), &[2], &mut out).is_err());
    assert!(run(stack(0, 2, &[]), stack(0, 2, &[0]), &[2], &mut out).is_err());
    assert!(run(stack(0, 2, &[0]), stack(0, 2, &[0]), &[2], &mut out[..7]).is_err());
    assert!(run(stack(0, isize::MAX, &[0]), stack(0, 2, &[0]), &[2], &mut out).is_err());
    assert!(run(stack(0, 2, &[0]), stack(0, 2, &[0]), &[usize::MAX], &mut out).is_err());
    // An empty result, and sums over an empty K.
    run(stack(99, 2, &[4]), stack(0, 2, &[4]), &[0], &mut []).unwrap();
    let nothing = Stack { data: &[], first: 0, rows: 0, cols: 1, batch: &[0] };
    out.fill(5.0);
    gemm_stacked(&Serial, &[2], (2, 2, 0), nothing, nothing, &mut out, &GemmOptions::default()).unwrap();
    assert_eq!(out, [0.0; 8]);
}

/// Normally the processor decides whether bfloat16 is multiplied in pairs; here every level does both.
#[test]
fn pairs_of_bf16_give_the_same_products_as_widened_ones() {
    for (m, n, k) in [(1, 5, 9), (3, 70, 65), (13, 33, 31), (40, 65, 100), (200, 70, 801)] {
        let value = |i: usize| bf16::from_f32(((i * 37 % 61) as f32 - 30.0) / 8.0);
        let a: Vec<bf16> = (0..m * k).map(value).collect();
        let b: Vec<bf16> = (0..k * n).map(|i| value(i + 11)).collect();
        for simd in Simd::available() {
            for (rows, turn_a, turn_b) in [(m, false, false), (m, true, false), (m, false, true)] {
                let mut out = [vec![bf16::ZERO; m * n], vec![bf16::ZERO; m * n]];
                for (i, c) in out.iter_mut().enumerate() {
                    let view = |data, r, c, turn: bool| {
                        let (x, y) = if turn { (c, r) } else { (r, c) };
                        let v = MatRef::row_major(data, x, y).unwrap();
                        if turn { v.transposed() } else { v }
                    };
                    let (a, b) = (view(&a[..], m, k, turn_a), view(&b[..], k, n, turn_b));
                    let c = MatMut::row_major(c, rows, n).unwrap();
                    bf16_product(&AtLevel(Serial, simd), a, b, c, i == 0);
                }
                for (x, y) in out[0].iter().zip(&out[1]) {
                    let (x, y) = (x.to_f32(), y.to_f32());
                    assert!((x - y).abs() <= 8e-3 * y.abs().max(1.0), "{x} {y} at {:?}", (m, n, k, simd));
                }
            }
        }
    }
}

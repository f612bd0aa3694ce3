//! Linear algebra: what factors promise, batches, edges, and what has no answer.

use hesper::{Array, Dtype, linalg, random};

fn matrix(seed: u64, shape: &[usize], dtype: Dtype) -> Array {
    let key = random::key(seed).unwrap();
    random::normal(shape, Dtype::Float32, 0.0, 1.0, Some(&key)).unwrap().astype(dtype).unwrap()
}

/// The largest distance of two arrays.
fn apart(a: &Array, b: &Array) -> f64 {
    assert_eq!(a.shape(), b.shape());
    let distance = a.subtract(b).unwrap().abs().unwrap().astype(Dtype::Float64).unwrap();
    if distance.size() == 0 { 0.0 } else { distance.max(()).unwrap().item().unwrap() }
}

fn turned(a: &Array) -> Array {
    a.swapaxes(-1, -2).unwrap()
}

fn eye(n: usize, like: &Array) -> Array {
    let shape: Vec<usize> = like.shape()[..like.ndim() - 2].iter().copied().chain([n, n]).collect();
    Array::identity(n, like.dtype()).unwrap().broadcast_to(&shape).unwrap()
}

fn near(dtype: Dtype) -> f64 {
    if dtype == Dtype::Float64 { 1e-10 } else { 2e-3 }
}

/// Types, batches and sizes, small ones and one beyond every block.
fn cases() -> impl Iterator<Item = (Dtype, Vec<usize>)> {
    let shapes =
        [vec![1, 1], vec![2, 2], vec![5, 3], vec![3, 5], vec![40, 40], vec![3, 2, 7, 7], vec![2, 70, 33]];
    [Dtype::Float32, Dtype::Float64]
        .into_iter()
        .flat_map(move |dtype| shapes.clone().into_iter().map(move |shape| (dtype, shape)))
}

fn is_square(shape: &[usize]) -> bool {
    shape[shape.len() - 1] == shape[shape.len() - 2]
}

#[test]
fn products_of_factors_are_the_matrices() {
    for (seed, (dtype, shape)) in cases().enumerate() {
        let a = matrix(seed as u64, &shape, dtype);
        let near = near(dtype);
        let (q, r) = linalg::qr(&a).unwrap();
        assert!(apart(&q.matmul(&r).unwrap(), &a) < near, "qr of {shape:?}");
        let k = q.shape()[q.ndim() - 1];
        assert!(apart(&turned(&q).matmul(&q).unwrap(), &eye(k, &a)) < near);
        assert!(apart(&r, &r.triu(0).unwrap()) == 0.0);

        let (u, s, vt) = linalg::svd(&a).unwrap();
        let (m, n) = (a.shape()[a.ndim() - 2], a.shape()[a.ndim() - 1]);
        assert!(apart(&turned(&u).matmul(&u).unwrap(), &eye(m, &a)) < near);
        assert!(apart(&turned(&vt).matmul(&vt).unwrap(), &eye(n, &a)) < near);
        let k = m.min(n);
        let mut stop: Vec<isize> = u.shape().iter().map(|length| *length as isize).collect();
        *stop.last_mut().unwrap() = k as isize;
        let (start, step) = (vec![0; stop.len()], vec![1; stop.len()]);
        let thin = u.slice(&start, &stop, &step).unwrap().multiply(s.expand_dims(-2).unwrap()).unwrap();
        let mut stop: Vec<isize> = vt.shape().iter().map(|length| *length as isize).collect();
        let rows = stop.len() - 2;
        stop[rows] = k as isize;
        let right = vt.slice(&start, &stop, &step).unwrap();
        assert!(apart(&thin.matmul(&right).unwrap(), &a) < near, "svd of {shape:?}");
        assert!(apart(&linalg::singular_values(&a).unwrap(), &s) < near);

        let (places, lower, upper) = linalg::lu(&a).unwrap();
        let rows = places.expand_dims(-1).unwrap();
        let shape_of_rows: Vec<usize> = lower.shape().to_vec();
        let exchanged = lower.take_along_axis(&rows.broadcast_to(&shape_of_rows).unwrap(), Some(-2)).unwrap();
        assert!(apart(&exchanged.matmul(&upper).unwrap(), &a) < near, "lu of {shape:?}");
        let pinv = linalg::pinv(&a).unwrap();
        assert!(apart(&a.matmul(&pinv).unwrap().matmul(&a).unwrap(), &a) < 10.0 * near, "pinv of {shape:?}");
    }
}

#[test]
fn square_matrices_are_inverted_and_solved() {
    for (seed, (dtype, shape)) in cases().filter(|(_, shape)| is_square(shape)).enumerate() {
        let a = matrix(100 + seed as u64, &shape, dtype);
        let n = *shape.last().unwrap();
        // Far from singular.
        let a = a.add(eye(n, &a).multiply(3.0 * n as f64).unwrap()).unwrap();
        let near = near(dtype);
        assert!(apart(&a.matmul(&linalg::inv(&a).unwrap()).unwrap(), &eye(n, &a)) < near);
        let side = matrix(7, &[n, 4], dtype);
        let x = linalg::solve(&a, &side).unwrap();
        let whole: Vec<usize> = shape[..shape.len() - 1].iter().copied().chain([4]).collect();
        assert!(apart(&a.matmul(&x).unwrap(), &side.broadcast_to(&whole).unwrap()) < near);
        for upper in [false, true] {
            let part = if upper { a.triu(0).unwrap() } else { a.tril(0).unwrap() };
            let inverse = linalg::tri_inv(&a, upper).unwrap();
            assert!(apart(&part.matmul(&inverse).unwrap(), &eye(n, &a)) < near);
            let x = linalg::solve_triangular(&a, &side, upper).unwrap();
            assert!(apart(&part.matmul(&x).unwrap(), &side.broadcast_to(&whole).unwrap()) < near);
            let symmetric = a.matmul(&turned(&a)).unwrap().divide(n as f64).unwrap();
            let factor = linalg::cholesky(&symmetric, upper).unwrap();
            let again = if upper { turned(&factor).matmul(&factor) } else { factor.matmul(&turned(&factor)) };
            assert!(apart(&again.unwrap(), &symmetric) < near * n as f64);
            let inverse = linalg::cholesky_inv(&factor, upper).unwrap();
            assert!(apart(&inverse.matmul(&symmetric).unwrap(), &eye(n, &a)) < near);
        }
    }
}

#[test]
fn eigenvectors_are_stretched_by_their_eigenvalues() {
    for (seed, (dtype, shape)) in cases().filter(|(_, shape)| is_square(shape)).enumerate() {
        let a = matrix(200 + seed as u64, &shape, dtype);
        let symmetric = a.add(turned(&a)).unwrap();
        for upper in [false, true] {
            let (values, vectors) = linalg::eigh(&symmetric, upper).unwrap();
            let stretched = vectors.multiply(values.expand_dims(-2).unwrap()).unwrap();
            assert!(apart(&symmetric.matmul(&vectors).unwrap(), &stretched) < 5.0 * near(dtype));
            assert!(apart(&linalg::eigvalsh(&symmetric, upper).unwrap(), &values) < near(dtype));
            let sorted = values.sort(Some(-1)).unwrap();
            assert_eq!(apart(&sorted, &values), 0.0);
        }
        let (values, vectors) = linalg::eig(&a).unwrap();
        assert_eq!((values.dtype(), vectors.dtype()), (dtype.complex(), dtype.complex()));
        let complex = a.astype(dtype.complex()).unwrap();
        let stretched = vectors.multiply(values.expand_dims(-2).unwrap()).unwrap();
        assert!(apart(&complex.matmul(&vectors).unwrap(), &stretched) < 2e-2, "eig of {shape:?}");
        let lengths = vectors.abs().unwrap().square().unwrap().sum(-2).unwrap();
        assert!(apart(&lengths, &lengths.ones_like().unwrap()) < 1e-4);
    }
}

#[test]
fn only_the_triangle_that_is_asked_for_is_looked_at() {
    let a = Array::try_from_slice(&[4.0f32, 100.0, 1.0, 3.0], &[2, 2]).unwrap();
    let lower = linalg::eigvalsh(&a, false).unwrap().to_vec::<f32>().unwrap();
    assert!((lower[0] - 2.381966).abs() < 1e-5 && (lower[1] - 4.618034).abs() < 1e-5);
    let upper = linalg::eigvalsh(&a, true).unwrap().to_vec::<f32>().unwrap();
    assert!(upper[0] < -90.0 && upper[1] > 100.0);
    let factor = linalg::cholesky(&a, false).unwrap().to_vec::<f32>().unwrap();
    assert!(factor[0] == 2.0 && factor[1] == 0.0 && factor[2] == 0.5);
}

#[test]
fn complex_matrices_have_inverses_factors_and_determinants() {
    for (dtype, near) in [(Dtype::Complex64, 1e-3), (Dtype::Complex128, 1e-11)] {
        let (re, im) = (matrix(7, &[2, 4, 4], dtype), matrix(8, &[2, 4, 4], dtype));
        let a = re.add(im.multiply([0.0f64, 1.0]).unwrap()).unwrap();
        let adjoint = |a: &Array| turned(a).conjugate().unwrap();
        let unit = eye(4, &a);
        assert!(apart(&linalg::inv(&a).unwrap().matmul(&a).unwrap(), &unit) < near);
        assert!(apart(&linalg::pinv(&a).unwrap().matmul(&a).unwrap(), &unit) < near);
        assert!(apart(&a.matmul(&linalg::solve(&a, &unit).unwrap()).unwrap(), &unit) < near);
        let (q, r) = linalg::qr(&a).unwrap();
        assert!(
            apart(&q.matmul(&r).unwrap(), &a) < near && apart(&adjoint(&q).matmul(&q).unwrap(), &unit) < near
        );
        let positive = a.matmul(&adjoint(&a)).unwrap().add(&unit).unwrap();
        let factor = linalg::cholesky(&positive, false).unwrap();
        assert!(apart(&factor.matmul(&adjoint(&factor)).unwrap(), &positive) < 10.0 * near);
        let (sign, size) = linalg::slogdet(&a).unwrap();
        assert_eq!((sign.dtype(), size.dtype()), (dtype, dtype.real()));
        let product = sign.multiply(size.exp().unwrap()).unwrap();
        assert!(apart(&product, &linalg::det(&a).unwrap()) < 10.0 * near);
    }
}

#[test]
fn complex_matrices_have_singular_values_and_eigenvalues() {
    let parts: Vec<[f32; 2]> = (0..16).map(|at| [(at * 7 % 5) as f32, (at * 3 % 4) as f32 - 1.0]).collect();
    let a = Array::try_from_slice(&parts, &[4, 4]).unwrap();
    let adjoint = turned(&a).conjugate().unwrap();
    let (u, s, vt) = linalg::svd(&a).unwrap();
    assert_eq!(s.dtype(), Dtype::Float32);
    let again = u.multiply(s.expand_dims(-2).unwrap()).unwrap().matmul(&vt).unwrap();
    assert!(apart(&again, &a) < 1e-4);
    let hermitian = a.add(&adjoint).unwrap();
    let (values, vectors) = linalg::eigh(&hermitian, false).unwrap();
    let stretched = vectors.multiply(values.expand_dims(-2).unwrap()).unwrap();
    assert!(apart(&hermitian.matmul(&vectors).unwrap(), &stretched) < 1e-4);
    let (values, vectors) = linalg::eig(&a).unwrap();
    let stretched = vectors.multiply(values.expand_dims(-2).unwrap()).unwrap();
    assert!(apart(&a.matmul(&vectors).unwrap(), &stretched) < 1e-4);
}

#[test]
fn exchanges_and_determinants_go_together() {
    let a = Array::try_from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
    let (factors, swaps) = linalg::lu_factor(&a).unwrap();
    assert_eq!(swaps.to_vec::<u32>().unwrap(), [1, 1]);
    assert_eq!(factors.to_vec::<f32>().unwrap()[..2], [3.0, 4.0]);
    assert!((linalg::det(&a).unwrap().item::<f32>().unwrap() + 2.0).abs() < 1e-6);
    let (sign, size) = linalg::slogdet(&a).unwrap();
    assert_eq!(sign.item::<f32>().unwrap(), -1.0);
    assert!((size.item::<f32>().unwrap() - 2f32.ln()).abs() < 1e-6);
    assert_eq!(
        linalg::det(&Array::zeros(&[3, 3], Dtype::Float32).unwrap()).unwrap().item::<f32>().unwrap(),
        0.0
    );
    let whole = Array::try_from_slice(&[1, 2, 3, 4], &[2, 2]).unwrap();
    assert_eq!(linalg::det(&whole).unwrap().dtype(), Dtype::Float32);
}

#[test]
fn empty_matrices_and_empty_batches_have_empty_results() {
    let none = Array::zeros(&[0, 0], Dtype::Float32).unwrap();
    for result in [
        linalg::inv(&none),
        linalg::cholesky(&none, false),
        linalg::pinv(&none),
        linalg::tri_inv(&none, true),
    ] {
        let result = result.unwrap();
        result.eval().unwrap();
        assert_eq!(result.shape(), [0, 0]);
    }
    assert_eq!(linalg::det(&none).unwrap().item::<f32>().unwrap(), 1.0);
    let (values, vectors) = linalg::eigh(&none, false).unwrap();
    hesper::eval([&values, &vectors]).unwrap();
    let batch = Array::zeros(&[0, 3, 3], Dtype::Float32).unwrap();
    let (q, r) = linalg::qr(&batch).unwrap();
    hesper::eval([&q, &r]).unwrap();
    assert_eq!((q.shape(), r.shape()), (&[0, 3, 3][..], &[0, 3, 3][..]));
    let flat = Array::zeros(&[0, 3], Dtype::Float32).unwrap();
    let (_, s, vt) = linalg::svd(&flat).unwrap();
    assert_eq!(s.shape(), [0]);
    assert!(apart(&vt.matmul(&turned(&vt)).unwrap(), &eye(3, &vt)) < 1e-6);
    assert_eq!(linalg::pinv(&flat).unwrap().shape(), [3, 0]);
}

#[test]
fn what_has_no_answer_fails_when_it_is_computed() {
    let singular = Array::try_from_slice(&[1.0f32, 2.0, 2.0, 4.0], &[2, 2]).unwrap();
    let side = Array::from_slice(&[1.0f32, 2.0]);
    assert!(linalg::inv(&singular).unwrap().eval().is_err());
    assert!(linalg::solve(&singular, &side).unwrap().eval().is_err());
    let zero = singular.multiply(0.0).unwrap();
    assert!(linalg::tri_inv(&zero, false).unwrap().eval().is_err());
    assert!(linalg::solve_triangular(&zero, &side, true).unwrap().eval().is_err());
    assert!(linalg::cholesky(&singular.negative().unwrap(), false).unwrap().eval().is_err());
    let nan = singular.multiply(f64::NAN).unwrap();
    assert!(linalg::svd(&nan).unwrap().1.eval().is_err() && linalg::eig(&nan).unwrap().0.eval().is_err());
    // One bad matrix is named, and poisons only its own array.
    let good = Array::identity(2, Dtype::Float32).unwrap();
    let both = hesper::stack(&[good.clone(), singular.clone()], 0).unwrap();
    let error = linalg::inv(&both).unwrap().eval().unwrap_err().to_string();
    assert!(error.contains("matrix 1") && error.contains("singular"), "{error}");
    assert_eq!(linalg::inv(&good).unwrap().to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 1.0]);
    assert!(
        linalg::qr(&singular).unwrap().0.eval().is_ok() && linalg::lu(&singular).unwrap().1.eval().is_ok()
    );
}

#[test]
fn shapes_and_types_that_do_not_fit_are_refused_at_once() {
    let flat = Array::zeros(&[3, 4], Dtype::Float32).unwrap();
    let whole = Array::zeros(&[2, 2], Dtype::Int32).unwrap();
    let half = Array::zeros(&[2, 2], Dtype::Float16).unwrap();
    let vector = Array::from_slice(&[1.0f32, 2.0]);
    assert!(
        linalg::inv(&flat).is_err() && linalg::eigh(&flat, false).is_err() && linalg::det(&flat).is_err()
    );
    for a in [&whole, &half, &vector] {
        assert!(linalg::inv(a).is_err() && linalg::svd(a).is_err() && linalg::qr(a).is_err());
        assert!(linalg::lu(a).is_err() && linalg::cholesky(a, true).is_err() && linalg::eig(a).is_err());
    }
    let good = Array::identity(3, Dtype::Float32).unwrap();
    assert!(
        linalg::solve(&good, &vector).is_err() && linalg::solve_triangular(&flat, &vector, false).is_err()
    );
    assert!(linalg::cross(&flat, &flat, -1).is_err() && linalg::cross(&flat, &flat, 2).is_err());
}

#[test]
fn cross_products_broadcast_and_fill_up_with_zeros() {
    let (a, b) = (Array::from_slice(&[1.0f32, 2.0]), Array::from_slice(&[4.0f32, 5.0, 6.0]));
    assert_eq!(linalg::cross(&a, &b, -1).unwrap().to_vec::<f32>().unwrap(), [12.0, -6.0, -3.0]);
    assert_eq!(linalg::cross(&a, &a, -1).unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0, 0.0]);
    let many = Array::ones(&[4, 1, 3], Dtype::Float32).unwrap();
    assert_eq!(
        linalg::cross(&many, &Array::ones(&[5, 3], Dtype::Float32).unwrap(), -1).unwrap().shape(),
        [4, 5, 3]
    );
}

#[test]
fn norms_of_singular_values() {
    let a = Array::try_from_slice(&[3.0f32, 0.0, 0.0, -4.0], &[2, 2]).unwrap();
    let norm = |kind| linalg::norm(&a, kind, ()).unwrap().item::<f32>().unwrap();
    assert!((norm(linalg::Norm::Nuclear) - 7.0).abs() < 1e-5);
    assert!((norm(linalg::Norm::Order(2.0)) - 4.0).abs() < 1e-5);
    assert!((norm(linalg::Norm::Order(-2.0)) - 3.0).abs() < 1e-5);
}

/// The derivative of a sum along a direction, by its gradient and by a small step.
fn slopes(f: impl Fn(&Array) -> hesper::Result<Array>, a: &Array, direction: &Array) -> (f64, f64) {
    let total = |x: &Array| f(x).unwrap().sum(()).unwrap();
    let gradient = hesper::transform::grad(|x: &[Array]| f(&x[0])?.sum(()), &[0]);
    let gradient = gradient(std::slice::from_ref(a)).unwrap().remove(0);
    let by_gradient = gradient.multiply(direction).unwrap().sum(()).unwrap().item::<f64>().unwrap();
    let step = direction.multiply(1e-6).unwrap();
    let (up, down) = (total(&a.add(&step).unwrap()), total(&a.subtract(&step).unwrap()));
    (by_gradient, up.subtract(&down).unwrap().item::<f64>().unwrap() / 2e-6)
}

#[test]
fn gradients_agree_with_small_steps() {
    type Function = fn(&Array) -> hesper::Result<Array>;
    // Weights make every element of a result count for itself.
    fn weighed(x: &Array) -> hesper::Result<Array> {
        x.multiply(matrix(9, x.shape(), Dtype::Float64))
    }
    let general: [(&str, Function); 9] = [
        ("inv", |a| weighed(&linalg::inv(a)?)),
        ("tri_inv", |a| weighed(&linalg::tri_inv(a, true)?)),
        ("solve", |a| weighed(&linalg::solve(a, &matrix(8, &[4, 2], Dtype::Float64))?)),
        ("solve, right side", |b| weighed(&linalg::solve(&matrix(8, &[4, 4], Dtype::Float64), b)?)),
        ("solve_triangular", |a| {
            weighed(&linalg::solve_triangular(a, &matrix(8, &[4, 2], Dtype::Float64), false)?)
        }),
        ("det", linalg::det),
        ("slogdet", |a| Ok(linalg::slogdet(a)?.1)),
        ("qr", |a| {
            let (q, r) = linalg::qr(a)?;
            weighed(&q)?.add(&weighed(&r)?)
        }),
        ("singular values", |a| weighed(&linalg::singular_values(a)?)),
    ];
    let a = matrix(1, &[4, 4], Dtype::Float64)
        .add(Array::identity(4, Dtype::Float64).unwrap().multiply(3.0).unwrap());
    let (a, direction) = (a.unwrap(), matrix(2, &[4, 4], Dtype::Float64));
    for (name, f) in general {
        let (by_gradient, by_step) = slopes(f, &a, &direction);
        assert!(
            (by_gradient - by_step).abs() < 1e-4 * by_step.abs().max(1.0),
            "{name}: {by_gradient} and {by_step}"
        );
    }
    let of_symmetric: [(&str, Function); 4] = [
        ("cholesky", |a| weighed(&linalg::cholesky(a, false)?)),
        ("upper cholesky", |a| weighed(&linalg::cholesky(a, true)?)),
        ("eigvalsh", |a| weighed(&linalg::eigvalsh(a, false)?)),
        ("eigh", |a| {
            let (w, v) = linalg::eigh(a, false)?;
            weighed(&v.square()?)?.add(&w)
        }),
    ];
    let symmetric = a.matmul(&turned(&a)).unwrap();
    let direction = direction.add(turned(&direction)).unwrap();
    for (name, f) in of_symmetric {
        let (by_gradient, by_step) = slopes(f, &symmetric, &direction);
        assert!(
            (by_gradient - by_step).abs() < 1e-4 * by_step.abs().max(1.0),
            "{name}: {by_gradient} and {by_step}"
        );
    }
}

#[test]
fn functions_of_matrices_are_mapped_over_one_axis_more() {
    let a = matrix(3, &[4, 4, 3], Dtype::Float32);
    let each = |f: fn(&Array) -> hesper::Result<Array>| {
        let mapped = hesper::transform::vmap(move |x: &[Array]| Ok(vec![f(&x[0])?]), &[Some(2)], &[Some(0)]);
        let together = mapped(std::slice::from_ref(&a)).unwrap().remove(0);
        let front = a.moveaxis(2, 0).unwrap();
        assert!(apart(&together, &f(&front).unwrap()) < 1e-3);
    };
    each(linalg::inv);
    each(linalg::det);
    each(|a| Ok(linalg::qr(a)?.1));
    each(|a| Ok(linalg::svd(a)?.1));
}

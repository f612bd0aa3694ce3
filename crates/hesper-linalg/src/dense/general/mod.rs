//! Eigenvalues and eigenvectors of any square matrix: balancing, reduction to Hessenberg form, the QR
//! algorithm, and back substitution, in double precision.

mod balance;
mod complex_schur;
mod hessenberg;
mod real_schur;
mod schur;
mod triangular_vectors;

use hesper_compute::Par;

use super::block::{Block, multiply, subtract};
use super::complex::Complex;
use super::{balance as power_of_two, largest};
use crate::Failure;
use balance::Balanced;
use complex_schur::{ComplexSchur, Planes};
use hessenberg::Hessenberg;
use real_schur::RealSchur;
use triangular_vectors::{complex_vectors, real_vectors};

/// Vectors multiplied at once by the Schur vectors: those of a block are zero after its last one.
const BLOCK: usize = 64;

/// The eigenvalues of a matrix, and its eigenvectors as rows of real and of imaginary parts.
pub struct Eigen {
    pub(crate) values: Vec<[f64; 2]>,
    pub(crate) vectors: Option<[Vec<f64>; 2]>,
}

/// Eigenvalues, and vectors of length one, of a real matrix.
pub(crate) fn real_eigen(par: &dyn Par, n: usize, mut a: Vec<f64>, vectors: bool) -> Result<Eigen, Failure> {
    // Scale after balancing, which may bring the elements of a matrix together.
    let balanced = Balanced::new(n, &mut a);
    let scale = power_of_two(&a).unwrap_or(1.0);
    a.iter_mut().for_each(|x| *x *= scale);
    let reduced = Hessenberg::new(par, n, &mut a)?;
    let mut basis = if vectors { Some(reduced.columns(par)?) } else { None };
    let mut schur = RealSchur { simd: par.simd(), n, h: &mut a, vectors: basis.as_deref_mut() };
    let mut values = schur.reduce()?;
    let vectors = match basis {
        None => None,
        Some(basis) => {
            let mut inner = vec![0.0; n * n];
            real_vectors(par.simd(), n, &a, &values, &mut inner);
            let mut re = vec![0.0; n * n];
            transform(par, n, &inner, &basis, &mut re, multiply)?;
            let im = separate(n, &values, &mut re);
            Some(finish(&balanced, n, re, im))
        }
    };
    values.iter_mut().flatten().for_each(|x| *x /= scale);
    Ok(Eigen { values, vectors })
}

/// Eigenvalues, and vectors of length one, of a complex matrix.
pub(crate) fn complex_eigen(
    par: &dyn Par,
    n: usize,
    mut a: Vec<Complex<f64>>,
    vectors: bool,
) -> Result<Eigen, Failure> {
    use super::field::Field;
    let balanced = Balanced::new(n, &mut a);
    let scale = power_of_two(Complex::parts(&a)).unwrap_or(1.0);
    a.iter_mut().for_each(|x| *x = x.times(scale));
    let reduced = Hessenberg::new(par, n, &mut a)?;
    let mut h = Planes::new(&a);
    let mut basis = if vectors { Some(Planes::new(&reduced.columns(par)?)) } else { None };
    ComplexSchur { simd: par.simd(), n, h: &mut h, vectors: basis.as_mut() }.reduce()?;
    let values = (0..n).map(|at| h.get(at * n + at).over(scale).0).collect();
    let vectors = match basis {
        None => None,
        Some(basis) => {
            let (mut x, mut x_im) = (vec![0.0; n * n], vec![0.0; n * n]);
            complex_vectors(par.simd(), n, [&h.re, &h.im], [&mut x, &mut x_im]);
            let (mut re, mut im) = (vec![0.0; n * n], vec![0.0; n * n]);
            transform(par, n, &x, &basis.re, &mut re, multiply)?;
            transform(par, n, &x_im, &basis.im, &mut re, subtract)?;
            transform(par, n, &x, &basis.im, &mut im, multiply)?;
            x_im.iter_mut().for_each(|x| *x = -*x);
            transform(par, n, &x_im, &basis.re, &mut im, subtract)?;
            Some(finish(&balanced, n, re, im))
        }
    };
    Ok(Eigen { values, vectors })
}

type Product =
    fn(&dyn Par, [usize; 3], Block<'_, f64>, Block<'_, f64>, &mut [f64], usize) -> Result<(), Failure>;

/// Applies a product to a lower triangular matrix (up to one element per row) and the Schur vectors.
fn transform(
    par: &dyn Par,
    n: usize,
    inner: &[f64],
    basis: &[f64],
    to: &mut [f64],
    product: Product,
) -> Result<(), Failure> {
    for first in (0..n).step_by(BLOCK) {
        let count = BLOCK.min(n - first);
        let length = n.min(first + count + 1);
        let rows = Block::rows(&inner[first * n..], n);
        product(par, [count, length, n], rows, Block::rows(basis, n), &mut to[first * n..], n)?;
    }
    Ok(())
}

/// Separates real and imaginary parts of conjugated vectors, which follow each other; returns the latter.
fn separate(n: usize, values: &[[f64; 2]], re: &mut [f64]) -> Vec<f64> {
    let mut im = vec![0.0; n * n];
    let mut at = 0;
    while at < n {
        if values[at][1] == 0.0 {
            at += 1;
            continue;
        }
        let (first, second) = re[at * n..][..2 * n].split_at_mut(n);
        let (to, conjugated) = im[at * n..][..2 * n].split_at_mut(n);
        to.copy_from_slice(second);
        second.copy_from_slice(first);
        conjugated.iter_mut().zip(to).for_each(|(to, x)| *to = -*x);
        at += 2;
    }
    im
}

/// Vectors of the matrix, of length one and with real largest elements, from those of the balanced one.
fn finish(balanced: &Balanced, n: usize, mut re: Vec<f64>, mut im: Vec<f64>) -> [Vec<f64>; 2] {
    for (re, im) in re.chunks_exact_mut(n).zip(im.chunks_exact_mut(n)) {
        balanced.restore(re, im);
        let most = largest(re).max(largest(im));
        for x in re.iter_mut().chain(&mut *im) {
            *x /= most;
        }
        let square = |re: f64, im: f64| re * re + im * im;
        let sum: f64 = re.iter().zip(&*im).map(|(re, im)| square(*re, *im)).sum();
        let length = sum.sqrt();
        if im.iter().all(|x| *x == 0.0) {
            re.iter_mut().for_each(|x| *x /= length);
            continue;
        }
        let at = (0..n).fold(0, |at, i| if square(re[i], im[i]) > square(re[at], im[at]) { i } else { at });
        let size = square(re[at], im[at]).sqrt();
        let (cosine, sine) = (re[at] / size / length, im[at] / size / length);
        for (re, im) in re.iter_mut().zip(&mut *im) {
            (*re, *im) = (*re * cosine + *im * sine, *im * cosine - *re * sine);
        }
        im[at] = 0.0;
    }
    [re, im]
}

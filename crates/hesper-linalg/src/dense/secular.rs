//! The secular equation `1 / rho + sum of w[j] / (p[j] - x) = 0`, whose roots are the eigenvalues of a
//! diagonal matrix plus a rank-one matrix.
//!
//! There is one root after each pole `p[j]` and before the next. A root is stored as its distance from the
//! nearest pole, so that its distances from all poles are accurate to the last bits, as orthogonal vectors
//! require. Poles are the points of the equation or, for singular values, their squares, of which only
//! differences are computed. Everything is in double precision, whatever the type of the vectors.

use hesper_compute::{Par, Simd};

use super::multiversion::{Multiversioned, run_multiversioned};
use super::parallel::{each, grain};

/// Independent partial sums.
const LANES: usize = 8;
/// Factors of a product before it is divided: too few to overflow or underflow.
const PRODUCT_FACTORS: usize = 4;
/// Most steps per root: a step that does not improve bisects the bracket.
const STEPS: usize = 200;

/// A point far beyond all others, which pads lists to whole chunks.
const PADDING: f64 = 1e20;

/// The equation.
pub(super) struct Secular {
    count: usize,
    /// Points, strictly ascending, padded to whole chunks.
    points: Vec<f64>,
    /// Weights, all positive; padded with zeros.
    weights: Vec<f64>,
    constant: f64,
    /// Whether poles are the squares of the points.
    squared: bool,
    /// The relative size at which a sum counts as zero.
    tolerance: f64,
    simd: Simd,
}

/// A root: the point of the nearest pole, and the distance from that pole.
#[derive(Clone, Copy, Default)]
pub(super) struct Root {
    pub(super) near: f64,
    pub(super) beyond: f64,
}

/// A sum over poles, and its derivative.
#[derive(Clone, Copy)]
struct Sum {
    value: f64,
    slope: f64,
}

impl Secular {
    /// The equation with a positive constant, positive weights and ascending points.
    pub(super) fn new(
        mut points: Vec<f64>,
        mut weights: Vec<f64>,
        constant: f64,
        squared: bool,
        (tolerance, simd): (f64, Simd),
    ) -> Self {
        let count = points.len();
        points.resize(count.next_multiple_of(LANES), PADDING);
        weights.resize(points.len(), 0.0);
        Self { count, points, weights, constant, squared, tolerance, simd }
    }

    /// All roots, ascending, followed by padding.
    pub(super) fn roots(&self, par: &dyn Par) -> Vec<Root> {
        let mut roots = vec![Root { near: PADDING, beyond: 0.0 }; self.points.len()];
        let chunk = grain(self.count);
        each(par, roots[..self.count].chunks_mut(chunk).enumerate(), |(at, roots)| {
            let mut distances = vec![0.0; self.points.len()];
            for (i, root) in roots.iter_mut().enumerate() {
                *root = self.root(at * chunk + i, &mut distances);
            }
        });
        roots
    }

    /// The point of each pole.
    pub(super) fn points(&self) -> &[f64] {
        &self.points[..self.count]
    }

    /// The difference of the poles of two points.
    #[inline(always)]
    fn apart(&self, one: f64, other: f64) -> f64 {
        apart(self.squared, one, other)
    }

    /// The distances of all poles from that of a point.
    fn distances(&self, point: f64, to: &mut [f64]) {
        if self.squared {
            to.iter_mut().zip(&self.points).for_each(|(to, x)| *to = (x - point) * (x + point));
        } else {
            to.iter_mut().zip(&self.points).for_each(|(to, x)| *to = x - point);
        }
    }

    fn root(&self, i: usize, distances: &mut [f64]) -> Root {
        let count = self.count;
        let mut near = self.points[i];
        if count == 1 {
            return Root { near, beyond: self.weights[0] / self.constant };
        }
        // The root after the last pole is computed from the last two poles.
        let last = i + 1 == count;
        let pair = i.min(count - 2);
        self.distances(near, distances);
        let gap = if last {
            self.weights.iter().sum::<f64>() / self.constant
        } else {
            self.apart(self.points[i + 1], near)
        };
        let (mut low, mut high, mut x) = (0.0, gap, gap / 2.0);
        let [left, right] = self.sums(pair, distances, x);
        let value = self.constant + left.value + right.value;
        let (s, t) = (self.weights[pair], self.weights[pair + 1]);
        let rest = value - s / (distances[pair] - x) - t / (distances[pair + 1] - x);
        if value > 0.0 {
            high = x;
        } else if last {
            low = x;
        } else {
            // Nearer to the next pole: measure distances from there.
            near = self.points[i + 1];
            self.distances(near, distances);
            (low, high) = (-gap / 2.0, 0.0);
        }
        // The two poles exactly, the others as they were in the middle.
        let (a, b) = (distances[pair], distances[pair + 1]);
        x = between(crossing(rest, [s, t], [a, b], s * b + t * a + rest * a * b, last), low, high);
        for _ in 0..STEPS {
            let [left, right] = self.sums(pair, distances, x);
            let value = self.constant + left.value + right.value;
            let size = self.constant + left.value.abs() + right.value.abs();
            if value.abs() <= self.tolerance * size {
                break;
            }
            if value > 0.0 {
                high = x
            } else {
                low = x
            }
            if high - low <= 2.0 * f64::EPSILON * x.abs() {
                break;
            }
            // Replace each side by one pole with the same value and slope.
            let (a, b) = (distances[pair] - x, distances[pair + 1] - x);
            let weights = [left.slope * a * a, right.slope * b * b];
            let rest = value - left.slope * a - right.slope * b;
            let next = between(x + crossing(rest, weights, [a, b], a * b * value, last), low, high);
            if next == x {
                break;
            }
            x = next;
        }
        Root { near, beyond: x }
    }

    /// The sums over poles up to the `i`th, and over those after it, at `x`.
    fn sums(&self, i: usize, distances: &[f64], x: f64) -> [Sum; 2] {
        run_multiversioned(self.simd, Sums { weights: &self.weights, distances, split: i + 1, x })
    }

    /// Square roots of the weights for which the computed roots are exact, with the signs of `like`; padded
    /// with zeros.
    pub(super) fn exact(
        &self,
        par: &dyn Par,
        roots: &[Root],
        like: impl Fn(usize) -> f64 + Sync,
    ) -> Vec<f64> {
        let mut exact = vec![0.0; self.points.len()];
        let chunk = grain(self.count);
        each(par, exact[..self.count].chunks_mut(chunk).enumerate(), |(at, exact)| {
            for (i, to) in exact.iter_mut().enumerate() {
                let own = self.points[at * chunk + i];
                let ratios = Ratios { roots, points: &self.points, own, squared: self.squared };
                *to = run_multiversioned(self.simd, ratios).abs().sqrt().copysign(like(at * chunk + i));
            }
        });
        exact
    }

    /// `z[j] / (p[j] - root)`; padded with zeros.
    pub(super) fn parts(&self, root: Root, z: &[f64], to: &mut [f64]) {
        run_multiversioned(self.simd, Parts { points: &self.points, z, root, squared: self.squared, to });
    }
}

/// The difference of two points or of their squares.
#[inline(always)]
fn apart(squared: bool, one: f64, other: f64) -> f64 {
    if squared { (one - other) * (one + other) } else { one - other }
}

struct Ratios<'a> {
    roots: &'a [Root],
    points: &'a [f64],
    own: f64,
    squared: bool,
}

impl Multiversioned for Ratios<'_> {
    type Out = f64;
    #[inline(always)]
    fn run(self) -> f64 {
        if self.squared { ratios::<true>(&self) } else { ratios::<false>(&self) }
    }
}

/// The product of the distances of all roots from a point, divided by those of all other poles.
#[inline(always)]
fn ratios<const SQUARED: bool>(of: &Ratios<'_>) -> f64 {
    let (roots, points) = (of.roots.as_chunks::<LANES>().0, of.points.as_chunks::<LANES>().0);
    let mut lanes = [1.0; LANES];
    for (roots, points) in roots.chunks(PRODUCT_FACTORS).zip(points.chunks(PRODUCT_FACTORS)) {
        let (mut above, mut below) = ([1.0; LANES], [1.0; LANES]);
        for (roots, points) in roots.iter().zip(points) {
            for lane in 0..LANES {
                above[lane] *= apart(SQUARED, roots[lane].near, of.own) + roots[lane].beyond;
                let from = apart(SQUARED, points[lane], of.own);
                below[lane] *= if from == 0.0 { 1.0 } else { from };
            }
        }
        for lane in 0..LANES {
            lanes[lane] *= above[lane] / below[lane];
        }
    }
    let mut product = 1.0;
    for lane in lanes {
        product *= lane;
    }
    product
}

struct Parts<'a> {
    points: &'a [f64],
    z: &'a [f64],
    root: Root,
    squared: bool,
    to: &'a mut [f64],
}

impl Multiversioned for Parts<'_> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        if self.squared { parts::<true>(self) } else { parts::<false>(self) }
    }
}

#[inline(always)]
fn parts<const SQUARED: bool>(of: Parts<'_>) {
    let (z, points) = (of.z.as_chunks::<LANES>().0, of.points.as_chunks::<LANES>().0);
    for ((to, z), points) in of.to.as_chunks_mut::<LANES>().0.iter_mut().zip(z).zip(points) {
        for lane in 0..LANES {
            to[lane] = z[lane] / (apart(SQUARED, points[lane], of.root.near) - of.root.beyond);
        }
    }
}

struct Sums<'a> {
    weights: &'a [f64],
    distances: &'a [f64],
    split: usize,
    x: f64,
}

impl Multiversioned for Sums<'_> {
    type Out = [Sum; 2];
    #[inline(always)]
    fn run(self) -> [Sum; 2] {
        let weights = self.weights.as_chunks::<LANES>().0;
        let distances = self.distances.as_chunks::<LANES>().0;
        let (whole, within) = (self.split / LANES, self.split % LANES);
        let (mut left, mut right) = ([[0.0; LANES]; 2], [[0.0; LANES]; 2]);
        for (weights, distances) in weights.iter().zip(distances).take(whole) {
            add(weights, distances, self.x, &mut left);
        }
        let mut rest = whole;
        if within > 0 {
            // The chunk that the pole falls into: each side takes its weights.
            let (mut before, mut behind) = ([0.0; LANES], weights[whole]);
            for lane in 0..within {
                (before[lane], behind[lane]) = (behind[lane], 0.0);
            }
            add(&before, &distances[whole], self.x, &mut left);
            add(&behind, &distances[whole], self.x, &mut right);
            rest += 1;
        }
        for (weights, distances) in weights.iter().zip(distances).skip(rest) {
            add(weights, distances, self.x, &mut right);
        }
        [total(&left), total(&right)]
    }
}

/// Adds to sums and their slopes.
#[inline(always)]
fn add(weights: &[f64; LANES], distances: &[f64; LANES], x: f64, sums: &mut [[f64; LANES]; 2]) {
    let mut inverses = [0.0; LANES];
    for lane in 0..LANES {
        inverses[lane] = 1.0 / (distances[lane] - x);
    }
    for lane in 0..LANES {
        sums[0][lane] += weights[lane] * inverses[lane];
    }
    for lane in 0..LANES {
        sums[1][lane] += weights[lane] * inverses[lane] * inverses[lane];
    }
}

#[inline(always)]
fn total(sums: &[[f64; LANES]; 2]) -> Sum {
    Sum { value: sums[0].iter().sum(), slope: sums[1].iter().sum() }
}

/// The length of a vector.
pub(super) fn length(x: &[f64]) -> f64 {
    let (many, rest) = x.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for chunk in many {
        for lane in 0..LANES {
            sums[lane] += chunk[lane] * chunk[lane];
        }
    }
    let rest: f64 = rest.iter().map(|x| x * x).sum();
    (sums.iter().sum::<f64>() + rest).sqrt()
}

/// Where `rest + s / (a - x) + t / (b - x)` is zero: between `a` and `b`, or after them. `constant` is the
/// left side at zero times `a b`.
fn crossing(rest: f64, [s, t]: [f64; 2], [a, b]: [f64; 2], constant: f64, behind: bool) -> f64 {
    let middle = rest * (a + b) + s + t;
    let root = (middle * middle - 4.0 * rest * constant).max(0.0).sqrt();
    let root = if behind { -root } else { root };
    if (middle <= 0.0) != behind { (middle - root) / (2.0 * rest) } else { 2.0 * constant / (middle + root) }
}

/// `x` if it lies within a bracket, else the middle of the bracket.
fn between(x: f64, low: f64, high: f64) -> f64 {
    if x > low && x < high { x } else { low + (high - low) / 2.0 }
}

#[cfg(test)]
mod tests {
    use hesper_compute::Serial;

    use super::*;

    #[test]
    fn roots_lie_between_poles_and_are_exact_for_weights_next_to_those_given() {
        for (count, gap) in [(1, 1.0), (2, 1e-12), (3, 0.5), (50, 1e-6), (129, 1e-14)] {
            for (squared, simd) in [(false, Simd::Plain), (true, Simd::detect())] {
                let points: Vec<f64> =
                    (0..count).map(|at| at as f64 + if at % 3 == 2 { gap - 1.0 } else { 0.0 }).collect();
                let weights: Vec<f64> =
                    (0..count).map(|at| if at % 5 == 3 { 1e-25 } else { 0.3 + at as f64 }).collect();
                let equation = Secular::new(points.clone(), weights.clone(), 0.7, squared, (8e-15, simd));
                let roots = equation.roots(&Serial);
                for (at, root) in roots[..count].iter().enumerate() {
                    let from = equation.apart(root.near, points[at]) + root.beyond;
                    assert!(from > 0.0, "{count} {gap} {at}");
                    if let Some(next) = points.get(at + 1) {
                        assert!(equation.apart(root.near, *next) + root.beyond < 0.0, "{count} {gap} {at}");
                    }
                }
                // Weights are divided by the constant there.
                let exact = equation.exact(&Serial, &roots, |_| 1.0);
                for (exact, weight) in exact.iter().zip(&weights) {
                    let near = (exact * exact * 0.7 / weight - 1.0).abs();
                    assert!(near < 1e-9, "{count} {gap} {squared}: {near}");
                }
            }
        }
    }
}

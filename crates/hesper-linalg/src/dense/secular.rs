//! The equation `1 / rho + sum of w[j] / (p[j] - x) = 0`, whose roots are the eigenvalues of a diagonal matrix
//! plus one of rank one.
//!
//! There is one root behind each pole `p[j]` and before the next. A root is kept as its distance from the nearest
//! pole, so that its distances from all poles are exact to the last bits, which is what orthogonal vectors
//! need. Poles are the points of the equation or, for singular values, their squares, of which only differences
//! are ever formed. All of this is in double precision, whatever the vectors are in.

use hesper_compute::Par;

use super::share::{each, grain};

/// Sums that are formed side by side.
const LANES: usize = 8;
/// Steps to a root at most: a step that does not improve halves the bracket.
const STEPS: usize = 200;

/// The equation.
pub(super) struct Secular<'a> {
    /// Points, ascending, none twice.
    pub(super) points: &'a [f64],
    /// Weights, all positive.
    pub(super) weights: &'a [f64],
    /// The constant, positive.
    pub(super) constant: f64,
    /// Whether poles are the squares of the points.
    pub(super) squared: bool,
    /// How small a sum is nothing, relative to its parts.
    pub(super) tolerance: f64,
}

/// A root: the point of the nearest pole, and how far from that pole it is.
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

impl Secular<'_> {
    /// All roots, ascending.
    pub(super) fn roots(&self, par: &dyn Par) -> Vec<Root> {
        let mut roots = vec![Root::default(); self.points.len()];
        let chunk = grain(self.points.len());
        each(par, roots.chunks_mut(chunk).enumerate(), |(at, roots)| {
            let mut distances = vec![0.0; self.points.len()];
            for (i, root) in roots.iter_mut().enumerate() {
                *root = self.root(at * chunk + i, &mut distances);
            }
        });
        roots
    }

    /// The difference of the poles of two points.
    #[inline(always)]
    fn apart(&self, one: f64, other: f64) -> f64 {
        if self.squared { (one - other) * (one + other) } else { one - other }
    }

    /// How far all poles are from that of a point.
    fn distances(&self, point: f64, to: &mut [f64]) {
        if self.squared {
            to.iter_mut().zip(self.points).for_each(|(to, x)| *to = (x - point) * (x + point));
        } else {
            to.iter_mut().zip(self.points).for_each(|(to, x)| *to = x - point);
        }
    }

    fn root(&self, i: usize, distances: &mut [f64]) -> Root {
        let count = self.points.len();
        let mut near = self.points[i];
        if count == 1 {
            return Root { near, beyond: self.weights[0] / self.constant };
        }
        // The root behind the last pole is found from the last two.
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
            // Nearer to the next pole: everything is measured from there.
            near = self.points[i + 1];
            self.distances(near, distances);
            (low, high) = (-gap / 2.0, 0.0);
        }
        // The two poles as they are, the others as they were in the middle.
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
            // Each side is replaced by one pole that has its value and slope.
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

    /// The sums over poles up to the `i`th, and over those behind, at `x`.
    fn sums(&self, i: usize, distances: &[f64], x: f64) -> [Sum; 2] {
        let (left, right) = distances.split_at(i + 1);
        let (before, behind) = self.weights.split_at(i + 1);
        [sum(before, left, x), sum(behind, right, x)]
    }

    /// Square roots of the weights for which the roots are exact.
    pub(super) fn exact(&self, par: &dyn Par, roots: &[Root]) -> Vec<f64> {
        let mut exact = vec![0.0; self.points.len()];
        let chunk = grain(self.points.len());
        each(par, exact.chunks_mut(chunk).enumerate(), |(at, exact)| {
            for (i, to) in exact.iter_mut().enumerate() {
                *to = self.exact_one(at * chunk + i, roots);
            }
        });
        exact
    }

    fn exact_one(&self, j: usize, roots: &[Root]) -> f64 {
        let own = self.points[j];
        let (before, behind) = self.points.split_at(j);
        let (first, second) = roots.split_at(j);
        let mut product = self.ratios(own, first, before) * self.ratios(own, second, &behind[1..]);
        if let Some(last) = roots.last() {
            product *= self.apart(last.near, own) + last.beyond;
        }
        product.abs().sqrt()
    }

    /// The product of distances of roots from a point, divided by those of poles.
    fn ratios(&self, own: f64, roots: &[Root], points: &[f64]) -> f64 {
        let mut lanes = [1.0; LANES];
        let count = roots.len().min(points.len());
        let (roots, points) = (&roots[..count], &points[..count]);
        let (many, rest) = roots.as_chunks::<LANES>();
        let (poles, others) = points.as_chunks::<LANES>();
        for (roots, points) in many.iter().zip(poles) {
            for lane in 0..LANES {
                let above = self.apart(roots[lane].near, own) + roots[lane].beyond;
                lanes[lane] *= above / self.apart(points[lane], own);
            }
        }
        for (root, point) in rest.iter().zip(others) {
            lanes[0] *= (self.apart(root.near, own) + root.beyond) / self.apart(*point, own);
        }
        lanes.iter().product()
    }

    /// Numbers `z[j] / (p[j] - root)`.
    pub(super) fn parts(&self, root: Root, z: &[f64], to: &mut [f64]) {
        for ((to, z), point) in to.iter_mut().zip(z).zip(self.points) {
            *to = z / (self.apart(*point, root.near) - root.beyond);
        }
    }
}

fn sum(weights: &[f64], distances: &[f64], x: f64) -> Sum {
    let (mut value, mut slope) = ([0.0; LANES], [0.0; LANES]);
    let (many, rest) = weights.as_chunks::<LANES>();
    let (far, others) = distances.as_chunks::<LANES>();
    for (weights, distances) in many.iter().zip(far) {
        for lane in 0..LANES {
            let inverse = 1.0 / (distances[lane] - x);
            let part = weights[lane] * inverse;
            value[lane] += part;
            slope[lane] += part * inverse;
        }
    }
    for (weight, distance) in rest.iter().zip(others) {
        let inverse = 1.0 / (distance - x);
        value[0] += weight * inverse;
        slope[0] += weight * inverse * inverse;
    }
    Sum { value: value.iter().sum(), slope: slope.iter().sum() }
}

/// Where `rest + s / (a - x) + t / (b - x)` is zero: between `a` and `b`, or behind them. `constant` is the
/// left side at zero times `a b`.
fn crossing(rest: f64, [s, t]: [f64; 2], [a, b]: [f64; 2], constant: f64, behind: bool) -> f64 {
    let middle = rest * (a + b) + s + t;
    let root = (middle * middle - 4.0 * rest * constant).max(0.0).sqrt();
    let root = if behind { -root } else { root };
    if (middle <= 0.0) != behind { (middle - root) / (2.0 * rest) } else { 2.0 * constant / (middle + root) }
}

/// A number if it is inside of a bracket, else the middle of that.
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
            for squared in [false, true] {
                let points: Vec<f64> =
                    (0..count).map(|at| at as f64 + if at % 3 == 2 { gap - 1.0 } else { 0.0 }).collect();
                let weights: Vec<f64> =
                    (0..count).map(|at| if at % 5 == 3 { 1e-25 } else { 0.3 + at as f64 }).collect();
                let equation =
                    Secular { points: &points, weights: &weights, constant: 0.7, squared, tolerance: 4e-15 };
                let roots = equation.roots(&Serial);
                for (at, root) in roots.iter().enumerate() {
                    let from = equation.apart(root.near, points[at]) + root.beyond;
                    assert!(from > 0.0, "{count} {gap} {at}");
                    if let Some(next) = points.get(at + 1) {
                        assert!(equation.apart(root.near, *next) + root.beyond < 0.0, "{count} {gap} {at}");
                    }
                }
                // Weights are divided by the constant there.
                for (exact, weight) in equation.exact(&Serial, &roots).iter().zip(&weights) {
                    let near = (exact * exact * 0.7 / weight - 1.0).abs();
                    assert!(near < 1e-9, "{count} {gap} {squared}: {near}");
                }
            }
        }
    }
}

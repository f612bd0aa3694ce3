//! When the QR algorithm deflates, and when it gives up.

/// Most sweeps for an eigenvalue; two or three are typical.
pub(super) const MAX_ITERATIONS: usize = 150;

/// Numbers below this one are zero; those of a matrix are about one.
pub(super) const TINY: f64 = 1e-290;

/// Whether a subdiagonal element `below` may be set to zero: it is small beside the sum of its neighbours on
/// the diagonal, and its product with the element above the diagonal is small beside their difference and the
/// second of them (the criterion of Ahues and Tisseur).
pub(super) fn is_negligible(below: f64, above: f64, sum: f64, second: f64, difference: f64) -> bool {
    if below <= TINY {
        return true;
    }
    if below > f64::EPSILON * sum {
        return false;
    }
    let (more, less) = (below.max(above), below.min(above));
    let (large, small) = (second.max(difference), second.min(difference));
    let size = large + more;
    less * (more / size) <= TINY.max(f64::EPSILON * (small * (large / size)))
}

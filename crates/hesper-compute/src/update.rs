//! Updates of elements in place.

use crate::error::{Mismatch, same};
use crate::simd::{Float, Isa, Kernel, Simd, dispatch};

/// `to[i] += from[i]`: every sum is computed in `f32` and rounded to the type.
///
/// ```
/// use half::bf16;
/// use hesper_compute::{Simd, add_to};
///
/// let mut to = [1.0, 2.0].map(bf16::from_f32);
/// add_to(Simd::detect(), &mut to, &[0.5, -2.0].map(bf16::from_f32))?;
/// assert_eq!(to.map(bf16::to_f32), [1.5, 0.0]);
/// # Ok::<(), hesper_compute::Mismatch>(())
/// ```
pub fn add_to<T: Float>(simd: Simd, to: &mut [T], from: &[T]) -> Result<(), Mismatch> {
    same("added elements", to.len(), from.len())?;
    dispatch(simd, AddTo { to, from });
    Ok(())
}

struct AddTo<'a, T> {
    to: &'a mut [T],
    from: &'a [T],
}

impl<T: Float> Kernel for AddTo<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, s: S) {
        let n = self.to.len();
        let (to, from) = (self.to.as_mut_ptr(), self.from.as_ptr());
        let mut i = 0;
        // SAFETY: both have `n` elements.
        unsafe {
            while i + S::LANES <= n {
                let sum = s.add(T::load(s, to.add(i)), T::load(s, from.add(i)));
                T::store(s, to.add(i), sum);
                i += S::LANES;
            }
            let sum = s.add(T::load_n(s, to.add(i), n - i), T::load_n(s, from.add(i), n - i));
            T::store_n(s, to.add(i), sum, n - i);
        }
    }
}

//! The identity of ops: equality and hashes of their parameters.
//!
//! An op is a plain value, so `#[derive(PartialEq, Eq, Hash)]` is its identity: two ops of one type with
//! equal parameters, applied to the same inputs, give the same array. [`BitEq`] holds a float parameter,
//! [`Address`] a shared value that has no content to compare. An op with state of its own is equal only to
//! itself ([`equal_to_itself!`]).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A float parameter, equal to one with the same bits.
#[derive(Clone, Copy, Default)]
pub struct BitEq<T>(pub T);

impl<T: fmt::Debug> fmt::Debug for BitEq<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! compare_bits {
    ($($float:ty),*) => {$(
        impl PartialEq for BitEq<$float> {
            fn eq(&self, other: &Self) -> bool {
                self.0.to_bits() == other.0.to_bits()
            }
        }

        impl Eq for BitEq<$float> {}

        impl Hash for BitEq<$float> {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.0.to_bits().hash(state);
            }
        }

        impl From<$float> for BitEq<$float> {
            fn from(value: $float) -> Self {
                BitEq(value)
            }
        }
    )*};
}
compare_bits!(f32, f64);

impl PartialEq for BitEq<Arc<[f32]>> {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self.0.iter().zip(&*other.0).all(|(one, other)| one.to_bits() == other.to_bits())
    }
}

impl Eq for BitEq<Arc<[f32]>> {}

impl Hash for BitEq<Arc<[f32]>> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.0.len());
        self.0.iter().for_each(|value| state.write_u32(value.to_bits()));
    }
}

/// A shared value, compared by address.
pub struct Address<T: ?Sized>(pub Arc<T>);

impl<T: ?Sized> Deref for Address<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> Clone for Address<T> {
    fn clone(&self) -> Self {
        Address(self.0.clone())
    }
}

impl<T: ?Sized> fmt::Debug for Address<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.0)
    }
}

impl<T: ?Sized> PartialEq for Address<T> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&other.0))
    }
}

impl<T: ?Sized> Eq for Address<T> {}

impl<T: ?Sized> Hash for Address<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).cast::<()>().hash(state);
    }
}

/// Implements equality by address for a type of ops with state of their own.
macro_rules! equal_to_itself {
    ($type:ty) => {
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                std::ptr::eq(self, other)
            }
        }

        impl Eq for $type {}

        impl std::hash::Hash for $type {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                std::ptr::from_ref(self).hash(state);
            }
        }
    };
}
pub(crate) use equal_to_itself;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Array, Call, Op};

    fn call(array: &Array) -> Call {
        array.call().expect("lazy")
    }

    fn hash(op: &dyn Op) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        op.hash(&mut hasher);
        hasher.finish()
    }

    fn same(one: &Array, other: &Array) -> bool {
        let (one, other) = (call(one), call(other));
        let same = one.op.get() == other.op.get();
        assert!(!same || hash(one.op.get()) == hash(other.op.get()), "equal ops have equal hashes");
        same
    }

    #[test]
    fn ops_are_equal_by_type_and_parameters() {
        let x = Array::from_slice(&[1f32; 6]).reshape(&[2, 3]).unwrap();
        assert!(same(&x.exp().unwrap(), &x.exp().unwrap()));
        assert!(!same(&x.exp().unwrap(), &x.sin().unwrap()));
        assert!(same(&x.transpose(&[1, 0]).unwrap(), &x.transpose(&[1, 0]).unwrap()));
        assert!(!same(&x.transpose(&[1, 0]).unwrap(), &x.transpose(&[0, 1]).unwrap()));
        assert!(!same(&x.transpose(&[1, 0]).unwrap(), &x.exp().unwrap()));
    }

    #[test]
    fn floats_are_equal_by_their_bits() {
        assert_eq!(BitEq(f32::NAN), BitEq(f32::NAN));
        assert_ne!(BitEq(0f64), BitEq(-0f64));
        let x = Array::from_slice(&[1f32; 4]).reshape(&[2, 2]).unwrap();
        let norm = |eps: f32| crate::fast::rms_norm(&x, None, eps).unwrap();
        assert!(same(&norm(1e-5), &norm(1e-5)));
        assert!(!same(&norm(1e-5), &norm(1e-6)));
    }
}

//! Operators on arrays and numbers: `a + b`, `a += b` and the others, owned or borrowed.
//!
//! An operator panics with the message of the error that its method returns: use [`Array::add`] and the
//! others where shapes are not known.
//!
//! A number takes the type of the array beside it. On the left it is an `f64`, an `i64` or a `bool`: with
//! more types Rust could not infer that of a literal in `(1.0 - x).exp()`. On the right every number type is
//! accepted.
//!
//! ```
//! use hesper::array;
//! let mut x = array![1.0, 2.0];
//! let y = (1.0 - &x * 2.0).abs()?;
//! x += y;
//! x /= 2;
//! assert_eq!((-x).to_vec::<f32>()?, [-1.0, -2.5]);
//! assert_eq!((!array![true, false]).to_bools()?, [false, true]);
//! let total: hesper::Array = [array![1, 2], array![3, 4]].iter().sum();
//! assert_eq!(total.to_vec::<i32>()?, [4, 6]);
//! # Ok::<(), hesper::Error>(())
//! ```

use std::iter::{Product, Sum};
use std::ops::{
    Add, AddAssign, BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, BitXorAssign, Div, DivAssign, Mul,
    MulAssign, Neg, Not, Rem, RemAssign, Shl, ShlAssign, Shr, ShrAssign, Sub, SubAssign,
};

use crate::error::Result;
use crate::graph::Array;
use crate::scalar::Operand;

/// The result of an operator, which has no way to return an error.
fn expect(result: Result<Array>) -> Array {
    match result {
        Ok(array) => array,
        Err(error) => panic!("{error}"),
    }
}

macro_rules! binary {
    ($($trait:ident $fn:ident, $assign:ident $assign_fn:ident = $method:ident, $numbers:tt;)*) => {
        $(impl<R: Into<Operand>> $trait<R> for &Array {
            type Output = Array;
            fn $fn(self, other: R) -> Array {
                expect(Array::$method(self, other))
            }
        }

        impl<R: Into<Operand>> $trait<R> for Array {
            type Output = Array;
            fn $fn(self, other: R) -> Array {
                expect(Array::$method(&self, other))
            }
        }

        impl<R: Into<Operand>> $assign<R> for Array {
            fn $assign_fn(&mut self, other: R) {
                *self = expect(Array::$method(self, other));
            }
        }

        binary!(@numbers $trait $fn $method $numbers);)*
    };
    (@numbers $trait:ident $fn:ident $method:ident [$($number:ty)*]) => {
        $(impl $trait<&Array> for $number {
            type Output = Array;
            fn $fn(self, other: &Array) -> Array {
                expect(Operand::from(self).beside(other).and_then(|own| Array::$method(&own, other)))
            }
        }

        impl $trait<Array> for $number {
            type Output = Array;
            fn $fn(self, other: Array) -> Array {
                self.$fn(&other)
            }
        })*
    };
}

binary!(
    Add add, AddAssign add_assign = add, [f64 i64];
    Sub sub, SubAssign sub_assign = subtract, [f64 i64];
    Mul mul, MulAssign mul_assign = multiply, [f64 i64];
    Div div, DivAssign div_assign = divide, [f64 i64];
    Rem rem, RemAssign rem_assign = remainder, [f64 i64];
    BitAnd bitand, BitAndAssign bitand_assign = bitwise_and, [bool i64];
    BitOr bitor, BitOrAssign bitor_assign = bitwise_or, [bool i64];
    BitXor bitxor, BitXorAssign bitxor_assign = bitwise_xor, [bool i64];
    Shl shl, ShlAssign shl_assign = left_shift, [i64];
    Shr shr, ShrAssign shr_assign = right_shift, [i64];
);

macro_rules! unary {
    ($($trait:ident $fn:ident = $method:ident;)*) => {
        $(impl $trait for &Array {
            type Output = Array;
            fn $fn(self) -> Array {
                expect(Array::$method(self))
            }
        }

        impl $trait for Array {
            type Output = Array;
            fn $fn(self) -> Array {
                expect(Array::$method(&self))
            }
        })*
    };
}

unary!(
    Neg neg = negative;
    Not not = bitwise_invert;
);

macro_rules! folds {
    ($($trait:ident $fn:ident = $method:ident, $empty:literal $name:literal;)*) => {
        $(#[doc = concat!("The ", stringify!($fn), " by the operator; of no arrays, ", $name, " as float32.")]
        impl $trait for Array {
            fn $fn<I: Iterator<Item = Array>>(arrays: I) -> Array {
                arrays.reduce(|all, one| expect(Array::$method(&all, one))).unwrap_or_else(|| Array::from($empty))
            }
        }

        #[doc = concat!("The ", stringify!($fn), " by the operator; of no arrays, ", $name, " as float32.")]
        impl<'a> $trait<&'a Array> for Array {
            fn $fn<I: Iterator<Item = &'a Array>>(arrays: I) -> Array {
                arrays.cloned().$fn()
            }
        })*
    };
}

folds!(
    Sum sum = add, 0.0f32 "zero";
    Product product = multiply, 1.0f32 "one";
);

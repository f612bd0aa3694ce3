//! What an entry of the tables of reductions and scans means.
//!
//! From an entry follow the Rust method, the Python function and method, and test cases on every device:
//!
//! ```text
//! /// The largest element; NaN if there is one.             documentation, in Rust and in Python
//! max(axes) = |x, over| ...;                                name (signature) = what it returns
//!     rust "array![1, 3].max(())" => "array(3, dtype=int32)";
//!     python "mx.array([1, 3])" => "array(3, dtype=int32)", method max;
//!     cases [Real] [Integer];                               test cases: the domain of the array
//! ```
//!
//! The signature names the parameters after the array:
//!
//! | signature | parameters | example |
//! |---|---|---|
//! | `axes` | [`Axes`](crate::Axes) | `sum` |
//! | `axis` | [`Axes`](crate::Axes), of which only one may be named; else the flattened array | `argmax` |
//! | `spread` | as `axes`, and what is taken off the divisor | `var` |
//! | `scan` | one axis or the flattened array, whether from the end, whether with the element itself | `cumsum` |
//!
//! The rest is as for [element-wise ops](crate::ops::elementwise).

/// Defines the methods of [`Array`](crate::Array) that the entries of a table mean.
macro_rules! define_reductions {
    ($($(#[doc = $doc:literal])+ $name:ident $(| $alias:ident)* ($signature:ident) = |$($x:ident),+| $body:expr;
        rust $example:literal => $shown:literal;
        $(python $args:literal => $result:literal $(, method $method:ident)?;)?
        cases $([$domain:ident])+;)*) => {
        impl $crate::Array {
            $(define_reductions!(@names [$($doc)+; $example $shown] [$name $($alias)*] $signature [$($x)+] $body);)*
        }
    };
    (@names $docs:tt [$($name:ident)+] $signature:ident $xs:tt $body:expr) => {
        $(define_reductions!(@$signature $docs $name $xs $body);)+
    };
    (@axes [$($doc:literal)+; $example:literal $shown:literal] $name:ident [$x:ident $over:ident] $body:expr) => {
        $(#[doc = $doc])+
        ///
        /// Over the given [axes]($crate::Axes), `()` for all.
        #[doc = $crate::ops::elementwise::example!($example, $shown)]
        pub fn $name(&self, over: impl Into<$crate::Axes>) -> $crate::Result<$crate::Array> {
            let ($x, $over) = (self, &over.into());
            $body
        }
    };
    (@axis [$($doc:literal)+; $example:literal $shown:literal] $name:ident [$x:ident $over:ident] $body:expr) => {
        $(#[doc = $doc])+
        ///
        /// Along the one [axis]($crate::Axes) that is given, or with `()` in the flattened array.
        #[doc = $crate::ops::elementwise::example!($example, $shown)]
        pub fn $name(&self, over: impl Into<$crate::Axes>) -> $crate::Result<$crate::Array> {
            let ($x, $over) = (self, &over.into());
            $body
        }
    };
    (@spread [$($doc:literal)+; $example:literal $shown:literal] $name:ident [$x:ident $over:ident $ddof:ident] $body:expr) => {
        $(#[doc = $doc])+
        ///
        /// Over the given [axes]($crate::Axes), `()` for all.
        #[doc = $crate::ops::elementwise::example!($example, $shown)]
        pub fn $name(&self, over: impl Into<$crate::Axes>, $ddof: isize) -> $crate::Result<$crate::Array> {
            let ($x, $over) = (self, &over.into());
            $body
        }
    };
    (@scan [$($doc:literal)+; $example:literal $shown:literal] $name:ident
        [$x:ident $along:ident $reverse:ident $inclusive:ident] $body:expr) => {
        $(#[doc = $doc])+
        ///
        /// Along an axis, or through the flattened array; from the end if `reverse`; without the element
        /// itself unless `inclusive`.
        #[doc = $crate::ops::elementwise::example!($example, $shown)]
        pub fn $name(
            &self,
            along: impl Into<Option<isize>>,
            $reverse: bool,
            $inclusive: bool,
        ) -> $crate::Result<$crate::Array> {
            let ($x, $along) = (self, along.into());
            $body
        }
    };
}
pub(crate) use define_reductions;

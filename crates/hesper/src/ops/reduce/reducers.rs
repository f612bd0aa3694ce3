//! What elements are combined by.

use std::marker::PhantomData;

use bytemuck::Pod;
use half::{bf16, f16};

use super::kernel::Reducer;
use super::layout::Layout;

/// An element and the types that it is reduced in.
pub(in crate::ops) trait Number: Pod + Send + Sync {
    /// What it is compared in.
    type Wide: Wide + Pod;
    /// What it is added and multiplied in.
    type Total: Total + Pod;
    /// The type of a sum.
    type Sum: Pod + Send + Sync;

    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    fn total(self) -> Self::Total;
    fn sum(total: Self::Total, scale: f64) -> Self::Sum;
    fn from_total(total: Self::Total) -> Self;
    /// The number as a double, where it has one.
    fn real(self) -> f64;
    /// A result from a double.
    fn from_real(value: f64) -> Self;
}

/// A type with an order in which NaN stands above all for the larger of two, and below for the smaller.
pub(in crate::ops) trait Wide: Copy + Send + Sync + PartialEq {
    const LOWEST: Self;
    const HIGHEST: Self;
    fn is_nan(self) -> bool;
    fn above(self, other: Self) -> bool;
}

/// A type to add and multiply in.
pub(in crate::ops) trait Total: Copy + Send + Sync {
    const ZERO: Self;
    const ONE: Self;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

macro_rules! floats {
    ($($t:ident)*) => { $(
        impl Wide for $t {
            const LOWEST: Self = $t::NEG_INFINITY;
            const HIGHEST: Self = $t::INFINITY;
            #[inline(always)]
            fn is_nan(self) -> bool { self != self }
            #[inline(always)]
            fn above(self, other: Self) -> bool { self > other }
        }
        impl Total for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self * other }
        }
    )* };
}

macro_rules! integers {
    ($($t:ident)*) => { $(
        impl Wide for $t {
            const LOWEST: Self = $t::MIN;
            const HIGHEST: Self = $t::MAX;
            #[inline(always)]
            fn is_nan(self) -> bool { false }
            #[inline(always)]
            fn above(self, other: Self) -> bool { self > other }
        }
        impl Total for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
        }
    )* };
}

floats!(f32 f64);
integers!(u8 u16 u32 u64 i8 i16 i32 i64);

/// Complex numbers are ordered by their real parts, then by their imaginary ones.
impl Wide for [f32; 2] {
    const LOWEST: Self = [f32::NEG_INFINITY; 2];
    const HIGHEST: Self = [f32::INFINITY; 2];
    fn is_nan(self) -> bool {
        self[0].is_nan() || self[1].is_nan()
    }
    fn above(self, other: Self) -> bool {
        self[0] > other[0] || self[0] == other[0] && self[1] > other[1]
    }
}

impl Total for [f32; 2] {
    const ZERO: Self = [0.0; 2];
    const ONE: Self = [1.0, 0.0];
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        [self[0] + other[0], self[1] + other[1]]
    }
    #[inline(always)]
    fn times(self, other: Self) -> Self {
        [self[0] * other[0] - self[1] * other[1], self[0] * other[1] + self[1] * other[0]]
    }
}

macro_rules! numbers {
    ($($t:ty: wide $wide:ty, $widen:expr, $narrow:expr; total $total:ty, $to:expr, $own:expr;
       sum $sum:ty, $from:expr; real $real:expr, $back:expr;)*) => { $(
        impl Number for $t {
            type Wide = $wide;
            type Total = $total;
            type Sum = $sum;
            #[inline(always)]
            fn widen(self) -> $wide { let f: fn($t) -> $wide = $widen; f(self) }
            #[inline(always)]
            fn narrow(wide: $wide) -> Self { let f: fn($wide) -> $t = $narrow; f(wide) }
            #[inline(always)]
            fn total(self) -> $total { let f: fn($t) -> $total = $to; f(self) }
            #[inline(always)]
            fn sum(total: $total, scale: f64) -> $sum { let f: fn($total, f64) -> $sum = $from; f(total, scale) }
            #[inline(always)]
            fn from_total(total: $total) -> Self { let f: fn($total) -> $t = $own; f(total) }
            #[inline(always)]
            fn real(self) -> f64 { let f: fn($t) -> f64 = $real; f(self) }
            #[inline(always)]
            fn from_real(value: f64) -> Self { let f: fn(f64) -> $t = $back; f(value) }
        }
    )* };
}

macro_rules! whole_numbers {
    ($($t:ty as $sum:ty),*) => { numbers! { $(
        $t: wide $t, |x| x, |x| x; total $sum, |x| x as $sum, |x| x as $t; sum $sum, |x, _| x;
        real |x| x as f64, |x| x as $t;
    )* } };
}

whole_numbers!(u8 as u32, u16 as u32, u32 as u32, u64 as u64, i8 as i32, i16 as i32, i32 as i32, i64 as i64);

numbers! {
    f16: wide f32, |x| x.to_f32(), f16::from_f32; total f32, |x| x.to_f32(), f16::from_f32;
        sum f16, |x, scale| f16::from_f32(x * scale as f32);
        real |x| x.to_f64(), f16::from_f64;
    bf16: wide f32, |x| bf16_to_f32(x), bf16::from_f32; total f32, |x| bf16_to_f32(x), bf16::from_f32;
        sum bf16, |x, scale| bf16::from_f32(x * scale as f32);
        real |x| f64::from(bf16_to_f32(x)), bf16::from_f64;
    f32: wide f32, |x| x, |x| x; total f32, |x| x, |x| x; sum f32, |x, scale| x * scale as f32;
        real |x| f64::from(x), |x| x as f32;
    f64: wide f64, |x| x, |x| x; total f64, |x| x, |x| x; sum f64, |x, scale| x * scale;
        real |x| x, |x| x;
    [f32; 2]: wide [f32; 2], |x| x, |x| x; total [f32; 2], |x| x, |x| x;
        sum [f32; 2], |x, scale| [x[0] * scale as f32, x[1] * scale as f32];
        real |x| f64::from(x[0]), |x| [x as f32, 0.0];
}

/// The bits moved up: unlike the crate's conversion, a loop of these is vectorised. NaN stays NaN.
#[inline(always)]
fn bf16_to_f32(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// The sum of all elements, times a number.
pub(in crate::ops) struct Sum<T>(pub(super) f64, pub(super) PhantomData<T>);

impl<T: Number> Reducer for Sum<T> {
    type In = T;
    type Acc = T::Total;
    type Out = T::Sum;
    #[inline(always)]
    fn identity(&self) -> T::Total {
        T::Total::ZERO
    }
    #[inline(always)]
    fn load(&self, x: T, _: usize) -> T::Total {
        x.total()
    }
    #[inline(always)]
    fn combine(&self, a: T::Total, b: T::Total) -> T::Total {
        a.plus(b)
    }
    fn finish(&self, acc: T::Total) -> T::Sum {
        T::sum(acc, self.0)
    }
}

/// Elements as unsigned integers, of which any bit under a mask says that they are set: all bits of an
/// integer, all but the sign of a float.
pub(in crate::ops) trait Bits: Pod + Send + Sync {
    /// One if it is set.
    fn flag(self, mask: u64) -> u8;
}

macro_rules! bits {
    ($($t:ident)*) => { $(
        impl Bits for $t {
            #[inline(always)]
            fn flag(self, mask: u64) -> u8 { u8::from(self & mask as $t != 0) }
        }
    )* };
}

bits!(u8 u16 u32 u64);

/// How many elements are set.
pub(in crate::ops) struct CountSet<T> {
    pub(super) mask: u64,
    pub(super) of: PhantomData<T>,
}

impl<T: Bits> Reducer for CountSet<T> {
    type In = T;
    type Acc = i32;
    type Out = i32;
    #[inline(always)]
    fn identity(&self) -> i32 {
        0
    }
    #[inline(always)]
    fn load(&self, x: T, _: usize) -> i32 {
        i32::from(x.flag(self.mask))
    }
    #[inline(always)]
    fn combine(&self, a: i32, b: i32) -> i32 {
        a.wrapping_add(b)
    }
    fn finish(&self, acc: i32) -> i32 {
        acc
    }
}

/// The product of all elements.
pub(in crate::ops) struct Product<T>(pub(super) PhantomData<T>);

impl<T: Number> Reducer for Product<T> {
    type In = T;
    type Acc = T::Total;
    type Out = T::Sum;
    #[inline(always)]
    fn identity(&self) -> T::Total {
        T::Total::ONE
    }
    #[inline(always)]
    fn load(&self, x: T, _: usize) -> T::Total {
        x.total()
    }
    #[inline(always)]
    fn combine(&self, a: T::Total, b: T::Total) -> T::Total {
        a.times(b)
    }
    fn finish(&self, acc: T::Total) -> T::Sum {
        T::sum(acc, 1.0)
    }
}

/// Whether a comparison looks for the largest or the smallest.
#[inline(always)]
fn wins<W: Wide, const LARGEST: bool>(a: W, b: W) -> bool {
    if LARGEST { a.above(b) } else { b.above(a) }
}

fn worst<W: Wide, const LARGEST: bool>() -> W {
    if LARGEST { W::LOWEST } else { W::HIGHEST }
}

/// The largest or the smallest element; NaN if there is one.
pub(in crate::ops) struct Extreme<T, const LARGEST: bool>(pub(super) PhantomData<T>);

impl<T: Number, const LARGEST: bool> Reducer for Extreme<T, LARGEST> {
    type In = T;
    type Acc = T::Wide;
    type Out = T;
    #[inline(always)]
    fn identity(&self) -> T::Wide {
        worst::<_, LARGEST>()
    }
    #[inline(always)]
    fn load(&self, x: T, _: usize) -> T::Wide {
        x.widen()
    }
    #[inline(always)]
    fn combine(&self, a: T::Wide, b: T::Wide) -> T::Wide {
        if wins::<_, LARGEST>(a, b) | a.is_nan() { a } else { b }
    }
    fn finish(&self, acc: T::Wide) -> T {
        T::narrow(acc)
    }
}

/// Whether all elements are set, or any.
pub(in crate::ops) struct Truth<T, const ALL: bool> {
    pub(super) mask: u64,
    pub(super) of: PhantomData<T>,
}

impl<T: Bits, const ALL: bool> Reducer for Truth<T, ALL> {
    type In = T;
    type Acc = u8;
    type Out = u8;
    #[inline(always)]
    fn identity(&self) -> u8 {
        u8::from(ALL)
    }
    #[inline(always)]
    fn load(&self, x: T, _: usize) -> u8 {
        x.flag(self.mask)
    }
    #[inline(always)]
    fn combine(&self, a: u8, b: u8) -> u8 {
        if ALL { a & b } else { a | b }
    }
    fn finish(&self, acc: u8) -> u8 {
        acc
    }
}

/// The variance, or its root: sums of numbers and squares in double precision, which leave a float32's
/// digits intact.
pub(in crate::ops) struct Moments<T> {
    pub(super) count: f64,
    pub(super) ddof: f64,
    pub(super) root: bool,
    pub(super) of: PhantomData<T>,
}

impl<T: Number> Reducer for Moments<T> {
    type In = T;
    type Acc = [f64; 2];
    type Out = T;
    #[inline(always)]
    fn identity(&self) -> [f64; 2] {
        [0.0; 2]
    }
    #[inline(always)]
    fn load(&self, x: T, _: usize) -> [f64; 2] {
        let x = x.real();
        [x, x * x]
    }
    #[inline(always)]
    fn combine(&self, a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
        [a[0] + b[0], a[1] + b[1]]
    }
    fn finish(&self, [sum, squares]: [f64; 2]) -> T {
        let above = squares - sum * sum / self.count;
        // Rounding may leave a tiny negative number; NaN stays.
        let above = if above < 0.0 { 0.0 } else { above };
        let variance = above / (self.count - self.ddof).max(0.0);
        T::from_real(if self.root { variance.sqrt() } else { variance })
    }
}

/// The place of the largest or the smallest element: the first of equals, the first NaN if there is one.
pub(in crate::ops) struct Place<T, const LARGEST: bool> {
    /// For an axis that is walked through backwards: its length.
    pub(super) turned: Option<usize>,
    of: PhantomData<T>,
}

impl<T, const LARGEST: bool> Place<T, LARGEST> {
    pub(super) fn new(layout: &Layout) -> Self {
        Place { turned: layout.turned.then(|| layout.length()), of: PhantomData }
    }
}

impl<T: Number, const LARGEST: bool> Reducer for Place<T, LARGEST> {
    type In = T;
    type Acc = (T::Wide, u32);
    type Out = u32;
    fn identity(&self) -> Self::Acc {
        (worst::<_, LARGEST>(), u32::MAX)
    }
    #[inline(always)]
    fn load(&self, x: T, at: usize) -> Self::Acc {
        let at = self.turned.map_or(at, |length| length - 1 - at);
        (x.widen(), at as u32)
    }
    #[inline(always)]
    fn combine(&self, a: Self::Acc, b: Self::Acc) -> Self::Acc {
        let (better, worse) = (wins::<_, LARGEST>(a.0, b.0), wins::<_, LARGEST>(b.0, a.0));
        let (a_nan, b_nan) = (a.0.is_nan(), b.0.is_nan());
        let first = a.1 <= b.1;
        let a_wins = if a_nan | b_nan { a_nan & (!b_nan | first) } else { better | (!worse & first) };
        if a_wins { a } else { b }
    }
    fn finish(&self, acc: Self::Acc) -> u32 {
        acc.1
    }

    /// Finds the value first, in vectors, then its place.
    fn fold(&self, row: &[T], start: usize) -> Self::Acc {
        let extreme = Extreme::<T, LARGEST>(PhantomData);
        let mut best = self.identity();
        for (number, block) in row.chunks(2048).enumerate() {
            let value = extreme.fold(block, 0);
            if number > 0 && !value.is_nan() && !wins::<_, LARGEST>(value, best.0) && self.turned.is_none() {
                continue;
            }
            let is_it = |x: &T| x.widen() == value || value.is_nan() && x.widen().is_nan();
            let found = if self.turned.is_some() {
                block.iter().rposition(is_it)
            } else {
                block.iter().position(is_it)
            };
            if let Some(found) = found {
                best = self.combine(best, self.load(block[found], start + number * 2048 + found));
            }
        }
        best
    }
}

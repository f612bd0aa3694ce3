//! Encoding of elements as words, and decoding of words to results.
//!
//! The loops are compiled for every SIMD level, where the compiler vectorizes them.

use super::Sortable;
use super::words::Word;
use crate::simd::{Isa, Kernel, Simd, dispatch_256};

/// How elements become words, and sorted words become results.
pub(super) trait Code: Copy + Send + Sync {
    type T: Sortable;
    type W: Word;
    type O: Copy + Send + Sync;
    fn word(self, x: Self::T, index: u32) -> Self::W;
    fn result(self, w: Self::W) -> Self::O;
}

/// Elements, by their keys.
pub(super) struct Keys<T, W>(pub(super) std::marker::PhantomData<fn(T, W)>);

impl<T, W> Clone for Keys<T, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, W> Copy for Keys<T, W> {}

impl<T: Sortable, W: Word> Code for Keys<T, W> {
    type T = T;
    type W = W;
    type O = T;
    #[inline(always)]
    fn word(self, x: T, _: u32) -> W {
        W::new(x.key(), 0, 0)
    }
    #[inline(always)]
    fn result(self, w: W) -> T {
        T::from_key(w.bits())
    }
}

/// Indices of elements. A word has the index in its low `shift` bits, and the key above.
pub(super) struct Indices<T, W> {
    pub(super) shift: u32,
    /// Low bits of the key that are left out.
    pub(super) skip: u32,
    pub(super) of: std::marker::PhantomData<fn(T, W)>,
}

impl<T, W> Clone for Indices<T, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, W> Copy for Indices<T, W> {}

impl<T: Sortable, W: Word> Code for Indices<T, W> {
    type T = T;
    type W = W;
    type O = u32;
    #[inline(always)]
    fn word(self, x: T, index: u32) -> W {
        W::new(x.rank() >> self.skip, self.shift, index)
    }
    #[inline(always)]
    fn result(self, w: W) -> u32 {
        (w.bits() & ((1 << self.shift) - 1)) as u32
    }
}

struct Encode<'a, C: Code> {
    code: C,
    x: &'a [C::T],
    first: usize,
    to: &'a mut [C::W],
}

impl<C: Code> Kernel for Encode<'_, C> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        for (i, (to, x)) in self.to.iter_mut().zip(self.x).enumerate() {
            *to = self.code.word(*x, (self.first + i) as u32);
        }
    }
}

/// Encodes elements, of which the first is at index `first` of its row.
pub(super) fn encode<C: Code>(simd: Simd, code: C, x: &[C::T], first: usize, to: &mut [C::W]) {
    dispatch_256(simd, Encode { code, x, first, to });
}

struct Decode<'a, C: Code> {
    code: C,
    words: &'a [C::W],
    to: &'a mut [C::O],
}

impl<C: Code> Kernel for Decode<'_, C> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        for (to, w) in self.to.iter_mut().zip(self.words) {
            *to = self.code.result(*w);
        }
    }
}

/// Decodes words.
pub(super) fn decode<C: Code>(simd: Simd, code: C, words: &[C::W], to: &mut [C::O]) {
    dispatch_256(simd, Decode { code, words, to });
}

/// Whether words can be stored in the memory of the results.
pub(super) fn in_place<C: Code>() -> bool {
    size_of::<C::W>() == size_of::<C::O>() && align_of::<C::W>() <= align_of::<C::O>()
}

struct DecodeInPlace<'a, C: Code> {
    code: C,
    words: &'a mut [C::W],
}

impl<C: Code> Kernel for DecodeInPlace<'_, C> {
    type Out = ();
    #[inline(always)]
    fn run<S: Isa>(self, _: S) {
        for w in self.words {
            let result = self.code.result(*w);
            // SAFETY: a result is as large as its word, and both are plain numbers.
            unsafe { std::ptr::from_mut(w).cast::<C::O>().write(result) };
        }
    }
}

/// Decodes words in place; only if [`in_place`] is true.
pub(super) fn decode_in_place<C: Code>(simd: Simd, code: C, words: &mut [C::W]) {
    debug_assert!(in_place::<C>());
    dispatch_256(simd, DecodeInPlace { code, words });
}

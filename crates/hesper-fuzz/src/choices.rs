//! Decisions read from bytes.

/// Decisions read from bytes. A structured input is then a byte string that can be mutated, shrunk and
/// stored. Past the end every decision is 0, the simplest one.
#[derive(Debug, Clone)]
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// The decisions of an input.
    pub fn new(bytes: &'a [u8]) -> Self {
        Choices(bytes)
    }

    /// Whether decisions are left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        let wide = if n > 256 { usize::from(self.byte()) << 8 } else { 0 };
        (wide | usize::from(self.byte())) % n.max(1)
    }

    /// True for one value in `n`; false past the end.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    /// An element of `list`, which is not empty.
    pub fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
}

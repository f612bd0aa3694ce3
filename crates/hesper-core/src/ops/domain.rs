//! The numbers that test cases give to ops. Tables of ops name them; see [`elementwise`](super::elementwise).

/// The numbers that a test case gives to an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// Floats between -1 and 1.
    Real,
    /// Numbers of float32 between -1 and 1, where that type has a path of its own.
    Single,
    /// Floats between 0.2 and 1.8.
    Positive,
    /// Floats between -0.9 and 0.9.
    Unit,
    /// Floats between 1.2 and 2.8.
    AboveOne,
    /// Floats between -3 and 3.
    Wide,
    /// Bools.
    Bool,
    /// Integers between -9 and 12.
    Integer,
    /// Integers between 1 and 3.
    Count,
    /// Complex numbers with parts between -1 and 1.
    Complex,
    /// Complex numbers with a real part between 0.5 and 2.5, and an imaginary part between -1 and 1.
    ComplexRight,
}

impl Domain {
    /// The limits of the numbers, of the real part for complex ones; a bool is whether its number is
    /// positive.
    pub fn range(self) -> (f64, f64) {
        match self {
            Domain::Real | Domain::Single | Domain::Bool | Domain::Complex => (-1.0, 1.0),
            Domain::Positive => (0.2, 1.8),
            Domain::Unit => (-0.9, 0.9),
            Domain::AboveOne => (1.2, 2.8),
            Domain::Wide => (-3.0, 3.0),
            Domain::Integer => (-9.0, 12.0),
            Domain::Count => (1.0, 3.0),
            Domain::ComplexRight => (0.5, 2.5),
        }
    }
}

//! The residual stream of a decoder: a sum to which every layer adds a term.

use hesper_core::{Array, fast};

use crate::error::Result;
use crate::norm::Norm;

/// A sum whose last term is added late: if a norm comes next, addition and norm are one kernel.
#[derive(Debug, Clone)]
pub struct Residual {
    sum: Array,
    last: Option<Array>,
}

impl Residual {
    /// A sum with its first term.
    pub fn new(first: Array) -> Self {
        Residual { sum: first, last: None }
    }

    /// The sum.
    pub fn sum(&mut self) -> Result<&Array> {
        if let Some(last) = self.last.take() {
            self.sum = self.sum.add(&last)?;
        }
        Ok(&self.sum)
    }

    /// Adds a term.
    pub fn add(&mut self, term: Array) -> Result<()> {
        self.sum()?;
        self.last = Some(term);
        Ok(())
    }

    /// The norm of the sum.
    pub fn normed(&mut self, norm: &Norm) -> Result<Array> {
        match (norm, self.last.take()) {
            (Norm::Rms(norm), Some(last)) => {
                let (weight, eps) = norm.parts();
                let (sum, normed) = fast::add_norm(&self.sum, &last, weight, eps)?;
                self.sum = sum;
                Ok(normed)
            }
            (_, last) => {
                self.last = last;
                norm.forward(self.sum()?)
            }
        }
    }
}

//! What goes from layer to layer of a decoder: a sum to which every layer adds.

use hesper::{Array, fast};

use crate::error::Result;
use crate::norm::Norm;

/// A sum whose last term may not have been added yet: where a norm comes next, both are one command on a GPU.
#[derive(Debug, Clone)]
pub struct Residual {
    sum: Array,
    last: Option<Array>,
}

impl Residual {
    /// A sum of one term.
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
                let (sum, normal) = fast::add_norm(&self.sum, &last, weight, eps)?;
                self.sum = sum;
                Ok(normal)
            }
            (_, last) => {
                self.last = last;
                norm.forward(self.sum()?)
            }
        }
    }
}

//! The modes of scatters and slice updates.

use crate::Dtype;

/// How an update is combined with the element that it is applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpdateMode {
    /// The update replaces the element; the last of several wins.
    Set,
    /// The sum.
    Add,
    /// The product.
    Multiply,
    /// The larger one; NaN if either is.
    Max,
    /// The smaller one; NaN if either is.
    Min,
}

impl UpdateMode {
    /// All modes by name.
    pub const NAMES: [(&'static str, UpdateMode); 5] = [
        ("set", UpdateMode::Set),
        ("add", UpdateMode::Add),
        ("multiply", UpdateMode::Multiply),
        ("max", UpdateMode::Max),
        ("min", UpdateMode::Min),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        UpdateMode::NAMES.iter().find(|(_, mode)| *mode == self).map_or("set", |(name, _)| name)
    }

    /// The mode for the bytes of a type: bools add as "or" and multiply as "and".
    pub fn on(self, dtype: Dtype) -> Self {
        match self {
            UpdateMode::Add if dtype == Dtype::Bool => UpdateMode::Max,
            UpdateMode::Multiply if dtype == Dtype::Bool => UpdateMode::Min,
            mode => mode,
        }
    }
}

//! Golden texts of a few kernels, and what cannot be written.

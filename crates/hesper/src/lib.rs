//! Lazy arrays for machine learning: ops, transforms, compile, files.

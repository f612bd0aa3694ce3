//! The host device of Hesper and its native kernels.

//! The kernel language: Metal-dialect source to typed IR, a CPU executor and CUDA text.

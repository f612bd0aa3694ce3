//! The NVIDIA device of Hesper; every CUDA library is loaded at run time.

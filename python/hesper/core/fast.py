"""Functions with implementations of their own, and custom kernels."""

from hesper._core import fast as _fast

metal_kernel = _fast.metal_kernel

__all__ = ["metal_kernel"]

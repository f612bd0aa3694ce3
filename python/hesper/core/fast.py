"""Functions with implementations of their own, and custom kernels."""

from hesper._core import fast as _fast

__all__ = list(_fast.__all__)
globals().update({name: getattr(_fast, name) for name in __all__})

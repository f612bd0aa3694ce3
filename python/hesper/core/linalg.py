"""Linear algebra."""

from hesper._core import linalg as _linalg

__all__ = list(_linalg.__all__)
globals().update({name: getattr(_linalg, name) for name in __all__})

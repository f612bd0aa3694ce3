"""Fourier transforms."""

from hesper._core import fft as _fft

__all__ = list(_fft.__all__)
globals().update({name: getattr(_fft, name) for name in __all__})

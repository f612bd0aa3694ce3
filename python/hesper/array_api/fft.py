"""The extension for Fourier transforms."""

import hesper.core as mx

from ._dtypes import float32
from ._devices import on

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]

_BACK = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def _one(function):
    def transform(x, /, *, n=None, axis=-1, norm="backward"):
        return function(x, n, axis, norm)

    return _named(transform, function)


def _several(function):
    def transform(x, /, *, s=None, axes=None, norm="backward"):
        if s is not None and axes is None:
            axes = range(x.ndim - len(s), x.ndim)
        if axes is not None and not all(-x.ndim <= axis < x.ndim for axis in axes):
            raise ValueError(f"cannot transform axes {tuple(axes)} of an array of {x.ndim} axes")
        return function(x, s, None if axes is None else list(axes), norm)

    return _named(transform, function)


def _named(transform, function):
    transform.__name__ = transform.__qualname__ = function.__name__
    transform.__doc__ = function.__doc__.partition("\n")[0]
    return transform


fft, ifft = _one(mx.fft.fft), _one(mx.fft.ifft)
rfft, irfft = _one(mx.fft.rfft), _one(mx.fft.irfft)
fftn, ifftn = _several(mx.fft.fftn), _several(mx.fft.ifftn)
rfftn, irfftn = _several(mx.fft.rfftn), _several(mx.fft.irfftn)


def hfft(x, /, *, n=None, axis=-1, norm="backward"):
    """The transform of a signal whose other half is its conjugate: real numbers."""
    return mx.fft.irfft(mx.conj(x), n, axis, _BACK.get(norm, norm))


def ihfft(x, /, *, n=None, axis=-1, norm="backward"):
    """The inverse of ``hfft``."""
    return mx.conj(mx.fft.rfft(x, n, axis, _BACK.get(norm, norm)))


def fftfreq(n, /, *, d=1.0, dtype=None, device=None):
    """The frequencies of a transform of ``n`` elements at a distance of ``d``."""
    with on(device):
        places = mx.concatenate([mx.arange(0, (n + 1) // 2), mx.arange(-(n // 2), 0)])
        return _frequencies(places, n, d, dtype)


def rfftfreq(n, /, *, d=1.0, dtype=None, device=None):
    """The frequencies of a transform of ``n`` real elements at a distance of ``d``."""
    with on(device):
        return _frequencies(mx.arange(0, n // 2 + 1), n, d, dtype)


def _frequencies(places, n, d, dtype):
    return (places.astype(mx.float64) / (n * d)).astype(dtype or float32)


def fftshift(x, /, *, axes=None):
    """The frequency zero moved to the middle of axes."""
    return mx.fft.fftshift(x, _axes(axes))


def ifftshift(x, /, *, axes=None):
    """The inverse of ``fftshift``."""
    return mx.fft.ifftshift(x, _axes(axes))


def _axes(axes):
    return axes if axes is None else [axes] if isinstance(axes, int) else list(axes)

# Written by scripts/stubs.py from the built package; do not edit.
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import ModuleType
from typing import Any, Self, final

from . import ArrayIterator, Device, DeviceType, Dtype, Stream, StreamOrDevice, array, scalar


__all__ = ['fft', 'fft2', 'fftn', 'ifft', 'ifft2', 'ifftn', 'rfft', 'rfft2', 'rfftn', 'irfft', 'irfft2', 'irfftn', 'fftshift', 'ifftshift', 'fftfreq', 'rfftfreq', 'stft', 'istft']

def fft(a: array | scalar, n: Any = None, axis: int | Sequence[int] | None = -1, norm: str = 'backward', stream: StreamOrDevice = None) -> array:
    """The discrete Fourier transform.

    Along one axis, which is cut or filled with zeros to `n` elements.

    Examples
    --------
    >>> mx.fft.fft(mx.array([1.0, 2.0, 3.0, 4.0])).ndim
    1
    """
    ...

def fft2(a: array | scalar, s: Any = None, axes: int | Sequence[int] | None = [-2, -1], norm: str = 'backward', stream: StreamOrDevice = None) -> array:
    """The discrete Fourier transform.

    Along two axes, by default the last ones.

    Examples
    --------
    >>> mx.fft.fft2(mx.ones((4, 4))).ndim
    2
    """
    ...

def fftfreq(n: Any, d: float = 1.0, stream: StreamOrDevice = None) -> array:
    """The frequencies of a transform of `n` elements at a distance of `d`.

    Parameters
    ----------
    n : int
    d : Device, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.fft.fftfreq(4)
    array([0, 0.25, -0.5, -0.25], dtype=float32)
    """
    ...

def fftn(a: array | scalar, s: Any = None, axes: int | Sequence[int] | None = None, norm: str = 'backward', stream: StreamOrDevice = None) -> array:
    """The discrete Fourier transform.

    Along several axes, by default all.

    Examples
    --------
    >>> mx.fft.fftn(mx.ones((4, 4))).ndim
    2
    """
    ...

def fftshift(a: array | scalar, axes: int | Sequence[int] | None = None, stream: StreamOrDevice = None) -> array:
    """The frequency zero moved to the middle of axes, by default of all.

    Parameters
    ----------
    a : array
    axes : int or sequence of int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.fft.fftshift(mx.array([0, 1, 2]))
    array([2, 0, 1], dtype=int32)
    """
    ...

def ifft(a: array | scalar, n: Any = None, axis: int | Sequence[int] | None = -1, norm: str = 'backward', stream: StreamOrDevice = None) -> array:
    """The inverse of the discrete Fourier transform.

    Along one axis, which is cut or filled with zeros to `n` elements.

    Examples
    --------
    >>> mx.fft.ifft(mx.array([1.0, 2.0, 3.0, 4.0])).ndim
    1
    """
    ...

def ifft2(a: array | scalar, s: Any = None, axes: int | Sequence[int] | None = [-2, -1], norm: str = 'backward', stream: StreamOrDevice = None) -> array:
    """The inverse of the discrete Fourier transform.

    Along two axes, by default the last ones.

    Examples
    --------
    >>> mx.fft.ifft2(mx.ones((4, 4))).ndim
    2
    """
    ...

def ifftn(a: array | scalar, s: Any = None, axes: int | Sequence[int] | None = None, norm: str = 'backward', stream: StreamOrDevice = None) -> array:
    """The inverse of the discrete Fourier transform.

    Along several axes, by default all.

    Examples
    --------
    >>> mx.fft.ifftn(mx.ones((4, 4))).ndim
    2
    """
    ...

def ifftshift(a: array | scalar, axes: int | Sequence[int] | None = None, stream: StreamOrDevice = None) -> array:
    """The inverse of ``fftshift``.

    Parameters
    ----------
    a : array
    axes : int or sequence of int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.fft.ifftshift(mx.array([2, 0, 1]))
    array([0, 1, 2], dtype=int32)
    """
    ...

def irfft(a: array | scalar, n: Any = None, axis: int | Sequence[int] | None = -1, norm: str = 'backward', stream: StreamOrDevice = None) -> array:
    """The inverse of the discrete Fourier transform of real numbers.

    Along one axis, which is cut or filled with zeros to `n` elements.

    Examples
    --------
    >>> mx.fft.irfft(mx.array([1.0, 2.0, 3.0, 4.0])).ndim
    1
    """
    ...

def irfft2(a: array | scalar, s: Any = None, axes: int | Sequence[int] | None = [-2, -1], norm: str = 'backward', stream: StreamOrDevice = None) -> array:
    """The inverse of the discrete Fourier transform of real numbers.

    Along two axes, by default the last ones.

    Examples
    --------
    >>> mx.fft.irfft2(mx.ones((4, 4))).ndim
    2
    """
    ...

def irfftn(a: array | scalar, s: Any = None, axes: int | Sequence[int] | None = None, norm: str = 'backward', stream: StreamOrDevice = None) -> array:
    """The inverse of the discrete Fourier transform of real numbers.

    Along several axes, by default all.

    Examples
    --------
    >>> mx.fft.irfftn(mx.ones((4, 4))).ndim
    2
    """
    ...

def istft(stft_matrix: Any, n_fft: Any = None, hop_length: Any = None, win_length: Any = None, window: Any = None, center: bool = True, norm: str = 'backward', onesided: Any = None, length: Any = None, stream: StreamOrDevice = None) -> array:
    """The signal from the transforms of its frames.

    Parameters
    ----------
    stft_matrix : array
    n_fft : int
    hop_length : int, optional
    win_length : int, optional
    window : array or str, optional
    center : bool
    norm : str
    onesided : bool
    length : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.fft.istft(mx.fft.stft(mx.ones((64,)), n_fft=16), n_fft=16).ndim
    1
    """
    ...

def rfft(a: array | scalar, n: Any = None, axis: int | Sequence[int] | None = -1, norm: str = 'backward', stream: StreamOrDevice = None) -> array:
    """The discrete Fourier transform of real numbers.

    Along one axis, which is cut or filled with zeros to `n` elements.

    Examples
    --------
    >>> mx.fft.rfft(mx.array([1.0, 2.0, 3.0, 4.0])).ndim
    1
    """
    ...

def rfft2(a: array | scalar, s: Any = None, axes: int | Sequence[int] | None = [-2, -1], norm: str = 'backward', stream: StreamOrDevice = None) -> array:
    """The discrete Fourier transform of real numbers.

    Along two axes, by default the last ones.

    Examples
    --------
    >>> mx.fft.rfft2(mx.ones((4, 4))).ndim
    2
    """
    ...

def rfftfreq(n: Any, d: float = 1.0, stream: StreamOrDevice = None) -> array:
    """The frequencies of a transform of `n` real elements at a distance of `d`.

    Parameters
    ----------
    n : int
    d : Device, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.fft.rfftfreq(4)
    array([0, 0.25, 0.5], dtype=float32)
    """
    ...

def rfftn(a: array | scalar, s: Any = None, axes: int | Sequence[int] | None = None, norm: str = 'backward', stream: StreamOrDevice = None) -> array:
    """The discrete Fourier transform of real numbers.

    Along several axes, by default all.

    Examples
    --------
    >>> mx.fft.rfftn(mx.ones((4, 4))).ndim
    2
    """
    ...

def stft(x: array, n_fft: int = 2048, hop_length: Any = None, win_length: Any = None, window: Any = None, center: bool = True, pad_mode: str = 'reflect', norm: str = 'backward', onesided: Any = None, stream: StreamOrDevice = None) -> array:
    """The transforms of overlapping frames of the last axis.

    Parameters
    ----------
    x : array
    n_fft : int
    hop_length : int, optional
    win_length : int, optional
    window : array or str, optional
    center : bool
    pad_mode : str
    norm : str
    onesided : bool
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.fft.stft(mx.ones((64,)), n_fft=16).ndim
    2
    """
    ...

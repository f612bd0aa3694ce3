"""Functions that create arrays."""

from functools import wraps
from math import inf

import hesper.core as mx
from hesper import _core

from ._dtypes import complex64, default, float32, float64, kind, real, uint64
from ._devices import on


# Libraries that were written for NumPy name types so, and mean these.
_PYTHON_TYPES = {bool: mx.bool_, int: mx.int64, float: mx.float64, complex: mx.complex128}


def _with_python_types(function):
    """The function, which takes Python's types as ``dtype`` besides."""

    @wraps(function)
    def call(*args, dtype=None, **kwargs):
        if isinstance(dtype, type):
            dtype = _PYTHON_TYPES.get(dtype, dtype)
        return function(*args, dtype=dtype, **kwargs)

    return call


def diagonal_within(shape, k):
    """The diagonal ``k`` of matrices of a shape, or the nearest one outside of them if it is farther away."""
    return max(-shape[-2], min(k, shape[-1])) if len(shape) > 1 else k


def _named(obj):
    """The type of another library's array, if arrays have it."""
    name = str(getattr(obj, "dtype", "")).rpartition(".")[2]
    dtype = mx.bool_ if name == "bool" else getattr(mx, name, None)
    return dtype if isinstance(dtype, mx.Dtype) else None


@_with_python_types
def asarray(obj, /, *, dtype=None, device=None, copy=None):
    """An array from numbers, nested sequences, arrays, or what speaks DLPack or the buffer protocol."""
    with on(device):
        if isinstance(obj, mx.array):
            changes = dtype not in (None, obj.dtype)
            if changes and copy is False:
                raise ValueError(f"cannot convert {obj.dtype} to {dtype} without a copy; use copy=None or copy=True")
            obj = obj.astype(dtype) if changes else mx.array(obj) if copy else obj
            return obj if device is None else obj.to_device(device)
        foreign = _named(obj)
        if copy is False:
            if foreign is None or dtype not in (None, foreign):
                raise ValueError("cannot make the array without a copy; use copy=None or copy=True")
            return _core._import_dlpack(obj, False)
        if isinstance(obj, range):
            obj = list(obj)
        return mx.asarray(obj, dtype or foreign)


def from_dlpack(x, /, *, device=None, copy=None):
    """An array from an object of another library that speaks DLPack."""
    with on(device):
        result = _core._import_dlpack(x, copy)
        return result if device is None else result.to_device(device)


@_with_python_types
def arange(start, /, stop=None, step=1, *, dtype=None, device=None):
    """Numbers from ``start`` to below ``stop``, ``step`` apart; ``arange(stop)`` starts at zero."""
    if stop is None:
        start, stop = 0, start
    integers = all(isinstance(number, int) for number in (start, stop, step))
    with on(device):
        if integers and dtype == uint64:
            return mx.array(list(range(start, stop, step)), dtype).reshape(-1)
        if integers or dtype is None:
            return mx.arange(start, stop, step, dtype)
        return mx.arange(start, stop, step, float64).astype(dtype)


@_with_python_types
def empty(shape, *, dtype=None, device=None):
    """An array with unspecified elements."""
    return zeros(shape, dtype=dtype, device=device)


@_with_python_types
def empty_like(x, /, *, dtype=None, device=None):
    """An array of the shape and type of another, with unspecified elements."""
    return zeros_like(x, dtype=dtype, device=device)


@_with_python_types
def eye(n_rows, n_cols=None, /, *, k=0, dtype=None, device=None):
    """A matrix with ones on a diagonal and zeros elsewhere."""
    n_cols = n_rows if n_cols is None else n_cols
    with on(device):
        return mx.eye(n_rows, n_cols, diagonal_within((n_rows, n_cols), k), dtype or float32)


@_with_python_types
def full(shape, fill_value, *, dtype=None, device=None):
    """An array of one number."""
    dtype = dtype or default(fill_value)
    # Of a complex number that is not zero, the real part may be.
    fill_value = bool(fill_value) if dtype == mx.bool_ else fill_value
    with on(device):
        return mx.full(shape, mx.array(fill_value, dtype), dtype)


@_with_python_types
def full_like(x, /, fill_value, *, dtype=None, device=None):
    """An array of the shape and type of another, and of one number."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device or x.device)


@_with_python_types
def linspace(start, stop, /, num, *, dtype=None, device=None, endpoint=True):
    """Evenly spaced numbers from ``start`` to ``stop``, which is left out if ``endpoint`` is false."""
    if isinstance(start, complex) or isinstance(stop, complex):
        start, stop, dtype = complex(start), complex(stop), dtype or complex64
        parts = {"dtype": real(dtype), "device": device, "endpoint": endpoint}
        return linspace(start.real, stop.real, num, **parts) + 1j * linspace(start.imag, stop.imag, num, **parts)
    if num < 0:
        raise ValueError(f"linspace: num must not be negative, and is {num}")
    dtype = dtype or float32
    steps = num - 1 if endpoint else num
    with on(device):
        if kind(dtype) == 1 and isinstance(start, int) and isinstance(stop, int):
            places = [start + at * (stop - start) // steps if steps else start for at in range(num)]
            return mx.array(places, dtype) if places else mx.zeros((0,), dtype)
        places = mx.arange(0, num, 1, float64)
        # Divided first: the distance may be out of range.
        step = stop / steps - start / steps if steps > 0 else 0.0
        numbers = mx.array(start, float64) + places * mx.array(step, float64)
        if abs(step) * steps == inf:
            part = places / max(steps, 1)
            numbers = mx.array(start, float64) * (1 - part) + mx.array(stop, float64) * part
        if endpoint and num > 1:
            numbers = mx.where(places == num - 1, mx.array(stop, float64), numbers)
        return numbers.astype(dtype)


def meshgrid(*arrays, indexing="xy"):
    """Coordinate matrices from coordinate vectors."""
    return list(mx.meshgrid(*arrays, indexing=indexing))


@_with_python_types
def ones(shape, *, dtype=None, device=None):
    """An array of ones."""
    with on(device):
        return mx.ones(shape, dtype)


@_with_python_types
def ones_like(x, /, *, dtype=None, device=None):
    """Ones in the shape and type of an array."""
    return ones(x.shape, dtype=dtype or x.dtype, device=device or x.device)


def tril(x, /, *, k=0):
    """The lower triangles of matrices; zeros elsewhere."""
    return mx.tril(x, diagonal_within(x.shape, k))


def triu(x, /, *, k=0):
    """The upper triangles of matrices; zeros elsewhere."""
    return mx.triu(x, diagonal_within(x.shape, k))


@_with_python_types
def zeros(shape, *, dtype=None, device=None):
    """An array of zeros."""
    with on(device):
        return mx.zeros(shape, dtype)


@_with_python_types
def zeros_like(x, /, *, dtype=None, device=None):
    """Zeros in the shape and type of an array."""
    return zeros(x.shape, dtype=dtype or x.dtype, device=device or x.device)

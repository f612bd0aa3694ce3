"""Types of elements and what is known of them."""

import hesper.core as mx

from ._devices import on

__all__ = [
    "astype",
    "bool",
    "can_cast",
    "complex128",
    "complex64",
    "finfo",
    "float32",
    "float64",
    "iinfo",
    "int16",
    "int32",
    "int64",
    "int8",
    "isdtype",
    "result_type",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
]

bool = mx.bool_
int8, int16, int32, int64 = mx.int8, mx.int16, mx.int32, mx.int64
uint8, uint16, uint32, uint64 = mx.uint8, mx.uint16, mx.uint32, mx.uint64
float32, float64 = mx.float32, mx.float64
complex64, complex128 = mx.complex64, mx.complex128

INDEX = int32
SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)


def kind(dtype):
    """Bools, integers, floating-point numbers or complex numbers: the index of the kind in this list."""
    kinds = ("bool", "integral", "real floating", "complex floating")
    return next(at for at, kind in enumerate(kinds) if mx.isdtype(dtype, kind))


def real(dtype):
    """The type of the parts of complex numbers, or the type itself."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def default(value):
    """The type of an array of one Python number."""
    return mx.array(value).dtype


def beside(value, dtype):
    """A Python number as an array of a type, or of one that can hold it."""
    if isinstance(value, mx.array):
        return value
    own = 3 if isinstance(value, complex) else 2 if isinstance(value, float) else 1
    if own == 1 or own <= kind(dtype):
        return mx.array(value, default(value) if dtype == bool else dtype)
    return mx.array(value, complex128 if own == 3 and dtype == float64 else default(value))


def astype(x, dtype, /, *, copy=True, device=None):
    """The array with its elements converted to another type."""
    with on(device):
        if x.dtype == dtype and device is None:
            return mx.array(x) if copy else x
        if x.dtype != dtype and kind(x.dtype) == 3 and kind(dtype) in (1, 2):
            raise TypeError(f"cannot convert {x.dtype} to {dtype}; take the real part first")
        x = x.astype(dtype)
        return x if device is None else x.to_device(device)


def can_cast(from_, to, /):
    """Whether type promotion leads from one type, or an array's type, to another."""
    return mx.can_cast(from_, to)


def finfo(type, /):
    """Limits of a floating-point type, or of an array's type."""
    return mx.finfo(type.dtype if isinstance(type, mx.array) else type)


def iinfo(type, /):
    """Limits of an integer type, or of an array's type."""
    return mx.iinfo(type.dtype if isinstance(type, mx.array) else type)


def isdtype(dtype, kind):
    """Whether a type is of a kind, or of one of several."""
    return mx.isdtype(dtype, kind)


def result_type(*arrays_and_dtypes):
    """The type that arrays, types and Python numbers combine to. Numbers take the type of the others where it can hold
    them."""
    numbers = [item for item in arrays_and_dtypes if isinstance(item, (int, float, complex))]
    others = [item for item in arrays_and_dtypes if not isinstance(item, (int, float, complex))]
    if not others:
        raise ValueError("cannot find the type of Python numbers alone; give at least one array or Dtype")
    result = mx.result_type(*others)
    for number in numbers:
        result = beside(number, result).dtype
    return result

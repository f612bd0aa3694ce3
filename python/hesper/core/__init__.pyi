# Written by scripts/stubs.py from the built package; do not edit.
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import ModuleType
from typing import Any, Self, final

from . import fast as fast, fft as fft, linalg as linalg, random as random, distributed as distributed, metal as metal, cuda as cuda

scalar = bool | int | float | complex


bfloat16: Dtype
bool_: Dtype
complex128: Dtype
complex64: Dtype
complexfloating: DtypeCategory
cpu: DeviceType
e: float
euler_gamma: float
float16: Dtype
float32: Dtype
float64: Dtype
floating: DtypeCategory
generic: DtypeCategory
gpu: DeviceType
inexact: DtypeCategory
inf: float
int16: Dtype
int32: Dtype
int64: Dtype
int8: Dtype
integer: DtypeCategory
nan: float
newaxis: None
number: DtypeCategory
pi: float
signedinteger: DtypeCategory
uint16: Dtype
uint32: Dtype
uint64: Dtype
uint8: Dtype
unsignedinteger: DtypeCategory

@final
class ArrayAt:
    """Updates of an array at indices; see ``array.at``."""
    def __getitem__(self, index: Any, /) -> ArrayAt: ...
    def add(self, value: Any) -> array:
        """Adds to the elements."""
        ...
    def divide(self, value: Any) -> array:
        """Divides the elements."""
        ...
    def maximum(self, value: Any) -> array:
        """Keeps the larger of both."""
        ...
    def minimum(self, value: Any) -> array:
        """Keeps the smaller of both."""
        ...
    def multiply(self, value: Any) -> array:
        """Multiplies the elements."""
        ...
    def subtract(self, value: Any) -> array:
        """Subtracts from the elements."""
        ...

@final
class ArrayIterator:
    """Iterates over the first axis of an array."""
    def __next__(self) -> array: ...
    def __iter__(self) -> ArrayIterator: ...

class ArrayLike:
    """An object that converts to an array through its ``__mlx_array__``.

    Parameters
    ----------
    arg : object

    Examples
    --------
    >>> class Half:
    ...     def __mlx_array__(self):
    ...         return mx.array(0.5)
    >>> mx.array(mx.ArrayLike(Half()))
    array(0.5, dtype=float32)
    """
    def __init__(self, arg: object, /) -> None: ...

@final
class Device:
    """A device: its kind and its number."""
    def __new__(cls, type: Any, index: int = 0) -> Self: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __lt__(self, other: Any, /) -> array: ...
    def __le__(self, other: Any, /) -> array: ...
    def __gt__(self, other: Any, /) -> array: ...
    def __ge__(self, other: Any, /) -> array: ...
    def __hash__(self) -> int: ...
    @property
    def type(self) -> DeviceType:
        """The kind of the device."""
        ...

class DeviceType(Enum):
    """The kinds of devices."""
    cpu = 0
    gpu = 1

@final
class Dtype:
    """The type of an array's elements, such as ``float32``."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __lt__(self, other: Any, /) -> array: ...
    def __le__(self, other: Any, /) -> array: ...
    def __gt__(self, other: Any, /) -> array: ...
    def __ge__(self, other: Any, /) -> array: ...
    def __hash__(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of one element."""
        ...

class DtypeCategory(Enum):
    """A kind of element types: ``floating`` has ``float16``, ``float32`` and so on."""
    complexfloating = 0
    floating = 1
    inexact = 2
    signedinteger = 3
    unsignedinteger = 4
    integer = 5
    number = 6
    generic = 7

@final
class FunctionExporter:
    """Writes several traces of one function to a file; returned by `exporter`.

    Called with arrays it adds a trace for arguments like these. As a context manager it writes the file when
    the block is left.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "sum.hesperfn")
    >>> with mx.exporter(path, lambda *args: sum(args)) as exporter:
    ...     exporter(mx.array(1))
    ...     exporter(mx.array(1), mx.array(2))
    >>> mx.import_function(path)(mx.array(3), mx.array(4))
    (array(7, dtype=int32),)
    """
    def __enter__(self) -> Any: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __exit__(self, exc_type: Any = None, exc_value: Any = None, traceback: Any = None) -> Any: ...
    def close(self) -> array:
        """Writes the file. Nothing can be added after that."""
        ...

@final
class PrintOptions:
    """How arrays are printed.

    Parameters
    ----------
    precision : int
        Decimals of floating-point numbers; -1 for six significant digits.
    """
    def __new__(cls, precision: int = -1) -> Self: ...
    @property
    def precision(self) -> int:
        """Decimals of floating-point numbers; -1 for six significant digits."""
        ...

@final
class Stream:
    """A stream: work on it runs in order."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __lt__(self, other: Any, /) -> array: ...
    def __le__(self, other: Any, /) -> array: ...
    def __gt__(self, other: Any, /) -> array: ...
    def __ge__(self, other: Any, /) -> array: ...
    def __hash__(self) -> int: ...
    @property
    def device(self) -> Device:
        """The device of the stream."""
        ...

@final
class StreamContext:
    """The scope of a stream; see `stream`."""
    def __new__(cls, s: Any) -> Self: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *_exception: Any) -> Any: ...

@final
class ThreadLocalStream:
    """A stream of which every thread has its own; see ``new_thread_local_stream``."""
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __lt__(self, other: Any, /) -> array: ...
    def __le__(self, other: Any, /) -> array: ...
    def __gt__(self, other: Any, /) -> array: ...
    def __ge__(self, other: Any, /) -> array: ...
    def __hash__(self) -> int: ...
    @property
    def device(self) -> Device:
        """The device of the streams."""
        ...

@final
class _PrintOptionsContext:
    """The scope of print options; see ``printoptions``."""
    def __enter__(self) -> Any: ...
    def __exit__(self, *_exception: Any) -> Any: ...

@final
class _compiled_function:
    """A compiled function; see ``compile``."""
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    __name__: Any
    __wrapped__: Any

@final
class _function:
    """A transformed function."""
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    __name__: Any
    __wrapped__: Any

class array:
    """An N-dimensional array.

    Parameters
    ----------
    val : scalar, list, tuple, array or any object with a buffer
        The elements.
    dtype : Dtype, optional
        The type of its elements. Default: ``bool_`` for bools, ``int32`` for integers,
        ``float32`` for floats, ``complex64`` for complex numbers.

    Examples
    --------
    >>> mx.array([1, 2, 3])
    array([1, 2, 3], dtype=int32)
    """
    def __new__(cls, val: Any, dtype: Dtype | None = None) -> Self: ...
    def __eq__(self, other: object, /) -> array: ...  # type: ignore[override]
    def __ne__(self, other: object, /) -> array: ...  # type: ignore[override]
    def __add__(self, other: Any, /) -> array: ...
    def __sub__(self, other: Any, /) -> array: ...
    def __mul__(self, other: Any, /) -> array: ...
    def __div__(self, other: Any, /) -> array: ...
    def __truediv__(self, other: Any, /) -> array: ...
    def __floordiv__(self, other: Any, /) -> array: ...
    def __mod__(self, other: Any, /) -> array: ...
    def __pow__(self, other: Any, mod: Any = None, /) -> array: ...
    def __matmul__(self, other: Any, /) -> array: ...
    def __and__(self, other: Any, /) -> array: ...
    def __or__(self, other: Any, /) -> array: ...
    def __xor__(self, other: Any, /) -> array: ...
    def __lshift__(self, other: Any, /) -> array: ...
    def __rshift__(self, other: Any, /) -> array: ...
    def __radd__(self, other: Any, /) -> array: ...
    def __rsub__(self, other: Any, /) -> array: ...
    def __rmul__(self, other: Any, /) -> array: ...
    def __rdiv__(self, other: Any, /) -> array: ...
    def __rtruediv__(self, other: Any, /) -> array: ...
    def __rfloordiv__(self, other: Any, /) -> array: ...
    def __rmod__(self, other: Any, /) -> array: ...
    def __rpow__(self, other: Any, mod: Any = None, /) -> array: ...
    def __rmatmul__(self, other: Any, /) -> array: ...
    def __rand__(self, other: Any, /) -> array: ...
    def __ror__(self, other: Any, /) -> array: ...
    def __rxor__(self, other: Any, /) -> array: ...
    def __rlshift__(self, other: Any, /) -> array: ...
    def __rrshift__(self, other: Any, /) -> array: ...
    def __iadd__(self, other: Any, /) -> array: ...
    def __isub__(self, other: Any, /) -> array: ...
    def __imul__(self, other: Any, /) -> array: ...
    def __itruediv__(self, other: Any, /) -> array: ...
    def __ifloordiv__(self, other: Any, /) -> array: ...
    def __imod__(self, other: Any, /) -> array: ...
    def __ipow__(self, other: Any, mod: Any = None, /) -> array: ...
    def __imatmul__(self, other: Any, /) -> array: ...
    def __iand__(self, other: Any, /) -> array: ...
    def __ior__(self, other: Any, /) -> array: ...
    def __ixor__(self, other: Any, /) -> array: ...
    def __ilshift__(self, other: Any, /) -> array: ...
    def __irshift__(self, other: Any, /) -> array: ...
    def __lt__(self, other: Any, /) -> array: ...
    def __le__(self, other: Any, /) -> array: ...
    def __gt__(self, other: Any, /) -> array: ...
    def __ge__(self, other: Any, /) -> array: ...
    def __neg__(self) -> array: ...
    def __pos__(self) -> array: ...
    def __abs__(self) -> array: ...
    def __invert__(self) -> array: ...
    def __copy__(self) -> array: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __complex__(self) -> complex: ...
    def __bytes__(self) -> bytes: ...
    def __index__(self) -> int: ...
    def __hash__(self) -> int: ...
    def __len__(self) -> int: ...
    def __deepcopy__(self, memo: Any) -> array: ...
    def __getitem__(self, index: Any, /) -> array: ...
    def __setitem__(self, index: Any, value: Any, /) -> None: ...
    def __delitem__(self, index: Any, /) -> None: ...
    def __iter__(self) -> ArrayIterator: ...
    def __reversed__(self) -> Iterator[array]: ...
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any: ...
    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(self, *, stream: StreamOrDevice = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any: ...
    @property
    def T(self) -> array:
        """The array with its axes in reverse order."""
        ...
    def abs(self, *, stream: StreamOrDevice = None) -> array:
        """See the function ``abs``."""
        ...
    def all(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
        """See the function ``all``."""
        ...
    def any(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
        """See the function ``any``."""
        ...
    def argmax(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
        """See the function ``argmax``."""
        ...
    def argmin(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
        """See the function ``argmin``."""
        ...
    def astype(self, dtype: Dtype | None, stream: StreamOrDevice = None) -> array:
        """The array with its elements converted to another type."""
        ...
    @property
    def at(self) -> ArrayAt:
        """Updates at indices that also count indices that occur more than once.

        Examples
        --------
        >>> a = mx.array([0, 0])
        >>> a.at[mx.array([0, 1, 0, 1])].add(1)
        array([2, 2], dtype=int32)
        """
        ...
    def conj(self, *, stream: StreamOrDevice = None) -> array:
        """See the function ``conj``."""
        ...
    def cos(self, *, stream: StreamOrDevice = None) -> array:
        """See the function ``cos``."""
        ...
    def cummax(self, axis: int | Sequence[int] | None = None, *, reverse: bool = False, inclusive: bool = True, stream: StreamOrDevice = None) -> array:
        """See the function ``cummax``."""
        ...
    def cummin(self, axis: int | Sequence[int] | None = None, *, reverse: bool = False, inclusive: bool = True, stream: StreamOrDevice = None) -> array:
        """See the function ``cummin``."""
        ...
    def cumprod(self, axis: int | Sequence[int] | None = None, *, reverse: bool = False, inclusive: bool = True, stream: StreamOrDevice = None) -> array:
        """See the function ``cumprod``."""
        ...
    def cumsum(self, axis: int | Sequence[int] | None = None, *, reverse: bool = False, inclusive: bool = True, stream: StreamOrDevice = None) -> array:
        """See the function ``cumsum``."""
        ...
    @property
    def device(self) -> Device:
        """The device that the array is computed on."""
        ...
    def diag(self, k: int = 0, *, stream: StreamOrDevice = None) -> array:
        """See the function ``diag``."""
        ...
    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1, stream: StreamOrDevice = None) -> array:
        """See the function ``diagonal``."""
        ...
    @property
    def dtype(self) -> Dtype:
        """The type of the elements."""
        ...
    def exp(self, *, stream: StreamOrDevice = None) -> array:
        """See the function ``exp``."""
        ...
    def flatten(self, start_axis: int = 0, end_axis: int = -1, *, stream: StreamOrDevice = None) -> array:
        """See the function ``flatten``."""
        ...
    @property
    def imag(self) -> array:
        """The imaginary parts."""
        ...
    def item(self) -> scalar:
        """The one element as a Python number."""
        ...
    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        ...
    def log(self, *, stream: StreamOrDevice = None) -> array:
        """See the function ``log``."""
        ...
    def log10(self, *, stream: StreamOrDevice = None) -> array:
        """See the function ``log10``."""
        ...
    def log1p(self, *, stream: StreamOrDevice = None) -> array:
        """See the function ``log1p``."""
        ...
    def log2(self, *, stream: StreamOrDevice = None) -> array:
        """See the function ``log2``."""
        ...
    def logcumsumexp(self, axis: int | Sequence[int] | None = None, *, reverse: bool = False, inclusive: bool = True, stream: StreamOrDevice = None) -> array:
        """See the function ``logcumsumexp``."""
        ...
    def logsumexp(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
        """See the function ``logsumexp``."""
        ...
    @property
    def mT(self) -> array:
        """The array with its last two axes exchanged."""
        ...
    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
        """See the function ``max``."""
        ...
    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
        """See the function ``mean``."""
        ...
    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
        """See the function ``min``."""
        ...
    def moveaxis(self, source: Any, destination: Any, *, stream: StreamOrDevice = None) -> array:
        """See the function ``moveaxis``."""
        ...
    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        ...
    @property
    def ndim(self) -> int:
        """The number of axes."""
        ...
    def prod(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
        """See the function ``prod``."""
        ...
    @property
    def real(self) -> array:
        """The real parts."""
        ...
    def reciprocal(self, *, stream: StreamOrDevice = None) -> array:
        """See the function ``reciprocal``."""
        ...
    def reshape(self, *shape: int | Sequence[int], stream: StreamOrDevice = None) -> array:
        """The same elements in another shape, given as a tuple or as separate arguments."""
        ...
    def round(self, decimals: int = 0, *, stream: StreamOrDevice = None) -> array:
        """See the function ``round``."""
        ...
    def rsqrt(self, *, stream: StreamOrDevice = None) -> array:
        """See the function ``rsqrt``."""
        ...
    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        ...
    def sin(self, *, stream: StreamOrDevice = None) -> array:
        """See the function ``sin``."""
        ...
    @property
    def size(self) -> int:
        """The number of elements."""
        ...
    def split(self, indices_or_sections: Any, axis: int | Sequence[int] | None = 0, *, stream: StreamOrDevice = None) -> list[array]:
        """See the function ``split``."""
        ...
    def sqrt(self, *, stream: StreamOrDevice = None) -> array:
        """See the function ``sqrt``."""
        ...
    def square(self, *, stream: StreamOrDevice = None) -> array:
        """See the function ``square``."""
        ...
    def squeeze(self, axis: int | Sequence[int] | None = None, *, stream: StreamOrDevice = None) -> array:
        """See the function ``squeeze``."""
        ...
    def std(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, ddof: int = 0, *, correction: Any = None, stream: StreamOrDevice = None) -> array:
        """See the function ``std``."""
        ...
    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
        """See the function ``sum``."""
        ...
    def swapaxes(self, axis1: Any, axis2: Any, *, stream: StreamOrDevice = None) -> array:
        """See the function ``swapaxes``."""
        ...
    def to_device(self, device: Any, /, *, stream: StreamOrDevice = None) -> array:
        """The array on another device.

        Parameters
        ----------
        device : Device
        stream : Stream, optional
            A stream of the device; its default stream if there is none.
        """
        ...
    def tolist(self) -> Any:
        """The elements as nested lists; a number if the array has no axes."""
        ...
    def transpose(self, *axes: int | Sequence[int] | None, stream: StreamOrDevice = None) -> array:
        """The axes in another order, given as a tuple or as separate arguments; by default reversed."""
        ...
    def var(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, ddof: int = 0, *, correction: Any = None, stream: StreamOrDevice = None) -> array:
        """See the function ``var``."""
        ...
    def view(self, dtype: Dtype | None, *, stream: StreamOrDevice = None) -> array:
        """See the function ``view``."""
        ...

@final
class custom_function:
    """A function with derivatives and a vectorization of its own.

    Parameters
    ----------
    f : callable
        Takes and returns arrays or trees of arrays. Captured arrays are constants.

    Examples
    --------
    >>> @mx.custom_function
    ... def f(x):
    ...     return mx.sin(x)
    >>> @f.vjp
    ... def f(x, cotangent, output):
    ...     return cotangent * 7
    >>> mx.grad(f)(mx.array(0.0))
    array(7, dtype=float32)
    """
    def __new__(cls, f: Any) -> Self: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    __name__: Any
    __wrapped__: Any
    def jvp(self, f: Any) -> tuple[list[array], list[array]]:
        """Sets the JVP rule: a function of the arguments and their tangents. Returns the custom function."""
        ...
    def vjp(self, f: Any) -> tuple[list[array], list[array]]:
        """Sets the VJP rule: a function of the arguments, the cotangents of the outputs, and the outputs, which
        returns the cotangents of the arguments. Returns the custom function.
        """
        ...
    def vmap(self, f: Any) -> Callable[..., Any]:
        """Sets the vmap rule: a function of the arguments and their axes, which returns the outputs and their
        axes. Returns the custom function.
        """
        ...

@final
class finfo:
    """Limits of a floating-point type.

    Examples
    --------
    >>> mx.finfo(mx.float16).max
    65504.0
    """
    def __new__(cls, arg: Any, /) -> Self: ...
    @property
    def bits(self) -> Any:
        """Bits of a number."""
        ...
    @property
    def dtype(self) -> Dtype:
        """The type."""
        ...
    @property
    def eps(self) -> Any:
        """The distance from one to the next number."""
        ...
    @property
    def max(self) -> Any:
        """The largest value."""
        ...
    @property
    def min(self) -> Any:
        """The smallest value."""
        ...
    @property
    def smallest_normal(self) -> Any:
        """The smallest positive number of full precision."""
        ...

@final
class iinfo:
    """Limits of an integer type.

    Examples
    --------
    >>> mx.iinfo(mx.int8)
    iinfo(min=-128, max=127, dtype=int8)
    """
    def __new__(cls, arg: Any, /) -> Self: ...
    @property
    def bits(self) -> Any:
        """Bits of a number."""
        ...
    @property
    def dtype(self) -> Dtype:
        """The type."""
        ...
    @property
    def max(self) -> Any:
        """The largest value."""
        ...
    @property
    def min(self) -> Any:
        """The smallest value."""
        ...

StreamOrDevice = Stream | ThreadLocalStream | Device | DeviceType | None

def abs(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The absolute value; of complex numbers as the type of their parts.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.abs(mx.array([-1.5, 2.0]))
    array([1.5, 2], dtype=float32)
    """
    ...

def acos(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The inverse cosine.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.acos(mx.array([0.0, 0.5]))
    array([1.5708, 1.0472], dtype=float32)
    """
    ...

def acosh(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The inverse hyperbolic cosine.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.acosh(mx.array([1.0, 2.0]))
    array([0, 1.31696], dtype=float32)
    """
    ...

def add(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """The sum, element by element.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.add(mx.array([7, 4]), mx.array([2, 4]))
    array([9, 8], dtype=int32)
    """
    ...

def addmm(c: Any, a: array | scalar, b: array | scalar, /, alpha: float = 1.0, beta: float = 1.0, *, stream: StreamOrDevice = None) -> array:
    """``beta * c + alpha * (a @ b)``.

    Parameters
    ----------
    c : array
    a : array
    b : array
    alpha : float
    beta : float
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.addmm(mx.array([[1.0]]), mx.array([[2.0]]), mx.array([[3.0]]))
    array([[7]], dtype=float32)
    """
    ...

def all(a: array | scalar, /, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """Whether all elements are true or not zero.

    Parameters
    ----------
    a : array
    axis : int or sequence of int, optional
        The axes to go over; by default all.
    keepdims : bool
        Whether those axes stay, with length one.
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.all(mx.array([True, False]))
    array(False, dtype=bool)
    """
    ...

def allclose(a: array | scalar, b: array | scalar, /, rtol: float = 1e-05, atol: float = 1e-08, *, equal_nan: bool = False, stream: StreamOrDevice = None) -> array:
    """Whether all elements are close; see ``isclose``.

    Parameters
    ----------
    a : array
    b : array
    rtol : float
    atol : float
    equal_nan : bool
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.allclose(mx.array([1.0]), mx.array([1.0]))
    array(True, dtype=bool)
    """
    ...

def any(a: array | scalar, /, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """Whether any element is true or not zero.

    Parameters
    ----------
    a : array
    axis : int or sequence of int, optional
        The axes to go over; by default all.
    keepdims : bool
        Whether those axes stay, with length one.
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.any(mx.array([True, False]))
    array(True, dtype=bool)
    """
    ...

def arange(start: Any, stop: Any = None, step: Any = None, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """Numbers from `start` to below `stop`, `step` apart; ``arange(stop)`` starts at zero.

    The type is ``int32`` for integers and ``float32`` for floats, unless `dtype` is given.

    Examples
    --------
    >>> mx.arange(3)
    array([0, 1, 2], dtype=int32)
    """
    ...

def arccos(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The inverse cosine.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.arccos(mx.array([0.0, 0.5]))
    array([1.5708, 1.0472], dtype=float32)
    """
    ...

def arccosh(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The inverse hyperbolic cosine.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.arccosh(mx.array([1.0, 2.0]))
    array([0, 1.31696], dtype=float32)
    """
    ...

def arcsin(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The inverse sine.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.arcsin(mx.array([0.0, 0.5]))
    array([0, 0.523599], dtype=float32)
    """
    ...

def arcsinh(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The inverse hyperbolic sine.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.arcsinh(mx.array([0.0, 0.5]))
    array([0, 0.481212], dtype=float32)
    """
    ...

def arctan(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The inverse tangent.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.arctan(mx.array([0.0, 0.5]))
    array([0, 0.463648], dtype=float32)
    """
    ...

def arctan2(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """The angle of the point whose height is the first operand and whose width is the second.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.arctan2(mx.array([7, 4]), mx.array([2, 4]))
    array([1.2925, 0.785398], dtype=float32)
    """
    ...

def arctanh(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The inverse hyperbolic tangent.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.arctanh(mx.array([0.0, 0.5]))
    array([0, 0.549306], dtype=float32)
    """
    ...

def argmax(a: array | scalar, /, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The place of the largest element: the first of equals, or the first NaN.

    Along an axis; by default in the flattened array.

    Examples
    --------
    >>> mx.argmax(mx.array([1, 3, 2]))
    array(1, dtype=uint32)
    """
    ...

def argmin(a: array | scalar, /, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The place of the smallest element: the first of equals, or the first NaN.

    Along an axis; by default in the flattened array.

    Examples
    --------
    >>> mx.argmin(mx.array([1, 3, 2]))
    array(0, dtype=uint32)
    """
    ...

def argpartition(a: array | scalar, /, kth: Any, axis: int | Sequence[int] | None = -1, *, stream: StreamOrDevice = None) -> array:
    """The places of the elements with the `kth` at its place, smaller ones before it.

    Along an axis, by default the last; with None, of the flattened array.

    Examples
    --------
    >>> mx.argpartition(mx.array([3, 1, 2]), 1)
    array([1, 2, 0], dtype=uint32)
    """
    ...

def argsort(a: array | scalar, /, axis: int | Sequence[int] | None = -1, *, stream: StreamOrDevice = None) -> array:
    """The places of the elements in order.

    Along an axis, by default the last; with None, of the flattened array.

    Examples
    --------
    >>> mx.argsort(mx.array([3, 1, 2]))
    array([1, 2, 0], dtype=uint32)
    """
    ...

def array_equal(a: array | scalar, b: array | scalar, equal_nan: bool = False, stream: StreamOrDevice = None) -> array:
    """Whether two arrays have one shape and equal elements.

    Parameters
    ----------
    a : array
    b : array
    equal_nan : bool
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.array_equal(mx.array([1, 2]), mx.array([1, 2]))
    array(True, dtype=bool)
    """
    ...

def as_strided(a: array | scalar, /, shape: int | Sequence[int] | None = None, strides: Any = None, offset: int = 0, *, stream: StreamOrDevice = None) -> array:
    """The array's memory in another shape with other strides.

    Parameters
    ----------
    a : array
    shape : int or sequence of int
    strides : sequence of int, optional
    offset : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.as_strided(mx.array([1, 2, 3]), (2, 2), (1, 1)).tolist()
    [[1, 2], [2, 3]]
    """
    ...

def asarray(a: array | scalar, dtype: Dtype | None = None, *, copy: Any = None) -> array:
    """An array from any object that holds numbers; an array stays as it is unless its type must change.

    Parameters
    ----------
    a : array
    dtype : Dtype, optional
    copy : bool, optional

    Examples
    --------
    >>> mx.asarray([1, 2])
    array([1, 2], dtype=int32)
    """
    ...

def asin(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The inverse sine.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.asin(mx.array([0.0, 0.5]))
    array([0, 0.523599], dtype=float32)
    """
    ...

def asinh(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The inverse hyperbolic sine.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.asinh(mx.array([0.0, 0.5]))
    array([0, 0.481212], dtype=float32)
    """
    ...

def astype(a: array | scalar, /, dtype: Dtype | None, *, stream: StreamOrDevice = None) -> array:
    """The array with its elements converted to another type.

    Parameters
    ----------
    a : array
    dtype : Dtype, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.astype(mx.array([1.5]), mx.int32)
    array([1], dtype=int32)
    """
    ...

def async_eval(*args: Any) -> None:
    """Starts computing arrays, or trees of arrays, and returns at once.

    An error is raised when an array that it concerns is used, and by ``synchronize`` of its stream.

    Parameters
    ----------
    args : arrays or trees of arrays

    Examples
    --------
    >>> y = mx.exp(mx.array([0.0]))
    >>> mx.async_eval(y)
    """
    ...

def atan(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The inverse tangent.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.atan(mx.array([0.0, 0.5]))
    array([0, 0.463648], dtype=float32)
    """
    ...

def atan2(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """The angle of the point whose height is the first operand and whose width is the second.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.atan2(mx.array([7, 4]), mx.array([2, 4]))
    array([1.2925, 0.785398], dtype=float32)
    """
    ...

def atanh(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The inverse hyperbolic tangent.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.atanh(mx.array([0.0, 0.5]))
    array([0, 0.549306], dtype=float32)
    """
    ...

def atleast_1d(*arys: Any, stream: StreamOrDevice = None) -> array | list[array]:
    """Arrays with at least one axis.

    Parameters
    ----------
    arys : array
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.atleast_1d(mx.array(1)).shape
    (1,)
    """
    ...

def atleast_2d(*arys: Any, stream: StreamOrDevice = None) -> array | list[array]:
    """Arrays with at least two axes.

    Parameters
    ----------
    arys : array
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.atleast_2d(mx.array(1)).shape
    (1, 1)
    """
    ...

def atleast_3d(*arys: Any, stream: StreamOrDevice = None) -> array | list[array]:
    """Arrays with at least three axes.

    Parameters
    ----------
    arys : array
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.atleast_3d(mx.array(1)).shape
    (1, 1, 1)
    """
    ...

def bartlett(M: Any, *, stream: StreamOrDevice = None) -> array:
    """The Bartlett window of `M` elements.

    Examples
    --------
    >>> mx.bartlett(3)
    array([0, 1, 0], dtype=float32)
    """
    ...

def bitwise_and(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Bitwise and.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.bitwise_and(mx.array([6, 3]), 2)
    array([2, 2], dtype=int32)
    """
    ...

def bitwise_invert(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """All bits turned over.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.bitwise_invert(mx.array([0, 5]))
    array([-1, -6], dtype=int32)
    """
    ...

def bitwise_left_shift(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Bits shifted to the left.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.bitwise_left_shift(mx.array([1, 3]), 2)
    array([4, 12], dtype=int32)
    """
    ...

def bitwise_or(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Bitwise or.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.bitwise_or(mx.array([6, 3]), 1)
    array([7, 3], dtype=int32)
    """
    ...

def bitwise_right_shift(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Bits shifted to the right.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.bitwise_right_shift(mx.array([8, 3]), 1)
    array([4, 1], dtype=int32)
    """
    ...

def bitwise_xor(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Bitwise exclusive or.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.bitwise_xor(mx.array([6, 3]), 2)
    array([4, 1], dtype=int32)
    """
    ...

def blackman(M: Any, *, stream: StreamOrDevice = None) -> array:
    """The Blackman window of `M` elements.

    Examples
    --------
    >>> mx.blackman(1)
    array([1], dtype=float32)
    """
    ...

def block_masked_mm(a: array | scalar, b: array | scalar, /, block_size: int = 64, mask_out: Any = None, mask_lhs: Any = None, mask_rhs: Any = None, *, stream: StreamOrDevice = None) -> array:
    """A matrix product of which blocks are masked.

    Parameters
    ----------
    a : array
    b : array
    block_size : int
    mask_out : array, optional
    mask_lhs : array, optional
    mask_rhs : array, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.block_masked_mm(mx.ones((32, 32)), mx.ones((32, 32)), 32).shape
    (32, 32)
    """
    ...

def broadcast_arrays(*arrays: Any, stream: StreamOrDevice = None) -> list[array]:
    """Arrays stretched to the shape that they broadcast to together.

    Parameters
    ----------
    arrays : sequence of array
    stream : Stream or Device, optional

    Examples
    --------
    >>> [array.shape for array in mx.broadcast_arrays(mx.ones((2, 1)), mx.ones((3,)))]
    [(2, 3), (2, 3)]
    """
    ...

def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that shapes broadcast to.

    Parameters
    ----------
    shapes : sequence of int

    Examples
    --------
    >>> mx.broadcast_shapes((2, 1), (1, 3))
    (2, 3)
    """
    ...

def broadcast_to(a: array | scalar, /, shape: int | Sequence[int], *, stream: StreamOrDevice = None) -> array:
    """The array stretched to a shape that it broadcasts to.

    Parameters
    ----------
    a : array
    shape : int or sequence of int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.broadcast_to(mx.array([1, 2]), (3, 2)).shape
    (3, 2)
    """
    ...

def can_cast(from_: Any, to: Any) -> bool:
    """Whether values of one type, or of an array's type, become another without a change of kind.

    Parameters
    ----------
    from_ : array or Dtype
    to : Dtype

    Examples
    --------
    >>> mx.can_cast(mx.int32, mx.float32)
    True
    """
    ...

def ceil(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """Rounded up.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.ceil(mx.array([0.5, 1.0]))
    array([1, 1], dtype=float32)
    """
    ...

def checkpoint(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its intermediate arrays recomputed for its derivative instead of kept.

    Parameters
    ----------
    fun : callable
        Takes and returns arrays or trees of arrays.

    Returns
    -------
    callable

    Examples
    --------
    >>> mx.grad(mx.checkpoint(lambda x: mx.exp(mx.sin(x))))(mx.array(0.0))
    array(1, dtype=float32)
    """
    ...

def clear_cache() -> None:
    """Free the memory that is cached for reuse.

    Examples
    --------
    >>> mx.clear_cache()
    """
    ...

def clear_streams() -> None:
    """Drop the thread-local streams and the default stream of this thread; work in flight on them continues.

    Examples
    --------
    >>> mx.clear_streams()
    """
    ...

def clip(a: array | scalar, /, a_min: array | scalar | None, a_max: array | scalar | None, *, stream: StreamOrDevice = None) -> array:
    """Elements limited to a range; a bound may be None.

    Examples
    --------
    >>> mx.clip(mx.array([-1, 5]), 0, 3)
    array([0, 3], dtype=int32)
    """
    ...

def compile(fun: Callable[..., Any], inputs: Any = None, outputs: Any = None, shapeless: bool = False) -> Callable[..., Any]:
    """The function, compiled: called once for each set of shapes and types, run as a whole after that.

    Parameters
    ----------
    fun : callable
        Takes and returns trees of arrays; numbers and strings among its arguments are constants.
    inputs : tree of array, optional
        State that the function reads besides its arguments: lists and dicts, also
        ``model.state``, ``optimizer.state``, ``mx.random.state``.
    outputs : tree of array, optional
        State that the function changes.
    shapeless : bool
        Whether the function is traced once for all shapes with the same number of axes. Numbers
        that it takes from a shape keep their first value.

    Returns
    -------
    callable

    Examples
    --------
    >>> f = mx.compile(lambda x, y: mx.exp(-x) + y)
    >>> f(mx.array([0.0]), mx.array([1.0]))
    array([2], dtype=float32)
    """
    ...

def concat(arrays: Any, axis: int | Sequence[int] | None = 0, *, stream: StreamOrDevice = None) -> array:
    """Arrays joined along an axis that they have; with None, flattened first.

    Parameters
    ----------
    arrays : sequence of array
    axis : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.concat([mx.array([1]), mx.array([2, 3])])
    array([1, 2, 3], dtype=int32)
    """
    ...

def concatenate(arrays: Any, axis: int | Sequence[int] | None = 0, *, stream: StreamOrDevice = None) -> array:
    """Arrays joined along an axis that they have; with None, flattened first.

    Parameters
    ----------
    arrays : sequence of array
    axis : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.concatenate([mx.array([1]), mx.array([2, 3])])
    array([1, 2, 3], dtype=int32)
    """
    ...

def conj(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The complex conjugate; other numbers as they are.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.conj(mx.array([1 + 2j]))
    array([1-2j], dtype=complex64)
    """
    ...

def conjugate(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The complex conjugate; other numbers as they are.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.conjugate(mx.array([1 + 2j]))
    array([1-2j], dtype=complex64)
    """
    ...

def contiguous(a: array | scalar, /, allow_col_major: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The array with row-contiguous memory.

    Parameters
    ----------
    a : array
    allow_col_major : bool
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.contiguous(mx.ones((2, 3)).T).shape
    (3, 2)
    """
    ...

def conv1d(input: Any, weight: array | None, /, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1, *, stream: StreamOrDevice = None) -> array:
    """A convolution over one spatial axis.

    Parameters
    ----------
    input : array
    weight : array
    stride : int or sequence of int
    padding : int or sequence of int
    dilation : int or sequence of int
    groups : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.conv1d(mx.ones((1, 4, 1)), mx.ones((1, 2, 1))).shape
    (1, 3, 1)
    """
    ...

def conv2d(input: Any, weight: array | None, /, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1, *, stream: StreamOrDevice = None) -> array:
    """A convolution over two spatial axes.

    Parameters
    ----------
    input : array
        Channels last: ``[N, ..., C_in]``.
    weight : array
        Channels last: ``[C_out, ..., C_in / groups]``.
    stride, padding, dilation : int or tuple of int
    groups : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.conv2d(mx.ones([1, 1, 1, 2]), mx.ones([3, 1, 1, 2])).size
    3
    """
    ...

def conv3d(input: Any, weight: array | None, /, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1, *, stream: StreamOrDevice = None) -> array:
    """A convolution over three spatial axes.

    Parameters
    ----------
    input : array
        Channels last: ``[N, ..., C_in]``.
    weight : array
        Channels last: ``[C_out, ..., C_in / groups]``.
    stride, padding, dilation : int or tuple of int
    groups : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.conv3d(mx.ones([1, 1, 1, 1, 2]), mx.ones([3, 1, 1, 1, 2])).size
    3
    """
    ...

def conv_general(input: Any, weight: array | None, /, stride: int = 1, padding: int = 0, kernel_dilation: int = 1, input_dilation: int = 1, groups: int = 1, flip: bool = False, *, stream: StreamOrDevice = None) -> array:
    """A convolution over one to three spatial axes, with padding on each side and dilated input.

    `padding` is a number, one for each axis, or a pair of lists: before and after.

    Parameters
    ----------
    input : array
    weight : array
    stride : int or sequence of int
    padding : int or sequence of int
    kernel_dilation : int or sequence of int
    input_dilation : int or sequence of int
    groups : int
    flip : bool
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.conv_general(mx.ones((1, 4, 1)), mx.ones((1, 2, 1)), padding=([1], [0])).shape
    (1, 4, 1)
    """
    ...

def conv_transpose1d(input: Any, weight: array | None, /, stride: int = 1, padding: int = 0, dilation: int = 1, output_padding: int = 0, groups: int = 1, *, stream: StreamOrDevice = None) -> array:
    """A transposed convolution over one spatial axis.

    Parameters
    ----------
    input : array
    weight : array
    stride : int or sequence of int
    padding : int or sequence of int
    dilation : int or sequence of int
    output_padding : int
    groups : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.conv_transpose1d(mx.ones((1, 4, 1)), mx.ones((1, 2, 1))).shape
    (1, 5, 1)
    """
    ...

def conv_transpose2d(input: Any, weight: array | None, /, stride: int = 1, padding: int = 0, dilation: int = 1, output_padding: int = 0, groups: int = 1, *, stream: StreamOrDevice = None) -> array:
    """A transposed convolution over two spatial axes.

    Parameters
    ----------
    input : array
        Channels last: ``[N, ..., C_in]``.
    weight : array
        Channels last: ``[C_out, ..., C_in / groups]``.
    stride, padding, dilation : int or tuple of int
    groups : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.conv_transpose2d(mx.ones([1, 1, 1, 2]), mx.ones([3, 1, 1, 2])).size
    3
    """
    ...

def conv_transpose3d(input: Any, weight: array | None, /, stride: int = 1, padding: int = 0, dilation: int = 1, output_padding: int = 0, groups: int = 1, *, stream: StreamOrDevice = None) -> array:
    """A transposed convolution over three spatial axes.

    Parameters
    ----------
    input : array
        Channels last: ``[N, ..., C_in]``.
    weight : array
        Channels last: ``[C_out, ..., C_in / groups]``.
    stride, padding, dilation : int or tuple of int
    groups : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.conv_transpose3d(mx.ones([1, 1, 1, 1, 2]), mx.ones([3, 1, 1, 1, 2])).size
    3
    """
    ...

def convolve(a: array | scalar, v: Any, /, mode: str = 'full', *, stream: StreamOrDevice = None) -> array:
    """The convolution of two signals of one axis; `mode` is 'full', 'same' or 'valid'.

    Parameters
    ----------
    a : array
    v : array
    mode : str
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.convolve(mx.array([1.0, 2.0]), mx.array([1.0, 1.0]))
    array([1, 3, 2], dtype=float32)
    """
    ...

def cos(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The cosine.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.cos(mx.array([0.0, 0.5]))
    array([1, 0.877583], dtype=float32)
    """
    ...

def cosh(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The hyperbolic cosine.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.cosh(mx.array([0.0, 0.5]))
    array([1, 1.12763], dtype=float32)
    """
    ...

def count_nonzero(a: array | scalar, /, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """How many elements are not zero.

    Parameters
    ----------
    a : array
    axis : int or sequence of int, optional
        The axes to go over; by default all.
    keepdims : bool
        Whether those axes stay, with length one.
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.count_nonzero(mx.array([0, 1, 2]))
    array(2, dtype=int32)
    """
    ...

def cummax(a: array | scalar, /, axis: int | Sequence[int] | None = None, *, reverse: bool = False, inclusive: bool = True, dtype: Dtype | None = None, stream: StreamOrDevice = None) -> array:
    """The running maximum.

    Parameters
    ----------
    a : array
    axis : int, optional
        By default the array is flattened.
    reverse : bool
        Whether to begin at the end.
    inclusive : bool
        Whether each result includes the element at its place.
    dtype : Dtype, optional
        What elements are converted to first.
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.cummax(mx.array([1.0, 3.0, 2.0]))
    array([1, 3, 3], dtype=float32)
    """
    ...

def cummin(a: array | scalar, /, axis: int | Sequence[int] | None = None, *, reverse: bool = False, inclusive: bool = True, dtype: Dtype | None = None, stream: StreamOrDevice = None) -> array:
    """The running minimum.

    Parameters
    ----------
    a : array
    axis : int, optional
        By default the array is flattened.
    reverse : bool
        Whether to begin at the end.
    inclusive : bool
        Whether each result includes the element at its place.
    dtype : Dtype, optional
        What elements are converted to first.
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.cummin(mx.array([1.0, 3.0, 2.0]))
    array([1, 1, 1], dtype=float32)
    """
    ...

def cumprod(a: array | scalar, /, axis: int | Sequence[int] | None = None, *, reverse: bool = False, inclusive: bool = True, dtype: Dtype | None = None, stream: StreamOrDevice = None) -> array:
    """The running product.

    Parameters
    ----------
    a : array
    axis : int, optional
        By default the array is flattened.
    reverse : bool
        Whether to begin at the end.
    inclusive : bool
        Whether each result includes the element at its place.
    dtype : Dtype, optional
        What elements are converted to first.
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.cumprod(mx.array([1.0, 3.0, 2.0]))
    array([1, 3, 6], dtype=float32)
    """
    ...

def cumsum(a: array | scalar, /, axis: int | Sequence[int] | None = None, *, reverse: bool = False, inclusive: bool = True, dtype: Dtype | None = None, stream: StreamOrDevice = None) -> array:
    """The running sum. Bools are summed as int32.

    Parameters
    ----------
    a : array
    axis : int, optional
        By default the array is flattened.
    reverse : bool
        Whether to begin at the end.
    inclusive : bool
        Whether each result includes the element at its place.
    dtype : Dtype, optional
        What elements are converted to first.
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.cumsum(mx.array([1.0, 3.0, 2.0]))
    array([1, 4, 6], dtype=float32)
    """
    ...

def cumulative_prod(a: array | scalar, /, axis: int | Sequence[int] | None = None, *, reverse: bool = False, inclusive: bool = True, dtype: Dtype | None = None, stream: StreamOrDevice = None) -> array:
    """The running product.

    Parameters
    ----------
    a : array
    axis : int, optional
        By default the array is flattened.
    reverse : bool
        Whether to begin at the end.
    inclusive : bool
        Whether each result includes the element at its place.
    dtype : Dtype, optional
        What elements are converted to first.
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.cumulative_prod(mx.array([1.0, 3.0, 2.0]))
    array([1, 3, 6], dtype=float32)
    """
    ...

def cumulative_sum(a: array | scalar, /, axis: int | Sequence[int] | None = None, *, reverse: bool = False, inclusive: bool = True, dtype: Dtype | None = None, stream: StreamOrDevice = None) -> array:
    """The running sum. Bools are summed as int32.

    Parameters
    ----------
    a : array
    axis : int, optional
        By default the array is flattened.
    reverse : bool
        Whether to begin at the end.
    inclusive : bool
        Whether each result includes the element at its place.
    dtype : Dtype, optional
        What elements are converted to first.
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.cumulative_sum(mx.array([1.0, 3.0, 2.0]))
    array([1, 4, 6], dtype=float32)
    """
    ...

def default_device() -> Device:
    """The default device: a GPU if there is one.

    Examples
    --------
    >>> mx.default_device() in (mx.cpu, mx.gpu)
    True
    """
    ...

def default_stream(device: Any) -> Stream:
    """The default stream of a device.

    Parameters
    ----------
    device : Device or DeviceType

    Examples
    --------
    >>> mx.default_stream(mx.cpu).device
    Device(cpu, 0)
    """
    ...

def degrees(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """Radians as degrees.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.degrees(mx.array([0.0, mx.pi]))
    array([0, 180], dtype=float32)
    """
    ...

def depends(inputs: Any, dependencies: Any) -> array | list[array]:
    """Arrays that are computed only when others have been.

    Parameters
    ----------
    inputs : array or sequence of array
        The arrays to return, with unchanged elements.
    dependencies : array or sequence of array
        The arrays to compute before.

    Returns
    -------
    array or list of array

    Examples
    --------
    >>> mx.depends(mx.array([1, 2]), mx.array(3))
    array([1, 2], dtype=int32)
    """
    ...

def dequantize(w: array, /, scales: Any, biases: Any = None, group_size: Any = None, bits: Any = None, mode: str = 'affine', global_scale: Any = None, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """The numbers that codes stand for.

    Examples
    --------
    >>> mx.dequantize(*mx.quantize(mx.ones((2, 64)))).shape
    (2, 64)
    """
    ...

def device_count(device_type: Any) -> int:
    """How many devices of a kind there are.

    Parameters
    ----------
    d : Device, optional

    Examples
    --------
    >>> mx.device_count(mx.cpu)
    1
    """
    ...

def device_info(d: Any = None) -> dict[str, str | int]:
    """The properties of a device: its name, its architecture, its memory.

    Parameters
    ----------
    d : Device, optional

    Examples
    --------
    >>> "architecture" in mx.device_info()
    True
    """
    ...

def diag(a: array | scalar, /, k: int = 0, *, stream: StreamOrDevice = None) -> array:
    """The diagonal of a matrix, or a matrix with a diagonal.

    Parameters
    ----------
    a : array
    k : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.diag(mx.array([[1, 2], [3, 4]]))
    array([1, 4], dtype=int32)
    """
    ...

def diagonal(a: array | scalar, offset: int = 0, axis1: int = 0, axis2: int = 1, stream: StreamOrDevice = None) -> array:
    """A diagonal of two axes, as the last axis.

    Parameters
    ----------
    a : array
    offset : int
    axis1 : int
    axis2 : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.diagonal(mx.array([[1, 2], [3, 4]]))
    array([1, 4], dtype=int32)
    """
    ...

def diff(a: array | scalar, /, n: int = 1, axis: int | Sequence[int] | None = -1, *, stream: StreamOrDevice = None) -> array:
    """Differences of neighbours along an axis, `n` times.

    Parameters
    ----------
    a : array
    n : int
    axis : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.diff(mx.array([1, 4, 9]))
    array([3, 5], dtype=int32)
    """
    ...

def disable_compile() -> None:
    """Lets compiled functions run as they are written, in the whole process.

    Examples
    --------
    >>> mx.disable_compile()
    >>> mx.enable_compile()
    """
    ...

def divide(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """The quotient, element by element; of integers as float32.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.divide(mx.array([7, 4]), mx.array([2, 4]))
    array([3.5, 1], dtype=float32)
    """
    ...

def divmod(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> list[array]:
    """Quotient, rounded down, and remainder.

    Parameters
    ----------
    a : array
    b : array
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.divmod(mx.array([7]), 2)
    [array([3], dtype=int32), array([1], dtype=int32)]
    """
    ...

def einsum(subscripts: Any, *operands: Any, stream: StreamOrDevice = None) -> array:
    """Sums of products as a text of indices says: ``einsum("ij,jk->ik", a, b)``.

    Parameters
    ----------
    subscripts : str
    operands : array
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.einsum("ij,j->i", mx.array([[1.0, 2.0]]), mx.array([3.0, 4.0]))
    array([11], dtype=float32)
    """
    ...

def einsum_path(subscripts: Any, *operands: Any) -> tuple[list[list[int]], str]:
    """In which order ``einsum`` multiplies, and a report on it.

    Parameters
    ----------
    subscripts : str
    operands : array

    Examples
    --------
    >>> mx.einsum_path("ij,jk->ik", mx.ones((2, 3)), mx.ones((3, 4)))[0]
    [(0, 1)]
    """
    ...

def empty(shape: int | Sequence[int], dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """An array with unspecified elements.

    Parameters
    ----------
    shape : int or sequence of int
    dtype : Dtype, optional
        By default ``float32``.
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.empty((2, 3)).shape
    (2, 3)
    """
    ...

def empty_like(a: array | scalar, /, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """An array of the shape and type of another, with unspecified elements.

    Parameters
    ----------
    a : array
    dtype : Dtype, optional
        By default that of the array.
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.empty_like(mx.array([[1, 2]])).shape
    (1, 2)
    """
    ...

def enable_compile() -> None:
    """Ends what ``disable_compile`` began.

    Examples
    --------
    >>> mx.enable_compile()
    """
    ...

def equal(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Whether elements are equal.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.equal(mx.array([7, 4]), mx.array([2, 4]))
    array([False, True], dtype=bool)
    """
    ...

def erf(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The error function.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.erf(mx.array([0.5]))
    array([0.5205], dtype=float32)
    """
    ...

def erfinv(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The inverse of the error function.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.erfinv(mx.array([0.0, 0.5]))
    array([0, 0.476936], dtype=float32)
    """
    ...

def eval(*args: Any) -> None:
    """Computes arrays, or trees of arrays, and returns when they are computed.

    Parameters
    ----------
    *args
        Arrays, or lists, tuples and dicts of arrays. Whatever else is in them
        is ignored.

    Examples
    --------
    >>> y = mx.exp(mx.array([0.0, 1.0]))
    >>> mx.eval(y)
    """
    ...

def exp(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The exponential.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.exp(mx.array([0.0, 0.5]))
    array([1, 1.64872], dtype=float32)
    """
    ...

def expand_dims(a: array | scalar, /, axis: int | Sequence[int] | None, *, stream: StreamOrDevice = None) -> array:
    """New axes of length one at the given places of the result.

    Parameters
    ----------
    a : array
    axis : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.expand_dims(mx.ones((3,)), 0).shape
    (1, 3)
    """
    ...

def expm1(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The exponential less one, exact near zero.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.expm1(mx.array([0.0, 0.5]))
    array([0, 0.648721], dtype=float32)
    """
    ...

def export_function(file_or_callback: Any, fun: Callable[..., Any], *args: Any, shapeless: bool = False, metadata: Any = None, **kwargs: Any) -> None:
    """Write a function to a file.

    The function is traced once, with arrays that have no values; the graph is written, with the arrays that
    the function captures. It can then be imported and called without the program that exported it, from
    Python and from Rust.

    Parameters
    ----------
    file_or_callback : str, path or callable
        The file. A callable receives the graph instead, as a dict for the inputs, the keyword inputs, the
        outputs, the constants and each op.
    fun : callable
        Takes arrays and returns an array or a sequence of arrays.
    *args : array
        Example arguments, by position; or a tuple of arrays, optionally followed by a dict of arrays.
    shapeless : bool
        Whether the function can be called with other shapes of the same number of axes. Ops that depend on
        the lengths, like a slice with a fixed end, are errors then.
    metadata : str, optional
        Text to store in the file with the function.
    **kwargs : array
        Arguments by name.

    Raises
    ------
    ValueError
        If arguments or results are not arrays, if an op cannot be written, or if there is metadata for a
        callable.
    RuntimeError
        If the file cannot be written.

    See Also
    --------
    exporter : for several traces of a function in one file.
    import_function : loads the function.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "add.hesperfn")
    >>> mx.export_function(path, lambda x, y: x + y, mx.array(1), y=mx.array([1, 2]))
    >>> mx.import_function(path)(mx.array(5), y=mx.array([1, 2]))
    (array([6, 7], dtype=int32),)
    """
    ...

def export_to_dot(file: Any, *args: Any, **kwargs: Any) -> None:
    """Write the graph that computes arrays as text for Graphviz.

    Parameters
    ----------
    file : str, path or file object
        The file, opened in text mode if it is an object.
    *args : array
        The outputs of the graph: arrays or trees of arrays.
    **kwargs : array
        More arrays of the graph, with their names.

    Examples
    --------
    >>> import io
    >>> text, x = io.StringIO(), mx.array(1)
    >>> mx.export_to_dot(text, mx.exp(x + 2), x=x)
    >>> text.getvalue().startswith("digraph {") and '"x"' in text.getvalue()
    True
    """
    ...

def exporter(file: Any, fun: Callable[..., Any], *, shapeless: bool = False, metadata: Any = None) -> FunctionExporter:
    """An object that writes several traces of a function to one file.

    Arrays that the traces share are written once.

    Parameters
    ----------
    file : str or path
        The file.
    fun : callable
        Takes arrays and returns an array or a sequence of arrays.
    shapeless : bool
        Whether the traces are also for other shapes of the same number of axes.
    metadata : str, optional
        Text to store in the file with the function.

    Returns
    -------
    FunctionExporter

    Raises
    ------
    RuntimeError
        By the object, if a trace is added for the same arguments twice, or after it was closed.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "square.hesperfn")
    >>> with mx.exporter(path, mx.square) as exporter:
    ...     exporter(mx.array(1.0))
    ...     exporter(mx.array([1, 2]))
    >>> mx.import_function(path)(mx.array([3, 4]))
    (array([9, 16], dtype=int32),)
    """
    ...

def eye(n: Any, m: Any = None, k: int = 0, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """A matrix with ones on a diagonal: the main one, or `k` columns to its right.

    Parameters
    ----------
    n : int
    m : int, optional
    k : int
    dtype : Dtype, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.eye(3).shape
    (3, 3)
    """
    ...

def flatten(a: array | scalar, /, start_axis: int = 0, end_axis: int = -1, *, stream: StreamOrDevice = None) -> array:
    """Neighbouring axes as one; by default all.

    Parameters
    ----------
    a : array
    start_axis : int
    end_axis : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.flatten(mx.ones((2, 3))).shape
    (6,)
    """
    ...

def flip(a: array | scalar, /, axis: int | Sequence[int] | None = None, *, stream: StreamOrDevice = None) -> array:
    """Elements in reverse order along axes; by default all.

    Parameters
    ----------
    a : array
    axis : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.flip(mx.array([1, 2, 3]))
    array([3, 2, 1], dtype=int32)
    """
    ...

def floor(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """Rounded down.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.floor(mx.array([-0.5, 1.5]))
    array([-1, 1], dtype=float32)
    """
    ...

def floor_divide(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """The quotient rounded down. Integers stay integers; by zero they give zero.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.floor_divide(mx.array([7, 4]), mx.array([2, 4]))
    array([3, 1], dtype=int32)
    """
    ...

def from_dlpack(x: array, /, *, copy: Any = None) -> array:
    """An array from an object of another library that speaks DLPack.

    Parameters
    ----------
    x : object with ``__dlpack__``
    copy : bool, optional
        By default memory is copied, unless its producer has copied it for this purpose. With ``False`` it is
        shared and must not be written; ``BufferError`` is raised where that is not possible. With ``True`` it
        is copied. Double precision is converted to single precision, which copies.

    Returns
    -------
    array

    Examples
    --------
    >>> mx.from_dlpack(numpy.arange(3, dtype="int32"))
    array([0, 1, 2], dtype=int32)
    """
    ...

def from_fp8(*args: Any, **kwargs: Any) -> array:
    """8-bit floats (E4M3) as numbers of another type.

    Examples
    --------
    >>> mx.from_fp8(mx.array([56, 66], mx.uint8), mx.float32)
    array([1, 2.5], dtype=float32)
    """
    ...

def full(shape: int | Sequence[int], vals: Any, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """An array of a shape, filled with a value, or with an array that is broadcast to the shape.

    Examples
    --------
    >>> mx.full((2,), 7)
    array([7, 7], dtype=int32)
    """
    ...

def full_like(a: array | scalar, vals: Any, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """An array of the shape and type of another, filled with a value.

    Parameters
    ----------
    a : array
    vals : array or number
    dtype : Dtype, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.full_like(mx.array([1, 2]), 7)
    array([7, 7], dtype=int32)
    """
    ...

def gather_mm(a: array | scalar, b: array | scalar, /, lhs_indices: Any = None, rhs_indices: Any = None, *, sorted_indices: bool = False, stream: StreamOrDevice = None) -> array:
    """Matrix products of chosen matrices of two batches.

    Parameters
    ----------
    a : array
    b : array
    lhs_indices : array, optional
    rhs_indices : array, optional
    sorted_indices : bool
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.gather_mm(mx.ones((2, 1, 3)), mx.ones((2, 3, 1)), mx.array([0]), mx.array([1])).shape
    (1, 1, 1)
    """
    ...

def gather_qmm(x: array, w: array, /, scales: Any, biases: Any = None, lhs_indices: Any = None, rhs_indices: Any = None, transpose: bool = True, group_size: Any = None, bits: Any = None, mode: str = 'affine', global_scale: Any = None, *, sorted_indices: bool = False, stream: StreamOrDevice = None) -> array:
    """Products with quantized matrices that indices choose.

    Examples
    --------
    >>> mx.gather_qmm(mx.ones((1, 1, 64)), *mx.quantize(mx.ones((3, 2, 64))), rhs_indices=mx.array([1])).shape
    (1, 1, 2)
    """
    ...

def gather_qqmm(x: array, w: array, /, scales: Any = None, lhs_indices: Any = None, rhs_indices: Any = None, group_size: Any = None, bits: Any = None, mode: str = 'nvfp4', global_scale_x: Any = None, global_scale_w: Any = None, *, sorted_indices: bool = False, stream: StreamOrDevice = None) -> array:
    """Products of matrices with the transposes of others, both quantized, and both chosen by indices.

    Parameters
    ----------
    x : array
        Matrices in the last two axes; they are quantized first.
    w : array
        Matrices, quantized if there are `scales`, else of numbers that are quantized as `x` is.
    scales : array, optional
        The scales of quantized matrices.
    lhs_indices, rhs_indices : array, optional
        Which matrices of `x` and of `w` are multiplied: flat indices of the axes before the last two. They
        broadcast. Default: all matrices in order.
    group_size, bits : int, optional
        The number of elements that share a scale, and the bits of an element. Default: those of the mode.
    mode : str
        ``nvfp4``, ``mxfp8`` or ``mxfp4``.
    global_scale_x, global_scale_w : array, optional
        Global scales for ``nvfp4``; both or neither.
    sorted_indices : bool
        Whether indices are sorted; unused.
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> x, w = mx.ones((2, 1, 32)), mx.ones((3, 4, 32))
    >>> mx.gather_qqmm(x, w, rhs_indices=mx.array([2, 0]), mode="mxfp8").shape
    (2, 1, 4)
    """
    ...

def get_active_memory() -> int:
    """Bytes held by arrays and by work under way.

    Examples
    --------
    >>> mx.get_active_memory() >= 0
    True
    """
    ...

def get_array_buffer_size(*args: Any) -> int:
    """Bytes of the memory under evaluated arrays, or trees of arrays; memory that arrays share counts once.

    Parameters
    ----------
    *args
        Arrays, or lists, tuples and dicts of arrays. Whatever else is in them
        is ignored.

    Examples
    --------
    >>> a = mx.zeros((4,))
    >>> mx.eval(a)
    >>> mx.get_array_buffer_size(a, a)
    16
    """
    ...

def get_cache_memory() -> int:
    """Bytes kept for reuse.

    Examples
    --------
    >>> mx.get_cache_memory() >= 0
    True
    """
    ...

def get_memory_limit() -> int:
    """The guideline for the bytes that arrays use on the default device.

    Examples
    --------
    >>> mx.get_memory_limit() > 0
    True
    """
    ...

def get_peak_memory() -> int:
    """The most bytes that were held at once since the start or the last ``reset_peak_memory``.

    Examples
    --------
    >>> mx.get_peak_memory() >= 0
    True
    """
    ...

def get_printoptions() -> PrintOptions:
    """How arrays are printed now.

    Examples
    --------
    >>> mx.get_printoptions().precision
    -1
    """
    ...

def grad(fun: Callable[..., Any], argnums: Any = None, argnames: Any = []) -> Callable[..., Any]:
    """The gradient of a function, as a function.

    Parameters
    ----------
    fun : callable
        Returns a scalar array.
    argnums : int or sequence of int, optional
        Which positional arguments; by default the first. They are arrays or trees
        of arrays.
    argnames : str or sequence of str
        Which keyword arguments.

    Returns
    -------
    callable
        Returns the gradient with the structure of the argument; a tuple of gradients for several arguments; a
        pair of these and a dict with `argnames`.

    Examples
    --------
    >>> mx.grad(lambda x: x * x)(mx.array(3.0))
    array(6, dtype=float32)
    """
    ...

def greater(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Whether elements of the first are greater.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.greater(mx.array([7, 4]), mx.array([2, 4]))
    array([True, False], dtype=bool)
    """
    ...

def greater_equal(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Whether elements of the first are greater or equal.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.greater_equal(mx.array([7, 4]), mx.array([2, 4]))
    array([True, True], dtype=bool)
    """
    ...

def hadamard_transform(a: array | scalar, scale: Any = None, stream: StreamOrDevice = None) -> array:
    """The Walsh-Hadamard transform of the last axis, scaled by one over the root of its length by default.

    Parameters
    ----------
    a : array
    scale : float, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.hadamard_transform(mx.array([1.0, 0.0]), scale=1.0)
    array([1, 1], dtype=float32)
    """
    ...

def hamming(M: Any, *, stream: StreamOrDevice = None) -> array:
    """The Hamming window of `M` elements.

    Examples
    --------
    >>> mx.hamming(3)
    array([0.08, 1, 0.08], dtype=float32)
    """
    ...

def hanning(M: Any, *, stream: StreamOrDevice = None) -> array:
    """The Hann window of `M` elements.

    Examples
    --------
    >>> mx.hanning(1)
    array([1], dtype=float32)
    """
    ...

def identity(n: Any, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """The square matrix with ones on its main diagonal.

    Parameters
    ----------
    n : int
    dtype : Dtype, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.identity(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    ...

def imag(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The imaginary part; zero for other numbers.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.imag(mx.array([1 + 2j]))
    array([2], dtype=float32)
    """
    ...

def import_function(file: Any, return_metadata: bool = False) -> Any:
    """Read a function from a file that `export_function` or `exporter` has written.

    All of the file is checked when it is opened. Arrays that the function holds stay in the file, which is
    mapped, and are read when they are used.

    Parameters
    ----------
    file : str or path
    return_metadata : bool
        Whether to return the text in the file too.

    Returns
    -------
    callable, or a tuple of it and a str
        The function takes arrays like those that it was exported with, or a tuple and a dict of them, and
        returns a tuple of arrays.

    Raises
    ------
    RuntimeError
        If the file cannot be read, is damaged, or is of another version.
    ValueError
        By the function, if no trace is for arguments of these shapes and types.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "exp.hesperfn")
    >>> mx.export_function(path, mx.exp, mx.zeros((2,)), shapeless=True)
    >>> mx.import_function(path)(mx.zeros((3,)))
    (array([1, 1, 1], dtype=float32),)
    """
    ...

def inner(a: array | scalar, b: array | scalar, /, *, stream: StreamOrDevice = None) -> array:
    """The sum of products over the last axes.

    Examples
    --------
    >>> mx.inner(mx.array([1.0, 2.0]), mx.array([3.0, 4.0]))
    array(11, dtype=float32)
    """
    ...

def is_available(device: Any) -> bool:
    """Whether a device can be used.

    Parameters
    ----------
    d : Device, optional

    Examples
    --------
    >>> mx.is_available(mx.cpu)
    True
    """
    ...

def isclose(a: array | scalar, b: array | scalar, /, rtol: float = 1e-05, atol: float = 1e-08, *, equal_nan: bool = False, stream: StreamOrDevice = None) -> array:
    """Whether elements are close: ``abs(a - b) <= atol + rtol * abs(b)``.

    Parameters
    ----------
    a : array
    b : array
    rtol : float
    atol : float
    equal_nan : bool
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.isclose(mx.array([1.0, 2.0]), mx.array([1.0, 2.1]))
    array([True, False], dtype=bool)
    """
    ...

def isdtype(dtype: Dtype | None, kind: Any) -> bool:
    """Whether a type is of a kind.

    Parameters
    ----------
    dtype : Dtype
    kind : Dtype, str or tuple of these
        A type, or one of ``"bool"``, ``"signed integer"``, ``"unsigned integer"``,
        ``"integral"``, ``"real floating"``, ``"complex floating"``, ``"numeric"``.

    Examples
    --------
    >>> mx.isdtype(mx.float32, "real floating")
    True
    """
    ...

def isfinite(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """Whether elements are finite.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.isfinite(mx.array([1.0, mx.inf]))
    array([True, False], dtype=bool)
    """
    ...

def isinf(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """Whether elements are infinite.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.isinf(mx.array([1.0, mx.inf]))
    array([False, True], dtype=bool)
    """
    ...

def isnan(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """Whether elements are NaN.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.isnan(mx.array([1.0, mx.nan]))
    array([False, True], dtype=bool)
    """
    ...

def isneginf(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """Whether elements are negative infinity.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.isneginf(mx.array([1.0, -mx.inf]))
    array([False, True], dtype=bool)
    """
    ...

def isposinf(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """Whether elements are positive infinity.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.isposinf(mx.array([1.0, mx.inf]))
    array([False, True], dtype=bool)
    """
    ...

def issubdtype(arg1: Any, arg2: Any) -> bool:
    """Whether a type or kind of types belongs to another.

    Examples
    --------
    >>> mx.issubdtype(mx.float32, mx.floating)
    True
    """
    ...

def jvp(fun: Callable[..., Any], primals: Any, tangents: Any) -> tuple[list[array], list[array]]:
    """The outputs of a function, and the products of its Jacobian with tangents.

    Parameters
    ----------
    fun : callable
        Takes arrays and returns an array or a sequence of arrays.
    primals : list of array
        The arguments at which to take the Jacobian.
    tangents : list of array
        As many, and of the same shapes, as `primals`.

    Returns
    -------
    tuple of two lists of array

    Examples
    --------
    >>> mx.jvp(mx.square, [mx.array(3.0)], [mx.array(1.0)])
    ([array(9, dtype=float32)], [array(6, dtype=float32)])
    """
    ...

def kron(a: array | scalar, b: array | scalar, *, stream: StreamOrDevice = None) -> array:
    """The Kronecker product.

    Parameters
    ----------
    a : array
    b : array
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.kron(mx.array([1, 2]), mx.array([1, 10]))
    array([1, 10, 2, 20], dtype=int32)
    """
    ...

def left_shift(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Bits shifted to the left.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.left_shift(mx.array([1, 3]), 2)
    array([4, 12], dtype=int32)
    """
    ...

def less(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Whether elements of the first are less. Complex numbers are ordered by real, then by imaginary
    part.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.less(mx.array([7, 4]), mx.array([2, 4]))
    array([False, False], dtype=bool)
    """
    ...

def less_equal(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Whether elements of the first are less or equal.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.less_equal(mx.array([7, 4]), mx.array([2, 4]))
    array([False, True], dtype=bool)
    """
    ...

def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Dtype | None = None, stream: StreamOrDevice = None) -> array:
    """Evenly spaced numbers from `start` to `stop`, which is left out if `endpoint` is false.

    Parameters
    ----------
    start : float
    stop : float
    num : int
    endpoint : bool
    dtype : Dtype, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.linspace(0, 1, 3)
    array([0, 0.5, 1], dtype=float32)
    """
    ...

def load(file: Any, /, format: Any = None, return_metadata: bool = False, *, stream: StreamOrDevice = None) -> Any:
    """Load arrays from a file.

    Only the header is read: the elements of an array are used in place, or read, when the array is evaluated.

    Parameters
    ----------
    file : str, path or file object
        An ``.npy``, ``.npz``, ``.safetensors`` or ``.gguf`` file; the index file
        (``.json``) of a sharded checkpoint; a folder that holds one.
    format : str, optional
        Default: the extension.
    return_metadata : bool
        Whether to return the metadata of a safetensors or GGUF file too.
    stream : Stream or Device, optional

    Returns
    -------
    array, dict of str to array, or a tuple of the dict and the metadata
    """
    ...

def log(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The natural logarithm.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.log(mx.array([1.0, mx.e]))
    array([0, 1], dtype=float32)
    """
    ...

def log10(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The logarithm to base 10.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.log10(mx.array([1.0, 100.0]))
    array([0, 2], dtype=float32)
    """
    ...

def log1p(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The natural logarithm of one more, exact near zero.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.log1p(mx.array([0.0, 0.5]))
    array([0, 0.405465], dtype=float32)
    """
    ...

def log2(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The logarithm to base 2.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.log2(mx.array([2.0, 8.0]))
    array([1, 3], dtype=float32)
    """
    ...

def logaddexp(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """The logarithm of the sum of exponentials, without overflow.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.logaddexp(mx.array([7, 4]), mx.array([2, 4]))
    array([7.00672, 4.69315], dtype=float32)
    """
    ...

def logcumsumexp(a: array | scalar, /, axis: int | Sequence[int] | None = None, *, reverse: bool = False, inclusive: bool = True, dtype: Dtype | None = None, stream: StreamOrDevice = None) -> array:
    """The running logarithm of the sum of exponentials.

    Parameters
    ----------
    a : array
    axis : int, optional
        By default the array is flattened.
    reverse : bool
        Whether to begin at the end.
    inclusive : bool
        Whether each result includes the element at its place.
    dtype : Dtype, optional
        What elements are converted to first.
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.logcumsumexp(mx.array([1.0, 3.0, 2.0]))
    array([1, 3.12693, 3.40761], dtype=float32)
    """
    ...

def logical_and(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Logical and.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.logical_and(mx.array([True, False]), True)
    array([True, False], dtype=bool)
    """
    ...

def logical_not(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """Logical not.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.logical_not(mx.array([True, False]))
    array([False, True], dtype=bool)
    """
    ...

def logical_or(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Logical or.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.logical_or(mx.array([True, False]), False)
    array([True, False], dtype=bool)
    """
    ...

def logical_xor(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Logical exclusive or.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.logical_xor(mx.array([True, False]), True)
    array([False, True], dtype=bool)
    """
    ...

def logsumexp(a: array | scalar, /, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The logarithm of the sum of exponentials, without overflow.

    Parameters
    ----------
    a : array
    axis : int or sequence of int, optional
        The axes to go over; by default all.
    keepdims : bool
        Whether those axes stay, with length one.
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.logsumexp(mx.array([0.0, 0.0]))
    array(0.693147, dtype=float32)
    """
    ...

def matmul(a: array | scalar, b: array | scalar, /, *, stream: StreamOrDevice = None) -> array:
    """The matrix product over the last two axes; the others broadcast.

    A vector counts as a row on the left and as a column on the right.

    Parameters
    ----------
    a : array
    b : array
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.matmul(mx.array([[1.0, 2.0]]), mx.array([3.0, 4.0]))
    array([11], dtype=float32)
    """
    ...

def matrix_norm(a: array | scalar, /, ord: Any = None, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The norm of vectors or matrices.

    Examples
    --------
    >>> mx.linalg.norm(mx.array([3.0, 4.0]))
    array(5, dtype=float32)
    """
    ...

def matrix_transpose(a: array | scalar, /, *, stream: StreamOrDevice = None) -> array:
    """The last two axes exchanged.

    Examples
    --------
    >>> mx.matrix_transpose(mx.ones((4, 2, 3))).shape
    (4, 3, 2)
    """
    ...

def max(a: array | scalar, /, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The largest element; NaN if there is one.

    Parameters
    ----------
    a : array
    axis : int or sequence of int, optional
        The axes to go over; by default all.
    keepdims : bool
        Whether those axes stay, with length one.
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.max(mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([3, 4], dtype=float32)
    """
    ...

def maximum(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """The larger of two, element by element; NaN if either is.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.maximum(mx.array([7, 4]), mx.array([2, 4]))
    array([7, 4], dtype=int32)
    """
    ...

def mean(a: array | scalar, /, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The mean; of integers as float32.

    Parameters
    ----------
    a : array
    axis : int or sequence of int, optional
        The axes to go over; by default all.
    keepdims : bool
        Whether those axes stay, with length one.
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.mean(mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([2, 3], dtype=float32)
    """
    ...

def median(a: array | scalar, /, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The median: the middle element, or the mean of the two in the middle; NaN if there is one. Of integers
    as float32.

    Parameters
    ----------
    a : array
    axis : int or sequence of int, optional
        The axes to go over; by default all.
    keepdims : bool
        Whether those axes stay, with length one.
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.median(mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([2, 3], dtype=float32)
    """
    ...

def meshgrid(*arrays: Any, sparse: bool = False, indexing: str = 'xy', stream: StreamOrDevice = None) -> list[array]:
    """Coordinates of a grid from those of its axes.

    Parameters
    ----------
    arrays : sequence of array
    sparse : bool
    indexing : str
    stream : Stream or Device, optional

    Examples
    --------
    >>> [grid.tolist() for grid in mx.meshgrid(mx.array([1, 2]), mx.array([3]))]
    [[[1, 2]], [[3, 3]]]
    """
    ...

def min(a: array | scalar, /, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The smallest element; NaN if there is one.

    Parameters
    ----------
    a : array
    axis : int or sequence of int, optional
        The axes to go over; by default all.
    keepdims : bool
        Whether those axes stay, with length one.
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.min(mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([1, 2], dtype=float32)
    """
    ...

def minimum(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """The smaller of two, element by element; NaN if either is.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.minimum(mx.array([7, 4]), mx.array([2, 4]))
    array([2, 4], dtype=int32)
    """
    ...

def minmax(a: array | scalar, /, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> tuple[array, array]:
    """The smallest and the largest element.

    Parameters
    ----------
    a : array
    axis : int, optional
    keepdims : bool
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.minmax(mx.array([3, 1, 2]))
    (array(1, dtype=int32), array(3, dtype=int32))
    """
    ...

def moveaxis(a: array | scalar, /, source: Any, destination: Any, *, stream: StreamOrDevice = None) -> array:
    """An axis moved to another place; the others keep their order.

    Parameters
    ----------
    a : array
    source : int
    destination : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.moveaxis(mx.ones((2, 3, 4)), 0, 2).shape
    (3, 4, 2)
    """
    ...

def multiply(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """The product, element by element.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.multiply(mx.array([7, 4]), mx.array([2, 4]))
    array([14, 16], dtype=int32)
    """
    ...

def nan_to_num(a: array | scalar, nan: float = 0.0, posinf: Any = None, neginf: Any = None, *, stream: StreamOrDevice = None) -> array:
    """Replace NaN and infinities by numbers; by default NaN by zero, infinities by the largest finite ones.

    Parameters
    ----------
    a : array
    nan : float
    posinf : float, optional
    neginf : float, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.nan_to_num(mx.array([mx.nan, 1.0]))
    array([0, 1], dtype=float32)
    """
    ...

def negative(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The negative.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.negative(mx.array([1, -2]))
    array([-1, 2], dtype=int32)
    """
    ...

def new_stream(device: Any) -> Stream:
    """A new stream on a device. Any thread may use it.

    Parameters
    ----------
    device : Device or DeviceType

    Examples
    --------
    >>> mx.new_stream(mx.cpu).device
    Device(cpu, 0)
    """
    ...

def new_thread_local_stream(device: Any) -> ThreadLocalStream:
    """A stream of which every thread that uses it has its own.

    Parameters
    ----------
    device : Device or DeviceType

    Examples
    --------
    >>> with mx.stream(mx.new_thread_local_stream(mx.cpu)):
    ...     y = mx.exp(mx.array(1.0))
    """
    ...

def new_thread_unsafe_stream(device: Any) -> Stream:
    """A new stream on a device. Any thread may use it, as any stream.

    Parameters
    ----------
    device : Device or DeviceType

    Examples
    --------
    >>> s = mx.new_thread_unsafe_stream(mx.cpu)
    """
    ...

def not_equal(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Whether elements differ.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.not_equal(mx.array([7, 4]), mx.array([2, 4]))
    array([True, False], dtype=bool)
    """
    ...

def ones(shape: int | Sequence[int], dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """An array of ones.

    Parameters
    ----------
    shape : int or sequence of int
    dtype : Dtype, optional
        By default ``float32``.
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.ones((2, 3)).shape
    (2, 3)
    """
    ...

def ones_like(a: array | scalar, /, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """Ones in the shape and type of an array.

    Parameters
    ----------
    a : array
    dtype : Dtype, optional
        By default that of the array.
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.ones_like(mx.array([[1, 2]])).shape
    (1, 2)
    """
    ...

def outer(a: array | scalar, b: array | scalar, /, *, stream: StreamOrDevice = None) -> array:
    """The products of all pairs of elements.

    Examples
    --------
    >>> mx.outer(mx.array([2.0]), mx.array([3.0, 4.0]))
    array([[6, 8]], dtype=float32)
    """
    ...

def pad(a: array | scalar, pad_width: Any, mode: str = 'constant', constant_values: int = 0, *, stream: StreamOrDevice = None) -> array:
    """Elements put around an array.

    Parameters
    ----------
    a : array
    pad_width : int, (before, after) or a list of pairs
    mode : 'constant', 'edge', 'reflect' or 'symmetric'
    constant_values : array or number
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.pad(mx.array([1, 2]), 1)
    array([0, 1, 2, 0], dtype=int32)
    """
    ...

def partition(a: array | scalar, /, kth: Any, axis: int | Sequence[int] | None = -1, *, stream: StreamOrDevice = None) -> array:
    """The elements with the `kth` at its place, smaller ones before it.

    Along an axis, by default the last; with None, of the flattened array.

    Examples
    --------
    >>> mx.partition(mx.array([3, 1, 2]), 1)
    array([1, 2, 3], dtype=int32)
    """
    ...

def permute_dims(a: array | scalar, /, axes: int | Sequence[int] | None = None, *, stream: StreamOrDevice = None) -> array:
    """The axes in another order.

    Parameters
    ----------
    a : array
    axes : int or sequence of int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.permute_dims(mx.ones((2, 3, 4)), (1, 0, 2)).shape
    (3, 2, 4)
    """
    ...

def positive(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The number itself.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.positive(mx.array([1, -2]))
    array([1, -2], dtype=int32)
    """
    ...

def pow(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """The power, element by element. Integers stay integers: they wrap, and give zero for a negative
    exponent.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.pow(mx.array([7, 4]), mx.array([2, 4]))
    array([49, 256], dtype=int32)
    """
    ...

def power(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """The power, element by element. Integers stay integers: they wrap, and give zero for a negative
    exponent.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.power(mx.array([7, 4]), mx.array([2, 4]))
    array([49, 256], dtype=int32)
    """
    ...

def printoptions(precision: int = -1) -> Any:
    """Prints arrays with other options in a ``with`` block.

    Parameters
    ----------
    precision : int
        Decimals of floating-point numbers; -1 for six significant digits.

    Examples
    --------
    >>> with mx.printoptions(precision=1):
    ...     print(mx.array([0.25]))
    array([0.2], dtype=float32)
    """
    ...

def prod(a: array | scalar, /, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The product. Bools and small integers are multiplied as int32 or uint32.

    Parameters
    ----------
    a : array
    axis : int or sequence of int, optional
        The axes to go over; by default all.
    keepdims : bool
        Whether those axes stay, with length one.
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.prod(mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([3, 8], dtype=float32)
    """
    ...

def put_along_axis(a: array | scalar, /, indices: Any, values: Any, axis: int | Sequence[int] | None = None, *, stream: StreamOrDevice = None) -> array:
    """The array with values put at indices along an axis, position by position.

    Parameters
    ----------
    a : array
    indices : array
    values : array
    axis : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.put_along_axis(mx.array([5, 6, 7]), mx.array([1]), mx.array([0]), axis=0)
    array([5, 0, 7], dtype=int32)
    """
    ...

def qqmm(x: array, w: array, scales: Any = None, group_size: Any = None, bits: Any = None, mode: str = 'nvfp4', global_scale_x: Any = None, global_scale_w: Any = None, *, stream: StreamOrDevice = None) -> array:
    """The product with the transpose of a matrix, both quantized."""
    ...

def quantize(w: array, /, group_size: Any = None, bits: Any = None, mode: str = 'affine', *, global_scale: Any = None, stream: StreamOrDevice = None) -> list[array]:
    """Codes, scales and, for affine ones, biases of a matrix.

    Examples
    --------
    >>> [part.shape for part in mx.quantize(mx.ones((2, 64)))]
    [(2, 8), (2, 1), (2, 1)]
    """
    ...

def quantized_matmul(x: array, w: array, /, scales: Any, biases: Any = None, transpose: bool = True, group_size: Any = None, bits: Any = None, mode: str = 'affine', *, stream: StreamOrDevice = None) -> array:
    """The product with a quantized matrix, or with its transpose.

    Examples
    --------
    >>> mx.quantized_matmul(mx.ones((1, 64)), *mx.quantize(mx.ones((2, 64)))).shape
    (1, 2)
    """
    ...

def radians(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """Degrees as radians.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.radians(mx.array([0.0, 180.0]))
    array([0, 3.14159], dtype=float32)
    """
    ...

def real(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The real part; other numbers as they are.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.real(mx.array([1 + 2j]))
    array([1], dtype=float32)
    """
    ...

def reciprocal(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """One over the number.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.reciprocal(mx.array([2.0, 4.0]))
    array([0.5, 0.25], dtype=float32)
    """
    ...

def remainder(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """The remainder, with the sign of the divisor. Integers divided by zero are left as they are.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.remainder(mx.array([7, 4]), mx.array([2, 4]))
    array([1, 0], dtype=int32)
    """
    ...

def repeat(array: Any, repeats: Any, axis: int | Sequence[int] | None = None, *, stream: StreamOrDevice = None) -> array:
    """Elements repeated along an axis; with None, of the flattened array.

    Parameters
    ----------
    array : array
    repeats : int
    axis : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.repeat(mx.array([1, 2]), 2)
    array([1, 1, 2, 2], dtype=int32)
    """
    ...

def reset_peak_memory() -> None:
    """Set the count of ``get_peak_memory`` to zero; the next allocation counts again.

    Examples
    --------
    >>> mx.reset_peak_memory()
    """
    ...

def reshape(a: array | scalar, /, shape: int | Sequence[int], *, stream: StreamOrDevice = None) -> array:
    """The same elements, row by row, in another shape. One length may be -1: whatever is left over.

    Examples
    --------
    >>> mx.reshape(mx.array([1, 2, 3, 4]), (2, -1)).shape
    (2, 2)
    """
    ...

def result_type(*arrays_and_dtypes: Any) -> Dtype:
    """The type that arrays and types combine to.

    Examples
    --------
    >>> mx.result_type(mx.int8, mx.uint8)
    hesper.core.int16
    """
    ...

def right_shift(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """Bits shifted to the right.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.right_shift(mx.array([8, 3]), 1)
    array([4, 1], dtype=int32)
    """
    ...

def roll(a: array | scalar, /, shift: Any, axis: int | Sequence[int] | None = None, *, stream: StreamOrDevice = None) -> array:
    """Elements moved along axes; those that leave one end come in at the other.

    Parameters
    ----------
    a : array
    shift : int or sequence of int
    axis : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.roll(mx.array([1, 2, 3]), 1)
    array([3, 1, 2], dtype=int32)
    """
    ...

def round(a: array | scalar, /, decimals: int = 0, stream: StreamOrDevice = None) -> array:
    """Rounded to a number of decimals; halves go to the even neighbour.

    Parameters
    ----------
    a : array
    decimals : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.round(mx.array([0.5, 1.5, 2.25]))
    array([0, 2, 2], dtype=float32)
    """
    ...

def rsqrt(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """One over the square root.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.rsqrt(mx.array([4.0, 16.0]))
    array([0.5, 0.25], dtype=float32)
    """
    ...

def save(file: Any, arr: Any) -> None:
    """Save an array in the ``.npy`` format.

    The extension is added to a path that lacks it. A file that was there is replaced when all is written.
    """
    ...

def save_gguf(file: Any, arrays: Any, metadata: Any = None) -> None:
    """Save arrays in the ``.gguf`` format.

    Parameters
    ----------
    file : str or path
        The extension is added if it is missing.
    arrays : dict of str to array
    metadata : dict of str to array, str or list of str, optional
        Arrays have at most one axis.
    """
    ...

def save_safetensors(file: Any, arrays: Any, metadata: Any = None) -> None:
    """Save arrays in the ``.safetensors`` format.

    Parameters
    ----------
    file : str, path or file object
        The extension is added to a path that lacks it.
    arrays : dict of str to array
    metadata : dict of str to str, optional
    """
    ...

def savez(file: Any, *args: Any, **kwargs: Any) -> None:
    """Save arrays in the ``.npz`` format.

    Arrays given by position are called ``arr_0``, ``arr_1`` and so on.
    """
    ...

def savez_compressed(file: Any, *args: Any, **kwargs: Any) -> None:
    """Save arrays in the compressed ``.npz`` format.

    Arrays given by position are called ``arr_0``, ``arr_1`` and so on.
    """
    ...

def searchsorted(sorted_sequence: Any, values: Any, /, side: str = 'left', *, stream: StreamOrDevice = None) -> array:
    """Where values would be inserted in a sorted vector.

    Parameters
    ----------
    sorted_sequence : array
    values : array or number
    side : str
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.searchsorted(mx.array([1, 3, 5]), mx.array([3, 4]))
    array([1, 2], dtype=uint32)
    """
    ...

def segmented_mm(a: array | scalar, b: array | scalar, /, segments: Any, *, stream: StreamOrDevice = None) -> array:
    """Matrix products over segments of the inner axis.

    Parameters
    ----------
    a : array
    b : array
    segments : array
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.segmented_mm(mx.ones((2, 4)), mx.ones((4, 2)), mx.array([[0, 2], [2, 4]], mx.uint32)).shape
    (2, 2, 2)
    """
    ...

def set_cache_limit(limit: Any) -> int:
    """Set how many bytes each open device may cache for reuse; returns the previous limit of the default device.

    Parameters
    ----------
    limit : int

    Examples
    --------
    >>> limit = mx.set_cache_limit(1 << 30)
    """
    ...

def set_default_device(device: Any) -> None:
    """Set the default device.

    Parameters
    ----------
    device : Device or DeviceType

    Examples
    --------
    >>> mx.set_default_device(mx.cpu)
    """
    ...

def set_default_stream(stream: StreamOrDevice) -> None:
    """Sets the default stream of the stream's device, for this thread.

    Parameters
    ----------
    stream : Stream

    Examples
    --------
    >>> mx.set_default_stream(mx.default_stream(mx.cpu))
    """
    ...

def set_hard_memory_limit(limit: Any) -> int:
    """Set how many bytes the default device may allocate; returns the previous limit.

    An allocation that cannot be made within it is a ``RuntimeError``. At first it is the memory of the
    device.

    Parameters
    ----------
    limit : int

    Examples
    --------
    >>> limit = mx.set_hard_memory_limit(1 << 30)
    >>> mx.set_hard_memory_limit(limit) == 1 << 30
    True
    """
    ...

def set_memory_limit(limit: Any) -> int:
    """Set a guideline for the bytes that arrays use on the default device; returns the previous one.

    An allocation above it first frees cached memory and waits for the work in flight, and then goes on.
    ``set_hard_memory_limit`` sets a limit that no allocation exceeds.

    Parameters
    ----------
    limit : int

    Examples
    --------
    >>> limit = mx.set_memory_limit(1 << 30)
    """
    ...

def set_printoptions(precision: int = -1) -> None:
    """Sets how arrays are printed.

    Parameters
    ----------
    precision : int
        Decimals of floating-point numbers; -1 for six significant digits.

    Examples
    --------
    >>> mx.set_printoptions(precision=2)
    >>> mx.array([0.125])
    array([0.12], dtype=float32)
    """
    ...

def set_wired_limit(limit: Any) -> int:
    """Sets how many bytes a GPU with Metal keeps resident, and returns the former limit: 0 at first, and without
    such a GPU or before macOS 15.

    Parameters
    ----------
    limit : int
        At most ``max_recommended_working_set_size`` of ``mx.device_info()``.

    Examples
    --------
    >>> mx.set_wired_limit(0)
    0
    """
    ...

def sigmoid(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The logistic function.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.sigmoid(mx.array([0.0, 0.5]))
    array([0.5, 0.622459], dtype=float32)
    """
    ...

def sign(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """-1, 0 or 1; complex numbers are divided by their absolute value.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.sign(mx.array([-2, 0, 3]))
    array([-1, 0, 1], dtype=int32)
    """
    ...

def sin(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The sine.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.sin(mx.array([0.0, 0.5]))
    array([0, 0.479426], dtype=float32)
    """
    ...

def sinh(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The hyperbolic sine.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.sinh(mx.array([0.0, 0.5]))
    array([0, 0.521095], dtype=float32)
    """
    ...

def slice(a: array | scalar, start_indices: Any, axes: int | Sequence[int] | None, slice_size: Any, *, stream: StreamOrDevice = None) -> array:
    """A slice of fixed size whose start is an array.

    Parameters
    ----------
    a : array
    start_indices : array
    axes : sequence of int
    slice_size : sequence of int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.slice(mx.array([1, 2, 3]), mx.array([1]), (0,), (2,))
    array([2, 3], dtype=int32)
    """
    ...

def slice_update(a: array | scalar, update: Any, start_indices: Any, axes: int | Sequence[int] | None, *, stream: StreamOrDevice = None) -> array:
    """The array with a slice replaced whose start is an array.

    Parameters
    ----------
    a : array
    update : array
    start_indices : array
    axes : int or sequence of int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.slice_update(mx.array([1, 2, 3]), mx.array([9]), mx.array([1]), (0,))
    array([1, 9, 3], dtype=int32)
    """
    ...

def softmax(a: array | scalar, /, axis: int | Sequence[int] | None = None, *, precise: bool = False, stream: StreamOrDevice = None) -> array:
    """Exponentials divided by their sum over axes, by default over all.

    Half precision is computed in single precision, `precise` or not.

    Parameters
    ----------
    a : array
    axis : int, optional
    precise : bool
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.softmax(mx.array([0.0, 0.0]))
    array([0.5, 0.5], dtype=float32)
    """
    ...

def sort(a: array | scalar, /, axis: int | Sequence[int] | None = -1, *, stream: StreamOrDevice = None) -> array:
    """The elements in order.

    Along an axis, by default the last; with None, of the flattened array.

    Examples
    --------
    >>> mx.sort(mx.array([3, 1, 2]))
    array([1, 2, 3], dtype=int32)
    """
    ...

def split(a: array | scalar, /, indices_or_sections: Any, axis: int | Sequence[int] | None = 0, *, stream: StreamOrDevice = None) -> list[array]:
    """Split an array along an axis, into equal parts or at indices.

    Parameters
    ----------
    a : array
    indices_or_sections : int or sequence of int
    axis : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.split(mx.array([1, 2, 3, 4]), 2)
    [array([1, 2], dtype=int32), array([3, 4], dtype=int32)]
    """
    ...

def sqrt(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The square root.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.sqrt(mx.array([4.0, 9.0]))
    array([2, 3], dtype=float32)
    """
    ...

def square(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The square.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.square(mx.array([2, 3]))
    array([4, 9], dtype=int32)
    """
    ...

def squeeze(a: array | scalar, /, axis: int | Sequence[int] | None = None, *, stream: StreamOrDevice = None) -> array:
    """Remove axes of length one; by default all of them.

    Parameters
    ----------
    a : array
    axis : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.squeeze(mx.ones((1, 3))).shape
    (3,)
    """
    ...

def stack(arrays: Any, axis: int | Sequence[int] | None = 0, *, stream: StreamOrDevice = None) -> array:
    """Arrays of one shape joined along a new axis.

    Parameters
    ----------
    arrays : sequence of array
    axis : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.stack([mx.array([1, 2]), mx.array([3, 4])]).shape
    (2, 2)
    """
    ...

def std(a: array | scalar, /, axis: int | Sequence[int] | None = None, keepdims: bool = False, ddof: int = 0, *, correction: Any = None, stream: StreamOrDevice = None) -> array:
    """The standard deviation: the root of the variance, with the divisor ``N - ddof`` for ``N`` elements.

    Parameters
    ----------
    a : array
    axis : int, optional
    keepdims : bool
    ddof : int
    correction : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.std(mx.array([1.0, 3.0]))
    array(1, dtype=float32)
    """
    ...

def stop_gradient(a: array | scalar, /, *, stream: StreamOrDevice = None) -> array:
    """The array, as a constant to derivatives.

    Parameters
    ----------
    a : array
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.grad(lambda x: x * mx.stop_gradient(x))(mx.array(3.0))
    array(3, dtype=float32)
    """
    ...

def stream(s: Any) -> StreamContext:
    """Runs the ops of a ``with`` block on a stream, or on the default stream of a device.

    Examples
    --------
    >>> with mx.stream(mx.cpu):
    ...     y = mx.exp(mx.array(1.0))
    """
    ...

def subtract(a: array | scalar, b: array | scalar, stream: StreamOrDevice = None) -> array:
    """The difference, element by element.

    Shapes are broadcast, types promoted; a Python number takes the type of the other operand.

    Parameters
    ----------
    a, b : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.subtract(mx.array([7, 4]), mx.array([2, 4]))
    array([5, 0], dtype=int32)
    """
    ...

def sum(a: array | scalar, /, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The sum. Bools and small integers are summed as int32 or uint32.

    Parameters
    ----------
    a : array
    axis : int or sequence of int, optional
        The axes to go over; by default all.
    keepdims : bool
        Whether those axes stay, with length one.
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.sum(mx.array([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    array([4, 6], dtype=float32)
    """
    ...

def swapaxes(a: array | scalar, /, axis1: Any, axis2: Any, *, stream: StreamOrDevice = None) -> array:
    """Two axes exchanged.

    Parameters
    ----------
    a : array
    axis1 : int
    axis2 : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.swapaxes(mx.ones((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    ...

def synchronize(stream: StreamOrDevice = None) -> None:
    """Waits until the work on a stream is done: by default, on the default stream.

    Raises the first error of what ``async_eval`` started there, once.

    Parameters
    ----------
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.synchronize()
    """
    ...

def take(a: array | scalar, /, indices: Any, axis: int | Sequence[int] | None = None, *, stream: StreamOrDevice = None) -> array:
    """Elements at indices along an axis; with None, of the flattened array.

    Parameters
    ----------
    a : array
    indices : array
    axis : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.take(mx.array([5, 6, 7]), mx.array([2, 0]))
    array([7, 5], dtype=int32)
    """
    ...

def take_along_axis(a: array | scalar, /, indices: Any, axis: int | Sequence[int] | None = -1, *, stream: StreamOrDevice = None) -> array:
    """Elements at indices along an axis, position by position.

    Parameters
    ----------
    a : array
    indices : array
    axis : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.take_along_axis(mx.array([5, 6, 7]), mx.array([2, 0]), axis=0)
    array([7, 5], dtype=int32)
    """
    ...

def tan(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The tangent.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.tan(mx.array([0.0, 0.5]))
    array([0, 0.546302], dtype=float32)
    """
    ...

def tanh(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """The hyperbolic tangent.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.tanh(mx.array([0.0, 0.5]))
    array([0, 0.462117], dtype=float32)
    """
    ...

def tensordot(a: array | scalar, b: array | scalar, /, axes: int | Sequence[int] | None = 2, *, stream: StreamOrDevice = None) -> array:
    """The sum of products over axes: the last of `a` and the first of `b`, or two lists of axes.

    Parameters
    ----------
    a : array
    b : array
    axes : int or sequence of int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.tensordot(mx.ones((2, 3)), mx.ones((3, 4)), 1).shape
    (2, 4)
    """
    ...

def tile(a: array | scalar, reps: Any, /, *, stream: StreamOrDevice = None) -> array:
    """An array repeated along its axes.

    Parameters
    ----------
    a : array
    reps : int or sequence of int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.tile(mx.array([1, 2]), 2)
    array([1, 2, 1, 2], dtype=int32)
    """
    ...

def to_fp8(x: array, *, stream: StreamOrDevice = None) -> array:
    """Numbers as 8-bit floats (E4M3), in bytes.

    Examples
    --------
    >>> mx.to_fp8(mx.array([1.0, 2.5]))
    array([56, 66], dtype=uint8)
    """
    ...

def topk(a: array | scalar, /, k: Any, axis: int | Sequence[int] | None = -1, *, stream: StreamOrDevice = None) -> array:
    """The `k` largest elements, in no order.

    Along an axis, by default the last; with None, of the flattened array.

    Examples
    --------
    >>> mx.topk(mx.array([3, 1, 2]), 1)
    array([3], dtype=int32)
    """
    ...

def trace(a: array | scalar, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """The sum of a diagonal.

    Parameters
    ----------
    a : array
    offset : int
    axis1 : int
    axis2 : int
    dtype : Dtype, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.trace(mx.array([[1, 2], [3, 4]]))
    array(5, dtype=int32)
    """
    ...

def transpose(a: array | scalar, /, axes: int | Sequence[int] | None = None, *, stream: StreamOrDevice = None) -> array:
    """The axes in another order; by default reversed.

    Parameters
    ----------
    a : array
    axes : int or sequence of int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.transpose(mx.ones((2, 3))).shape
    (3, 2)
    """
    ...

def tri(n: Any, m: Any = None, k: int = 0, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """A matrix with ones on and below a diagonal.

    Parameters
    ----------
    n : int
    m : int, optional
    k : int
    dtype : Dtype, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.tri(2).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    ...

def tril(x: array, k: int = 0, *, stream: StreamOrDevice = None) -> array:
    """The array with zeros above a diagonal.

    Parameters
    ----------
    x : array
    k : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.tril(mx.ones((2, 2))).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    ...

def triu(x: array, k: int = 0, *, stream: StreamOrDevice = None) -> array:
    """The array with zeros below a diagonal.

    Parameters
    ----------
    x : array
    k : int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.triu(mx.ones((2, 2))).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    ...

def trunc(a: array | scalar, stream: StreamOrDevice = None) -> array:
    """Rounded towards zero.

    Parameters
    ----------
    a : array or number
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.trunc(mx.array([-1.5, 1.5]))
    array([-1, 1], dtype=float32)
    """
    ...

def unflatten(a: array | scalar, /, axis: int | Sequence[int] | None, shape: int | Sequence[int], *, stream: StreamOrDevice = None) -> array:
    """One axis as several, of the given lengths; one may be -1.

    Parameters
    ----------
    a : array
    axis : int, optional
    shape : int or sequence of int
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.unflatten(mx.ones((2, 6)), 1, (2, 3)).shape
    (2, 2, 3)
    """
    ...

def unique(a: array | scalar, /, size: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, fill_value: Any = None, *, stream: StreamOrDevice = None) -> array | tuple[array, ...]:
    """The first `size` of the sorted distinct elements, padded if there are fewer.

    Parameters
    ----------
    a : array
    size : int
    return_index : bool
    return_inverse : bool
    return_counts : bool
    fill_value : number, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.unique(mx.array([3, 1, 3]), size=2)
    array([1, 3], dtype=int32)
    """
    ...

def unstack(x: array, /, *, axis: int | Sequence[int] | None = 0, stream: StreamOrDevice = None) -> tuple[array, ...]:
    """The parts of an array along an axis, which they lose.

    Parameters
    ----------
    x : array
    axis : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.unstack(mx.array([1, 2]))
    (array(1, dtype=int32), array(2, dtype=int32))
    """
    ...

def value_and_grad(fun: Callable[..., Any], argnums: Any = None, argnames: Any = []) -> Callable[..., Any]:
    """The value and the gradient of a function, as a function.

    Parameters
    ----------
    fun : callable
        Returns a scalar array, or a tuple that begins with one.
    argnums : int or sequence of int, optional
        Which positional arguments; by default the first. They are arrays or trees
        of arrays.
    argnames : str or sequence of str
        Which keyword arguments.

    Returns
    -------
    callable
        Returns a pair: the result of `fun`, and the gradient as ``grad`` returns it.

    Examples
    --------
    >>> mx.value_and_grad(lambda x: x * x)(mx.array(3.0))
    (array(9, dtype=float32), array(6, dtype=float32))
    """
    ...

def var(a: array | scalar, /, axis: int | Sequence[int] | None = None, keepdims: bool = False, ddof: int = 0, *, correction: Any = None, stream: StreamOrDevice = None) -> array:
    """The variance: the mean of squared distances to the mean, with the divisor ``N - ddof`` for ``N``
    elements.

    Parameters
    ----------
    a : array
    axis : int, optional
    keepdims : bool
    ddof : int
    correction : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.var(mx.array([1.0, 3.0]))
    array(1, dtype=float32)
    """
    ...

def vecdot(a: array | scalar, b: array | scalar, /, axis: int | Sequence[int] | None = -1, *, stream: StreamOrDevice = None) -> array:
    """The sum of products along an axis.

    Parameters
    ----------
    a : array
    b : array
    axis : int, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.vecdot(mx.array([1.0, 2.0]), mx.array([3.0, 4.0]))
    array(11, dtype=float32)
    """
    ...

def view(a: array | scalar, dtype: Dtype | None, stream: StreamOrDevice = None) -> array:
    """The same bytes as elements of another type.

    Parameters
    ----------
    a : array
    dtype : Dtype, optional
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.view(mx.array([1.0]), mx.int32)
    array([1065353216], dtype=int32)
    """
    ...

def vjp(fun: Callable[..., Any], primals: Any, cotangents: Any) -> tuple[list[array], list[array]]:
    """The outputs of a function, and the products of cotangents with its Jacobian.

    Parameters
    ----------
    fun : callable
        Takes arrays and returns an array or a sequence of arrays.
    primals : list of array
        The arguments at which to take the Jacobian.
    cotangents : list of array
        As many, and of the same shapes, as the outputs of `fun`.

    Returns
    -------
    tuple of two lists of array

    Examples
    --------
    >>> mx.vjp(mx.square, [mx.array(3.0)], [mx.array(1.0)])
    ([array(9, dtype=float32)], [array(6, dtype=float32)])
    """
    ...

def vmap(fun: Callable[..., Any], in_axes: int = 0, out_axes: int = 0) -> Callable[..., Any]:
    """The function, vectorized: applied to every slice of its arguments along an axis.

    Parameters
    ----------
    fun : callable
        Takes and returns arrays or trees of arrays.
    in_axes : int or tree of int and None
        The axis of each argument to map over; None for an argument that every call gets whole.
    out_axes : int or tree of int and None
        The place of that axis in each result.

    Returns
    -------
    callable

    Examples
    --------
    >>> mx.vmap(mx.sum)(mx.array([[1, 2], [3, 4]]))
    array([3, 7], dtype=int32)
    """
    ...

def where(condition: array | scalar, x: array | scalar, y: array | scalar, /, *, stream: StreamOrDevice = None) -> array:
    """Elements of `x` where `condition` holds, else of `y`.

    Examples
    --------
    >>> mx.where(mx.array([True, False]), 1, 2)
    array([1, 2], dtype=int32)
    """
    ...

def zeros(shape: int | Sequence[int], dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """An array of zeros.

    Parameters
    ----------
    shape : int or sequence of int
    dtype : Dtype, optional
        By default ``float32``.
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.zeros((2, 3)).shape
    (2, 3)
    """
    ...

def zeros_like(a: array | scalar, /, dtype: Dtype | None = None, *, stream: StreamOrDevice = None) -> array:
    """Zeros in the shape and type of an array.

    Parameters
    ----------
    a : array
    dtype : Dtype, optional
        By default that of the array.
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.zeros_like(mx.array([[1, 2]])).shape
    (1, 2)
    """
    ...

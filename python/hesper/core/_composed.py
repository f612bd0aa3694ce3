"""Functions that are made of others."""

from hesper import _core as mx

__all__ = ["ArrayLike", "from_fp8", "to_fp8"]


class ArrayLike:
    """An object that becomes an array where one is wanted, through its ``__mlx_array__``.

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

    def __init__(self, arg: object, /) -> None:
        if hasattr(arg, "__mlx_array__"):
            self.__mlx_array__ = arg.__mlx_array__


def to_fp8(x, *, stream=None):
    """Numbers as 8-bit floats of four bits of exponent and three of fraction (e4m3).

    What is too large becomes the largest number, 448.

    Parameters
    ----------
    x : array
    stream : Stream or Device, optional

    Returns
    -------
    array
        Of type ``uint8``.

    Examples
    --------
    >>> mx.to_fp8(mx.array([1.0, 2.5]))
    array([56, 66], dtype=uint8)
    """
    if not isinstance(x, mx.array):
        raise TypeError(f"to_fp8(): expected an array, not {type(x).__name__}")
    bits = mx.view(mx.astype(x, mx.float32, stream=stream), mx.uint32, stream=stream)
    sign = mx.astype(mx.right_shift(bits, 24, stream=stream), mx.uint8, stream=stream)
    sign = mx.bitwise_and(sign, 128, stream=stream)
    bits = mx.bitwise_and(bits, 0x7FFFFFFF, stream=stream)
    # Numbers of full precision: the exponent's bias changed, the fraction rounded to even.
    odd = mx.bitwise_and(mx.right_shift(bits, 20, stream=stream), 1, stream=stream)
    normal = mx.right_shift(bits - ((127 - 7) << 23) + 0x7FFFF + odd, 20, stream=stream)
    # Small ones: adding a number whose last place counts 2**-9 rounds them.
    magic = 2.0**14
    small = mx.view(mx.view(bits, mx.float32, stream=stream) + magic, mx.uint32, stream=stream)
    small = small - mx.view(mx.array(magic, mx.float32), mx.uint32)
    least = (127 - 6) << 23
    found = mx.where(mx.less(bits, least), small, normal, stream=stream)
    found = mx.where(mx.greater_equal(bits, _bits(464.0)), mx.array(126, mx.uint32), found, stream=stream)
    return mx.bitwise_or(mx.astype(mx.minimum(found, 126), mx.uint8, stream=stream), sign, stream=stream)


def _bits(number: float) -> int:
    import struct

    return struct.unpack("<I", struct.pack("<f", number))[0]


def from_fp8(x, dtype=mx.bfloat16, *, stream=None):
    """Numbers from 8-bit floats of four bits of exponent and three of fraction (e4m3).

    Parameters
    ----------
    x : array
        Of type ``uint8``.
    dtype : Dtype
    stream : Stream or Device, optional

    Returns
    -------
    array

    Examples
    --------
    >>> mx.from_fp8(mx.array([56, 66], mx.uint8), mx.float32)
    array([1, 2.5], dtype=float32)
    """
    if not isinstance(x, mx.array):
        raise TypeError(f"from_fp8(): expected an array, not {type(x).__name__}")
    wide = mx.astype(x, mx.uint16, stream=stream)
    # The same fields in half precision, whose bias is larger by eight.
    magnitude = mx.left_shift(mx.bitwise_and(wide, 127, stream=stream), 7, stream=stream)
    number = mx.astype(mx.view(magnitude, mx.float16, stream=stream), mx.float32, stream=stream) * 256.0
    is_nan = mx.equal(mx.bitwise_and(wide, 127, stream=stream), 127, stream=stream)
    number = mx.where(is_nan, mx.array(float("nan"), mx.float32), number, stream=stream)
    negative = mx.greater_equal(wide, 128, stream=stream)
    return mx.astype(mx.where(negative, -number, number, stream=stream), dtype, stream=stream)

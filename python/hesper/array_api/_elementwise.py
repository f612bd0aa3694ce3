"""Functions of elements."""

import hesper.core as mx

from ._dtypes import beside, float64, int32, int64, kind

_UNARY = {
    name: name
    for name in """abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite
    isinf isnan log log10 log1p log2 logical_not negative real reciprocal round sin sinh sqrt square tan trunc
    """.split()
}
_BINARY = {
    name: name
    for name in """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor divide equal
    floor_divide greater greater_equal less less_equal logaddexp logical_and logical_or logical_xor maximum minimum
    multiply not_equal pow remainder subtract""".split()
}

__all__ = ["clip", "copysign", "hypot", "nextafter", "positive", "sign", "signbit", "tanh", *_UNARY, *_BINARY]


def _unary(name, function):
    def apply(x, /):
        return function(x)

    return _named(apply, name, function)


def _binary(name, function):
    def apply(x1, x2, /):
        return function(x1, x2)

    return _named(apply, name, function)


def _named(apply, name, function):
    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = function.__doc__.partition("\n")[0]
    return apply


globals().update({name: _unary(name, getattr(mx, own)) for name, own in _UNARY.items()})
globals().update({name: _binary(name, getattr(mx, own)) for name, own in _BINARY.items()})


def positive(x, /):
    """The elements as they are."""
    return mx.array(x)


def sign(x, /):
    """-1, 0 or 1; NaN for NaN. Complex numbers are divided by their absolute value."""
    result = mx.sign(x)
    if kind(x.dtype) == 3:
        # The zero has no signs.
        return mx.where(x == 0, mx.zeros_like(x), result)
    return mx.where(mx.isnan(x), x, result + 0) if kind(x.dtype) == 2 else result


def tanh(x, /):
    """The hyperbolic tangent."""
    result = mx.tanh(x)
    if kind(x.dtype) != 3:
        return result
    # C gives the imaginary zero at infinity the sign of sin(2b), the standard that of b.
    other = mx.isinf(mx.real(x)) & (signbit(mx.imag(x)) != signbit(mx.imag(result)))
    return mx.where(other, mx.conj(result), result)


def clip(x, /, min=None, max=None):
    """The elements, none less than ``min`` and none greater than ``max``."""
    result = mx.array(x)
    if min is not None:
        result = mx.maximum(result, _bound(min, x.dtype))
    if max is not None:
        result = mx.minimum(result, _bound(max, x.dtype))
    return result.astype(x.dtype)


def _bound(bound, dtype):
    """A bound beside an array of a type. Integers that the type has no place for become its nearest one."""
    bound = beside(bound, dtype)
    if bound.dtype == dtype or kind(bound.dtype) != 1 or kind(dtype) != 1:
        return bound
    own, other = mx.iinfo(dtype), mx.iinfo(bound.dtype)
    low = mx.array(max(own.min, other.min), bound.dtype)
    high = mx.array(min(own.max, other.max), bound.dtype)
    return mx.minimum(mx.maximum(bound, low), high).astype(dtype)


def _pair(x1, x2):
    """Two arrays of one floating-point type, of which one may be given as a number."""
    like = x1 if isinstance(x1, mx.array) else x2
    x1, x2 = beside(x1, like.dtype), beside(x2, like.dtype)
    dtype = mx.result_type(x1, x2)
    return x1.astype(dtype), x2.astype(dtype)


def _words(x):
    """The bits of floating-point numbers as integers, and the bit of the sign."""
    word = int64 if x.dtype == float64 else int32
    return x.view(word), mx.array(mx.iinfo(word).min, word)


def copysign(x1, x2, /):
    """The absolute values of the first numbers with the signs of the second ones."""
    x1, x2 = _pair(x1, x2)
    (size, sign), (other, _) = _words(x1), _words(x2)
    return ((size & ~sign) | (other & sign)).view(x1.dtype)


def signbit(x, /):
    """Whether the sign is negative, of zeros and NaN too."""
    return _words(x)[0] < 0


def hypot(x1, x2, /):
    """The square roots of the sums of squares, without overflow on the way."""
    x1, x2 = _pair(x1, x2)
    size, other = mx.abs(x1), mx.abs(x2)
    high, low = mx.maximum(size, other), mx.minimum(size, other)
    ratio = mx.where(high == 0, mx.zeros_like(high), low / high)
    result = high * mx.sqrt(1 + ratio * ratio)
    return mx.where(mx.isinf(x1) | mx.isinf(x2), mx.array(mx.inf, high.dtype), result)


def nextafter(x1, x2, /):
    """The numbers next to the first ones, in the direction of the second ones."""
    x1, x2 = _pair(x1, x2)
    bits, sign = _words(x1)
    one = mx.array(1, bits.dtype)
    # Away from zero the bits of either sign grow.
    away = mx.where(bits < 0, x2 < x1, x2 > x1)
    moved = mx.where(away, bits + one, bits - one).view(x1.dtype)
    smallest = ((_words(x2)[0] & sign) | one).view(x1.dtype)
    moved = mx.where(x1 == 0, smallest, moved)
    moved = mx.where(x1 == x2, x2, moved)
    nan = mx.array(mx.nan, x1.dtype)
    return mx.where(mx.isnan(x1) | mx.isnan(x2), nan, moved)

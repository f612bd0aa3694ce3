"""The extension for linear algebra, and the products of the main namespace."""

from collections import namedtuple

import hesper.core as mx

from ._axes import matrices, place_of
from ._creation import diagonal_within
from ._dtypes import INDEX, real
from ._reductions import sum as _sum

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]

EighResult = namedtuple("EighResult", "eigenvalues eigenvectors")
QRResult = namedtuple("QRResult", "Q R")
SlogdetResult = namedtuple("SlogdetResult", "sign logabsdet")
SVDResult = namedtuple("SVDResult", "U S Vh")


def _promoted(x1, x2):
    dtype = mx.result_type(x1, x2)
    return x1.astype(dtype), x2.astype(dtype)


def matmul(x1, x2, /):
    """The matrix product."""
    return x1 @ x2


def matrix_transpose(x, /):
    """The matrices with rows and columns exchanged."""
    matrices("matrix_transpose", x)
    return x.mT


def vecdot(x1, x2, /, *, axis=-1):
    """The sums of products along an axis, the first factor conjugated."""
    x1, x2 = _promoted(x1, x2)
    first, second = _lengths("vecdot", x1, x2, axis)
    if first != second:
        raise ValueError(f"cannot multiply vectors of shapes {x1.shape} and {x2.shape} along axis {axis}")
    dtype = x1.dtype
    return mx.sum(mx.conj(x1) * x2, axis).astype(dtype)


def _lengths(function, x1, x2, axis):
    if axis >= 0 and x1.ndim != x2.ndim:
        shapes = f"{x1.shape} and {x2.shape}"
        raise ValueError(f"{function}: axis {axis} of shapes {shapes} is two different ones; count it from the last, as -1")
    return [x.shape[place_of(function, axis, x.ndim)] for x in (x1, x2)]


def tensordot(x1, x2, /, *, axes=2):
    """The sums of products over axes of both arrays."""
    x1, x2 = _promoted(x1, x2)
    if isinstance(axes, int):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ValueError(f"cannot contract {axes} axes of shape {x1.shape} with those of shape {x2.shape}")
        axes = range(x1.ndim - axes, x1.ndim), range(axes)
    first, second = ([place_of("tensordot", axis, x.ndim) for axis in part] for x, part in zip((x1, x2), axes))
    rows = [axis for axis in range(x1.ndim) if axis not in first]
    columns = [axis for axis in range(x2.ndim) if axis not in second]
    shape = [x1.shape[axis] for axis in rows] + [x2.shape[axis] for axis in columns]
    if [x1.shape[axis] for axis in first] != [x2.shape[axis] for axis in second]:
        raise ValueError(f"cannot contract axes {first} of shape {x1.shape} with axes {second} of shape {x2.shape}")
    inner = 1
    for axis in first:
        inner *= x1.shape[axis]
    outer = [1, 1]
    for axis in rows:
        outer[0] *= x1.shape[axis]
    for axis in columns:
        outer[1] *= x2.shape[axis]
    left = mx.reshape(_permuted(x1, rows + first), (outer[0], inner))
    right = mx.reshape(_permuted(x2, second + columns), (inner, outer[1]))
    return mx.reshape(left @ right, shape)


def _permuted(x, order):
    return mx.transpose(x, order) if order else x


def cholesky(x, /, *, upper=False):
    """The triangular factors of positive definite matrices."""
    return mx.linalg.cholesky(x, upper)


def cross(x1, x2, /, *, axis=-1):
    """The cross products of vectors of three elements."""
    if _lengths("cross", x1, x2, axis) != [3, 3]:
        shapes = f"{x1.shape} and {x2.shape}"
        raise ValueError(f"cannot compute cross products of shapes {shapes}; axis {axis} must have 3 elements")
    return mx.linalg.cross(x1, x2, axis)


def det(x, /):
    """The determinants of square matrices."""
    return mx.linalg.det(x)


def diagonal(x, /, *, offset=0):
    """The diagonals of matrices."""
    rows, columns = matrices("diagonal", x)
    offset = diagonal_within(x.shape, offset)
    length = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    start = mx.arange(length, dtype=INDEX)
    return x[..., start + max(-offset, 0), start + max(offset, 0)]


def eigh(x, /):
    """Eigenvalues, from the smallest on, and eigenvectors of matrices that are their own adjoints."""
    return EighResult(*mx.linalg.eigh(x))


def eigvalsh(x, /):
    """The eigenvalues of matrices that are their own adjoints."""
    return mx.linalg.eigvalsh(x)


def inv(x, /):
    """The inverses of square matrices."""
    return mx.linalg.inv(x)


def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    """The norms of matrices."""
    size = mx.abs(x)
    if 0 in matrices("matrix_norm", x):
        return mx.zeros((*x.shape[:-2], *(1, 1)[: 2 * keepdims]), size.dtype)
    if ord == "fro":
        result = vector_norm(x, axis=(-2, -1), keepdims=True)
    elif ord in (1, -1, mx.inf, -mx.inf):
        sums = mx.sum(size, -2 if abs(ord) == 1 else -1, keepdims=True)
        result = (mx.max if ord > 0 else mx.min)(sums, (-2, -1), keepdims=True)
    elif ord in (2, -2, "nuc"):
        values = svdvals(x)
        reduce = mx.sum if ord == "nuc" else mx.max if ord == 2 else mx.min
        result = mx.reshape(reduce(values, -1), (*x.shape[:-2], 1, 1))
    else:
        orders = "'fro', 'nuc', 1, -1, 2, -2, inf or -inf"
        raise ValueError(f"cannot compute a matrix norm of order {ord!r}; use {orders}")
    return result if keepdims else mx.squeeze(result, (-2, -1))


def matrix_power(x, n, /):
    """The matrices multiplied by themselves ``n`` times; inverses for negative ``n``."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"cannot compute powers of matrices of shape {x.shape}; they must be square")
    if n < 0:
        x, n = inv(x), -n
    result = mx.broadcast_to(mx.eye(x.shape[-1], dtype=x.dtype), x.shape)
    while n:
        if n & 1:
            result = result @ x
        x, n = x @ x, n >> 1
    return result


def _precision(x):
    return mx.finfo(x.dtype).eps * max(x.shape[-2:])


def matrix_rank(x, /, *, rtol=None):
    """How many singular values are above ``rtol`` times the largest."""
    values = svdvals(x)
    if values.shape[-1] == 0:
        return mx.zeros(values.shape[:-1], INDEX)
    limit = mx.max(values, -1, keepdims=True) * _tolerance(x, rtol, _precision(x))
    return mx.count_nonzero(values > limit, -1).astype(INDEX)


def _tolerance(x, rtol, otherwise):
    if isinstance(rtol, mx.array):
        return mx.expand_dims(rtol.astype(real(x.dtype)), -1)
    return otherwise if rtol is None else rtol


def outer(x1, x2, /):
    """The products of all pairs of elements of two vectors."""
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"cannot compute the outer product of shapes {x1.shape} and {x2.shape}; give two vectors")
    return mx.expand_dims(x1, 1) * mx.expand_dims(x2, 0)


def pinv(x, /, *, rtol=None):
    """The pseudo-inverses of matrices; singular values below ``rtol`` times the largest count as zero."""
    if 0 in matrices("pinv", x):
        return mx.zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype)
    u, values, vh = svd(x, full_matrices=False)
    limit = mx.max(values, -1, keepdims=True) * _tolerance(x, rtol, _precision(x))
    counts = values > limit
    inverse = mx.where(counts, 1 / mx.where(counts, values, mx.ones_like(values)), mx.zeros_like(values))
    return (mx.conj(vh.mT) * mx.expand_dims(inverse, -2)) @ mx.conj(u.mT)


def qr(x, /, *, mode="reduced"):
    """Matrices of orthonormal columns and upper triangular ones, whose products are the given ones."""
    if mode not in ("reduced", "complete"):
        raise ValueError(f"cannot factor in mode {mode!r}; use 'reduced' or 'complete'")
    rows, columns = matrices("qr", x)
    if mode == "complete" and rows > columns:
        # The identity beside the matrix completes the basis.
        unit = mx.broadcast_to(mx.eye(rows, dtype=x.dtype), (*x.shape[:-2], rows, rows))
        q, r = mx.linalg.qr(mx.concatenate([x, unit], -1))
        return QRResult(q, r[..., :columns])
    return QRResult(*mx.linalg.qr(x))


def slogdet(x, /):
    """The signs of determinants, and the logarithms of their absolute values."""
    return SlogdetResult(*mx.linalg.slogdet(x))


def solve(x1, x2, /):
    """The solutions of systems of linear equations."""
    return mx.linalg.solve(*_promoted(x1, x2))


def svd(x, /, *, full_matrices=True):
    """The singular value decompositions of matrices."""
    u, values, vh = mx.linalg.svd(x)
    if full_matrices:
        return SVDResult(u, values, vh)
    count = min(x.shape[-2:])
    return SVDResult(u[..., :count], values, vh[..., :count, :])


def svdvals(x, /):
    """The singular values of matrices, from the largest on."""
    return mx.linalg.svd(x, compute_uv=False)


def trace(x, /, *, offset=0, dtype=None):
    """The sums of the diagonals of matrices."""
    return _sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    """The norms of vectors, along axes or of the flattened array."""
    size = mx.abs(x)
    if ord == 0:
        return mx.count_nonzero(x, axis, keepdims).astype(size.dtype)
    if ord == mx.inf and not x.size:
        return mx.sum(size, axis, keepdims)
    if ord in (mx.inf, -mx.inf):
        return (mx.max if ord > 0 else mx.min)(size, axis, keepdims)
    if ord == 1:
        return mx.sum(size, axis, keepdims)
    # Divided by the largest: powers may be out of range.
    scale = mx.max(size, axis, keepdims=True) if x.size else mx.array(1, size.dtype)
    scale = mx.where((scale == 0) | ~mx.isfinite(scale), mx.ones_like(scale), scale)
    sums = mx.sum((size / scale) ** ord, axis, keepdims=True) ** (1 / ord)
    result = sums * scale
    return result if keepdims else mx.squeeze(result, axis) if axis is not None else mx.reshape(result, ())

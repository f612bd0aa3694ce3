# Written by scripts/stubs.py from the built package; do not edit.
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import ModuleType
from typing import Any, Self, final

from . import ArrayIterator, Device, DeviceType, Dtype, Stream, StreamOrDevice, array, scalar


__all__ = ['inv', 'pinv', 'det', 'eigvals', 'qr', 'eig', 'slogdet', 'lu_factor', 'lu', 'tri_inv', 'cholesky', 'cholesky_inv', 'eigh', 'eigvalsh', 'svd', 'solve', 'solve_triangular', 'cross', 'norm']

def cholesky(a: array | scalar, upper: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The Cholesky factors of matrices.

    Examples
    --------
    >>> result = mx.linalg.cholesky(mx.eye(2))
    """
    ...

def cholesky_inv(a: array | scalar, upper: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The inverses of matrices, given their Cholesky factors.

    Examples
    --------
    >>> result = mx.linalg.cholesky_inv(mx.eye(2))
    """
    ...

def cross(a: array | scalar, b: array | scalar, axis: int | Sequence[int] | None = -1, *, stream: StreamOrDevice = None) -> array:
    """The cross products of vectors of two or three elements along an axis.

    Examples
    --------
    >>> mx.linalg.cross(mx.array([1.0, 0.0, 0.0]), mx.array([0.0, 1.0, 0.0]))
    array([0, 0, 1], dtype=float32)
    """
    ...

def det(a: array | scalar, *, stream: StreamOrDevice = None) -> array:
    """The determinants of square matrices.

    Examples
    --------
    >>> result = mx.linalg.det(mx.eye(2))
    """
    ...

def eig(a: array | scalar, *, stream: StreamOrDevice = None) -> tuple[array, array]:
    """The eigenvalues and eigenvectors of square matrices, complex.

    Examples
    --------
    >>> result = mx.linalg.eig(mx.eye(2))
    """
    ...

def eigh(a: array | scalar, UPLO: str = 'L', *, stream: StreamOrDevice = None) -> tuple[array, array]:
    """The eigenvalues and eigenvectors of symmetric matrices.

    Examples
    --------
    >>> mx.linalg.eigh(mx.eye(2))[0]
    array([1, 1], dtype=float32)
    """
    ...

def eigvals(a: array | scalar, *, stream: StreamOrDevice = None) -> array:
    """The eigenvalues of square matrices, complex.

    Examples
    --------
    >>> result = mx.linalg.eigvals(mx.eye(2))
    """
    ...

def eigvalsh(a: array | scalar, UPLO: str = 'L', *, stream: StreamOrDevice = None) -> array:
    """The eigenvalues of symmetric matrices.

    Examples
    --------
    >>> mx.linalg.eigvalsh(mx.eye(2))
    array([1, 1], dtype=float32)
    """
    ...

def inv(a: array | scalar, *, stream: StreamOrDevice = None) -> array:
    """The inverses of square matrices.

    Examples
    --------
    >>> result = mx.linalg.inv(mx.eye(2))
    """
    ...

def lu(a: array | scalar, *, stream: StreamOrDevice = None) -> tuple[array, array, array]:
    """Where rows have gone, lower factors and upper factors: ``L[P, :] @ U`` is the matrix.

    Examples
    --------
    >>> result = mx.linalg.lu(mx.eye(2))
    """
    ...

def lu_factor(a: array | scalar, *, stream: StreamOrDevice = None) -> tuple[array, array]:
    """Lower and upper factors in one matrix, and row exchanges.

    Examples
    --------
    >>> result = mx.linalg.lu_factor(mx.eye(2))
    """
    ...

def norm(a: array | scalar, /, ord: Any = None, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The norm of vectors or matrices.

    Examples
    --------
    >>> mx.linalg.norm(mx.array([3.0, 4.0]))
    array(5, dtype=float32)
    """
    ...

def pinv(a: array | scalar, *, stream: StreamOrDevice = None) -> array:
    """The pseudo-inverses of matrices.

    Examples
    --------
    >>> result = mx.linalg.pinv(mx.eye(2))
    """
    ...

def qr(a: array | scalar, *, stream: StreamOrDevice = None) -> tuple[array, array]:
    """Orthonormal columns and upper triangular matrices.

    Examples
    --------
    >>> result = mx.linalg.qr(mx.eye(2))
    """
    ...

def slogdet(a: array | scalar, *, stream: StreamOrDevice = None) -> tuple[array, array]:
    """The signs of determinants and the logarithms of their absolute values.

    Examples
    --------
    >>> result = mx.linalg.slogdet(mx.eye(2))
    """
    ...

def solve(a: array | scalar, b: array | scalar, *, stream: StreamOrDevice = None) -> array:
    """The solutions of ``a x = b``.

    Examples
    --------
    >>> mx.linalg.solve(mx.array([[2.0, 0.0], [0.0, 4.0]]), mx.array([2.0, 4.0]))
    array([1, 1], dtype=float32)
    """
    ...

def solve_triangular(a: array | scalar, b: array | scalar, *, upper: bool = False, stream: StreamOrDevice = None) -> array:
    """The solutions of ``a x = b`` for triangular ``a``.

    Examples
    --------
    >>> mx.linalg.solve_triangular(mx.array([[2.0, 0.0], [0.0, 4.0]]), mx.array([2.0, 4.0]))
    array([1, 1], dtype=float32)
    """
    ...

def svd(a: array | scalar, compute_uv: bool = True, *, stream: StreamOrDevice = None) -> array | tuple[array, array, array]:
    """The singular value decomposition: left vectors, values, right vectors; or the values alone.

    Examples
    --------
    >>> mx.linalg.svd(mx.eye(2), compute_uv=False)
    array([1, 1], dtype=float32)
    """
    ...

def tri_inv(a: array | scalar, upper: bool = False, *, stream: StreamOrDevice = None) -> array:
    """The inverses of triangular matrices.

    Examples
    --------
    >>> result = mx.linalg.tri_inv(mx.eye(2))
    """
    ...

"""Functions of ``hesper.array_api`` against those of NumPy, which has the standard's too."""

import inspect
import math

import hesper.array_api as xp
import numpy as np
import pytest

INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
FLOATS = ["float32", "float64"]
COMPLEX = ["complex64", "complex128"]
NUMERIC = INTEGERS + FLOATS + COMPLEX
ALL = ["bool", *NUMERIC]
REAL = INTEGERS + FLOATS


def numbers(dtype, shape, seed=0):
    """Small numbers, some of them equal."""
    random = np.random.default_rng([seed, len(shape), *shape])
    values = random.integers(0 if dtype[0] in "ub" else -5, 6, shape)
    if dtype in FLOATS + COMPLEX:
        values = values / 2
    if dtype in COMPLEX:
        values = values + 1j * random.integers(-3, 4, shape) / 2
    return values.astype(dtype)


def as_numpy(x):
    if isinstance(x, (tuple, list)):
        return type(x)(*map(as_numpy, x)) if hasattr(x, "_fields") else [as_numpy(part) for part in x]
    return np.from_dlpack(x) if hasattr(x, "__dlpack__") else x


def same(ours, theirs, tolerance=0.0):
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            same(one, other, tolerance)
        return
    theirs = np.asarray(theirs)
    dtype = str(ours.dtype).rpartition(".")[2]
    # Integers that NumPy counts or sums in are wider.
    wider = {"int64": ("int32", "int64"), "uint64": ("uint32", "uint64")}
    assert dtype in wider.get(theirs.dtype.name, (theirs.dtype.name,))
    assert ours.shape == theirs.shape
    if tolerance:
        np.testing.assert_allclose(as_numpy(ours), theirs, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(as_numpy(ours), theirs)


def check(call, *arrays, tolerance=0.0):
    """The same call with both namespaces."""
    same(call(xp, *map(xp.asarray, arrays)), call(np, *arrays), tolerance)


def precision(dtype):
    return 1e-4 if dtype in ("float32", "complex64") else 1e-11


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2), (2, 1, 3)])
def test_shapes_and_orders(dtype, shape):
    x = numbers(dtype, shape)
    check(lambda xp, x: xp.expand_dims(x, axis=-1), x)
    check(lambda xp, x: xp.expand_dims(x, axis=(0, -1)), x)
    check(lambda xp, x: xp.flip(x), x)
    check(lambda xp, x: xp.reshape(x, (-1,)) if x.size else xp.reshape(x, (0,)), x)
    check(lambda xp, x: xp.permute_dims(x, tuple(reversed(range(x.ndim)))), x)
    check(lambda xp, x: xp.roll(x, 2), x)
    check(lambda xp, x: xp.concat([x, x], axis=None), x)
    check(lambda xp, x: xp.stack([x, x], axis=-1), x)
    check(lambda xp, x: xp.broadcast_to(x, (2, *x.shape)), x)
    check(lambda xp, x: xp.tile(x, (2, 1)), x)
    check(lambda xp, x: xp.tile(x, ()), x)
    check(lambda xp, x: xp.repeat(x, 2), x)
    check(lambda xp, x: xp.where(x != 0, x, xp.zeros_like(x)), x)
    check(lambda xp, x: xp.full_like(x, 1), x)
    check(lambda xp, x: xp.astype(x, x.dtype), x)
    for axis in range(x.ndim):
        check(lambda xp, x: xp.flip(x, axis=axis), x)
        check(lambda xp, x: xp.roll(x, (-1,), axis=(axis,)), x)
        check(lambda xp, x: xp.concat([x, x], axis=axis), x)
        check(lambda xp, x: xp.repeat(x, 3, axis=axis), x)
        check(lambda xp, x: xp.unstack(x, axis=axis), x)
        check(lambda xp, x: xp.moveaxis(x, axis, 0), x)
        if x.shape[axis] == 1:
            check(lambda xp, x: xp.squeeze(x, axis), x)
        if x.shape[axis]:
            check(lambda xp, x: xp.take(x, xp.asarray([0, x.shape[axis] - 1]), axis=axis), x)
            check(lambda xp, x: xp.repeat(x, xp.asarray(list(range(x.shape[axis]))), axis=axis), x)
            check(lambda xp, x: xp.take_along_axis(x, xp.zeros(x.shape, dtype=xp.int64), axis=axis), x)


@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (3, 0), (2, 1, 3)])
def test_sums_over_axes(dtype, shape):
    x, near = numbers(dtype, shape), precision(dtype)
    for axis in [None, *range(len(shape)), tuple(range(len(shape)))[:2], ()]:
        for keepdims in [False, True]:
            options = {"axis": axis, "keepdims": keepdims}
            check(lambda xp, x: xp.sum(x, **options), x, tolerance=near)
            check(lambda xp, x: xp.prod(x, **options), x, tolerance=near)
            check(lambda xp, x: xp.all(x, **options), x)
            check(lambda xp, x: xp.any(x, **options), x)
            check(lambda xp, x: xp.count_nonzero(x, **options), x)
            if dtype in REAL and x.size:
                check(lambda xp, x: xp.max(x, **options), x)
                check(lambda xp, x: xp.min(x, **options), x)
            if dtype in FLOATS + COMPLEX and x.size:
                check(lambda xp, x: xp.mean(x, **options), x, tolerance=near)
            if dtype in FLOATS and x.size:
                check(lambda xp, x: xp.var(x, **options), x, tolerance=near)
                check(lambda xp, x: xp.std(x, **options), x, tolerance=near)
        if axis != () and not isinstance(axis, tuple) and dtype in REAL and x.size and x.ndim:
            check(lambda xp, x: xp.argmax(x, axis=axis, keepdims=True), x)
            check(lambda xp, x: xp.argmin(x, axis=axis), x)
    for axis in range(len(shape)):
        for initial in [False, True]:
            check(lambda xp, x: xp.cumulative_sum(x, axis=axis, include_initial=initial), x, tolerance=near)
            check(lambda xp, x: xp.cumulative_prod(x, axis=axis, include_initial=initial), x, tolerance=near)
        check(lambda xp, x: xp.diff(x, axis=axis), x)
        check(lambda xp, x: xp.diff(x, axis=axis, n=2, prepend=x, append=x), x)


def test_sums_have_the_type_that_is_asked_for():
    x = xp.asarray([200, 100], dtype=xp.uint8)
    assert xp.sum(x).dtype == xp.uint32 and int(xp.sum(x)) == 300
    assert xp.sum(x, dtype=xp.float64).dtype == xp.float64
    assert xp.sum(xp.asarray([2**40, 1], dtype=xp.int64)).dtype == xp.int64
    assert xp.cumulative_sum(x, dtype=xp.int64).tolist() == [200, 300]
    assert int(xp.prod(x)) == 20000 and xp.prod(xp.asarray([], dtype=xp.float32)).tolist() == 1.0
    with pytest.raises(ValueError, match="without an axis"):
        xp.cumulative_sum(xp.zeros((2, 2)))


@pytest.mark.parametrize("correction", [0, 1, 0.5, 2.25])
def test_variances_are_corrected(correction):
    x = numbers("float64", (5, 4))
    for axis in [None, 0, (0, 1)]:
        check(lambda xp, x: xp.var(x, axis=axis, correction=correction), x, tolerance=1e-12)
        check(lambda xp, x: xp.std(x, axis=axis, correction=correction, keepdims=True), x, tolerance=1e-12)


@pytest.mark.parametrize("dtype", REAL)
def test_sorting_and_searching(dtype):
    x = numbers(dtype, (3, 7))
    for axis in [0, 1, -1]:
        check(lambda xp, x: xp.sort(x, axis=axis), x)
        check(lambda xp, x: xp.argsort(x, axis=axis) if xp is not np else np.argsort(x, axis=axis, stable=True), x)
        ours = xp.argsort(xp.asarray(x), axis=axis, descending=True, stable=True)
        theirs = np.argsort(-x.astype("float64"), axis=axis, stable=True)
        assert ours.tolist() == theirs.tolist()
        ordered = xp.sort(xp.asarray(x), axis=axis, descending=True)
        assert ordered.tolist() == np.take_along_axis(x, theirs, axis).tolist()
    row = np.sort(x[0])
    for side in ["left", "right"]:
        check(lambda xp, row, x: xp.searchsorted(row, x, side=side), row, x)
    order = np.argsort(x[0], stable=True)
    check(lambda xp, row, x, order: xp.searchsorted(row, x, sorter=order), x[0], x, order)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("shape", [(), (9,), (3, 4), (0,)])
def test_different_elements(dtype, shape):
    x = numbers(dtype, shape)
    check(lambda xp, x: xp.sort(xp.unique_values(x)), x)
    check(lambda xp, x: xp.unique_all(x), x)
    check(lambda xp, x: xp.unique_counts(x), x)
    check(lambda xp, x: xp.unique_inverse(x), x)
    if shape:
        check(lambda xp, x: xp.nonzero(x), x)
    found = xp.unique_all(xp.asarray(x))
    assert found._fields == ("values", "indices", "inverse_indices", "counts")


def test_each_nan_is_different():
    x = xp.asarray([math.nan, 1.0, math.nan, 0.0, -0.0])
    found = xp.unique_all(x)
    assert found.counts.tolist() == [2, 1, 1, 1] and sorted(found.inverse_indices.tolist()) == [0, 0, 1, 2, 3]
    with pytest.raises(ValueError, match="without axes"):
        xp.nonzero(xp.asarray(1))


def test_ranges_become_arrays():
    same(xp.asarray(range(2, 9, 3)), np.asarray(range(2, 9, 3), dtype=np.int32))
    same(xp.asarray(range(3), dtype=xp.float32), np.arange(3, dtype=np.float32))


def test_no_indices_of_extremes_along_an_axis_with_elements():
    for function in (xp.argmax, xp.argmin):
        assert function(xp.zeros((3, 0, 2)), axis=0).shape == (0, 2)
        assert function(xp.zeros((3, 0, 2)), axis=-1, keepdims=True).shape == (3, 0, 1)
        with pytest.raises(ValueError):
            function(xp.zeros((3, 0, 2)), axis=1)


def test_creation():
    for dtype in ["int32", "int64", "float32", "float64"]:
        of = {"dtype": dtype}
        for call in [
            lambda xp, d: xp.arange(7, dtype=d),
            lambda xp, d: xp.arange(2, -9, -3, dtype=d),
            lambda xp, d: xp.arange(5, 1, dtype=d),
            lambda xp, d: xp.eye(3, dtype=d),
            lambda xp, d: xp.eye(2, 4, k=1, dtype=d),
            lambda xp, d: xp.full((2, 2), 7, dtype=d),
            lambda xp, d: xp.zeros(3, dtype=d),
            lambda xp, d: xp.ones((2, 0), dtype=d),
            lambda xp, d: xp.linspace(0, 10, 11, dtype=d),
            lambda xp, d: xp.linspace(0, 10, 5, dtype=d, endpoint=False),
            lambda xp, d: xp.tril(xp.ones((3, 4), dtype=d), k=-1),
            lambda xp, d: xp.triu(xp.ones((2, 3, 4), dtype=d), k=1),
        ]:
            same(call(xp, getattr(xp, of["dtype"])), call(np, getattr(np, of["dtype"])))
    same(xp.linspace(-1.5, 0.3, 7, dtype=xp.float64), np.linspace(-1.5, 0.3, 7), 1e-15)
    same(xp.linspace(1 + 2j, 3 - 1j, 4, dtype=xp.complex128), np.linspace(1 + 2j, 3 - 1j, 4), 1e-15)
    same(xp.arange(0.0, 1.0, 0.1, dtype=xp.float64), np.arange(0.0, 1.0, 0.1), 1e-15)
    wide = xp.linspace(-1.5e308, 1.5e308, 5, dtype=xp.float64).tolist()
    assert wide == [-1.5e308, -0.75e308, 0.0, 0.75e308, 1.5e308] and xp.linspace(3, 9, 1).tolist() == [3.0]
    assert xp.arange(2**64 - 3, 2**64 - 1, dtype=xp.uint64).tolist() == [2**64 - 3, 2**64 - 2]
    assert xp.arange(3, 3, dtype=xp.uint64).shape == (0,)
    check(lambda xp, x, y: xp.meshgrid(x, y), np.arange(3), np.arange(2))
    check(lambda xp, x, y: xp.meshgrid(x, y, indexing="ij"), np.arange(3), np.arange(2))
    assert xp.full((2,), 2**63 + 5, dtype=xp.uint64).tolist() == [2**63 + 5] * 2
    assert xp.full((1,), 0.1, dtype=xp.float64).tolist() == [0.1]
    assert [xp.full(1, value).dtype for value in (True, 1, 1.0, 1j)] == [xp.bool, xp.int32, xp.float32, xp.complex64]
    assert xp.asarray([2**64 - 1, 0], dtype=xp.uint64).tolist() == [2**64 - 1, 0]
    assert xp.asarray([[True], [False]]).dtype == xp.bool and xp.asarray([1, 2.5]).dtype == xp.float32
    assert xp.asarray([xp.asarray(1), xp.asarray(2)]).tolist() == [1, 2]


def test_arrays_of_other_libraries_keep_their_type():
    for dtype in ALL:
        x = numbers(dtype, (2, 3))
        for make in [xp.asarray, xp.from_dlpack]:
            same(make(x), x)
        assert np.from_dlpack(xp.asarray(x)).dtype == dtype
    x = np.arange(4.0)
    shared = xp.asarray(x, copy=False)
    assert shared.dtype == xp.float64 and shared.tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="without a copy"):
        xp.asarray([1, 2], copy=False)
    with pytest.raises(ValueError, match="without a copy"):
        xp.asarray(xp.asarray([1, 2]), dtype=xp.float32, copy=False)
    copied = xp.asarray(shared, copy=True)
    copied[0] = 9.0
    assert shared.tolist()[0] == 0.0 and xp.asarray(shared) is shared


@pytest.mark.parametrize("dtype", NUMERIC)
def test_products(dtype):
    near = precision(dtype)
    shapes = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 2)), ((0, 3), (3, 2))]
    for one, other in shapes:
        x, y = numbers(dtype, one), numbers(dtype, other, 1)
        check(lambda xp, x, y: xp.matmul(x, y), x, y, tolerance=near)
        check(lambda xp, x, y: x @ y, x, y, tolerance=near)
    x, y = numbers(dtype, (2, 3, 4)), numbers(dtype, (4, 3, 2), 1)
    check(lambda xp, x, y: xp.tensordot(x, y, axes=1), x, y, tolerance=near)
    check(lambda xp, x, y: xp.tensordot(x, y, axes=0), x, y, tolerance=near)
    check(lambda xp, x, y: xp.tensordot(x, y, axes=((1, 2), (1, 0))), x, y, tolerance=near)
    check(lambda xp, x: xp.vecdot(x, x), x, tolerance=near)
    check(lambda xp, x: xp.vecdot(x, x[:1], axis=-2), x, tolerance=near)
    check(lambda xp, x: xp.matrix_transpose(x), x)
    check(lambda xp, x, y: xp.linalg.outer(x, y), x[0, 0], y[0, 0], tolerance=near)
    check(lambda xp, x: xp.linalg.diagonal(x), x)
    check(lambda xp, x: xp.linalg.diagonal(x, offset=-1), x)
    check(lambda xp, x: xp.linalg.diagonal(x, offset=9), x)
    check(lambda xp, x: xp.linalg.trace(x, offset=1), x, tolerance=near)
    if dtype in REAL:
        check(lambda xp, x, y: xp.linalg.cross(x, y, axis=0), numbers(dtype, (3, 2)), numbers(dtype, (3, 2), 1))
    with pytest.raises(ValueError):
        xp.matmul(xp.asarray(x), xp.asarray(1, dtype=xp.asarray(x).dtype))


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
def test_linear_algebra(dtype):
    near = precision(dtype) * 10
    x = numbers(dtype, (2, 4, 3))
    square = x @ np.conj(np.swapaxes(x, -1, -2)) + 3 * np.eye(4, dtype=dtype)
    sides = numbers(dtype, (4, 2), 1)
    for name in ["det", "inv", "cholesky", "eigvalsh", "pinv"]:
        check(lambda xp, x: getattr(xp.linalg, name)(x), square, tolerance=near)
    check(lambda xp, x: xp.linalg.cholesky(x, upper=True), square, tolerance=near)
    check(lambda xp, x, y: xp.linalg.solve(x, y), square, sides, tolerance=near)
    check(lambda xp, x, y: xp.linalg.solve(x, y), square, sides[:, 0], tolerance=near)
    check(lambda xp, x: xp.linalg.slogdet(x), square, tolerance=near)
    check(lambda xp, x: xp.linalg.svdvals(x), x, tolerance=near)
    check(lambda xp, x: xp.linalg.matrix_rank(x), x)
    check(lambda xp, x: xp.linalg.pinv(x, rtol=0.01), x, tolerance=near)
    for n in [0, 1, 3, -2]:
        check(lambda xp, x: xp.linalg.matrix_power(x, n), square / 4, tolerance=near)
    for ord in ["fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf]:
        for keepdims in [False, True]:
            check(lambda xp, x: xp.linalg.matrix_norm(x, ord=ord, keepdims=keepdims), x, tolerance=near)
    for ord in [0, 1, 2, 3, -1, 0.5, math.inf, -math.inf]:
        for axis in [None, 0, (1, 2)]:
            y = (np.abs(x) + 1).astype(dtype) if ord == -1 else x
            check(lambda xp, x: xp.linalg.vector_norm(x, axis=axis, ord=ord, keepdims=True), y, tolerance=near)
    ours = xp.asarray(x)
    for mode in ["reduced", "complete"]:
        q, r = xp.linalg.qr(ours, mode=mode)
        assert q.shape == (2, 4, 3 if mode == "reduced" else 4)
        same(q @ r, x, near)
        assert np.all(np.tril(as_numpy(r), -1) == 0)
        same(xp.matmul(xp.conj(q.mT), q), np.stack([np.eye(q.shape[-1], dtype=dtype)] * 2), near)
    for full in [False, True]:
        u, s, vh = xp.linalg.svd(ours, full_matrices=full)
        assert u.shape == (2, 4, 4 if full else 3) and vh.shape == (2, 3, 3)
        same(u[..., :3] * s[:, None, :] @ vh, x, near)
    values, vectors = xp.linalg.eigh(xp.asarray(square))
    same(xp.asarray(square) @ vectors, as_numpy(vectors * values[:, None, :]), near * 10)


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_fourier_transforms(dtype, norm):
    x, near = numbers(dtype, (3, 4, 6)), precision(dtype)
    names = ["rfft", "ihfft"] if dtype in FLOATS else ["fft", "ifft", "irfft", "hfft"]
    for name in names:
        for n, axis in [(None, -1), (5, 0), (8, 1), (3, 2)]:
            check(lambda xp, x: getattr(xp.fft, name)(x, n=n, axis=axis, norm=norm), x, tolerance=near)
    for name in ["rfftn"] if dtype in FLOATS else ["fftn", "ifftn", "irfftn"]:
        for s, axes in [(None, None), (None, (0, 2)), ((4, 5), (1, 0))]:
            check(lambda xp, x: getattr(xp.fft, name)(x, s=s, axes=axes, norm=norm), x, tolerance=near)
    check(lambda xp, x: xp.fft.fftshift(x), x)
    check(lambda xp, x: xp.fft.ifftshift(x, axes=1), x)


def test_frequencies():
    for n in [1, 2, 5, 8]:
        same(xp.fft.fftfreq(n, d=0.5, dtype=xp.float64), np.fft.fftfreq(n, d=0.5), 1e-15)
        same(xp.fft.rfftfreq(n, dtype=xp.float64), np.fft.rfftfreq(n), 1e-15)
    assert xp.fft.fftfreq(4).dtype == xp.float32


def test_clip_takes_bounds_that_are_numbers_arrays_or_missing():
    x = numbers("float64", (3, 4))
    for low, high in [(None, None), (-1, None), (None, 1.5), (-1.0, 1.0)]:
        check(lambda xp, x: xp.clip(x, low, high), x)
    check(lambda xp, x, low: xp.clip(x, min=low), x, x[0])
    for dtype in INTEGERS:
        check(lambda xp, x: xp.clip(x, 1, 3), numbers(dtype, (5,)))
    assert xp.clip(xp.asarray([1, 2]), max=1).dtype == xp.int32


@pytest.mark.parametrize("dtype, other", [("uint64", "int8"), ("uint64", "int64"), ("int64", "uint64"), ("uint8", "int64")])
def test_bounds_of_other_integer_types_change_no_element_within_them(dtype, other):
    numbers = [np.iinfo(dtype).max - 1, 100, 5, 0]
    x, low, high = xp.asarray(numbers, dtype=getattr(xp, dtype)), np.asarray(0, other), np.asarray([100] * 4, other)
    assert xp.clip(x, min=xp.asarray(low)).tolist() == numbers
    assert xp.clip(x, max=xp.asarray(high)).tolist() == [100, 100, 5, 0]
    assert xp.clip(x, xp.asarray(low), xp.asarray(high)).dtype == x.dtype
    if np.iinfo(other).min < 0:
        assert xp.clip(x, min=xp.asarray(low - 1)).tolist() == numbers


@pytest.mark.parametrize("k", [-(2**70), -(2**31) - 1, -4, 3, 4, 2**31, 2**70])
def test_diagonals_may_be_any_distance_outside_of_a_matrix(k):
    x = np.arange(1, 13, dtype="int32").reshape(3, 4)
    near = max(-9, min(k, 9))
    same(xp.eye(3, 4, k=k, dtype=xp.int32), np.eye(3, 4, k=near, dtype="int32"))
    same(xp.tril(xp.asarray(x), k=k), np.tril(x, near))
    same(xp.triu(xp.asarray(x), k=k), np.triu(x, near))
    same(xp.linalg.diagonal(xp.asarray(x), offset=k), np.diagonal(x, near))
    same(xp.linalg.trace(xp.asarray(x), offset=k), np.trace(x, near, dtype="int32"))


def test_a_number_is_searched_as_one_of_the_type():
    for number, place in [(2, 1), (2.5, 2), (True, 0)]:
        found = xp.searchsorted(xp.asarray([1.0, 2.0, 3.0]), number)
        assert (found.shape, found.dtype, int(found)) == ((), xp.int32, place)
    assert int(xp.searchsorted(xp.asarray([3, 1], dtype=xp.uint8), 2, side="right", sorter=xp.asarray([1, 0]))) == 1


def test_shape_errors_are_the_exceptions_of_the_standard():
    x = xp.zeros((2, 3))
    for axis in [3, -4]:
        with pytest.raises(IndexError, match="cannot insert axis"):
            xp.expand_dims(x, axis=axis)
    with pytest.raises(IndexError, match="cannot insert axis 4"):
        xp.expand_dims(x, axis=(0, 4))
    for counts in [[1, 2], [1, 2, 3, 4], [1, -1, 2], [[1, 1, 1]]]:
        with pytest.raises(ValueError, match="cannot repeat"):
            xp.repeat(x, xp.asarray(counts), axis=1)
    with pytest.raises(ValueError, match="length must be 1"):
        xp.squeeze(x, 0)
    with pytest.raises(ValueError, match="without an axis"):
        xp.take(x, xp.asarray([0]))
    with pytest.raises(ValueError, match="square"):
        xp.linalg.matrix_power(x, 2)
    with pytest.raises(ValueError, match="'full'"):
        xp.linalg.qr(x, mode="full")
    with pytest.raises(TypeError, match="device"):
        xp.zeros(1, device="cpu")


def test_a_complex_number_fills_bools_with_whether_it_is_zero():
    assert xp.full((2,), 1j, dtype=xp.bool).tolist() == [True, True]
    assert xp.full_like(xp.asarray([True]), 0j).tolist() == [False]


def test_the_largest_of_no_numbers_is_a_norm_of_zero():
    assert xp.linalg.vector_norm(xp.zeros((0, 2)), axis=0, ord=xp.inf).tolist() == [0, 0]
    assert float(xp.linalg.vector_norm(xp.zeros((0,)), ord=xp.inf)) == 0


def test_types_of_python_name_types_of_arrays():
    assert xp.zeros((2,), dtype=bool).dtype == xp.bool and xp.asarray([1, 2], dtype=float).dtype == xp.float64
    assert xp.full((2,), 3, dtype=int).dtype == xp.int64 and xp.ones_like(xp.zeros(2), dtype=complex).dtype == xp.complex128
    with pytest.raises(TypeError):
        xp.zeros((2,), dtype=str)


def test_shifts_leave_no_bit_behind_the_width():
    x = xp.asarray([384, 1], dtype=xp.uint32)
    by = xp.asarray([32, 35], dtype=xp.uint32)
    assert xp.bitwise_left_shift(x, by).tolist() == [0, 0] and xp.bitwise_right_shift(x, by).tolist() == [0, 0]
    assert xp.bitwise_right_shift(xp.asarray([-8]), xp.asarray([40])).tolist() == [-1]


def test_sums_and_products_of_booleans_count():
    truth = np.array([[True, True, False], [True, False, True]])
    x = xp.asarray(truth)
    assert xp.sum(x).dtype == xp.int32 and int(xp.sum(x)) == 4
    assert xp.sum(x, axis=0).tolist() == truth.sum(0).tolist()
    assert xp.prod(x, axis=0).tolist() == truth.prod(0).tolist() and xp.prod(x).dtype == xp.int32
    assert xp.cumulative_sum(x, axis=1).tolist() == truth.cumsum(1).tolist()
    assert int(xp.linalg.trace(x)) == 1 and xp.sum(x, dtype=xp.float64).dtype == xp.float64


def with_axes():
    """Functions of the namespace with a parameter for axes, and their other arguments."""
    x = xp.asarray([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]])
    others = {
        "concat": ([x, x],),
        "linalg.tensordot": (x, x),
        "moveaxis": (x,),
        "repeat": (x, 2),
        "roll": (x, 1),
        "stack": ([x, x],),
        "take": (x, xp.asarray([0, 1])),
        "take_along_axis": (x, xp.asarray([[0, 1, 0]])),
    }
    places = {"": (xp, xp.__all__), "linalg.": (xp.linalg, xp.linalg.__all__), "fft.": (xp.fft, xp.fft.__all__)}
    for prefix, (place, names) in places.items():
        for name in filter(lambda name: inspect.isfunction(getattr(place, name)), names):
            parameters = inspect.signature(getattr(place, name)).parameters
            keyword = next((word for word in ("axis", "axes", "source") if word in parameters), None)
            if keyword and name != "permute_dims":
                arguments = others.get(prefix + name, (x, x) if "x2" in parameters else (x,))
                yield prefix + name, getattr(place, name), keyword, arguments


@pytest.mark.parametrize("axis", [7, -8])
@pytest.mark.parametrize("name, function, keyword, arguments", list(with_axes()), ids=lambda value: value if isinstance(value, str) else "")
def test_an_axis_out_of_range_is_named(name, function, keyword, arguments, axis):
    if name.endswith("tensordot"):
        call = lambda: function(*arguments, axes=((axis,), (0,)))
    elif keyword == "source":
        call = lambda: function(*arguments, 0, axis)
    else:
        call = lambda: function(*arguments, **{keyword: axis if keyword == "axis" else (axis,)})
    with pytest.raises((IndexError, ValueError), match=f"ax[ei]s.*{axis}.*(out of range|of an array of|into an array of)"):
        call()


def test_an_argument_that_makes_no_sense_is_named():
    x = xp.zeros((2, 3))
    for call, words in {
        lambda: xp.linspace(0, 1, -2): "linspace: num must not be negative, and is -2",
        lambda: xp.diff(x, n=-1): "diff: n must not be negative, and is -1",
        lambda: xp.permute_dims(xp.asarray(1), (0,)): r"permute_dims: axes \(0,\) for an array of 0 dimensions",
        lambda: xp.permute_dims(x, (0,)): r"permute_dims: axes \(0,\) for an array of 2 dimensions",
        lambda: xp.tensordot(x, x, axes=-1): "cannot contract -1 axes",
        lambda: xp.tensordot(x, x, axes=3): "cannot contract 3 axes",
        lambda: xp.vecdot(xp.zeros((3, 3)), xp.zeros(3), axis=0): r"vecdot: axis 0 of shapes \(3, 3\) and \(3,\)",
        lambda: xp.linalg.cross(xp.zeros((3, 3)), xp.zeros(3), axis=0): r"cross: axis 0 of shapes \(3, 3\) and \(3,\)",
        lambda: xp.fft.hfft(x, norm="both"): '"both"',
        lambda: xp.fft.ihfft(x, norm="both"): '"both"',
    }.items():
        with pytest.raises(ValueError, match=words):
            call()
    for counts in [[1.0, 2.0], [1.0]]:
        with pytest.raises(TypeError, match="repeat: counts must be integers, and are an array of type .*float32"):
            xp.repeat(x, xp.asarray(counts), axis=0)
    for name in ["diagonal", "matrix_norm", "matrix_transpose", "pinv", "qr", "trace"]:
        with pytest.raises(ValueError, match=r"shape \(3,\) has no matrices"):
            getattr(xp.linalg, name)(xp.zeros(3))


def test_reshape_copies_where_it_is_told_to_and_refuses_to_where_it_has_to():
    x = xp.asarray([[1, 2, 3], [4, 5, 6]])
    assert xp.reshape(x, (3, 2), copy=False).tolist() == xp.reshape(x, (3, 2), copy=True).tolist() == [[1, 2], [3, 4], [5, 6]]
    for view in [x.T, x[:, 1:], xp.broadcast_to(x[0], (2, 3))]:
        with pytest.raises(ValueError, match="without a copy"):
            xp.reshape(view, (-1,), copy=False)
        assert xp.reshape(view, (-1,)).tolist() == np.from_dlpack(view).reshape(-1).tolist()
    copied = xp.reshape(x, (6,), copy=True)
    copied[0] = 9
    assert x.tolist() == [[1, 2, 3], [4, 5, 6]] and int(copied[0]) == 9


def test_an_axis_may_be_inserted_by_position():
    x = np.zeros((2, 3))
    same(xp.expand_dims(xp.asarray(x), 1), np.expand_dims(x, 1))
    assert xp.expand_dims(xp.asarray(x)).shape == (1, 2, 3)

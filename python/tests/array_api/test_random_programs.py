"""Random arrays through functions of ``hesper.array_api`` and of array-api-strict, the reference of the standard."""

import hesper.array_api as xp
import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
strict = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")
from hypothesis import strategies as st  # noqa: E402
from hypothesis.extra.array_api import make_strategies_namespace  # noqa: E402

xps = make_strategies_namespace(strict, api_version="2024.12")
own = make_strategies_namespace(xp, api_version="2024.12")
few = hypothesis.settings(max_examples=15, deadline=None, database=None, derandomize=True)

FLOATING = """acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 sin sinh sqrt tan tanh""".split()
NUMERIC = "abs negative positive square".split()
REAL = "ceil floor round trunc".split()
BINARY = "add multiply subtract equal not_equal".split()
ORDERED = "maximum minimum less less_equal greater greater_equal".split()
REDUCTIONS = "sum prod".split()


def ours(x):
    return xp.asarray(np.asarray(x))


def compare(result, expected):
    result, expected = np.from_dlpack(result), np.asarray(expected)
    assert result.shape == expected.shape
    if expected.dtype.kind == result.dtype.kind and expected.dtype.kind in "iu":
        assert result.dtype.itemsize <= expected.dtype.itemsize
    else:
        assert result.dtype == expected.dtype
    single = expected.dtype in (np.float32, np.complex64)
    np.testing.assert_allclose(result, expected, rtol=1e-3 if single else 1e-9, atol=1e-30)


def shapes():
    return xps.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@pytest.mark.parametrize("name", FLOATING + NUMERIC + REAL)
def test_functions_of_one_array(name):
    dtypes = xps.real_dtypes() if name in REAL + NUMERIC else xps.floating_dtypes()
    small = name in ("cosh", "sinh", "exp", "expm1", "tan", "sin", "cos")
    numbers = {"min_value": -60, "max_value": 60} if small else {}

    @few
    @hypothesis.given(xps.arrays(dtypes, shapes(), elements=numbers))
    def run(x):
        compare(getattr(xp, name)(ours(x)), getattr(strict, name)(x))

    with np.errstate(all="ignore"):
        run()


@pytest.mark.parametrize("name", BINARY + ORDERED)
def test_functions_of_two_arrays_broadcast(name):
    @few
    @hypothesis.given(st.data())
    def run(data):
        one, other = data.draw(xps.mutually_broadcastable_shapes(2, max_dims=3, max_side=3)).input_shapes
        dtypes = xps.real_dtypes() if name in ORDERED else xps.numeric_dtypes()
        dtype = data.draw(dtypes)
        x, y = data.draw(xps.arrays(dtype, one)), data.draw(xps.arrays(dtype, other))
        compare(getattr(xp, name)(ours(x), ours(y)), getattr(strict, name)(x, y))

    with np.errstate(all="ignore"):
        run()


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    @few
    @hypothesis.given(st.data())
    def run(data):
        x = data.draw(xps.arrays(xps.integer_dtypes(), shapes(), elements={"min_value": 0, "max_value": 3}))
        axis = data.draw(st.none() | xps.valid_tuple_axes(x.ndim))
        keepdims = data.draw(st.booleans())
        call = {"axis": axis, "keepdims": keepdims}
        compare(getattr(xp, name)(ours(x), **call), getattr(strict, name)(x, **call))

    run()


@few
@hypothesis.given(st.data())
def test_any_basic_index(data):
    x = data.draw(xps.arrays(xps.scalar_dtypes(), xps.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)))
    key = data.draw(xps.indices(x.shape, allow_newaxis=True))
    compare(ours(x)[key], np.asarray(x)[key])


@few
@hypothesis.given(own.arrays(own.scalar_dtypes(), own.array_shapes(max_dims=3, max_side=3)))
def test_strategies_for_arrays_of_the_standard_make_arrays(x):
    assert x.__array_namespace__() is xp
    compare(xp.from_dlpack(x), np.from_dlpack(x))

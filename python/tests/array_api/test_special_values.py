"""Signs of zeros, infinities, NaN and the largest and smallest numbers, on grids, against NumPy's and Python's."""

import cmath
import itertools
import math

import hesper.array_api as xp
import numpy as np
import pytest

REALS = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.0, -2.0, 3.0, -3.0, 2.5, -2.5]
REALS += [1e-30, -1e-30, 1e30, -1e30, 100.0, -100.0, 710.0, 0.3, -0.7]
PARTS = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 1e-3, 3.7, -40.0]

UNARY = """abs acos acosh asin asinh atan atanh ceil cos cosh exp expm1 floor isfinite isinf isnan log log10 log1p log2
negative positive reciprocal round sign signbit sin sinh sqrt square tan tanh trunc""".split()
BINARY = """add atan2 copysign divide equal floor_divide greater greater_equal hypot less less_equal logaddexp maximum
minimum multiply nextafter not_equal pow remainder subtract""".split()
COMPLEX = "acos acosh asin asinh atan atanh cos cosh exp log log10 log1p sin sinh sqrt tan tanh".split()
INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()

def assert_special(ours, theirs, places, tolerance):
    """Zeros with their signs, infinities, NaN; other numbers approximately."""
    ours = np.from_dlpack(ours)
    assert ours.dtype == theirs.dtype
    if theirs.dtype.kind in "biu":
        wrong = ours != theirs
    else:
        special = (theirs == 0) | np.isinf(theirs)
        exact = (ours == theirs) & (np.signbit(ours) == np.signbit(theirs))
        near = np.abs(ours - theirs) <= tolerance * np.abs(theirs)
        wrong = ~np.where(np.isnan(theirs), np.isnan(ours), np.where(special, exact, near))
    assert not wrong.any(), [(*(x[wrong][0] for x in places), ours[wrong][0], theirs[wrong][0])]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_special_numbers(name, dtype):
    x = np.array(REALS, dtype)
    with np.errstate(all="ignore"):
        assert_special(getattr(xp, name)(xp.asarray(x)), getattr(np, name)(x), [x], 1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_pairs_of_special_numbers(name, dtype):
    x, y = (part.ravel() for part in np.meshgrid(*[np.array(REALS, dtype)] * 2))
    if name == "floor_divide":
        # NumPy follows Python where a number is infinite or a quotient is rounded.
        exact = np.isin(x, np.arange(-6, 7) / 2) & np.isin(y, np.arange(-6, 7) / 2)
        x, y = x[exact], y[exact]
    if name in ("maximum", "minimum", "logaddexp"):
        # The sign of a zero is open.
        x, y = (part[(x != 0) & (y != 0)] for part in (x, y))
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
        assert_special(getattr(xp, name)(xp.asarray(x), xp.asarray(y)), expected, [x, y], 1e-5 if dtype == "float32" else 1e-12)


def test_quotients_of_infinities_are_rounded_down_as_the_standard_says():
    x, y = xp.asarray([np.inf, -np.inf, 2.0, -2.0, np.inf]), xp.asarray([2.0, 2.0, -np.inf, np.inf, np.inf])
    for result in [xp.floor_divide(x, y), x // y]:
        assert str(result.tolist()) == "[inf, -inf, -0.0, -0.0, nan]"


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", COMPLEX)
def test_functions_of_special_complex_numbers(name, dtype):
    z = np.array([complex(re, im) for re in PARTS for im in PARTS], dtype)
    with np.errstate(all="ignore"):
        ours, theirs = getattr(xp, name)(xp.asarray(z)), getattr(np, name)(z)
        for part in ["real", "imag"]:
            left, right = getattr(xp, part)(ours), getattr(theirs, part)
            # Where one part of the result is no number, the sign of the other may be left open.
            assert_parts(name, z, left, right, np.isnan(theirs.real) | np.isnan(theirs.imag))


def assert_parts(name, z, ours, theirs, open_signs):
    ours, single = np.from_dlpack(ours), theirs.dtype == np.float32
    with np.errstate(all="ignore"):
        # Libraries differ in the signs of zeros that belong to infinite arguments.
        signless = open_signs | np.isinf(z.real) | np.isinf(z.imag)
        exact = (ours == theirs) & (np.signbit(ours) == np.signbit(theirs)) | signless & (np.abs(ours) == np.abs(theirs))
        near = np.abs(ours - theirs) <= (2e-5 if single else 1e-11) * np.abs(theirs) + (1e-6 if single else 1e-14)
        special = (theirs == 0) | np.isinf(theirs)
        right = np.where(np.isnan(theirs), np.isnan(ours), np.where(special, exact, near))
    assert right.all(), [(z[~right][0], ours[~right][0], theirs[~right][0])]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_expm1_of_complex_numbers_is_exact_near_zero_and_at_infinity(dtype):
    inf, nan = np.inf, np.nan
    cases = [(0, 0, 0, 0), (inf, 0, inf, 0), (-inf, 1, -1, 0), (-inf, inf, -1, 0), (inf, nan, inf, nan), (nan, 0, nan, 0)]
    z = xp.expm1(xp.asarray([complex(re, im) for re, im, _, _ in cases], dtype=getattr(xp, dtype)))
    np.testing.assert_array_equal(np.from_dlpack(xp.real(z)), [re for _, _, re, _ in cases])
    np.testing.assert_array_equal(np.from_dlpack(xp.imag(z)), [im for _, _, _, im in cases])
    zeros = np.from_dlpack(xp.expm1(xp.asarray([complex(0.0, 0.0), complex(-0.0, 0.0)], dtype=getattr(xp, dtype))))
    assert not np.signbit(zeros.real).any() and not np.signbit(zeros.imag).any()
    small = np.array([1e-9 + 1e-9j, -1e-7 + 2e-5j, 0.5 - 0.25j, 3 + 1j], dtype)
    wide = small.astype(complex)
    expected = np.expm1(wide.real) * np.cos(wide.imag) - 2 * np.sin(wide.imag / 2) ** 2 + 1j * np.exp(wide.real) * np.sin(wide.imag)
    near = 1e-6 if dtype == "complex64" else 1e-14
    np.testing.assert_allclose(np.from_dlpack(xp.expm1(xp.asarray(small))), expected, rtol=near)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_the_hyperbolic_tangent_at_infinity_has_the_signs_of_its_argument(dtype):
    z = np.array([complex(re, im) for re in [np.inf, -np.inf] for im in [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1e20]], dtype)
    result = np.from_dlpack(xp.tanh(xp.asarray(z)))
    np.testing.assert_array_equal(result.real, np.sign(z.real))
    assert (result.imag == 0).all() and (np.signbit(result.imag) == np.signbit(z.imag)).all()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_quotients_by_infinite_complex_numbers_are_zero(dtype):
    x = xp.asarray([1 + 1j, -2 - 1j, 0j], dtype=getattr(xp, dtype))
    for y in [complex(np.inf, 0), complex(-1, np.inf), complex(np.inf, -np.inf)]:
        assert xp.all((x / xp.asarray(y, dtype=x.dtype)) == 0) and complex(xp.reciprocal(xp.asarray(y, dtype=x.dtype))) == 0
    large = xp.asarray([3e38 + 3e38j if dtype == "complex64" else 1e308 + 1e308j], dtype=x.dtype)
    assert complex((large / large)[0]) == 1


@pytest.mark.parametrize("dtype", INTEGERS)
def test_functions_of_the_largest_and_smallest_integers(dtype):
    limits = np.iinfo(dtype)
    x = np.array([0, 1, 2, 3, 5, limits.max, limits.max - 1, limits.min, limits.min + 1], dtype)
    for name in "abs bitwise_invert ceil floor isfinite isinf isnan negative positive round sign square trunc".split():
        assert_special(getattr(xp, name)(xp.asarray(x)), getattr(np, name)(x), [x], 0)
    x, y = (part.ravel() for part in np.meshgrid(x, x))
    for name in """add bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift equal floor_divide greater
    greater_equal less less_equal maximum minimum multiply not_equal pow remainder subtract""".split():
        defined = np.ones(len(x), bool)
        if name in ("floor_divide", "remainder"):
            defined = y != 0
        if "shift" in name:
            defined = (y >= 0) & (y < limits.bits)
        if name == "pow":
            defined = (y >= 0) & (y < 4)
        a, b = x[defined], y[defined]
        assert_special(getattr(xp, name)(xp.asarray(a), xp.asarray(b)), getattr(np, name)(a, b), [a, b], 0)


def parts_of_every_size(dtype):
    """Parts from the smallest to the largest, among them those whose squares or absolute values are out of range."""
    limits = np.finfo(dtype)
    large, small, step = float(limits.max), float(limits.tiny), float(limits.eps)
    sizes = [0.0, small, small**0.75, math.sqrt(small), step, 1e-3, 0.5, 1 - step, 1.0, 1 + step, 1.5, 3.7, 1 / step]
    sizes += [math.sqrt(large) / 4, math.sqrt(large) * 2, large / 4, large / 2, large]
    return [sign * float(limits.dtype.type(size)) for size in sizes for sign in (1, -1)]


def near(x, expected, limits):
    if math.isinf(expected) or abs(expected) > 0.99 * float(limits.max):
        return math.isinf(x) or abs(x) > 0.98 * float(limits.max)
    return abs(x - expected) <= 1e3 * float(limits.eps) * abs(expected) + 2 * float(limits.tiny)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", "acos acosh asin asinh atan atanh log log10 sqrt".split())
def test_complex_functions_are_right_for_parts_of_every_size(name, dtype):
    limits = np.finfo(dtype)
    parts = parts_of_every_size(limits.dtype)
    numbers = [complex(*pair) for pair in itertools.product(parts, parts)]
    if name in ("atan", "atanh"):
        # Next to the poles Python's own function is infinite.
        numbers = [z for z in numbers if not {abs(z.real), abs(z.imag)} == {1.0, math.sqrt(float(limits.tiny))}]
    results = np.from_dlpack(getattr(xp, name)(xp.asarray(numbers, dtype=getattr(xp, dtype)))).tolist()
    wrong = []
    for z, result in zip(numbers, results):
        try:
            expected = getattr(cmath, name)(z)
        except ValueError:  # at a pole
            continue
        size = max(abs(expected.real), abs(expected.imag))
        if not (cmath.isinf(expected) or near(abs(result - expected) + size, size, limits)):
            wrong.append((z, result, expected))
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_the_sign_of_the_largest_complex_numbers_is_on_the_unit_circle(dtype):
    large = float(np.finfo(dtype).max)
    z = xp.asarray([large + large * 1j, complex(-large, large / 2), large * 1j], dtype=getattr(xp, dtype))
    expected = [(1 + 1j) / math.sqrt(2), (-2 + 1j) / math.sqrt(5), 1j]
    np.testing.assert_allclose(np.from_dlpack(xp.sign(z)), expected, rtol=1e-6)


def test_the_inverse_tangent_next_to_its_poles_is_finite():
    for size in [1e-100, 1e-160, 1e-282, 2.3e-308]:
        expected = (math.log(2) - math.log(size)) / 2
        z = complex(xp.atanh(xp.asarray(complex(1, size), dtype=xp.complex128)))
        assert math.isclose(z.real, expected, rel_tol=1e-14) and math.isclose(z.imag, math.pi / 4, rel_tol=1e-14)
        z = complex(xp.atan(xp.asarray(complex(size, -1), dtype=xp.complex128)))
        assert math.isclose(z.real, math.pi / 4, rel_tol=1e-14) and math.isclose(z.imag, -expected, rel_tol=1e-14)

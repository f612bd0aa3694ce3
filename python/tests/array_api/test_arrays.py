"""What the standard says of arrays themselves: operators, indices, numbers, devices, DLPack."""

import operator

import hesper.array_api as xp
import numpy as np
import pytest

INTEGERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
FLOATS = ["float32", "float64"]
COMPLEX = ["complex64", "complex128"]
ALL = ["bool", *INTEGERS, *FLOATS, *COMPLEX]

ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]
BITWISE = ["and_", "or_", "xor", "lshift", "rshift"]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]


def as_numpy(x):
    return np.from_dlpack(x)


def equal(ours, theirs, tolerance=1e-6):
    theirs = np.asarray(theirs)
    assert str(ours.dtype).rpartition(".")[2] == theirs.dtype.name
    np.testing.assert_allclose(as_numpy(ours), theirs, rtol=tolerance)


def operands(name, dtype):
    if name in ("truediv", "pow") and dtype in INTEGERS:
        return name == "pow"
    if name in ("floordiv", "mod") and dtype in COMPLEX:
        return False
    if name in BITWISE:
        return dtype in INTEGERS or (dtype == "bool" and "shift" not in name)
    if name in COMPARISONS:
        return dtype not in COMPLEX or name in ("eq", "ne")
    return dtype != "bool"


@pytest.mark.parametrize("dtype", ALL)
def test_operators_take_arrays_and_numbers_on_both_sides(dtype):
    x = np.array([[1, 2, 3], [2, 1, 1]], dtype)
    y = np.array([1, 3, 2], dtype)
    number = {"b": True, "u": 2, "i": 2, "f": 2.5, "c": 2.5 - 1j}[np.dtype(dtype).kind]
    for name in filter(lambda name: operands(name, dtype), ARITHMETIC + BITWISE + COMPARISONS):
        function = getattr(operator, name)
        near = 1e-5 if dtype in ("float32", "complex64") else 1e-12
        equal(function(xp.asarray(x), xp.asarray(y)), function(x, y), near)
        equal(function(xp.asarray(x), number), function(x, number), near)
        equal(function(number, xp.asarray(x)), function(number, x), near)
        if name in COMPARISONS:
            continue
        ours, theirs = xp.asarray(x, copy=True), x.copy()
        in_place = getattr(operator, "i" + name.strip("_"))
        equal(in_place(ours, xp.asarray(y)), in_place(theirs, y), near)
        equal(in_place(ours, number), in_place(theirs, number), near)
    for name in ["neg", "pos", "abs"]:
        if dtype != "bool":
            equal(getattr(operator, name)(xp.asarray(x)), getattr(operator, name)(x))
    if dtype in INTEGERS + ["bool"]:
        equal(~xp.asarray(x), ~x)


def test_bitwise_operators_refuse_floats_on_both_sides():
    for other in [1.5, xp.asarray(1.5)]:
        with pytest.raises(ValueError, match="bitwise and"):
            operator.and_(other, xp.asarray([1, 2]))


def test_an_operand_that_a_type_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="overflow"):
        xp.asarray([1], dtype=xp.int32) + 2**63
    assert (xp.asarray([1], dtype=xp.uint64) + (2**64 - 2)).tolist() == [2**64 - 1]
    assert (xp.asarray([1.0], dtype=xp.float64) * 2**63).tolist() == [2.0**63]


@pytest.mark.parametrize("dtype", ALL)
def test_arrays_without_axes_are_numbers(dtype):
    x = xp.asarray(1, dtype=getattr(xp, dtype))
    assert bool(x) is True and isinstance(complex(x), complex)
    if dtype not in COMPLEX:
        assert isinstance(int(x), int) and isinstance(float(x), float)
    else:
        for convert in [int, float]:
            with pytest.raises(TypeError):
                convert(x)
    if dtype in INTEGERS:
        assert [5, 6][x] == 6
    else:
        with pytest.raises(TypeError, match="index"):
            operator.index(x)


KEYS = [
    (),
    0,
    -1,
    (1, -2),
    slice(1, None),
    slice(None, None, -1),
    (slice(5, 0, -2), ...),
    (..., 0),
    (None, ..., None),
    (0, None, slice(0, 2)),
    (slice(1, 1), 0),
    (0, 1, 2),
]


@pytest.mark.parametrize("dtype", ALL)
def test_indices_name_the_elements_that_numpy_gives(dtype):
    x = (np.arange(24) % 2 if dtype == "bool" else np.arange(24)).astype(dtype).reshape(2, 3, 4)
    for key in KEYS:
        equal(xp.asarray(x)[key], x[key])
    masks = [x != 0, x[:, :, 0] != 0, x[:, 0, 0] != 0, np.array(True), np.array(False), np.zeros((0, 3), bool)]
    for mask in masks:
        equal(xp.asarray(x)[xp.asarray(mask)], x[mask])
    places = np.array([1, 0, 1]), np.array([[0], [2]])
    ours = tuple(map(xp.asarray, places))
    equal(xp.asarray(x)[ours[0]], x[places[0]])
    equal(xp.asarray(x)[ours], x[places])
    equal(xp.asarray(x)[ours[0], 1, 2], x[places[0], 1, 2])
    equal(xp.asarray(x)[1, ours[1], -1], x[1, places[1], -1])
    equal(xp.asarray(x)[..., ours[0]], x[..., places[0]])


@pytest.mark.parametrize("dtype", ALL)
def test_elements_are_set(dtype):
    x = np.zeros((2, 3), dtype)
    value = {"b": True, "u": 3, "i": -3, "f": 0.1, "c": 0.1 + 2j}[np.dtype(dtype).kind]
    masks = [np.array([[True, False, True], [False, True, False]]), np.array([False, True]), np.array(True)]
    for key in [0, (1, -1), ..., slice(None, None, 2), (slice(None), 1), np.array([1, 0]), *masks]:
        for given in [value, np.asarray(value, dtype)]:
            ours, theirs = xp.asarray(x, copy=True), x.copy()
            theirs[key] = given
            own = xp.asarray(key) if isinstance(key, np.ndarray) else key
            ours[own] = xp.asarray(given) if isinstance(given, np.ndarray) else given
            np.testing.assert_array_equal(as_numpy(ours), theirs)
    big = xp.zeros(2, dtype=xp.uint64)
    big[0] = 2**64 - 1
    assert big.tolist() == [2**64 - 1, 0]


def test_indices_out_of_range_are_index_errors():
    x = xp.zeros((2, 3))
    for key in [2, (0, 3), -3]:
        with pytest.raises(IndexError):
            x[key]
    for shape in [(3,), (2, 2), (2, 3, 1), (1, 3)]:
        with pytest.raises(IndexError, match="mask|axes"):
            x[xp.zeros(shape, dtype=xp.bool)]


def test_arrays_know_their_device_and_move():
    device = xp.__array_namespace_info__().default_device()
    x = xp.asarray([1.0, 2.0], device=device)
    assert x.device == device and x.to_device(device).tolist() == [1.0, 2.0]
    for other in xp.__array_namespace_info__().devices():
        moved = x.to_device(other)
        assert moved.device == other and (moved + moved).tolist() == [2.0, 4.0]
        assert xp.zeros((2,), device=other).device == other
    with pytest.raises(TypeError):
        x.to_device("cpu")


@pytest.mark.parametrize("dtype", ALL)
def test_dlpack_shares_or_copies(dtype):
    x = xp.asarray([[0, 1], [1, 1]], dtype=getattr(xp, dtype))
    assert x.__dlpack_device__() == (1, 0)
    for copy in [None, True]:
        taken = xp.from_dlpack(x, copy=copy)
        assert taken.dtype == x.dtype and taken.tolist() == x.tolist()
        assert np.from_dlpack(x, copy=copy).tolist() == x.tolist()
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(2, 0))

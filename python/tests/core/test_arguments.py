"""Odd but allowed arguments, and what comes of them: types of results, shapes, numbers; beside the reference."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import hesper.core as mx

CASES = {
    "broadcast_arrays": lambda m: m.broadcast_arrays(m.ones((2, 1)), m.ones((3,))),
    "meshgrid": lambda m: m.meshgrid(m.array([1, 2]), m.array([3.0])),
    "numbers rounded to decimals": lambda m: [m.round(m.arange(-400.0, 400.0) / 7, n).view(m.int32) for n in (-2, -1, 1, 2, 4)],
    "halves rounded to decimals": lambda m: [m.round(m.arange(64, dtype=m.float16) / 7, n).view(m.int16) for n in (-1, 1, 2)],
    "integers rounded to tens": lambda m: m.round(m.arange(-50, 50), -1),
    "devices by number": lambda m: [m.add(1, 2, stream=0), m.array([m.Device(0) == m.Device(m.cpu), m.default_stream(0).device == m.cpu])],
    "arange of a stop, a step and a type": lambda m: m.arange(5, 2, m.float16),
    "arange of a stop and a type": lambda m: m.arange(3, None, m.float32),
    "arange by name": lambda m: m.arange(stop=3),
    "sum of a number": lambda m: m.sum(m.array(3, dtype=m.int16)),
    "sum of a flag": lambda m: m.sum(m.array(True)),
    "product of a number": lambda m: m.prod(m.array(3, dtype=m.int8)),
    "steps along one axis": lambda m: m.roll(m.arange(10).reshape(5, 2), (1, 2), 0),
    "steps along an axis of NumPy": lambda m: m.roll(m.arange(10).reshape(5, 2), (1, 2), np.int32(0)),
    "steps along a list of one axis": lambda m: m.roll(m.arange(10).reshape(5, 2), (1, 2), (0,)),
    "trace of small integers": lambda m: m.trace(m.ones((2, 2), dtype=m.int8), dtype=m.int8),
    "trace in another type": lambda m: m.trace(m.ones((2, 2)), dtype=m.float16),
    "spread with more than there are": lambda m: m.var(m.array([1.0, 2.0, 4.0]), ddof=-1),
    "deviation of integers": lambda m: m.array([1, 2, 4]).std(ddof=-1),
    "chosen products of vectors": lambda m: m.gather_mm(m.ones((3,)), m.ones((3,))),
    "chosen products of a row": lambda m: m.gather_mm(m.ones((3,)), m.ones((3, 2))),
    "an axis of NumPy's": lambda m: m.expand_dims(m.ones((2, 3)), np.int32(-1)),
    "axes of NumPy's": lambda m: m.sum(m.ones((2, 3)), axis=(np.int64(0), np.int8(1))),
    "a sum over an axis of NumPy's": lambda m: m.sum(m.ones((2, 3)), axis=np.int64(1)),
    "a convolution of padding": lambda m: m.conv2d(m.ones((1, 0, 3, 2)), m.ones((3, 2, 2, 2)), padding=1),
    "a mask for all blocks": lambda m: m.block_masked_mm(
        m.ones((64, 64)), m.ones((64, 64)), 32, m.array([[True]]), m.array([[2.0], [3.0]])
    ),
    "no elements of an empty axis": lambda m: m.zeros((3, 0, 3))[5:100, m.array([0, 0])],
    "a product of complex matrices without indices": lambda m: m.gather_mm(m.array([[1j, 2]]), m.array([[1j], [3]])),
    "a complex number beside a matrix": lambda m: m.addmm(m.ones((2, 3)), m.array([1j, 2]), m.ones(2), 0.5, 2.0),
    "a bias without a weight": lambda m: m.fast.layer_norm(m.ones((2, 4), dtype=m.float16), None, m.ones(4), 1e-5),
    "a transform of one integer": lambda m: m.hadamard_transform(m.array([[5], [6]])),
    "a softmax of one integer": lambda m: m.softmax(m.array(5)),
    "a softmax of no integers": lambda m: m.softmax(m.zeros((0, 3), m.int32)),
    "an update of whole axes": lambda m: m.slice_update(m.zeros((3, 2, 2)), m.array([7.0, 8.0]), m.array([1]), (0,)),
    "an update at two starts": lambda m: m.slice_update(m.zeros((3, 2, 2)), m.array([7.0]), m.array([1, 1]), (0, -1)),
    "a derivative of rows": lambda m: m.vjp(lambda a, b: a * b, m.array([[1.0], [2.0]]), m.array([[3.0]]))[1],
    "a tangent of a test": lambda m: m.jvp(m.isnan, [m.array([1.0, 2.0])], [m.array([1.0, 1.0])])[1],
    "chosen products of a column": lambda m: m.gather_mm(m.ones((2, 3)), m.ones((3,))),
}

UPDATES = {
    "a whole array by a number of NumPy's": lambda m, x: x.__setitem__(..., np.float32(2)),
    "a whole array by an array of NumPy's": lambda m, x: x.__setitem__(None, np.array([3, 4, 5])),
    "a part by an array of NumPy's": lambda m, x: x.__setitem__(slice(1, None), np.array([2.5, 3.5])),
}

TOO_LARGE = {
    "sum": lambda m, n: m.sum(m.ones(3), axis=n),
    "sums": lambda m, n: m.sum(m.ones(3), axis=(0, n)),
    "cumsum": lambda m, n: m.cumsum(m.ones(3), axis=n),
    "sort": lambda m, n: m.sort(m.ones(3), axis=n),
    "topk": lambda m, n: m.topk(m.ones(3), n),
    "stack": lambda m, n: m.stack([m.ones(3)], n),
    "concatenate": lambda m, n: m.concatenate([m.ones(3)], axis=n),
    "diagonal": lambda m, n: m.ones((2, 2)).diagonal(n),
    "moveaxis": lambda m, n: m.ones((2, 2)).moveaxis(0, n),
    "eye": lambda m, n: m.eye(3, k=n),
    "fft": lambda m, n: m.fft.fft(m.ones(3), axis=n),
    "conv1d": lambda m, n: m.conv1d(m.ones((1, 3, 1)), m.ones((1, 2, 1)), stride=n),
    "permutation": lambda m, n: m.random.permutation(m.ones(3), axis=n),
}

KINDS = {
    "a cross product along an axis that one lacks": lambda m: m.linalg.cross(m.ones((3, 2)), m.ones(2), axis=-2),
    "an axis that is not there before indices of a wrong type": lambda m: m.take_along_axis(m.ones(3), m.ones(3), 3),
}

WRONG = {
    "repeat": lambda m: m.repeat(m.array([1, 2]), -1),
    "topk": lambda m: m.topk(m.array([1, 2]), -1),
    "eye": lambda m: m.eye(-1),
    "categorical": lambda m: m.random.categorical(m.ones((2, 3)), num_samples=-1),
    "split": lambda m: m.random.split(m.random.key(0), -1),
    "block_masked_mm": lambda m: m.block_masked_mm(m.ones((32, 32)), m.ones((32, 32)), -1),
    "arange": lambda m: m.arange(True),
    "vecdot": lambda m: m.vecdot(m.array(1.0), m.array(1.0)),
}


def parts(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


@pytest.mark.parametrize("name", CASES)
def test_odd_arguments_give_what_the_reference_gives(name, mlx):
    ours, theirs = CASES[name](mx), CASES[name](mlx)
    assert type(ours).__name__ == type(theirs).__name__
    for one, other in zip(parts(ours), parts(theirs), strict=True):
        assert str(one.dtype).split(".")[-1] == str(other.dtype).split(".")[-1]
        np.testing.assert_allclose(np.array(one), np.array(other), rtol=1e-6)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_numbers_are_value_errors(name):
    with pytest.raises(ValueError):
        mx.eval(WRONG[name](mx))


@pytest.mark.parametrize("name", UPDATES)
def test_updates_keep_the_type_of_the_array(name, mlx):
    for dtype in ("int32", "float16", "complex64"):
        changed = []
        for m in (mx, mlx):
            x = m.zeros((3,), getattr(m, dtype))
            UPDATES[name](m, x)
            changed.append((str(x.dtype).split(".")[-1], x.tolist()))
        assert changed[0] == changed[1]


@pytest.mark.parametrize("name", TOO_LARGE)
def test_integers_beyond_32_bits_are_of_the_wrong_type(name, mlx):
    for number in (2**31, -(2**33), 2**70):
        for m in (mx, mlx):
            with pytest.raises(TypeError):
                TOO_LARGE[name](m, number)


@pytest.mark.parametrize("name", KINDS)
def test_errors_are_of_the_type_that_the_reference_gives(name, mlx):
    with pytest.raises((ValueError, IndexError)) as theirs:
        KINDS[name](mlx)
    with pytest.raises(type(theirs.value)):
        KINDS[name](mx)


CONVOLUTIONS = {
    "plain": ((2, 5, 6, 4), (2, 3, 2, 4), {}),
    "groups": ((1, 5, 6, 4), (2, 3, 2, 2), {"stride": 2, "padding": 1, "groups": 2}),
    "dilations": ((2, 5, 2), (3, 2, 2), {"padding": ([1], [2]), "kernel_dilation": 2, "input_dilation": 3}),
    "points": ((1, 2, 3, 2, 2), (3, 1, 1, 1, 2), {}),
}

PADDINGS = ["[[1, 1], [2, 2]]", "[(1, 0), (0, 2)]", "([1, 2], [3])", "([], [])", "np.array([[1, 2], [1, 2]])", "[1, [1]]", "([1, 2],)",
            "[[1], [1], [1]]", "'ab'"]  # fmt: skip


@pytest.mark.parametrize("padding", PADDINGS)
def test_paddings_before_and_after_are_any_two_sequences(mlx, padding):
    def shape(m):
        try:
            return m.conv_general(m.ones((1, 4, 8, 3)), m.ones((2, 3, 3, 3)), padding=eval(padding)).shape
        except TypeError:
            return TypeError

    assert shape(mx) == shape(mlx)



@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_in_double_precision_keep_their_digits(name):
    shape, weight, options = CONVOLUTIONS[name]
    random = np.random.default_rng(3)
    # Small integers, whose sums are exact in both types, and a part that only double precision holds.
    x, w = random.integers(-4, 5, shape), random.integers(-4, 5, weight)
    part = 2.0**-40
    exact = mx.conv_general(mx.array(x * 1.0, mx.float64), mx.array(w * (1 + part), mx.float64), **options)
    single = mx.conv_general(mx.array(x * 1.0, mx.float32), mx.array(w * 1.0, mx.float32), **options)
    assert exact.dtype == mx.float64
    np.testing.assert_array_equal(np.array(exact), np.array(single).astype(np.float64) * (1 + part))
    whole = mx.grad(lambda w: mx.conv_general(mx.array(x * 1.0, mx.float64), w, **options).sum())
    assert whole(mx.array(w * 1.0, mx.float64)).dtype == mx.float64


class Half:
    """A number of another library: it converts, and is no number itself."""

    def __float__(self):
        return 0.5


NUMBERS = {"Decimal": Decimal("0.5"), "Fraction": Fraction(1, 2), "an object": Half()}
OPERANDS = {
    "sum": lambda c, x, n: x + n,
    "reflected difference": lambda c, x, n: n - x,
    "in place": lambda c, x, n: c.multiply(x, n),
    "comparison": lambda c, x, n: x == n,
    "order": lambda c, x, n: x < n,
    "function": lambda c, x, n: c.exp(n),
    "choice": lambda c, x, n: c.where(x > 1, n, x),
    "update": lambda c, x, n: x.at[0].add(n),
    "filled": lambda c, x, n: c.full((2,), n),
    "padded": lambda c, x, n: c.pad(x, 1, constant_values=n),
}


@pytest.mark.parametrize("name", OPERANDS)
@pytest.mark.parametrize("number", NUMBERS)
def test_what_converts_to_a_number_is_a_complex_number(mlx, number, name):
    found, expected = (
        OPERANDS[name](core, core.arange(4.0), NUMBERS[number]) for core in (mx, mlx)
    )
    assert str(found.dtype).split(".")[-1] == str(expected.dtype).split(".")[-1]
    assert found.tolist() == expected.tolist()


OF_WRONG_TYPE = {
    "a product with text": lambda c, x: x @ "a",
    "a product with an object": lambda c, x: x @ object(),
    "a reflected product": lambda c, x: {} @ x,
    "a product with a number of numpy": lambda c, x: x @ np.float32(2),
    "a bitwise operator": lambda c, x: object() & x.astype(c.int32),
    "a bitwise operator with a fraction": lambda c, x: x.astype(c.int32) & Fraction(1, 2),
    "a location of several elements": lambda c, x: c.random.laplace((4,), loc=x),
    "a scale of several elements": lambda c, x: c.random.laplace((4,), scale=x),
    "a bound of several elements": lambda c, x: c.linspace(0, x, 3),
    "a permutation of a list": lambda c, x: c.random.permutation([1, 2]),
    "a permutation of text": lambda c, x: c.random.permutation("a"),
    "decimals beyond 32 bits": lambda c, x: c.round(x, 2**40),
}


@pytest.mark.parametrize("name", OF_WRONG_TYPE)
def test_objects_of_the_wrong_type_give_the_errors_of_the_reference(mlx, name):
    kinds = []
    for core in (mx, mlx):
        with pytest.raises((TypeError, ValueError)) as error:
            OF_WRONG_TYPE[name](core, core.arange(4.0))
        kinds.append(error.type)
    assert kinds[0] is kinds[1]


def test_a_number_of_numpy_is_a_count_of_parts():
    assert [part.tolist() for part in mx.split(mx.arange(4), np.int64(2))] == [[0, 1], [2, 3]]

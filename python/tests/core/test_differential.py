"""Functions, types, shapes and strides, generated, against the reference."""

import itertools
import re

import numpy as np
import pytest

import hesper.core as mx

INTEGERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", "bfloat16", "float32"]
TYPES = ["bool_", *INTEGERS, *FLOATS, "complex64"]

UNARY = (
    "abs negative sign square sqrt rsqrt exp expm1 log log1p log2 log10 sin cos tan sinh cosh tanh arcsin "
    "arccos arctan arcsinh arctanh sigmoid erf floor ceil trunc reciprocal isnan isinf isfinite logical_not "
    "bitwise_invert conjugate real imag degrees radians positive"
).split()
BINARY = (
    "add subtract multiply divide floor_divide remainder power maximum minimum logaddexp arctan2 equal "
    "not_equal less less_equal greater greater_equal logical_and logical_or bitwise_and bitwise_or "
    "bitwise_xor left_shift right_shift"
).split()
REDUCE = "sum prod max min mean var std any all argmax argmin logsumexp cumsum cumprod cummax cummin".split()

TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "complex64": 2e-5}


def numbers(dtype: str, shape: tuple, seed: int) -> np.ndarray:
    """Numbers that are exact in every type, positive and small where that keeps results in range."""
    random = np.random.default_rng(seed)
    if dtype == "bool_":
        return random.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        return random.integers(1, 7, shape).astype(dtype)
    values = random.integers(1, 15, shape).astype(np.float32) / 16
    if dtype == "complex64":
        return (values + 1j * random.integers(1, 15, shape) / 16).astype(np.complex64)
    return values


def made(core, dtype: str, values: np.ndarray):
    return core.array(values).astype(getattr(core, dtype))


VIEWS = {
    "rows": lambda core, x: x,
    "columns": lambda core, x: core.transpose(x),
    "slices": lambda core, x: x[::2, 1:],
    "reversed": lambda core, x: x[:, ::-1],
    "stretched": lambda core, x: core.broadcast_to(x[:1], x.shape),
}


def outcome(call):
    """What a call gives as (type, shape, numbers), or the kind of its exception."""
    try:
        result = call()
    except Exception as error:
        return type(error).__name__
    if isinstance(result, (list, tuple)):
        return [outcome(lambda part=part: part) for part in result]
    name = repr(result.dtype).split(".")[-1]
    if name == "bfloat16":
        result = result.astype(_float32(result))
    return name, tuple(result.shape), np.array(result)


def _float32(array):
    return mx.float32 if isinstance(array, mx.array) else __import__("mlx.core").core.float32


# Calls that the reference refuses and the array API standard asks for.
BEYOND = re.compile(r"expm1 of complex64|x @ .* of u?int\d+")


def agree(own, other, label):
    if isinstance(other, str) and BEYOND.match(label):
        return
    if isinstance(other, str) or isinstance(own, str):
        assert own == other, label
        return
    if isinstance(other, list):
        assert len(own) == len(other), label
        for one, two in zip(own, other):
            agree(one, two, label)
        return
    assert own[:2] == other[:2], label
    tolerance = TOLERANCE.get(other[0], 0)
    np.testing.assert_allclose(own[2], other[2], rtol=tolerance, atol=tolerance, err_msg=label)


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_array(mlx, name):
    for dtype, (view, look) in itertools.product(TYPES, VIEWS.items()):
        values = numbers(dtype, (4, 6), 1)
        own = outcome(lambda: getattr(mx, name)(look(mx, made(mx, dtype, values))))
        other = outcome(lambda: getattr(mlx, name)(look(mlx, made(mlx, dtype, values))))
        agree(own, other, f"{name} of {dtype}, {view}")


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_arrays(mlx, name):
    shapes = [((4, 6), (4, 6)), ((4, 6), (6,)), ((4, 1), (1, 6))]
    for (left, right), shape in itertools.product(_pairs(), shapes):
        a, b = numbers(left, shape[0], 1), numbers(right, shape[1], 2)
        own = outcome(lambda: getattr(mx, name)(made(mx, left, a), made(mx, right, b)))
        other = outcome(lambda: getattr(mlx, name)(made(mlx, left, a), made(mlx, right, b)))
        agree(own, other, f"{name} of {left} {shape[0]} and {right} {shape[1]}")


def _pairs():
    yield from ((dtype, dtype) for dtype in TYPES)
    yield from [
        ("int32", "float16"),
        ("uint8", "int8"),
        ("uint32", "int32"),
        ("float16", "bfloat16"),
        ("bool_", "int16"),
        ("int64", "float32"),
        ("float32", "complex64"),
    ]


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("number", [True, 2, 0.5, 1j], ids=str)
def test_numbers_take_the_type_of_the_array_beside_them(mlx, name, number):
    for dtype in TYPES:
        values = numbers(dtype, (5,), 1)
        own = outcome(lambda: getattr(mx, name)(made(mx, dtype, values), number))
        other = outcome(lambda: getattr(mlx, name)(made(mlx, dtype, values), number))
        agree(own, other, f"{name} of {dtype} and {number}")


@pytest.mark.parametrize("name", REDUCE)
def test_reductions_and_scans(mlx, name):
    axes = [None, 0, -1] if name.startswith(("cum", "arg")) else [None, 0, -1, (0, 1), (2, 0)]
    # The reference overflows integers here.
    types = [*FLOATS, "complex64"] if name == "logsumexp" else TYPES
    for dtype, axis in itertools.product(types, axes):
        values = numbers(dtype, (2, 3, 4), 1)
        for turned in (False, True):

            def call(core):
                x = made(core, dtype, values)
                x = core.transpose(x, (2, 0, 1)) if turned else x
                return getattr(core, name)(x, axis=axis)

            agree(outcome(lambda: call(mx)), outcome(lambda: call(mlx)), f"{name} of {dtype} over {axis}")


MOVEMENT = [
    "mx.reshape(x, (3, -1))",
    "mx.reshape(x, (5, 5))",
    "mx.transpose(x, (1, 0, 2))",
    "mx.transpose(x, (1, 0))",
    "mx.squeeze(x[:, :1], 1)",
    "mx.squeeze(x, 0)",
    "mx.expand_dims(x, (0, -1))",
    "mx.concatenate([x, x[:1]], 0)",
    "mx.concatenate([x, x[:1]], 1)",
    "mx.stack([x, x], -1)",
    "mx.split(x, 2, 2)",
    "mx.split(x, 3, 2)",
    "mx.split(x, [1, 3], 2)",
    "mx.tile(x, (2, 1, 1))",
    "mx.repeat(x, 2, 1)",
    "mx.roll(x, 1, 2)",
    "mx.roll(x, (1, 2), (0, 1))",
    "mx.flip(x, 0)",
    "mx.pad(x, ((0, 0), (1, 2), (0, 0)))",
    "mx.pad(x, 1, constant_values=1)",
    "mx.take(x, mx.array([0, 2]), 1)",
    "mx.take_along_axis(x, mx.array([[[0], [1], [2]]]), 1)",
    "mx.moveaxis(x, 0, 2)",
    "mx.swapaxes(x, 0, 3)",
    "mx.flatten(x, 1)",
    "mx.unflatten(x, 2, (2, 2))",
    "mx.diagonal(x, 1, 1, 2)",
    "mx.sort(x, 1)",
    "mx.argsort(x[:, :, 0], 1)",
    "mx.where(x.astype(mx.bool_), x, x)",
    "mx.broadcast_to(x, (3, 2, 3, 4))",
    "mx.broadcast_to(x, (2, 3))",
    "mx.tril(x[0])",
    "mx.unstack(x)",
    "mx.meshgrid(x[0, 0], x[0, 1])",
    "mx.as_strided(x, (2, 2), (1, 2), 3)",
    "mx.outer(x[0, 0], x[0, 1])",
    "mx.tensordot(x, x, ([1, 2], [1, 2]))",
    "mx.einsum('ijk,lj->ilk', x, x[:, :, 0])",
    "x @ x[0, 0]",
    "x @ mx.swapaxes(x, 1, 2)",
    "x @ x",
    "mx.inner(x[0], x[1])",
]


@pytest.mark.parametrize("text", MOVEMENT)
def test_functions_that_move_elements(mlx, text):
    for dtype in ["bool_", "uint8", "int32", "int64", "float16", "float32", "complex64"]:
        values = numbers(dtype, (2, 3, 4), 1)
        own = outcome(lambda: eval(text, {"mx": mx, "x": made(mx, dtype, values)}))
        other = outcome(lambda: eval(text, {"mx": mlx, "x": made(mlx, dtype, values)}))
        agree(own, other, f"{text} of {dtype}")


INDICES = [
    "x[0]",
    "x[-1]",
    "x[1, 2]",
    "x[1:]",
    "x[:, 1:3]",
    "x[::-1]",
    "x[..., 0]",
    "x[..., None]",
    "x[None, 1]",
    "x[:, ::2, ::-2]",
    "x[3:1]",
    "x[-100:100]",
    "x[mx.array([0, 1])]",
    "x[mx.array([[0, 1], [1, 0]])]",
    "x[:, mx.array([2, 0])]",
    "x[mx.array([0, 1]), mx.array([2, 0])]",
    "x[mx.array([0, 1]), :, mx.array([2, 0])]",
    "x[0, mx.array([2, 0])]",
    "x[mx.array(1)]",
    "x[mx.array([-1])]",
    "x[[0, 1]]",
    "x[..., mx.array([1]), None]",
    "x[0, 0, 0, 0]",
    "x['a']",
    "x[1.0]",
    "x[True]",
    "x[..., ...]",
]


@pytest.mark.parametrize("text", INDICES)
def test_indexing(mlx, text):
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    own = outcome(lambda: eval(text, {"mx": mx, "x": mx.array(values)}))
    other = outcome(lambda: eval(text, {"mx": mlx, "x": mlx.array(values)}))
    agree(own, other, text)


UPDATES = [
    "x[0] = 1",
    "x[0] = 1.5",
    "x[:, 1] = mx.array([1, 2, 3, 4])",
    "x[::2] = x[:1]",
    "x[..., 0] = mx.array([[1], [2]])",
    "x[mx.array([0, 1])] = 5",
    "x[mx.array([0, 1]), mx.array([2, 0])] = mx.ones((2, 4))",
    "x[1, mx.array([0, 2])] = 7",
    "x[x > 5] = 0",
    "x[0] = mx.ones((7,))",
    "x[5:] = 3",
    "x[:, ::-1] = x",
    "x += 1",
    "x -= mx.ones((4,))",
    "x *= 2.5",
    "x /= 2",
    "x //= 2",
    "x **= 2",
    "x %= 3",
]


@pytest.mark.parametrize("text", UPDATES)
def test_updates_in_place(mlx, text):
    for dtype in ["int32", "float32"]:
        values = np.arange(24).reshape(2, 3, 4).astype(dtype)

        def run(core):
            scope = {"mx": core, "x": core.array(values)}
            exec(text, scope)
            return scope["x"]

        agree(outcome(lambda: run(mx)), outcome(lambda: run(mlx)), f"{text} of {dtype}")


@pytest.mark.parametrize("how", ["add", "subtract", "multiply", "divide", "maximum", "minimum"])
def test_updates_at_repeated_indices(mlx, how):
    def run(core):
        x = core.array(np.arange(6, dtype=np.float32).reshape(3, 2) + 1)
        return getattr(x.at[core.array([0, 2, 0])], how)(core.array([[2.0, 4.0], [3.0, 5.0], [7.0, 2.0]]))

    agree(outcome(lambda: run(mx)), outcome(lambda: run(mlx)), how)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (9,), (0,), (2, 3), (2, 0), (8, 9), (2, 3, 2)], ids=str)
def test_arrays_are_shown_as_the_reference_shows_them(mlx, dtype, shape):
    values = numbers(dtype, shape, 3)
    own, other = made(mx, dtype, values), made(mlx, dtype, values)
    assert repr(own) == repr(other)
    assert str(own) == str(other)


@pytest.mark.parametrize("value", [0.1, 1e-5, 123456.0, 1234567.0, 1e10, float("nan"), float("inf"), -0.0, 1 / 3])
def test_numbers_are_shown_as_the_reference_shows_them(mlx, value):
    for dtype in FLOATS:
        assert repr(mx.array(value, getattr(mx, dtype))) == repr(mlx.array(value, getattr(mlx, dtype)))
    for precision in (-1, 0, 3, 8):
        with mx.printoptions(precision=precision), mlx.printoptions(precision=precision):
            assert repr(mx.array(value)) == repr(mlx.array(value))

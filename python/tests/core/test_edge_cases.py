"""Arguments at the edge of what a function takes: results and exceptions against the reference."""

import numpy as np
import pytest
from test_differential import agree, outcome

import hesper.core as mx


def same(mlx, text):
    """Run a program of lines with both packages; its last line is an expression."""

    def run(core):
        *lines, last = text.split("; ")
        scope = {"mx": core, "np": np, "inf": float("inf"), "nan": float("nan")}
        exec("\n".join(lines), scope)
        result = eval(last, scope)
        result = result if isinstance(result, (core.array, list, tuple)) else core.array(result)
        core.eval(result)
        return result

    agree(outcome(lambda: run(mx)), outcome(lambda: run(mlx)), text)


DOUBLES = [
    "mx.array(0.37, mx.float64)",
    "mx.zeros((2,), mx.float64) + 0.37",
    "mx.full((2,), 0.37, mx.float64)",
    "mx.full_like(mx.zeros((2,), mx.float64), 0.37)",
    "x = mx.zeros((3,), mx.float64); x[1] = 0.37; x",
    "x = mx.zeros((3,), mx.float64); x[mx.array([0, 2])] = 0.37; x",
    "mx.pad(mx.zeros((1,), mx.float64), 1, constant_values=0.37)",
    "mx.arange(0, 1, 0.37, mx.float64)",
]


@pytest.mark.parametrize("text", DOUBLES)
def test_python_floats_keep_their_precision_in_float64_arrays(mlx, text):
    same(mlx, text)


TRANSFORMS = [
    "mx.fft.fftn(x, s=[4, 6])",
    "mx.fft.fftn(x, s=[3, 5], axes=[1, 0])",
    "mx.fft.fftn(x, axes=[2, 0])",
    "mx.fft.fftn(x, axes=[1, 1, 2])",
    "mx.fft.fftn(x, axes=1)",
    "mx.fft.fftn(x, s=4)",
    "mx.fft.fftn(mx.array(1.0), axes=[0])",
    "mx.fft.fftn(mx.array(1.0))",
    "mx.fft.fft2(x, axes=None)",
    "mx.fft.fft2(x, s=[8])",
    "mx.fft.fft2(x[0, 0])",
    "mx.fft.rfftn(x, axes=[0, 0])",
    "mx.fft.irfftn(x, s=[5, 6], axes=[2, 0])",
    "mx.fft.irfftn(mx.transpose(x), axes=[1, 0])",
    "mx.fft.fft(x, n=-1)",
    "mx.fft.fft(x, n=0)",
    "mx.fft.irfft(x, n=5, axis=0)",
    "mx.fft.fftfreq(8, -0.5)",
    "mx.fft.rfftfreq(7, d=-2)",
    "mx.fft.fftfreq(-1)",
    "mx.fft.rfftfreq(0)",
]


@pytest.mark.parametrize("text", TRANSFORMS)
def test_fourier_transforms_and_their_errors(mlx, text):
    same(mlx, "x = mx.array(np.arange(192).reshape(4, 6, 8).astype(np.float32) % 11); " + text)


RANGES = [
    *[f"mx.arange({arguments})" for arguments in (
        "True", "0, True", "True, 5, True", "'a'", "5, 'a'", "mx.array(3)", "np.int32(3)", "1j", "2**31", "10**10",
        "0, 10**10, dtype=mx.int8", "0, 7, inf", "5, 0, -inf", "5, 0, inf", "0, inf", "nan", "0, 5, 0", "5, -1", "2**40, 2**40 + 3",
        "0, 2**63, 2**62", "0.9, 5.1, 0.7, mx.int64", "0, -3, -1, mx.uint8", "5, mx.float32", "stop=5, step=2", "", "0, 5, dtype=mx.bool_",
    )],
    "mx.linspace(0, 1, None)",
    "mx.linspace(0, 1, -1)",
    "mx.zeros(mx.array([2, 3]))",
    "mx.zeros(np.array([2, 3]))",
    "mx.roll(mx.arange(6), mx.array(2))",
    "mx.split(mx.arange(6), mx.array([1, 4]))",
    "mx.full((2,), 300, mx.uint8)",
    "mx.full_like(mx.zeros((2,), mx.int8), 300)",
]  # fmt: skip


@pytest.mark.parametrize("text", RANGES)
def test_ranges_and_shapes(mlx, text):
    same(mlx, text)


@pytest.mark.parametrize("name", "sqrt rsqrt reciprocal exp log log1p sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh isposinf isneginf".split())  # fmt: skip
def test_complex_functions_of_infinite_and_missing_parts(mlx, name):
    parts = [0.0, 1.0, -1.0, 0.5, -2.5, 100.0, float("inf"), -float("inf"), float("nan")]
    for real in parts:
        for imaginary in parts:
            value = complex(real, imaginary)
            own, other = (outcome(lambda: getattr(core, name)(core.array(value))) for core in (mx, mlx))
            agree(own, other, f"{name}({value})")


@pytest.mark.parametrize("name", "sin cos tan sinh cosh tanh".split())
def test_zeros_of_complex_functions_have_their_sign(mlx, name):
    parts = [0.0, -0.0, 1.0, 2.0, -2.5, 100.0, -100.0, float("inf"), -float("inf"), float("nan")]
    values = np.array([complex(real, imaginary) for real in parts for imaginary in parts], np.complex64)
    own, other = (np.array(getattr(core, name)(core.array(values))).view(np.float32) for core in (mx, mlx))
    zeros = other == 0
    np.testing.assert_array_equal(own == 0, zeros)
    np.testing.assert_array_equal(np.signbit(own)[zeros], np.signbit(other)[zeros])


def test_complex_quotients_of_infinite_and_missing_parts(mlx):
    numbers = [0, 1, -1j, 0.5 + 2j, complex("inf"), complex(0, float("inf")), complex("nan"), 1e20j]
    for a in numbers:
        for b in numbers:
            own, other = (outcome(lambda: core.array(a) / core.array(b)) for core in (mx, mlx))
            agree(own, other, f"{a} / {b}")


CALLS = [
    "mx.random.seed(0); mx.random.truncated_normal(1, -1, (3,))",
    "mx.random.seed(0); mx.random.truncated_normal(mx.array([-1, 1]), mx.array([1, -1]))",
    "mx.random.seed(0); mx.random.truncated_normal(0, 2, (3,))",
    "mx.random.seed(0); mx.random.randint(0, 2**31, (3,))",
    "mx.random.seed(0); mx.random.normal((3,), mx.float64, 0.37, 2)",
    "mx.random.uniform(shape=(2,), dtype=mx.float64)",
    "mx.random.uniform(shape=(2,), dtype=mx.int32)",
    "mx.random.gumbel((2,), mx.float64)",
    "mx.random.truncated_normal(0, 1, (2,), mx.float64)",
    "mx.random.seed(0); mx.random.laplace((3,), mx.float64, 0.5, 2.0)",
    "mx.sum(mx.ones((2, 3)), axis=2**70)",
    "mx.reshape(mx.ones((2, 3)), (2**70, 3))",
    "mx.broadcast_to(mx.ones((2, 3)), (-(2**70), 2, 3))",
    "mx.logsumexp(mx.array([float('nan'), float('inf')]))",
    "mx.logsumexp(mx.array([[float('nan'), 1.0], [float('inf'), float('inf')]]), axis=0)",
    "mx.random.key(-1)",
    "mx.random.seed(2**64); 1",
    "mx.logcumsumexp(mx.array([1 + 2j, 0.5 - 1j, 3j, 1]))",
    "mx.logcumsumexp(mx.array([[1 + 2j, 0.5 - 1j], [3j, 1]]), axis=0, reverse=True)",
    "mx.logcumsumexp(mx.array([1 + 2j, 0.5 - 1j, 3j]), inclusive=False)",
    "mx.logcumsumexp(mx.array([1j]), axis=1)",
    "mx.vecdot(mx.array([1 + 2j, 3j]), mx.array([2 - 1j, 1]))",
    "mx.softmax(mx.array(1.0))",
    "mx.softmax(mx.array(1.0), axis=-1)",
    "mx.logsumexp(mx.array(1.0), axis=0)",
    "mx.searchsorted(mx.array([1.0, 2.0]), 1.5)",
    "mx.searchsorted(mx.array([1.0, 2.0]), mx.array([1.5]), side='x')",
    "mx.pad(mx.zeros((3,)), 1, constant_values=1j)",
    "mx.pad(mx.zeros((2, 3)), ((1,), (2,)))",
    "mx.pad(mx.zeros((3,)), mx.array(1))",
    "mx.pad(mx.zeros((0,)), 1, mode='reflect')",
    "mx.pad(mx.zeros((0,)), 1, mode='symmetric')",
    "mx.pad(mx.zeros((3,)), 1, mode='wrap')",
    "mx.pad(mx.zeros((3,)), -1)",
    "mx.put_along_axis(mx.zeros((3,)), mx.array([0.5]), mx.array([1.0]), 0)",
    "mx.put_along_axis(mx.zeros((3,)), mx.array([0]), 1.0, 0)",
    "mx.take(mx.zeros((3,)), 1.5)",
    "mx.take(mx.zeros((3,)), [0, 1])",
    "mx.isclose(1, 2)",
    "mx.linalg.cholesky(mx.array([[4.0, 2.0], [2.0, 1.0]]))",
    "mx.linalg.cholesky(mx.ones((3, 3)))",
    "mx.linalg.cholesky(mx.zeros((2, 2)))",
    "mx.linalg.norm(mx.array([3j, 4]), 2)",
    "mx.linalg.norm(mx.array([[3j, 4], [1, 2]]), 1)",
    "mx.conv1d(mx.ones((1, 4, 3, 2)), mx.ones((2, 2, 2, 2)))",
    "mx.conv2d(mx.ones((1, 4, 2)), mx.ones((2, 2, 2)))",
    "mx.conv2d(mx.ones((1, 4, 4, 2)), mx.ones((2, 2, 2, 2)), stride=(1,))",
    "mx.conv_general(mx.ones((1, 4, 4, 2)), mx.ones((2, 2, 2, 2)), stride=(1, 2, 3))",
    "mx.random.seed(0); mx.random.normal(loc=mx.array([1, 2]))",
    "mx.quantize(mx.ones((2, 64)), group_size=-1)",
    "mx.sum(mx.ones((2, 3)), axis=mx.array(1))",
    "mx.concatenate([mx.ones((2,)), 1])",
    "mx.clip(1, 0, 2)",
    "mx.tri(-1)",
    "mx.set_memory_limit(-1)",
]


@pytest.mark.parametrize("text", CALLS)
def test_functions_and_their_errors(mlx, text):
    same(mlx, text)


UPDATES = [
    "x[True] = 7",
    "x[False] = 7",
    "x[mx.array(True)] = mx.array([1, 2, 3, 4])",
    "x[mx.array(False)] = mx.zeros((3, 4))",
    "x[0] = 2**40",
    "x[0.5:2] = 1",
    "x[...] = mx.array(1.5)",
    "x[None] = mx.array(2.5, mx.float16)",
    "x[...] = 3",
    "x[(...,)] = mx.array(1.5)",
    "x = x.at[...].add(mx.array([1.5, 2, 3, 4]))",
    "x = x.at[None].maximum(2.5)",
    "x = x[0, 0, 1]; x[()] = mx.array(1.5)",
    "x = x[0, 0, 1].at[None, ...].multiply(mx.array(1.5))",
    "x[mx.array([True])] = 1",
    "x[mx.ones((2, 3, 4, 1), mx.bool_)] = 1",
]


@pytest.mark.parametrize("text", UPDATES)
@pytest.mark.parametrize("dtype", ["int32", "float32", "complex64"])
def test_assignments_with_truth_values_and_wrong_numbers(mlx, text, dtype):
    same(mlx, f"x = mx.array(np.arange(24).reshape(2, 3, 4)).astype(mx.{dtype}); {text}; x")


def test_truth_values_are_masks_for_updates():
    x = mx.array([1, 2])
    assert x.at[True].add(2).tolist() == [3, 4] and x.at[mx.array(False)].multiply(2).tolist() == [1, 2]


def test_only_arrays_without_axes_take_a_format(mlx):
    for core in (mx, mlx):
        assert f"{core.array(1.5):.2f}" == "1.50" and f"{core.array(1.5)}" == "1.5" and f"{core.array(3):d}" == "3"
        assert f"{core.array([1.5])}" == "array([1.5], dtype=float32)"
        with pytest.raises(TypeError):
            f"{core.array([1.5]):.2f}"


def test_contraction_orders_are_those_of_the_reference(mlx):
    random = np.random.default_rng(5)
    for _ in range(150):
        lengths = {name: int(random.integers(1, 10)) for name in "abcdefgh"}
        terms = ["".join(random.choice(list("abcdefgh"), random.integers(1, 4), replace=False)) for _ in range(random.integers(2, 8))]
        names = sorted({*"".join(terms)})
        kept = "".join(random.choice(names, random.integers(0, min(4, len(names)) + 1), replace=False))
        text = f"{','.join(terms)}->{kept}"
        values = [random.standard_normal([lengths[name] for name in term]).astype(np.float32) for term in terms]
        assert mx.einsum_path(text, *map(mx.array, values)) == mlx.einsum_path(text, *map(mlx.array, values)), text
        np.testing.assert_allclose(mx.einsum(text, *map(mx.array, values)), np.einsum(text, *values), rtol=1e-3, atol=1e-3)


def failing(core, stream):
    return core.linalg.inv(core.zeros((2, 2)), stream=stream)


def raised_late(core, stream):
    """Work that fails is started, and the failure is raised when its stream is waited for, not that of another."""
    try:
        core.async_eval(failing(core, stream))
    except RuntimeError:
        # The reference raises at once what has failed before it returns.
        assert core is not mx
        return
    if stream != core.cpu:
        core.synchronize(core.cpu)
    with pytest.raises(RuntimeError):
        core.synchronize(stream)


def test_synchronize_raises_once_what_failed_on_its_stream(mlx):
    for core in (mx, mlx):
        core.synchronize(core.cpu)
        raised_late(core, core.cpu)
        core.synchronize(core.cpu)
        raised_late(core, core.new_stream(core.cpu))
        core.async_eval(core.ones((2,)) + 1)
        core.synchronize(core.cpu)


def test_synchronize_does_not_repeat_what_eval_raised():
    with pytest.raises(RuntimeError):
        mx.eval(failing(mx, mx.cpu))
    mx.async_eval(mx.ones((2,)) + 1)
    mx.synchronize(mx.cpu)


def test_values_for_an_array_as_one_row(mlx):
    def results(core):
        x, indices = core.zeros((2, 3)), core.array([0, 4, 5])
        return core.put_along_axis(x, indices, core.array([[1.0, 2.0, 3.0]]), None).tolist()

    assert results(mx) == results(mlx)


def test_no_widths_are_no_padding(mlx):
    for core in (mx, mlx):
        with pytest.raises(ValueError):
            core.pad(core.ones((2, 3)), ())


ONE_NUMBER_FOR_ALL_AXES = ["np.int32(2)", "mx.array(2)", "(2, 1)", "np.array([2, 1])", "mx.array([2])", "2.0", "'a'"]


@pytest.mark.parametrize("stride", ONE_NUMBER_FOR_ALL_AXES)
def test_strides_of_convolutions_are_any_integers(mlx, stride):
    same(mlx, f"mx.conv2d(mx.ones((1, 4, 4, 1)), mx.ones((1, 1, 1, 1)), {stride})")


@pytest.mark.parametrize("bounds", ["0.5, 2.5", "0.5, -2.5", "-1.5, 1.5", "2.7, 3.2", "mx.array([0.5, 3]), 7", "0, mx.array(2.5)"])
def test_bounds_of_random_integers_may_have_fractions(mlx, bounds):
    same(mlx, f"mx.random.randint({bounds}, (8, 2), key=mx.random.key(3))")


CROSS = ["(3, 3), (3,), 0", "(3, 1), (3,), 0", "(3, 1), (3,), -1", "(2, 3), (2,), 0", "(2, 3), (2, 2), -1", "(4, 1, 3), (5, 3), -1"]


@pytest.mark.parametrize("case", CROSS)
def test_cross_products_broadcast_before_the_axis_is_looked_at(mlx, case):
    same(mlx, f"a, b, axis = {case}; x, y = mx.arange(60.0), mx.arange(60.0) ** 0.5; size = lambda s: int(np.prod(s)); "
         "mx.linalg.cross(x[:size(a)].reshape(a), y[:size(b)].reshape(b), axis=axis)")  # fmt: skip


WINDOWS = ["mx.array([1j, 1, 2, 1])", "mx.array([1j, 1, 2, 1]), onesided=False", "mx.array([1.0, 1, 2, 1]), onesided=True"]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("signal", ["mx.arange(8.0)", "mx.arange(8.0) + 1j"])
def test_windows_of_frames_may_be_complex(mlx, signal, window):
    same(mlx, f"mx.fft.stft({signal}, 4, window={window})")


@pytest.mark.parametrize("text", [
    "mx.fft.stft(mx.arange(8.0), -1)", "mx.fft.stft(mx.arange(8.0), 4, -1)", "mx.fft.stft(mx.arange(8.0), 4, 2, -1)",
    "mx.fft.istft(mx.ones((3, 3)), -4)", "mx.fft.istft(mx.ones((3, 3)), 4, 2, 4, length=-1)",
    "mx.fft.irfftn(mx.array(1.0), (2,), (-1,))", "mx.unflatten(mx.array(1.0), 0, ())",
])  # fmt: skip
def test_lengths_that_make_no_sense_are_refused_as_in_the_reference(mlx, text):
    same(mlx, text)


def test_dates_are_not_taken_for_bytes():
    for value in (np.datetime64("2020"), np.array(["2020"], dtype="datetime64[D]"), np.timedelta64(3, "s")):
        with pytest.raises(ValueError, match="cannot make an array of elements of the type"):
            mx.array(value)

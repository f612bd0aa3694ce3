"""Derivatives and vectorization of ops, for every choice of the inputs that vary, against the reference and loops."""

import itertools

import numpy as np
import pytest

import hesper.core as mx

RANDOM = np.random.RandomState(0)


def real(*shape):
    return RANDOM.randn(*shape).astype(np.float32)


def positive(*shape):
    return (RANDOM.rand(*shape) * 1.5 + 0.2).astype(np.float32)


def inside(*shape):
    return (RANDOM.rand(*shape) * 1.6 - 0.8).astype(np.float32)


def complex_(*shape):
    return (RANDOM.randn(*shape) + 1j * RANDOM.randn(*shape)).astype(np.complex64)


def assigned(key):
    def f(core, x, update):
        x = x * 1
        x[key(core)] = update
        return x

    return f


OPS = {}


def op(name, function, *inputs):
    OPS[name] = (function, inputs)


def called(name, **kwargs):
    return lambda core, *arrays: getattr(core, name)(*arrays, **kwargs)


for name in "abs negative square exp expm1 sin cos tan sinh cosh tanh arctan arcsinh sigmoid erf floor round".split():
    op(name, called(name), real(3, 4))
for name in "sqrt rsqrt log log1p log2 log10 reciprocal".split():
    op(name, called(name), positive(3, 4))
for name in "arcsin arccos arctanh erfinv".split():
    op(name, called(name), inside(3, 4))
for name in "abs negative square exp sin cos tan sinh cosh tanh sqrt log reciprocal conjugate real imag".split():
    op(name + " complex", called(name), complex_(3))
for name in (
    "add subtract multiply divide power maximum minimum logaddexp arctan2 remainder floor_divide divmod equal less "
    "greater_equal not_equal"
).split():
    op(name, called(name), positive(3, 4), positive(3, 4))
    op(name + " broadcast", called(name), positive(3, 4), positive(1, 4))
for name in "add subtract multiply divide".split():
    op(name + " complex", called(name), complex_(3), complex_(3))
for name in "sum mean prod max min var std logsumexp cumsum cumprod cummax logcumsumexp sort median".split():
    for axis in (None, 0, -1):
        op(f"{name} {axis}", called(name, axis=axis), real(3, 4))
for name in ("sum", "mean", "prod"):
    op(name + " complex", called(name, axis=0), complex_(3, 2))
op("prod of zeros", called("prod", axis=1), np.array([[0, 2, 3], [0, 0, 2], [1, 2, 3]], np.float32))
op("power of a number", lambda core, x: x**3 + 2**x, real(3, 4))
op("clip", called("clip"), real(3, 4), real(3, 4) - 1, real(3, 4) + 1)
op("where", lambda core, x, y: core.where(x > y, x, y), real(3, 4), real(3, 4))
op("matmul", called("matmul"), real(3, 4), real(4, 2))
op("matmul of batches", called("matmul"), real(2, 3, 4), real(4, 2))
op("matmul of vectors", called("matmul"), real(4), real(4))
op("matmul complex", called("matmul"), complex_(2, 3), complex_(3, 2))
op("addmm", lambda core, a, b, c: core.addmm(c, a, b), real(3, 4), real(4, 2), real(2))
op("einsum", lambda core, a, b: core.einsum("ij,kj->ik", a, b), real(3, 4), real(2, 4))
op("kron", called("kron"), real(2, 2), real(2, 2))
op("slice", lambda core, x: x[1:, ::-2], real(3, 4))
op("take", lambda core, x: core.take(x, core.array([0, 2, 0]), axis=0), real(3, 4))
op("gather", lambda core, x: x[core.array([0, 2]), core.array([1, 1])], real(3, 4))
op("take_along_axis", lambda core, x: core.take_along_axis(x, core.array([[0], [1], [3]]), 1), real(3, 4))
op(
    "put_along_axis",
    lambda core, x, y: core.put_along_axis(x, core.array([[0], [1], [3]]), y, 1),
    real(3, 4),
    real(3, 1),
)
op("scatter add", lambda core, x, y: x.at[core.array([0, 2, 0])].add(y), real(3, 4), real(3, 4))
op("scatter max", lambda core, x, y: x.at[core.array([0, 2])].maximum(y), real(3, 4), real(2, 4))
op("set a slice", assigned(lambda core: slice(0, 2)), real(3, 4), real(2, 4))
op("set rows", assigned(lambda core: core.array([0, 2])), real(3, 4), real(2, 4))
op("set a column", assigned(lambda core: (slice(None), 1)), real(3, 4), real(3))
op("set a mask", assigned(lambda core: core.array([True, False, True])), real(3, 4), real(2, 4))
op("concatenate", lambda core, x, y: core.concatenate([x, y], 1), real(3, 4), real(3, 2))
op("split", lambda core, x: core.split(x, 2, axis=1), real(3, 4))
op("pad", lambda core, x: core.pad(x, ((1, 2), (0, 1))), real(3, 4))
op("roll", lambda core, x: core.roll(x, 1, 0), real(3, 4))
op("diagonal", called("diagonal"), real(3, 4))
op("tril", called("tril"), real(3, 4))
op("topk", lambda core, x: core.topk(x, 2), real(3, 4))
op("partition", lambda core, x: core.partition(x, 1), real(3, 4))
op("softmax", called("softmax", axis=0), real(3, 4))
op("astype", lambda core, x: x.astype(core.float16), real(3, 4))
op("conv1d", called("conv1d"), real(1, 6, 2), real(3, 3, 2))
op("conv2d", lambda core, x, w: core.conv2d(x, w, stride=2, padding=1), real(1, 5, 5, 2), real(2, 3, 3, 2))
op("fft", lambda core, x: core.fft.fft(x), complex_(3, 4))
op("rfft", lambda core, x: core.fft.rfft(x), real(3, 4))
op("irfft", lambda core, x: core.fft.irfft(x), complex_(3, 3))
op("norm", lambda core, x: core.linalg.norm(x, axis=1), real(3, 4))
op("rms_norm", lambda core, x, w: core.fast.rms_norm(x, w, 1e-5), real(3, 4), real(4))
op("layer_norm", lambda core, x, w, b: core.fast.layer_norm(x, w, b, 1e-5), real(3, 4), real(4), real(4))
op(
    "attention",
    lambda core, q, k, v: core.fast.scaled_dot_product_attention(q, k, v, scale=0.5, mask="causal"),
    *(real(1, 2, 3, 4) for _ in range(3)),
)
for traditional in (False, True):
    op(
        f"rope {traditional}",
        lambda core, x, t=traditional: core.fast.rope(x, 4, traditional=t, base=100.0, scale=1.0, offset=2),
        real(1, 2, 3, 6),
    )
    op(
        f"rope of periods {traditional}",
        lambda core, x, periods, t=traditional: core.fast.rope(
            x, 4, traditional=t, base=None, scale=0.5, offset=3, freqs=periods
        ),
        real(2, 2, 3, 6),
        positive(2),
    )

# The order of the elements on both sides is not specified.
DIFFERENT = {"partition"}


def outputs(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


def weights(array, shift=0.0):
    values = np.cos(np.arange(array.size) * 1.3 + shift).reshape(array.shape)
    return values.astype(np.float32)


def subsets(count):
    return itertools.chain.from_iterable(itertools.combinations(range(count), size) for size in range(1, count + 1))


def derivative(core, kind, function, inputs, which):
    arrays = [core.array(one) for one in inputs]

    def f(*varied):
        whole = list(arrays)
        for at, array in zip(which, varied):
            whole[at] = array
        return outputs(function(core, *whole))

    primals = [arrays[at] for at in which]
    like = f(*primals) if kind == "vjp" else primals
    seeds = [core.array(weights(one, kind == "jvp")).astype(one.dtype) for one in like]
    return [
        (repr(one.dtype).split(".")[-1], np.array(one.astype(core.float32) if "16" in repr(one.dtype) else one))
        for one in getattr(core, kind)(f, primals, seeds)[1]
    ]


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
@pytest.mark.parametrize("name", sorted(set(OPS) - DIFFERENT))
def test_derivatives_are_those_of_the_reference(mlx, name, kind):
    function, inputs = OPS[name]
    for which in subsets(len(inputs)):
        own = derivative(mx, kind, function, inputs, which)
        try:
            other = derivative(mlx, kind, function, inputs, which)
        except (RuntimeError, ValueError):
            continue
        for (own_type, one), (other_type, two) in zip(own, other):
            assert own_type == other_type, (name, which)
            np.testing.assert_allclose(one, two, rtol=2e-3, atol=1e-4, err_msg=f"{name} {which}")


@pytest.mark.parametrize("name", OPS)
def test_vectorized_is_one_by_one(name):
    function, inputs = OPS[name]
    for which in subsets(len(inputs)):
        for axis in (0, -1):
            batches = [np.stack([one, one * 0.5], axis) if at in which else one for at, one in enumerate(inputs)]
            axes = tuple(axis if at in which else None for at in range(len(inputs)))
            run = mx.vmap(lambda *x: tuple(outputs(function(mx, *x))), in_axes=axes if len(axes) > 1 else axes[0])
            found = run(*(mx.array(one) for one in batches))
            for number in range(2):
                slices = [np.take(one, number, axis) if at in which else one for at, one in enumerate(batches)]
                for whole, one in zip(found, outputs(function(mx, *(mx.array(x) for x in slices)))):
                    np.testing.assert_allclose(
                        np.array(whole[number]), np.array(one), rtol=2e-3, atol=1e-4, err_msg=f"{name} {which} {axis}"
                    )


X, I = real(3, 4), np.array([0, 2], np.int32)
INDEXED = {
    "take": (lambda core, x, i: core.take(x, i, axis=0), X, I),
    "take_along_axis": (lambda core, x, i: core.take_along_axis(x, i, 1), X, np.array([[0], [1], [3]], np.int32)),
    "put_along_axis": (
        lambda core, x, i: core.put_along_axis(x, i, core.array(1.0), 1),
        X,
        np.array([[0], [1], [3]], np.int32),
    ),
    "scatter": (lambda core, x, i: x.at[i].add(core.ones((2, 4))), X, I),
    "gather_mm": (
        lambda core, x, i: core.gather_mm(x[:, None], core.ones((2, 4, 3)), rhs_indices=i),
        X,
        np.array([0, 1, 0], np.uint32),
    ),
    "slice": (lambda core, x, i: core.slice(x, i, (0,), (1, 4)), X, np.array([1], np.int32)),
    "slice_update": (lambda core, x, i: core.slice_update(x, core.ones((1, 4)), i, (0,)), X, np.array([1], np.int32)),
}


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
@pytest.mark.parametrize("name", INDEXED)
def test_indices_have_no_derivative(mlx, name, kind):
    function, *inputs = INDEXED[name]
    with pytest.raises(ValueError, match="stop_gradient"):
        derivative(mx, kind, function, inputs, (0, 1))
    with pytest.raises((ValueError, RuntimeError)):
        derivative(mlx, "vjp", function, inputs, (0, 1))
    stopped = lambda core, x, i: function(core, x, core.stop_gradient(i))  # noqa: E731
    assert len(derivative(mx, kind, stopped, inputs, (0, 1))) == (2 if kind == "vjp" else 1)


def test_indices_that_depend_on_the_values_have_no_derivative():
    x = mx.array(X)
    with pytest.raises(ValueError, match="stop_gradient"):
        mx.grad(lambda x: mx.take_along_axis(x, mx.argmax(x, -1, keepdims=True), -1).sum())(x)
    chosen = mx.grad(lambda x: mx.take_along_axis(x, mx.stop_gradient(mx.argmax(x, -1, keepdims=True)), -1).sum())(x)
    assert chosen.sum().item() == 3.0
    # Rules with indices of their own can be differentiated again.
    for f in (mx.sort, mx.cummax, lambda x: mx.topk(x, 2), mx.median):
        mx.eval(mx.grad(lambda x: mx.grad(lambda x: f(x * x).sum())(x).sum())(x))


def test_quantized_weights_have_no_derivative():
    w = mx.random.normal((8, 64))
    codes, scales = mx.quantize(w, group_size=32, bits=4, mode="mxfp4")

    def product(x, scales):
        scales = scales.astype(mx.uint8)
        return mx.quantized_matmul(x, codes, scales, group_size=32, bits=4, mode="mxfp4").sum()

    x, scales = mx.ones((2, 64)), scales.astype(mx.float32)
    assert mx.grad(product)(x, scales).shape == (2, 64)
    with pytest.raises(ValueError, match="stop_gradient"):
        mx.grad(product, argnums=1)(x, scales)


BOOLEANS = {
    "itself": lambda c, a: a,
    "turned": lambda c, a: a[::-1],
    "joined": lambda c, a: c.concatenate([a, a]),
    "as numbers": lambda c, a: a.astype(c.float32) * 3,
    "beside numbers": lambda c, a: a * 2.0,
    "compared": lambda c, a: a == a,
    "as a condition": lambda c, a: c.where(a, 1.0, 2.0),
}


@pytest.mark.parametrize("kind", BOOLEANS)
def test_booleans_have_cotangents_where_they_are_numbers(mlx, kind):
    def cotangent(core):
        a, function = core.array([True, False]), lambda a: BOOLEANS[kind](core, a)
        [found] = core.vjp(function, [a], [core.ones_like(function(a))])[1]
        return str(found.dtype).split(".")[-1], found.tolist()

    assert cotangent(mx) == cotangent(mlx)


@pytest.mark.parametrize("name", ["isnan", "isposinf", "isneginf", "isfinite", "logical_not"])
def test_the_tangent_of_a_test_has_the_type_that_the_reference_gives(mlx, name):
    def tangent(core):
        x = core.array([1.0, 2.0], core.float16)
        [found] = core.jvp(getattr(core, name), [x], [x])[1]
        return str(found.dtype).split(".")[-1], found.tolist()

    assert tangent(mx) == tangent(mlx)


def masked(x, mask, value):
    x = x + 0
    x[mask] = value
    return x


def test_masks_that_a_transformation_varies_assign_values_in_order(mlx):
    def results(core):
        x, mask = core.zeros((2, 3)), core.array([[True, False, True], [False, True, True]])
        values, rows = core.arange(1.0, 5.0).reshape(2, 2), core.arange(6.0).reshape(2, 1, 3)
        traced = [
            core.vmap(masked)(x, mask, values),
            core.vmap(masked, in_axes=(None, 0, 0))(x[0], mask, values),
            core.vmap(masked)(core.zeros((2, 2, 3)), core.array([[True, False], [False, True]]), rows),
            core.compile(masked)(x, mask, values.flatten()),
            core.grad(lambda v: (core.compile(masked)(x, mask, v) * core.arange(6.0).reshape(2, 3)).sum())(values.flatten()),
        ]
        signs = core.array([1.0, -1.0, 2.0])
        traced.append(core.grad(lambda x, v: (masked(x, core.stop_gradient(x > 0), v) * signs).sum(), argnums=(0, 1))(signs, core.array([3.0, 4.0]))[1])
        # More rows than the mask selects: the first ones are taken.
        return [part.tolist() for part in traced + [masked(x, core.array([True, False]), core.ones((2, 3)))]]

    assert results(mx) == results(mlx)
    with pytest.raises(ValueError, match="mask"):
        mx.vmap(masked)(mx.zeros((2, 3)), mx.ones((2, 3)) > 0, mx.ones((2, 2, 2)))


VARYING = {
    "sum": lambda core, x: x.sum(),
    "sum of rows": lambda core, x: x.sum(0),
    "mean": lambda core, x: x.mean(),
    "added": lambda core, x: x + x,
    "multiplied": lambda core, x: x * x,
    "by a number": lambda core, x: x * 2,
    "by a fraction": lambda core, x: x * 2.5,
    "compared": lambda core, x: x > x[0],
    "converted": lambda core, x: x.astype(core.float32) * 3,
    "narrowed": lambda core, x: x.astype(core.int8),
    "chosen": lambda core, x: core.where(x, x, 1),
    "moved": lambda core, x: core.concatenate([x.T, x.T])[1:],
    "square root": lambda core, x: core.sqrt(x + 3),
    "largest": lambda core, x: core.maximum(x, 1),
    "summed up": lambda core, x: core.cumsum(x, axis=0),
    "counted": lambda core, x: core.count_nonzero(x),
    "joined": lambda core, x: core.concatenate([x, core.ones((1, 3), x.dtype)]),
}


@pytest.mark.parametrize("name", VARYING)
@pytest.mark.parametrize("dtype, tangent", [("bool_", "bool_"), ("int32", "int32"), ("int32", "float32")])
def test_tangents_of_integers_and_booleans_are_those_of_the_reference(mlx, name, dtype, tangent):
    results = []
    for core in (mx, mlx):
        x = core.array([[1, 0, 3], [2, 0, 1]]).astype(getattr(core, dtype))
        t = core.array([[1, 1, 0], [2.5, 0, 1]]).astype(getattr(core, tangent))
        (value,), (slope,) = core.jvp(lambda x: VARYING[name](core, x), [x], [t])
        results.append([str(slope.dtype).split(".")[-1], np.array(slope), np.array(value)])
    assert results[0][0] == results[1][0]
    for found, expected in zip(results[0][1:], results[1][1:]):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["sum", "by a fraction", "converted", "chosen", "summed up"])
@pytest.mark.parametrize("dtype", ["bool_", "int32"])
def test_gradients_by_integers_and_booleans_are_those_of_the_reference(mlx, name, dtype):
    results = []
    for core in (mx, mlx):
        x = core.array([[1, 0, 3], [2, 0, 1]]).astype(getattr(core, dtype))
        slope = core.grad(lambda x: VARYING[name](core, x).sum())(x)
        # Here derivatives have the type of the argument.
        results.append(slope.astype(getattr(core, dtype)).tolist())
    assert results[0] == results[1]


def stopped(core, name, a, b):
    """Ops without a derivative behind a ``stop_gradient``."""
    if name == "quantize":
        parts = core.quantize(core.stop_gradient(b), 32, 4)
        return core.quantized_matmul(a, *parts, group_size=32, bits=4).sum()
    if name == "indices":
        return (core.take(a, core.argsort(core.stop_gradient(b), axis=1)) * b).sum()
    return (a * core.dequantize(*core.quantize(core.stop_gradient(b * 2) * 1.5, mode="mxfp4"), mode="mxfp4") * b).sum()


@pytest.mark.parametrize("name", ["quantize", "indices", "between"])
def test_nothing_is_differentiated_behind_stop_gradient(mlx, name):
    numbers = np.random.default_rng(1).standard_normal((2, 3, 32)).astype(np.float32)
    results = []
    for core in (mx, mlx):
        a, b = core.array(numbers[0]), core.array(numbers[1])
        results.append(core.grad(lambda a, b: stopped(core, name, a, b), argnums=(0, 1))(a, b))
    for found, expected in zip(*results):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

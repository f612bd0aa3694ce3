"""Functions of ``hesper.core`` on the GPU against the host."""

import numpy as np
import pytest
from beside import assert_same, numbers

import hesper.core as mx

FLOATS = ["float32", "float16", "bfloat16"]

UNARY = """abs arctan ceil cos cosh degrees erf exp expm1 floor isfinite isinf isnan isneginf isposinf
logical_not negative radians relu round sigmoid sign sin sinh square tan tanh""".split()
POSITIVE = "log log10 log1p log2 rsqrt sqrt arccosh".split()
SMALL = "arccos arcsin arctanh erfinv".split()
BINARY = """add arctan2 divide equal floor_divide greater greater_equal less less_equal logaddexp logical_and
logical_or maximum minimum multiply not_equal remainder subtract""".split()
BITS = "bitwise_and bitwise_or bitwise_xor left_shift right_shift".split()
REDUCTIONS = "all any argmax argmin logsumexp max mean median min prod std sum var".split()
SCANS = "cumsum cumprod cummax cummin logcumsumexp".split()


def apply(name, *arguments, **options):
    if name == "relu":
        return mx.maximum(arguments[0], 0)
    return getattr(mx, name)(*arguments, **options)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY + POSITIVE + SMALL)
def test_functions_of_one_array(name, dtype):
    low, high = {**dict.fromkeys(POSITIVE, (1.1, 9.0)), **dict.fromkeys(SMALL, (-0.9, 0.9))}.get(name, (-2, 2))
    a = numbers((17, 33), dtype, low=low, high=high)
    assert_same(lambda: [apply(name, a), apply(name, a.T), apply(name, a[::2, 3:20:4])])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_arrays(name, dtype):
    a, b = numbers((8, 1, 31), dtype, 1), numbers((5, 31), dtype, 2) + 1
    assert_same(lambda: [apply(name, a, b), apply(name, b.T, b.T), apply(name, a, 3), apply(name, 2, b)])


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "int64"])
def test_functions_of_bits(name, dtype):
    a, b = numbers((9, 7), dtype, 1), numbers((7,), dtype, 2, low=0, high=0.3)
    assert_same(lambda: apply(name, a, b))


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, axis):
    if name.startswith("arg") and isinstance(axis, tuple):
        axis = 1
    a = numbers((6, 40, 9), seed=3)
    assert_same(lambda: [apply(name, a, axis=axis), apply(name, a.transpose(2, 0, 1), axis=axis, keepdims=True)])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "bool", "uint8", "complex64"])
@pytest.mark.parametrize("name", ["sum", "max", "prod", "mean"])
def test_reductions_of_other_types(name, dtype):
    if dtype == "complex64" and name in ("max", "prod"):
        pytest.skip("not of complex numbers")
    a = numbers((12, 35), dtype, 4, low=0.1, high=1.2)
    assert_same(lambda: [apply(name, a), apply(name, a, axis=0), apply(name, a, axis=1)])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", SCANS)
def test_scans(name, reverse):
    a = numbers((5, 300), seed=5, low=0.5, high=1.5)
    assert_same(lambda: [apply(name, a, axis=axis, reverse=reverse) for axis in (0, 1)], 1e-4)


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "complex64"])
@pytest.mark.parametrize("shapes", [((7, 13), (13, 5)), ((3, 1, 4, 9), (2, 9, 6)), ((9,), (9, 4)), ((4, 9), (9,))])
def test_products(shapes, dtype):
    a, b = (numbers(shape, dtype, seed) for seed, shape in enumerate(shapes))
    if dtype == "int32":
        a, b = a.astype(mx.float32), b.astype(mx.float32)
    assert_same(lambda: a @ b, {"float16": 4e-3, "bfloat16": 2e-2}.get(dtype))


def test_products_with_more_around_them():
    a, b, c = numbers((6, 8), seed=1), numbers((8, 5), seed=2), numbers((6, 5), seed=3)
    assert_same(lambda: mx.addmm(c, a, b, alpha=0.5, beta=2.0))
    assert_same(lambda: mx.einsum("ij,jk,ik->k", a, b, c))
    assert_same(lambda: [mx.inner(a, a), mx.outer(a, b), mx.tensordot(a, b, 1), mx.kron(a, c)])
    assert_same(lambda: mx.block_masked_mm(numbers((64, 64)), numbers((64, 64)), 32))
    left, right = numbers((4, 5, 6)), numbers((3, 6, 7))
    chosen = mx.array([2, 0, 1, 2])
    assert_same(lambda: mx.gather_mm(left, right, rhs_indices=chosen))


SHAPES = {
    "reshape": lambda a: mx.reshape(a, (-1, 6)),
    "transpose": lambda a: mx.contiguous(mx.transpose(a, (2, 0, 1))),
    "swapaxes": lambda a: mx.swapaxes(a, 0, 2) + 1,
    "moveaxis": lambda a: mx.moveaxis(a, 0, 1) * 2,
    "flatten": lambda a: mx.flatten(a.T),
    "concatenate": lambda a: mx.concatenate([a, a[:2], a[::-1]], axis=0),
    "stack": lambda a: mx.stack([a, a + 1], axis=1),
    "split": lambda a: mx.split(a, [1, 3], axis=0),
    "tile": lambda a: mx.tile(a, (2, 1, 3)),
    "repeat": lambda a: mx.repeat(a, 3, axis=1),
    "pad": lambda a: mx.pad(a, ((1, 2), (0, 3), (2, 0)), constant_values=7),
    "pad of edges": lambda a: mx.pad(a, ((1, 2), (0, 3), (2, 0)), mode="edge"),
    "roll": lambda a: mx.roll(a, (2, -1), (0, 1)),
    "broadcast": lambda a: mx.broadcast_to(a[:, :1], (4, 9, 6)) + 0,
    "diagonal": lambda a: mx.diagonal(a, 1, 0, 2),
    "diag": lambda a: mx.diag(a[0, 0]),
    "tril": lambda a: [mx.tril(a, -1), mx.triu(a, 1)],
    "trace": lambda a: mx.trace(a, axis1=0, axis2=2),
    "as_strided": lambda a: mx.as_strided(a, (3, 4), (2, 1), 5),
    "view": lambda a: mx.view(a, mx.uint16),
    "flip": lambda a: a[::-1, ::-2],
    "expand": lambda a: mx.expand_dims(a, (0, 2)).squeeze(0),
    "where": lambda a: mx.where(a > 0, a, -1.0),
    "clip": lambda a: mx.clip(a, -0.5, mx.array(0.5)),
    "nan_to_num": lambda a: mx.nan_to_num(a / mx.zeros_like(a)),
    "sort": lambda a: [mx.sort(a, axis=axis) for axis in (0, 1, 2, None)],
    "argsort": lambda a: mx.argsort(a, axis=1),
    "partition": lambda a: mx.sort(mx.partition(a, 3, axis=1)[:, :3], axis=1),
    "topk": lambda a: mx.sort(mx.topk(a, 2, axis=2), axis=2),
    "softmax": lambda a: [mx.softmax(a, axis=axis) for axis in (0, -1, (0, 2))],
    "divmod": lambda a: list(mx.divmod(a, 0.75)),
    "isclose": lambda a: [mx.isclose(a, a + 1e-9), mx.allclose(a, a), mx.array_equal(a, a)],
    "unflatten": lambda a: mx.unflatten(a, 2, (2, 3)),
    "meshgrid": lambda a: mx.meshgrid(a[0, 0], a[1, 1], indexing="ij"),
    "hadamard": lambda a: mx.hadamard_transform(mx.concatenate([a, a[..., :2]], axis=-1)),
    "convolve": lambda a: mx.convolve(a[0, 0], a[1, 1, :3], mode="same"),
    "real": lambda a: [mx.real(a + 2j), mx.imag(a + 2j), mx.conj(a + 2j), mx.abs(a + 2j)],
    "make": lambda a: [mx.arange(5, 60, 7), mx.linspace(0, 1, 9), mx.eye(4, 6, 1), mx.full((3,), 2.5), mx.tri(4)],
    "astype": lambda a: [a.astype(t) for t in (mx.int8, mx.bool_, mx.float16, mx.bfloat16, mx.complex64, mx.int64)],
    "var": lambda a: [mx.var(a, ddof=1), mx.std(a, axis=1, ddof=1)],
    "take": lambda a: [mx.take(a, mx.array([3, 0, -1]), axis=0), mx.take(a, mx.array([[5, 70], [1, 2]]))],
    "take_along": lambda a: mx.take_along_axis(a, mx.argsort(a, axis=1), axis=1),
    "put_along": lambda a: mx.put_along_axis(a, mx.argmin(a, axis=1, keepdims=True), mx.array(9.0), axis=1),
    "slice": lambda a: mx.slice(a, mx.array([1, 2]), (0, 1), (2, 3, 6)),
    "slice_update": lambda a: mx.slice_update(a, mx.ones((2, 2, 2)), mx.array([1, 2, 3]), (0, 1, 2)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_places(name):
    a = numbers((4, 9, 6), seed=6)
    assert_same(lambda: SHAPES[name](a))


INDICES = {
    "number": lambda: 2,
    "slice": lambda: slice(1, 7, 2),
    "backwards": lambda: slice(None, None, -1),
    "ellipsis": lambda: (Ellipsis, 3),
    "new axis": lambda: (None, slice(2), None, 1),
    "array": lambda: mx.array([0, 3, -1, 3]),
    "matrix": lambda: mx.array([[0, 1], [5, 6]]),
    "two arrays": lambda: (mx.array([0, 1, 2]), mx.array([3, 4, 5])),
    "array and slice": lambda: (slice(2, 6), mx.array([1, 0])),
    "apart": lambda: (mx.array([1, 0]), slice(None), mx.array([2, 1])),
    "array and number": lambda: (3, mx.array([0, 2])),
    "list": lambda: [1, 1, 4],
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("name", INDICES)
def test_indexing(name, dtype):
    a = numbers((8, 7, 5), dtype, 7)

    def function():
        index = INDICES[name]()
        taken = a[index]
        changed, added = a + 0, a + 0
        changed[index] = taken * 0 + 3
        added = added.at[index].add(1)
        return [taken, changed, added, a.at[index].maximum(2)]

    assert_same(function)


def test_a_mask_chooses_what_is_assigned():
    a = numbers((6, 5), seed=8)

    def function():
        b = a + 0
        b[b > 0] = -1.0
        return b

    assert_same(function)


@pytest.mark.parametrize("mode", ["affine", "mxfp4", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_quantized_products(mode, dtype):
    sizes = {"affine": dict(group_size=64, bits=4)}.get(mode, {})
    w, x = numbers((96, 128), dtype, 9), numbers((3, 128), dtype, 10)
    packed = [mx.array(part) for part in mx.quantize(w, mode=mode, **sizes, stream=mx.cpu)]
    tolerance = {"float32": 2e-3, "bfloat16": 3e-2}[dtype]
    assert_same(lambda: mx.quantized_matmul(x, *packed, transpose=True, mode=mode, **sizes), tolerance)
    assert_same(lambda: mx.dequantize(*packed, mode=mode, **sizes))


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("rows", [1, 9, 64])
def test_packed_products_of_all_widths(bits, rows):
    w, x = numbers((64, 256), seed=11), numbers((rows, 256), seed=12)
    packed = mx.quantize(w, group_size=32, bits=bits, stream=mx.cpu)
    options = dict(group_size=32, bits=bits)
    assert_same(lambda: mx.quantized_matmul(x, *packed, transpose=True, **options), 2e-3)
    assert_same(lambda: mx.quantized_matmul(x[:, :64], *packed, transpose=False, **options), 2e-3)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mask", [None, "causal", "array", "bool"])
def test_attention(mask, dtype):
    q, k, v = (numbers((2, heads, 33, 64), dtype, seed) for seed, heads in ((1, 8), (2, 2), (3, 2)))
    given = {"array": numbers((33, 33), dtype, 4), "bool": numbers((33, 33), "bool", 4)}.get(mask, mask)
    tolerance = {"float32": 1e-3, "float16": 4e-3, "bfloat16": 3e-2}[dtype]
    attend = mx.fast.scaled_dot_product_attention
    assert_same(lambda: attend(q, k, v, scale=0.125, mask=given), tolerance)
    assert_same(lambda: attend(q[:, :, :1], k, v, scale=0.125), tolerance)


def test_norms_and_rope():
    x, w, b = numbers((3, 5, 64), seed=1), numbers((64,), seed=2), numbers((64,), seed=3)
    assert_same(lambda: [mx.fast.rms_norm(x, w, 1e-5), mx.fast.layer_norm(x, w, b, 1e-5)])
    heads = numbers((2, 4, 6, 32), seed=4)
    options = dict(traditional=False, base=10000.0, scale=1.0)
    assert_same(lambda: [mx.fast.rope(heads, 32, offset=offset, **options) for offset in (0, 7)], 1e-4)
    assert_same(lambda: mx.fast.rope(heads, 16, offset=mx.array([3, 9]), **{**options, "traditional": True}), 1e-4)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "rfft2", "fftn"])
def test_fourier_transforms(name):
    a = numbers((4, 24, 30), "float32" if name.startswith("rfft") else "complex64", 5)
    assert_same(lambda: getattr(mx.fft, name)(a), 1e-4)


def test_convolutions():
    x, w = numbers((2, 9, 10, 8), seed=1), numbers((6, 3, 3, 8), seed=2)
    assert_same(lambda: mx.conv2d(x, w, padding=1, stride=2), 1e-3)
    assert_same(lambda: mx.conv2d(x, numbers((8, 3, 2, 1), seed=3), groups=8, dilation=2), 1e-3)
    assert_same(lambda: mx.conv_transpose2d(x, w, stride=2), 1e-3)
    assert_same(lambda: mx.conv1d(x[:, 0], w[:, 0], padding=2), 1e-3)
    assert_same(lambda: mx.conv3d(numbers((1, 4, 5, 6, 3)), numbers((2, 2, 2, 2, 3))), 1e-3)


LINALG = {
    "norm": lambda a: [mx.linalg.norm(a), mx.linalg.norm(a, ord=1, axis=0), mx.linalg.norm(a, "nuc")],
    "inv": lambda a: mx.linalg.inv(a),
    "solve": lambda a: mx.linalg.solve(a, a[:, :2]),
    "cholesky": lambda a: mx.linalg.cholesky(a @ a.T + mx.eye(6)),
    "eigvalsh": lambda a: mx.linalg.eigvalsh(a + a.T),
    "svd": lambda a: mx.linalg.svd(a, compute_uv=False),
    "qr": lambda a: mx.abs(mx.linalg.qr(a)[1]),
    "cross": lambda a: mx.linalg.cross(a[:, :3], a[:, 3:]),
    "pinv": lambda a: mx.linalg.pinv(a[:, :4]),
}


@pytest.mark.parametrize("name", LINALG)
def test_linear_algebra_goes_to_the_host_by_itself(name):
    a = numbers((6, 6), seed=6) + 5 * mx.eye(6)
    assert_same(lambda: LINALG[name](a), 1e-3)


@pytest.mark.parametrize("name", ["uniform", "normal", "randint", "bernoulli", "gumbel", "truncated_normal"])
def test_random_numbers_are_those_of_the_host(name):
    functions = {
        "randint": lambda key: mx.random.randint(-5, 90, (50,), key=key),
        "bernoulli": lambda key: mx.random.bernoulli(0.3, (50,), key=key),
        "truncated_normal": lambda key: mx.random.truncated_normal(-1, 1, (50,), key=key),
    }
    draw = functions.get(name, lambda key: getattr(mx.random, name)(shape=(50,), key=key))
    assert_same(lambda: draw(mx.random.key(3)), 1e-4)


def test_no_elements_and_no_axes():
    nothing, one = mx.zeros((0, 4)), mx.array(3.0)
    assert_same(lambda: [nothing + 1, nothing.sum(0), nothing.T, mx.concatenate([nothing, mx.ones((2, 4))])])
    assert_same(lambda: [one + 1, one.sum(), mx.exp(one), one[None], one.astype(mx.int32)])
    assert_same(lambda: nothing @ mx.ones((4, 3)))
    assert_same(lambda: [mx.stack([nothing, nothing], -1), mx.concatenate([nothing, nothing], 1), mx.stack([mx.array([])] * 3, 1)])


def test_numbers_go_in_and_out():
    with mx.stream(mx.gpu):
        a = mx.array([[1.5, -2.0], [3.0, 4.0]]) * 2
        assert a.tolist() == [[3.0, -4.0], [6.0, 8.0]] and a[1, 0].item() == 6.0
        assert np.array(a).tolist() == a.tolist() and bool((a == a).all()) and len(a) == 2
        assert repr(a) == repr(mx.array([[3.0, -4.0], [6.0, 8.0]]))
        assert memoryview(a).tolist() == a.tolist()
        assert np.from_dlpack(a).tolist() == a.tolist()
        assert [row.tolist() for row in a] == a.tolist() and float(a[0, 0]) == 3.0

"""Functions in files: what is written, what comes back, and which calls are refused."""

import io
import threading

import pytest

import hesper.core as mx
import hesper.nn as nn


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "f.hesperfn")


def same(found, expected):
    return len(found) == len(expected) and all(
        a.shape == b.shape and a.dtype == b.dtype and mx.array_equal(a, b, equal_nan=True)
        for a, b in zip(found, expected)
    )


def test_a_function_comes_back_as_a_tuple_of_arrays(path):
    a, b = mx.array([1.0, 2.0]), mx.array([3.0, 4.0])
    mx.export_function(path, lambda x, y: x + y, a, b)
    f = mx.import_function(path)
    for call in (lambda: f(a, b), lambda: f((a, b)), lambda: f([a, b]), lambda: f((a,), {"y": b}), lambda: f(a, y=b)):
        found = call()
        assert isinstance(found, tuple) and same(found, (a + b,))


def test_arguments_have_names(path):
    a, b = mx.array([1.0, 2.0]), mx.array([3.0, 4.0])
    mx.export_function(path, lambda x, *, z, y: [x - y, z], a, z=b, y=b)
    f = mx.import_function(path)
    assert same(f(a, y=b, z=a), (a - b, a))
    assert same(f((a,), {"y": b, "z": a}), (a - b, a))
    for wrong in (lambda: f(a, b, b), lambda: f({"y": b, "z": a}), lambda: f(a, y=b, z=b, w=b)):
        with pytest.raises(ValueError, match="1 positional inputs and 2 keyword inputs"):
            wrong()


def test_tuples_and_dicts_of_arguments_are_arguments(path):
    a, b = mx.array([1.0, 2.0]), mx.array([3.0, 4.0])
    mx.export_function(path, lambda x, y: x * y, (a, b))
    assert same(mx.import_function(path)(a, b), (a * b,))
    mx.export_function(path, lambda x, y: x * y, (a,), {"y": b})
    assert same(mx.import_function(path)(a, y=b), (a * b,))
    mx.export_function(path, lambda: mx.array(3))
    assert same(mx.import_function(path)(), (mx.array(3),))


def test_other_shapes_and_types_are_refused_with_what_was_expected(path):
    a = mx.zeros((2,))
    mx.export_function(path, mx.exp, a)
    f = mx.import_function(path)
    for wrong in (mx.zeros((3,)), mx.zeros((2,), mx.int32), mx.zeros((2, 1))):
        with pytest.raises(ValueError, match=r"1: \(2\) float32"):
            f(wrong)
    with pytest.raises(ValueError):
        f()
    with pytest.raises(ValueError, match="one tuple and one dictionary"):
        f(1.0)


def test_what_is_no_array_cannot_be_exported(path):
    a = mx.zeros((2,))
    with pytest.raises(ValueError, match="one tuple and one dictionary"):
        mx.export_function(path, lambda x: x, 1.0)
    for wrong in ({"a": a}, None, 1.0, [[a]]):
        with pytest.raises(ValueError, match="anything but arrays"):
            mx.export_function(path, lambda x, wrong=wrong: wrong, a)
    with pytest.raises(TypeError):
        mx.export_function(path, 3, a)
    with pytest.raises(ZeroDivisionError):
        mx.export_function(path, lambda x: 1 / 0, a)
    with pytest.raises(ValueError, match="export_function"):
        mx.export_function(path, lambda x: mx.eval(x + 1) or x, a)


def test_bad_files_are_runtime_errors(tmp_path, path):
    with pytest.raises(RuntimeError):
        mx.import_function(str(tmp_path / "nothing"))
    with pytest.raises(RuntimeError):
        mx.export_function(str(tmp_path / "no" / "folder"), mx.exp, mx.array(1.0))
    (tmp_path / "bad").write_bytes(b"abc" * 100)
    with pytest.raises(RuntimeError, match="does not begin"):
        mx.import_function(tmp_path / "bad")
    mx.export_function(path, mx.exp, mx.array(1.0))
    content = bytearray(open(path, "rb").read())
    content[70] ^= 1
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(RuntimeError, match="damaged"):
        mx.import_function(tmp_path / "bad")
    with pytest.raises(TypeError):
        mx.import_function(3)


def test_several_traces_are_one_function(path):
    a, b = mx.array([1.0, 2.0]), mx.array([3.0, 4.0])
    with mx.exporter(path, lambda *args: sum(args)) as exporter:
        assert isinstance(exporter, mx.FunctionExporter)
        exporter(a)
        exporter(a, b)
        with pytest.raises(RuntimeError, match="only once"):
            exporter(b, a)
        exporter(a, b, a)
    with pytest.raises(RuntimeError, match="closed"):
        exporter(a)
    exporter.close()
    f = mx.import_function(path)
    assert same(f(a), (a,)) and same(f(a, b), (a + b,)) and same(f(a, b, a), (a + b + a,))
    with pytest.raises(ValueError):
        f(a, b, a, b)


def test_metadata_is_kept(path):
    mx.export_function(path, mx.exp, mx.array(1.0), metadata="hello")
    f, text = mx.import_function(path, return_metadata=True)
    assert text == "hello" and callable(f)
    with mx.exporter(path, mx.exp, metadata="more") as exporter:
        exporter(mx.array(1.0))
    assert mx.import_function(path, True)[1] == "more"
    with pytest.raises(ValueError, match="metadata"):
        mx.export_function(lambda step: None, mx.exp, mx.array(1.0), metadata="hello")


def test_shapes_may_be_free(path):
    a = mx.ones((2, 3))
    mx.export_function(path, lambda x, y: mx.softmax(x @ y.T, axis=-1).mean(0), a, a, shapeless=True)
    f = mx.import_function(path)
    x, y = mx.random.normal((5, 7)), mx.random.normal((4, 7))
    assert same(f(x, y), (mx.softmax(x @ y.T, axis=-1).mean(0),))
    for wrong in ((x[0], y), (x.astype(mx.float16), y)):
        with pytest.raises(ValueError):
            f(*wrong)
    mx.export_function(path, lambda x: x[:-1], a, shapeless=True)
    f = mx.import_function(path)
    assert same(f(a[:, :2]), (a[:1, :2],))
    with pytest.raises(ValueError, match="slice"):
        f(mx.ones((5, 3)))


def test_weights_come_along_and_gradients_go_through(path):
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2))
    x = mx.random.normal((3, 4))
    mx.export_function(path, lambda x: layers(x), x)
    expected = layers(x)
    slope = mx.grad(lambda x: layers(x).sum())(x)
    f = mx.import_function(path)
    # The file may be replaced: what is open stays as it was.
    mx.export_function(path, mx.exp, x)
    assert same(f(x), (expected,))
    assert mx.allclose(mx.grad(lambda x: f(x)[0].sum())(x), slope)
    assert same(mx.compile(f)(x), (expected,))
    assert mx.vmap(lambda x: f(x)[0])(mx.stack([x, x])).shape == (2, 3, 2)


def test_random_numbers_are_those_of_the_trace(path):
    mx.export_function(path, lambda: mx.random.normal((3,)))
    f = mx.import_function(path)
    assert same(f(), f())


def test_custom_functions_kernels_and_gradients_are_what_they_compute(path):
    kernel = mx.fast.metal_kernel(
        name="twice", input_names=["a"], output_names=["b"], source="uint i = thread_position_in_grid.x; b[i] = 2 * a[i];"
    )

    def twice(a):
        return kernel(
            inputs=[a], grid=(a.size, 1, 1), threadgroup=(1, 1, 1), output_shapes=[a.shape], output_dtypes=[a.dtype]
        )[0]

    @mx.custom_function
    def odd(x):
        return mx.sin(x)

    @odd.vjp
    def odd_vjp(x, cotangent, output):
        return cotangent * 7

    x = mx.array([1.0, 2.0])
    fun = lambda x: (twice(x), mx.grad(lambda x: odd(x).sum())(x), mx.checkpoint(mx.exp)(x), mx.compile(mx.cos)(x))
    mx.export_function(path, fun, x)
    assert same(mx.import_function(path)(x + 1), fun(x + 1))


def test_a_callback_is_told_the_graph():
    reported = []
    weight = mx.array([1.0, 2.0])
    mx.export_function(reported.append, lambda x, y: (x @ y.T) + weight, mx.ones((2, 2)), y=mx.ones((2, 2)))
    kinds = [step["type"] for step in reported]
    assert kinds[:4] == ["inputs", "keyword_inputs", "outputs", "constants"]
    assert set(kinds[4:]) == {"primitive"}
    assert reported[0]["inputs"] == [("A", (2, 2), mx.float32), ("B", (2, 2), mx.float32)]
    assert reported[1]["keywords"] == [("y", "B")]
    assert same((reported[3]["constants"][0][1],), (weight,))
    assert [step["name"] for step in reported[4:]] == ["Transpose", "Matmul", "Broadcast", "Add"]
    assert reported[-1]["outputs"] == reported[2]["outputs"]


def masked(mask, value, x):
    y = x * 1
    y[mask] = value
    return y


PRIMITIVES = {
    "element-wise": lambda c, x: c.maximum(c.exp(x) * 2 - 1, c.rsqrt(c.abs(x) + 3)) ** c.log2(c.square(x)),
    "comparisons": lambda c, x: c.where(c.isnan(x), x, c.log(x)) + (x == 2).astype(c.float16),
    "bits": lambda c, x: (x.view(c.int32) & 3) << 1,
    "reductions": lambda c, x: [x.sum(), x.mean(0), x.max(1, keepdims=True), x.prod(1), (x > 0).all(0), x.argmax(1)],
    "all places": lambda c, x: c.argmin(x),
    "var": lambda c, x: x.var(axis=0, keepdims=True),
    "std": lambda c, x: x.std(),
    "scans": lambda c, x: [c.cumsum(x, 1), c.cummax(x, 0, reverse=True)],
    "axes": lambda c, x: [x.T, x[None], x[:, None].squeeze(1), x.flatten(), c.unflatten(x, 1, (2, 2))],
    "slices": lambda c, x: [x[1:, ::2], x[::-1]],
    "inverses": lambda c, x: (lambda s: [c.linalg.inv(s, stream=c.cpu), c.linalg.tri_inv(s, stream=c.cpu)])(x @ x.T),
    "factors": lambda c, x: [*c.linalg.qr(x, stream=c.cpu), *c.linalg.svd(x, stream=c.cpu)],
    "eigenvalues": lambda c, x: [c.linalg.eigvalsh(x @ x.T, stream=c.cpu)],
    "eigenvectors": lambda c, x: [*c.linalg.eigh(x @ x.T, "U", stream=c.cpu)],
    "updates": lambda c, x: x.at[0:2].add(x[1:]),
    "along an axis": lambda c, x: c.take_along_axis(x, c.argsort(x, axis=1), 1),
    "rows": lambda c, x: c.take(x, c.array([0, 2]), axis=0),
    "products": lambda c, x: [x @ x.T, c.addmm(x @ x.T, x, x.T, alpha=2.0, beta=0.5), c.einsum("ij,kj->ik", x, x)],
    "softmax": lambda c, x: [c.softmax(x, axis=-1), c.logsumexp(x, axis=-1)],
    "convolution": lambda c, x: c.conv1d(x[None], c.array([[[1.0] * 4] * 2] * 2), stride=2, padding=1),
    "joined": lambda c, x: c.concatenate([c.stack([x, x]).sum(0), x], axis=1),
    "parts": lambda c, x: [*c.split(x, 2, axis=1), *c.split(x, [1, 2])],
    "padded": lambda c, x: [c.pad(x, ((1, 2), (0, 1))), c.pad(x, 1, constant_values=2.0)],
    "quotient and remainder": lambda c, x: c.divmod(x, 2.0),
    "remainder and quotient": lambda c, x: c.divmod(x, 2.0)[::-1],
    "a quotient that is used first": lambda c, x: (lambda q, r: [c.exp(q), c.sin(r) * q])(*c.divmod(x, 2.0)),
    "a quotient alone": lambda c, x: c.divmod(x, 2.0)[0],
    "a remainder alone": lambda c, x: c.divmod(x, 2.0)[1] + 1,
    "other quotients": lambda c, x: [x // 2.0, x % 3.0],
    "sorted": lambda c, x: [c.sort(x, axis=0), c.argsort(x, axis=0), c.partition(x, 1, axis=0)],
    "stopped": lambda c, x: x * c.stop_gradient(x),
    "stopped at the end": lambda c, x: c.stop_gradient(x * 2),
    "transforms": lambda c, x: [c.fft.fft(x), c.fft.rfft(x), c.fft.ifft(x, axis=0), c.fft.irfft(x)],
    "transforms of axes": lambda c, x: [c.fft.fft2(x), c.fft.rfftn(x), c.fft.irfft2(x)],
    "transforms of other lengths": lambda c, x: [c.fft.fft(x, 6), c.fft.rfft(x, 2)],
    "scaled transforms": lambda c, x: c.fft.fft(x, norm="ortho"),
    "shifted": lambda c, x: [c.fft.fftshift(x), c.roll(x, 1, axis=0), c.roll(x, 1), c.flip(x)],
    "reshapes": lambda c, x: [x.reshape(-1), x.reshape(2, -1), x.reshape(3, 2, 2), x.reshape(1, 3, 4), x.reshape(4, 3)],
    "split axes": lambda c, x: [c.unflatten(x, 0, (1, -1)), c.expand_dims(x, (0, 2)), x[None].squeeze()],
    "repeated": lambda c, x: [c.repeat(x, 2, axis=1), c.repeat(x, 2), c.tile(x, (2, 1)), c.tile(x, 2)],
    "equal steps": lambda c, x: [c.exp(x) + c.exp(x), x.sum(0) * 2, x.sum(0) * 2],
    "equal numbers": lambda c, x: (x + 2.0) * 2.0 - 2.0,
    "constants that are computed": lambda c, x: [c.ones((3, 4)) + x, c.arange(4) + x, c.arange(0.0, 4.0) * x],
    "a constant that is returned": lambda c, x: [c.array(1.0), x + 1],
    "triangles": lambda c, x: [c.tril(x), c.triu(x, 1), c.tri(3, 4) * x],
    "numbers first": lambda c, x: [1 + x, 2 * x, 1 - x, 1 / x],
    "activations": lambda c, x: [x * c.sigmoid(x), 0.5 * x * (1 + c.erf(x / 2**0.5)), c.maximum(x, 0), c.logaddexp(x, 0.0)],
    "spread of a sample": lambda c, x: [x.std(0, ddof=1), x.var(1, ddof=1)],
    "infinities": lambda c, x: [c.isinf(x), c.isfinite(x), c.isneginf(x), c.nan_to_num(x)],
    "towards zero": lambda c, x: c.trunc(x),
    "not": lambda c, x: ~(x > 1),
    "equal arrays": lambda c, x: c.array_equal(x, x * 2),
    "numbers as indices": lambda c, x: [x[0], x[-1], x[0, 1], x[..., 0], x[:, None, 1:]],
    "arrays as indices": lambda c, x: [x[c.array([0, 2])], x[c.array([0, 2]), c.array([1, 1])], c.take(x, c.array([0, 2]))],
    "assigned numbers": lambda c, x: [x.at[0].add(1.0), x.at[c.array([0, 1])].add(5.0)],
    "an assigned column": lambda c, x: x.at[:, 0].add(x[:, 1]),
    "vectors": lambda c, x: [x @ c.ones((4,)), c.ones((3,)) @ x, x[0] @ x[1], c.outer(x[0], x[1])],
    "contracted": lambda c, x: [c.tensordot(x, x, axes=2), c.einsum("ij,ij->i", x, x), c.kron(x, x)],
    "convolution of an image": lambda c, x: c.conv2d(x[None, :, :, None], c.ones((2, 2, 2, 1)), padding=1),
    "windows": lambda c, x: c.as_strided(x, (2, 2), (4, 1)).max(1),
    "quantized": lambda c, x: c.quantized_matmul(
        c.broadcast_to(x[:, :1], (3, 64)), *c.quantize(c.arange(128.0).reshape(2, 64), 64, 4)
    ),
    "norms": lambda c, x: [
        c.fast.rms_norm(x, None, 1e-5),
        c.fast.rms_norm(x, c.ones((4,)), 1e-5),
        c.fast.layer_norm(x, None, None, 1e-5),
        c.fast.layer_norm(x.astype(c.float16), c.ones((4,), c.float16), c.zeros((4,), c.float16), 1e-5),
    ],
    "rotary embedding": lambda c, x: [
        c.fast.rope(x[None], 4, traditional=False, base=100.0, scale=1.0, offset=0),
        c.fast.rope(x[None, None], 4, traditional=True, base=100.0, scale=0.5, offset=3),
        c.fast.rope(x[None, None], 4, traditional=False, base=None, scale=1.0, offset=c.array(2), freqs=c.array([1.0, 2.0])),
    ],
    "fused attention": lambda c, x: (
        lambda q, k: [
            c.fast.scaled_dot_product_attention(k, k, k, scale=0.5),
            c.fast.scaled_dot_product_attention(k, k, k, scale=0.5, mask="causal"),
            c.fast.scaled_dot_product_attention(q, k, k, scale=0.5, mask=c.ones((3, 3))),
            c.fast.scaled_dot_product_attention(q, k, k, scale=0.5, mask=c.ones((3, 3)) > 0),
        ]
    )(c.stack([x, x])[None], x[None, None]),
    "products of batches": lambda c, x: [
        x[None] @ x.T, c.stack([x, x]) @ x[0], x @ c.stack([x.T, x.T]), c.addmm(x[0, :3], c.stack([x, x]), x.T),
    ],
    "diagonals": lambda c, x: [c.diagonal(x), c.diagonal(x, 1), c.diag(x[0], 1), c.trace(x), c.diag(x)],
    "transposed convolution": lambda c, x: c.conv_transpose1d(x[None], c.ones((2, 2, 4)), stride=2, padding=1),
    "places in order": lambda c, x: c.searchsorted(x[0], x[1]),
    "real numbers": lambda c, x: [c.real(x) + 1, c.conjugate(x) * 2, c.vecdot(x, x)],
    "ones on a diagonal": lambda c, x: [
        c.eye(3, 4) * x, c.eye(3, 4, -1) + x, c.eye(3, 4, 2, dtype=c.int32) + x, c.eye(3, 4, 9) + x, c.identity(3) @ x,
    ],
    "other diagonals": lambda c, x: [c.tril(x, -1), c.tril(x, 2), c.triu(x), c.triu(x, -1), c.tri(3, 4, 1) * x],
    "flattened": lambda c, x: [
        c.cummax(x), c.cummin(x, reverse=True), c.cumsum(x), c.sort(x, axis=None), c.argsort(x, axis=None),
        c.topk(x, 2, axis=None), c.atleast_3d(x),
    ],
    "places with axes": lambda c, x: [c.argmax(x, keepdims=True), c.argmin(x[0], keepdims=True), c.argmax(x[0])],
    "medians": lambda c, x: [c.median(x), c.median(x[None], axis=(0, 2)), c.median(x, axis=(0, 1), keepdims=True)],
    "close": lambda c, x: [c.isclose(x, x[0]), c.isclose(x, x * 2, equal_nan=True), c.allclose(x, x)],
    "matrix norms": lambda c, x: [
        c.linalg.norm(x, ord=1), c.linalg.norm(x[None], ord=-1, axis=(1, 2)), c.linalg.norm(x, ord=float("inf"), keepdims=True),
        c.linalg.norm(x, ord=2, stream=c.cpu), c.linalg.norm(x[None], ord="nuc", axis=(1, 2), stream=c.cpu),
    ],
    "convolved": lambda c, x: [c.convolve(x[0], x[1]), c.convolve(x[0], x[1], mode="valid")],
    "parts of numbers": lambda c, x: [c.imag(x), c.abs(x.astype(c.complex64)), c.imag(x.astype(c.complex64))],
    "chosen matrices": lambda c, x: [
        c.gather_mm(c.stack([x, x]), c.stack([x.T, x.T]), rhs_indices=c.array([1, 0])),
        c.gather_mm(x[None], x.T[None], c.array([0]), c.array([0], c.uint32)),
    ],
    "chosen quantized matrices": lambda c, x: c.gather_qmm(
        c.broadcast_to(x[:, :1], (3, 64))[:, None], *c.quantize(c.ones((2, 2, 64)), 64, 4), rhs_indices=c.array([0, 1, 0])
    ),
    "several axes at once": lambda c, x: [
        c.softmax(x), c.softmax(x[None], axis=(0, 2)), c.logsumexp(x), c.logsumexp(x, axis=0), c.logsumexp(x, axis=-1, keepdims=True),
        x.logsumexp(keepdims=True), c.logsumexp(x[None], axis=(0, 2)), c.linalg.norm(x), c.linalg.norm(x, keepdims=True),
    ],
    "uniform and normal numbers": lambda c, x: (lambda key: [
        c.random.uniform(-1, x[0], (3, 4), key=key), c.random.uniform(0.0, 2.5, (2,), dtype=c.float16, key=key),
        c.random.normal((3, 4), loc=1, scale=2, key=key), c.random.normal((2,), dtype=c.float16, key=key),
        c.random.truncated_normal(-1, x, key=key), c.random.laplace((2,), loc=1, scale=2, key=key), c.random.gumbel((3,), key=key),
    ])(c.random.key(0)),
    "random choices": lambda c, x: (lambda key: [
        c.random.bernoulli(x / 12, key=key), c.random.randint(0, x[0].astype(c.int32), (3, 4), key=key),
        c.random.categorical(x, key=key), c.random.categorical(x, axis=0, num_samples=2, key=key), c.random.categorical(x, shape=(2, 3), key=key),
        c.random.permutation(5, key=key), c.random.permutation(x, key=key), c.random.permutation(x, axis=1, key=key),
    ])(c.random.key(0)),
    "the global key": lambda c, x: (c.random.seed(3), [c.random.uniform(shape=(3, 4)) * x, c.random.normal((2,))])[1],
    "rounded": lambda c, x: [c.round(x), c.round(x, 2), c.round(x, -1)],
    "repeated edges": lambda c, x: [c.pad(x, 1, mode="edge"), c.pad(x, ((1, 2), (0, 3)), mode="edge")],
    "arrays beside slices": lambda c, x: (lambda i: [
        x[i, 1:], x[1:, i], x[:, i], x[None, i], x[i, None], x[i, ::2], x[0, i], x[i, -1], x[:, None, i], x[c.array(1), c.array(2)],
        x[None][:, i, c.array([1, 2])], x[None][i * 0, :, c.array([1, 2])], x[None][i * 0, 1:, 0], x[None][0, i, ::2], x[i.astype(c.uint8), 0],
    ])(c.array([0, 1])),
    "assigned arrays beside slices": lambda c, x: (lambda i: [
        x.at[1:, i].add(1), x.at[i, 1:].maximum(3), x.at[:, i].add(x[:, :2]), x.at[0, i].multiply(x[0, :2]), x.at[c.array(1)].add(1),
        x.at[i, i].subtract(x[0, :2]), x.at[0].subtract(x[1]), x[None].at[i * 0, :, i].add(1), x[None].at[:, i, :2].add(1),
    ])(c.array([0, 1])),
    "determinants and systems": lambda c, x: (lambda s: [
        c.linalg.det(s, stream=c.cpu), c.linalg.det(s[:2, :2], stream=c.cpu), *c.linalg.slogdet(s, stream=c.cpu),
        c.linalg.pinv(x, stream=c.cpu), c.linalg.pinv(x.T, stream=c.cpu), c.linalg.solve_triangular(s, x, upper=True, stream=c.cpu),
        c.linalg.solve_triangular(s, x[:, 0], stream=c.cpu),
    ])(x[:3, :3]),
    "decoded weights": lambda c, x: [
        c.dequantize(*c.quantize(c.broadcast_to(x[:2, :1], (2, 64)), 32, bits), 32, bits) for bits in (2, 3, 4, 8)
    ],
    "samples and means": lambda c, x: [
        c.linspace(0, 1, 5) * x[0, 0], c.linspace(1, 2.5, 3, dtype=c.float16) + x[0, :3].astype(c.float16),
        c.mean(x.astype(c.int32)), x.astype(c.int8).mean(1, keepdims=True),
    ],
    "grids": lambda c, x: [*c.meshgrid(x[0], x[1], indexing="ij"), *c.meshgrid(x[0], x[1])],
    "integers": lambda c, x: (lambda i: [
        c.softmax(i, axis=0), c.softmax(i, axis=-1), c.logsumexp(i), c.isinf(i), c.isnan(i), c.isfinite(i), c.trunc(i), (x > 1).mean(),
    ])(x.astype(c.int32)),
    "axes of length one": lambda c, x: (lambda r: [
        r.sum(0), r.max(0, keepdims=True), r.mean(0), r.var(0), (r > 0).all(0), (r > 0).sum(0), r.argmax(0), c.softmax(r, axis=0),
    ])(x[:1]),
    "shapes that stay": lambda c, x: [x.reshape(-1, 4), x.reshape(3, 4) * 2, c.roll(x, 0, axis=0), c.pad(x, 0), c.mean(x.sum())],
    "arrays that stay": lambda c, x: [
        c.moveaxis(x, 1, 1) * 2, c.split(x, 1)[0] * 3, c.repeat(x, 1, axis=0) * 4, x.squeeze() * 5, x.sum().flatten(), c.array_equal(x.sum(), 2),
    ],
    "close integers": lambda c, x: (lambda i: [c.isclose(i, x), c.allclose(x, i, equal_nan=True), c.isclose(i, i)])(x.astype(c.int32)),
    "numbers as truth values": lambda c, x: [c.logical_and(x, 2), c.logical_or(300, x > 1)],
    "a row by strides": lambda c, x: c.as_strided(x[0], (2, 2), (1, 1)),
    "a number in a tuple": lambda c, x: [x[1,], x[-1,], x[:1][0,]],
    "slices of one element": lambda c, x: [x[1:-1:2], x[2:0:-2], x[0:1:3, ::-4], x[c.array([0, 1]), -2:-1]],
    "rolled twice": lambda c, x: [c.roll(x, (1, 2), axis=(0, 1)), c.roll(x, -1), c.fft.fftshift(x), c.fft.ifftshift(x, axes=(1,))],
    "slices beside each other": lambda c, x: c.concatenate([x[1:], x[:1]], axis=0),
    "complex numbers": lambda c, x: (x * 2j + 2j) * 2j,
    "parts that are not used": lambda c, x: [c.split(x, 4, axis=1)[1], c.unstack(x)[0], list(x)[1]],
    "bounds as written": lambda c, x: [x[:-1, 1:-1], x[:100], x[3:], x.at[:-1].add(x[1:]), x.at[3:].add(1.0), x[c.array([0, 1]), 1:100]],
    "slices by steps beside arrays": lambda c, x: (lambda i: [
        x[::2, i], x[::-1, i], x[i, ::-1], x.at[i, ::2].add(1.0), x.at[::2, i].multiply(2.0), x.at[:].add(x), x.at[:].subtract(2.0),
    ])(c.array([0, 1])),
    "masked assignments": lambda c, x: [masked(x > 1, 0.0, x), masked(c.array([True, False, True]), c.ones((4,)), x)],
    "equal arrays with NaN": lambda c, x: c.array_equal(x, x * 2, equal_nan=True),
    "arrays after others": lambda c, x: [c.depends(x, c.exp(x)), *c.depends([x * 2], [c.sin(x)])],
    "sampled windows": lambda c, x: [c.hanning(5) * 1, c.hamming(5) * 1, c.blackman(5) * 1, c.bartlett(5) * 1],
    "frequencies": lambda c, x: [c.fft.fftfreq(8) * 1, c.fft.rfftfreq(7, 0.5) * 1, c.fft.fft2(x, axes=(1, 0)), c.fft.rfft2(x, s=(2, 6))],
    "cross products": lambda c, x: [c.linalg.cross(x[:, :3], x[:, 1:]), c.linalg.cross(x[:, :2], x[:, 1:3])],
    "masked blocks": lambda c, x: (lambda a: c.block_masked_mm(a, a, 32, mask_out=c.ones((1, 1)) > 0))(c.broadcast_to(x[:1, :1], (32, 32))),
    "sorted indices": lambda c, x: c.gather_mm(x[:, None, None], c.stack([x.T, x.T]), rhs_indices=c.array([[0, 1]] * 3), sorted_indices=True),
    "reflected edges": lambda c, x: [c.pad(x, 1, mode="reflect"), c.pad(x, ((1, 2), (0, 1)), mode="symmetric")],
    "other random numbers": lambda c, x: (lambda key: [
        c.random.normal((2,), c.complex64, key=key), c.random.truncated_normal(0, 2.0, (3,), c.float16, key=key),
        c.random.laplace((3,), c.float16, key=key), c.random.categorical(x.astype(c.int32), key=key),
    ])(c.random.key(0)),
    "a derivative of a sum": lambda c, x: c.grad(lambda x: c.exp(x).sum())(x),
    "vectorized": lambda c, x: [
        c.vmap(lambda row: c.softmax(row, axis=-1))(x), c.vmap(lambda row: row.sum())(x), c.vmap(lambda row: c.concatenate([row, row[1:]]))(x),
        c.vmap(lambda row: row[None])(x), c.vmap(lambda row: row @ row)(x), c.vmap(lambda row: x @ row)(x),
    ],
    "attention": lambda c, x: c.softmax((x[None] * 0.5) @ x[None].swapaxes(1, 2), axis=-1) @ x[None],
}


def exported(core, function):
    """A graph as lines: its outputs, its constants, and each primitive with its arguments, inputs and outputs."""
    steps = []
    x = core.arange(12.0).reshape(3, 4)
    core.eval(x)
    core.export_function(steps.append, lambda x: function(core, x), x)
    kind = lambda dtype: str(dtype).split(".")[-1]
    arrays = lambda entries: [(name, tuple(shape), kind(dtype)) for name, shape, dtype in entries]
    lines = []
    for step in steps:
        if step["type"] == "primitive":
            arguments = [kind(one) if isinstance(one, core.Dtype) else one for one in step["arguments"]]
            lines.append(f"{step['name']} {arguments} {arrays(step['inputs'])} {arrays(step['outputs'])}")
        elif step["type"] == "constants":
            lines += [f"{name} = {kind(array.dtype)} {array.tolist()}" for name, array in step["constants"]]
        elif step["type"] == "outputs":
            lines.append(f"outputs {arrays(step['outputs'])}")
    return lines


AXES = [0, 1, -1, (0, 1), (0, 2), None]
REDUCTIONS = ["sum", "mean", "max", "min", "prod", "var", "std", "logsumexp", "softmax"]


@pytest.mark.parametrize("over", AXES, ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_derivatives_of_reductions_follow_other_shapes(path, reduction, over):
    def f(x):
        return getattr(mx, reduction)(x, axis=over)

    functions = {
        "value": f,
        "gradient": mx.grad(lambda x: mx.square(f(x)).sum()),
        "tangent": lambda x: mx.jvp(f, [x], [mx.ones_like(x)])[1][0],
    }
    traced, given = mx.ones((2, 3, 4)), mx.cos(mx.arange(30.0)).reshape(3, 5, 2) + 2
    for name, function in functions.items():
        mx.export_function(path, function, traced, shapeless=True)
        (found,) = mx.import_function(path)(given)
        expected = function(given)
        assert found.shape == expected.shape and mx.allclose(found, expected, rtol=1e-4, atol=1e-5), name


def test_arrays_like_another_follow_its_shape(path):
    mx.export_function(path, lambda x: (mx.zeros_like(x), mx.full_like(x, 3), x * mx.ones_like(x)), mx.ones((2, 3)), shapeless=True)
    assert [array.shape for array in mx.import_function(path)(mx.ones((4, 5)))] == [(4, 5)] * 3


def test_the_derivative_of_a_median_is_not_traced_for_any_shape(path):
    with pytest.raises(ValueError, match="shapeless"):
        mx.export_function(path, mx.grad(lambda x: mx.median(x, axis=0).sum()), mx.ones((2, 3)), shapeless=True)


@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_callback_gets_the_graph_of_the_reference(mlx, name):
    assert exported(mx, PRIMITIVES[name]) == exported(mlx, PRIMITIVES[name])


def test_the_primitives_of_a_graph_are_connected():
    for function in PRIMITIVES.values():
        steps = []
        mx.export_function(steps.append, lambda x: function(mx, x), mx.ones((3, 4)))
        inputs, _, outputs, constants, *primitives = steps
        known = {name for name, *_ in inputs["inputs"] + constants["constants"]}
        for step in primitives:
            assert all(name in known for name, *_ in step["inputs"]), step
            known.update(name for name, *_ in step["outputs"])
        assert all(name in known for name, *_ in outputs["outputs"])


def test_numbers_are_compared_before_they_are_counted():
    steps = []
    mx.export_function(steps.append, mx.count_nonzero, mx.array([[0.0, 2.5]]))
    names = [step["name"] for step in steps if step["type"] == "primitive"]
    assert sorted(names) == ["AsType", "Broadcast", "NotEqual", "Reduce", "Squeeze"]


def test_a_function_that_draws_numbers_is_reported_and_leaves_a_key(mlx):
    drawn = []
    for core in (mx, mlx):
        core.random.seed(7)
        core.export_function(lambda step: None, lambda x: x + core.random.uniform(shape=(2,)), core.ones((2,)))
        drawn.append(core.random.uniform(shape=(3,)).tolist())
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("columns", [3, 4])
def test_a_median_is_primitives_that_the_reference_has(columns):
    steps = []
    mx.export_function(steps.append, lambda x: mx.median(x, axis=1), mx.ones((2, columns)))
    names = [step["name"] for step in steps if step["type"] == "primitive"]
    assert names[-2:] == ["Select", "Squeeze"] and "Sort" in names and "Median" not in names
    assert steps[2]["outputs"] == [(steps[-1]["outputs"][0][0], (2,), mx.float32)]


def test_many_threads_call_one_imported_function(path):
    mx.export_function(path, lambda x: mx.exp(x) @ mx.ones((4, 4)), mx.ones((4, 4)))
    f, x = mx.import_function(path), mx.random.normal((4, 4))
    expected, wrong = mx.exp(x) @ mx.ones((4, 4)), []

    def run():
        for _ in range(20):
            if not same(f(x), (expected,)):
                wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_is_not_closed_is_written_all_the_same(path):
    exporter = mx.exporter(path, mx.exp)
    exporter(mx.array(1.0))
    del exporter
    assert same(mx.import_function(path)(mx.array(1.0)), (mx.exp(mx.array(1.0)),))


def test_graphs_are_text(tmp_path):
    x = mx.array([1.0, 2.0])
    y = mx.exp(x + 1)
    for file in (str(tmp_path / "g.dot"), tmp_path / "h.dot"):
        mx.export_to_dot(file, y, x=x)
        text = open(file).read()
        assert text.startswith("digraph {") and '"x"' in text and '"Exp"' in text and '"Add"' in text
    text = io.StringIO()
    mx.export_to_dot(text, [y, {"z": x + 2}], last=y)
    assert '"last"' in text.getvalue()
    text = io.StringIO()
    mx.export_to_dot(text, x=x, y=y)  # Named arrays are outputs, and what computes them stays.
    assert all(f'"{label}"' in text.getvalue() for label in ("x", "y", "Exp", "Add"))
    with pytest.raises(TypeError):
        mx.export_to_dot(io.BytesIO(), y)
    for wrong in ((5, y), (str(tmp_path / "g.dot"), 3)):
        with pytest.raises(ValueError):
            mx.export_to_dot(*wrong)


def test_gather_qqmm_multiplies_what_both_sides_are_rounded_to():
    x, w = mx.random.normal((4, 3, 64)), mx.random.normal((5, 8, 64))
    left, right = mx.array([[0], [2]]), mx.array([4, 0, 1])
    for mode in ("nvfp4", "mxfp8", "mxfp4"):
        codes, scales = mx.quantize(w, mode=mode)
        rounded = mx.dequantize(*mx.quantize(x, mode=mode), mode=mode, dtype=mx.float32)
        whole = mx.dequantize(codes, scales, mode=mode, dtype=mx.float32)
        expected = mx.gather_mm(rounded, whole.swapaxes(-1, -2), left, right)
        found = mx.gather_qqmm(x, codes, scales, left, right, mode=mode)
        assert found.shape == (2, 3, 3, 8) and mx.allclose(found, expected, atol=1e-4, rtol=1e-4)
        assert mx.array_equal(found, mx.gather_qqmm(x, w, None, left, right, mode=mode, sorted_indices=True))
        assert mx.gather_qqmm(x, w[:4], mode=mode).shape == (4, 3, 8)
    half = mx.gather_qqmm(x.astype(mx.bfloat16), codes, scales, left, right, mode=mode)
    assert half.dtype == mx.bfloat16
    with pytest.raises(ValueError):
        mx.gather_qqmm(x, w, mode="nvfp4")
    with pytest.raises(ValueError):
        mx.gather_qqmm(x, w, None, left, right, mode="affine")
    with pytest.raises(ValueError):
        mx.gather_qqmm(x, w, None, left.astype(mx.float32), right)


def test_what_is_no_part_of_the_trace_can_be_read_while_a_function_is_described():
    w, found = mx.arange(12.0).reshape(3, 4), []

    def f(x):
        read = [
            mx.split(w, 2, axis=1)[0], mx.roll(w, 1), mx.pad(w, 1), w[:-1, 1:], w[mx.array([0, 1]), ::2], w.at[:].add(1.0), mx.unstack(w)[0],
            w.reshape(-1, 4), mx.isclose(w, w), mx.array_equal(w, w, equal_nan=True), mx.take(w, 1, axis=0), mx.median(w, axis=1),
            mx.random.normal((2,), mx.complex64), mx.random.randint(0, 5, (2,)), mx.hanning(5), mx.linspace(0, 1, 3), mx.fft.fftshift(w),
            mx.grad(lambda w: mx.tanh(w).sum())(w), mx.vmap(lambda r: r * 2)(w), mx.jvp(mx.exp, [w], [w])[1][0], mx.depends(w, w),
            mx.gather_mm(w[None], w.T[None], rhs_indices=mx.array([0])), mx.linalg.cross(w[:, :3], w[:, 1:]), mx.softmax(w), next(iter(w)),
        ]
        found.extend(array.tolist() for array in read)
        return x

    mx.export_function(lambda step: None, f, mx.ones((2,)))
    assert len(found) == 25

"""Derivatives and ``vmap`` in graphs that a callback receives: the steps that the reference has for them."""

import pytest

import hesper.core as mx
import hesper.nn as nn
from test_export import exported


def gradient(f):
    return lambda c, x: c.grad(lambda x: f(c, x).sum())(x)


def tangent(f):
    return lambda c, x: c.jvp(lambda x: f(c, x), [x], [c.ones_like(x)])[1]


def slices(f, **axes):
    return lambda c, x: c.vmap(lambda row: f(c, row), **axes)(x)


UNARY = (
    "abs arccos arccosh arcsin arcsinh arctan arctanh ceil cos cosh degrees erf erfinv exp expm1 floor log log10 log1p log2 negative "
    "radians reciprocal round rsqrt sigmoid sign sin sinh softmax logsumexp sqrt square stop_gradient tan tanh cumsum sort sum prod "
    "min max mean var std flatten transpose tril triu diag diagonal trace trunc nan_to_num real imag"
).split()
BINARY = "add subtract multiply divide maximum minimum power logaddexp arctan2 remainder floor_divide".split()
AXIS = "softmax logsumexp cumsum sort sum prod min max mean var std".split()

FUNCTIONS = {
    "products": lambda c, x: x @ x.T,
    "a product with a vector": lambda c, x: x @ x[0],
    "products of batches": lambda c, x: c.stack([x, x]) @ x.T,
    "addmm": lambda c, x: c.addmm(x[0, :3], x, x.T, alpha=2.0, beta=0.5),
    "shapes": lambda c, x: x.reshape(2, 6)[None].squeeze(0).flatten() * 2,
    "unflattened": lambda c, x: c.unflatten(x, 1, (2, 2)) ** 2,
    "slices": lambda c, x: x[1:] * x[::2] + x[::-1][:2],
    "a row": lambda c, x: x[1] * x[0, 2],
    "arrays as indices": lambda c, x: x[c.array([0, 1]), 1:] * c.take(x, c.array([0, 1, 2]), axis=1)[:2],
    "along an axis": lambda c, x: c.take_along_axis(x, c.array([[0], [1], [2]]), axis=1) * x,
    "concatenated": lambda c, x: c.concatenate([x, x * 2], axis=1) ** 2,
    "stacked": lambda c, x: c.stack([x, c.exp(x)]) ** 2,
    "split": lambda c, x: c.split(x, 2, axis=1)[0] * c.split(x, 2, axis=1)[1],
    "one part": lambda c, x: c.split(x, [1], axis=1)[1] * 2,
    "chosen": lambda c, x: c.where(x > 1, x, 2 * x),
    "clipped": lambda c, x: c.clip(x, 1.0, 3.0),
    "padded": lambda c, x: c.pad(x, ((1, 0), (2, 1))) * 2,
    "other types": lambda c, x: x.astype(c.float16) * 2,
    "repeated": lambda c, x: c.repeat(x, 2, axis=0) + c.tile(x, (2, 1)),
    "rolled": lambda c, x: c.roll(x, 1, axis=0) * x,
    "norms": lambda c, x: c.fast.layer_norm(c.fast.rms_norm(x, x[0], 1e-5), x[0], x[1], 1e-5),
    "a rotary embedding": lambda c, x: c.fast.rope(x[None], 4, traditional=False, base=100.0, scale=1.0, offset=0) * 2,
    "attention": lambda c, x: c.fast.scaled_dot_product_attention(x[None, None], x[None, None] * 2, x[None, None], scale=0.5),
    "activations": lambda c, x: x * c.sigmoid(x) + x * (1 + c.erf(x / 2**0.5)) / 2,
    "a loss": lambda c, x: c.logsumexp(x, axis=-1) - c.take_along_axis(x, c.array([[0], [1], [2]]), axis=-1).squeeze(-1),
    "a network": lambda c, x: c.tanh(x @ c.ones((4, 5)) + 1) @ c.ones((5, 2)),
    "contracted": lambda c, x: c.einsum("ij,kj->ik", x, x) + c.tensordot(x, x, axes=2) + c.inner(x, x),
    "medians": lambda c, x: c.median(x, axis=0),
    "transforms": lambda c, x: c.abs(c.fft.fft(x)),
    "all axes": lambda c, x: x[None].max(axis=(0, 2)) + x[None].prod(axis=(0, 2)),
    "partitioned": lambda c, x: c.topk(x, 2) * 2,
    "placed in slices": lambda c, x: c.slice(x, c.array([1, 1]), (0, 1), (2, 2)) * 2,
}
REVERSE = {
    "added to a row": lambda c, x: x.at[0].add(x[1]) * 2,
    "added to rows": lambda c, x: x.at[c.array([0, 1])].add(x[:2]) * 2,
    "convolved": lambda c, x: c.conv1d(x[None], c.ones((2, 2, 4)), padding=1),
    "convolved weights": lambda c, x: c.conv1d(c.ones((1, 5, 4)), x[None, :2]),
    "convolved images": lambda c, x: c.conv2d(x[None, :, :, None], c.ones((2, 2, 2, 1)), stride=2, padding=1),
    "scans": lambda c, x: c.cumprod(x, axis=1) + c.cummax(x, axis=1, reverse=True),
    "windows": lambda c, x: c.as_strided(x, (2, 2), (4, 1)) * 2,
    "quantized": lambda c, x: c.quantized_matmul(
        c.broadcast_to(x[:, :1], (3, 64)), *c.quantize(c.arange(128.0).reshape(2, 64), 64, 4)
    ),
    "chosen matrices": lambda c, x: c.gather_mm(c.stack([x, x]), c.stack([x.T, x.T]), rhs_indices=c.array([1, 0])),
    "real transforms": lambda c, x: c.abs(c.fft.rfft(x)),
    "inverse transforms": lambda c, x: c.fft.irfft(x) * 2,
}
ROWS = {
    "a product": lambda c, r: r @ c.ones((4, 2)),
    "an outer product": lambda c, r: c.outer(r, r),
    "elements": lambda c, r: [r[1], r[1:], r[::2], r[::-1], r[c.array([0, 1])], c.take(r, c.array([[0, 1]]))],
    "shapes": lambda c, r: [r[:, None], r.reshape(2, 2), r[None].T, r[None].squeeze(0), c.unflatten(r, 0, (2, 2))],
    "numbers": lambda c, r: [r + 1, c.where(r > 1, r, 0.0), c.clip(r, 1, 2), c.isnan(r), (r > 1).any()],
    "joined": lambda c, r: [c.concatenate([r, c.ones((2,))]), c.stack([r, r]), *c.split(r, 2), c.pad(r, 1)],
    "stretched": lambda c, r: [c.broadcast_to(r, (2, 4)), c.tile(r, 2), c.repeat(r, 2), r * c.ones((2, 1))],
    "in order": lambda c, r: [c.sort(r), c.argmax(r), c.topk(r, 2), c.cumsum(r), c.roll(r, 1)],
    "reductions": lambda c, r: [r.mean(), r.var(), c.softmax(r), c.logsumexp(r), c.linalg.norm(r), r @ r],
    "updates": lambda c, r: [r.at[0].add(1.0), r.at[c.array([0, 1])].add(1.0), c.zeros((4,)).at[0].add(r[0])],
    "a gradient": lambda c, r: c.grad(lambda r: (r * r).sum())(r),
    "norms": lambda c, r: c.fast.layer_norm(r, c.ones((4,)), c.zeros((4,)), 1e-5),
    "the same for all": lambda c, r: [c.ones((2,)), c.arange(4) + r],
    "as indices": lambda c, r: [c.ones((3, 4))[r.astype(c.int32)], r[r.astype(c.int32) % 4]],
    "a convolution": lambda c, r: c.conv1d(r[None, :, None], c.ones((1, 2, 1))),
    "contracted": lambda c, r: [c.einsum("i,i->", r, r), c.addmm(c.ones((2,)), r[None], c.ones((4, 2)))],
    "transforms": lambda c, r: c.fft.fft(r),
    "other slices": lambda c, r: c.vmap(lambda e: e * 2 + r)(r),
}
PROGRAMS = {
    "the value beside the gradient": lambda c, x: list(c.value_and_grad(lambda x: c.exp(x).sum())(x)),
    "several arguments": lambda c, x: list(c.grad(lambda a, b: (a - b).sum(), argnums=(0, 1))(x, x + 1)),
    "a second derivative": lambda c, x: c.grad(lambda y: c.grad(lambda z: c.tanh(z).sum())(y).sum())(x),
    "a tangent of a gradient": lambda c, x: c.jvp(c.grad(lambda z: (z * z * z).sum()), [x], [c.ones_like(x)])[1],
    "gradients of rows": lambda c, x: c.vmap(c.grad(lambda r: c.exp(r).sum()))(x),
    "a gradient over rows": lambda c, x: c.grad(lambda x: c.vmap(lambda r: c.exp(r).sum())(x).sum())(x),
    "a Jacobian": lambda c, x: c.vmap(lambda v: c.vjp(c.exp, [x[0]], [v])[1][0])(c.eye(4)),
    "cotangents": lambda c, x: c.vjp(lambda a, b: a @ b, [x, x.T], [c.ones((3, 3))])[1],
    "a number": lambda c, x: c.grad(lambda s: (x * s).sum())(x[0, 0]),
    "an argument that is not used": lambda c, x: list(c.grad(lambda a, b: a.sum(), argnums=(0, 1))(x, x)),
    "a pair of columns": lambda c, x: c.vmap(lambda a, b: a * b, in_axes=(0, 1), out_axes=1)(x, x.T),
    "gradients of rows by index": lambda c, x: c.vmap(c.grad(lambda y: (y[c.array([0, 0, 1])] ** 2).sum()))(c.stack([x, x])),
    "the second derivative of a sort": lambda c, x: c.grad(
        lambda x: (c.grad(lambda y: (c.sort(y, axis=0) ** 2).sum())(x) ** 2).sum()
    )(x),
    "the second derivative of a running maximum": lambda c, x: c.grad(
        lambda x: (c.grad(lambda y: (c.cummax(y, axis=0) ** 2).sum())(x) ** 2).sum()
    )(x),
    "a compiled function": lambda c, x: c.grad(lambda x: c.compile(lambda x: c.exp(x).sum())(x))(x),
    **{f"the gradient of {name}": gradient(f) for name, f in (FUNCTIONS | REVERSE).items()},
    **{f"the tangent of {name}": tangent(f) for name, f in FUNCTIONS.items()},
    **{f"for each row {name}": slices(f) for name, f in ROWS.items()},
    **{f"the gradient of {name}": gradient(lambda c, x, name=name: getattr(c, name)(x)) for name in UNARY},
    **{f"the tangent of {name}": tangent(lambda c, x, name=name: getattr(c, name)(x)) for name in UNARY},
    **{f"the gradient of {name} of two": gradient(lambda c, x, name=name: getattr(c, name)(x, x[0] + 1)) for name in BINARY},
    **{f"the tangent of {name} of two": tangent(lambda c, x, name=name: getattr(c, name)(x, x[0] + 1)) for name in BINARY},
    **{f"the gradient of {name} along an axis": gradient(lambda c, x, name=name: getattr(c, name)(x, axis=0) * 2) for name in AXIS},
    **{f"{name} of columns": slices(lambda c, r, name=name: getattr(c, name)(r, axis=-1), in_axes=1) for name in AXIS},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_callback_gets_the_transformed_graph_of_the_reference(mlx, name):
    def flat(c, x):
        found = PROGRAMS[name](c, x)
        return list(found) if isinstance(found, tuple) else found

    assert exported(mx, flat) == exported(mlx, flat)


def test_an_op_without_a_rule_has_the_steps_of_its_own_derivative():
    steps = []
    mx.export_function(steps.append, mx.grad(lambda x: mx.linalg.inv(x, stream=mx.cpu).sum()), mx.eye(3))
    names = [step["name"] for step in steps if step["type"] == "primitive"]
    assert "Inverse" in names and "Matmul" in names


def test_values_that_a_transformed_function_stores_are_part_of_the_graph():
    layer, steps = nn.BatchNorm(4), []

    def f(x):
        gradient = mx.grad(lambda x: layer(x).sum())(x)
        return gradient, layer.running_mean

    mx.export_function(steps.append, f, mx.ones((3, 4)))
    known = {name for name, *_ in steps[0]["inputs"] + steps[3]["constants"]}
    for step in steps[4:]:
        assert all(name in known for name, *_ in step["inputs"]), step
        known.update(name for name, *_ in step["outputs"])
    assert all(name in known for name, *_ in steps[2]["outputs"])


def test_transformed_functions_are_written_and_computed_as_before(tmp_path):
    path, x = str(tmp_path / "f"), mx.arange(12.0).reshape(3, 4)
    for f in (mx.grad(lambda x: mx.tanh(x).sum()), mx.vmap(lambda r: mx.softmax(r) @ r)):
        mx.export_function(lambda step: None, f, x)
        mx.export_function(path, f, x)
        (found,) = mx.import_function(path)(x)
        assert mx.array_equal(found, f(x))

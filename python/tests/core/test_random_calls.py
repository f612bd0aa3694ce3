"""Random calls of every part of the package, beside the reference: functions, operators, indices, transformations.

A call that the reference answers has the same answer here. A call that it refuses may have an answer here; if it has
none, the exception is of the same type. ``HESPER_SEED`` chooses other calls, ``HESPER_CALLS`` how many of each kind.
"""

import os
import random

import numpy as np
import pytest

import hesper.core as mx

SEED = int(os.environ.get("HESPER_SEED", "1"))
CALLS = int(os.environ.get("HESPER_CALLS", "250"))
INTEGERS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
TYPES = ["bool_", *INTEGERS, "float16", "bfloat16", "float32", "complex64"]
UNARY = """abs negative sign exp log log1p sin cos tan sinh cosh tanh arctan arcsinh sqrt square sigmoid erf floor ceil
    round isnan isfinite logical_not real imag conjugate degrees""".split()
BINARY = """add subtract multiply divide power floor_divide remainder maximum minimum arctan2 logaddexp equal less
    greater_equal logical_and bitwise_or left_shift isclose""".split()
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-5, "complex64": 1e-4}


def make(m, seed, shape, dtype, low=1):
    """The same array in each library: small numbers, so that sums and products are exact or nearly so."""
    values = np.random.default_rng(seed).integers(low, 7, shape)
    if dtype == "complex64":
        values = values + 0.25j * values[::-1] if values.ndim else values + 0.5j
        return m.array(values.astype(np.complex64))
    return m.array(np.asarray(values, dtype=np.int32)).astype(getattr(m, dtype))


class Calls:
    """Texts of calls, from a source of random numbers."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def one(self, *options):
        return self.random.choice(options)

    def shape(self, low=0):
        lengths = [0] * (self.random.random() < 0.3) + [1, 2, 3, 4]
        return tuple(self.random.choice(lengths) for _ in range(self.random.randint(low, 4)))

    def array(self, shape=None, dtype=None):
        shape = self.shape() if shape is None else shape
        return f"make(m, {self.random.randrange(99)}, {shape}, {dtype or self.random.choice(TYPES)!r})"

    def axis(self):
        if self.random.random() < 0.1:
            return self.one("np.int32(0)", "1.0", "'a'", "2**33", "2**70", "None", "[0]", "(0, 1)", "m.array(0)")
        return self.random.randrange(-4, 5)

    def axes(self):
        some = tuple(self.random.randrange(-4, 4) for _ in range(self.random.randrange(4)))
        return self.one(self.axis(), some, "None")

    def reduction(self):
        name = self.one(*"sum prod max min mean var std any all".split())
        return f"m.{name}({self.array()}, axis={self.axes()}, keepdims={self.one(True, False)})"

    def scan(self):
        name = self.one(*"cumsum cumprod cummax cummin sort argsort argmax argmin".split())
        return f"m.{name}({self.array()}, axis={self.axis()})"

    def movement(self):
        x, shape, axis = self.array(), self.shape(), self.axis
        return self.one(
            f"m.reshape({x}, {shape or (-1,)})",
            f"m.reshape({x}, {(*shape[1:], -1)})",
            f"m.transpose({x}, {self.axes()})",
            f"m.squeeze({x}, {self.axis()})",
            f"m.expand_dims({x}, {self.axes()})",
            f"m.concatenate([{x}, {x}], axis={axis()})",
            f"m.stack([{x}, {x}], axis={axis()})",
            f"m.split({x}, {self.one(1, 2, 3, [1], [1, 2])}, {axis()})",
            f"m.tile({x}, {self.one(2, (1, 2), (2, 1, 1, 1, 1))})",
            f"m.repeat({x}, {self.one(0, 1, 2)}, {axis()})",
            f"m.roll({x}, {self.one(0, 1, -2, (1, 2))}, {self.axes()})",
            f"m.flip({x}, {self.axes()})",
            f"m.moveaxis({x}, {axis()}, {axis()})",
            f"m.swapaxes({x}, {axis()}, {axis()})",
            f"m.flatten({x}, {axis()}, {axis()})",
            f"m.unflatten({x}, {axis()}, {self.one((1, -1), (2, 2), (-1,))})",
            # The reference loops for ever on diagonals that begin outside of the array.
            f"m.diagonal({x}, 0, {axis()}, {axis()})",
            f"m.trace({x}, 0, {axis()}, {axis()})",
            f"m.tril({x}, {self.one(0, 1, -1)})",
            f"m.broadcast_to({x}, {shape})",
            f"m.unstack({x}, axis={axis()})",
            f"m.diff({x}, {self.one(0, 1, 2)}, {axis()})",
            f"m.atleast_2d({x})",
            f"m.pad({x}, {self.one(0, 1, (1, 2), [(0, 1)])}, {self.one(repr('constant'), repr('edge'))})",
            f"{x}.view(m.{self.one(*TYPES)})",
            f"{x}.astype(m.{self.one(*INTEGERS, 'float32', 'float16', 'bool_')})",
        )

    def constructor(self):
        number = lambda: self.one("0", "1", "5", "-3", "2.5", "0.1", "10", "-7", "m.array(3)", "np.int64(4)")
        dtype = f"m.{self.one(*TYPES)}"
        return self.one(
            f"m.arange({number()})",
            f"m.arange({number()}, {number()}, {self.one(1, 2, -1, 0.5, 3)})",
            f"m.arange({number()}, {number()}, dtype={dtype})",
            f"m.linspace({self.one(0, 1.5, -2)}, {self.one(3, -1.25)}, {self.one(0, 1, 2, 7)})",
            f"m.full({self.shape()}, {self.one(1, 3, True)}, m.{self.one(*TYPES[1:])})",
            f"m.eye({self.one(0, 1, 3)}, {self.one('None', 2, 4)}, {self.one(0, 1, -2, 2**33)}, {dtype})",
            f"m.tri({self.one(0, 1, 3)}, {self.one('None', 2, 4)}, {self.one(0, 1, -2)}, {dtype})",
            f"m.zeros_like({self.array()})",
            f"m.array({self.one([1, 2], [1.5, 2], [[True], [False]], [], [[], []], [[1], [2, 3]], 1j)}, {dtype})",
        )

    def index(self):
        # The reference divides by zero where an axis is empty.
        shape = tuple(max(length, 1) for length in self.shape(1))
        parts = []
        for length in shape[: self.random.randint(1, len(shape))]:
            some = self.random.randrange(-length, length)
            bound = lambda: self.one("", "", "0", "1", "-1", "2", "-7", "100")
            choices = [f"{bound()}:{bound()}:{self.one('', '1', '2', '-1', '-3')}", ":", "1.5", "'x'"]
            choices += [str(some), f"m.array([{some}, {some}])", f"[{some}]", f"m.array({some})"] * 2
            parts.append(self.one(*choices))
        x = self.array(shape, self.one("int32", "float32", "complex64"))
        index = ", ".join(parts)
        value = self.one("1", "2.5", "True", "np.float32(3)", "m.array(2)", "m.ones((1, 1))")
        return self.one(f"{x}[{index}]", f"changed({x}, lambda x: x.__setitem__(np.s_[{index}], {value}))")

    def element(self):
        number = self.one("0", "2", "-1", "2.5", "True", "1j", "300", "np.float32(1.5)", "np.array([1.5])", "None", "'a'")
        x, y = self.array((2, 3)), self.one(self.array((3,)), self.array((2, 1)), number)
        operator = self.one("+", "-", "*", "/", "//", "%", "**", "==", "<", "&", "|", "<<")
        return self.one(
            f"m.{self.one(*UNARY)}({self.one(x, number)})",
            f"m.{self.one(*BINARY)}({x}, {y})",
            f"{x} {operator} {y}",
            f"m.where({x}, {y}, {x})",
            f"m.clip({x}, {self.one('None', 2, 2.5)}, {self.one('None', 4, 3.5)})",
        )

    def product(self):
        shape, dtype = self.shape(), self.one("float32", "float16", "complex64", "int32")
        other = self.one(shape, (*shape[:-2], *shape[-1:], 3), shape[-1:])
        x, y = self.array(shape, dtype), self.array(other, self.one(dtype, "float32"))
        axes = self.one(0, 1, 2, 3, -1, [[0], [0]], [[-1], [0]])
        # The 2-norm of complex matrices is real here.
        order = self.one("None", 1, 0 if dtype == "complex64" else 2, 0, repr("fro"), repr("x"))
        text = self.one("ij,jk->ik", "ij,kj", "i,i", "...i,...i->...", "ii", "i,j->ij", "ij->ji")
        return self.one(
            f"m.matmul({x}, {y})",
            f"m.inner({x}, {y})",
            f"m.outer({x}, {y})",
            f"m.tensordot({x}, {y}, {axes})",
            f"m.addmm({self.array((3,), 'float32')}, {x}, {y}, 0.5, {self.one(1.0, 2)})",
            f"m.vecdot({x}, {y}, axis={self.axis()})",
            f"m.einsum({text!r}, {x}, {y})",
            f"m.linalg.norm({x}, {order}, {self.one('None', 0, -1, (0, 1))})",
        )

    def transform(self):
        x, lengths = self.array(self.shape(1)), self.one("None", (2,), (3, 2), (4, 4), "3", (0,), (2.0,))
        norm = self.one("", ", norm='ortho'", ", norm='forward'", ", norm='x'")
        one, several = self.one("fft", "ifft", "rfft", "irfft"), self.one("fftn", "ifftn", "rfftn", "irfftn", "fft2")
        return self.one(
            f"m.fft.{one}({x}, {self.one('None', 1, 2, 3, 5, 8, 0, -1)}, {self.axis()}{norm})",
            f"m.fft.{several}({x}, {lengths}, {self.axes()}{norm})",
            f"m.fft.{self.one('fftshift', 'ifftshift')}({x}, {self.axes()})",
        )

    def draw(self):
        shape, key = self.one(self.shape(), 3, "None", (2, 3)), self.one("m.random.key(3)", "m.array([1, 2], m.uint32)")
        bound = lambda: self.one("0", "1", "-2.5", "True", self.array((), "float32"), self.array((3,), "int32"))
        dtype = f"m.{self.one(*TYPES)}"
        return self.one(
            f"m.random.uniform({bound()}, {bound()}, {shape}, {self.one('m.float32', dtype)}, {key})",
            f"m.random.normal({shape}, {self.one('m.float32', dtype)}, {bound()}, {bound()}, {key})",
            f"m.random.randint(0, {self.one(5, 100)}, {shape}, {self.one('m.int32', dtype)}, {key})",
            f"m.random.bernoulli({bound()}, {shape}, {key})",
            f"m.random.truncated_normal({bound()}, {bound()}, {shape}, key={key})",
            f"m.random.gumbel({shape}, key={key})",
            f"m.random.categorical({self.array(self.shape(1), 'float32')}, {self.axis()}, key={key})",
            f"m.random.permutation({self.one(5, 0, 2.5, self.array())}, {self.axis()}, {key})",
        )

    def convolution(self):
        rank, groups = self.one(1, 2, 3), self.one(1, 2)
        lengths = lambda low, high: tuple(self.random.randint(low, high) for _ in range(rank))
        dtype = self.one("float32", "float16", "int32")
        x, w = self.array((2, *lengths(4, 6), 4), dtype), self.array((2, *lengths(2, 3), 4 // groups), dtype)
        options = f"stride={self.one(1, 2, lengths(1, 3), 0)}, padding={self.one(0, 1, lengths(0, 2), 'None')}"
        return self.one(
            f"m.conv{rank}d({x}, {w}, {options}, groups={groups})",
            f"m.conv_general({x}, {w}, {options}, groups={groups}, flip={self.one(True, False)})",
            # With more padding than the weights reach, the reference's results are shorter than its documentation says.
            f"m.conv_transpose{rank}d({x}, {w}, stride={self.one(1, 2, lengths(1, 3), 0)}, padding={self.one(0, 1)})",
        )

    def layer(self):
        x, dtype = self.array((2, 3, 4), self.one("float32", "float16")), self.one("float32", "float16")
        weight = self.one("None", self.array((4,), dtype), self.array((3,), dtype))
        q, k = self.array((1, 4, 3, 4), dtype), self.array((1, self.one(4, 2, 1, 3), self.one(3, 5), 4), dtype)
        mask = self.one("None", "'causal'", "'x'", self.array((3, 1), "bool_"), self.array((3, 3), dtype))
        base, freqs = self.one((10000.0, "None"), ("None", "m.array([1.0, 2.0])"), ("None", "None"))
        return self.one(
            f"m.fast.rms_norm({x}, {weight}, {self.one(1e-5, 0)})",
            f"m.fast.layer_norm({x}, {weight}, {self.one('None', self.array((4,), dtype))}, 1e-5)",
            f"m.fast.rope({x}, {self.one(2, 4, 3)}, traditional={self.one(True, False)}, base={base}, scale=1.0, "
            f"offset={self.one(0, 3, 1.5, 'm.array(2)')}, freqs={freqs})",
            f"m.fast.scaled_dot_product_attention({q}, {k}, {k}, scale=0.5, mask={mask})",
            f"m.softmax({x}, {self.axes()})",
        )

    def function(self):
        """The text of a function of ``a``."""
        axis = self.one(0, -1, 1)
        other = self.one("a * a", "2.5", "m.array([1.0, 2.0, 3.0])", "m.stop_gradient(a)", "a.T")
        return self.one(
            f"m.{self.one(*UNARY[:22])}(a)",
            f"m.{self.one('add', 'multiply', 'divide', 'maximum', 'arctan2', 'matmul', 'remainder')}(a, {other})",
            f"m.{self.one('sum', 'mean', 'max', 'prod', 'logsumexp', 'var', 'softmax', 'sort', 'cumsum')}(a, axis={axis})",
            f"m.concatenate([a, a * 2], axis={axis})",
            f"m.split(a, {self.one(1, 3, [1])}, axis={axis})[0]",
            f"m.pad(a, {self.one(1, (1, 2))}, {self.one(repr('constant'), repr('edge'))})",
            f"a[{self.one('0', '::2', '::-1', 'None', 'm.array([0, 0])', '..., 0', '1:')}]",
            f"a.at[{self.one('0', 'm.array([0, 0])', '1:')}].{self.one('add', 'multiply', 'maximum')}(a[:1])",
            f"m.take_along_axis(a, m.zeros(a.shape, m.int32), {axis})",
            f"m.repeat(a, 2, {axis})",
            f"m.where(a > 0.5, a, {other})",
            f"m.{self.one('transpose', 'flatten', 'tril', 'diag', 'squeeze', 'roll')}(a)".replace("roll(a)", "roll(a, 1)"),
            f"m.fft.{self.one('fft', 'rfft', 'fftn')}(a)",
            "m.fast.layer_norm(a, None, None, 1e-5)",
            "m.linalg.inv(a @ a.T + 4 * m.eye(a.shape[0]))",
        )

    def derivative(self):
        f, x = self.function(), f"{self.array(self.one((3,), (3, 3), (2, 3), ()), 'float32')} / 4"
        return self.one(
            f"m.grad(lambda a: m.sum(m.real({f})))({x})",
            f"m.grad(lambda a: m.grad(lambda a: ({f}).sum())(a).sum())({x})",
            f"sum(m.jvp(lambda a: {f}, [{x}], [{x}]), [])",
            f"m.grad(lambda a, b: ({f}).sum() * b.sum(), argnums={self.one(1, (0, 1), -1, 2)})({x}, {x})",
            f"m.grad(m.checkpoint(lambda a: ({f}).sum()))({x})",
        )

    def batch(self):
        f, x = self.function(), f"{self.array(self.one((3, 3), (2, 3), (2, 3, 3)), 'float32')} / 4"
        places = self.one(0, 1, -1, 5, "'a'"), self.one(0, 1, -1, 7)
        return self.one(
            f"m.vmap(lambda a: {f})({x})",
            f"m.vmap(lambda a: {f}, in_axes={places[0]}, out_axes={places[1]})({x})",
            f"m.vmap(m.vmap(lambda a: {f}))({x})",
            f"m.vmap(lambda a: m.grad(lambda a: ({f}).sum())(a))({x})",
            f"m.vmap(lambda a, b: a * b, in_axes={self.one((0, 0), (0, None), (None, 1), (None, None))})({x}, {x})",
        )


def changed(x, change):
    change(x)
    return x


def outcome(m, text):
    try:
        result = eval(text, {"m": m, "np": np, "make": make, "changed": changed})
        parts = []
        for part in result if isinstance(result, (list, tuple)) else [result]:
            name = str(part.dtype).rsplit(".", 1)[-1]
            parts.append((name, tuple(part.shape), np.array(part.astype(m.float32) if name == "bfloat16" else part)))
        return parts
    except Exception as error:
        return type(error).__name__


def disagreement(text, own, other):
    """What is wrong with our own outcome, or None."""
    if isinstance(other, str):
        # What the reference raises where it does not translate an exception of its own.
        vague = other in ("SystemError", "RuntimeError")
        return None if not isinstance(own, str) or own == other or vague else f"{text}: {own} instead of {other}"
    if isinstance(own, str):
        return f"{text}: {own}, but the reference answers"
    if len(own) != len(other):
        return f"{text}: {len(own)} results instead of {len(other)}"
    for (dtype, shape, values), (their_dtype, their_shape, theirs) in zip(own, other):
        if (dtype, shape) != (their_dtype, their_shape):
            return f"{text}: {dtype} {shape} instead of {their_dtype} {their_shape}"
        near = TOLERANCE.get(dtype, 0)
        if not np.allclose(values, theirs, rtol=near, atol=near, equal_nan=values.dtype.kind in "fc"):
            return f"{text}: {values.tolist()} instead of {theirs.tolist()}"
    return None


KINDS = """reduction scan movement constructor index element product transform draw convolution layer derivative
    batch""".split()


@pytest.mark.parametrize("kind", KINDS)
def test_random_calls_agree_with_the_reference(mlx, kind):
    calls = Calls(SEED)
    texts = [getattr(calls, kind)() for _ in range(CALLS)]
    wrong = [disagreement(text, outcome(mx, text), outcome(mlx, text)) for text in texts]
    assert not any(wrong), "\n".join(filter(None, wrong))

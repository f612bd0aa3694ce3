"""Random calls of reductions, functions that move elements, constructors and indices, beside the reference.

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


@pytest.mark.parametrize("kind", ["reduction", "scan", "movement", "constructor", "index"])
def test_random_calls_agree_with_the_reference(mlx, kind):
    calls = Calls(SEED)
    texts = [getattr(calls, kind)() for _ in range(CALLS)]
    wrong = [disagreement(text, outcome(mx, text), outcome(mlx, text)) for text in texts]
    assert not any(wrong), "\n".join(filter(None, wrong))

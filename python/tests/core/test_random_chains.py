"""Random programs of several statements, beside the reference: values go from call to call, arrays are changed in place,
functions are transformed, and Python looks at arrays (as text, lists and numbers).

A statement that the reference answers has the same answer here; one that it refuses raises the same exception here, or
has an answer. ``HESPER_SEED`` chooses other programs, ``HESPER_CALLS`` how many.
"""

import importlib
import io
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import numpy as np

import hesper

SEED = int(os.environ.get("HESPER_SEED", "1"))
CALLS = int(os.environ.get("HESPER_CALLS", "100"))
TYPES = "bool_ uint8 int8 int16 uint32 int32 int64 float16 bfloat16 float32 complex64".split()
SHAPES = [(), (1,), (3,), (4,), (0,), (2, 3), (1, 3), (2, 1), (3, 3), (0, 3), (2, 0), (2, 3, 4), (1, 1, 3), (2, 1, 3), (4, 2)]
TOLERANCE = {"float16": 1e-2, "bfloat16": 6e-2, "float32": 2e-4, "complex64": 4e-4}
# What grows fast comes from bounded functions only, so that differences in the last bits stay small.
UNARY = """abs negative sign sin cos tanh arctan arcsinh square sigmoid erf floor ceil round isnan isinf isfinite
    logical_not real imag conj degrees positive trunc reciprocal exp log1p sqrt stop_gradient atleast_1d atleast_3d ones_like
    nan_to_num isneginf flatten transpose squeeze zeros_like contiguous""".split()
BINARY = """add subtract multiply maximum minimum divide floor_divide remainder power equal not_equal less greater_equal
    logical_and logical_or bitwise_and bitwise_xor arctan2 logaddexp isclose array_equal allclose outer inner matmul""".split()
REDUCTIONS = "sum prod max min mean var std any all argmax argmin logsumexp median count_nonzero".split()
SCANS = "cumsum cumprod cummax cummin sort argsort softmax logcumsumexp".split()


def make(m, seed, shape, dtype):
    """The same array in each library: few small numbers, also negative, zero and (of floats) fractions."""
    rng = np.random.default_rng(seed)
    if dtype == "bool_":
        return m.array(rng.integers(0, 2, shape).astype(bool))
    values = rng.integers(0 if dtype.startswith("u") else -3, 4, shape)
    if "float" in dtype:
        values = values + rng.integers(0, 4, shape) / 4
        return m.array(np.asarray(values, dtype=np.float32)).astype(getattr(m, dtype))
    if dtype == "complex64":
        return m.array(np.asarray(values + 0.5j * rng.integers(-2, 3, shape), dtype=np.complex64))
    return m.array(np.asarray(values, dtype=np.int32)).astype(getattr(m, dtype))


class Calls:
    """Texts of programs, from a source of random numbers."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def one(self, *options):
        return self.random.choice(options)

    def array(self):
        shape = self.random.choice(SHAPES)
        dtype = self.one(*TYPES, "float32", "float32", "int32")
        return f"make(m, {self.random.randrange(99)}, {shape}, {dtype!r})"

    def number(self):
        return self.one("0", "1", "-2", "2.5", "True", "3", "0.5", "1j", "-0.0", "np.float32(1.5)", "np.int64(2)")

    def axis(self):
        return self.one("0", "-1", "1", "None", "-2", "2", "(0, 1)", "(-1,)", "()", "[0]")

    def index(self):
        part = lambda: self.one("0", "-1", "1:", ":1", "::2", "::-1", "...", "None", ":", "m.array([0, 0])", "m.array(0)", "-2:")
        return ", ".join(part() for _ in range(self.random.choice([1, 1, 2, 3])))

    def operand(self):
        return self.one(self.name(), self.name(), self.number())

    def name(self):
        return self.random.choice(self.names)

    def function(self):
        """The text of a function of ``t``, with another array in reach."""
        other = self.one("2.0", "t", self.name(), "m.array(0.5)")
        axis = self.one("0", "-1", "None")
        return self.one(
            f"m.{self.one('sin', 'tanh', 'square', 'abs', 'sigmoid', 'exp', 'sqrt', 'log1p', 'erf', 'arctan')}(t)",
            f"m.{self.one('multiply', 'add', 'maximum', 'subtract', 'divide', 'arctan2')}(t, {other})",
            f"m.{self.one('sum', 'mean', 'max', 'var', 'prod', 'logsumexp')}(t, axis={axis})",
            f"m.{self.one('cumsum', 'sort', 'softmax', 'cummax', 'cumprod')}(t, axis=-1)",
            f"t[{self.one('0', '..., 0', '::-1', 'None', '1:', 'm.array([0, 0])')}]",
            f"m.where(t > {other}, t, {other})",
            "t.reshape(-1)", "m.transpose(t)", f"m.concatenate([t, t], axis={self.one('0', '-1')})",
            f"m.repeat(t, 2, {self.one('0', '-1')})", "t @ t.T", "m.stop_gradient(t) * t", "m.pad(t, 1)",
            f"m.clip(t, -0.5, {other})", "m.expand_dims(t, 0)", "m.flatten(t)", "m.real(m.fft.fft(t))", "t.astype(m.float16)",
        )  # fmt: skip

    def value(self):
        """The text of an expression."""
        x, y = self.name(), self.operand()
        f, z = self.function(), f"{x}.astype(m.float32)"
        return self.one(
            f"m.{self.one(*UNARY)}({x})",
            f"m.{self.one(*UNARY)}({x})",
            f"m.{self.one(*BINARY)}({x}, {y})",
            f"m.{self.one(*BINARY)}({y}, {x})",
            f"{x} {self.one('+', '-', '*', '/', '//', '%', '@', '==', '<', '>=', '&', '|', '^', '!=')} {y}",
            f"{y} {self.one('+', '-', '*', '/', '//', '%', '<', '==')} {x}",
            f"m.{self.one(*REDUCTIONS)}({x}, axis={self.axis()})",
            f"{x}.{self.one('sum', 'max', 'mean', 'any', 'argmax', 'var')}({self.axis()}, keepdims=True)",
            f"m.{self.one(*SCANS)}({x}, axis={self.one('0', '-1', '1', 'None', '-3')})",
            f"{x}[{self.index()}]",
            f"{x}[{self.index()}]",
            f"{x}.astype(m.{self.one('bool_', 'float16', 'bfloat16', 'float32', 'complex64')})",
            f"{x}.reshape({self.one('-1', '(3, -1)', '(1, 3, -1)', '(2, 3)', '()', '(0, -1)')})",
            f"m.where({x}, {y}, {self.operand()})",
            f"m.clip({x}, {self.one('None', '0', self.name())}, {self.one('2', '1.5', 'None', self.name())})",
            f"m.concatenate([{x}, {self.name()}], axis={self.one('0', '-1', '1')})",
            f"m.stack([{x}, {self.name()}], axis={self.one('0', '-1', '1')})",
            f"m.broadcast_to({x}, {self.one('(2, 3)', '(2, 3, 3)', '(1,)', '(0, 3)')})",
            f"m.take({x}, m.array({self.one('[0, 0]', '0', '[[0], [-1]]')}), axis={self.one('0', '-1', 'None')})",
            f"m.expand_dims({x}, {self.one('0', '-1', '(0, 1)', '1')})",
            f"m.moveaxis({x}, {self.one('0', '-1')}, {self.one('0', '1', '-1')})",
            f"m.roll({x}, {self.one('1', '-1', '(1, 2)')}, {self.one('None', '0', '-1', '(0, 1)')})",
            f"m.pad({x}, {self.one('1', '(0, 1)', '((1, 0),)')})",
            f"m.tile({x}, {self.one('2', '(2, 1)', '(1, 1, 2)', '0')})",
            f"m.tri(3, k={self.one('0', '1', '-1')}) * {x}",
            f"{x}.at[{self.index()}].{self.one('add', 'multiply', 'maximum', 'subtract')}({y})",
            f"m.grad(lambda t: m.sum(m.real({f})))({z})",
            f"m.vmap(lambda t: {f}, in_axes={self.one('0', '-1', '1')})({x})",
            f"m.jvp(lambda t: {f}, [{z}], [m.ones_like({z})])[1][0]",
            f"m.vjp(lambda t: {f}, [{z}], [{z}])[1][0]",
            f"m.compile(lambda t: {f})({x})",
            f"m.compile(lambda t: {f}, shapeless=True)({x})",
            f"m.vmap(lambda t: m.grad(lambda t: m.sum(m.real({f})))(t))({z})",
            f"m.value_and_grad(lambda t: m.sum(m.real({f})))({z})[1]",
            f"m.linalg.norm({x}, axis={self.one('None', '0', '-1')})",
            f"m.unflatten({x}, {self.one('0', '-1')}, {self.one('(1, -1)', '(-1, 1)', '(3, 1)')})",
            f"m.take_along_axis({x}, m.argsort({x}, axis=-1), axis=-1)",
            f"m.searchsorted(m.sort({x}), {y})",
            f"m.array({x})", f"m.array({x}.tolist())", f"m.array(np.array({x}))", f"m.full_like({x}, {self.number()})",
            f"m.split({x}, {self.one('1', '3', '[1]')}, axis={self.one('0', '-1')})[-1]",
            f"m.meshgrid({x}, {self.name()})[0]", f"m.tensordot({x}, {self.name()}, {self.one('1', '0')})",
            f"m.einsum({self.one(repr('ij,jk->ik'), repr('i,i->i'), repr('...j->...'), repr('ij->ji'))}, {x}"
            + self.one("", f", {self.name()}") + ")",
        )  # fmt: skip

    def statement(self):
        x = self.name()
        look = self.one(
            f"{x}.tolist()", f"str({x})", f"{x}.shape", f"{x}.item()", f"len({x})", f"bool({x})", f"int({x})", f"float({x})",
            f"[r.tolist() for r in {x}]", f"{x}.nbytes", f"{x}.dtype == m.float32", f"np.array({x}).tolist()", f"{x} == None",
            f"hash({x}) is None", f"{x}.T.tolist()", f"complex({x})", f"{self.name()} in [{x}]", f"memoryview({x}).shape",
            f"repr({x}.dtype).split('.')[-1]", f"{x}.size + {x}.ndim + {x}.itemsize", f"range(3)[{x}]", f"'{{}}'.format({x})",
        )  # fmt: skip
        change = self.one(
            f"{x} {self.one('+=', '-=', '*=', '/=', '//=', '%=', '&=', '|=', '**=')} {self.operand()}",
            f"{x}[{self.index()}] = {self.operand()}",
            f"{x}[{self.index()}] {self.one('+=', '*=')} {self.operand()}",
            f"{x}[{x} > 0] = {self.number()}",
        )
        fresh = "abcdefghij"[len(self.names)] if len(self.names) < 8 else self.name()
        choice = self.random.random()
        if choice < 0.2:
            return look
        if choice < 0.4:
            return change
        text = f"{fresh} = {self.value()}"
        if fresh not in self.names:
            self.names.append(fresh)
        return text

    def program(self):
        self.names = ["a", "b"]
        first = [f"a = {self.array()}", f"b = {self.array()}"]
        return "\n".join(first + [self.statement() for _ in range(self.random.randint(4, 8))])


def plain(m, value):
    """A value that can be compared: arrays as type, shape and numbers."""
    if isinstance(value, m.array):
        name = str(value.dtype).rsplit(".", 1)[-1]
        return ("array", name, tuple(value.shape), np.array(value.astype(m.float32) if name == "bfloat16" else value))
    if isinstance(value, np.ndarray):
        return ("numpy", str(value.dtype), value.shape, value)
    if isinstance(value, (list, tuple)):
        return [plain(m, part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def outcome(m, text):
    """What each statement gives: its value or that of the name it changes, or the type of its exception."""
    known, found = {"m": m, "np": np, "make": make}, []
    for line in text.split("\n"):
        try:
            try:
                code = compile(line, "", "eval")
            except SyntaxError:
                exec(line, known)
                value = known[line[0]]
            else:
                value = eval(code, known)
            found.append(plain(m, value))
        except Exception as error:
            found.append(Raised(type(error).__name__))
            # What a failed assignment leaves differs by nature between programs; both go on without it.
            if line[1:4] == " = ":
                known.pop(line[0], None)
    return found


class Raised(str):
    """The name of an exception."""


def same(own, other):
    if isinstance(other, tuple):
        if not isinstance(own, tuple) or own[:3] != other[:3]:
            return False
        near = TOLERANCE.get(other[1], 0)
        finite = np.abs(other[3])[np.isfinite(other[3])] if near else []
        scale = max([1, *finite])
        return np.allclose(own[3], other[3], rtol=near, atol=near * scale, equal_nan=other[3].dtype.kind in "fc")
    if isinstance(other, list):
        return isinstance(own, list) and len(own) == len(other) and all(map(same, own, other))
    if isinstance(other, (float, complex)) and isinstance(own, (float, complex)):
        return bool(np.isclose(own, other, rtol=1e-3, atol=1e-3, equal_nan=True)) or abs(own - other) < 1e-2 * abs(other)
    if isinstance(other, str) and isinstance(own, str):
        return len(own.split()) == len(other.split())
    return type(own) is type(other) and own == other


def disagreement(text, own, other):
    """The first statement with a wrong outcome, or None."""
    lines = text.split("\n")
    for at, (line, ours, theirs) in enumerate(zip(lines, own, other)):
        if isinstance(theirs, Raised):
            vague = theirs in ("SystemError", "RuntimeError", "NameError")
            # A number that is out of range beside other indices is an ``IndexError`` here.
            vague = vague or (ours, theirs) == ("IndexError", "ValueError")
            if isinstance(ours, Raised) and ours != theirs and not vague:
                return f"{lines[: at + 1]}: {ours} instead of {theirs}"
            if not isinstance(ours, Raised):
                return None  # An answer where there is none: the rest has nothing to be compared with.
        elif ours == "IndexError" and isinstance(theirs, tuple) and 0 in theirs[2]:
            continue  # The reference assigns nothing to an element that an empty axis does not have.
        elif isinstance(ours, Raised) or not same(ours, theirs):
            return f"{lines[: at + 1]}: {ours} instead of {theirs}"
    return None


def report(library, start):
    """Write the outcomes of all programs from the one at ``start``: the reference may end the process at any of them."""
    m = importlib.import_module(f"{library}.core")
    if library == "mlx":
        m.disable_compile()  # There a compiler is started for each function.
    calls = Calls(SEED)
    for text in [calls.program() for _ in range(CALLS)][start:]:
        sys.stdout.buffer.write(pickle.dumps(outcome(m, text)))
        sys.stdout.buffer.flush()


def outcomes(library):
    """The outcomes of all programs, None where the process ended."""
    found = []
    while len(found) < CALLS:
        program = f"import test_random_chains; test_random_chains.report({library!r}, {len(found)})"
        paths = os.pathsep.join([str(Path(__file__).parent), str(Path(hesper.__file__).parents[1])])
        command = [sys.executable, "-W", "ignore", "-c", program]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, timeout=600)
        stream = io.BytesIO(done.stdout)
        while stream.tell() < len(done.stdout):
            found.append(pickle.load(stream))
        if done.returncode != 0:
            assert library == "mlx", done.stderr.decode()[-2000:]
            found.append(None)
    return found


def test_random_programs_agree_with_the_reference(mlx):
    calls = Calls(SEED)
    every = zip([calls.program() for _ in range(CALLS)], outcomes("hesper"), outcomes("mlx"))
    wrong = [disagreement(text, own, other) for text, own, other in every if other is not None]
    assert not any(wrong), "\n".join(filter(None, wrong))

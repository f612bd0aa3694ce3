"""Random calls of every function and array method of the stubs, beside the reference: arguments of the annotated types,
by position and by keyword, some omitted, some of a wrong type; arrays also as views; some calls under transformations.

A call that the reference answers has the same answer here. A call that it refuses may have an answer here; if it has none,
the exception is of the same type. ``HESPER_SEED`` chooses other calls, ``HESPER_CALLS`` how many.
"""

import ast
import importlib
import io
import os
import pickle
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from test_random_chains import SHAPES, TYPES, make, plain, same

import hesper.core

SEED = int(os.environ.get("HESPER_SEED", "1"))
CALLS = int(os.environ.get("HESPER_CALLS", "300"))
FOLDER = Path(hesper.core.__file__).parent
MODULES = {"m": "__init__", "m.fft": "fft", "m.linalg": "linalg", "m.random": "random", "m.fast": "fast"}
# What changes the state of the process, and what takes functions or files: other tests call it.
OTHER = """export_function exporter import_function export_to_dot load save savez savez_compressed save_gguf save_safetensors
    set_default_device set_default_stream synchronize new_stream stream eval async_eval disable_compile enable_compile
    clear_cache set_memory_limit set_cache_limit set_wired_limit set_hard_memory_limit get_active_memory get_peak_memory
    get_cache_memory get_memory_limit reset_peak_memory compile vmap grad value_and_grad vjp jvp checkpoint device_info
    device_count is_available metal_kernel cuda_kernel precompiled_cuda_kernel set_printoptions printoptions clear_streams
    get_printoptions seed default_device default_stream einsum einsum_path from_dlpack asarray split_complex
    new_thread_local_stream new_thread_unsafe_stream depends get_array_buffer_size""".split()
# Where results differ on purpose (docs/python.md), or depend on the algorithm: signs and order of eigenvectors.
DIFFERENT = """as_strided partition argpartition topk eig eigh eigvals eigvalsh svd qr inv cholesky cholesky_inv pinv solve
    tri_inv multivariate_normal full full_like put_along_axis take_along_axis slice slice_update hadamard_transform
    gather_qqmm qqmm logsumexp softmax astype prod any all broadcast_shapes view conv_transpose1d conv_transpose2d
    conv_transpose3d reshape transpose squeeze to_device quantize unique""".split()


def functions():
    """Name, parameters and whether it is a method, for each function: ``(name, annotation, optional, by keyword)``."""
    found = []
    for prefix, module in MODULES.items():
        for node in ast.parse((FOLDER / f"{module}.pyi").read_text()).body:
            if isinstance(node, ast.FunctionDef):
                found.append((f"{prefix}.{node.name}", node, False))
            elif isinstance(node, ast.ClassDef) and (prefix, node.name) == ("m", "array"):
                found += [(part.name, part, True) for part in node.body if isinstance(part, ast.FunctionDef)]
    for name, node, method in found:
        last = name.rsplit(".", 1)[-1]
        properties = [part for part in node.decorator_list if ast.unparse(part) != "overload"]
        if last in OTHER + DIFFERENT or last.startswith("_") or properties or node.args.vararg or node.args.kwarg:
            continue
        places = node.args.posonlyargs + node.args.args
        omitted = len(places) - len(node.args.defaults)
        parameters = [(p, at >= omitted, at >= len(node.args.posonlyargs)) for at, p in enumerate(places)][method:]
        parameters += [(p, value is not None, None) for p, value in zip(node.args.kwonlyargs, node.args.kw_defaults)]
        yield name, [(p.arg, ast.unparse(p.annotation) if p.annotation else "", *rest) for p, *rest in parameters], method


class Calls:
    """Texts of calls, from a source of random numbers."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.functions = list(functions())

    def one(self, *options):
        return self.random.choice(options)

    def array(self):
        shape = self.shape if self.random.random() < 0.8 else self.random.choice(SHAPES)
        dtype = self.dtype if self.random.random() < 0.8 else self.random.choice(TYPES)
        text = f"make(m, {self.random.randrange(50)}, {shape}, {dtype!r})"
        views = [text, text, text, f"{text}.T", f"m.swapaxes({text}, 0, -1)" if shape else text, f"{text}.flatten()"]
        return self.one(*views)

    def axis(self):
        return self.one("0", "-1", "1", "-2", "2", "-3")

    def axes(self):
        return self.one(self.axis(), f"({self.axis()},)", f"({self.axis()}, {self.axis()})", f"[{self.axis()}]", "()", "None")

    def value(self, function, name, annotation):
        """The text of an argument."""
        if name != "stream" and self.random.random() < 0.02:
            return self.one("'a'", "1.5", "None", "[1]", "(0, 1)", "2**70", "m.float32", "np.int32(1)", "True", "m.array(1)")
        number = self.one("0", "1", "2", "-1", "0.5", "2.5", "True", "1j", "np.float32(1.5)", "np.int64(2)", "np.array(2)")
        named = {
            "stream": ["None", "m.cpu"],
            "key": ["m.random.key(3)", "m.array([1, 2], m.uint32)"],
            "indices": ["m.array([0, 0])", "m.array(0)", "m.array([0], m.uint8)"],
            "shape": [str(self.shape), str(list(self.shape)), "3", "()", "(2, 3)"],
            "norm": ["'ortho'", "'backward'", "'forward'"],
            "s": ["None", "(2,)", "(3, 2)", "[4]"],
            "n": ["1", "2", "3", "5", "0"],
            "k": ["0", "1", "-1"],
            "mode": ["'constant'", "'edge'", "'full'", "'same'", "'valid'", "'affine'", "'mxfp4'", "'x'"],
            "ord": ["None", "1", "2", "0", "'fro'", "float('inf')", "3"],
            "dtype": ["m.float32", "m.float16", "m.int32", "m.complex64"],
            "repeats": ["0", "1", "2"],
            "bits": ["2", "4", "8", "7"],
            "group_size": ["32", "64", "48"],
            "w": ["make(m, 1, (2, 64), 'float32')", "make(m, 1, (3, 32), 'float16')"],
            "shift": ["0", "1", "-2", "(1, 2)"],
            "ddof": ["0", "1"],
            "correction": ["0", "1"],
            "indices_or_sections": ["1", "2", "3", "[1]", "[1, 2]"],
            "indexing": ["'ij'", "'xy'", "'zz'"],
            "side": ["'left'", "'right'"],
            "pad_width": ["0", "1", "(1, 2)", "[(0, 1)]", "((1, 0), (0, 2))"],
            "reps": ["1", "2", "(2, 1)", "0"],
            "stride": ["1", "2"],
            "padding": ["0", "1"],
            "groups": ["1", "2"],
            "weight": [f"make(m, 3, {(2,) + (2,) * self.spatial + (2,)}, 'float32')"],
            "input": [f"make(m, 4, {(1,) + (4,) * self.spatial + (2,)}, 'float32')"],
            "eps": ["1e-5"],
            "scale": ["1.0", "0.5"],
            "dims": ["2", "4"],
            "base": ["10.0", "None"],
            "freqs": ["None", "m.array([1.0, 2.0])"],
            "num": ["1", "3", "5"],
            "axes": [self.axes()],
            "axis": [self.axes() if "Sequence" in annotation or "tuple" in annotation else self.axis()],
        }
        if function.endswith("tensordot") and name == "axes":
            return self.one("0", "1", "2", "[[0], [0]]")
        if name in named and not ("conv" not in function and name in ("weight", "input", "padding", "stride")):
            return self.one(*named[name])
        if re.search(r"axis", name):
            return self.axis()
        if annotation.startswith("bool") and "array" not in annotation:
            return self.one("True", "False")
        if "list[array]" in annotation or "Sequence[array]" in annotation:
            return "[" + ", ".join(self.array() for _ in range(self.random.randint(0, 3))) + "]"
        if "array" in annotation or "Any" in annotation or "scalar" in annotation:
            plain_array = annotation in ("array", "array | None")
            return self.array() if plain_array or self.random.random() < 0.7 else number
        if "Sequence[int]" in annotation or "tuple[int" in annotation:
            return self.one("(1,)", "[2, 1]", "()", "(3, 2)")
        return self.one("0.5", "1.0", "2.0") if annotation.startswith("float") else self.one("0", "1", "2", "3")

    def call(self):
        name, parameters, method = self.random.choice(self.functions)
        self.shape, self.dtype = self.random.choice(SHAPES), self.random.choice([*TYPES, "float32", "float32", "int32"])
        self.spatial = int(name[-2]) if re.search(r"conv\w*\dd$", name) else self.one(1, 2)
        given, keyword = [], False
        for parameter, annotation, optional, place in parameters:
            if optional and parameter != "key" and self.random.random() < 0.5:
                keyword = True
                continue
            keyword = keyword or place is None or place and self.random.random() < 0.2
            if keyword and place is False:
                break  # By position only, behind one that was omitted.
            value = self.value(name, parameter, annotation)
            given.append(f"{parameter}={value}" if keyword else value)
        target = f"{self.array()}.{name}" if method else name
        text = f"{target}({', '.join(given)})"
        first = re.match(r"(m\.(?!random|fast|linalg)[\w.]+)\((make\(m, \d+, \([^)]*\), 'float32'\))(.*)$", text)
        if not first or self.random.random() < 0.6:
            return text
        function = f"{first[1]}(z{first[3]}"
        real = f"(lambda o: sum([m.real(p).astype(m.float32).sum() for p in (o if isinstance(o, (list, tuple)) else [o])]))({function})"
        return self.one(
            f"m.grad(lambda z: {real})({first[2]})",
            f"m.vmap(lambda z: {function}, in_axes={self.one(0, -1, 1)})({first[2]})",
            f"m.compile(lambda z: {function})({first[2]})",
            f"m.vmap(m.grad(lambda z: {real}))({first[2]})",
        )


def outcome(m, text):
    try:
        return plain(m, eval(text, {"m": m, "np": np, "make": make}))
    except Exception as error:
        # What the reference raises where it does not translate an exception, or takes arguments by position only.
        unclear = isinstance(error, SystemError) or re.search("incompatible function|std::bad_cast|SmallVector", str(error))
        return Raised("unclear" if unclear else type(error).__name__)


class Raised(str):
    """The name of an exception."""


def report(library, start):
    """Write the outcomes of all calls from the one at ``start``: the reference may end the process at any of them."""
    m = importlib.import_module(f"{library}.core")
    if library == "mlx":
        m.disable_compile()  # There a compiler is started for each function.
    calls = Calls(SEED)
    for text in [calls.call() for _ in range(CALLS)][start:]:
        signal.alarm(20)  # It may also not come back.
        sys.stdout.buffer.write(pickle.dumps(outcome(m, text)))
        sys.stdout.buffer.flush()


def outcomes(library):
    """The outcomes of all calls, None where the process ended."""
    found = []
    while len(found) < CALLS:
        program = f"import test_random_signatures; test_random_signatures.report({library!r}, {len(found)})"
        paths = os.pathsep.join([str(Path(__file__).parent), str(FOLDER.parents[1])])
        command = [sys.executable, "-W", "ignore", "-c", program]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, timeout=600)
        stream = io.BytesIO(done.stdout)
        while stream.tell() < len(done.stdout):
            found.append(pickle.load(stream))
        if len(found) < CALLS:
            assert library == "mlx", done.stderr.decode()[-2000:]
            found.append(None)
    return found


def test_random_calls_of_the_whole_surface_agree_with_the_reference(mlx):
    calls, wrong = Calls(SEED), []
    for text, own, other in zip([calls.call() for _ in range(CALLS)], outcomes("hesper"), outcomes("mlx")):
        if other is None or isinstance(other, Raised) and (other == "unclear" or not isinstance(own, Raised) or own == other):
            continue
        if isinstance(own, Raised) or isinstance(other, Raised) or not same(own, other):
            wrong.append(f"{text}: {own} instead of {other}")
    assert not wrong, "\n".join(wrong)

"""Runs the same program with Hesper and with MLX and compares the results.

A *scenario* is a function of a :class:`Library`. It returns plain data, arrays
and containers of them; errors are data too, see :func:`attempt`. Arrays cross
from one library to the other as NumPy arrays.
"""

import importlib
import re
from typing import Any, Callable, Optional

import numpy as np
import pytest


class Library:
    """The modules of one library."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.mx = importlib.import_module(f"{name}.core")
        self.nn = importlib.import_module(f"{name}.nn")
        self.optim = importlib.import_module(f"{name}.optimizers")
        self.utils = importlib.import_module(f"{name}.utils")
        # There compiling every activation takes longer than all the rest; one
        # test covers it.
        if name == "mlx":
            self.mx.disable_compile()

    def array(self, values: Any, dtype: Optional[str] = None) -> Any:
        values = np.asarray(values)
        if values.dtype == np.float64:
            values = values.astype(np.float32)
        if values.dtype == np.int64:
            values = values.astype(np.int32)
        array = self.mx.array(values)
        return array if dtype is None else array.astype(getattr(self.mx, dtype))

    def normal(self, *shape: int, seed: int = 0, dtype: Optional[str] = None) -> Any:
        """Normally distributed numbers, the same in both libraries."""
        values = np.random.default_rng(seed).standard_normal(shape)
        return self.array(values.astype(np.float32), dtype)


try:
    importlib.import_module("hesper.core")
except ImportError:
    pytest.skip("neither hesper.core nor mlx.core can be imported", allow_module_level=True)

HESPER = Library("hesper")
try:
    MLX: Optional[Library] = Library("mlx")
except ImportError:
    MLX = None

STAND_IN = MLX is not None and HESPER.mx is MLX.mx

needs_mlx = pytest.mark.skipif(MLX is None, reason="mlx is not installed")


def _same_random_numbers() -> bool:
    if MLX is None:
        return False
    draws = []
    for lib in (HESPER, MLX):
        lib.mx.random.seed(7)
        draws.append(np.array(lib.mx.random.uniform(shape=(16,))))
    return bool(np.array_equal(*draws))


needs_same_random = pytest.mark.skipif(
    not _same_random_numbers(), reason="the random numbers of hesper and mlx differ"
)


def attempt(fn: Callable, *args: Any, **kwargs: Any) -> Any:
    """The result of a call, or the type of the error that it raised: messages are each library's own."""
    try:
        return fn(*args, **kwargs)
    except Exception as error:
        return f"raised {type(error).__name__}"


def plain_text(text: str) -> str:
    """``text`` without what differs by nature: addresses and the library's name."""
    text = re.sub(r"0x[0-9a-f]+", "0x", text)
    text = re.sub(r"<(function \w+|[^<>]*_gc_func)[^<>]*>", "<function>", text)
    return text.replace("mlx", "hesper")


def dtype_name(x: Any) -> str:
    return str(x.dtype).rsplit(".", 1)[-1]


def to_numpy(x: Any) -> np.ndarray:
    for lib in (HESPER, MLX):
        if lib is not None and isinstance(x, lib.mx.array):
            return np.array(x.astype(lib.mx.float32) if dtype_name(x) == "bfloat16" else x)
    return np.asarray(x)


def is_array(x: Any) -> bool:
    return any(lib is not None and isinstance(x, lib.mx.array) for lib in (HESPER, MLX))


def is_module(x: Any) -> bool:
    return any(lib is not None and isinstance(x, lib.nn.Module) for lib in (HESPER, MLX))


_TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2}


def assert_same(actual: Any, expected: Any, where: str = "result", tol: Optional[float] = None) -> None:
    """Compare two trees of plain data, arrays and modules."""
    if is_array(actual) or is_array(expected):
        assert is_array(actual) and is_array(expected), f"{where}: {actual} / {expected}"
        assert dtype_name(actual) == dtype_name(expected), f"{where}: type"
        assert tuple(actual.shape) == tuple(expected.shape), f"{where}: shape"
        a, b = to_numpy(actual), to_numpy(expected)
        if a.dtype.kind in "fc":
            default = 2e-6 if STAND_IN else 2e-5
            t = tol or max(default, 0 if STAND_IN else _TOLERANCE.get(dtype_name(actual), 0))
            np.testing.assert_allclose(a, b, rtol=t, atol=t, err_msg=where)
        else:
            np.testing.assert_array_equal(a, b, err_msg=where)
    elif is_module(actual) or is_module(expected):
        assert type(actual).__name__ == type(expected).__name__, where
        assert plain_text(repr(actual)) == plain_text(repr(expected)), where
        assert_same(dict(actual), dict(expected), where, tol)
    elif isinstance(expected, dict):
        assert isinstance(actual, dict), f"{where}: {actual!r} / {expected!r}"
        assert list(actual) == list(expected), f"{where}: {list(actual)} / {list(expected)}"
        for key in expected:
            assert_same(actual[key], expected[key], f"{where}.{key}", tol)
    elif isinstance(expected, (list, tuple)):
        assert type(actual).__name__ == type(expected).__name__, f"{where}: {actual!r} / {expected!r}"
        assert len(actual) == len(expected), f"{where}: {actual!r} / {expected!r}"
        for i, (a, b) in enumerate(zip(actual, expected)):
            assert_same(a, b, f"{where}.{i}", tol)
    elif isinstance(expected, str):
        assert isinstance(actual, str), f"{where}: {actual!r} / {expected!r}"
        assert plain_text(actual) == plain_text(expected), where
    elif isinstance(expected, float) and isinstance(actual, float):
        np.testing.assert_allclose(actual, expected, rtol=1e-6, err_msg=where)
    else:
        assert actual == expected, f"{where}: {actual!r} / {expected!r}"


def in_order(tree: Any) -> Any:
    """A tree with sorted keys: the order in which MLX merges trees is not defined."""
    if isinstance(tree, dict):
        return {key: in_order(tree[key]) for key in sorted(tree)}
    if isinstance(tree, (list, tuple)):
        return type(tree)([in_order(child) for child in tree])
    return tree


def compare(scenario: Callable[[Library], Any], tol: Optional[float] = None) -> None:
    """Check that a scenario has the same result in both libraries."""
    if MLX is None:
        pytest.skip("mlx is not installed")
    assert_same(scenario(HESPER), scenario(MLX), tol=tol)


def set_numbers(lib: Library, module: Any, seed: int = 1, keep: tuple = ()) -> Any:
    """Give all floating point parameters of a module values that only depend on their names and shapes."""
    rng = np.random.default_rng(seed)
    updates = []
    for name, value in sorted(lib.utils.tree_flatten(module.parameters())):
        if not lib.mx.issubdtype(value.dtype, lib.mx.floating) or name in keep:
            continue
        numbers = rng.uniform(-0.5, 0.5, value.shape).astype(np.float32)
        if name.endswith("var"):
            numbers = np.abs(numbers) + 0.5
        updates.append((name, lib.array(numbers).astype(value.dtype)))
    return module.load_weights(updates, strict=False)

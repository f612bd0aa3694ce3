"""One computation on the host and on the GPU of this process, and how far apart the results are."""

import numpy as np

import hesper.core as mx
from hesper.utils import tree_flatten

# Relative to the typical size of the numbers around.
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2, "complex64": 1e-5, "float64": 1e-12}


def numbers(shape, dtype="float32", seed=0, low=-2.0, high=2.0):
    """Numbers that no function of interest is special for, made by NumPy."""
    drawn = np.random.default_rng(seed).uniform(low, high, size=shape)
    if dtype == "bool":
        return mx.array(drawn > (low + high) / 2)
    if "int" in dtype:
        return mx.array(np.floor(np.abs(drawn) * 20).astype(dtype))
    if dtype == "complex64":
        return mx.array((drawn + 1j * drawn[..., ::-1]).astype(np.complex64))
    return mx.array(drawn.astype(np.float32)).astype(getattr(mx, dtype))


def to_numpy(array):
    if array.dtype == mx.bfloat16:
        array = array.astype(mx.float32, stream=mx.cpu)
    return np.array(array)


def on(device, function):
    """The arrays of a function's result, evaluated on a device."""
    with mx.stream(device):
        result = function()
        arrays = [leaf for _, leaf in tree_flatten(result)] if not isinstance(result, mx.array) else [result]
        arrays = [leaf if isinstance(leaf, mx.array) else mx.array(leaf) for leaf in arrays]
        mx.eval(arrays)
    return arrays


def assert_same(function, tolerance=None):
    """Runs a function on both devices and compares what it gives."""
    host, gpu = on(mx.cpu, function), on(mx.gpu, function)
    assert len(host) == len(gpu) > 0
    for one, other in zip(host, gpu):
        assert one.shape == other.shape and one.dtype == other.dtype
        name = str(one.dtype).rpartition(".")[2]
        a, b = to_numpy(one), to_numpy(other)
        if name not in TOLERANCE:
            assert np.array_equal(a, b), (a, b)
            continue
        finite = np.abs(a[np.isfinite(a)])
        size = finite.mean(dtype=np.float64) if finite.size else 0.0
        limit = TOLERANCE[name] if tolerance is None else tolerance
        with np.errstate(invalid="ignore"):
            near = np.abs(a - b) <= limit * (np.abs(a) + size)
        right = near | (a == b) | (np.isnan(a) & np.isnan(b))
        assert right.all(), (np.argwhere(~right)[:3], a[~right][:3], b[~right][:3])

"""Functions with implementations of their own, and custom kernels."""

from hesper import _core as _mx
from hesper._core import fast as _fast

__all__ = [*_fast.__all__, "cuda_kernel", "gated_delta_update", "precompiled_cuda_kernel"]
globals().update({name: getattr(_fast, name) for name in _fast.__all__})


def gated_delta_update(q, k, v, gamma, beta, initial_state=None, mask=None, stream=None):
    """A gated delta network over a sequence.

    For each step the state decays by `gamma`, and the value that it holds for the key
    moves by `beta` towards the step's value; the output is what it holds for the query.

    Parameters
    ----------
    q, k : array
        Of shape ``[B, T, Hk, Dk]``.
    v : array
        Of shape ``[B, T, Hv, Dv]``; `Hv` is a multiple of `Hk`.
    gamma, beta : array
        Of shape ``[B, T, Hv]``.
    initial_state : array, optional
        Of shape ``[B, Hv, Dv, Dk]``; by default zeros.
    mask : array, optional
        Of shape ``[B, T]``: false for steps that leave the state as it is and give zeros.
    stream : Stream or Device, optional

    Returns
    -------
    list of array
        The outputs ``[B, T, Hv, Dv]`` and the last state ``[B, Hv, Dv, Dk]``.

    Examples
    --------
    >>> x = mx.ones((1, 2, 1, 4))
    >>> outputs, state = mx.fast.gated_delta_update(x, x, x, mx.ones((1, 2, 1)), mx.ones((1, 2, 1)))
    >>> state.shape
    (1, 1, 4, 4)
    """
    batch, steps, key_heads, width = k.shape
    heads, depth = v.shape[2:]
    if q.shape != k.shape or v.shape[:2] != k.shape[:2] or heads % key_heads:
        raise ValueError(f"[gated_delta_update] shapes {q.shape}, {k.shape} and {v.shape} do not match.")
    with _mx.stream(_mx.default_device() if stream is None else stream):
        q, k = (_mx.repeat(x, heads // key_heads, 2) for x in (q, k))
        state = initial_state
        if state is None:
            state = _mx.zeros((batch, heads, depth, width), _mx.float32)
        outputs = []
        for step in range(steps):
            key, before = k[:, step, :, None, :], state
            state = state * gamma[:, step, :, None, None]
            change = (v[:, step] - (state * key).sum(-1)) * beta[:, step, :, None]
            state = state + key * change[..., None]
            output = (state * q[:, step, :, None, :]).sum(-1)
            if mask is not None:
                counts = mask[:, step, None, None]
                output = _mx.where(counts, output, 0.0)
                state = _mx.where(counts[..., None], state, before)
            outputs.append(output)
        return [_mx.astype(_mx.stack(outputs, 1), q.dtype), state]


def cuda_kernel(
    name: str,
    input_names,
    output_names,
    source: str,
    header: str = "",
    ensure_row_contiguous: bool = True,
    shared_memory: int = 0,
):
    """A kernel from text in CUDA's dialect of C++, which only an NVIDIA GPU runs.

    ``metal_kernel`` takes kernels that run on every device.

    Parameters
    ----------
    name : str
    input_names, output_names : sequence of str
    source, header : str
    ensure_row_contiguous : bool
    shared_memory : int

    Raises
    ------
    RuntimeError
        Without such a device.
    """
    raise RuntimeError("[cuda_kernel] No CUDA back-end.")


def precompiled_cuda_kernel(
    *,
    name: str,
    compiled_source: bytes,
    inputs,
    output_shapes,
    output_dtypes,
    scalars,
    grid,
    threadgroup,
    shared_memory: int = 0,
    init_value: float | None = None,
    ensure_row_contiguous: bool = False,
    stream=None,
):
    """A compiled CUDA kernel, which only an NVIDIA GPU runs.

    Parameters
    ----------
    name : str
    compiled_source : bytes
    inputs, output_shapes, output_dtypes, scalars : list
    grid, threadgroup : tuple of three int
    shared_memory : int
    init_value : float, optional
    ensure_row_contiguous : bool
    stream : Stream or Device, optional

    Raises
    ------
    RuntimeError
        Without such a device.
    """
    raise RuntimeError("[cuda_kernel] No CUDA back-end.")

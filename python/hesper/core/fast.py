"""Functions with implementations of their own, and custom kernels."""

from hesper._core import fast as _fast

__all__ = [*_fast.__all__, "precompiled_cuda_kernel"]
globals().update({name: getattr(_fast, name) for name in _fast.__all__})


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

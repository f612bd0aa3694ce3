"""Functions with implementations of their own, and custom kernels."""

from hesper._core import fast as _fast

__all__ = [*_fast.__all__, "cuda_kernel", "precompiled_cuda_kernel"]
globals().update({name: getattr(_fast, name) for name in _fast.__all__})


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

"""Functions with fused implementations, and custom kernels."""

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
    """Launch a compiled CUDA kernel. Not supported yet.

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
        Always: give the source to :func:`cuda_kernel` instead.
    """
    raise RuntimeError(
        f"cannot launch the compiled kernel {name!r}: loading compiled CUDA code is not supported yet; give its source "
        "to mx.fast.cuda_kernel"
    )

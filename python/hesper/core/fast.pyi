# Written by scripts/stubs.py from the built package; do not edit.
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import ModuleType
from typing import Any, Self, final

from . import ArrayIterator, Device, DeviceType, Dtype, Stream, StreamOrDevice, array, scalar


__all__ = ['metal_kernel', 'cuda_kernel', 'rms_norm', 'layer_norm', 'cross_entropy', 'rope', 'scaled_dot_product_attention', 'gated_delta_update', 'precompiled_cuda_kernel']

def cross_entropy(logits: Any, targets: Any, *, stream: StreamOrDevice = None) -> array:
    """The cross entropy of logits and the indices of the right classes.

    Parameters
    ----------
    logits : array
    targets : array
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.fast.cross_entropy(mx.array([[0.0, 0.0]]), mx.array([1]))
    array([0.693147], dtype=float32)
    """
    ...

def cuda_kernel(name: Any, input_names: Any, output_names: Any, source: Any, header: str = '', ensure_row_contiguous: bool = True, shared_memory: int = 0) -> Callable[..., list[array]]:
    """A kernel from text in CUDA C++, which only an NVIDIA GPU runs. ``metal_kernel`` takes kernels that run on
    every device.

    Parameters
    ----------
    name : str
        A label; kernels of one name and different text are different.
    input_names, output_names : sequence of str
        Names of the parameters in the text. For an input ``x`` the text may also name ``x_shape``,
        ``x_strides`` and ``x_ndim``.
    source : str
        The body of the kernel; its signature is generated.
    header : str
        Text before the kernel: functions, includes.
    ensure_row_contiguous : bool
        Whether to copy inputs that are not row-contiguous.
    shared_memory : int
        Bytes of dynamic shared memory of each block.

    Raises
    ------
    RuntimeError
        Without an NVIDIA GPU.
    """
    ...

def gated_delta_update(q: Any, k: Any, v: Any, gamma: Any, beta: Any, initial_state: Any = None, mask: Any = None, stream: StreamOrDevice = None) -> list[array]:
    """The gated delta rule, applied to all steps of sequences: the outputs and the last state.

    Examples
    --------
    >>> [part.shape for part in mx.fast.gated_delta_update(mx.ones((1, 2, 1, 32)), mx.ones((1, 2, 1, 32)), mx.ones((1, 2, 1, 16)), mx.ones((1, 2, 1)), mx.ones((1, 2, 1)))]
    [(1, 2, 1, 16), (1, 1, 16, 32)]
    """
    ...

def layer_norm(x: array, weight: array | None, bias: array | None, eps: Any, *, stream: StreamOrDevice = None) -> array:
    """Rows with mean zero and variance one, times a weight, plus a bias.

    Parameters
    ----------
    x : array
    weight : array
    bias : array, optional
    eps : float
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.fast.layer_norm(mx.array([1.0, 3.0]), None, None, 0.0)
    array([-1, 1], dtype=float32)
    """
    ...

def metal_kernel(name: Any, input_names: Any, output_names: Any, source: Any, header: str = '', ensure_row_contiguous: bool = True, atomic_outputs: bool = False, compile_options: Any = None, *, unchecked: bool = False, as_written: bool = False) -> Callable[..., list[array]]:
    """A kernel from text in Metal's dialect of C++. It runs on every device, the CPU included.

    Parameters
    ----------
    name : str
        A label; kernels of one name and different text are different.
    input_names, output_names : sequence of str
        Names of the parameters in the text.
    source : str
        The body of the kernel; its signature is generated.
    header : str
        Text before the kernel: functions, structs, templates.
    ensure_row_contiguous : bool
        Whether to copy inputs that are not row-contiguous.
    atomic_outputs : bool
        Whether outputs are ``device atomic<T>*``.
    compile_options : dict, optional
        ``{"math_mode": "safe" | "relaxed" | "fast"}``; all are computed as ``"safe"``.
    unchecked : bool
        By default an out-of-bounds read returns zero, and an out-of-bounds write is dropped and fails the
        launch with an error that names the line. With ``True`` nothing is checked: on a GPU such an access is
        undefined and may corrupt other arrays.
    as_written : bool
        With ``True`` a GPU whose own compiler takes Metal's C++ gets the text as it is written, with a signature
        around it. Nothing is checked, and an error in the text is raised when an output is evaluated, with the
        compiler's message and the line. Other devices run the text as with ``unchecked=True``.

    Examples
    --------
    >>> kernel = mx.fast.metal_kernel(
    ...     name="double",
    ...     input_names=["inp"],
    ...     output_names=["out"],
    ...     source="uint i = thread_position_in_grid.x; out[i] = 2 * inp[i];",
    ... )
    >>> a = mx.array([1.0, 2.0])
    >>> kernel(inputs=[a], grid=(2, 1, 1), threadgroup=(2, 1, 1),
    ...        output_shapes=[a.shape], output_dtypes=[a.dtype])[0]
    array([2, 4], dtype=float32)
    """
    ...

def precompiled_cuda_kernel(*, name: str, compiled_source: bytes, inputs: Any, output_shapes: Any, output_dtypes: Any, scalars: Any, grid: Any, threadgroup: Any, shared_memory: int = 0, init_value: float | None = None, ensure_row_contiguous: bool = False, stream: StreamOrDevice = None) -> list[array]:
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
    ...

def rms_norm(x: array, weight: array | None, eps: Any, *, stream: StreamOrDevice = None) -> array:
    """Rows divided by the root of their mean square, times a weight.

    Parameters
    ----------
    x : array
    weight : array
    eps : float
    stream : Stream or Device, optional

    Examples
    --------
    >>> mx.fast.rms_norm(mx.array([3.0, 4.0]), None, 0.0)
    array([0.848528, 1.13137], dtype=float32)
    """
    ...

def rope(a: array | scalar, dims: Any, *, traditional: Any, base: Any, scale: Any, offset: Any, freqs: Any = None, stream: StreamOrDevice = None) -> array:
    """Pairs of features turned by their position times a frequency.

    Examples
    --------
    >>> mx.fast.rope(mx.ones((1, 1, 2, 4)), 4, traditional=False, base=10000.0, scale=1.0, offset=0).shape
    (1, 1, 2, 4)
    """
    ...

def scaled_dot_product_attention(q: Any, k: Any, v: Any, *, scale: Any, mask: Any = None, sinks: Any = None, force_fused: bool = False, stream: StreamOrDevice = None) -> array:
    """Attention: the values, weighed by the softmax of the products of queries and keys.

    Examples
    --------
    >>> mx.fast.scaled_dot_product_attention(mx.ones((1, 1, 2, 4)), mx.ones((1, 1, 3, 4)), mx.ones((1, 1, 3, 4)), scale=0.5).shape
    (1, 1, 2, 4)
    """
    ...

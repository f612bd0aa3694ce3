"""Kernels in CUDA C++, on a machine with or without an NVIDIA GPU."""

import numpy as np
import pytest

import hesper.core as mx

there = mx.is_available(mx.gpu) and mx.device_count(mx.gpu) > 0
needs_gpu = pytest.mark.skipif(not there, reason="no NVIDIA GPU")
AFFINE = """
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) out[i] = (T)(SCALE ? 2 : 1) * inp[i] + (T)1;
"""


@pytest.mark.skipif(there, reason="there is a GPU")
def test_without_a_gpu_a_kernel_is_refused_when_it_is_made():
    with pytest.raises(RuntimeError, match="no NVIDIA GPU"):
        mx.fast.cuda_kernel(name="k", input_names=["a"], output_names=["b"], source="b[0] = a[0];")


def call(a, **arguments):
    kernel = mx.fast.cuda_kernel(name="affine", input_names=["inp"], output_names=["out"], source=AFFINE)
    settings = dict(
        inputs=[a],
        template=[("T", a.dtype), ("N", a.size), ("SCALE", True)],
        grid=(a.size, 1, 1),
        threadgroup=(64, 1, 1),
        output_shapes=[a.shape],
        output_dtypes=[a.dtype],
        stream=mx.gpu,
    )
    return kernel(**{**settings, **arguments})[0]


@needs_gpu
@pytest.mark.parametrize("dtype", [mx.float32, mx.int32])
def test_a_kernel_computes_what_its_text_says(dtype):
    a = mx.arange(1000).astype(dtype)
    assert np.array_equal(np.array(call(a)), 2 * np.arange(1000) + 1)


@needs_gpu
def test_what_does_not_fit_is_refused_with_its_name():
    a = mx.arange(8).astype(mx.float32)
    with pytest.raises(ValueError, match="output_shapes"):
        call(a, output_shapes=[])
    with pytest.raises(ValueError, match="grid"):
        call(a, grid=(0, 1, 1))
    with pytest.raises(TypeError, match="template"):
        call(a, template=[("T", 1.5)])

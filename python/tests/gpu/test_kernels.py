"""Kernels brought as text: ``fast.cuda_kernel`` and ``fast.metal_kernel`` on the GPU."""

import numpy as np
import pytest
from beside import assert_same, numbers

import hesper.core as mx

AFFINE = """
    auto i = cooperative_groups::this_grid().thread_rank();
    if (i < N) out[i] = inp[i] * T(SCALE ? 2 : 1) + T(1);
"""


def affine(a, source=AFFINE, kernel=(), **arguments):
    made = mx.fast.cuda_kernel(
        **{**dict(name="affine", input_names=["inp"], output_names=["out"], source=source), **dict(kernel)}
    )
    settings = dict(
        inputs=[a],
        template=[("T", a.dtype), ("N", a.size), ("SCALE", True)],
        grid=(a.size, 1, 1),
        threadgroup=(64, 1, 1),
        output_shapes=[a.shape],
        output_dtypes=[a.dtype],
        stream=mx.gpu,
    )
    return made(**{**settings, **arguments})[0]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint8", "int64"])
def test_a_kernel_computes_what_its_text_says(dtype):
    a = numbers((10, 100), dtype, 1)
    expected = np.array((a * 2 + 1).astype(mx.float32))
    assert np.allclose(np.array(affine(a).astype(mx.float32)), expected)


def test_template_arguments_make_other_kernels():
    a = numbers((33,), seed=2)
    plain = affine(a, template=[("T", a.dtype), ("N", a.size), ("SCALE", False)])
    assert mx.allclose(plain, a + 1).item() and mx.allclose(affine(a), 2 * a + 1).item()


def test_the_same_name_with_another_text_is_another_kernel():
    a = numbers((64,), seed=3)
    other = affine(a, source="auto i = cooperative_groups::this_grid().thread_rank(); out[i] = -inp[i];", template=[])
    assert mx.array_equal(other, -a).item() and mx.allclose(affine(a), 2 * a + 1).item()


def test_shapes_and_strides_are_told():
    body = """
        uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= uint32_t(x_shape[0] * x_shape[1])) return;
        int64_t at = elem_to_loc(i, x_shape.data(), x_strides.data(), x_ndim);
        y[i] = x[at] + (x_ndim == 2 ? 0.0f : inf);
    """
    kernel = mx.fast.cuda_kernel("strided", ["x"], ["y"], body, ensure_row_contiguous=False)
    a = numbers((7, 9), seed=4)
    out = kernel(
        inputs=[a.T],
        output_shapes=[(9, 7)],
        output_dtypes=[mx.float32],
        grid=(63, 1, 1),
        threadgroup=(32, 1, 1),
        stream=mx.gpu,
    )
    assert mx.array_equal(out[0], a.T).item()


def test_inputs_are_made_contiguous_where_that_is_asked():
    a = numbers((6, 8), seed=5)
    assert mx.allclose(affine(a.T), 2 * a.T + 1).item()
    assert mx.allclose(affine(a[:, ::2]), 2 * a[:, ::2] + 1).item()


def test_shared_memory_header_and_initial_values():
    header = "__device__ int bin(int x) { return x & 15; }"
    body = """
        extern __shared__ int held[];
        if (threadIdx.x < 16) held[threadIdx.x] = 0;
        __syncthreads();
        atomicAdd(&held[bin(x[blockIdx.x * blockDim.x + threadIdx.x])], 1);
        __syncthreads();
        if (threadIdx.x < 16) atomicAdd(&counts[threadIdx.x], held[threadIdx.x]);
    """
    kernel = mx.fast.cuda_kernel("bins", ["x"], ["counts"], body, header=header, shared_memory=64)
    x = mx.arange(4096, dtype=mx.int32)
    counts = kernel(
        inputs=[x],
        output_shapes=[(16,)],
        output_dtypes=[mx.int32],
        grid=(4096, 1, 1),
        threadgroup=(256, 1, 1),
        init_value=7,
        stream=mx.gpu,
    )[0]
    assert counts.tolist() == [263] * 16


def test_several_outputs_and_numbers_as_inputs():
    body = "auto i = threadIdx.x; up[i] = x[i] + c[0]; down[i] = x[i] - c[0];"
    kernel = mx.fast.cuda_kernel("both", ["x", "c"], ["up", "down"], body)
    up, down = kernel(
        inputs=[mx.arange(8, dtype=mx.float32), 2.5],
        output_shapes=[(8,), (2, 4)],
        output_dtypes=[mx.float32, mx.float32],
        grid=(8, 1, 1),
        threadgroup=(8, 1, 1),
        stream=mx.gpu,
    )
    assert up.tolist() == [x + 2.5 for x in range(8)] and down[1, 3].item() == 4.5


def test_verbose_prints_the_text(capfd):
    mx.eval(affine(numbers((8,)), verbose=True))
    out = capfd.readouterr().out
    assert "affine" in out and "thread_rank" in out and "__global__" in out


def test_the_default_stream_is_used_where_none_is_named():
    mx.set_default_device(mx.gpu)
    a = numbers((40,), seed=6)
    assert mx.allclose(affine(a, stream=None), 2 * a + 1).item()
    mx.set_default_device(mx.cpu)
    with pytest.raises(ValueError, match="GPU"):
        affine(a, stream=None)


def test_wrong_text_is_told_with_kernel_and_line():
    bad = "auto i = threadIdx.x;\nout[i] = inp[i];\nout[i] += missing;\n"
    with pytest.raises(RuntimeError, match=r"affine\(3\)") as caught:
        mx.eval(affine(numbers((8,)), source=bad, template=[]))
    assert "missing" in str(caught.value)
    with pytest.raises(RuntimeError, match=r"affine, header\(2\)"):
        mx.eval(affine(numbers((8,)), kernel=dict(header="struct A {};\nstruct B { C c; };")))
    assert mx.allclose(affine(mx.ones((4,))), mx.full((4,), 3.0)).item()


def test_wrong_arguments_are_refused_with_their_name():
    a = numbers((8,))
    with pytest.raises(ValueError, match="output_shapes"):
        affine(a, output_shapes=[])
    with pytest.raises(ValueError, match="output_dtypes"):
        affine(a, output_dtypes=[mx.float32] * 2)
    with pytest.raises(ValueError, match="inputs"):
        affine(a, inputs=[])
    with pytest.raises(ValueError, match="grid"):
        affine(a, grid=(0, 1, 1))
    with pytest.raises(ValueError, match="threadgroup"):
        affine(a, threadgroup=(-4, 1, 1))
    with pytest.raises(TypeError, match="template"):
        affine(a, template=[("T", 1.5)])
    with pytest.raises((TypeError, ValueError)):
        affine(a, grid=(8, 1))
    with pytest.raises(RuntimeError, match="2000|threadgroup"):
        mx.eval(affine(a, threadgroup=(2000, 1, 1)))
    with pytest.raises(ValueError, match="output"):
        mx.fast.cuda_kernel("none", ["x"], [], "")
    with pytest.raises(ValueError, match="shared"):
        mx.fast.cuda_kernel("less", ["x"], ["y"], "", shared_memory=-1)


METAL = """
    uint i = thread_position_in_grid.x;
    threadgroup float held[32];
    held[thread_position_in_threadgroup.x] = inp[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = simd_sum(inp[i]) + held[31 - thread_position_in_threadgroup.x] * T(N);
"""


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_metal_kernels_run_on_both_devices(dtype):
    kernel = mx.fast.metal_kernel(name="mix", input_names=["inp"], output_names=["out"], source=METAL)
    a = numbers((256,), dtype, 7)
    assert_same(
        lambda: kernel(
            inputs=[a],
            template=[("T", mx.float32), ("N", 3)],
            grid=(256, 1, 1),
            threadgroup=(32, 1, 1),
            output_shapes=[(256,)],
            output_dtypes=[mx.float32],
        )[0]
    )


def test_metal_kernels_with_strides_atomics_and_initial_values():
    text = """
        uint i = thread_position_in_grid.x;
        uint at = elem_to_loc(i, inp_shape, inp_strides, inp_ndim);
        atomic_fetch_add_explicit(&out[i % 4], inp[at], memory_order_relaxed);
    """
    kernel = mx.fast.metal_kernel(
        name="gather", input_names=["inp"], output_names=["out"], source=text, ensure_row_contiguous=False,
        atomic_outputs=True,
    )
    a = numbers((8, 6), "int32", 8)
    assert_same(
        lambda: kernel(
            inputs=[a.T],
            grid=(48, 1, 1),
            threadgroup=(16, 1, 1),
            output_shapes=[(4,)],
            output_dtypes=[mx.int32],
            init_value=5,
        )[0]
    )


def test_a_kernel_inside_of_transformed_functions():
    a = numbers((64,), seed=9)
    with mx.stream(mx.gpu):
        f = mx.compile(lambda a: affine(a * 2, stream=None) - 1)
        assert mx.allclose(f(a), 4 * a).item() and mx.allclose(f(a + 1), 4 * a + 4).item()


def test_many_kernels_with_dropped_inputs():
    total = mx.array(0.0)
    for step in range(200):
        a = mx.full((512,), float(step))
        total = total + affine(a)[3]
        del a
    assert total.item() == sum(2 * step + 1 for step in range(200))

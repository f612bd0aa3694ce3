"""Custom kernels from text."""

import numpy as np
import pytest

import hesper.core as mx


def elementwise(a, source, name="myexp", **arguments):
    kernel = mx.fast.metal_kernel(name=name, input_names=["inp"], output_names=["out"], source=source)
    return kernel(
        inputs=[a],
        template=[("T", a.dtype)],
        grid=(a.size, 1, 1),
        threadgroup=(256, 1, 1),
        output_shapes=[a.shape],
        output_dtypes=[a.dtype],
        **arguments,
    )[0]


EXP = """
    uint elem = thread_position_in_grid.x;
    T tmp = inp[elem];
    out[elem] = metal::exp(tmp);
"""


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_an_elementwise_kernel_computes_what_the_function_does(dtype):
    a = (mx.arange(64).reshape(4, 16) / 16).astype(dtype)
    result = elementwise(a, EXP)
    assert (result.dtype, result.shape) == (dtype, a.shape)
    np.testing.assert_allclose(
        np.array(result.astype(mx.float32)), np.array(mx.exp(a).astype(mx.float32)), rtol=1e-2
    )


def test_strided_inputs_are_read_by_their_strides():
    kernel = mx.fast.metal_kernel(
        name="myexp_strided",
        input_names=["inp"],
        output_names=["out"],
        source="""
            uint elem = thread_position_in_grid.x;
            uint loc = elem_to_loc(elem, inp_shape, inp_strides, inp_ndim);
            out[elem] = metal::exp(inp[loc]);
        """,
        ensure_row_contiguous=False,
    )
    a = mx.array(np.linspace(0, 1, 64, dtype=np.float32).reshape(4, 16))[::2, ::2].T
    result = kernel(
        inputs=[a], grid=(a.size, 1, 1), threadgroup=(32, 1, 1), output_shapes=[a.shape], output_dtypes=[a.dtype]
    )[0]
    np.testing.assert_allclose(np.array(result), np.exp(np.array(a)), rtol=1e-5)


def test_numbers_are_inputs_and_all_kinds_of_template_arguments_work():
    kernel = mx.fast.metal_kernel(
        name="scale",
        input_names=["x", "factor"],
        output_names=["out", "flags"],
        header="template <typename T> T twice(T x) { return x + x; }",
        source="""
            uint i = thread_position_in_grid.x;
            T value = x[i] * T(factor);
            out[i] = Double ? twice(value) : value;
            flags[i] = i < uint(N);
        """,
    )
    x = mx.arange(6).astype(mx.float32)
    out, flags = kernel(
        inputs=[x, 1.5],
        template=[("T", mx.float32), ("N", 2), ("Double", True)],
        grid=(6, 1, 1),
        threadgroup=(6, 1, 1),
        output_shapes=[(2, 3), (6,)],
        output_dtypes=[mx.float32, mx.bool_],
        stream=mx.cpu,
    )
    assert out.tolist() == [[0, 3, 6], [9, 12, 15]]
    assert flags.tolist() == [True, True, False, False, False, False]


def test_atomic_outputs_begin_with_the_initial_value():
    kernel = mx.fast.metal_kernel(
        name="histogram",
        input_names=["x"],
        output_names=["out"],
        source="""
            uint i = thread_position_in_grid.x;
            atomic_fetch_add_explicit(&out[x[i]], 1.0f, memory_order_relaxed);
        """,
        atomic_outputs=True,
    )
    x = mx.array([0, 1, 1, 2, 2, 2], mx.uint32)
    out = kernel(
        inputs=[x],
        grid=(6, 1, 1),
        threadgroup=(2, 1, 1),
        output_shapes=[(3,)],
        output_dtypes=[mx.float32],
        init_value=10,
    )[0]
    assert out.tolist() == [11, 12, 13]


def test_threads_of_a_group_sum_together():
    kernel = mx.fast.metal_kernel(
        name="rowsum",
        input_names=["x"],
        output_names=["out"],
        source="""
            uint row = threadgroup_position_in_grid.x;
            float sum = simd_sum(x[row * 32 + thread_position_in_threadgroup.x]);
            if (thread_index_in_simdgroup == 0) { out[row] = sum; }
        """,
    )
    x = mx.array(np.arange(128, dtype=np.float32))
    out = kernel(
        inputs=[x], grid=(128, 1, 1), threadgroup=(32, 1, 1), output_shapes=[(4,)], output_dtypes=[mx.float32]
    )[0]
    assert out.tolist() == np.arange(128).reshape(4, 32).sum(1).tolist()


def test_verbose_prints_the_text(capsys):
    elementwise(mx.array([1.0]), EXP, verbose=True)
    printed = capsys.readouterr().out
    assert "metal::exp(tmp)" in printed and "myexp" in printed and "inp" in printed


def test_one_name_with_other_text_is_another_kernel():
    a = mx.array([4.0])
    assert elementwise(a, "out[0] = inp[0] + 1;", "same").item() == 5
    assert elementwise(a, "out[0] = inp[0] + 2;", "same").item() == 6


def test_wrong_calls_are_errors_that_name_the_kernel():
    kernel = mx.fast.metal_kernel(name="wrong", input_names=["a"], output_names=["b"], source="b[0] = a[0];")
    good = dict(
        inputs=[mx.array([1.0])], grid=(1, 1, 1), threadgroup=(1, 1, 1), output_shapes=[(1,)], output_dtypes=[mx.float32]
    )
    assert kernel(**good)[0].item() == 1
    for change in (
        {"inputs": []},
        {"output_shapes": []},
        {"output_dtypes": []},
        {"grid": (-1, 1, 1)},
    ):
        with pytest.raises(ValueError, match="wrong"):
            kernel(**{**good, **change})
    with pytest.raises(TypeError):
        kernel(**{**good, "template": [("T", 1.5)]})
    with pytest.raises(TypeError):
        kernel(good["inputs"])
    with pytest.raises(ValueError):
        mx.fast.metal_kernel(name="none", input_names=[], output_names=[], source="")


def test_text_that_does_not_compile_says_where():
    with pytest.raises(RuntimeError, match="nonsense"):
        elementwise(mx.array([1.0]), "out[0] = nonsense;")
    assert elementwise(mx.array([1.0]), "out[0] = inp[0];").item() == 1


def shifted(unchecked):
    kernel = mx.fast.metal_kernel(
        name="shifted",
        input_names=["inp"],
        output_names=["out"],
        source="uint i = thread_position_in_grid.x;\nout[i + 1] = inp[i + 2];",
        unchecked=unchecked,
    )
    a = mx.array([1.0, 2.0, 3.0, 4.0])
    return kernel(
        inputs=[a], grid=(4, 1, 1), threadgroup=(4, 1, 1), output_shapes=[(4,)], output_dtypes=[a.dtype], init_value=9.0
    )[0]


def test_a_write_out_of_range_fails_with_its_line():
    out = shifted(False)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"(?s)shifted.*`out` \(16 bytes\): index 4 of 4.*body:2"):
            mx.eval(out)
            out.tolist()


def test_an_unchecked_kernel_reads_zero_and_drops_writes_on_the_cpu():
    with mx.stream(mx.cpu):
        assert shifted(True).tolist() == [9.0, 3.0, 4.0, 0.0]


def test_a_kernel_as_it_is_written_runs_on_every_device_and_reports_errors_when_it_is_evaluated():
    def make(source, header=""):
        return mx.fast.metal_kernel(
            name="plus", input_names=["inp"], output_names=["out"], source=source, header=header, as_written=True
        )

    def run(kernel):
        a = mx.array([1.0, 2.0, 3.0, 4.0])
        return kernel(
            inputs=[a],
            template=[("T", mx.float32), ("N", 3)],
            grid=(4, 1, 1),
            threadgroup=(4, 1, 1),
            output_shapes=[(4,)],
            output_dtypes=[a.dtype],
        )[0]

    body = "uint i = thread_position_in_grid.x;\nout[i] = plus_one(T(inp[i])) + N;"
    header = "template <typename U> U plus_one(U x) { return x + U(1); }"
    assert run(make(body, header)).tolist() == [5.0, 6.0, 7.0, 8.0]
    # The header is missing: nothing reads the text before the output is evaluated.
    out = run(make(body))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="plus_one"):
            mx.eval(out)
    assert run(make(body, header)).tolist() == [5.0, 6.0, 7.0, 8.0]

"""Which exception an error is."""

import importlib
import operator

import numpy as np
import pytest

import hesper.core as mx

A = mx.array([1, 2, 3])
F = mx.array([1.0, 2.0])

CASES = [
    (ValueError, lambda m, a, f: a + m.array([1, 2]) + m.zeros((4,))),
    (ValueError, lambda m, a, f: m.array([[1], [1, 2]])),
    (ValueError, lambda m, a, f: m.array([1, [1, 2]])),
    (ValueError, lambda m, a, f: m.array("a")),
    (TypeError, lambda m, a, f: m.array(None)),
    (RuntimeError, lambda m, a, f: m.array(2**63)),
    (ValueError, lambda m, a, f: a[0, 0]),
    (AttributeError, lambda m, a, f: operator.delitem(a, 0)),
    (ValueError, lambda m, a, f: m.take(a, 3)),
    (ValueError, lambda m, a, f: m.take(a, -4, axis=0)),
    (ValueError, lambda m, a, f: a["x"]),
    (ValueError, lambda m, a, f: a[1.0]),
    (ValueError, lambda m, a, f: a[True]),
    (ValueError, lambda m, a, f: a[..., ...]),
    (IndexError, lambda m, a, f: m.sum(a, axis=3)),
    (ValueError, lambda m, a, f: m.sum(a, axis=(0, 0))),
    (TypeError, lambda m, a, f: m.sum(a, axis="x")),
    (TypeError, lambda m, a, f: m.sum([1, 2])),
    (ValueError, lambda m, a, f: m.exp([1.0])),
    (TypeError, lambda m, a, f: m.exp()),
    (ValueError, lambda m, a, f: a + "x"),
    (TypeError, lambda m, a, f: a + None),
    (ValueError, lambda m, a, f: a + [1]),
    (ValueError, lambda m, a, f: a & 1.0),
    (RuntimeError, lambda m, a, f: m.bitwise_and(a, 1.0)),
    (ValueError, lambda m, a, f: a.item()),
    (ValueError, lambda m, a, f: bool(a)),
    (TypeError, lambda m, a, f: len(m.array(1))),
    (TypeError, lambda m, a, f: list(m.array(1))),
    (TypeError, lambda m, a, f: f @ 2),
    (ValueError, lambda m, a, f: a.reshape(2, 2)),
    (ValueError, lambda m, a, f: m.reshape(a, (-1, -1))),
    (TypeError, lambda m, a, f: m.reshape(a, 3)),
    (IndexError, lambda m, a, f: a.transpose(1)),
    (ValueError, lambda m, a, f: m.transpose(a, [0, 0])),
    (ValueError, lambda m, a, f: m.broadcast_to(a, (2, 4))),
    (ValueError, lambda m, a, f: a < "x"),
    (TypeError, lambda m, a, f: a.astype("x")),
    (TypeError, lambda m, a, f: a.astype(np.float32)),
    (ValueError, lambda m, a, f: m.squeeze(a, 0)),
    (ValueError, lambda m, a, f: ~f),
    (ValueError, lambda m, a, f: -m.array([True])),
    (TypeError, lambda m, a, f: m.add(a, a, stream=5)),
    (ValueError, lambda m, a, f: m.new_stream(m.Device(m.gpu, 99))),
    (ValueError, lambda m, a, f: m.set_default_device(m.Device(m.gpu, 99))),
    (ValueError, lambda m, a, f: m.zeros((-1,))),
    (ValueError, lambda m, a, f: m.iinfo(m.float32)),
    (TypeError, lambda m, a, f: f | None),
    (TypeError, lambda m, a, f: m.conv_general(m.ones((1, 4, 1)), m.ones((1, 2, 1)), padding=None)),
    (TypeError, lambda m, a, f: m.broadcast_to(a, 3)),
    (TypeError, lambda m, a, f: m.random.uniform(shape=3)),
    (TypeError, lambda m, a, f: m.random.normal(None)),
    (TypeError, lambda m, a, f: m.random.permutation(2.5)),
    (TypeError, lambda m, a, f: m.slice(a, m.array([0]), 0, (1,))),
    (ValueError, lambda m, a, f: m.slice(a, m.array([0, 0]), (5,), (1,))),
    (IndexError, lambda m, a, f: m.slice(a, m.array([0]), (5,), (1,))),
    (TypeError, lambda m, a, f: m.slice_update(a, m.array([9]), m.array([0]), 0)),
    (TypeError, lambda m, a, f: m.tensordot(f, f, None)),
    (TypeError, lambda m, a, f: m.set_wired_limit(-1)),
    (TypeError, lambda m, a, f: m.set_default_stream(m.cpu)),
    (TypeError, lambda m, a, f: m.set_default_stream(m.new_thread_local_stream(m.cpu))),
    (TypeError, lambda m, a, f: m.load(None)),
    (ValueError, lambda m, a, f: m.load("/", format="npz")),
    (TypeError, lambda m, a, f: m.stack(m.array(1))),
    (TypeError, lambda m, a, f: m.concatenate(m.array(1))),
    (TypeError, lambda m, a, f: m.can_cast(None, m.int8)),
    (ValueError, lambda m, a, f: m.can_cast("a", m.int8)),
    (TypeError, lambda m, a, f: m.pad(a, (1, 2, 3))),
    (ValueError, lambda m, a, f: m.fft.fft(m.array(1.0), 2)),
    (IndexError, lambda m, a, f: m.vecdot(f, f, axis=1)),
    (ValueError, lambda m, a, f: m.vecdot(m.ones((2, 2, 2)), f, axis=-2)),
    (ValueError, lambda m, a, f: m.fast.rope(m.ones((1, 1, 4)), 4, traditional=True, base=1e4, scale=1.0, offset=1.5)),
    (RuntimeError, lambda m, a, f: m.grad(lambda w: product(m, w).sum())(m.quantize(m.ones((32, 32)), 32)[0])),
]


def product(m, codes):
    _, scales, biases = m.quantize(m.ones((32, 32)), 32)
    return m.quantized_matmul(m.ones((1, 32)), codes, scales, biases, group_size=32)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_errors_have_their_type(number):
    expected, call = CASES[number]
    with pytest.raises(expected) as error:
        call(mx, A, F)
    assert type(error.value) is expected and str(error.value)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_errors_have_the_type_that_the_reference_gives(mlx, number):
    expected, call = CASES[number]
    with pytest.raises(expected) as error:
        call(mlx, mlx.array([1, 2, 3]), mlx.array([1.0, 2.0]))
    assert type(error.value) is expected


def test_an_index_beyond_the_end_is_an_error():
    for index in (3, -4, -(2**70)):
        with pytest.raises(IndexError):
            A[index]


def test_an_index_beyond_32_bits_is_a_value_error(mlx):
    for array in (A, mlx.array([1, 2, 3])):
        for index in (2**31, -(2**40), (2**62, ...)):
            with pytest.raises(ValueError):
                array[index]


def test_scales_that_are_codes_have_no_derivative():
    codes, scales = mx.quantize(mx.ones((32, 32)), 32, 4, mode="mxfp4")
    with pytest.raises(ValueError, match="stop_gradient"):
        mx.grad(lambda s: mx.dequantize(codes, s, group_size=32, bits=4, mode="mxfp4").sum())(scales)


def test_lists_that_contain_themselves_are_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested"):
        mx.array(loop)
    with pytest.raises(RecursionError):
        mx.eval(loop)


def test_what_does_not_fit_in_memory_is_an_error_and_later_work_succeeds():
    with pytest.raises((RuntimeError, ValueError)):
        mx.eval(mx.zeros((2**40,)) + 1)
    assert (A + 1).tolist() == [2, 3, 4]


def test_errors_name_the_shapes():
    with pytest.raises(ValueError, match=r"3.*4"):
        A + mx.zeros(4)


def test_errors_that_programs_go_on_after_have_the_words_they_look_for(mlx, tmp_path):
    words = {
        "in model": lambda nn, core: nn.Linear(1, 1).load_weights([("x", core.ones(1))]),
        "Missing": lambda nn, core: nn.Linear(1, 1).load_weights([("weight", core.ones((1, 1)))]),
        "Not allowed inside a graph transformation": lambda nn, core: core.vmap(core.async_eval)(core.ones((1, 1))),
        " F4": lambda nn, core: core.load(str(tmp_path / "f4.safetensors")),
    }
    header = b'{"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}}'
    (tmp_path / "f4.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(2))
    for text, call in words.items():
        kinds = []
        for core in (mx, mlx):
            nn = importlib.import_module(core.__name__.replace("core", "nn"))
            with pytest.raises((ValueError, RuntimeError), match=text) as caught:
                call(nn, core)
            kinds.append(caught.type)
        assert kinds[0] is kinds[1], (text, kinds)

"""Operators and functions against NumPy and against the reference."""

import operator

import numpy as np
import pytest

import hesper.core as mx

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]
COMPARE = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
BITWISE = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


@pytest.mark.parametrize("op", ARITHMETIC + COMPARE)
def test_floats_compute_as_in_numpy(op):
    a = np.array([[0.5, 1.5, 2.0], [3.0, 4.5, 0.25]], np.float32)
    b = np.array([2.0, 1.5, 0.5], np.float32)
    np.testing.assert_allclose(np.array(op(mx.array(a), mx.array(b))), op(a, b), rtol=1e-6)
    np.testing.assert_allclose(np.array(op(mx.array(a), 2)), op(a, np.float32(2)), rtol=1e-6)
    np.testing.assert_allclose(np.array(op(2, mx.array(a))), op(np.float32(2), a), rtol=1e-6)


@pytest.mark.parametrize("op", BITWISE)
def test_integers_compute_as_in_numpy(op):
    a, b = np.array([1, 2, 12], np.int32), np.array([3, 1, 2], np.int32)
    np.testing.assert_array_equal(np.array(op(mx.array(a), mx.array(b))), op(a, b))
    np.testing.assert_array_equal(np.array(op(mx.array(a), 1)), op(a, np.int32(1)))


def test_plain_numbers_take_the_type_of_the_array():
    half = mx.array([1.0], mx.float16)
    assert (half + 1).dtype == (1.5 * half).dtype == mx.float16
    assert (mx.array([1], mx.uint8) + 1).dtype == mx.uint8
    assert (mx.array([1]) + 1.5).dtype == mx.float32
    assert (mx.array([True]) + 1).dtype == mx.int32
    assert (mx.array([1]) + True).dtype == mx.int32
    assert mx.add(1, 2).dtype == mx.int32 and mx.add(1, 2.5).dtype == mx.float32
    with pytest.raises(ValueError, match="overflow"):
        mx.array([1], mx.uint8) + 300
    with pytest.raises(ValueError, match="overflow"):
        mx.array([1]) + 2**40


def test_numpy_arrays_are_operands():
    a = mx.array([1, 2, 3])
    assert (a + np.array([1, 1, 1], np.int32)).tolist() == [2, 3, 4]
    assert (a * np.float32(2)).tolist() == [2, 4, 6]


def test_unary_operators():
    a = mx.array([1, -2])
    assert (-a).tolist() == [-1, 2] and abs(a).tolist() == [1, 2] and (+a).tolist() == [1, -2]
    assert (~a).tolist() == [-2, 1] and (~mx.array([True, False])).tolist() == [False, True]
    assert (mx.array([2.0]) @ mx.array([3.0])).item() == 6


def test_in_place_operators_change_the_object_and_no_graph_built_before():
    a = mx.array([1.0, 2.0])
    alias, captured, copied = a, a + 0, mx.array(a)
    a += 1
    a *= 2
    a -= mx.array([1.0, 1.0])
    a /= 2
    a **= 2
    assert alias is a
    assert a.tolist() == [2.25, 6.25]
    assert captured.tolist() == copied.tolist() == [1.0, 2.0]
    b = mx.array([6])
    b |= 1
    b &= 5
    b ^= 8
    b <<= 2
    b >>= 1
    assert b.tolist() == [(((6 | 1) & 5) ^ 8) << 2 >> 1]


def test_whatever_is_no_array_equals_none():
    a = mx.array([1])
    assert (a == "x") is False and (a != "x") is True and (a == [1]) is False
    with pytest.raises(TypeError):
        a == None  # noqa: E711


INDICES = [
    "0", "-1", "1:", "::-1", "::2", "-2:", ":0", "5:1:-2", "None", "...", "()", "0, 1", "0, ..., 1", "..., 0",
    ":, 1", "None, :, None, 0", "1, ::-2, None", "..., None", "-1, -1, -1", "100:", "-100:100:3", ":, :, -1:0:-1",
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES)
def test_parts_are_those_of_numpy(index):
    values = np.arange(60).reshape(3, 4, 5)
    part = eval(f"v[{index}]", {"v": mx.array(values)})
    expected = eval(f"v[{index}]", {"v": values})
    assert part.shape == expected.shape
    np.testing.assert_array_equal(np.array(part), expected)


FUNCTIONS = """
mx.exp(x) mx.sin(x) mx.sqrt(mx.abs(x)) mx.tanh(x) mx.erf(x) mx.sigmoid(x) mx.floor(x) mx.square(x) mx.log1p(mx.abs(x))
mx.sum(x) mx.sum(x,axis=0) mx.sum(x,(0,1)) mx.sum(x,-1,keepdims=True) mx.mean(x,1) mx.max(x,axis=[0]) mx.min(x)
mx.maximum(x,0) mx.where(x>0,x,0) mx.clip(x,-1,None) mx.clip(x,-0.5,0.5) mx.matmul(x,x.T) x@x.transpose(1,0)
mx.reshape(x,(2,-1)) x.reshape(-1) x.reshape(2,6) mx.transpose(x) mx.flatten(x) mx.squeeze(x[None]) x[:,None].squeeze(1)
mx.expand_dims(x,(0,2)) mx.swapaxes(x,0,1) mx.moveaxis(x[None],0,-1) mx.broadcast_to(x,(2,3,4)) mx.unflatten(x,1,(2,-1))
mx.arange(5) mx.arange(1,7,2) mx.arange(0,1,0.25) mx.arange(5,0,-2) mx.arange(3,dtype=mx.float16) mx.zeros((2,3)) mx.ones(3,mx.int8)
mx.full((2,2),1.5) mx.full(3,2) mx.zeros_like(x) mx.full_like(x,3) mx.atleast_2d(mx.array(1)) mx.astype(x,mx.int32)
x.astype(mx.float16) mx.equal(x,x) mx.logical_and(x,1) mx.power(mx.abs(x),0.5) x.sum() x.mean(0) x.max(axis=1,keepdims=True)
x*2-1 1/(x+10) x>0.25 mx.left_shift(mx.array([1,2]),3) mx.add(x,x,stream=mx.cpu) mx.contiguous(x.T) x.T[1:,::-1]
""".split()


@pytest.mark.parametrize("text", FUNCTIONS)
def test_functions_agree_with_the_reference(mlx, text):
    values = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    own = eval(text, {"mx": mx, "x": mx.array(values)})
    reference = eval(text, {"mx": mlx, "x": mlx.array(values)})
    assert own.shape == reference.shape
    assert repr(own.dtype).split(".")[-1] == repr(reference.dtype).split(".")[-1]
    np.testing.assert_allclose(np.array(own), np.array(reference), rtol=2e-6, atol=2e-6)


def test_streams_and_devices():
    stream = mx.new_stream(mx.cpu)
    assert stream.device == mx.cpu and mx.default_device() == mx.Device(mx.cpu)
    a = mx.add(mx.array([1]), 1, stream=stream)
    with mx.stream(stream):
        assert mx.default_stream(mx.cpu) == stream
        b = a + 1
    assert mx.default_stream(mx.cpu) != stream
    mx.async_eval(b)
    mx.synchronize(stream)
    mx.synchronize()
    assert b.item() == 3
    with pytest.raises(ValueError, match="gpu"):
        mx.add(a, a, stream=mx.gpu)

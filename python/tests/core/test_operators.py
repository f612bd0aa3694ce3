"""Operators and functions against NumPy and against the reference."""

import operator

import numpy as np
import pytest

import hesper.core as mx

ARITHMETIC = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
]
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
x//0.75 x%0.75 mx.arctan2(x,x[::-1]) mx.logaddexp(x,0) mx.trunc(x) mx.round(x,1) mx.nan_to_num(x/0) mx.isclose(x,x) mx.allclose(x,x+1)
mx.array_equal(x,x) mx.divmod(x,0.75)[1] mx.degrees(x) mx.arcsinh(x) mx.reciprocal(x+5) mx.linspace(0,1,5) mx.eye(3,4,k=1)
mx.identity(2) mx.tri(3) mx.tril(x) mx.triu(x,1) mx.hanning(5) mx.meshgrid(x[0],x[:,0])[0] mx.split(x,2,axis=1)[1] x.split([1,2])[2]
mx.concatenate([x,x]) mx.concatenate([x,x],axis=1) mx.concatenate([x,x],axis=None) mx.stack([x,x],axis=1) mx.tile(x,(2,1)) mx.repeat(x,2,axis=0)
mx.roll(x,1) mx.roll(x,(1,2),(0,1)) mx.flip(x,0) mx.pad(x,1) mx.pad(x,((1,0),(0,2)),constant_values=3) mx.pad(x,(1,2),mode="edge")
mx.take(x,mx.array([2,0]),axis=1) mx.take(x,3) mx.take_along_axis(x,mx.array([[0],[1],[2]]),axis=1) mx.diagonal(x) mx.diag(x) mx.diag(x[0],1) mx.trace(x)
mx.view(x,mx.int32) mx.as_strided(x,(2,2),(1,2),1) mx.unstack(x,axis=1)[2] x[mx.array([2,0])] x[:,mx.array([1,1,3])] x[mx.array([[0,1],[2,0]]),1]
x[mx.array([0,2]),mx.array([1,3])] x[...,mx.array(1)] mx.zeros(3).at[mx.array([1,1,2])].add(2) x.at[0].multiply(3) x.at[:,1].maximum(0)
mx.conv1d(x[None],mx.ones((2,2,4))) mx.conv2d(x[None,:,:,None],mx.ones((1,2,2,1)),stride=(1,2),padding=1) mx.convolve(x[0],x[1],mode="same")
mx.conv_general(x[None],mx.ones((2,2,4)),padding=([1],[0])) mx.conv_transpose1d(x[None],mx.ones((2,2,4)),stride=2)
mx.fft.rfft(x) mx.fft.ifft(mx.fft.fft(x)) mx.fft.fft2(x) mx.fft.fftshift(x) mx.fft.fftfreq(5) mx.fft.rfftn(x,axes=(0,1))
mx.random.uniform(shape=(4,),key=mx.random.key(3)) mx.random.normal((3,2),key=mx.random.key(1)) mx.random.randint(0,10,(5,),key=mx.random.key(2))
mx.random.split(mx.random.key(5),3) mx.random.bernoulli(0.3,(9,),key=mx.random.key(4)) mx.random.permutation(7,key=mx.random.key(6))
mx.random.categorical(x,key=mx.random.key(7)) mx.random.gumbel((3,),key=mx.random.key(8)) mx.slice(x,mx.array([1]),(0,),(2,4))
mx.all(x>-3) mx.any(x>1,axis=0) mx.prod(x,1) mx.logsumexp(x,-1) mx.median(x,axis=0) mx.var(x,0,ddof=1) mx.std(x) x.var(1) mx.argmax(x,axis=1) x.argmin()
mx.softmax(x,axis=-1) mx.cumsum(x,axis=1) mx.cumsum(x,reverse=True,inclusive=False) x.cumprod(0) mx.cummax(x,1) mx.logcumsumexp(x,0) mx.diff(x) mx.minmax(x,0)[1]
mx.count_nonzero(x>0) mx.sort(-x) mx.argsort(-x,axis=0) mx.sort(x,axis=None) mx.partition(-x,2)[:,2] mx.topk(x,2) mx.searchsorted(x[0],mx.array([-1.5,0]))
mx.unique(mx.array([3,1,3]),size=2) mx.inner(x[0],x[1]) mx.outer(x[0],x[1]) mx.tensordot(x,x.T,axes=1) mx.tensordot(x,x,axes=[[0],[0]]) mx.vecdot(x,x) mx.kron(x[:2,:2],x)
mx.addmm(x[:,:3],x,x.T,alpha=2.0,beta=0.5) mx.einsum("ij,kj->ik",x,x) mx.hadamard_transform(x) mx.fast.rms_norm(x,None,1e-5) mx.fast.layer_norm(x,mx.ones(4),mx.zeros(4),1e-5)
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


ASSIGNMENTS = ["0", "1:", "::-2", "..., 1", "-1, ::2", "None", "()", "[2, 0]", "[[0, 1], [1, 2]], 1", ":, [3, 0]"]


@pytest.mark.parametrize("index", ASSIGNMENTS)
def test_assignments_are_those_of_numpy(index):
    values = np.arange(60).reshape(3, 4, 5).astype(np.float32)
    own, captured = mx.array(values), mx.array(values)
    graph = own + captured
    exec(f"own[{index}] = 7; values[{index}] = 7", {"own": own, "values": values})
    np.testing.assert_array_equal(np.array(own), values)
    np.testing.assert_array_equal(np.array(graph), 2 * np.array(captured))


def test_masks_pick_and_assign():
    values = np.arange(12).reshape(3, 4)
    own = mx.array(values)
    assert own[own > 5].tolist() == [6, 7, 8, 9, 10, 11]
    own[own > 5] = 0
    values[values > 5] = 0
    assert own.tolist() == values.tolist()
    own[1] = mx.array([1, 2, 3, 4])
    own[:, 0] = [9, 9, 9]
    assert own.tolist() == [[9, 1, 2, 3], [9, 2, 3, 4], [9, 0, 0, 0]]


def test_streams_and_devices():
    stream = mx.new_stream(mx.cpu)
    assert stream.device == mx.cpu and mx.Device(mx.cpu) == mx.cpu
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
        mx.add(a, a, stream=mx.Device(mx.gpu, 99))


@pytest.mark.parametrize("dtype", "int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
def test_shifts_by_the_width_and_more_leave_no_bit_but_the_sign(dtype):
    limits = np.iinfo(dtype)
    x = np.array([1, 5, limits.max, limits.min], dtype)
    for count in (limits.bits - 1, limits.bits, limits.bits + 3, 64, 100):
        counts = np.full(4, count, dtype)
        left = [(int(one) << min(count, 64)) & (2**limits.bits - 1) for one in x]
        left = [one - 2**limits.bits if one > limits.max else one for one in left]
        ours, by = mx.array(x), mx.array(counts)
        assert (ours << by).tolist() == left
        assert (ours >> by).tolist() == [int(one) >> min(count, 127) for one in x]
        # One kernel of several ops.
        assert ((ours << by) + ours).tolist() == (np.array(left).astype(dtype) + x).tolist()

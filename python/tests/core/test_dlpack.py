"""DLPack both ways: what is shared, what is copied, and how long it lives."""

import array
import ctypes
import gc
import mmap
import sys
import threading
import weakref

import numpy as np
import pytest
from dlpack import Deleter, Tensor, Versioned, int64s, new_capsule

import hesper.core as mx

TYPES = ["bool_", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32"]


@pytest.mark.parametrize("dtype", TYPES)
def test_numpy_takes_arrays_of_every_type(dtype):
    array = mx.array([[1, 0, 1], [0, 1, 1]]).astype(getattr(mx, dtype))
    taken = np.from_dlpack(array)
    assert str(taken.dtype) == dtype.rstrip("_")
    assert taken.tolist() == array.tolist()


def test_arrays_are_given_away_without_a_copy_and_read_only():
    with mx.stream(mx.cpu):
        array = mx.arange(12).reshape(3, 4)
        mx.eval(array)
    taken = np.from_dlpack(array)
    assert not taken.flags.writeable
    assert taken.ctypes.data == np.from_dlpack(array).ctypes.data


def test_strides_come_along():
    array = mx.arange(12).reshape(3, 4).T[::2]
    assert np.from_dlpack(array).tolist() == array.tolist()


def test_what_was_given_away_outlives_the_array():
    array = mx.arange(1000)
    taken = np.from_dlpack(array)
    array += 1
    del array
    gc.collect()
    mx.eval([mx.ones((1000,), mx.int32) * i for i in range(20)])
    assert taken.tolist() == list(range(1000))


def test_a_copy_is_the_consumers_own():
    array = mx.array([1, 2, 3])
    taken = np.from_dlpack(array, copy=True)
    taken[0] = 7
    assert array.tolist() == [1, 2, 3]


def test_capsules_of_the_first_version_hold_a_copy():
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    array = mx.array([1.0])
    assert name(array.__dlpack__()) == b"dltensor"
    assert name(array.__dlpack__(max_version=(1, 0))) == b"dltensor_versioned"


def test_capsules_that_nobody_takes_give_their_memory_back():
    array = mx.zeros((1 << 18,))
    mx.eval(array)
    before = mx.get_active_memory()
    for _ in range(50):
        array.__dlpack__()
    gc.collect()
    assert mx.get_active_memory() <= before


def test_the_device_is_the_host():
    assert mx.array(1).__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError):
        mx.array(1).__dlpack__(dl_device=(2, 0))


@pytest.mark.parametrize("dtype", [*TYPES, "complex64"])
def test_arrays_of_numpy_are_taken(dtype):
    given = np.array([[1, 0, 1], [0, 1, 1]]).astype(dtype.rstrip("_"))
    for view in (given, given.T, given[:, ::2], given[::-1]):
        taken = mx.from_dlpack(view)
        assert taken.dtype == getattr(mx, dtype)
        assert taken.tolist() == view.tolist()


def test_double_precision_becomes_single(mlx):
    given = np.array([1.5, 2.5])
    assert mx.from_dlpack(given).dtype == mx.float32
    assert repr(mlx.from_dlpack(given)) == repr(mx.from_dlpack(given))


def test_writable_memory_is_copied():
    given = np.array([1, 2, 3], dtype=np.int32)
    taken = mx.from_dlpack(given)
    given[0] = 9
    assert taken.tolist() == [1, 2, 3]


def test_memory_is_shared_where_asked_for_and_lives_as_long_as_it_is_used():
    class Given(np.ndarray):
        pass

    given = np.arange(1000, dtype=np.int32).view(Given)
    alive = weakref.ref(given)
    taken = mx.from_dlpack(given, copy=False)
    assert np.from_dlpack(taken).ctypes.data == given.ctypes.data
    sums = taken + 1
    del given, taken
    gc.collect()
    assert alive() is not None
    assert sums.tolist() == list(range(1, 1001))
    mx.synchronize()
    del sums
    mx.from_dlpack(np.zeros(1))
    gc.collect()
    assert alive() is None


def test_read_only_memory_may_be_written_by_its_owner_and_is_copied():
    given = np.arange(6, dtype=np.float32)
    view = given.view()
    view.flags.writeable = False
    taken = mx.from_dlpack(view)
    other = mx.array(view)
    given[0] = 9
    assert taken.tolist() == other.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("writeable", [True, False])
def test_memory_is_shared_only_where_asked_for(writeable):
    given = np.arange(6, dtype=np.float32)
    given.flags.writeable = writeable
    address = {
        copy: np.from_dlpack(mx.from_dlpack(given, copy=copy)).ctypes.data for copy in (None, False, True)
    }
    assert address[False] == given.ctypes.data
    assert given.ctypes.data not in (address[None], address[True])


BYTES = np.zeros(17, dtype=np.uint8)


@pytest.mark.parametrize(
    "given",
    [
        np.arange(6, dtype=np.float32)[::-1],
        np.arange(6, dtype=np.int32)[::2],
        np.zeros((2, 3), dtype=np.float32).T,
        np.zeros(2),
        np.zeros(2, dtype=np.complex128),
        BYTES[1:].view(np.float32) if BYTES.ctypes.data % 4 == 0 else BYTES[:16].view(np.float32),
    ],
)
def test_memory_that_cannot_be_shared_is_refused_if_no_copy_may_be_made(given):
    with pytest.raises(BufferError):
        mx.from_dlpack(given, copy=False)
    np.testing.assert_array_equal(np.asarray(mx.from_dlpack(given)), given)


class Producer:
    """Gives a capsule whose parts are as one likes, and counts the calls of its deleter."""

    def __init__(self, shape=(2, 3), strides=None, ndim=None, device=(1, 0), dtype=(0, 32, 1), major=1, flags=0, **more):
        self.data = np.arange(64, dtype=np.int32)
        self.deleted = 0
        self.raises = more.get("raises")
        self.asked = []
        self.shape, self.strides = int64s(shape), int64s(strides) if strides else None
        tensor = Tensor(
            data=more.get("address", self.data.ctypes.data),
            device_type=device[0],
            device_id=device[1],
            ndim=len(shape) if ndim is None else ndim,
            code=dtype[0],
            bits=dtype[1],
            lanes=dtype[2],
            shape=None if more.get("no_shape") else self.shape,
            strides=self.strides,
            byte_offset=more.get("byte_offset", 0),
        )
        self.deleter = Deleter(self.delete)
        self.managed = Versioned(major, 0, None, self.deleter, flags, tensor)

    def delete(self, _):
        self.deleted += 1
        if self.raises:
            raise self.raises

    def __dlpack__(self, **arguments):
        self.asked.append(arguments)
        return new_capsule(self.managed)


def test_a_producer_is_asked_for_a_copy_as_the_caller_asks():
    for copy in (None, False, True):
        producer = Producer()
        assert mx.from_dlpack(producer, copy=copy).tolist() == [[0, 1, 2], [3, 4, 5]]
        assert producer.asked == [{"max_version": (1, 0)} | ({} if copy is None else {"copy": copy})]
        gc.collect()
        mx.from_dlpack(np.zeros(1))
        assert producer.deleted == 1


def test_memory_that_was_copied_for_us_is_shared():
    producer = Producer(flags=2)
    taken = mx.from_dlpack(producer)
    assert np.from_dlpack(taken).ctypes.data == producer.data.ctypes.data
    assert producer.deleted == 0
    del taken
    gc.collect()
    mx.from_dlpack(np.zeros(1))
    assert producer.deleted == 1


@pytest.mark.parametrize(
    "given",
    [
        {"shape": (-1,)},
        {"shape": (2**40, 2**40)},
        {"shape": (2**62,)},
        {"ndim": -1},
        {"ndim": 2**30},
        {"no_shape": True},
        {"address": None},
        {"device": (2, 0)},
        {"device": (99, 0)},
        {"dtype": (0, 12, 1)},
        {"dtype": (0, 32, 4)},
        {"dtype": (5, 128, 2)},
        {"dtype": (77, 32, 1)},
    ],
)
def test_tensors_that_make_no_array_are_refused_and_given_back(given):
    producer = Producer(**given)
    with pytest.raises((ValueError, BufferError)):
        mx.from_dlpack(producer)
    assert producer.deleted == 1


def test_tensors_of_a_newer_version_are_not_taken():
    producer = Producer(major=2)
    with pytest.raises(BufferError):
        mx.from_dlpack(producer)
    assert producer.deleted == 0


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_tensors_of_no_elements_are_taken(shape):
    for copy in (None, False, True):
        producer = Producer(shape=shape, address=None)
        assert mx.from_dlpack(producer, copy=copy).shape == shape
        assert producer.deleted == 1


def test_tensors_of_no_axes_are_taken():
    for copy in (None, False, True):
        assert mx.from_dlpack(Producer(shape=(), byte_offset=12), copy=copy).item() == 3


def test_strides_may_be_negative_or_zero_and_the_first_element_anywhere():
    producer = Producer(shape=(2, 3), strides=(0, -2), byte_offset=4 * 10)
    assert mx.from_dlpack(producer).tolist() == [[10, 8, 6]] * 2


def test_a_tensor_too_large_to_copy_is_an_error():
    # Stride zero: one element of memory, more elements than any machine has room for.
    producer = Producer(shape=(1 << 60,), strides=(0,))
    with pytest.raises((MemoryError, ValueError)):
        mx.from_dlpack(producer)


def test_a_deleter_that_raises_harms_nobody():
    unraisable = []
    hook, sys.unraisablehook = sys.unraisablehook, unraisable.append
    try:
        producer = Producer(raises=KeyError("on purpose"))
        assert mx.from_dlpack(producer).tolist() == [[0, 1, 2], [3, 4, 5]]
        assert (mx.array([1]) + 1).tolist() == [2]
    finally:
        sys.unraisablehook = hook
    assert producer.deleted == 1 and len(unraisable) == 1


def test_memory_is_given_back_by_whichever_thread_comes_last():
    producers = [Producer() for _ in range(16)]
    arrays = [mx.from_dlpack(producer, copy=False) for producer in producers]
    sums = [array + 1 for array in arrays]
    mx.async_eval(sums)

    def work(mine):
        del mine[:]

    threads = [threading.Thread(target=work, args=([array],)) for array in arrays]
    del arrays
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    del threads
    assert all(one.tolist() == [[1, 2, 3], [4, 5, 6]] for one in sums)
    del sums
    mx.synchronize()
    gc.collect()
    mx.from_dlpack(np.zeros(1))
    assert [producer.deleted for producer in producers] == [1] * 16


def test_buffers_of_every_kind_are_copied():
    numbers = array.array("f", [1, 2, 3])
    pages = mmap.mmap(-1, 16)
    pages[:4] = b"\1\2\3\4"
    given = bytearray(b"\1\2\3")
    for source, change in [
        (numbers, lambda: numbers.__setitem__(0, 9)),
        (memoryview(numbers), lambda: numbers.__setitem__(0, 8)),
        (memoryview(numbers).toreadonly(), lambda: numbers.__setitem__(0, 7)),
        (pages, lambda: pages.__setitem__(0, 9)),
        (given, lambda: given.__setitem__(0, 9)),
        (memoryview(given)[::-1], lambda: given.__setitem__(2, 9)),
    ]:
        taken = mx.array(source)
        before = taken.tolist()
        change()
        assert taken.tolist() == before
    del source
    # Nobody holds the buffer any more.
    given.append(1)
    numbers.append(1)
    pages.close()


def test_views_are_as_they_were_asked_for():
    values = mx.arange(6).reshape(2, 3)
    assert np.asarray(values.T).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert np.asarray(values[:, ::-1]).tolist() == [[2, 1, 0], [5, 4, 3]]
    assert memoryview(values.T).tobytes() == np.asarray(values.T).tobytes()
    assert np.asarray(mx.zeros((0, 3))).shape == (0, 3)


def test_arrays_go_through_another_library_and_back():
    array = mx.array([[1.5, 2.5], [3.5, 4.5]])
    assert mx.from_dlpack(np.from_dlpack(array)).tolist() == array.tolist()
    assert mx.from_dlpack(array).tolist() == array.tolist()


def test_arrays_of_another_version_of_the_framework_are_taken(mlx):
    assert mx.from_dlpack(mlx.array([1, 2, 3])).tolist() == [1, 2, 3]
    assert mx.array(mlx.array([1.5], mlx.bfloat16)).dtype == mx.bfloat16


def test_what_is_no_tensor_is_refused():
    with pytest.raises(TypeError):
        mx.from_dlpack(5)

    class Liar:
        def __dlpack__(self, **_):
            return 5

    with pytest.raises(TypeError):
        mx.from_dlpack(Liar())


def test_a_capsule_is_taken_once():
    capsule = mx.array([1, 2]).__dlpack__(max_version=(1, 0))

    class Once:
        def __dlpack__(self, **_):
            return capsule

    assert mx.from_dlpack(Once()).tolist() == [1, 2]
    with pytest.raises(ValueError):
        mx.from_dlpack(Once())

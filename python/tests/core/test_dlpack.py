"""DLPack both ways: what is shared, what is copied, and how long it lives."""

import ctypes
import gc
import weakref

import numpy as np
import pytest

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
    assert taken.ctypes.data == np.asarray(memoryview(array)).ctypes.data


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
    assert np.asarray(memoryview(taken)).ctypes.data == given.ctypes.data
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


def test_read_only_memory_is_shared():
    given = np.arange(6, dtype=np.float32)
    given.flags.writeable = False
    taken = mx.from_dlpack(given)
    assert np.asarray(memoryview(taken)).ctypes.data == given.ctypes.data


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

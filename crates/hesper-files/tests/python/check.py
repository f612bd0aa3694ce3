"""Reads what the Rust test wrote, with the packages that own the formats, and compares every byte.

Called by tests/python.rs with a folder. Exit status 0: all equal; 77: a package is missing.
"""

import pathlib
import sys

try:
    import gguf
    import numpy as np
    import safetensors
except ImportError as e:
    print("missing:", e)
    sys.exit(77)


def pattern(n, k):
    return bytes((i * 7 + k * 13) % 256 for i in range(n))


def check_safetensors(folder):
    found = dict(safetensors.deserialize((folder / "all.safetensors").read_bytes()))
    assert len(found) == 21 + 3, sorted(found)
    for name, tensor in found.items():
        dtype, k = name.split("|")[:2]
        assert tensor["dtype"] == dtype, name
        assert bytes(tensor["data"]) == pattern(len(tensor["data"]), int(k)), name
    assert found["F32|100|scalar"]["shape"] == []
    assert found["F32|101|empty"]["shape"] == [3, 0, 2]
    assert found['U8|102|naïve "名前" \\ \n 😀']["shape"] == [5]
    with safetensors.safe_open(str(folder / "all.safetensors"), "np") as f:
        assert f.metadata() == {"format": "pt", "é\t": '"\\\n'}, f.metadata()


def check_arrays(found):
    for name, array in found.items():
        dtype, k = name.split(";")[:2]
        assert array.dtype.str == dtype, (name, array.dtype)
        raw = array.tobytes(order="F" if name.endswith("fortran") else "C")
        assert raw == pattern(array.nbytes, int(k)), name
        if name.endswith("fortran"):
            assert array.flags.f_contiguous and array.shape == (2, 3)


def check_numpy(folder):
    names = None
    for compression in ("stored", "deflated"):
        with np.load(folder / f"{compression}.npz", allow_pickle=False) as z:
            assert z.zip.testzip() is None
            found = {name: z[name] for name in z.files}
        check_arrays(found)
        names = names or set(found)
        assert names == set(found) and len(names) == 15 + 3
    check_arrays({"<f4;7": np.load(folder / "f4.npy", allow_pickle=False)})


def check_gguf(folder):
    reader = gguf.GGUFReader(folder / "all.gguf")
    fields = {k: f for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    values = {k: f.contents() for k, f in fields.items()}
    assert values == {
        "general.architecture": "test", "general.alignment": 64, "u8": 200, "i8": -100, "u16": 60000, "i16": -30000,
        "u32": 4_000_000_000, "i32": -2_000_000_000, "u64": 2**63 + 1, "i64": -(2**62), "f32": 1.5, "f64": -2.25,
        "bool": True, "string": "名前\n", "strings": ["", "a", "é"], "ints": [1, -2], "bools": [True, False],
    }, values
    assert len(reader.tensors) == 34
    for tensor in reader.tensors:
        dtype, k = tensor.name.split("|")
        assert tensor.tensor_type.name == dtype, tensor.name
        assert tensor.data.tobytes() == pattern(tensor.n_bytes, int(k)), tensor.name
        assert [int(d) for d in tensor.shape][1:] == [2, 3], tensor.shape


folder = pathlib.Path(sys.argv[1])
check_safetensors(folder)
check_numpy(folder)
check_gguf(folder)

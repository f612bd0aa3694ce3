"""Makes the files in tests/golden with the packages that own the formats.

Run by hand, from anywhere, when a file is added: python make_golden.py
Needs numpy, safetensors, gguf and mlx. The Rust tests need none of them.
"""

import io
import pathlib
import zipfile

import gguf
import mlx.core as mx
import numpy as np
import safetensors
from gguf import GGMLQuantizationType as T
from gguf import GGUFValueType as V

HERE = pathlib.Path(__file__).resolve().parent.parent / "golden"


def pattern(n, k, modulus=256):
    """Byte i of tensor k, as tests/golden.rs computes it too."""
    return bytes((i * 7 + k * 13) % 256 % modulus for i in range(n))


def make_safetensors():
    bits = {
        "bool": 8, "uint8": 8, "int8": 8, "float8_e5m2": 8, "float8_e4m3fn": 8, "float8_e8m0fnu": 8,
        "float8_e4m3fnuz": 8, "float8_e5m2fnuz": 8, "int16": 16, "uint16": 16, "float16": 16, "bfloat16": 16,
        "int32": 32, "uint32": 32, "float32": 32, "complex64": 64, "float64": 64, "int64": 64, "uint64": 64,
        "float4_e2m1fn_x2": 4,
    }
    keep, tensors = [], {}

    def add(name, dtype, shape, data):
        array = np.frombuffer(data, np.uint8)
        keep.append(array)
        tensors[name] = safetensors.TensorSpec(
            dtype=dtype, shape=shape, data_ptr=array.ctypes.data, data_len=len(data)
        )

    for k, (dtype, b) in enumerate(bits.items()):
        # The package doubles the last dimension of packed types.
        shape = [2, 3, 2] if b == 4 else [2, 3, 4]
        add("t." + dtype, dtype, shape, pattern(24 * b // 8, k, 2 if dtype == "bool" else 256))
    add("scalar", "float32", [], pattern(4, 100))
    add("empty", "float32", [3, 0, 2], b"")
    add('naïve "名前" \\ \n 😀', "uint8", [5], pattern(5, 101))
    meta = {"format": "np", "é\t": 'a "quoted" \\ value\n'}
    (HERE / "all.safetensors").write_bytes(safetensors.serialize(tensors, meta))


class Unseekable(io.RawIOBase):
    """Makes zipfile write data descriptors."""

    def __init__(self):
        self.data = b""

    def writable(self):
        return True

    def write(self, b):
        self.data += bytes(b)
        return len(b)


def make_numpy():
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.save(HERE / "c_order.npy", a)
    np.save(HERE / "fortran.npy", np.asfortranarray(a))
    np.save(HERE / "big_endian.npy", a.astype(">f4"))
    np.save(HERE / "complex_big_endian.npy", (a[0, 0] + 1j).astype(">c16"))
    np.save(HERE / "scalar.npy", np.int64(-7))
    np.save(HERE / "empty.npy", np.zeros((3, 0, 2), np.uint16))
    for version in (2, 3):
        with open(HERE / f"v{version}.npy", "wb") as f:
            np.lib.format.write_array(f, a, version=(version, 0))
    mx.save(str(HERE / "mlx_bfloat16.npy"), mx.array(a).astype(mx.bfloat16))
    np.save(HERE / "structured.npy", np.zeros(2, dtype=[("x", "<f4"), ("y", "<i2")]))
    np.save(HERE / "strings.npy", np.array(["ab", "c"]))

    zeros = np.zeros((64, 64), np.int32)
    members = {"a": a, "fortran": np.asfortranarray(a), "big": a.astype(">f4"), "zeros": zeros, "名前": np.uint8([1, 2])}
    np.savez(HERE / "stored.npz", **members)
    np.savez_compressed(HERE / "deflated.npz", **members)
    out = Unseekable()
    np.savez_compressed(out, **members)
    (HERE / "descriptors.npz").write_bytes(out.data)


def make_gguf():
    w = gguf.GGUFWriter(HERE / "all.gguf", "test")
    w.add_uint8("k.u8", 200)
    w.add_int8("k.i8", -100)
    w.add_uint16("k.u16", 60000)
    w.add_int16("k.i16", -30000)
    w.add_uint32("k.u32", 4_000_000_000)
    w.add_int32("k.i32", -2_000_000_000)
    w.add_uint64("k.u64", 2**63 + 1)
    w.add_int64("k.i64", -(2**62))
    w.add_float32("k.f32", 1.5)
    w.add_float64("k.f64", -2.25)
    w.add_bool("k.bool", True)
    w.add_string("k.string", "naïve 名前 😀\n")
    w.add_array("k.ints", [1, -2, 3])
    w.add_array("k.floats", [0.5, -0.25])
    w.add_array("k.bools", [True, False])
    w.add_array("k.strings", ["", "a", "名前"])
    w.add_key_value("k.nested", [[1, 2], [3]], V.ARRAY, V.ARRAY)
    w.add_custom_alignment(64)
    a = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    w.add_tensor("f32", a)
    w.add_tensor("f16", a.astype(np.float16))
    w.add_tensor("f64", a.astype(np.float64))
    for t in ("int8", "int16", "int32", "int64"):
        w.add_tensor(t, a.astype(t))
    for code in (T.BF16, T.Q4_0, T.Q6_K, T.IQ4_XS):
        block, size = gguf.GGML_QUANT_SIZES[code]
        data = np.frombuffer(pattern(2 * 256 // block * size, code), np.uint8).reshape(2, -1)
        w.add_tensor(code.name, data, raw_dtype=code)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def random_blocks(rng, code, blocks):
    """Any bytes, but scales that are finite numbers."""
    _, size = gguf.GGML_QUANT_SIZES[code]
    data = rng.integers(0, 256, (blocks, size), dtype=np.uint8)

    def scale(at):
        data[:, at : at + 2] = rng.standard_normal((blocks, 1)).astype(np.float16).view(np.uint8)

    first = {T.Q2_K: 80, T.Q3_K: 108, T.Q6_K: 208}.get(code, 0)
    if code == T.Q8_K:
        data[:, :4] = rng.standard_normal((blocks, 1)).astype(np.float32).view(np.uint8)
    elif code == T.MXFP4:
        data[:, 0] = rng.integers(100, 140, blocks)
        data[:3, 0] = (0, 1, 2)
    else:
        scale(first)
    if code in (T.Q4_1, T.Q5_1, T.Q4_K, T.Q5_K, T.Q2_K):
        scale(first + 2)
    return data


def make_quant():
    rng = np.random.default_rng(7)
    arrays = {}
    for code in (T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.IQ4_NL, T.MXFP4, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_XS):
        data = random_blocks(rng, code, 4 if code < T.Q2_K or code in (T.IQ4_NL, T.MXFP4) else 2)
        arrays[code.name + ".blocks"] = data
        arrays[code.name + ".values"] = gguf.dequantize(data, code).astype(np.float32).reshape(-1)
    # The package has no decoder for this one: a scale times signed bytes.
    data = random_blocks(rng, T.Q8_K, 2)
    arrays["Q8_K.blocks"] = data
    arrays["Q8_K.values"] = (np.ascontiguousarray(data[:, :4]).view(np.float32) * data[:, 4:260].view(np.int8)).reshape(-1)

    path = HERE / "affine.tmp.gguf"
    w = gguf.GGUFWriter(path, "test")
    for code in (T.Q4_0, T.Q4_1, T.Q8_0):
        data = random_blocks(rng, code, 12)
        # Scales whose bias overflows or underflows half precision.
        data[0, :2] = np.frombuffer(np.float16(60000).tobytes(), np.uint8)
        data[1, :2] = np.frombuffer(np.float16(-6e-8).tobytes(), np.uint8)
        arrays[code.name + ".affine.blocks"] = data
        w.add_tensor(code.name + ".weight", data.reshape(3, -1), raw_dtype=code)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    loaded = mx.load(str(path))
    path.unlink()
    for code in (T.Q4_0, T.Q4_1, T.Q8_0):
        for part in ("weight", "scales", "biases"):
            arrays[f"{code.name}.affine.{part}"] = np.array(loaded[f"{code.name}.{part}"])
    np.savez_compressed(HERE / "quant.npz", **arrays)


def make_corpus():
    """Small seeds for the fuzz test: the corners of each format."""
    corpus = HERE.parent / "corpus"

    def put(name, data):
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        (corpus / name).write_bytes(data)

    def header(text, data=b""):
        return len(text).to_bytes(8, "little") + text + data

    put("safetensors/none", header(b"{}"))
    put("safetensors/one", header(b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8)))
    put("safetensors/metadata", header(b'{"__metadata__":{"a":"\\u00e9\\ud83d\\ude00"}}  '))
    put("safetensors/extra", header(b'{"w":{"x":[[{"y":-1.5e3}]],"dtype":"F4","shape":[2,0],"data_offsets":[0,0]}}'))

    a = np.arange(6, dtype=np.uint8).reshape(2, 3)
    for version in (1, 2, 3):
        out = io.BytesIO()
        np.lib.format.write_array(out, a, version=(version, 0))
        put(f"npy/v{version}", out.getvalue())
    put("npy/python2", b"\x93NUMPY\x01\0=\0{'shape': (1L,), 'fortran_order': True, 'descr': '>c16'}\n" + bytes(16))

    for name, save in (("stored", np.savez), ("deflated", np.savez_compressed)):
        out = io.BytesIO()
        save(out, a=a, b=np.float32(1))
        put("npz/" + name, out.getvalue())
    put("npz/none", b"PK\x05\x06" + bytes(18))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("folder/", b"")
        z.writestr("notes.txt", b"not an array")
        z.comment = b"a comment"
    put("npz/others", out.getvalue())

    def text(s):
        return len(s).to_bytes(8, "little") + s

    start = b"GGUF\x03\0\0\0"
    put("gguf/none", start + bytes(16))
    put("gguf/v2", b"GGUF\x02\0\0\0" + bytes(8) + b"\x01" + bytes(7) + text(b"k") + b"\x07\0\0\0\x01")
    nested = text(b"k") + b"\x09\0\0\0" + (b"\x09\0\0\0\x01" + bytes(7)) * 3 + b"\x08\0\0\0\x01" + bytes(7) + text(b"x")
    put("gguf/nested", start + bytes(8) + b"\x01" + bytes(7) + nested)
    tensor = text(b"w") + b"\x01\0\0\0" + b"\x20" + bytes(7) + b"\x02\0\0\0" + bytes(8)
    body = start + b"\x01" + bytes(15) + tensor
    put("gguf/block", body + bytes(-len(body) % 32 + 32))

    put("index/two", b'{"metadata":{"total_size":8},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}')
    put("index/none", b'{"weight_map":{}}')


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    make_corpus()
    make_safetensors()
    make_numpy()
    make_gguf()
    make_quant()

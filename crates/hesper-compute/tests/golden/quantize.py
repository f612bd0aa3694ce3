"""Writes quantize.txt: what MLX's quantize and dequantize give for the inputs listed in it.

Each line is a name and 32-bit words in hexadecimal. Run with a Python that has mlx and numpy.
"""
import sys

import mlx.core as mx
import numpy as np

ROWS, K = 1, 256
TYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}


def words(a):
    if a.dtype == mx.uint32:
        return np.array(a).ravel()
    if a.dtype == mx.uint8:
        return np.array(a).ravel().astype(np.uint32)
    return np.array(a.astype(mx.float32)).ravel().view(np.uint32)


def main(out):
    r = np.random.RandomState(3)
    w = r.randn(ROWS, K).astype(np.float32)
    w[0, 0:32] *= 1000
    w[0, 32:64] = 0
    w[0, 64:96] = 0.5
    w[0, 96:128] = -np.abs(w[0, 96:128])
    w[0, 128:160] *= 1e-6
    w[0, 160:192] = np.linspace(-1, 1, 32)
    for name, dtype in TYPES.items():
        x = mx.array(w).astype(dtype)
        put(out, f"input {name}", words(x))
        for bits in (2, 3, 4, 5, 6, 8):
            for group in (32, 64, 128):
                q, s, b = mx.quantize(x, group_size=group, bits=bits)
                d = mx.dequantize(q, s, b, group_size=group, bits=bits)
                key = f"affine {bits} {group} {name}"
                put(out, key + " packed", words(q))
                put(out, key + " scales", words(s))
                put(out, key + " biases", words(b))
                put(out, key + " values", words(d))
        for mode in ("mxfp4", "mxfp8", "nvfp4"):
            q, s = mx.quantize(x, mode=mode)
            d = mx.dequantize(q, s, mode=mode, dtype=dtype)
            put(out, f"{mode} {name} packed", words(q))
            put(out, f"{mode} {name} scales", words(s))
            put(out, f"{mode} {name} values", words(d))


def put(out, name, values):
    print(name + ":", " ".join(f"{v:x}" for v in values), file=out)


main(sys.stdout)

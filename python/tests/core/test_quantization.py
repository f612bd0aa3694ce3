"""Quantization against the reference: the same bits, and products as near as rounding allows."""

import numpy as np
import pytest

import hesper.core as mx

AFFINE = [("affine", bits, group) for bits in (1, 2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]
FORMATS = AFFINE + [("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]
TYPES = ["float32", "float16", "bfloat16"]


def numbers(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def both(mlx, array, dtype):
    """The same array here and there."""
    return mx.array(array).astype(getattr(mx, dtype)), mlx.array(array).astype(getattr(mlx, dtype))


def plain(array):
    """As a NumPy array of floats, whichever package it is of."""
    return np.array(array.astype(type_of(array, "float32")))


def type_of(array, name):
    module = mx if isinstance(array, mx.array) else __import__("mlx.core").core
    return getattr(module, name)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode, bits, group", FORMATS)
def test_codes_scales_and_biases_are_those_of_the_reference(mlx, mode, bits, group, dtype):
    w = numbers((6, 256))
    w[1] = 0.0
    w[2, :64] = 1.5
    w[3] *= 1e-4
    ours, theirs = both(mlx, w, dtype)
    given = mx.quantize(ours, group, bits, mode)
    wanted = mlx.quantize(theirs, group, bits, mode, stream=mlx.cpu)
    assert len(given) == len(wanted)
    for a, b in zip(given, wanted):
        assert a.shape == b.shape and str(a.dtype).split(".")[-1] == str(b.dtype).split(".")[-1]
        np.testing.assert_array_equal(plain(a) if mode == "affine" else np.array(a), plain(b) if mode == "affine" else np.array(b))
    np.testing.assert_array_equal(np.array(given[0]), np.array(wanted[0]))
    back = mx.dequantize(*given, group_size=group, bits=bits, mode=mode)
    expected = mlx.dequantize(*wanted, group_size=group, bits=bits, mode=mode, stream=mlx.cpu)
    assert str(back.dtype).split(".")[-1] == str(expected.dtype).split(".")[-1]
    rounding = {"bfloat16": 1e-2, "float16": 1e-3}.get(dtype, 1e-3)
    # A GPU rounds once, at the end, where the host and the reference round the product, too.
    near = 1e-6 if mx.default_device() == mx.cpu else rounding * np.abs(plain(expected)).max()
    np.testing.assert_allclose(plain(back), plain(expected), rtol=rounding, atol=near)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode, bits, group", FORMATS)
@pytest.mark.parametrize("rows, transpose", [(1, True), (6, True), (3, False)])
def test_products_agree_with_the_reference(mlx, mode, bits, group, dtype, rows, transpose):
    ours, theirs = both(mlx, numbers((32, 256), 1), dtype)
    x = numbers((rows, 256 if transpose else 32), 2)
    x_ours, x_theirs = both(mlx, x, dtype)
    options = {"transpose": transpose, "group_size": group, "bits": bits, "mode": mode}
    given = mx.quantized_matmul(x_ours, *mx.quantize(ours, group, bits, mode), **options)
    wanted = mlx.quantized_matmul(
        x_theirs, *mlx.quantize(theirs, group, bits, mode, stream=mlx.cpu), **options, stream=mlx.cpu
    )
    assert given.shape == wanted.shape
    # The reference adds up products in half precision; ours are nearer to the exact sums.
    tolerance = {"float32": 2e-5, "float16": 6e-2, "bfloat16": 3e-1}[dtype]
    scale = np.abs(plain(wanted)).max()
    np.testing.assert_allclose(plain(given), plain(wanted), atol=tolerance * max(scale, 1.0) / 4)


def test_short_rows_of_nvfp4_and_scales_of_scales_are_those_of_the_reference(mlx):
    w = numbers((4, 48))
    scale = float(np.abs(w).max())
    given = mx.quantize(mx.array(w), mode="nvfp4", global_scale=mx.array(scale))
    wanted = mlx.quantize(mlx.array(w), mode="nvfp4", global_scale=mlx.array(scale), stream=mlx.cpu)
    for a, b in zip(given, wanted):
        np.testing.assert_array_equal(np.array(a), np.array(b))
    back = mx.dequantize(*given, mode="nvfp4", global_scale=mx.array(scale), dtype=mx.float32)
    expected = mlx.dequantize(
        *wanted, mode="nvfp4", global_scale=mlx.array(scale), dtype=mlx.float32, stream=mlx.cpu
    )
    np.testing.assert_allclose(np.array(back), np.array(expected), rtol=1e-6)
    x = numbers((2, 48), 3)
    codes = mx.quantize(mx.array(w), mode="nvfp4")
    theirs = mlx.quantize(mlx.array(w), mode="nvfp4", stream=mlx.cpu)
    given = mx.quantized_matmul(mx.array(x), *codes, mode="nvfp4")
    wanted = mlx.quantized_matmul(mlx.array(x), *theirs, mode="nvfp4", stream=mlx.cpu)
    np.testing.assert_allclose(np.array(given), np.array(wanted), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["affine", "mxfp4"])
@pytest.mark.parametrize("transpose", [True, False])
def test_chosen_products_agree_with_the_reference(mlx, mode, transpose):
    w, x = numbers((5, 32, 64), 4), numbers((3, 2, 64 if transpose else 32), 5)
    ours, theirs = mx.quantize(mx.array(w), mode=mode), mlx.quantize(mlx.array(w), mode=mode, stream=mlx.cpu)
    left, right = np.array([[0, 2], [1, 1]], np.uint32), np.array([4, 0], np.uint32)
    for lists in ({"lhs_indices": left, "rhs_indices": right}, {"rhs_indices": np.array([1, 1, 3], np.uint32)}):
        options = {"transpose": transpose, "mode": mode}
        here = {name: mx.array(value) for name, value in lists.items()}
        there = {name: mlx.array(value) for name, value in lists.items()}
        given = mx.gather_qmm(mx.array(x), *ours, **here, **options)
        wanted = mlx.gather_qmm(mlx.array(x), *theirs, **there, **options, stream=mlx.cpu)
        assert given.shape == wanted.shape
        np.testing.assert_allclose(np.array(given), np.array(wanted), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["nvfp4", "mxfp8"])
def test_products_of_two_quantized_matrices_are_those_of_their_numbers(mode):
    x, w = mx.array(numbers((4, 64), 6)), mx.array(numbers((8, 64), 7))
    rounded = [
        mx.dequantize(*mx.quantize(array, mode=mode), mode=mode, dtype=mx.float32) for array in (x, w)
    ]
    wanted = np.array(rounded[0]) @ np.array(rounded[1]).T
    np.testing.assert_allclose(np.array(mx.qqmm(x, w, mode=mode)), wanted, rtol=1e-5, atol=1e-5)
    codes, scales = mx.quantize(w, mode=mode)
    np.testing.assert_allclose(np.array(mx.qqmm(x, codes, scales, mode=mode)), wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError):
        mx.qqmm(x, codes, mode=mode)


def test_small_floats_are_those_of_the_reference(mlx):
    x = np.concatenate([numbers((500,), 8) * 10.0 ** np.arange(-4, 4).repeat(63)[:500], [0.0, 448.0, 500.0, -np.inf]])
    x = x.astype(np.float32)
    codes = mx.to_fp8(mx.array(x))
    np.testing.assert_array_equal(np.array(codes), np.array(mlx.to_fp8(mlx.array(x), stream=mlx.cpu)))
    every = np.arange(256, dtype=np.uint8)
    for dtype in TYPES:
        given = plain(mx.from_fp8(mx.array(every), getattr(mx, dtype)))
        wanted = plain(mlx.from_fp8(mlx.array(every), getattr(mlx, dtype), stream=mlx.cpu))
        np.testing.assert_array_equal(given, wanted)


def test_what_does_not_fit_is_refused():
    w = mx.array(numbers((8, 128)))
    codes, scales, biases = mx.quantize(w)
    for call in [
        lambda: mx.quantize(w, bits=7),
        lambda: mx.quantize(w, group_size=16),
        lambda: mx.quantize(w[0]),
        lambda: mx.quantize(w[:, :96]),
        lambda: mx.quantize(w.astype(mx.int32)),
        lambda: mx.quantize(w, mode="ternary"),
        lambda: mx.quantize(w, mode="mxfp4", group_size=64),
        lambda: mx.quantize(w, global_scale=mx.array(1.0)),
        lambda: mx.dequantize(codes, scales),
        lambda: mx.dequantize(codes, scales, biases, bits=3),
        lambda: mx.quantized_matmul(w[:, :64], codes, scales, biases),
        lambda: mx.quantized_matmul(w, codes, scales),
        lambda: mx.quantized_matmul(w, codes.astype(mx.int32), scales, biases),
        lambda: mx.to_fp8(codes),
        lambda: mx.from_fp8(w),
    ]:
        with pytest.raises(ValueError):
            call()


@pytest.mark.parametrize("asked", [None, *TYPES])
@pytest.mark.parametrize("dtype", TYPES)
def test_affine_codes_are_decoded_in_the_type_of_their_scales(mlx, dtype, asked):
    theirs = mlx.quantize(mlx.array(numbers((4, 64))).astype(getattr(mlx, dtype)), bits=8)
    ours = [mx.array(np.array(theirs[0])), *(mx.array(plain(one)).astype(getattr(mx, dtype)) for one in theirs[1:])]
    kind = lambda core: None if asked is None else getattr(core, asked)
    found = mx.dequantize(*ours, bits=8, dtype=kind(mx))
    expected = mlx.dequantize(*theirs, bits=8, dtype=kind(mlx))
    assert str(found.dtype).split(".")[-1] == str(expected.dtype).split(".")[-1]
    near = {"float32": 1e-6}.get(asked or dtype, 0) if dtype == "float32" else 0
    np.testing.assert_allclose(plain(found), plain(expected), rtol=near, atol=near)

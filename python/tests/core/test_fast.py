"""Fused functions against the reference."""

import numpy as np
import pytest

import hesper.core as mx

TOLERANCE = {"float32": 1e-5, "float16": 3e-3, "bfloat16": 3e-2}


def numbers(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def plain(module, array):
    return np.array(array.astype(module.float32))


def agree(mlx, given, wanted, dtype):
    assert given.shape == wanted.shape
    assert str(given.dtype).split(".")[-1] == str(wanted.dtype).split(".")[-1]
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(plain(mx, given), plain(mlx, wanted), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("traditional", [True, False])
@pytest.mark.parametrize("dims", [16, 8])
@pytest.mark.parametrize("shape", [(2, 5, 16), (2, 3, 5, 16)])
def test_rotary_positions_agree_with_the_reference(mlx, dtype, traditional, dims, shape):
    x = numbers(shape)
    freqs = np.linspace(1, 9, dims // 2).astype(np.float32)
    for base, offset, scale in [(10000.0, 0, 1.0), (100.0, 7, 0.5), (None, 3, 1.0), (10000.0, [2, 9], 1.0)]:
        def run(module):
            array = module.array(x).astype(getattr(module, dtype))
            start = offset if isinstance(offset, int) else module.array(offset)
            own = None if base is not None else module.array(freqs)
            options = {"traditional": traditional, "base": base, "scale": scale, "offset": start, "freqs": own}
            return module.fast.rope(array, dims, **options, stream=module.cpu)

        agree(mlx, run(mx), run(mlx), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("heads, shared, queries, keys", [(4, 2, 3, 9), (4, 4, 1, 80), (8, 1, 40, 40), (2, 2, 5, 3)])
@pytest.mark.parametrize("kind", [None, "causal", "bools", "numbers", "row"])
@pytest.mark.parametrize("with_sinks", [True, False])
def test_attention_agrees_with_the_reference(mlx, dtype, heads, shared, queries, keys, kind, with_sinks):
    q, k = numbers((2, heads, queries, 32)), numbers((2, shared, keys, 32), 1)
    v, sinks = numbers((2, shared, keys, 16), 2), numbers((heads,), 3)
    masks = {
        "bools": np.random.default_rng(4).random((2, 1, queries, keys)) > 0.3,
        "numbers": numbers((heads, queries, keys), 5),
        "row": numbers((keys,), 6),
    }

    def run(module):
        cast = lambda array: module.array(array).astype(getattr(module, dtype))
        mask = kind
        if kind in masks:
            mask = module.array(masks[kind]) if kind == "bools" else cast(masks[kind])
        own = cast(sinks) if with_sinks else None
        return module.fast.scaled_dot_product_attention(
            cast(q), cast(k), cast(v), scale=0.2, mask=mask, sinks=own, stream=module.cpu
        )

    agree(mlx, run(mx), run(mlx), dtype)


def test_attention_reads_a_part_of_a_cache(mlx):
    q, cache = numbers((1, 4, 1, 16)), numbers((1, 2, 64, 16), 1)

    def run(module):
        held = module.array(cache)[..., 5:37, :]
        return module.fast.scaled_dot_product_attention(
            module.array(q), held, held, scale=0.25, stream=module.cpu
        )

    agree(mlx, run(mx), run(mlx), "float32")


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("wide", [True, False])
def test_the_gated_delta_rule_agrees_with_the_reference(mlx, dtype, wide):
    rng = np.random.default_rng(0)
    q, k, v = numbers((2, 6, 2, 32)) / 6, numbers((2, 6, 2, 32), 1) / 6, numbers((2, 6, 4, 24), 2)
    gamma = rng.random((2, 6, 4, 32) if wide else (2, 6, 4)).astype(np.float32)
    beta, state = rng.random((2, 6, 4)).astype(np.float32), numbers((2, 4, 24, 32), 3)
    mask = rng.random((2, 6)) > 0.4
    for with_state, with_mask in [(False, False), (True, False), (True, True)]:
        def run(module):
            cast = lambda array: module.array(array).astype(getattr(module, dtype))
            return module.fast.gated_delta_update(
                cast(q),
                cast(k),
                cast(v),
                cast(gamma),
                cast(beta),
                module.array(state) if with_state else None,
                module.array(mask) if with_mask else None,
                module.cpu,
            )

        for given, wanted in zip(run(mx), run(mlx)):
            agree(mlx, given, wanted, dtype)


def test_what_does_not_fit_is_refused():
    x = mx.array(numbers((1, 2, 3, 8)))
    rope = lambda array=x, dims=8, base=1e4, offset=0, freqs=None: mx.fast.rope(
        array, dims, traditional=False, base=base, scale=1.0, offset=offset, freqs=freqs
    )
    attention = lambda q=x, k=x, v=x, **options: mx.fast.scaled_dot_product_attention(q, k, v, scale=1.0, **options)
    for call in [
        lambda: rope(x[0, 0]),
        lambda: rope(dims=7),
        lambda: rope(dims=-2),
        lambda: rope(dims=10),
        lambda: rope(base=None),
        lambda: rope(freqs=mx.ones((4,))),
        lambda: rope(offset=mx.array([1, 2])),
        lambda: rope(offset=mx.array(1.5)),
        lambda: attention(x[0]),
        lambda: attention(k=x[..., :4]),
        lambda: attention(mask="sideways"),
        lambda: attention(mask=mx.zeros((3, 4))),
        lambda: attention(sinks=mx.zeros((3,))),
        lambda: attention(x.astype(mx.int32), x.astype(mx.int32), x.astype(mx.int32)),
    ]:
        with pytest.raises(ValueError):
            call()

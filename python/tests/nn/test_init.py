"""Initialisers compared with those of MLX."""

import numpy as np
import pytest
from differential import HESPER, attempt, compare, needs_mlx, needs_same_random, to_numpy

SHAPES = [(), (3,), (3, 4), (4, 3), (5, 5), (2, 3, 4), (2, 3, 3, 4)]
CASES = [
    ("constant", (0.5,), {}), ("normal", (), {}), ("normal", (1.0, 0.1), {}), ("uniform", (), {}),
    ("uniform", (-2.0, 3.0), {}), ("identity", (), {}), ("glorot_normal", (), {}),
    ("glorot_normal", (), {"gain": 4.0}), ("glorot_uniform", (), {}), ("glorot_uniform", (), {"gain": 4.0}),
    ("he_normal", (), {}), ("he_normal", (), {"mode": "fan_out", "gain": 5}), ("he_uniform", (), {}),
    ("he_uniform", (), {"mode": "fan_out", "gain": 5}), ("he_normal", (), {"mode": "fan"}),
    ("he_uniform", (), {"mode": "fan"}), ("sparse", (0.5,), {}), ("sparse", (0.35, 1.0, 0.1), {}),
    ("sparse", (2.0,), {}), ("orthogonal", (), {}), ("orthogonal", (2.0,), {}),
]  # fmt: skip


@needs_mlx
@needs_same_random
@pytest.mark.parametrize("name, arguments, call", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_initialiser_draws_the_same(name, arguments, call, dtype):
    def scenario(lib):
        results = []
        for shape in SHAPES:
            lib.mx.random.seed(11)
            fn = getattr(lib.nn.init, name)(*arguments, dtype=getattr(lib.mx, dtype))
            results.append(attempt(fn, lib.mx.zeros(shape), **call))
        return results

    compare(scenario)


def draw(name, *arguments, shape=(400, 300), **call):
    return to_numpy(getattr(HESPER.nn.init, name)(*arguments)(HESPER.mx.zeros(shape), **call))


def test_the_distributions_have_the_promised_spread():
    assert abs(draw("normal", 1.0, 0.5).std() - 0.5) < 0.01
    assert abs(draw("glorot_normal").std() - (2 / 700) ** 0.5) < 1e-3
    assert abs(draw("he_normal").std() - 300**-0.5) < 1e-3
    assert abs(draw("he_normal", mode="fan_out").std() - 400**-0.5) < 1e-3
    assert np.abs(draw("glorot_uniform")).max() <= (6 / 700) ** 0.5
    assert np.abs(draw("he_uniform", gain=2.0)).max() <= 2 * (3 / 300) ** 0.5


def test_sparse_rows_have_the_same_number_of_zeros():
    assert ((draw("sparse", 0.25, shape=(7, 10)) == 0).sum(axis=1) == 3).all()


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_orthogonal_matrices_are_orthogonal(shape):
    q = draw("orthogonal", 2.0, shape=shape) / 2
    gram = q @ q.T if shape[0] <= shape[1] else q.T @ q
    np.testing.assert_allclose(gram, np.eye(min(shape)), atol=1e-5)

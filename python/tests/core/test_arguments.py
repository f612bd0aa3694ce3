"""Odd but allowed arguments, and what comes of them: types of results, shapes, numbers; beside the reference."""

import numpy as np
import pytest

import hesper.core as mx

CASES = {
    "broadcast_arrays": lambda m: m.broadcast_arrays(m.ones((2, 1)), m.ones((3,))),
    "meshgrid": lambda m: m.meshgrid(m.array([1, 2]), m.array([3.0])),
    "arange of a stop, a step and a type": lambda m: m.arange(5, 2, m.float16),
    "arange of a stop and a type": lambda m: m.arange(3, None, m.float32),
    "arange by name": lambda m: m.arange(stop=3),
    "sum of a number": lambda m: m.sum(m.array(3, dtype=m.int16)),
    "sum of a flag": lambda m: m.sum(m.array(True)),
    "product of a number": lambda m: m.prod(m.array(3, dtype=m.int8)),
    "steps along one axis": lambda m: m.roll(m.arange(10).reshape(5, 2), (1, 2), 0),
    "steps along a list of one axis": lambda m: m.roll(m.arange(10).reshape(5, 2), (1, 2), (0,)),
    "trace of small integers": lambda m: m.trace(m.ones((2, 2), dtype=m.int8), dtype=m.int8),
    "trace in another type": lambda m: m.trace(m.ones((2, 2)), dtype=m.float16),
    "spread with more than there are": lambda m: m.var(m.array([1.0, 2.0, 4.0]), ddof=-1),
    "deviation of integers": lambda m: m.array([1, 2, 4]).std(ddof=-1),
    "chosen products of vectors": lambda m: m.gather_mm(m.ones((3,)), m.ones((3,))),
    "chosen products of a row": lambda m: m.gather_mm(m.ones((3,)), m.ones((3, 2))),
    "chosen products of a column": lambda m: m.gather_mm(m.ones((2, 3)), m.ones((3,))),
}

WRONG = {
    "repeat": lambda m: m.repeat(m.array([1, 2]), -1),
    "topk": lambda m: m.topk(m.array([1, 2]), -1),
    "eye": lambda m: m.eye(-1),
    "categorical": lambda m: m.random.categorical(m.ones((2, 3)), num_samples=-1),
    "split": lambda m: m.random.split(m.random.key(0), -1),
    "block_masked_mm": lambda m: m.block_masked_mm(m.ones((32, 32)), m.ones((32, 32)), -1),
    "arange": lambda m: m.arange(True),
    "vecdot": lambda m: m.vecdot(m.array(1.0), m.array(1.0)),
}


def parts(result):
    return list(result) if isinstance(result, (list, tuple)) else [result]


@pytest.mark.parametrize("name", CASES)
def test_odd_arguments_give_what_the_reference_gives(name, mlx):
    ours, theirs = CASES[name](mx), CASES[name](mlx)
    assert type(ours).__name__ == type(theirs).__name__
    for one, other in zip(parts(ours), parts(theirs), strict=True):
        assert str(one.dtype).split(".")[-1] == str(other.dtype).split(".")[-1]
        np.testing.assert_allclose(np.array(one), np.array(other), rtol=1e-6)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_numbers_are_value_errors(name):
    with pytest.raises(ValueError):
        mx.eval(WRONG[name](mx))

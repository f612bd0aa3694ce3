"""What the tests of ``hesper.core`` share."""

import importlib.util

import pytest

import hesper.core as mx


@pytest.fixture(scope="session")
def mlx():
    """The reference implementation; tests that compare with it are skipped without it."""
    if importlib.util.find_spec("mlx") is None:
        pytest.skip("mlx is not installed: there is nothing to compare with")
    import mlx.core

    return mlx.core


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """The default device is that of a fresh process after each test."""
    before = mx.default_device()
    yield
    mx.set_default_device(before)

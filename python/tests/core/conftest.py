"""Fixtures of the tests of ``hesper.core``."""

import importlib.util

import pytest


@pytest.fixture(scope="session")
def mlx():
    """The reference implementation; tests that compare with it are skipped without it."""
    if importlib.util.find_spec("mlx") is None:
        pytest.skip("mlx is not installed: there is nothing to compare with")
    import mlx.core

    return mlx.core

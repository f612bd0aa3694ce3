"""Settings and fixtures of all tests."""

import os

import pytest

# Results are compared with those of the host, so products on a GPU have to be exact.
os.environ["MLX_ENABLE_TF32"] = "0"


@pytest.fixture(autouse=True)
def default_device():
    """Every test starts with the default device of a fresh process."""
    import hesper.core as mx

    before = mx.default_device()
    yield
    mx.set_default_device(before)

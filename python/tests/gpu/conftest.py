"""What the tests on a GPU share: they are skipped where there is none."""

from pathlib import Path

import pytest

import hesper.core as mx

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    here = [item for item in items if item.path.parent == _HERE]
    if here and not mx.is_available(mx.gpu):
        for item in here:
            item.add_marker(pytest.mark.skip(reason="no GPU can be opened here"))


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """The default device is that of a fresh process after each test."""
    before = mx.default_device()
    yield
    mx.set_default_device(before)

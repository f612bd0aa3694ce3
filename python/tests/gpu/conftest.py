"""Tests on a GPU are skipped where there is none."""

from pathlib import Path

import pytest

import hesper.core as mx

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    here = [item for item in items if item.path.parent == _HERE]
    if here and not mx.is_available(mx.gpu):
        for item in here:
            item.add_marker(pytest.mark.skip(reason="no GPU can be opened here"))

"""The type stubs are those of the package that was built."""

import ast
import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "stubs.py"


@pytest.fixture(scope="module")
def stubs():
    spec = importlib.util.spec_from_file_location("stubs", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.stubs()


def test_stubs_are_python(stubs):
    for path, text in stubs.items():
        ast.parse(text, str(path))


def test_stubs_are_current(stubs):
    stale = [path.name for path, text in stubs.items() if not path.exists() or path.read_text() != text]
    assert stale == [], "run python scripts/stubs.py"

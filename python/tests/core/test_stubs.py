"""The type stubs are those of the package that was built."""

import ast
import importlib.util
import os
import subprocess
import sys
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


# Names that only the stubs have, an operator whose third argument Python never passes, and the class of arrays, whose
# memory layout a decorator would tell that only new checkers know.
ALLOWED = "hesper.core.StreamOrDevice\nhesper.core.scalar\nhesper.core.array.__ipow__\nhesper.core.array\n"

PROGRAM = """
from typing import Any, assert_type

import numpy as np

import hesper.core as mx
import hesper.nn as nn
from hesper.utils import tree_flatten

x = mx.array([1.0, 2.0])
x += 1
x **= 2
x @= mx.eye(2)
x[0] = 3
assert_type(x == x, mx.array)
assert_type(x != 2, mx.array)
assert_type(2 - x, mx.array)
assert_type(-x, mx.array)
assert_type([row for row in x], list[mx.array])
assert_type(x.shape, tuple[int, ...])
assert_type(x.dtype == mx.float32, bool)
assert_type(mx.default_device() == mx.Device(mx.cpu, 0), bool)
assert_type(mx.add(x, 1, stream=mx.cpu), mx.array)
assert_type(mx.where(x > 0, x, -1.0), mx.array)
assert_type(x.at[0].add(1), mx.array)
assert_type(mx.broadcast_arrays(x, x), list[mx.array])
assert_type([path for path, _ in tree_flatten({"a": x})], list[str])
assert_type(tree_flatten({"a": x}, destination=dict[str, Any]()), dict[str, Any])
assert_type(nn.relu(x), mx.array)
assert_type(nn.losses.mse_loss(x, x), mx.array)
np.from_dlpack(x)
with mx.stream(mx.cpu):
    mx.eval(x)
"""


def mypy(program, *arguments, folder):
    pytest.importorskip("mypy")
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[1] / "python")}
    command = [sys.executable, "-m", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_say_what_the_package_has(tmp_path):
    (tmp_path / "allowed").write_text(ALLOWED)
    mypy("mypy.stubtest", "hesper.core", "--concise", "--allowlist", "allowed", folder=tmp_path)


def test_a_typed_program_is_accepted_and_runs(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    mypy("mypy", "--strict", "--warn-unreachable", "program.py", folder=tmp_path)
    mypy("program", folder=tmp_path)

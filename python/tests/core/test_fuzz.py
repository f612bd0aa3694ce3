"""Every fuzz target of ``fuzz.py`` for a few seconds, in a process of its own: a crash is a failure of the test, not of
all tests. ``HESPER_FUZZ_SECONDS`` says how long, ``HESPER_SEED`` with which inputs."""

import os
import pathlib
import subprocess
import sys

import pytest


@pytest.mark.parametrize("target", ["index", "dlpack", "pickle"])
def test_nothing_is_found(target):
    script = pathlib.Path(__file__).with_name("fuzz.py")
    options = ["--seconds", os.environ.get("HESPER_FUZZ_SECONDS", "2"), "--seed", os.environ.get("HESPER_SEED", "1")]
    done = subprocess.run([sys.executable, str(script), target, *options], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

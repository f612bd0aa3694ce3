"""Python programs in processes of their own."""

import os
import subprocess
import sys
import textwrap


def run_program(text, *options, timeout=120, **environment):
    """Run a program with options of the interpreter; returns the ended process with its output."""
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **environment},
    )

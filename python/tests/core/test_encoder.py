"""``async_eval`` whose graphs are encoded by a thread of their own, as on GPUs."""

import subprocess
import sys
import threading

import numpy as np
import pytest

import hesper.core as mx
from hesper import _core


@pytest.fixture(autouse=True)
def apart():
    _core._encode_apart(True)
    yield
    _core._encode_apart(False)


def test_a_chain_of_steps_gives_the_same_numbers_as_one_by_one():
    weights = [mx.random.normal((16, 16)) * 0.2 for _ in range(20)]
    cache = mx.zeros((200, 16))
    expected, x = np.zeros((200, 16), np.float32), mx.ones((1, 16))
    last = x
    for at in range(200):
        y = last
        for w in weights:
            y = mx.tanh(y @ w) + y * 0.1
        cache[at] = y[0]
        mx.async_eval(y, cache)
        last = y
        if at % 7 == 0:
            mx.eval(last)
    mx.synchronize()
    _core._encode_apart(False)
    for at in range(200):
        y = x
        for w in weights:
            y = mx.tanh(y @ w) + y * 0.1
        mx.eval(y)
        expected[at], x = np.array(y)[0], y
    assert np.array_equal(np.array(cache), expected)


def test_errors_come_with_the_array_and_with_synchronize(tmp_path):
    file = tmp_path / "x.npy"
    np.save(file, np.ones(1000, np.float32))
    x = mx.load(str(file)) + 1
    file.write_bytes(file.read_bytes()[:200])
    mx.async_eval(x)
    with pytest.raises(Exception):
        mx.synchronize()
    with pytest.raises(Exception):
        mx.eval(x)
    singular = mx.linalg.inv(mx.zeros((3, 3)), stream=mx.cpu)
    mx.async_eval(singular)
    with pytest.raises(Exception):
        mx.eval(singular)
    # What comes next is not concerned.
    y = mx.arange(5) * 2
    mx.async_eval(y)
    try:
        mx.synchronize()
    except Exception:
        pass
    assert y.tolist() == [0, 2, 4, 6, 8]


def test_threads_share_the_graphs_that_wait():
    shared = mx.zeros((8,))
    for _ in range(50):
        shared = mx.sin(shared) + 1
    results = []

    def work(number):
        y = shared * number
        mx.async_eval(y)
        results.append((number, np.array(y)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    base = np.array(shared)
    assert len(results) == 16
    assert all(np.array_equal(y, base * np.float32(number)) for number, y in results)


@pytest.mark.parametrize("end", ["pass", "mx.synchronize()", "raise SystemExit(0)", "import os; os._exit(0)"])
def test_a_process_ends_while_graphs_wait(end):
    text = f"""
import hesper.core as mx
from hesper import _core
_core._encode_apart(True)
x = mx.ones((64, 64))
for _ in range(40):
    for _ in range(100):
        x = mx.sin(x) @ x * 0.01
    mx.async_eval(x)
{end}
"""
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="there is no fork here")
def test_a_forked_child_gets_an_error_and_ends():
    text = """
import os
import hesper.core as mx
from hesper import _core
_core._encode_apart(True)
x = mx.ones((64,))
mx.eval(x)
mx.async_eval(x + 1)
child = os.fork()
if child == 0:
    try:
        mx.async_eval(x + 2)
    except RuntimeError:
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert (x + 3).tolist()[0] == 4
"""
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr

"""What the package owes the interpreter: its lock, its signals, its end, its children."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

import hesper.core as mx

PREAMBLE = "import os, signal, sys, threading, time\nimport hesper.core as mx\n"
LONG = """
n, times = (500, 2000) if mx.default_device() == mx.cpu else (8192, 300)
a = mx.ones((n, n))
for _ in range(times):
    a = a @ a * 1e-3
"""


def start(program: str) -> subprocess.Popen:
    text = PREAMBLE + textwrap.dedent(program)

    def heed_interrupts():
        # Whoever runs the tests in the background may have told all its children to ignore them.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts if os.name == "posix" else None,
    )


def finish(process: subprocess.Popen, timeout: float = 30) -> tuple[int, str, str]:
    try:
        out, error = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        pytest.fail("the process hangs")
    return process.returncode, out, error


def run(program: str, timeout: float = 30) -> str:
    code, out, error = finish(start(program), timeout)
    assert code == 0, error
    return out


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize("wait", ["mx.eval(a)", "a[0, 0].item()", "mx.async_eval(a); mx.synchronize()"])
def test_control_c_ends_a_wait(wait):
    process = start(LONG + f"print('started', flush=True)\n{wait}\n")
    assert process.stdout.readline() == "started\n"
    time.sleep(0.7)
    assert process.poll() is None, "the work is too short for the test"
    process.send_signal(signal.SIGINT)
    asked = time.monotonic()
    code, _, error = finish(process)
    assert "KeyboardInterrupt" in error
    assert code != 0
    assert time.monotonic() - asked < 10


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_the_program_goes_on_after_an_interrupt():
    out = run(
        LONG
        + """
def later():
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=later).start()
try:
    mx.eval(a)
except KeyboardInterrupt:
    print("interrupted", flush=True)
with mx.stream(mx.new_stream(mx.cpu)):
    print((mx.array([1, 2]) + 1).tolist(), flush=True)
os._exit(0)
""".lstrip()
    )
    assert out == "interrupted\n[2, 3]\n"


def test_other_threads_run_while_one_waits():
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(None)
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    # Long enough that the other thread gets a turn on a busy machine too.
    count, elapsed = 30, 0.0
    while elapsed < 0.5:
        count *= 2
        a = mx.ones((128, 128))
        for _ in range(count):
            a = a @ a * 1e-3
        ticks.clear()
        started = time.monotonic()
        mx.eval(a)
        during, elapsed = len(ticks), time.monotonic() - started
    stop.set()
    thread.join()
    assert during > 3


@pytest.mark.parametrize(
    "end", ["", "sys.exit(0)", "os._exit(0)", "del a", "threading.Thread(target=lambda: mx.eval(a)).start()"]
)
def test_the_interpreter_ends_with_work_in_flight(end):
    short = LONG.replace("500", "100").replace("2000", "20").replace("300", "20")
    run(short + f"mx.async_eval(a)\n{end}\n")


def test_the_interpreter_ends_with_daemon_threads_at_work():
    run(
        """
        def work():
            while True:
                mx.eval(mx.ones((64, 64)) @ mx.ones((64, 64)))
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.3)
        """
    )


def test_memory_of_other_libraries_is_given_back_by_a_thread_with_the_lock():
    run(
        """
        import numpy as np, weakref
        class Given(np.ndarray): pass
        given = np.zeros(100000, np.float32).view(Given)
        alive = weakref.ref(given)
        shared = mx.from_dlpack(given, copy=False)
        result = mx.exp(shared) + 1
        mx.async_eval(result)
        del given, shared
        mx.eval(result)
        del result
        for _ in range(100):
            if alive() is None: break
            mx.eval(mx.array(1) + 1)
            time.sleep(0.01)
        assert alive() is None
        """
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_is_told_instead_of_hanging():
    out = run(
        """
        a = mx.ones((4,))
        mx.eval(a)
        child = os.fork()
        if child == 0:
            try:
                mx.eval(a + 1)
            except RuntimeError as error:
                print("refused:", "fork" in str(error), flush=True)
            try:
                mx.array([1, 2])
            except RuntimeError as error:
                print("refused:", "fork" in str(error), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print((a + 1).tolist())
        """
    )
    assert out == "refused: True\nrefused: True\n[2.0, 2.0, 2.0, 2.0]\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_that_forks_before_its_first_array_may_use_them():
    run(
        """
        child = os.fork()
        if child == 0:
            assert (mx.array([1]) + 1).tolist() == [2]
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """
    )


def test_workers_that_are_spawned_may_use_arrays():
    run(
        """
        import multiprocessing
        context = multiprocessing.get_context("spawn")
        a = mx.array([1, 2])
        mx.eval(a)
        code = "import hesper.core as mx; assert mx.array([1, 2]).tolist() == [1, 2]"
        worker = context.Process(target=exec, args=(code,))
        worker.start()
        worker.join()
        assert worker.exitcode == 0
        """
    )


def test_arrays_are_used_from_many_threads():
    shared = mx.arange(1000).astype(mx.float32)
    failures = []

    def work(number):
        try:
            for _ in range(20):
                value = (shared * number).sum().item()
                if abs(value - 499500.0 * number) > 1e-3 * abs(value) + 1e-3:
                    failures.append((number, value))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []

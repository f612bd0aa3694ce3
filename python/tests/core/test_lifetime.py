"""Memory: views outlive arrays, nothing leaks, processes end."""

import gc
import os
import sys

import numpy as np
import pytest
from programs import run_program

import hesper.core as mx
import hesper.nn as nn
from hesper.utils import tree_flatten, tree_map, tree_unflatten


def test_a_view_outlives_the_array_and_keeps_its_numbers():
    values = mx.arange(100000) * 2
    view = np.asarray(memoryview(values))
    before = view.copy()
    values += 1
    del values
    gc.collect()
    others = [mx.arange(100000) + 7 for _ in range(8)]
    mx.eval(others)
    np.testing.assert_array_equal(view, before)


def test_memory_is_counted_and_given_back():
    mx.synchronize()
    before = mx.get_active_memory()
    held = mx.zeros((1 << 20,)) + 1
    mx.eval(held)
    assert mx.get_active_memory() >= before + (4 << 20)
    assert mx.get_peak_memory() >= mx.get_active_memory()
    del held
    mx.synchronize()
    assert mx.get_active_memory() <= before + (1 << 20)
    mx.clear_cache()
    assert mx.get_cache_memory() == 0
    mx.reset_peak_memory()
    assert mx.get_peak_memory() == 0
    former = mx.set_cache_limit(1 << 30)
    assert mx.set_cache_limit(former) == 1 << 30
    former = mx.set_memory_limit(1 << 34)
    assert mx.get_memory_limit() == 1 << 34 and mx.set_memory_limit(former) == 1 << 34


def test_the_memory_limit_is_a_guideline_and_the_hard_limit_is_not():
    guideline = mx.set_memory_limit(mx.get_active_memory() + (1 << 16))
    hard = mx.set_hard_memory_limit(mx.get_active_memory() + (64 << 20))
    try:
        held = [mx.ones((1 << 18,)) + at for at in range(4)]
        mx.eval(held)
        assert sum(part.sum() for part in held).item() == 10 * (1 << 18)
        with pytest.raises(RuntimeError, match="memory"):
            mx.eval(mx.ones((1 << 26,)) + 1)
        assert (held[0] + 1).sum().item() == 1 << 19
    finally:
        mx.set_memory_limit(guideline)
        mx.set_hard_memory_limit(hard)


def test_walks_over_trees_leave_no_cycles_that_keep_arrays():
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 2)))
    walks = [
        lambda: tree_flatten({"a": [mx.zeros((2,)), {"b": (mx.ones((2,)),)}]}),
        lambda: tree_map(lambda leaf: leaf + 1, [mx.zeros((2,)), {"b": mx.ones((2,))}]),
        lambda: tree_unflatten([("a.0", 1), ("a.1.b", 2)]),
        lambda: model.parameters(),
        lambda: model.filter_and_map(nn.Module.valid_parameter_filter, lambda leaf: leaf * 2),
        lambda: model.update(model.parameters()),
        lambda: model.apply(lambda leaf: leaf + 1),
    ]
    for number, walk in enumerate(walks):
        gc.collect()
        gc.disable()
        try:
            walk()
            assert (number, gc.collect()) == (number, 0)
        finally:
            gc.enable()


def test_a_cache_limit_of_zero_empties_the_cache():
    mx.eval(mx.ones((1 << 18,)) + 1)
    mx.synchronize()
    former = mx.set_cache_limit(0)
    try:
        assert mx.get_cache_memory() == 0
        mx.eval(mx.ones((1 << 18,)) + 1)
        mx.synchronize()
        assert mx.get_cache_memory() == 0
    finally:
        mx.set_cache_limit(former)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no /proc to read the memory from")
def test_a_hundred_thousand_calls_leak_nothing():
    a = mx.array([1.0, 2.0])
    kernel = mx.fast.metal_kernel(name="k", input_names=["a"], output_names=["b"], source="b[0] = a[0];")

    def work(rounds):
        for at in range(rounds):
            b = (a + 1) * 2 - a
            b += 1
            if at % 10 == 0:
                np.array(b)
                b.tolist()
                mx.array([1, 2, 3]).shape
                repr(b)
            if at % 500 == 0:
                kernel(
                    inputs=[a],
                    grid=(1, 1, 1),
                    threadgroup=(1, 1, 1),
                    output_shapes=[(1,)],
                    output_dtypes=[mx.float32],
                )[0].item()
            try:
                a[9]
            except IndexError:
                pass

    work(2000)
    gc.collect()
    before = resident()
    work(20000)
    gc.collect()
    assert resident() - before < 8 << 20


def test_a_process_ends_with_work_in_flight():
    done = run_program(
        """
        import hesper.core as mx
        x = mx.ones((128, 128))
        for _ in range(20):
            x = (x @ x) / 128
        mx.async_eval(x)
        view = memoryview(mx.arange(10) + 1)
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_gets_an_error_and_does_not_hang():
    done = run_program(
        """
        import os, sys
        import hesper.core as mx
        assert (mx.array([1.0]) + 1).item() == 2
        child = os.fork()
        if child == 0:
            try:
                mx.eval(mx.zeros(3) + 1)
            except RuntimeError as error:
                os._exit(0 if "forked" in str(error) else 2)
            os._exit(1)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert done.returncode == 0, done.stderr


def test_an_interrupt_ends_a_loop_of_evaluations():
    done = run_program(
        """
        import signal, threading, time
        import hesper.core as mx
        # Whoever runs the tests in the background may have told all its children to ignore interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT)).start()
        x = mx.ones((64, 64))
        try:
            end = time.time() + 60
            while time.time() < end:
                mx.eval(x @ x)
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert done.stdout == "interrupted\n", done.stderr

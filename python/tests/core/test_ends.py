"""Ends: of processes, threads, forks, interrupts, deep graphs and functions that fail."""

import os
import subprocess
import sys
import textwrap
import threading
import traceback

import pytest
from programs import run_program

import hesper.core as mx
import hesper.nn as nn

START = "import atexit, gc, os, signal, sys, threading, time\nimport hesper.core as mx\n"


def alone(text, timeout=60):
    """Runs a program, which ends well, in time and in silence; gives what it printed."""
    program = START + textwrap.dedent(text)
    # Python 3.12 warns of every fork of a process with threads.
    done = run_program(program, "-W", "ignore:This process:DeprecationWarning", timeout=timeout)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


PROGRAMS = {
    "a thread's own stream": """
        with mx.stream(mx.new_thread_local_stream(mx.cpu)):
            y = mx.ones((64, 64)) @ mx.ones((64, 64))
            mx.async_eval(y)
        """,
    "another thread's own stream": """
        own = mx.new_thread_local_stream(mx.cpu)
        def work():
            with mx.stream(own):
                mx.async_eval(mx.ones((64, 64)) @ mx.ones((64, 64)))
        threads = [threading.Thread(target=work) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        """,
    "a default stream": """
        mx.set_default_stream(mx.new_stream(mx.cpu))
        y = mx.ones((64, 64)) @ mx.ones((64, 64))
        mx.async_eval(y)
        """,
    "a scope that is never left": """
        mx.stream(mx.new_stream(mx.cpu)).__enter__()
        y = mx.ones((64, 64)) @ mx.ones((64, 64))
        mx.async_eval(y)
        """,
    "an exit in a scope": """
        with mx.stream(mx.new_stream(mx.cpu)):
            y = mx.ones((64, 64)) @ mx.ones((64, 64))
            mx.async_eval(y)
            sys.exit(0)
        """,
    "an exit at once": """
        y = mx.ones((512, 512)) @ mx.ones((512, 512))
        mx.async_eval(y)
        os._exit(0)
        """,
    "an exit in a thread": """
        def work():
            mx.async_eval(mx.ones((64, 64)) @ mx.ones((64, 64)))
            sys.exit(3)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        """,
    "threads that are still at work": """
        own = mx.new_thread_local_stream(mx.cpu)
        def work(number):
            with mx.stream(own if number % 2 else mx.cpu):
                while True:
                    mx.async_eval(mx.ones((64, 64)) @ mx.ones((64, 64)))
                    mx.eval(mx.ones((8,)) + 1)
        for number in range(4):
            threading.Thread(target=work, args=(number,), daemon=True).start()
        time.sleep(0.3)
        """,
    # On the host: the process lets go of a GPU before its last objects are dropped.
    "arrays that are used by what runs last": """
        mx.set_default_device(mx.cpu)
        x = mx.ones((8, 8))
        def late():
            y = x @ x
            mx.eval(y)
            assert y[0, 0].item() == 8
        atexit.register(late)
        class Late:
            def __del__(self):
                late()
        kept = Late()
        cycle = Late()
        cycle.itself = cycle
        mx.late = Late()
        """,
    "arrays in cycles and globals": """
        y = mx.ones((64, 64)) @ mx.ones((64, 64))
        mx.async_eval(y)
        cycle = [y]
        cycle.append(cycle)
        del cycle
        sys.modules["__main__"].other = [y, {"y": y}]
        """,
    "memory of another library under work in flight": """
        import numpy
        given = [numpy.ones((64, 64), dtype="float32") for _ in range(50)]
        y = mx.ones((64, 64))
        for one in given:
            y = (y @ mx.from_dlpack(one, copy=False)) / 64
        mx.async_eval(y)
        del given, one, y
        """,
    "functions in flight": """
        f = mx.compile(mx.custom_function(lambda x: mx.sin(x) @ x))
        g = mx.value_and_grad(mx.checkpoint(lambda x: f(x).sum()))
        kept = g(mx.ones((64, 64)))
        mx.async_eval(kept)
        """,
    "deep graphs": """
        x = y = mx.array([1.0])
        for _ in range(200000):
            x = x + x
            y = y * 2
        del x
        """,
    "deep graphs on a small stack": """
        def work():
            x = mx.array([1.0])
            for _ in range(100000):
                x = x + x
            del x
            y = mx.array(1.0)
            for _ in range(20000):
                y = y * 0.5 + 1
            assert y.item() == 2
            def many(x):
                for _ in range(5000):
                    x = x * 0.5 + 1
                return x
            assert mx.grad(many)(mx.array(1.0)).item() == 0
            assert mx.vmap(many)(mx.array([1.0])).item() == 2
            assert mx.compile(many)(mx.array(1.0)).item() == 2
        threading.stack_size(1 << 18)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_well_with(name):
    assert alone(PROGRAMS[name]) == ""


def nested(depth):
    tree = mx.array(1.0)
    for _ in range(depth):
        tree = [tree]
    return tree


def test_containers_are_followed_to_a_limit_on_small_stacks():
    def work():
        calls = [
            mx.eval,
            mx.async_eval,
            mx.compile(lambda tree: tree),
            mx.checkpoint(lambda tree: tree),
            lambda tree: mx.grad(lambda tree: mx.array(1.0))(tree),
            lambda tree: mx.vmap(lambda tree: tree, in_axes=0),
            lambda tree: mx.compile(lambda: mx.array(1.0), inputs=tree)(),
        ]
        for call in calls:
            call(nested(400))
            if call is not calls[5]:
                with pytest.raises(RecursionError):
                    call(nested(100_000))
        done.append(True)

    done = []
    before = threading.stack_size(1 << 18)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert done


def test_trees_keep_their_order():
    tree = ([mx.array(1), {"b": mx.array(2), "a": (mx.array(3), 4, None)}], mx.array(5), [], ())
    doubled = mx.checkpoint(lambda tree: tree)(tree)
    assert str(doubled) == str(tree)
    axes = ([0, {"b": None, "a": 0}], None, [], ())
    arrays = ([mx.ones((2,)), {"b": mx.ones((3,)), "a": (mx.ones((2,)), mx.ones((2,)))}], mx.ones((4,)), [], ())
    shapes = mx.vmap(lambda x, y, *_: (x[0] + x[1]["a"][1], x[1]["b"] + x[0], y + x[0]), in_axes=axes)(*arrays)
    assert [array.shape for array in shapes] == [(2,), (2, 3), (2, 4)]


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@needs_fork
def test_children_end_whatever_threads_of_their_parent_did():
    said = alone(
        """
        x = mx.ones((16, 16))
        def work():
            with mx.stream(mx.new_stream(mx.cpu)):
                while True:
                    mx.eval(x @ x + 1)
                    mx.array([1, 2, 3]) + 1
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
        kept = [mx.ones((8,)) + 1 for _ in range(8)]
        mx.eval(kept[:4])
        for _ in range(40):
            child = os.fork()
            if child == 0:
                refused = 0
                calls = [lambda: mx.array([1.0]), lambda: kept[0] + 1, lambda: mx.eval(kept), kept[0].tolist, mx.synchronize,
                         lambda: mx.new_stream(mx.cpu), lambda: memoryview(kept[1]), lambda: mx.grad(mx.sum)(kept[0]),
                         mx.get_active_memory, mx.clear_cache, lambda: mx.get_array_buffer_size(kept[0])]
                for call in calls:
                    try:
                        call()
                    except RuntimeError as error:
                        refused += "forked" in str(error)
                assert refused == len(calls), refused
                kept.clear()
                gc.collect()
                sys.exit(0)
            end = time.time() + 20
            while (state := os.waitpid(child, os.WNOHANG))[0] == 0 and time.time() < end:
                time.sleep(0.001)
            assert state == (child, 0), state
        print((kept[0] + 1).tolist()[0])
        """
    )
    assert said == "3.0\n"


@needs_fork
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_are_started_by(method, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import multiprocessing, sys
            import hesper.core as mx

            def work(queue):
                try:
                    queue.put(mx.sum(mx.ones((3,))).item())
                except RuntimeError as error:
                    queue.put("forked" in str(error))

            if __name__ == "__main__":
                assert (mx.ones((2, 2)) @ mx.ones((2, 2))).tolist() == [[2, 2], [2, 2]]
                context = multiprocessing.get_context(sys.argv[1])
                queue = context.Queue()
                process = context.Process(target=work, args=(queue,))
                process.start()
                print(queue.get(timeout=60))
                process.join(60)
                sys.exit(process.exitcode)
            """
        )
    )
    run = [sys.executable, str(program), method]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("True\n" if method == "fork" else "3.0\n")


@needs_fork
def test_a_process_that_is_forked_before_the_first_array_computes():
    said = alone(
        """
        child = os.fork()
        if child == 0:
            print(mx.sum(mx.ones((3,))).item())
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print((mx.ones((2,)) + 1).tolist())
        """
    )
    assert sorted(said.split("\n")) == ["", "3.0", "[2.0, 2.0]"]


WAITS = {
    "eval": "mx.eval(y)",
    "synchronize": "mx.async_eval(y); mx.synchronize()",
    "item": "y.item()",
    "tolist": "y.tolist()",
    "repr": "repr(y)",
    "memoryview": "memoryview(y)",
    "dlpack": "y.__dlpack__()",
    "save": "mx.save(os.devnull, y)",
}


@pytest.mark.parametrize("name", WAITS)
def test_an_interrupt_ends_a_wait_and_leaves_the_arrays_usable(name):
    said = alone(
        f"""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        x = mx.ones((512, 512))
        mx.eval(x)
        y = x
        for _ in range(4000):
            y = (y @ x) / 512
        y = y[0, 0]
        # Waits that are short are done in place; one that is not must not be.
        small = mx.array([1.0])
        for _ in range(10):
            mx.eval(small + 1)
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        begun = time.time()
        try:
            {WAITS[name]}
            print("done before the interrupt")
        except KeyboardInterrupt:
            print("interrupted" if time.time() - begun < 5 else "late")
        # What waits for nothing that was interrupted goes on.
        with mx.stream(mx.new_stream(mx.cpu)):
            print((small + 1).item())
        sys.stdout.flush()
        os._exit(0)
        """
    )
    assert said == "interrupted\n2.0\n"


def test_an_interrupted_array_has_its_numbers_when_it_is_done():
    said = alone(
        """
        signal.signal(signal.SIGINT, signal.default_int_handler)
        x = mx.ones((256, 256))
        mx.eval(x)
        y = x
        for _ in range(100):
            y = (y @ x) / 256
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            mx.eval(y)
            time.sleep(1)
        except KeyboardInterrupt:
            pass
        print(y[0, 0].item())
        """
    )
    assert said == "1.0\n"


class Raised(Exception):
    """What a callback raises."""


X = mx.array([1.0, 2.0])


def with_rule(rule):
    def run(boom):
        f = mx.custom_function(mx.sin)
        getattr(f, rule)(boom)
        calls = {
            "vjp": lambda: mx.grad(lambda x: f(x).sum())(X),
            "jvp": lambda: mx.jvp(f, [X], [X]),
            "vmap": lambda: mx.vmap(f)(X),
        }
        return calls[rule]()

    return run


CALLBACKS = {
    "grad": lambda boom: mx.grad(boom)(X),
    "value_and_grad": lambda boom: mx.value_and_grad(boom)({"a": [X]}),
    "vjp": lambda boom: mx.vjp(boom, [X], [X]),
    "jvp": lambda boom: mx.jvp(boom, [X], [X]),
    "vmap": lambda boom: mx.vmap(boom)(X),
    "compile": lambda boom: mx.compile(boom)(X),
    "checkpoint": lambda boom: mx.checkpoint(boom)(X),
    "custom_function": lambda boom: mx.custom_function(boom)(X),
    "custom vjp": with_rule("vjp"),
    "custom jvp": with_rule("jvp"),
    "custom vmap": with_rule("vmap"),
    "a custom rule while compiling": lambda boom: mx.compile(lambda x: with_rule("vjp")(boom))(X),
    "grad of compile": lambda boom: mx.grad(mx.compile(boom))(X),
    "grad of checkpoint": lambda boom: mx.grad(mx.checkpoint(boom))(X),
    "vmap of grad": lambda boom: mx.vmap(mx.grad(boom))(X),
    "export": lambda boom: mx.export_function(os.devnull, boom, X),
}


@pytest.mark.parametrize("kind", [Raised, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("name", CALLBACKS)
def test_an_exception_of_a_callback_comes_back_as_itself(name, kind):
    raised = kind("on purpose")

    def boom(*_, **__):
        raise raised

    before = mx.default_stream(mx.cpu)
    with pytest.raises(kind) as caught:
        with mx.stream(mx.new_stream(mx.cpu)):
            CALLBACKS[name](boom)
    assert caught.value is raised
    assert "boom" in [frame.name for frame in traceback.extract_tb(raised.__traceback__)]
    assert mx.default_stream(mx.cpu) == before
    assert mx.grad(lambda x: (x * x).sum())(X).tolist() == [2, 4]
    assert mx.compile(lambda x: x + 1)(X).tolist() == [2, 3]


def test_state_is_what_it_was_after_a_compiled_function_fails():
    state = [mx.array(1.0), {"a": mx.array(2.0)}]
    first, inner = state[0], state[1]["a"]

    def step(x):
        state[0] = state[0] + x
        state[1]["a"] = state[1]["a"] * x
        mx.random.normal((2,))
        raise Raised

    mx.random.seed(7)
    step = mx.compile(step, inputs=[state, mx.random.state], outputs=[state, mx.random.state])
    for _ in range(2):
        with pytest.raises(Raised):
            step(mx.array(3.0))
    assert state[0] is first and state[1]["a"] is inner
    assert (state[0].item(), state[1]["a"].item()) == (1, 2)
    after = mx.random.normal((2,)).tolist()
    mx.random.seed(7)
    assert mx.random.normal((2,)).tolist() == after


def test_objects_hold_their_arrays_after_a_transformed_function_fails():
    model = nn.Linear(2, 2)
    before = model.weight.tolist()

    def loss(model, x):
        model(x).sum()
        raise Raised

    with pytest.raises(Raised):
        nn.value_and_grad(model, loss)(model, mx.ones((1, 2)))
    assert model.weight.tolist() == before

    kept = []

    def keep(x):
        kept.append(x)
        raise Raised

    for transform in (mx.grad, mx.vmap):
        with pytest.raises(Raised):
            transform(keep)(mx.ones((3,)))
        assert kept.pop().tolist() == [1, 1, 1]

"""Arrays from many Python threads."""

import threading

import numpy as np

import hesper.core as mx

THREADS = 64


def run_all(work):
    failures = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001
            failures.append((number, error))

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []


def test_threads_run_their_own_custom_kernels():
    x = mx.arange(1000).astype(mx.float32)

    def work(number):
        kernel = mx.fast.metal_kernel(
            name="add_number",
            input_names=["x"],
            output_names=["out"],
            source=f"uint i = thread_position_in_grid.x; out[i] = x[i] + {number % 8};",
        )
        for _ in range(4):
            out = kernel(
                inputs=[x],
                grid=(1000, 1, 1),
                threadgroup=(128, 1, 1),
                output_shapes=[x.shape],
                output_dtypes=[x.dtype],
            )[0]
            assert np.array(out * 2)[-1] == 2 * (999 + number % 8)

    run_all(work)


def test_threads_evaluate_one_graph_and_see_one_result():
    x = mx.array(np.linspace(0, 1, 10000, dtype=np.float32))
    y = x
    for _ in range(20):
        y = mx.sin(y) + 0.5
    results = [None] * THREADS

    def work(number):
        mx.eval(y)
        results[number] = float(mx.sum(y).item())

    run_all(work)
    assert len(set(results)) == 1


def test_threads_with_streams_of_their_own_use_each_others_arrays():
    shared = [mx.array([float(number)]) for number in range(THREADS)]

    def work(number):
        stream = mx.new_stream(mx.cpu)
        with mx.stream(stream):
            total = shared[number]
            for other in range(0, THREADS, 8):
                total = total + shared[other]
        mx.async_eval(total)
        assert total.item() == number + sum(range(0, THREADS, 8))

    run_all(work)


def test_changing_an_array_object_while_others_read_it_is_safe():
    x = mx.array([0.0])

    def work(number):
        for _ in range(50):
            if number % 2:
                x.__iadd__(1)
            else:
                assert x.tolist()[0] >= 0

    run_all(work)

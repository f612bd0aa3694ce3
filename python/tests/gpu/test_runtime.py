"""Streams, threads, memory and files on the GPU."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from beside import numbers
from programs import run_program

import hesper.core as mx
import hesper.nn as nn


def run(program, **environment):
    done = run_program(program, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_gpu_is_the_default_device_unless_the_environment_says_otherwise():
    ask = "import hesper.core as mx; print(mx.default_device(), (mx.array([1, 2]) + 1).tolist())"
    assert run(ask, HESPER_DEVICE="") == "Device(gpu, 0) [2, 3]"
    assert run(ask, HESPER_DEVICE="cpu") == "Device(cpu, 0) [2, 3]"
    assert run(ask, HESPER_DEVICE="gpu:0") == "Device(gpu, 0) [2, 3]"
    assert run(ask, HESPER_DEVICE="", CUDA_VISIBLE_DEVICES="") == "Device(cpu, 0) [2, 3]"


def test_an_import_opens_no_device():
    look = """
        import hesper.core, hesper.nn, hesper.optimizers, hesper.mlx
        hesper.mlx.install()
        print(any("libcuda" in line for line in open("/proc/self/maps")))
    """
    if not os.path.exists("/proc/self/maps"):
        pytest.skip("the system does not tell what is loaded")
    assert run(look) == "False"


def test_what_programs_ask_about_the_device():
    assert mx.cuda.is_available() and mx.is_available(mx.gpu) and not mx.metal.is_available()
    assert mx.device_count(mx.gpu) >= 1
    info = mx.device_info(mx.gpu)
    assert info["architecture"].startswith("sm_") and 0 < info["free_memory"] <= info["total_memory"]
    assert info["device_name"] and info["memory_size"] > 0 and info["compute_capability_major"] >= 5
    assert mx.device_info(mx.cpu)["architecture"] != info["architecture"]
    assert not mx.is_available(mx.Device(mx.gpu, 99))
    with pytest.raises(ValueError):
        mx.set_default_device(mx.Device(mx.gpu, 99))


def test_work_goes_back_and_forth_between_streams():
    a = numbers((100, 100), seed=1)
    expected = np.array(a, dtype=np.float64)
    streams = [mx.default_stream(mx.cpu), mx.default_stream(mx.gpu), mx.new_stream(mx.gpu), mx.new_stream(mx.cpu)]
    b = a
    for step in range(40):
        b = mx.multiply(mx.add(b, 1.0, stream=streams[step % 4]), 0.5, stream=streams[(step + 1) % 4])
        expected = (expected + 1) * 0.5
    assert np.allclose(np.array(b), expected, atol=1e-5)
    for stream in streams:
        mx.synchronize(stream)


def test_a_scope_names_the_device_and_ends():
    before = mx.default_device()
    with mx.stream(mx.gpu):
        assert mx.default_device() == mx.gpu
        with mx.stream(mx.cpu):
            assert mx.default_device() == mx.cpu
        assert mx.default_stream(mx.gpu).device == mx.gpu
    assert mx.default_device() == before
    mx.set_default_device(mx.gpu)
    assert mx.default_device() == mx.gpu and (mx.ones((3,)) * 2).sum().item() == 6.0


def test_memory_is_counted_and_given_back():
    mx.set_default_device(mx.gpu)
    gc.collect()
    mx.synchronize()
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    a = mx.zeros((1 << 20,)) + 1
    mx.eval(a)
    assert mx.get_active_memory() - before >= 4 << 20
    assert mx.get_peak_memory() >= 4 << 20
    del a
    mx.synchronize()
    assert mx.get_active_memory() - before < 4 << 20
    assert mx.get_cache_memory() > 0
    mx.clear_cache()
    assert mx.get_cache_memory() < 4 << 20


def test_limits_are_kept_and_too_much_memory_is_an_error():
    mx.set_default_device(mx.gpu)
    mx.clear_cache()
    old = mx.set_hard_memory_limit(mx.get_active_memory() + (64 << 20))
    try:
        with pytest.raises(RuntimeError, match="memory"):
            mx.eval(mx.ones((1 << 28,)) + 1)
        assert (mx.ones((1000,)) + 1).sum().item() == 2000
    finally:
        assert mx.set_hard_memory_limit(old) < old
    guideline = mx.set_memory_limit(1 << 20)
    assert (mx.ones((1 << 22,)) + 1).sum().item() == 1 << 23
    assert mx.set_memory_limit(guideline) == 1 << 20
    cache = mx.set_cache_limit(0)
    for _ in range(3):
        mx.eval(mx.ones((1 << 20,)) + 1)
    mx.synchronize()
    assert mx.get_cache_memory() < 4 << 20
    assert mx.set_cache_limit(cache) == 0


def test_the_same_work_does_not_grow():
    mx.set_default_device(mx.gpu)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    step = nn.value_and_grad(model, lambda x: (model(x) ** 2).mean())
    x = numbers((32, 64), seed=2)

    def once():
        mx.eval(step(x))

    for _ in range(5):
        once()
    mx.synchronize()
    held = mx.get_active_memory()
    for _ in range(100):
        once()
    mx.synchronize()
    assert mx.get_active_memory() <= held + (1 << 20)


def together(count, work):
    failures = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - told by the test
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "threads hang"
    assert not failures, failures[:3]


def test_64_threads_share_weights_and_drop_what_they_hold():
    weights = [numbers((64, 64), seed=seed) * 0.05 for seed in range(4)]
    with mx.stream(mx.cpu):
        expected = []
        for number in range(64):
            x = mx.full((8, 64), number * 0.01)
            for w in weights:
                x = mx.tanh(x @ w)
            expected.append(x.sum().item())

    def work(number):
        for _ in range(10):
            with mx.stream(mx.gpu):
                x = mx.full((8, 64), number * 0.01)
                for w in weights:
                    y = mx.tanh(x @ w)
                    x = y
                    del y
                total = x.sum()
                del x
            assert abs(total.item() - expected[number]) < 1e-3

    together(64, work)


def test_threads_on_streams_of_their_own():
    shared = numbers((1000,), seed=3)
    expected = float(np.array(shared).sum())

    def work(number):
        stream = mx.new_stream(mx.gpu if number % 2 else mx.cpu)
        with mx.stream(stream):
            for step in range(20):
                lazy = (shared * (step + 1)).sum()
                mx.async_eval(lazy)
                assert abs(lazy.item() - expected * (step + 1)) < 1e-2

    together(16, work)


def test_one_graph_is_evaluated_by_many_threads():
    with mx.stream(mx.gpu):
        x = numbers((300, 300), seed=4)
        for _ in range(10):
            x = mx.sin(x) @ x * 0.01
        total = x.sum()
    seen = []
    together(32, lambda _: seen.append(total.item()))
    assert len(set(seen)) == 1


@pytest.mark.parametrize("name", ["a.safetensors", "a.npz", "a.gguf"])
def test_files_of_arrays(tmp_path, name):
    path = str(tmp_path / name)
    with mx.stream(mx.gpu):
        held = {"w": numbers((5, 7), seed=5) * 2, "b": mx.arange(9) + 1}
        save = {"safetensors": mx.save_safetensors, "npz": lambda p, a: mx.savez(p, **a), "gguf": mx.save_gguf}
        save[name.rpartition(".")[2]](path, held)
        back = mx.load(path)
        assert all(mx.array_equal(back[key] + 0, held[key]).item() for key in held)


def test_an_array_on_the_gpu_is_saved_alone(tmp_path):
    with mx.stream(mx.gpu):
        a = numbers((3, 4), "float16", 6) * 2
        mx.save(str(tmp_path / "a.npy"), a)
        assert mx.array_equal(mx.load(str(tmp_path / "a.npy")), a).item()


def test_numpy_gets_numbers_that_later_work_does_not_change():
    with mx.stream(mx.gpu):
        a = numbers((1000,), seed=7) + 0
        seen = np.array(a, copy=False)
        kept = seen.copy()
        for _ in range(20):
            a = a * 1.5
        mx.eval(a)
        assert np.array_equal(seen, kept)


def test_a_failed_op_leaves_the_device_working():
    with mx.stream(mx.gpu):
        with pytest.raises(ValueError):
            mx.ones((3,)) @ mx.ones((4,))
        assert (mx.ones((4,)) * 3).sum().item() == 12.0


def test_programs_for_mlx_run_on_the_gpu(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import mlx.core as mx, mlx.nn as nn\n"
        "print(mx.default_device(), mx.cuda.is_available(), mx.metal.is_available())\n"
        "print(nn.Linear(4, 2)(mx.ones((3, 4))).shape)\n"
    )
    options = dict(capture_output=True, text=True, timeout=120)
    command = [sys.executable, "-m", "hesper.mlx"]
    environment = {key: value for key, value in os.environ.items() if key != "HESPER_DEVICE"}
    done = subprocess.run([*command, str(script)], env=environment, **options)
    assert done.stdout == "Device(gpu, 0) True False\n(3, 2)\n", done.stderr
    done = subprocess.run([*command, "--metal-kernels", str(script)], env=environment, **options)
    assert done.stdout == "Device(gpu, 0) False True\n(3, 2)\n", done.stderr

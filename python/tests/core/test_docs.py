"""Every public function and method says what it does, and its example runs."""

import doctest
import inspect

import numpy
import pytest

import hesper.core as mx

MODULES = [mx, mx.fast, mx.fft, mx.linalg, mx.random, mx.distributed, mx.metal, mx.cuda]


def functions():
    for module in MODULES:
        name = module.__name__.removeprefix("hesper.core").removeprefix(".")
        for item in sorted(dir(module)):
            member = getattr(module, item)
            if item.startswith("_") or inspect.ismodule(member) or inspect.isclass(member) or not callable(member):
                continue
            if isinstance(member, (mx.Dtype, mx.DtypeCategory, mx.DeviceType)):
                continue
            yield f"{name}.{item}".removeprefix("."), member


FUNCTIONS = dict(functions())
# They need a file, another process or another device, and have no example that runs here.
WITHOUT_EXAMPLE = {
    *"load save save_gguf save_safetensors savez savez_compressed qqmm".split(),
    "distributed.recv",
    "distributed.recv_like",
    "distributed.send",
    "fast.cuda_kernel",
    "fast.precompiled_cuda_kernel",
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_a_docstring_with_an_example_that_runs(name):
    text = inspect.getdoc(FUNCTIONS[name]) or ""
    assert text, name
    if name in WITHOUT_EXAMPLE:
        return
    assert "Examples\n--------" in text
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    example = doctest.DocTestParser().get_doctest(text, {"mx": mx, "numpy": numpy}, name, None, 0)
    runner = doctest.DocTestRunner(optionflags=options)
    output = []
    runner.run(example, out=output.append)
    mx.set_printoptions()
    assert runner.failures == 0, "".join(output)


def test_methods_and_classes_have_docstrings():
    missing = [
        f"{kind.__name__}.{item}"
        for kind in (mx.array, mx.Dtype, mx.Device, mx.Stream, mx.finfo, mx.iinfo, mx.PrintOptions)
        for item in dir(kind)
        if not item.startswith("_") and not inspect.getdoc(getattr(kind, item))
    ]
    assert missing == []

"""Activation functions and layers compared with those of MLX."""

import numpy as np
import pytest
from differential import HESPER, MLX, attempt, compare, needs_mlx

FUNCTIONS = (
    "celu elu gelu gelu_approx gelu_fast_approx glu hard_shrink hard_tanh hardswish leaky_relu "
    "log_sigmoid log_softmax mish relu relu2 relu6 selu sigmoid silu softmax softmin softplus "
    "softshrink softsign step tanh"
).split()

EXTREMES = [[-np.inf, -1e4, -20.0, -1.0], [-0.0, 0.0, 0.5, -0.5], [1.0, 3.0, 20.0, 1e4], [np.inf, np.nan, 1.0, 2.0]]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "bool_", "complex64"])
def test_function_by_type(name, dtype):
    def scenario(lib):
        x = lib.normal(3, 8).astype(getattr(lib.mx, dtype))
        return attempt(getattr(lib.nn, name), x)

    compare(scenario)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_extreme_numbers(name):
    compare(lambda lib: getattr(lib.nn, name)(lib.array(np.array(EXTREMES, np.float32))))


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "step"])
def test_gradient_of_function(name):
    def scenario(lib):
        f = getattr(lib.nn, name)
        return lib.mx.grad(lambda x: lib.mx.square(f(x) + x[..., : f(x).shape[-1]]).sum())(lib.normal(3, 8))

    compare(scenario, tol=1e-5)


ARGUMENTS = [
    ("celu", (0.5,)), ("elu", (0.5,)), ("leaky_relu", (0.2,)), ("hard_tanh", (-0.3, 0.4)),
    ("hard_shrink", (0.2,)), ("softshrink", (0.2,)), ("step", (0.3,)), ("softmax", (0,)),
    ("softmin", (0,)), ("log_softmax", (0,)), ("glu", (1,)), ("glu", (0,)),
]  # fmt: skip


@pytest.mark.parametrize("name, arguments", ARGUMENTS)
def test_function_with_arguments(name, arguments):
    compare(lambda lib: attempt(getattr(lib.nn, name), lib.normal(3, 8), *arguments))


@pytest.mark.parametrize("slopes", [(1,), (8,), (3, 1)])
def test_prelu(slopes):
    compare(lambda lib: lib.nn.prelu(lib.normal(3, 8), lib.normal(*slopes, seed=2)))


def test_functions_of_python_numbers():
    compare(lambda lib: [attempt(f, v) for f in (lib.nn.relu, lib.nn.tanh) for v in (3.0, -1, [1, 2])])


LAYERS = {
    "CELU": [(), (0.5,)], "ELU": [(), (0.5,)], "GLU": [(), (1,), (0,)], "HardShrink": [(), (0.2,)],
    "HardTanh": [(), (1, 2)], "Hardswish": [()], "LeakyReLU": [(), (0.2,)], "LogSigmoid": [()],
    "LogSoftmax": [(), (1,)], "Mish": [()], "PReLU": [(), (8, 0.1)], "ReLU": [(), (1,)], "ReLU2": [()],
    "ReLU6": [()], "SELU": [()], "SiLU": [()], "Sigmoid": [()], "Softmax": [()], "Softmin": [()],
    "Softplus": [()], "Softshrink": [(), (0.2,)], "Softsign": [()], "Step": [(), (0.3,)], "Tanh": [()],
    "GELU": [(), ("none",), ("precise",), ("tanh",), ("fast",), ("best",), (None,)],
}  # fmt: skip


@pytest.mark.parametrize("name, arguments", [(n, a) for n, cases in LAYERS.items() for a in cases])
def test_layer(name, arguments):
    def scenario(lib):
        layer = attempt(getattr(lib.nn, name), *arguments)
        if isinstance(layer, str):
            return layer
        return layer, repr(layer), attempt(layer, lib.normal(3, 8))

    compare(scenario)


@needs_mlx
def test_compiled_functions_have_the_same_values():
    """Everywhere else compilation is switched off in the reference."""
    MLX.mx.enable_compile()
    try:
        for shape in ((3, 8), (5,)):
            compare(lambda lib: [lib.nn.selu(lib.normal(*shape)), lib.nn.mish(lib.normal(*shape))], tol=1e-5)
    finally:
        MLX.mx.disable_compile()

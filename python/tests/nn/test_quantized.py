"""Quantized layers compared with those of MLX."""

import pytest
from differential import HESPER, attempt, compare, dtype_name, set_numbers

MODES = ["affine", "mxfp4", "nvfp4", "mxfp8"]


def model(lib, bias=True):
    nn = lib.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(64, 64)
            self.l = [nn.Linear(64, 64, bias=bias)]
            self.s = nn.Sequential(nn.Linear(64, 32, bias=False), nn.ReLU())
            self.n = nn.LayerNorm(64)

    return set_numbers(lib, Model())


# The reference adds up products in half precision: it is that far from the exact sums, and we are much nearer.
TOLERANCE = {"float32": 1e-5, "float16": 3e-2, "bfloat16": 2e-1}


def frozen(m):
    return {name: sorted(layer._no_grad) for name, layer in m.named_modules()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("bias", [True, False])
def test_quantized_linear(mode, dtype, bias):
    def scenario(lib):
        linear = set_numbers(lib, lib.nn.Linear(64, 32, bias=bias))
        linear.set_dtype(getattr(lib.mx, dtype))
        layer = linear.to_quantized(mode=mode)
        x = lib.normal(3, 64, dtype=dtype)
        return [
            layer, repr(layer), layer.group_size, layer.bits, layer.mode, sorted(layer._no_grad), layer(x),
            lib.mx.grad(lambda x: lib.mx.square(layer(x)).sum())(x), layer.trainable_parameters(),
            frozen(layer.unfreeze()), frozen(layer.freeze()), sorted(vars(layer)),
        ]  # fmt: skip

    compare(scenario, tol=TOLERANCE[dtype])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_quantized_embedding(mode, dtype):
    def scenario(lib):
        table = set_numbers(lib, lib.nn.Embedding(10, 64))
        table.set_dtype(getattr(lib.mx, dtype))
        layer = table.to_quantized(mode=mode)
        return [
            layer, repr(layer), sorted(layer._no_grad), layer(lib.array([[1, 2], [3, 9]])),
            layer.as_linear(lib.normal(3, 64, dtype=dtype)), frozen(layer.unfreeze()),
        ]  # fmt: skip

    compare(scenario, tol=TOLERANCE[dtype])


SETTINGS = [
    {}, {"bits": 8}, {"group_size": 32, "bits": 2, "bias": False}, {"mode": "mxfp4"}, {"mode": "nvfp4"},
    {"mode": "mxfp8", "bias": False}, {"mode": "int3"}, {"mode": "mxfp4", "bits": 3}, {"group_size": 48},
    {"group_size": 32, "bits": 3}, {"bits": 6}, {"bits": 5, "group_size": 128},
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_settings_of_quantized_linear(settings):
    def scenario(lib):
        layer = attempt(lib.nn.QuantizedLinear, 64, 32, **settings)
        if isinstance(layer, str):
            return layer
        shapes = {name: tuple(x.shape) for name, x in layer.parameters().items()}
        return repr(layer), shapes, sorted(layer._no_grad), sorted(vars(layer))

    compare(scenario)


def test_constructors_from_layers():
    def scenario(lib):
        nn = lib.nn
        linear, table = set_numbers(lib, nn.Linear(64, 32)), set_numbers(lib, nn.Embedding(10, 64))
        return [
            nn.QuantizedLinear.from_linear(linear, 32, 8),
            nn.QuantizedEmbedding.from_embedding(table, 32, 4),
            attempt(table.to_quantized, quantize_input=True),
            attempt(linear.to_quantized, mode="nvfp4", quantize_input=True),
            attempt(linear.to_quantized, quantize_input=True),
            attempt(nn.QQLinear.from_linear, linear),
            attempt(linear.to_quantized, mode="nope"),
        ]

    compare(scenario)


@pytest.mark.parametrize("mode", ["nvfp4", "mxfp8"])
def test_layer_with_quantized_input(mode):
    def scenario(lib):
        linear = set_numbers(lib, lib.nn.Linear(64, 32, bias=False))
        layer = linear.to_quantized(mode=mode, quantize_input=True)
        x = lib.normal(3, 64)
        # The product itself is not implemented for the CPU in MLX.
        shape = lambda layer: (tuple(layer(x).shape), dtype_name(layer(x)))  # noqa: E731
        log = [layer, shape(layer), list(layer), layer._quantized, layer.training]
        for change in (layer.eval, layer.train, layer.quantize, layer.quantize, layer.dequantize, layer.dequantize):
            log += [attempt(change) is layer, repr(layer), dict(layer), layer._quantized, sorted(layer._no_grad)]
        evaluating = lib.nn.QQLinear.from_linear(linear.eval(), mode=mode)
        return log, evaluating, evaluating.training, shape(evaluating)

    compare(scenario, tol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"mode": "affine"}, {"mode": "mxfp8"}, {"group_size": 32}, {"bits": 8}])
def test_settings_of_layer_with_quantized_input(settings):
    compare(lambda lib: repr(lib.nn.QQLinear(64, 32, **settings)))


QUANTIZE = {
    "default": {},
    "settings": {"group_size": 32, "bits": 8},
    "mode": {"mode": "mxfp4"},
    "linear layers": {"class_predicate": lambda lib: lambda p, m: isinstance(m, lib.nn.Linear)},
    "settings by layer": {
        "bits": 8,
        "class_predicate": lambda lib: lambda p, m: {"group_size": 32} if "layers" in p else False,
    },
    "empty settings": {"class_predicate": lambda lib: lambda p, m: {"bits": 2} if hasattr(m, "to_quantized") else {}},
    "a number": {"class_predicate": lambda lib: lambda p, m: 1},
    "everything": {"class_predicate": lambda lib: lambda p, m: True},
    "text for what cannot": {"class_predicate": lambda lib: lambda p, m: "yes" if p == "n" else False},
    "inputs of embeddings": {"mode": "nvfp4", "quantize_input": True},
    "inputs in affine mode": {
        "quantize_input": True, "class_predicate": lambda lib: lambda p, m: isinstance(m, lib.nn.Linear)
    },
    "inputs of linear layers": {
        "mode": "nvfp4", "quantize_input": True,
        "class_predicate": lambda lib: lambda p, m: isinstance(m, lib.nn.Linear),
    },
    "inputs, but settings by layer": {
        "mode": "nvfp4", "quantize_input": True,
        "class_predicate": lambda lib: lambda p, m: {"mode": "nvfp4"} if isinstance(m, lib.nn.Linear) else False,
    },
}  # fmt: skip


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", QUANTIZE)
def test_quantizing_a_model(name, bias):
    def scenario(lib):
        options = dict(QUANTIZE[name])
        paths = []
        if "class_predicate" in options:
            predicate = options["class_predicate"](lib)
            options["class_predicate"] = lambda p, m: (paths.append(p), predicate(p, m))[1]
        m = model(lib, bias)
        result = attempt(lib.nn.quantize, m, **options)
        return result, paths, (m if result is None else None), frozen(m)

    compare(scenario)


def test_a_layer_that_cannot_be_quantized_evenly_is_an_error():
    compare(lambda lib: attempt(lib.nn.quantize, lib.nn.Sequential(lib.nn.Linear(60, 8))))


def test_a_layer_itself_is_not_replaced():
    layer = HESPER.nn.Linear(64, 64)
    HESPER.nn.quantize(layer)
    assert type(layer) is HESPER.nn.Linear and layer.weight.shape == (64, 64)


def test_quantized_weights_survive_a_file(tmp_path):
    path = str(tmp_path / "w.safetensors")
    a, b = model(HESPER), model(HESPER)
    for m in (a, b):
        HESPER.nn.quantize(m, bits=8)
    set_numbers(HESPER, b, seed=9)
    a.save_weights(path)
    b.load_weights(path)
    x = HESPER.array([[1, 2, 3]])
    run = lambda m: m.s(m.n(m.l[0](m.e(x)))).tolist()  # noqa: E731
    assert run(a) == run(b)

"""Layers, optimizers and transformed functions on the GPU against the host."""

import pytest
from beside import assert_same, numbers, on, to_numpy

import hesper.core as mx
import hesper.nn as nn
import hesper.optimizers as optim
from hesper.utils import tree_map

LAYERS = {
    "Linear": (lambda: nn.Linear(8, 5), (3, 8)),
    "Bilinear": (lambda: nn.Bilinear(8, 8, 4), (3, 8)),
    "Conv1d": (lambda: nn.Conv1d(8, 6, 3, padding=1), (2, 9, 8)),
    "Conv2d": (lambda: nn.Conv2d(8, 6, 3, stride=2), (2, 9, 9, 8)),
    "Conv3d": (lambda: nn.Conv3d(4, 2, 2), (1, 4, 4, 4, 4)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(8, 4, 3), (2, 5, 5, 8)),
    "LayerNorm": (lambda: nn.LayerNorm(8), (3, 8)),
    "RMSNorm": (lambda: nn.RMSNorm(8), (3, 8)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 8), (3, 4, 8)),
    "BatchNorm": (lambda: nn.BatchNorm(8), (6, 8)),
    "InstanceNorm": (lambda: nn.InstanceNorm(8, affine=True), (2, 5, 8)),
    "MultiHeadAttention": (lambda: nn.MultiHeadAttention(16, 4), (2, 7, 16)),
    "TransformerEncoder": (lambda: nn.TransformerEncoder(2, 16, 4), (2, 7, 16)),
    "LSTM": (lambda: nn.LSTM(8, 6), (2, 5, 8)),
    "GRU": (lambda: nn.GRU(8, 6), (2, 5, 8)),
    "RNN": (lambda: nn.RNN(8, 6), (2, 5, 8)),
    "RoPE": (lambda: nn.RoPE(8), (2, 5, 8)),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), (2, 6, 6, 8)),
    "AvgPool1d": (lambda: nn.AvgPool1d(3), (2, 9, 8)),
    "Upsample": (lambda: nn.Upsample(2.0, mode="linear"), (2, 4, 4, 8)),
    "QuantizedLinear": (lambda: nn.QuantizedLinear.from_linear(nn.Linear(64, 32), 32, 4), (3, 64)),
    "GELU": (lambda: nn.GELU(), (3, 8)),
    "PReLU": (lambda: nn.PReLU(), (3, 8)),
    "SinusoidalPositionalEncoding": (lambda: nn.SinusoidalPositionalEncoding(8), (5,)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_and_their_gradients(name):
    make, shape = LAYERS[name]
    with mx.stream(mx.cpu):
        mx.random.seed(0)
        layer = make()
        mx.eval(layer.parameters())
    x = numbers(shape, seed=1)

    def call(x):
        if name == "MultiHeadAttention":
            return layer(x, x, x)
        if name == "TransformerEncoder":
            return layer(x, None)
        if name == "Bilinear":
            return layer(x, x * 0.5)
        result = layer(x)
        return list(result) if isinstance(result, tuple) else result

    def total(x):
        result = call(x)
        # Weights of their own for all numbers: the sum of squares of what a norm gives hardly changes.
        parts = result if isinstance(result, list) else [result]
        return sum((part * mx.sin(mx.arange(part.size).reshape(part.shape))).sum() for part in parts)

    def function():
        gradients = []
        if layer.trainable_parameters():
            gradients = nn.value_and_grad(layer, total)(x)[1]
        return [call(x), mx.grad(total)(x), gradients]

    assert_same(function, 2e-3)


OPTIMIZERS = {
    "SGD": lambda: optim.SGD(0.05, momentum=0.9, nesterov=True),
    "Adam": lambda: optim.Adam(0.01),
    "AdamW": lambda: optim.AdamW(0.01),
    "Adagrad": lambda: optim.Adagrad(0.05),
    "RMSprop": lambda: optim.RMSprop(0.01),
    "AdaDelta": lambda: optim.AdaDelta(1.0),
    "Adamax": lambda: optim.Adamax(0.01),
    "Lion": lambda: optim.Lion(0.002),
    "Adafactor": lambda: optim.Adafactor(0.01, relative_step=False),
    "Muon": lambda: optim.Muon(0.01),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_takes_the_same_way(name, compiled):
    x, y = numbers((32, 6), seed=1), numbers((32, 1), seed=2)

    def function():
        with mx.stream(mx.cpu):
            mx.random.seed(4)
            model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
            mx.eval(model.parameters())
        optimizer = OPTIMIZERS[name]()
        gradient = nn.value_and_grad(model, lambda x, y: nn.losses.mse_loss(model(x), y))
        state = [model.state, optimizer.state]

        def step(x, y):
            loss, gradients = gradient(x, y)
            optimizer.update(model, gradients)
            return loss

        if compiled:
            optimizer.init(model.trainable_parameters())
            step = mx.compile(step, inputs=state, outputs=state)
        losses = []
        for _ in range(6):
            losses.append(step(x, y))
            mx.eval(losses[-1], state)
        assert losses[-1].item() < losses[0].item()
        return [*losses, model.parameters()]

    assert_same(function, 2e-3)


LOSSES = ["cross_entropy", "binary_cross_entropy", "l1_loss", "mse_loss", "huber_loss", "log_cosh_loss", "kl_div_loss"]


@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients(name):
    a, b = numbers((12, 7), seed=1), numbers((12, 7), seed=2)
    target = {"cross_entropy": mx.array([3, 1, 0, 6] * 3), "binary_cross_entropy": (b > 0).astype(mx.float32)}.get(
        name, b
    )
    loss = getattr(nn.losses, name)
    assert_same(lambda: mx.value_and_grad(lambda a: loss(a, target, reduction="mean"))(a), 1e-4)


PROGRAMS = {
    "attention": lambda x: mx.softmax(x @ x.T * 0.1, axis=-1) @ x,
    "norm": lambda x: (x - x.mean(1, keepdims=True)) * mx.rsqrt(x.var(1, keepdims=True) + 1e-5),
    "chain": lambda x: mx.tanh(x * 1.5 + 0.5) * mx.sigmoid(x) + x,
    "gather": lambda x: x[mx.array([3, 1, 1, 0])] * mx.take(x, mx.array([0, 2]), axis=1)[:4, :1],
    "sort": lambda x: mx.sort(x, axis=1)[:, 2:] ** 2,
    "scan": lambda x: mx.cumsum(x, axis=1) * 0.1,
    "logs": lambda x: mx.logsumexp(x, axis=0) + mx.logaddexp(x, 2 * x),
    "where": lambda x: mx.where(x > 0.3, mx.exp(x), x * x),
    "pieces": lambda x: mx.concatenate([part * (at + 1) for at, part in enumerate(mx.split(x, 2, axis=1))], axis=1),
    "update": lambda x: (x * 2).at[1:3].add(x[:2]),
    "fft": lambda x: mx.abs(mx.fft.rfft(x, axis=1)),
    "product": lambda x: mx.prod(x, axis=1) + mx.max(x, axis=1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_transformed_programs(name):
    f, x = PROGRAMS[name], numbers((6, 8), seed=3)
    batch = numbers((3, 6, 8), seed=4)

    def total(x):
        result = f(x)
        return (result * mx.sin(mx.arange(result.size).reshape(result.shape))).sum()

    def function():
        slope = mx.grad(total)
        return [
            f(x),
            slope(x),
            mx.compile(f)(x),
            mx.compile(slope)(x),
            mx.vmap(f)(batch),
            mx.vmap(slope)(batch),
            mx.jvp(f, [x], [mx.ones_like(x)])[1],
            mx.checkpoint(f)(x),
        ]

    assert_same(function, 2e-3)


def test_compiled_and_plain_numbers_agree_on_the_gpu():
    x = numbers((64, 64), "bfloat16", 5)
    with mx.stream(mx.gpu):
        for f in (PROGRAMS["chain"], PROGRAMS["norm"], PROGRAMS["where"]):
            assert mx.array_equal(f(x), mx.compile(f)(x)).item()


def test_a_function_of_its_own_derivative():
    @mx.custom_function
    def f(x):
        return mx.exp(x)

    @f.vjp
    def f_vjp(primals, cotangent, output):
        return cotangent * output * 2

    x = numbers((9,), seed=6)
    assert_same(lambda: mx.grad(lambda x: f(x).sum())(x))


def test_a_model_goes_from_one_device_to_the_other():
    with mx.stream(mx.cpu):
        mx.random.seed(1)
        model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
        mx.eval(model.parameters())
    x = numbers((5, 4), seed=7)
    before = to_numpy(on(mx.cpu, lambda: model(x))[0])
    with mx.stream(mx.gpu):
        model.update(tree_map(lambda p: p * 1, model.parameters()))
        mx.eval(model.parameters())
    after = to_numpy(on(mx.cpu, lambda: model(x))[0])
    assert abs(before - after).max() == 0


def test_random_layers_draw_the_same():
    x = numbers((200,), seed=8)

    def function():
        mx.random.seed(5)
        return [nn.Dropout(0.4)(x), mx.random.categorical(numbers((5, 9), seed=9)), mx.random.permutation(20)]

    assert_same(function)

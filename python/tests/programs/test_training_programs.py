"""Whole programs, written once and run with both libraries."""

import math

import numpy as np
from differential import compare, set_numbers


def language_model(lib):
    """A small decoder-only transformer with rotary encoding and tied embeddings."""
    mx, nn = lib.mx, lib.nn

    class Attention(nn.Module):
        def __init__(self, dims, heads):
            super().__init__()
            self.heads = heads
            self.q_proj = nn.Linear(dims, dims, bias=False)
            self.k_proj = nn.Linear(dims, dims, bias=False)
            self.v_proj = nn.Linear(dims, dims, bias=True)
            self.o_proj = nn.Linear(dims, dims, bias=False)
            self.rope = nn.RoPE(dims // heads, traditional=True)

        def __call__(self, x):
            B, L, D = x.shape
            q, k, v = (
                p(x).reshape(B, L, self.heads, -1).transpose(0, 2, 1, 3)
                for p in (self.q_proj, self.k_proj, self.v_proj)
            )
            y = mx.fast.scaled_dot_product_attention(
                self.rope(q), self.rope(k), v, scale=1 / math.sqrt(D // self.heads), mask="causal"
            )
            return self.o_proj(y.transpose(0, 2, 1, 3).reshape(B, L, D))

    class Block(nn.Module):
        def __init__(self, dims, heads):
            super().__init__()
            self.attention = Attention(dims, heads)
            self.gate = nn.Linear(dims, 2 * dims, bias=False)
            self.up = nn.Linear(dims, 2 * dims, bias=False)
            self.down = nn.Linear(2 * dims, dims, bias=False)
            self.norms = [nn.RMSNorm(dims), nn.RMSNorm(dims)]

        def __call__(self, x):
            x = x + self.attention(self.norms[0](x))
            y = self.norms[1](x)
            return x + self.down(nn.silu(self.gate(y)) * self.up(y))

    class Model(nn.Module):
        def __init__(self, vocab=50, dims=64, heads=4, layers=2):
            super().__init__()
            self.embed = nn.Embedding(vocab, dims)
            self.layers = [Block(dims, heads) for _ in range(layers)]
            self.norm = nn.RMSNorm(dims)

        def __call__(self, tokens):
            x = self.embed(tokens)
            for layer in self.layers:
                x = layer(x)
            return self.embed.as_linear(self.norm(x))

    return set_numbers(lib, Model())


def tokens(lib, seed=0, shape=(2, 9)):
    return lib.array(np.random.default_rng(seed).integers(0, 50, shape))


def train(lib, model, optimizer, steps=3):
    nn, mx = lib.nn, lib.mx

    def loss_fn(model, batch):
        losses = nn.losses.cross_entropy(model(batch[:, :-1]), batch[:, 1:])
        return losses.mean(), lib.mx.array(losses.size)

    step = nn.value_and_grad(model, loss_fn)
    losses = []
    for i in range(steps):
        (loss, _), gradients = step(model, tokens(lib, i))
        gradients, norm = lib.optim.clip_grad_norm(gradients, 1.0)
        optimizer.update(model, gradients)
        mx.eval(model.parameters(), optimizer.state, loss)
        losses.append((loss, norm))
    return losses


def test_training_a_language_model():
    def scenario(lib):
        model = language_model(lib)
        optim = lib.optim
        schedule = optim.join_schedules([optim.linear_schedule(0, 1e-2, 2), optim.cosine_decay(1e-2, 10)], [2])
        optimizer = optim.AdamW(schedule, weight_decay=0.1, bias_correction=True)
        return train(lib, model, optimizer), model.parameters(), repr(model)

    compare(scenario, tol=2e-3)


def test_fine_tuning_a_quantized_model_with_low_rank_adapters():
    def scenario(lib):
        mx, nn, utils = lib.mx, lib.nn, lib.utils

        class LoRALinear(nn.Module):
            @staticmethod
            def wrap(linear, rank=4):
                layer = LoRALinear()
                layer.linear = linear
                output_dims, input_dims = linear.weight.shape
                if isinstance(linear, nn.QuantizedLinear):
                    input_dims = input_dims * 32 // linear.bits
                layer.lora_a = mx.ones((input_dims, rank)) * 0.01
                layer.lora_b = mx.ones((rank, output_dims)) * 0.01
                layer.dropout = nn.Dropout(0.0)
                return layer

            def __call__(self, x):
                return self.linear(x) + (self.dropout(x) @ self.lora_a) @ self.lora_b

        model = language_model(lib)
        nn.quantize(model, group_size=32, bits=8, class_predicate=lambda p, m: isinstance(m, nn.Linear))
        model.freeze()
        for layer in model.layers:
            adapters = [
                (name, LoRALinear.wrap(m))
                for name, m in layer.named_modules()
                if name in ("attention.q_proj", "attention.v_proj")
            ]
            layer.update_modules(utils.tree_unflatten(adapters))
        model.apply_to_modules(lambda name, m: m.unfreeze(keys="bias") if "v_proj" in name else None)
        names = sorted(name for name, _ in utils.tree_flatten(model.trainable_parameters()))
        losses = train(lib, model, lib.optim.Adam(1e-2))
        return names, losses, model.trainable_parameters(), repr(model.layers[0])

    compare(scenario, tol=2e-3)


def test_training_a_convolutional_network_with_two_optimizers():
    def scenario(lib):
        mx, nn, optim = lib.mx, lib.nn, lib.optim
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, stride=2, groups=2), nn.GroupNorm(2, 8), nn.PReLU(), nn.AvgPool2d(2),
            lambda x: x.reshape(x.shape[0], -1), nn.Dropout(0.0), nn.Linear(8, 4),
        )  # fmt: skip
        set_numbers(lib, model)
        matrices = lambda name, gradient: gradient.ndim >= 2  # noqa: E731
        optimizer = optim.MultiOptimizer([optim.Muon(0.02), optim.SGD(0.1, momentum=0.9, nesterov=True)], [matrices])

        def loss_fn(x, y):
            return nn.losses.cross_entropy(model(x), y, label_smoothing=0.1, reduction="mean")

        step = nn.value_and_grad(model, loss_fn)
        losses = []
        for i in range(3):
            loss, gradients = step(lib.normal(4, 12, 12, 3, seed=i), lib.array([0, 1, 2, 3]))
            optimizer.update(model, gradients)
            mx.eval(model.parameters(), optimizer.state)
            losses.append(loss)
        evaluated = model.eval()(lib.normal(4, 12, 12, 3, seed=9))
        return losses, evaluated, model.parameters()

    compare(scenario, tol=2e-3)


def test_training_a_recurrent_model():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn

        class Tagger(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(50, 8)
                self.rnns = {"lstm": nn.LSTM(8, 6), "gru": nn.GRU(6, 5)}
                self.head = nn.Linear(5, 3)

            def __call__(self, x):
                hidden, _ = self.rnns["lstm"](self.embed(x))
                return nn.log_softmax(self.head(self.rnns["gru"](hidden)))

        model = set_numbers(lib, Tagger())
        optimizer = lib.optim.Adafactor(beta_1=0.9)
        loss_fn = lambda x, y: nn.losses.nll_loss(model(x), y, reduction="mean")  # noqa: E731
        step = nn.value_and_grad(model, loss_fn)
        losses = []
        for i in range(3):
            x = tokens(lib, i, (2, 5))
            loss, gradients = step(x, x % 3)
            optimizer.update(model, gradients)
            mx.eval(model.parameters(), optimizer.state)
            losses.append(loss)
        return losses, model.parameters()

    compare(scenario, tol=2e-4)

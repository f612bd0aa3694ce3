"""Graphs, per-example gradients, meta-learning, and a run that stops and goes on."""

import numpy as np
from differential import compare
from training import initialize, train


def test_a_graph_network_on_some_labels():
    def scenario(lib):
        mx, nn = lib.mx, lib.nn

        class Convolution(nn.Module):
            def __init__(self, inputs, outputs):
                super().__init__()
                self.linear = nn.Linear(inputs, outputs, bias=False)
                self.bias = mx.zeros((outputs,))

            def __call__(self, x, adjacency):
                return adjacency @ self.linear(x) + self.bias

        class Network(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = [Convolution(8, 16), Convolution(16, 3)]
                self.dropout = nn.Dropout(0.5)

            def __call__(self, x, adjacency):
                x = self.dropout(nn.relu(self.layers[0](x, adjacency)))
                return self.layers[1](x, adjacency)

        rng = np.random.default_rng(0)
        edges = lib.array(rng.integers(0, 20, (2, 60)))
        adjacency = mx.eye(20).at[edges[0], edges[1]].maximum(1)
        adjacency = mx.maximum(adjacency, adjacency.T)
        root = mx.diag(adjacency.sum(1) ** -0.5)
        adjacency = root @ adjacency @ root
        labels, known = lib.array(rng.integers(0, 3, 20)), lib.array(np.arange(20) < 12)
        model = initialize(lib, Network())

        def loss_fn(x, y):
            losses = nn.losses.cross_entropy(model(x, adjacency), y) * known
            decay = sum(p.square().sum() for p in model.layers[0].trainable_parameters()["linear"].values())
            return losses.sum() / known.sum() + 5e-4 * decay

        mx.random.seed(1)
        x = lib.normal(20, 8)
        losses = train(lib, model, lib.optim.Adam(0.02), loss_fn, [(x, labels)] * 5)
        return losses, model.eval()(x, adjacency)

    compare(scenario, tol=1e-3)


def test_gradients_of_single_examples_are_clipped_and_summed():
    def scenario(lib):
        mx, utils = lib.mx, lib.utils

        def loss(parameters, x, y):
            hidden = mx.tanh(x @ parameters["w1"] + parameters["b1"])
            return (hidden @ parameters["w2"] - y).square().sum()

        parameters = {"w1": lib.normal(5, 7, seed=1), "b1": mx.zeros((7,)), "w2": lib.normal(7, 2, seed=2)}
        x, y = lib.normal(9, 5, seed=3), lib.normal(9, 2, seed=4)
        single = mx.vmap(mx.value_and_grad(loss), in_axes=(None, 0, 0))
        losses = []
        for _ in range(3):
            values, gradients = single(parameters, x, y)
            squares = [g.square().reshape(g.shape[0], -1).sum(1) for _, g in utils.tree_flatten(gradients)]
            factors = mx.minimum(1, 1 / mx.sqrt(sum(squares)))
            clipped = utils.tree_map(lambda g: mx.tensordot(factors, g, 1), gradients)
            parameters = utils.tree_map(lambda p, g: p - 0.05 * g, parameters, clipped)
            losses.append(values)
        return losses, parameters

    compare(scenario, tol=1e-4)


def test_learning_to_learn_takes_gradients_of_gradients():
    def scenario(lib):
        mx = lib.mx

        def predict(w, x):
            return mx.sin(x @ w[0] + w[1]) @ w[2]

        def loss(w, x, y):
            return (predict(w, x) - y).square().mean()

        def adapted(w, x, y):
            for _ in range(2):
                w = [p - 0.1 * g for p, g in zip(w, mx.grad(loss)(w, x, y))]
            return w

        def outer(w, tasks):
            return sum(loss(adapted(w, x, y), x, y) for x, y in tasks) / len(tasks)

        w = [lib.normal(1, 8), mx.zeros((8,)), lib.normal(8, 1, seed=1) * 0.3]
        tasks = [(lib.normal(6, 1, seed=i), lib.normal(6, 1, seed=i + 10)) for i in range(3)]
        losses = []
        for _ in range(3):
            value, gradients = mx.value_and_grad(outer)(w, tasks)
            w = [p - 0.05 * g for p, g in zip(w, gradients)]
            losses.append(value)
        x = tasks[0][0]
        tangents = mx.jvp(lambda x: predict(w, x), [x], [mx.ones_like(x)])[1]
        return losses, w, tangents

    compare(scenario, tol=1e-4)


def test_training_goes_on_from_files(tmp_path):
    def scenario(lib):
        mx, nn, optim, utils = lib.mx, lib.nn, lib.optim, lib.utils
        weights, state = str(tmp_path / f"{lib.name}.npz"), str(tmp_path / f"{lib.name}.safetensors")

        def fresh():
            model = nn.Sequential(nn.Linear(6, 12), nn.SELU(), nn.LayerNorm(12), nn.Linear(12, 2))
            phases = [optim.linear_schedule(0, 1e-2, 2), optim.exponential_decay(1e-2, 0.9)]
            return initialize(lib, model), optim.AdamW(optim.join_schedules(phases, [2]))

        def accumulated(model, optimizer, seeds):
            """One update for each pair of small batches."""
            step = nn.value_and_grad(model, lambda x, y: nn.losses.huber_loss(model(x), y, reduction="mean"))
            losses, sums = [], None
            for i in seeds:
                loss, gradients = step(lib.normal(4, 6, seed=i), lib.normal(4, 2, seed=i + 50))
                sums = gradients if sums is None else utils.tree_map(mx.add, sums, gradients)
                if i % 2:
                    optimizer.update(model, utils.tree_map(lambda g: g / 2, sums))
                    sums = None
                mx.eval(model.state, optimizer.state)
                losses.append(loss)
            return losses

        model, optimizer = fresh()
        losses = accumulated(model, optimizer, range(6))
        model.save_weights(weights)
        mx.save_safetensors(state, dict(utils.tree_flatten(optimizer.state)), metadata={"step": "3"})
        straight = accumulated(model, optimizer, range(6, 10))

        model, optimizer = fresh()
        model.load_weights(weights)
        loaded, metadata = mx.load(state, return_metadata=True)
        optimizer.state = utils.tree_unflatten(list(loaded.items()))
        resumed = accumulated(model, optimizer, range(6, 10))
        assert [a.item() for a in straight] == [a.item() for a in resumed]
        return losses, resumed, metadata["step"], model.parameters()

    compare(scenario, tol=1e-3)

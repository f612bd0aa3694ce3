"""What the programs share: weights that are the same in both libraries, and a training loop."""

from functools import partial

import numpy as np


def initialize(lib, model, seed=1):
    """Give the floating point parameters numbers that keep activations near one."""
    rng = np.random.default_rng(seed)
    updates = []
    for name, value in sorted(lib.utils.tree_flatten(model.parameters())):
        if not lib.mx.issubdtype(value.dtype, lib.mx.floating):
            continue
        numbers = rng.standard_normal(value.shape)
        if value.ndim > 1:
            numbers /= np.sqrt(value.size / value.shape[0])
        else:
            numbers = numbers * 0.1 + name.endswith(("weight", "var"))
        updates.append((name, lib.array(numbers).astype(value.dtype)))
    return model.load_weights(updates, strict=False)


def train(lib, model, optimizer, loss_fn, batches):
    """The loss of each step; the step is compiled over the state of model, optimizer and generator."""
    mx, nn = lib.mx, lib.nn
    state = [model.state, optimizer.state, mx.random.state]

    @partial(mx.compile, inputs=state, outputs=state)
    def step(*batch):
        loss, gradients = nn.value_and_grad(model, loss_fn)(*batch)
        optimizer.update(model, gradients)
        return loss

    losses = []
    for batch in batches:
        losses.append(step(*batch))
        mx.eval(state)
    return losses


def split_heads(x, heads):
    """``(batch, length, dims)`` to ``(batch, heads, length, dims / heads)``."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def merge_heads(x):
    """The inverse of ``split_heads``."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)

"""Neural networks: layers, losses and initializers over ``hesper.core``.

Examples in this package assume ``import hesper.core as mx``, ``import hesper.nn as nn`` and
``import hesper.optimizers as optim``.

Examples
--------
>>> model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
>>> def loss_fn(x, y):
...     return nn.losses.mse_loss(model(x), y)
...
>>> loss, gradients = nn.value_and_grad(model, loss_fn)(mx.ones((8, 4)), mx.ones((8, 1)))
>>> loss.shape
()
"""

from . import init, layers, losses, utils
from .layers import *  # noqa: F403
from .layers.activations import *  # noqa: F403
from .layers.functional import *  # noqa: F403
from .layers import (
    activations,
    base,
    containers,
    convolution,
    convolution_transpose,
    distributed,
    dropout,
    embedding,
    linear,
    normalization,
    pooling,
    positional_encoding,
    quantized,
    recurrent,
    transformer,
    upsample,
)
from .utils import average_gradients, value_and_grad

__all__ = [
    "average_gradients",
    "init",
    "losses",
    "value_and_grad",
]
__all__ += layers.__all__

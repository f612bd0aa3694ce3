"""Makes reference.json: outputs of layers, losses and optimizers of MLX, for parameters and inputs made by a formula.

Run it with MLX installed: python make.py > reference.json
"""

import json

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
from mlx.utils import tree_flatten, tree_unflatten


def values(shape, seed):
    """Numbers in [-1, 1] that the tests make too."""
    count = 1
    for length in shape:
        count *= length
    return mx.array([((at * 37 + 11 + seed * 53) % 101) / 50 - 1 for at in range(count)], mx.float32).reshape(shape)


def positive(shape, seed):
    return mx.abs(values(shape, seed)) + 0.1


def filled(layer):
    """The layer with its parameters, in the order of their names, made by the formula."""
    names = sorted(name for name, _ in tree_flatten(layer.parameters()))
    flat = dict(tree_flatten(layer.parameters()))
    made = [(name, (positive if name.endswith("running_var") else values)(flat[name].shape, seed))
            for seed, name in enumerate(names)]
    layer.update(tree_unflatten(made))
    return layer, {name: list(flat[name].shape) for name in names}


LAYERS = {
    "Linear": (lambda: nn.Linear(4, 3), [(2, 4)]),
    "Bilinear": (lambda: nn.Bilinear(3, 2, 4), [(5, 3), (5, 2)]),
    "LayerNorm": (lambda: nn.LayerNorm(6), [(2, 6)]),
    "RMSNorm": (lambda: nn.RMSNorm(6), [(2, 6)]),
    "InstanceNorm": (lambda: nn.InstanceNorm(3, affine=True), [(2, 4, 5, 3)]),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), [(2, 3, 3, 4)]),
    "GroupNormAdjacent": (lambda: nn.GroupNorm(2, 4, pytorch_compatible=True), [(2, 3, 3, 4)]),
    "BatchNorm": (lambda: nn.BatchNorm(3), [(2, 4, 4, 3)]),
    "BatchNormEval": (lambda: nn.BatchNorm(3).eval(), [(2, 4, 4, 3)]),
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), [(2, 9, 4)]),
    "Conv2d": (lambda: nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=1, dilation=1), [(1, 6, 5, 2)]),
    "Conv3d": (lambda: nn.Conv3d(2, 2, 2, padding=1), [(1, 3, 3, 3, 2)]),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(3, 2, 3, stride=2, padding=1, output_padding=1), [(2, 5, 3)]),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1), [(1, 3, 4, 2)]),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(1, 2, 2, stride=2), [(1, 2, 2, 2, 1)]),
    "MaxPool1d": (lambda: nn.MaxPool1d(3, stride=2, padding=1), [(2, 7, 2)]),
    "MaxPool2d": (lambda: nn.MaxPool2d(2), [(1, 4, 6, 2)]),
    "AvgPool2d": (lambda: nn.AvgPool2d(3, stride=2), [(1, 7, 7, 2)]),
    "AvgPool3d": (lambda: nn.AvgPool3d(2, stride=2, padding=1), [(1, 4, 4, 4, 1)]),
    "RNN": (lambda: nn.RNN(3, 4), [(2, 5, 3)]),
    "GRU": (lambda: nn.GRU(3, 4), [(2, 5, 3)]),
    "LSTM": (lambda: nn.LSTM(3, 4), [(2, 5, 3)]),
    "MultiHeadAttention": (lambda: nn.MultiHeadAttention(8, 2), [(2, 5, 8), (2, 6, 8), (2, 6, 8)]),
    "TransformerEncoder": (lambda: nn.TransformerEncoder(2, 8, 2, mlp_dims=12), [(2, 5, 8)]),
    "TransformerDecoderLast": (
        lambda: nn.TransformerDecoder(1, 8, 2, mlp_dims=12, norm_first=False), [(2, 5, 8), (2, 4, 8)]
    ),
    "Transformer": (
        lambda: nn.Transformer(8, 2, num_encoder_layers=1, num_decoder_layers=1, mlp_dims=8), [(1, 4, 8), (1, 3, 8)]
    ),
    "SinusoidalPositionalEncoding": (lambda: nn.SinusoidalPositionalEncoding(8), [(5,)]),
    "ALiBi": (lambda: nn.ALiBi(), [(1, 6, 3, 4)]),
    "PReLU": (lambda: nn.PReLU(3), [(4, 3)]),
    "UpsampleNearest": (lambda: nn.Upsample(1.7, mode="nearest"), [(1, 4, 5, 2)]),
    "UpsampleLinear": (lambda: nn.Upsample((2, 1.5), mode="linear"), [(1, 4, 4, 2)]),
    "UpsampleLinearCorners": (lambda: nn.Upsample(2.0, mode="linear", align_corners=True), [(1, 3, 4, 1)]),
    "UpsampleCubic": (lambda: nn.Upsample(2.0, mode="cubic"), [(1, 4, 4, 1)]),
}

ACTIVATIONS = {
    "Celu": lambda x: nn.celu(x, 0.7), "Elu": lambda x: nn.elu(x, 0.7), "Gelu": nn.gelu, "GeluTanh": nn.gelu_approx,
    "GeluFast": nn.gelu_fast_approx, "Glu": nn.glu, "HardShrink": nn.hard_shrink, "HardSwish": nn.hardswish,
    "HardTanh": nn.hard_tanh, "LeakyRelu": nn.leaky_relu, "LogSigmoid": nn.log_sigmoid, "LogSoftmax": nn.log_softmax,
    "Mish": nn.mish, "Relu": nn.relu, "Relu2": nn.relu2, "Relu6": nn.relu6, "Selu": nn.selu, "Sigmoid": mx.sigmoid,
    "Silu": nn.silu, "Softmax": lambda x: mx.softmax(x, -1), "Softmin": nn.softmin, "Softplus": nn.softplus,
    "SoftShrink": nn.softshrink, "Softsign": nn.softsign, "Step": lambda x: nn.step(x, 0.2).astype(mx.float32),
    "Tanh": mx.tanh,
}

X, Y, Z, P = values((4, 3), 1), values((4, 3), 2), values((4, 3), 3), positive((4, 3), 4)
CLASSES = mx.array([0, 2, 1, 2])
LOSSES = {
    "cross_entropy": nn.losses.cross_entropy(X, CLASSES, reduction="mean"),
    "cross_entropy_smooth": nn.losses.cross_entropy(X, CLASSES, label_smoothing=0.2, reduction="sum"),
    "cross_entropy_dense": nn.losses.cross_entropy(X, mx.softmax(Y, -1), reduction="mean"),
    "binary_cross_entropy": nn.losses.binary_cross_entropy(X, mx.abs(Y)),
    "binary_cross_entropy_probabilities": nn.losses.binary_cross_entropy(mx.sigmoid(X), mx.abs(Y), with_logits=False),
    "l1": nn.losses.l1_loss(X, Y), "mse": nn.losses.mse_loss(X, Y),
    "nll": nn.losses.nll_loss(nn.log_softmax(X), CLASSES, reduction="mean"),
    "gaussian_nll": nn.losses.gaussian_nll_loss(X, Y, P, full=True),
    "kl_div": nn.losses.kl_div_loss(nn.log_softmax(X), nn.log_softmax(Y), reduction="mean"),
    "smooth_l1": nn.losses.smooth_l1_loss(X, Y, beta=0.7),
    "triplet": nn.losses.triplet_loss(X, Y, Z, reduction="mean"), "hinge": nn.losses.hinge_loss(X, Y, reduction="mean"),
    "huber": nn.losses.huber_loss(X, Y, delta=0.6, reduction="mean"),
    "log_cosh": nn.losses.log_cosh_loss(X, Y, reduction="mean"),
    "cosine_similarity": nn.losses.cosine_similarity_loss(X, Y, reduction="sum"),
    "margin_ranking": nn.losses.margin_ranking_loss(X, Y, mx.sign(Z), margin=0.1, reduction="mean"),
}

OPTIMIZERS = {
    "sgd": lambda: optim.SGD(0.1), "sgd_momentum": lambda: optim.SGD(0.1, 0.9, weight_decay=0.01, nesterov=True),
    "sgd_dampening": lambda: optim.SGD(0.1, 0.9, dampening=0.3), "rmsprop": lambda: optim.RMSprop(0.01),
    "adagrad": lambda: optim.Adagrad(0.1), "adadelta": lambda: optim.AdaDelta(1.0), "adam": lambda: optim.Adam(0.01),
    "adam_corrected": lambda: optim.Adam(0.01, bias_correction=True), "adamw": lambda: optim.AdamW(0.01),
    "adamax": lambda: optim.Adamax(0.01), "lion": lambda: optim.Lion(0.01, weight_decay=0.1),
    "adafactor": lambda: optim.Adafactor(), "muon": lambda: optim.Muon(0.02),
    "adafactor_momentum": lambda: optim.Adafactor(0.05, relative_step=False, beta_1=0.9, weight_decay=0.01),
    "schedule": lambda: optim.SGD(optim.join_schedules([optim.linear_schedule(0, 0.1, 2), optim.cosine_decay(0.1, 4)], [2])),
}


def trained(optimizer):
    """The parameters after five steps with gradients made by the formula."""
    parameters = {"bias": values((3,), 1), "weight": values((3, 4), 2)}
    for step in range(5):
        gradients = {name: values(p.shape, 10 + step + seed) for seed, (name, p) in enumerate(sorted(parameters.items()))}
        parameters = optimizer.apply_gradients(gradients, parameters)
    return {name: p.reshape(-1).tolist() for name, p in parameters.items()}


def outputs(result):
    arrays = result if isinstance(result, (tuple, list)) else [result]
    return [[round(x, 6) for x in a.astype(mx.float32).reshape(-1).tolist()] for a in arrays]


def layer_case(make, shapes):
    layer, names = filled(make())
    inputs = [values(shape, 20 + at) for at, shape in enumerate(shapes)]
    masks = {"TransformerEncoder": 1, "TransformerDecoder": 2, "Transformer": 3}
    result = layer(*inputs, *[None] * masks.get(type(layer).__name__, 0))
    after = {name: p.reshape(-1).tolist() for name, p in tree_flatten(layer.parameters()) if "running" in name}
    return {"parameters": names, "outputs": outputs(result), "buffers": after}


reference = {
    "layers": {name: layer_case(*case) for name, case in LAYERS.items()},
    "activations": {name: outputs(f(values((3, 8), 5) * 2))[0] for name, f in ACTIVATIONS.items()},
    "losses": {name: value.item() for name, value in LOSSES.items()},
    "optimizers": {name: trained(make()) for name, make in OPTIMIZERS.items()},
}
print(json.dumps(reference, indent=None, separators=(",", ":")).replace('},"', '},\n"'))

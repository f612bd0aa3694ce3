"""Errors name what could not be done, the value that stood in the way, and what would work."""

import re

import pytest
from differential import HESPER

mx, nn, optim, utils = HESPER.mx, HESPER.nn, HESPER.optim, HESPER.utils


def case(error, pattern, call):
    return pytest.param(error, pattern, call, id=pattern)


CASES = [
    case(ValueError, "probability 1.5.*[0, 1)", lambda: nn.Dropout(1.5)),
    case(ValueError, "shape (2, 3).*Dropout2d", lambda: nn.Dropout2d()(mx.ones((2, 3)))),
    case(ValueError, "4 input channels into 3 groups", lambda: nn.Conv2d(4, 6, 3, groups=3)),
    case(ValueError, "7 channels into 2 groups", lambda: nn.GroupNorm(2, 7)),
    case(ValueError, "4 channels into 0 groups", lambda: nn.GroupNorm(0, 4)),
    case(ValueError, "2 channels into 4 groups", lambda: nn.GroupNorm(4, 2)),
    *(case(ValueError, f"eps={eps}; it must be positive", lambda norm=norm, eps=eps: norm(4, eps=eps)) for eps in (0, -1e-5)
      for norm in (nn.LayerNorm, nn.RMSNorm, nn.InstanceNorm, nn.BatchNorm, lambda dims, eps: nn.GroupNorm(2, dims, eps))),
    *(case(ValueError, f"{name} with eps=0", lambda name=name: getattr(optim, name)(0.1, eps=0))
      for name in ("RMSprop", "Adagrad", "AdaDelta")),
    *(case(ValueError, f"{name} with betas", lambda name=name: getattr(optim, name)(0.1, betas=[0.9, 1.0]))
      for name in ("Adam", "AdamW", "Adamax", "Lion")),
    case(ValueError, "Adam with eps=nan", lambda: optim.Adam(0.1, eps=float("nan"))),
    case(ValueError, "norm of -1", lambda: optim.clip_grad_norm({"w": mx.ones(1)}, -1)),
    case(ValueError, "step_size=0", lambda: optim.step_decay(0.1, 0.9, 0)),
    case(ValueError, "shape (2, 3).*spatial axis", lambda: nn.InstanceNorm(3)(mx.ones((2, 3)))),
    case(ValueError, "shape (3,).*2, 3 or 4 axes", lambda: nn.BatchNorm(3)(mx.ones(3))),
    case(ValueError, "shape (1, 3).*larger batch", lambda: nn.BatchNorm(3)(mx.ones((1, 3)))),
    case(ValueError, "9 features among 2 heads", lambda: nn.MultiHeadAttention(9, 2)),
    case(ValueError, "5 features.*even", lambda: nn.SinusoidalPositionalEncoding(5)),
    case(ValueError, "nonlinearity; give a function", lambda: nn.RNN(2, 2, nonlinearity=3)),
    case(ValueError, "no steps", lambda: nn.GRU(2, 2)(mx.zeros((0, 2)))),
    case(ValueError, "GELU by 'best'.*none, precise", lambda: nn.GELU("best")),
    case(ValueError, "2 axes with stride=(1,)", lambda: nn.MaxPool2d(2, (1,))),
    case(ValueError, "2 axes with kernel_size=(2, 1.5)", lambda: nn.MaxPool2d((2, 1.5))),
    case(ValueError, "kernel_size=0.*at least 1", lambda: nn.AvgPool2d(0)),
    case(ValueError, "stride=(2, -1).*at least 1", lambda: nn.MaxPool2d(2, (2, -1))),
    case(ValueError, "padding=-1.*at least 0", lambda: nn.AvgPool1d(2, padding=-1)),
    case(ValueError, "shape (2, 3).*AvgPool1d takes", lambda: nn.AvgPool1d(2)(mx.ones((2, 3)))),
    case(ValueError, "mode 'best'.*'nearest'", lambda: nn.Upsample(2, "best")),
    case(ValueError, "antialias=True and align_corners=True", lambda: nn.Upsample(2, "linear", True, True)),
    case(ValueError, "shape (1, 4, 3) by (2.0, 2.0)", lambda: nn.Upsample((2, 2))(mx.ones((1, 4, 3)))),
    case(ValueError, "mode 'int3'.*mxfp4", lambda: nn.QuantizedLinear(64, 8, mode="int3")),
    case(ValueError, "input in mode 'affine'.*nvfp4", lambda: nn.Linear(64, 8).to_quantized(quantize_input=True)),
    case(ValueError, "Embedding.*integers", lambda: nn.Embedding(4, 64).to_quantized(quantize_input=True)),
    case(NotImplementedError, "bias=False", lambda: nn.QQLinear.from_linear(nn.Linear(64, 8))),
    case(ValueError, "layers.0: ReLU", lambda: nn.quantize(nn.Sequential(nn.ReLU()), class_predicate=lambda *_: True)),
    case(ValueError, "returned 1; return a bool", lambda: nn.quantize(
        nn.Sequential(nn.Linear(64, 8)), class_predicate=lambda *_: 1)),
    case(ValueError, "parameters not in model: x, y; strict=False", lambda: nn.ReLU().load_weights([("y", 1), ("x", 1)])),
    case(ValueError, "Missing weights for the parameters: bias", lambda: nn.Linear(1, 1).load_weights(
        [("weight", mx.ones((1, 1)))])),
    case(ValueError, "weight of shape (2,).*(3,)", lambda: nn.RMSNorm(3).load_weights([("weight", mx.ones(2))])),
    case(ValueError, "weight: it is a int", lambda: nn.RMSNorm(3).load_weights([("weight", 3)])),
    case(ValueError, "w.xyz.*.safetensors", lambda: nn.Linear(1, 1).save_weights("w.xyz")),
    case(ValueError, "parameter 'q': the module has none", lambda: nn.ReLU().update({"q": mx.ones(1)})),
    case(ValueError, "parameter 'weight' with a str", lambda: nn.RMSNorm(1).update({"weight": "x"})),
    case(ValueError, "parameters from a int", lambda: nn.ReLU().update(3)),
    case(KeyError, "'q': the module has no such member", lambda: nn.ReLU().freeze(keys="q", strict=True)),
    case(ValueError, "by 'max'; choose one of none, mean, sum", lambda: nn.losses.hinge_loss(
        mx.ones(1), mx.ones(1), "max")),
    case(ValueError, "predictions (2,), targets (3,)", lambda: nn.losses.mse_loss(mx.ones(2), mx.ones(3))),
    case(ValueError, "labels by 1.0", lambda: nn.losses.cross_entropy(mx.ones((1, 2)), mx.array([0]), label_smoothing=1.0)),
    case(ValueError, "shape (3,) with logits of shape (2, 2).*(2,)", lambda: nn.losses.cross_entropy(
        mx.ones((2, 2)), mx.array([0, 1, 1]))),
    case(ValueError, "identity matrix of shape (2, 3)", lambda: nn.init.identity()(mx.ones((2, 3)))),
    case(ValueError, "shape (3,).*2 axes or more", lambda: nn.init.he_normal()(mx.ones(3))),
    case(ValueError, "mode 'fan'; choose 'fan_in'", lambda: nn.init.he_uniform()(mx.ones((2, 2)), "fan")),
    case(ValueError, "orthogonal matrix of shape (3,)", lambda: nn.init.orthogonal()(mx.ones(3))),
    case(ValueError, "RMSprop with alpha=-1", lambda: optim.RMSprop(0.1, alpha=-1)),
    case(ValueError, "momentum=0.0.*positive momentum", lambda: optim.SGD(0.1, nesterov=True)),
    case(ValueError, "2 optimizers with 0 filters; 1 needed", lambda: optim.MultiOptimizer([optim.SGD(1), optim.SGD(1)])),
    case(ValueError, "linear schedule with steps=0", lambda: optim.linear_schedule(0, 1, 0)),
    case(ValueError, "2 schedules at 0 boundaries; 1 needed", lambda: optim.join_schedules([abs, abs], [])),
    case(TypeError, "a list; parameters must be a dictionary", lambda: optim.SGD(0.1).init([mx.ones(1)])),
    case(NotImplementedError, "Optimizer does not define apply_single", lambda: optim.Optimizer().apply_single(1, 1, {})),
    case(ValueError, "into a set", lambda: utils.tree_flatten([1], destination=set())),
    case(ValueError, "two leaves (int and int).*merge_fn", lambda: utils.tree_merge([1], [2])),
    case(ValueError, "an empty list with an empty dict", lambda: utils.tree_merge([], {})),
]  # fmt: skip


@pytest.mark.parametrize("error, pattern, call", CASES)
def test_error(error, pattern, call):
    """``.*`` stands for any text; everything else in the pattern is literal."""
    with pytest.raises(error, match=".*".join(map(re.escape, pattern.split(".*")))):
        call()

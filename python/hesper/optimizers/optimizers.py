"""All optimizers under one name."""

from .adafactor import Adafactor
from .adaptive import AdaDelta, Adagrad, Adam, Adamax, AdamW, RMSprop
from .base import MultiOptimizer, Optimizer, clip_grad_norm
from .momentum import SGD, Lion, Muon

__all__ = [
    "AdaDelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "MultiOptimizer",
    "Muon",
    "Optimizer",
    "RMSprop",
    "SGD",
    "clip_grad_norm",
]

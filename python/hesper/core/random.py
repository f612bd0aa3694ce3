"""Random numbers. Calls without a key split the global one, which ``seed`` sets."""

from hesper._core import random as _random

__all__ = list(_random.__all__)
globals().update({name: getattr(_random, name) for name in __all__})

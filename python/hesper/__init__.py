"""Hesper: lazy arrays and neural networks.

The package has five parts:

``hesper.core``
    Arrays, functions on them and transformations of functions (native code).
``hesper.nn``
    Layers, losses and initializers.
``hesper.optimizers``
    Optimizers and learning rate schedules.
``hesper.lm``
    Language models: loading and generation, also streamed and in batches.
``hesper.utils``
    Functions on trees of arrays (nested dicts, lists and tuples).
"""


def __getattr__(name: str) -> str:
    # Not at import: a program that asks for one part does not load the others.
    if name == "__version__":
        from hesper._core import __version__

        return __version__
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

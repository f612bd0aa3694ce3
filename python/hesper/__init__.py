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

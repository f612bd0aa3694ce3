"""Hesper: lazy arrays and neural networks.

The package has four parts:

``hesper.core``
    Arrays, functions on them and transformations of functions (native code).
``hesper.nn``
    Layers, losses and initialisers, written over ``hesper.core``.
``hesper.optimizers``
    Optimizers and learning rate schedules.
``hesper.utils``
    Functions on trees of arrays (nested dicts, lists and tuples).
"""

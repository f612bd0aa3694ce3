"""Makes ``reprlib`` show arrays.

It knows classes by their names alone, and takes every ``array`` for one of the standard library's. This is a module of
its own, because functions keep the names of their module until the interpreter ends.
"""

import reprlib

from hesper._core import array


def repr_array(self, value, level, standard=reprlib.Repr.repr_array):
    """What ``reprlib`` makes of an object whose class is called ``array``."""
    return self.repr_instance(value, level) if isinstance(value, array) else standard(self, value, level)


setattr(reprlib.Repr, "repr_array", repr_array)  # noqa: B010

"""The inspection API: types, devices, capabilities."""

import hesper.core as mx
from hesper.core._array_api import ArrayNamespaceInfo

from ._dtypes import complex128


class NamespaceInfo(ArrayNamespaceInfo):
    """Types, devices and capabilities, the same on every device."""

    def capabilities(self):
        """The optional features of the standard."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def devices(self):
        """A list of all devices: the CPU, then the GPUs."""
        return list(super().devices())

    def dtypes(self, *, device=None, kind=None):
        """The types of the standard, all of them or those of one or several kinds."""
        found = super().dtypes(device=device, kind=kind)
        if mx.complex64 in found.values():
            found["complex128"] = complex128
        return found


def __array_namespace_info__():  # noqa: N807
    """The types, devices and capabilities of this namespace.

    Examples
    --------
    >>> import hesper.array_api as xp
    >>> list(xp.__array_namespace_info__().dtypes(kind="complex floating"))
    ['complex64', 'complex128']
    """
    return NamespaceInfo()

# Written by scripts/stubs.py from the built package; do not edit.
from collections.abc import Callable, Sequence
from typing import Any

from . import Device, DeviceType, Dtype, Stream, StreamOrDevice, array, scalar




def is_available() -> bool:
    """Whether arrays can be computed on an NVIDIA GPU.

    Examples
    --------
    >>> mx.cuda.is_available() in (True, False)
    True
    """
    ...

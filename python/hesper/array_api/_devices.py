"""Devices as arguments."""

from contextlib import nullcontext

import hesper.core as mx


def on(device):
    """A context in which arrays are made on a device, or on the default one."""
    if device is None:
        return nullcontext()
    if not isinstance(device, mx.Device):
        raise TypeError(f"cannot use a {type(device).__name__} as a device; expected a Device or None")
    return mx.stream(device)

"""The inspection API of the array API standard: types, devices, capabilities."""

from hesper import _core

_KINDS = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64",),
}
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"] + _KINDS["complex floating"]


def _check(device):
    if device is not None and not isinstance(device, _core.Device):
        raise TypeError(f"cannot inspect a device given as {type(device).__name__}; expected a Device or None")


class ArrayNamespaceInfo:
    """Types, devices and capabilities, the same on every device."""

    def capabilities(self):
        """The optional features of the standard."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self):
        """The device of new arrays."""
        return _core.default_device()

    def devices(self):
        """All devices: the CPU, then the GPUs."""
        gpus = _core.device_count(_core.gpu)
        return (_core.Device(_core.cpu, 0), *(_core.Device(_core.gpu, i) for i in range(gpus)))

    def default_dtypes(self, *, device=None):
        """The types of new arrays if none is given."""
        _check(device)
        names = {"real floating": "float32", "complex floating": "complex64", "integral": "int32", "indexing": "int32"}
        return {kind: getattr(_core, name) for kind, name in names.items()}

    def dtypes(self, *, device=None, kind=None):
        """The supported types of the standard, all of them or those of one or several kinds."""
        _check(device)
        kinds = ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        unknown = [kind for kind in kinds if kind not in _KINDS]
        if unknown:
            raise ValueError(f"cannot list types of kind {unknown[0]!r}; choose one of {', '.join(_KINDS)}")
        names = [name for kind in kinds for name in _KINDS[kind]]
        return {name: _core.bool_ if name == "bool" else getattr(_core, name) for name in names}


def __array_namespace_info__():  # noqa: N807
    """The types, devices and capabilities of this package, as the array API standard defines them.

    Examples
    --------
    >>> import hesper.core as mx
    >>> list(mx.__array_namespace_info__().dtypes(kind="real floating"))
    ['float32', 'float64']
    """
    return ArrayNamespaceInfo()

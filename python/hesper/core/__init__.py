"""Arrays, functions on them, streams and custom kernels.

The implementation is native code; this module exports its names.

Examples
--------
>>> import hesper.core as mx
>>> x = mx.array([1.0, 2.0, 3.0])
>>> (x * 2 + 1).tolist()
[3.0, 5.0, 7.0]
"""

import os as _os
import sys as _sys
from types import BuiltinFunctionType as _BuiltinFunctionType

from hesper import _core
from hesper._core import *  # noqa: F403

# The native modules of these names are re-exported by modules of this package.
for _name in ("fast", "fft", "linalg", "random"):
    globals().pop(_name, None)

from . import _reprlib, cuda, distributed, fast, fft, linalg, metal, random  # noqa: E402, F401
from ._array_api import __array_namespace_info__  # noqa: E402
from ._array_like import ArrayLike  # noqa: E402

matrix_norm = linalg.norm

# Functions are shown and pickled by the module that has them; a function of two is that of the later one here.
for _module in (metal, _sys.modules[__name__], fast, fft, linalg, random):
    for _name, _member in list(vars(_module).items()):
        if isinstance(_member, _BuiltinFunctionType) and not _name.startswith("_"):
            _member.__module__ = _module.__name__

__version__ = _core.__version__

# As in MLX, 32-bit products on GPUs use TF32 unless MLX_ENABLE_TF32=0.
_os.environ.setdefault("HESPER_TF32", "0" if _os.environ.get("MLX_ENABLE_TF32") == "0" else "1")

# Python packages may contain the CUDA libraries (PyTorch's dependencies do): search there when a GPU is first used.
_packages = [_os.path.join(_entry, "nvidia") for _entry in _sys.path]
_core._look_for_libraries_in([_folder for _folder in _packages if _os.path.isdir(_folder)])

# Only the forking thread survives in the child, and it handles signals there.
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_core._forked)

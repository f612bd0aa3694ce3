"""Run programs that were written for MLX.

``install()`` makes ``import mlx.core`` and its siblings import Hesper's modules, whether or not MLX itself is
installed::

    import hesper.mlx

    hesper.mlx.install()
    import mlx.core as mx

From the command line, ``python -m hesper.mlx script.py arguments`` does the same for a script, and
``python -m hesper.mlx -m module arguments`` for a module, ``-c code`` for a line. With ``--metal-kernels`` the default
device is presented as a GPU with Metal, so that programs use their Metal kernels.
"""

import importlib
import importlib.abc
import importlib.machinery
import multiprocessing.spawn
import os
import runpy
import sys
from types import ModuleType

__all__ = ["install", "uninstall"]

_PARTS = ("core", "nn", "optimizers", "utils")

# What MLX's package has and Hesper cannot offer, with the reason.
_MISSING = {
    "extension": "it compiles C++ against MLX's headers, which Hesper has none of; write a kernel with mx.fast.metal_kernel",
    "_distributed_utils": "it starts processes that communicate, and mx.distributed has no backend between processes yet",
}

# What `mlx.core.__version__` is: the version of MLX whose API this is. Programs compare it.
_MLX_VERSION = "0.32.4"


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Resolves imports of ``mlx`` and its submodules to Hesper's modules."""

    def __init__(self):
        self._own_specs = {}

    def find_spec(self, fullname, path=None, target=None):
        if fullname == "mlx":
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        if not fullname.startswith("mlx."):
            return None
        part = fullname.split(".")[1]
        if part in _MISSING:
            raise ModuleNotFoundError(f"cannot import {fullname}: {_MISSING[part]}", name=fullname)
        if part not in _PARTS:
            return None
        try:
            module = importlib.import_module(_own_name(fullname))
        except ModuleNotFoundError:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=hasattr(module, "__path__"))

    def create_module(self, spec):
        if spec.name == "mlx":
            return ModuleType("mlx", "Hesper under the name of MLX.")
        module = sys.modules[_own_name(spec.name)]
        self._own_specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module):
        """The module has run already; restore the spec that importing it again has replaced."""
        own = self._own_specs.pop(module.__spec__.name, None)
        if own is not None:
            module.__spec__ = own


def _own_name(name: str) -> str:
    return "hesper" + name[len("mlx") :]


_finder = _Finder()


def _forget() -> None:
    for name in [name for name in sys.modules if name == "mlx" or name.startswith("mlx.")]:
        if name == "mlx" or name.split(".")[1] in _PARTS:
            del sys.modules[name]


class _InChild:
    """Makes the process that unpickles it resolve ``mlx`` as this one does."""

    def __reduce__(self):
        return install, (_metal_kernels,)


def _preparation_data(name):
    """What a process of ``multiprocessing`` is told before it imports the main module."""
    return {**_own_preparation_data(name), "hesper.mlx": _InChild()}


_own_preparation_data = multiprocessing.spawn.get_preparation_data
_metal_kernels = False


def install(metal_kernels: bool = False) -> None:
    """Make ``import mlx.core`` and its siblings resolve to Hesper in this process, and in those of
    ``multiprocessing`` that it starts.

    Parameters
    ----------
    metal_kernels : bool
        Whether to present the default device as a GPU with Metal: ``mx.metal.is_available()`` is then true, the
        default device is ``gpu``, and programs run their Metal kernels, on an NVIDIA GPU if there is one, else on the
        host.
    """
    global _metal_kernels
    _metal_kernels = bool(metal_kernels)
    core = importlib.import_module("hesper._core")
    core._present_as_mlx(True)
    core._present_as_metal(_metal_kernels)
    # MLX's switch for all compiled functions of a program.
    if "MLX_DISABLE_COMPILE" in os.environ:
        core.disable_compile()
    if _finder not in sys.meta_path:
        _forget()
        sys.meta_path.insert(0, _finder)
    multiprocessing.spawn.get_preparation_data = _preparation_data
    # Programs may use mlx.core after a plain `import mlx`.
    package = importlib.import_module("mlx")
    package.core = importlib.import_module("mlx.core")
    package.core.__version__ = _MLX_VERSION


def uninstall() -> None:
    """Undo ``install``. Modules that were imported meanwhile stay loaded."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        _forget()
    multiprocessing.spawn.get_preparation_data = _own_preparation_data
    core = importlib.import_module("hesper._core")
    core._present_as_mlx(False)
    core._present_as_metal(False)
    importlib.import_module("hesper.core").__version__ = core.__version__


def _main(arguments: list[str]) -> None:
    usage = "usage: python -m hesper.mlx [--metal-kernels] (script.py | -m module | -c code) [arguments ...]"
    metal_kernels = False
    while arguments and arguments[0].startswith("--"):
        option = arguments.pop(0)
        if option == "--metal-kernels":
            metal_kernels = True
        elif option == "--help":
            print(usage)
            return
        else:
            sys.exit(f"cannot run with the unknown option {option}\n{usage}")
    if not arguments or (arguments[0] in ("-m", "-c") and len(arguments) < 2):
        sys.exit(usage)
    install(metal_kernels)
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        exec(compile(arguments[1], "<string>", "exec"), vars(sys.modules["__main__"]))
        return
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = arguments
    script = importlib.import_module("pathlib").Path(arguments[0])
    if not script.exists():
        sys.exit(f"cannot run {arguments[0]}: there is no such file")
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    # `python -m` runs a copy of this module: the imported one holds the state.
    from hesper.mlx import _main as _run

    _run(sys.argv[1:])

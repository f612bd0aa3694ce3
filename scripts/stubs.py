"""Generates the type stubs of ``hesper.core`` from the signatures and docstrings of the built package.

``python scripts/stubs.py`` writes them, ``python scripts/stubs.py --check`` fails if they are not current.
"""

import importlib
import inspect
import re
import sys
from enum import Enum
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "python" / "hesper" / "core"
MODULES = ("", "fast", "fft", "linalg", "random", "distributed", "metal", "cuda")

HEADER = '''# Written by scripts/stubs.py from the built package; do not edit.
'''
COMMON = """from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import ModuleType
from typing import Any, Self, final

"""

# Types of parameters by name, for those without an annotation or a typed default.
PARAMETERS = {
    "stream": "StreamOrDevice",
    "dtype": "Dtype | None",
    "axis": "int | Sequence[int] | None",
    "axes": "int | Sequence[int] | None",
    "keepdims": "bool",
    "shape": "int | Sequence[int]",
    "key": "array | None",
    "fun": "Callable[..., Any]",
    "group": "Group | None",
    "a": "array | scalar",
    "b": "array | scalar",
    "x": "array",
    "y": "array",
    "w": "array",
    "weight": "array | None",
    "bias": "array | None",
}

# The same for single functions.
OF_FUNCTION = {
    "where": {"condition": "array | scalar", "x": "array | scalar", "y": "array | scalar"},
    "clip": {"a_min": "array | scalar | None", "a_max": "array | scalar | None"},
}

# Types of results that are not arrays.
RESULTS = {
    "eval": "None",
    "async_eval": "None",
    "synchronize": "None",
    "clear_cache": "None",
    "clear_streams": "None",
    "reset_peak_memory": "None",
    "set_default_device": "None",
    "set_default_stream": "None",
    "set_printoptions": "None",
    "disable_compile": "None",
    "enable_compile": "None",
    "seed": "None",
    "save": "None",
    "savez": "None",
    "savez_compressed": "None",
    "save_safetensors": "None",
    "save_gguf": "None",
    "export_function": "None",
    "export_to_dot": "None",
    "load": "Any",
    "import_function": "Any",
    "exporter": "FunctionExporter",
    "default_device": "Device",
    "default_stream": "Stream",
    "new_stream": "Stream",
    "new_thread_unsafe_stream": "Stream",
    "new_thread_local_stream": "ThreadLocalStream",
    "stream": "StreamContext",
    "printoptions": "Any",
    "get_printoptions": "PrintOptions",
    "device_info": "dict[str, str | int]",
    "device_count": "int",
    "is_available": "bool",
    "isdtype": "bool",
    "issubdtype": "bool",
    "can_cast": "bool",
    "result_type": "Dtype",
    "broadcast_shapes": "tuple[int, ...]",
    "broadcast_arrays": "list[array]",
    "einsum_path": "tuple[list[list[int]], str]",
    "divmod": "list[array]",
    "minmax": "tuple[array, array]",
    "split": "list[array]",
    "unstack": "tuple[array, ...]",
    "meshgrid": "list[array]",
    "unique": "array | tuple[array, ...]",
    "atleast_1d": "array | list[array]",
    "atleast_2d": "array | list[array]",
    "atleast_3d": "array | list[array]",
    "depends": "array | list[array]",
    "quantize": "list[array]",
    "vjp": "tuple[list[array], list[array]]",
    "jvp": "tuple[list[array], list[array]]",
    "grad": "Callable[..., Any]",
    "value_and_grad": "Callable[..., Any]",
    "vmap": "Callable[..., Any]",
    "compile": "Callable[..., Any]",
    "checkpoint": "Callable[..., Any]",
    "metal_kernel": "Callable[..., list[array]]",
    "cuda_kernel": "Callable[..., list[array]]",
    "precompiled_cuda_kernel": "list[array]",
    "gated_delta_update": "list[array]",
    "item": "scalar",
    "tolist": "Any",
    "lu": "tuple[array, array, array]",
    "lu_factor": "tuple[array, array]",
    "qr": "tuple[array, array]",
    "svd": "array | tuple[array, array, array]",
    "eig": "tuple[array, array]",
    "eigh": "tuple[array, array]",
    "slogdet": "tuple[array, array]",
}
INTEGERS = ("memory", "limit", "peak", "buffer_size")


def annotation(given) -> str:
    """An annotation as the stub writes it: every class is known there by its last name."""
    return re.sub(r"(hesper\._?core\.(\w+\.)?|collections\.abc\.)(?=\w)", "", inspect.formatannotation(given))


def type_of(parameter: inspect.Parameter, function: str) -> str:
    if parameter.annotation is not inspect.Parameter.empty:
        return annotation(parameter.annotation)
    if parameter.name in OF_FUNCTION.get(function, {}):
        return OF_FUNCTION[function][parameter.name]
    default = parameter.default
    if parameter.name in PARAMETERS:
        kind = PARAMETERS[parameter.name]
        return f"{kind} | None" if default is None and "None" not in kind and kind != "StreamOrDevice" else kind
    if default is None or default is inspect.Parameter.empty or default is Ellipsis:
        return "Any"
    if isinstance(default, (bool, int, float, str)):
        return type(default).__name__
    return "Any"


def signature(function, method: bool = False) -> str:
    try:
        given = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return "(self, *args: Any, **kwargs: Any)" if method else "(*args: Any, **kwargs: Any)"
    parts, slash, star = [], False, False
    parameters = list(given.parameters.values())
    for place, parameter in enumerate(parameters):
        if slash and parameter.kind is not parameter.POSITIONAL_ONLY:
            parts.append("/")
            slash = False
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        if parameter.name == "self" and place == 0:
            parts.append("self")
            continue
        slash = slash or parameter.kind is parameter.POSITIONAL_ONLY
        name = parameter.name
        if parameter.kind is parameter.VAR_POSITIONAL:
            name, star = f"*{name}", True
        elif parameter.kind is parameter.VAR_KEYWORD:
            name = f"**{name}"
        text = f"{name}: {type_of(parameter, getattr(function, '__name__', ''))}"
        if parameter.default is not parameter.empty:
            plain = isinstance(parameter.default, (bool, int, float, str, list, tuple)) or parameter.default is None
            text += f" = {parameter.default!r}" if plain else " = ..."
        parts.append(text)
    if slash:
        parts.append("/")
    return f"({', '.join(parts)})"


def result(name: str, function) -> str:
    annotated = getattr(function, "__annotations__", {}).get("return")
    if annotated is not None or "return" in getattr(function, "__annotations__", {}):
        return annotation(annotated)
    if name in RESULTS:
        return RESULTS[name]
    return "int" if any(part in name for part in INTEGERS) else "array"


def documented(function, indent: str) -> str:
    text = inspect.getdoc(function)
    if not text:
        return " ..."
    lines = text.replace("\\", "\\\\").replace('"""', "'''").splitlines()
    if len(lines) == 1:
        return f'\n{indent}"""{lines[0]}"""\n{indent}...'
    body = "\n".join(f"{indent}{line}".rstrip() for line in lines[1:])
    return f'\n{indent}"""{lines[0]}\n{body}\n{indent}"""\n{indent}...'


_BINARY = "add sub mul div truediv floordiv mod pow matmul and or xor lshift rshift".split()

# Signatures of special methods; those of the class in question are written.
SPECIAL = {
    **{f"__{form}{name}__": "(self, other: Any, /) -> array" for form in ("", "r", "i") for name in _BINARY},
    **{f"__{form}pow__": "(self, other: Any, mod: Any = None, /) -> array" for form in ("", "r", "i")},
    **{f"__{name}__": "(self, other: Any, /) -> array" for name in ("lt", "le", "gt", "ge")},
    **{f"__{name}__": "(self) -> array" for name in ("neg", "pos", "abs", "invert", "copy", "next")},
    **{f"__{kind}__": f"(self) -> {kind}" for kind in ("bool", "int", "float", "complex", "bytes")},
    "__index__": "(self) -> int",
    "__hash__": "(self) -> int",
    "__len__": "(self) -> int",
    "__deepcopy__": "(self, memo: Any) -> array",
    "__getitem__": "(self, index: Any, /) -> array",
    "__setitem__": "(self, index: Any, value: Any, /) -> None",
    "__delitem__": "(self, index: Any, /) -> None",
    "__iter__": "(self) -> ArrayIterator",
    "__reversed__": "(self) -> Iterator[array]",
    "__array__": "(self, dtype: Any = None, copy: Any = None) -> Any",
    "__array_namespace__": "(self, *, api_version: str | None = None) -> ModuleType",
    "__dlpack_device__": "(self) -> tuple[int, int]",
    "__enter__": "(self) -> Any",
    "__call__": "(self, *args: Any, **kwargs: Any) -> Any",
}


def constructor(kind: type) -> list[str]:
    if "__init__" in vars(kind):
        return [f"    def __init__{signature(kind.__init__, method=True)} -> None: ..."]
    if "__new__" not in vars(kind):
        return []
    given = signature(kind)
    return [f"    def __new__(cls, {given[1:]} -> Self: ...".replace("(cls, )", "(cls)")]


def special_methods(name: str, kind: type) -> list[str]:
    own, lines = vars(kind), []
    for item in ("__eq__", "__ne__"):
        if item in own:
            gives = "array: ...  # type: ignore[override]" if name == "array" else "bool: ..."
            lines.append(f"    def {item}(self, other: object, /) -> {gives}")
    for item, form in SPECIAL.items():
        if item in own:
            # `a.at[index]` waits for the update.
            form = form.replace("-> array", "-> ArrayAt") if (name, item) == ("ArrayAt", "__getitem__") else form
            lines.append(f"    def {item}{form}: ...")
    for item in ("__dlpack__", "__exit__"):
        if item in own:
            lines.append(f"    def {item}{signature(own[item], method=True)} -> Any: ...")
    lines += [f"    {item}: Any" for item in ("__name__", "__wrapped__") if inspect.isdatadescriptor(own.get(item))]
    return lines


def class_stub(name: str, kind: type) -> str:
    if issubclass(kind, Enum):
        members = [f"    {member.name} = {member.value!r}" for member in kind]
        return "\n".join([f"class {name}(Enum):", f'    """{inspect.getdoc(kind)}"""', *members])
    # The flag says whether classes may derive from it.
    final = "" if kind.__flags__ & 1 << 10 else "@final\n"
    lines = [f"{final}class {name}:"]
    text = inspect.getdoc(kind)
    if text:
        lines.append(documented(kind, "    ").rsplit("\n", 1)[0].lstrip("\n") if "\n" in documented(kind, "    ") else "")
    lines += constructor(kind) + special_methods(name, kind)
    for item in sorted(vars(kind)):
        if item.startswith("_"):
            continue
        member = inspect.getattr_static(kind, item)
        if inspect.isgetsetdescriptor(member) or inspect.isdatadescriptor(member) or isinstance(member, property):
            lines.append("    @property")
            lines.append(f"    def {item}(self) -> {PROPERTIES.get(item, 'Any')}:" + documented(member, "        "))
        elif callable(member):
            lines.append(
                f"    def {item}{signature(getattr(kind, item), method=True)} -> {result(item, member)}:"
                + documented(member, "        ")
            )
        else:
            lines.append(f"    {item}: {name}")
    return "\n".join(lines)


PROPERTIES = {
    "T": "array",
    "mT": "array",
    "real": "array",
    "imag": "array",
    "at": "ArrayAt",
    "shape": "tuple[int, ...]",
    "dtype": "Dtype",
    "ndim": "int",
    "size": "int",
    "nbytes": "int",
    "itemsize": "int",
    "device": "Device",
    "type": "DeviceType",
    "precision": "int",
}


def stub(name: str) -> str:
    module = importlib.import_module(f"hesper.core.{name}" if name else "hesper.core")
    parts = [HEADER + COMMON]
    if name:
        parts[0] += "from . import ArrayIterator, Device, DeviceType, Dtype, Stream, StreamOrDevice, array, scalar\n"
    else:
        submodules = ", ".join(f"{part} as {part}" for part in MODULES if part and hasattr(module, part))
        parts[0] += f"from . import {submodules}\n\nscalar = bool | int | float | complex\n"
    classes, functions, values = [], [], []
    if hasattr(module, "__all__"):
        values.append(f"__all__ = {module.__all__!r}")
    for item in sorted(dir(module)):
        member = getattr(module, item)
        if inspect.ismodule(member) or (item.startswith("_") and getattr(member, "__module__", "") != module.__name__):
            continue
        if inspect.isclass(member):
            if name and getattr(module, "__all__", None) and item not in module.__all__:
                continue
            classes.append(class_stub(item, member))
        elif callable(member) and not isinstance(member, type) and hasattr(member, "__doc__") and not _is_value(member):
            functions.append(f"def {item}{signature(member)} -> {result(item, member)}:" + documented(member, "    "))
        else:
            values.append(f"{item}: {'None' if member is None else type(member).__name__}")
    if not name:
        classes.append("StreamOrDevice = Stream | ThreadLocalStream | Device | DeviceType | None")
    text = "\n\n".join([*parts, "\n".join(values), *classes, *functions])
    return text.rstrip() + "\n"


def _is_value(member) -> bool:
    return type(member).__name__ in ("Dtype", "DtypeCategory", "DeviceType", "_RandomState")


def stubs() -> dict[Path, str]:
    """The text of every stub by its path."""
    core = importlib.import_module("hesper.core")
    names = [name for name in MODULES if not name or hasattr(core, name)]
    return {PACKAGE / f"{name or '__init__'}.pyi": stub(name) for name in names}


def main() -> None:
    stale = []
    for path, text in stubs().items():
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                stale.append(path.name)
        else:
            path.write_text(text)
    if stale:
        sys.exit(f"stubs are not current: {', '.join(stale)}; run python scripts/stubs.py")


if __name__ == "__main__":
    main()

"""Compares the names and signatures of ``hesper.core`` with those of ``mlx.core``.

Run as a program it prints what differs: ``python python/tests/core/surface.py``.
"""

import inspect
import re

MODULES = ("", "fast", "linalg", "fft", "random", "distributed", "metal", "cuda")


def _split(text: str) -> list[str]:
    """The parts of a parameter list: split at commas outside of brackets and quotes."""
    parts, depth, quote, part = [], 0, "", ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        if letter == "," and depth == 0 and not quote:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return [part for part in [*parts, part.strip()] if part]


def _default(text: str) -> str:
    """One spelling for each default value."""
    text = text.strip().strip("'\"")
    try:
        return repr(float(text))
    except ValueError:
        return {"()": "[]"}.get(text, text.replace("mlx.core.", "").replace("hesper.core.", ""))


def theirs(function) -> list[list[tuple[str, str, str]]] | None:
    """The overloads of a function of MLX as lists of (kind, name, default)."""
    signatures = getattr(function, "__nb_signature__", None)
    if not signatures:
        return None
    overloads = []
    for text, _, defaults in signatures:
        text = " ".join(text.split())
        body = text[text.index("(") + 1 :]
        body = body[: body.rindex(") ->")] if ") ->" in body else body[: body.rindex(")")]
        parameters, kind = [], "both"
        for part in _split(body):
            if part == "/":
                parameters = [("positional", name, default) for _, name, default in parameters]
            elif part == "*":
                kind = "keyword"
            elif part.startswith("**"):
                parameters.append(("keywords", part[2:].split(":")[0].strip(), ""))
            elif part.startswith("*"):
                parameters.append(("rest", part[1:].split(":")[0].strip(), ""))
                kind = "keyword"
            else:
                name = part.partition("=")[0].split(":")[0].strip()
                # A type may have an equals sign in brackets; that of a default has spaces around it.
                default = part.partition(" = ")[2]
                place = re.fullmatch(r"\s*\\(\d+)\s*", default)
                if place:
                    default = repr(defaults[int(place.group(1))])
                parameters.append((kind, name, _default(default)))
        overloads.append(parameters)
    return overloads


def ours(function) -> list[tuple[str, str, str]] | None:
    """The signature of a function of Hesper in the same form."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    kinds = {
        inspect.Parameter.POSITIONAL_ONLY: "positional",
        inspect.Parameter.POSITIONAL_OR_KEYWORD: "both",
        inspect.Parameter.KEYWORD_ONLY: "keyword",
        inspect.Parameter.VAR_POSITIONAL: "rest",
        inspect.Parameter.VAR_KEYWORD: "keywords",
    }
    return [
        (
            kinds[parameter.kind],
            parameter.name,
            "" if parameter.default is inspect.Parameter.empty else _default(repr(parameter.default)),
        )
        for parameter in signature.parameters.values()
    ]


def accepts(own: list, other: list) -> bool:
    """Whether every call that the other signature allows means the same with our own.

    A parameter may be more liberal (positional or keyword instead of one of them), and extra
    parameters with defaults may follow.
    """
    if [name for kind, name, _ in other if kind == "rest"] and "rest" not in [kind for kind, *_ in own]:
        return False
    named = {name: (kind, default) for kind, name, default in own}
    place = 0
    for kind, name, default in other:
        if kind in ("rest", "keywords"):
            continue
        if kind in ("positional", "both"):
            at = [entry for entry in own if entry[0] in ("positional", "both")]
            if place >= len(at) or (kind == "both" and at[place][1] != name):
                return False
            mine = at[place]
            place += 1
            if kind == "both" and mine[0] == "positional":
                return False
            if (default == "") != (mine[2] == "") or not same(default, mine[2]):
                return False
        else:
            if name not in named or named[name][0] == "positional" or not same(default, named[name][1]):
                return False
    return True


def same(one: str, other: str) -> bool:
    """Whether two defaults are the same; ``None`` stands for the usual type where a Dtype is taken."""
    usual = ("float32", "int32", "bfloat16")
    return one == other or (one in usual and other == "None")


def names(module) -> list[str]:
    return sorted(name for name in dir(module) if not name.startswith("_"))


def differences(core, reference):
    """What is missing, and which signatures differ: (missing, differing)."""
    missing, differing = [], {}

    def compare(label, own, other, method=False):
        if inspect.ismodule(other) or inspect.isclass(other):
            return
        overloads = theirs(other)
        if overloads is None or own is None:
            return
        mine = ours(own)
        if method and mine is not None:
            mine, overloads = mine[1:], [overload[1:] for overload in overloads]
        if mine is None or not all(accepts(mine, overload) for overload in overloads):
            differing[label] = (mine, overloads)

    for name in MODULES:
        other = getattr(reference, name) if name else reference
        own = getattr(core, name, None) if name else core
        for item in names(other):
            label = f"{name}.{item}" if name else item
            if not hasattr(own, item):
                missing.append(label)
            else:
                compare(label, getattr(own, item), getattr(other, item))
    special = [name for name in dir(reference.array) if name.startswith("__") and name not in dir(object)]
    for item in [*names(reference.array), *special]:
        if not hasattr(core.array, item):
            missing.append(f"array.{item}")
        elif not item.startswith("__"):
            compare(f"array.{item}", getattr(core.array, item), getattr(reference.array, item), method=True)
    return missing, differing


if __name__ == "__main__":
    import mlx.core

    import hesper.core

    absent, changed = differences(hesper.core, mlx.core)
    print("missing:", *absent)
    for label, (mine, overloads) in changed.items():
        print(label, "\n  ours  ", mine, *("\n  theirs " + str(overload) for overload in overloads))

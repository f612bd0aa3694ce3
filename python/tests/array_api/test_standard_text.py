"""What the standard's text states, read from the package ``array-api``: arguments of functions, and special cases.

That package has a class for each function, whose documentation is the standard's description. A case is a line such as "If ``x1_i`` is
``+0`` and ``x2_i`` is less than ``0``, the result is ``-0``." It is checked for all numbers of a grid that it speaks of.
"""

import ast
import importlib.util
import inspect
import itertools
import math
import re
from pathlib import Path

import hesper.array_api as xp
import numpy as np
import pytest

GRID = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.0, -2.0, 2.5, 3.0, -3.0, 7.0, 1e20, -1e20]
PARTS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 3.7]
NUMBERS = {"NaN": math.nan, "infinity": math.inf, "π": math.pi, "True": True, "False": False}


# Lines of the text that contradict another line of it or the function's definition.
WRONG = {
    "- If ``a`` ``-infinity`` and ``b`` is a positive (i.e., greater than ``0``) finite number, the result is "
    "``NaN + NaN j``.",  # sqrt
    "- If ``a`` is ``NaN`` and ``b`` is any value, the result is ``NaN + NaN j``.",  # sqrt, with an infinite b
    "- If ``a`` is ``+infinity`` and ``b`` is a positive (i.e., greater than ``0``) finite number, the result is "
    "``+0 + infinity j``.",  # sqrt of a negative infinity
}


def text_of_the_standard():
    found = importlib.util.find_spec("array_api")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).with_name("_2024_12.py")
    return path.read_text() if path.exists() else None


def cases():
    """Name, "real" or "complex", the condition and the result of each case that can be read."""
    for part in re.split(r"\n@runtime_checkable\n", text_of_the_standard() or ""):
        name, text = re.match(r"(?:class (\w+))?", part)[1], re.search(r'"""(.*?)"""', part, re.S)
        if not name or not text or "element" not in text[1] or not hasattr(xp, name):
            continue
        kind = "real"
        for line in text[1].split("\n"):
            line = line.strip()
            if line.startswith("For ") and "operand" in line:
                kind = "complex" if "complex" in line else "real"
            case = re.match(r"- +If (.*?), (the result (?:is|has) .*)", line)
            variables = set(re.findall(r"``(?:abs\()?(\w+)\)?`` (?:is|or|and|equals|does|have|either)", case[1])) if case else {""}
            if case and kind == "complex" and name in ("add", "divide", "equal", "multiply", "not_equal"):
                continue  # Of two numbers with four parts.
            if case and variables and variables <= ({"x_i", "x1_i", "x2_i"} if kind == "real" else {"a", "b"}) and case[0] not in WRONG:
                yield name, kind, case[1], case[2]


def is_value(text, x):
    """Whether ``x`` is what a text such as "a finite number" or "either ``+0`` or ``-0``" says; ``None`` for open texts."""
    text = text.strip()
    kinds = {
        "a finite number": math.isfinite(x),
        "a nonzero finite number": math.isfinite(x) and x != 0,
        "a nonzero number": x != 0,
        "a positive finite number": math.isfinite(x) and x > 0,
        "a negative finite number": math.isfinite(x) and x < 0,
        "any value": True,
        "an odd integer value": math.isfinite(x) and x % 2 == 1,
        "not an odd integer value": not (math.isfinite(x) and x % 2 == 1),
        "not an integer value": not (math.isfinite(x) and x == int(x)),
        "already integer-valued": math.isfinite(x) and x == int(x),
    }
    if text in kinds:
        return kinds[text]
    if text.startswith("either ") or re.fullmatch(r"\S.* or \S.*", text):
        return any(is_value(part, x) for part in text.removeprefix("either ").split(" or "))
    for start, holds in [("greater than ", lambda y: x > y), ("less than ", lambda y: x < y), ("not equal to ", lambda y: x != y)]:
        if text.startswith(start):
            return holds(number(text[len(start) :].strip("`")))
    if text.startswith("not ``"):
        return not is_value(text[4:], x)
    wanted = number(text.strip("`"))
    return math.isnan(x) if math.isnan(wanted) else x == wanted and (x != 0 or math.copysign(1, x) == math.copysign(1, wanted))


def number(text):
    """A real number in the standard's spelling, as ``+infinity`` or ``3π/4``."""
    sign = -1 if text.startswith("-") else 1
    text = text.lstrip("+-±")
    factor, _, divisor = text.partition("/")
    if factor.endswith("π"):
        return sign * math.pi * float(factor[:-1] or 1) / float(divisor or 1)
    return sign * (NUMBERS[text] if text in NUMBERS else float(text))


def condition(text, values):
    """Whether a condition holds for variables with these values."""
    text = re.sub(r" \((?:i\.e\.|including)[^)]*\)|, including ``NaN``", "", text)
    if text.startswith("two integers are equally close"):
        return values["x_i"] % 1 == 0.5
    same = re.match(r"``(\w+)`` and ``(\w+)`` have (?:the same|(different)) mathematical signs?( and are both nonzero finite)?", text)
    if same:
        x, y = values[same[1]], values[same[2]]
        if math.isnan(x) or math.isnan(y) or same[4] and not (math.isfinite(x * y) and x * y):
            return False
        return (math.copysign(1, x) == math.copysign(1, y)) == (same[3] is None)
    either = re.fullmatch(r"(?:either )?``(\w+)`` or ``(\w+)`` is (.*)", text)
    if either:
        return is_value(either[3], values[either[1]]) or is_value(either[3], values[either[2]])
    either = re.fullmatch(r"(``\w+`` is .*) or (``\w+`` is .*)", text)
    if either:
        return any(condition(one, values) for one in either.groups())
    for clause in re.split(r",? and (?=``|the sign)|, ", text):
        bit = re.fullmatch(r"the sign bit of ``(\w+)`` is ``(\d)``", clause)
        equal = re.fullmatch(r"``(\w+)`` (equals|does not equal) ``(\w+)``", clause)
        plain = re.fullmatch(r"``(?:abs\()?(\w+)\)?`` (?:is )?(.*)", clause)
        if bit:
            holds = (math.copysign(1, values[bit[1]]) < 0) == (bit[2] == "1")
        elif opposite := re.fullmatch(r"``(\w+)`` is ``-(\w+_i)``", clause):
            holds = values[opposite[1]] == -values[opposite[2]]
        elif equal:
            holds = (values[equal[1]] == values[equal[3]]) == (equal[2] == "equals")
        else:
            x = values[plain[1]]
            holds = is_value(plain[2], abs(x) if clause.startswith("``abs(") else x)
        if not holds:
            return False
    return True


def same(x, wanted, signless=False):
    if math.isnan(wanted):
        return math.isnan(x)
    if wanted == 0 or math.isinf(wanted) or wanted == 1:
        return (abs(x) == abs(wanted)) if signless else x == wanted and math.copysign(1, x) == math.copysign(1, wanted)
    return math.isclose(abs(x) if signless else x, abs(wanted) if signless else wanted, rel_tol=1e-6)


def holds_real(text, x, values):
    text = text.replace("an implementation-dependent approximation to ", "").replace("``", "`")
    if "even integer closest" in text:
        return x == round(values["x_i"])
    sign = re.match(r"the result has a (positive|negative) mathematical sign", text)
    if sign:
        return math.isnan(x) or (math.copysign(1, x) > 0) == (sign[1] == "positive")
    if "signed infinity" in text:
        return math.isinf(x)
    wanted = re.match(r"the result is (?:equal to |equivalent to )?`([^`]*)`", text)[1]
    allowed = re.search(r"libraries may return `([^`]*)`", text)
    if allowed and same(x, number(allowed[1])):
        return True
    if wanted in values:
        return same(x, values[wanted])
    size = re.fullmatch(r"(-?)(?:\||abs\()(\w+)(?:\||\))", wanted)
    if size:
        return same(x, -abs(values[size[2]]) if size[1] else abs(values[size[2]]))
    bit = re.search(r"with a sign bit of `(\d)`", text)
    if bit and (math.copysign(1, x) < 0) != (bit[1] == "1"):
        return False
    # The sign of a zero is open where it is not written.
    return same(x, number(wanted), signless=wanted == "0")


def holds_complex(text, z, values):
    wanted = re.match(r"the result is (?:equal to )?``([^`]*)``", text)[1]
    size = re.fullmatch(r"abs\((\w+)\)", wanted)
    if size:
        return same(z.real, abs(values[size[1]]))
    # A zero without a sign may have either.
    real_open = wanted.startswith(("±", "0 ")) or "real" in text.partition("(")[2]
    imag_open = "±" in wanted[1:] or "imaginary" in text.partition("(")[2]
    cis = re.fullmatch(r"(\+\w+) \* cis\(b\)( - 1.0)?", wanted)
    if cis:
        factor, b = number(cis[1]), values["b"]
        wanted = complex(factor * math.cos(b), factor * math.sin(b)) if b else complex(factor, b)
        if cis[2]:
            wanted = complex(wanted.real - 1, wanted.imag)
        if math.isnan(wanted.real) or math.isnan(wanted.imag):
            return True
        return same(z.real, wanted.real) and same(z.imag, wanted.imag)
    if not wanted.endswith("j") and "j/" not in wanted:
        return same(z.real, number(wanted))
    re_text, sign, im_text = re.fullmatch(r"(\S+) ([+±-]) (.*)", wanted).groups()
    im = number(im_text.replace(" ", "").replace("j", "") or "1")
    im = -im if sign == "-" else im
    return same(z.real, number(re_text), real_open) and same(z.imag, im, imag_open)


def signatures():
    """The name of each function and the signature that the text gives it."""
    for part in re.split(r"\n@runtime_checkable\n", text_of_the_standard() or ""):
        name, call = re.match(r"(?:class (\w+))?", part)[1], re.search(r"def __call__\((self.*)\) -> .*: \.\.\.\n", part)
        if not name or not call:
            continue
        arguments = ast.parse(f"def function({call[1]}): ...").body[0].args
        for argument in ast.walk(arguments):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        names = {"inf": math.inf}
        exec(f"def function({ast.unparse(arguments)}): ...", names)
        _, *parameters = inspect.signature(names["function"]).parameters.values()
        yield name, inspect.Signature(parameters)


def function_of_the_namespace(name):
    places = [place for place in (xp, xp.linalg, xp.fft) if callable(getattr(place, name, None))]
    return getattr(places[0], name) if places else None


def calls(signature):
    """Names and numbers of positional arguments, and names of keywords, of each way to call a function."""
    parameters = list(signature.parameters.values())
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    required = [one.name for one in parameters if one.default is one.empty and one.kind is one.KEYWORD_ONLY]
    optional = [one.name for one in parameters if one.default is not one.empty and one.kind is one.KEYWORD_ONLY]
    for count in range(len(positional) + 1):
        rest = positional[count:]
        if any(one.kind is one.POSITIONAL_ONLY and one.default is one.empty for one in rest):
            continue
        needed = [one.name for one in rest if one.default is one.empty]
        named = [one.name for one in rest if one.default is not one.empty and one.kind is not one.POSITIONAL_ONLY]
        yield count, required + needed
        yield count, required + needed + named + optional


CASES = list(cases())
SIGNATURES = list(signatures())


@pytest.mark.skipif(not SIGNATURES, reason="array-api, which has the text of the standard, is not installed")
def test_the_signatures_are_read():
    names = {name for name, _ in SIGNATURES}
    assert len(names) > 160 and names >= {"add", "arange", "astype", "expand_dims", "irfftn", "isdtype", "svd", "unique_all"}


@pytest.mark.parametrize("name, signature", SIGNATURES, ids=[name for name, _ in SIGNATURES])
def test_a_function_takes_every_call_of_the_text(name, signature):
    function = function_of_the_namespace(name)
    assert function is not None, f"{name} is missing"
    own = inspect.signature(function)
    for count, named in calls(signature):
        try:
            bound = own.bind(*range(count), **dict.fromkeys(named))
        except TypeError as error:
            raise AssertionError(f"{name}{own} refuses {count} positional arguments and {named}: {error}") from None
        if not any(one.kind is one.VAR_POSITIONAL for one in signature.parameters.values()):
            # Each positional argument has the meaning that the text gives to its place.
            expected = list(signature.parameters)[:count]
            assert [one for one in bound.arguments if one not in named] == expected, name
    for parameter in signature.parameters.values():
        if parameter.default is not parameter.empty:
            assert own.parameters[parameter.name].default == parameter.default, (name, parameter.name)


@pytest.mark.skipif(not CASES, reason="array-api, which has the text of the standard, is not installed")
def test_the_text_is_read():
    assert len(CASES) > 360 and {name for name, *_ in CASES} >= {"abs", "atan2", "exp", "pow", "tanh", "sqrt"}


@pytest.mark.parametrize("name", sorted({name for name, kind, *_ in CASES if kind == "real"}))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_real_special_cases(name, dtype):
    own = [case for case in CASES if case[:2] == (name, "real")]
    pairs = any(re.search("x[12]_i", text) for *_, text, _ in own)
    grid = list(itertools.product(GRID, GRID)) if pairs else [(x,) for x in GRID]
    arrays = [xp.asarray(list(column), dtype=getattr(xp, dtype)) for column in zip(*grid)]
    results = np.from_dlpack(getattr(xp, name)(*arrays)).tolist()
    checked, wrong = 0, []
    for values, x in zip(zip(*[np.from_dlpack(a).tolist() for a in arrays]), results):
        values = dict(zip(["x1_i", "x2_i"] if pairs else ["x_i"], values))
        for _, _, text, result in own:
            if condition(text, values):
                checked += 1
                if not holds_real(result, x, values):
                    wrong.append((text, result, values, x))
    assert checked and not wrong, wrong[:5]


@pytest.mark.parametrize("name", sorted({name for name, kind, *_ in CASES if kind == "complex"}))
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_special_cases(name, dtype):
    own = [case for case in CASES if case[:2] == (name, "complex")]
    grid = list(itertools.product(PARTS, PARTS))
    z = np.array([complex(*parts) for parts in grid], dtype)
    results = np.from_dlpack(getattr(xp, name)(xp.asarray(z))).tolist()
    checked, wrong = 0, []
    for at, result in zip(z.tolist(), results):
        values = {"a": at.real, "b": at.imag}
        for _, _, text, wanted in own:
            if re.search(r"``[cd]``", text) or not condition(text, values):
                continue
            checked += 1
            if not holds_complex(wanted, complex(result), values):
                wrong.append((text, wanted, at, result))
    assert checked and not wrong, wrong[:5]

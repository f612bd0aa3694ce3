"""Trees of arguments and results through transformations, against the reference."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import hesper.core as mx
import hesper.nn as nn

Pair = namedtuple("Pair", "a b")


class Items(list):
    pass


class Fields(dict):
    pass


class Fixed(tuple):
    pass


class Twins(tuple):
    """Takes its items one by one, as a named tuple does."""

    _fields = ("a", "b")

    def __new__(cls, a, b):
        return tuple.__new__(cls, (a, b))


def reported(core, value):
    """A tree of arrays as plain Python, with the types of its containers."""
    if isinstance(value, core.array):
        return repr(value.dtype).split(".")[-1], tuple(value.shape), np.array(value).tolist()
    if isinstance(value, dict):
        return type(value).__name__, [(key, reported(core, one)) for key, one in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [reported(core, one) for one in value]
    return value


def outcome(core, program):
    try:
        return reported(core, program(core))
    except Exception as error:
        return type(error).__name__


def pair(core):
    return Pair(core.array([1.0, 2.0]), core.array([3.0, 4.0]))


def changed(core, make, change, transform="grad"):
    """The gradient of a function that changes its argument, and the argument afterwards."""
    argument = make(core)
    gradient = getattr(core, transform)(change)(argument)
    return gradient, argument


def stored(items):
    items[0] = items[0] * 3
    return items[0] * items[1]


def in_place(items):
    items[0] += 1
    return items[0].sum() * items[1]


def put(items):
    items[0][0] = 5
    return items[0].sum() * items[1]


def deep(tree):
    tree["x"][0]["a"] = tree["x"][0]["a"] * 3
    return tree["x"][0]["a"]


def seen_types(core, kind, transform):
    kinds = []

    def f(tree):
        kinds.append(type(tree).__name__)
        a, b = (tree["a"], tree["b"]) if isinstance(tree, dict) else (tree[0], tree[1])
        return (a * b).sum() if transform == "grad" else tree

    values = core.array([1.0, 2.0]), core.array([3.0, 4.0])
    if issubclass(kind, dict):
        tree = kind(a=values[0], b=values[1])
    else:
        tree = kind(*values) if kind in (Pair, Twins) else kind(values)
    return getattr(core, transform)(f)(tree), kinds


def two(core, count=2):
    return [core.array(float(at + 1)) for at in range(count)]


ROWS = {
    "a named tuple through grad": lambda c: c.grad(lambda p: (p.a * p.b).sum())(pair(c)),
    "a named tuple through value_and_grad": lambda c: c.value_and_grad(lambda p: ((p.a * p.b).sum(), p))(pair(c)),
    "a named tuple through vmap": lambda c: c.vmap(lambda p: Pair(p.a * 2, p.b))(pair(c)),
    "a named tuple through compile": lambda c: c.compile(lambda p: {"x": [Pair(p.a * 2, p.b), 3]})(pair(c)),
    "a named tuple through checkpoint": lambda c: c.checkpoint(lambda p: Pair(p.a * 2, p.b))(pair(c)),
    "a named tuple through a custom function": lambda c: c.custom_function(lambda p: Pair(p.a, p.b))(pair(c)),
    "an entry that is replaced": lambda c: changed(c, two, stored),
    "an entry that is replaced, with the value": lambda c: changed(c, two, stored, "value_and_grad"),
    "an entry changed in place": lambda c: changed(c, lambda c: [c.array([1.0, 2.0]), c.array(2.0)], in_place),
    "elements of an entry": lambda c: changed(c, lambda c: [c.array([1.0, 2.0]), c.array(2.0)], put),
    "an entry of an inner container": lambda c: changed(c, lambda c: {"x": [{"a": c.array(1.0)}]}, deep),
    "an entry of a custom function's argument": lambda c: changed(c, two, stored, "custom_function"),
    "axes of an only argument": lambda c: c.vmap(lambda d: d["a"] + d["b"], in_axes={"a": 0, "b": None})(
        {"a": c.array([1.0, 2.0]), "b": c.array(1.0)}
    ),
    "axes of an only argument in a tuple": lambda c: c.vmap(lambda d: d["a"], in_axes=({"a": 0},))(
        {"a": c.array([1.0])}
    ),
    "an axis in a tuple": lambda c: c.vmap(lambda x: x, in_axes=(1,), out_axes=(1,))(c.ones((2, 3))),
    "axes of a tuple": lambda c: c.vmap(lambda p: p[0] + p[1], in_axes=(0, 1))((c.ones((2, 3)), c.ones((3, 2)))),
    "a list of axes": lambda c: c.vmap(lambda a, b: a + b, in_axes=[0, 0])(c.ones(2), c.ones(2)),
    "too many axes in a dict": lambda c: c.vmap(lambda a, b: a, in_axes=(0, {"x": None, "y": 0}))(
        c.ones(2), {"x": c.array(1.0)}
    ),
    "no axes": lambda c: c.vmap(lambda a: a, in_axes=None),
    "no axes of results": lambda c: c.vmap(lambda a: a, out_axes=None),
    "a result without a place": lambda c: c.vmap(lambda a: (a, a), out_axes=(None, 0))(c.ones((2,))),
    "a constant result without a place": lambda c: c.vmap(
        lambda a, b: (a * 2, b), in_axes=(0, None), out_axes=(0, None)
    )(c.ones((2, 3)), c.ones(4)),
    "axes of nested results": lambda c: c.vmap(lambda a: (a, {"x": a * 2}), out_axes=(0, {"x": 1}))(c.ones((2, 3))),
    "arguments by unordered numbers": lambda c: c.grad(lambda x, y: x * y, argnums=[1, 0])(c.array(1.0), c.array(2.0)),
    "an argument named twice": lambda c: c.grad(lambda x, y: x * y, argnames=["y", "y"])(c.array(1.0), y=c.array(2.0)),
    "names that are None": lambda c: c.grad(lambda x: x, argnames=None),
    "a number that is True": lambda c: c.grad(lambda x, y: x * y, argnums=True)(c.array(1.0), c.array(2.0)),
    "fewer cotangents than outputs": lambda c: c.vjp(
        lambda x: (x * 2, c.stop_gradient(x)), [c.array(1.0)], [c.array(1.0)]
    ),
    "a comparison's tangent": lambda c: c.jvp(lambda x: x > 2, [c.array(1.0)], [c.array(2.5)]),
    "async_eval in grad": lambda c: c.grad(lambda x: c.async_eval(x * 2) or x)(c.array(1.0)),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_program_has_the_outcome_of_the_reference(mlx, name):
    assert outcome(mx, ROWS[name]) == outcome(mlx, ROWS[name])


@pytest.mark.parametrize("kind", [list, tuple, dict, Pair, Items, Fields, Fixed, Twins, OrderedDict])
@pytest.mark.parametrize("transform", ["grad", "vmap", "compile", "checkpoint", "custom_function"])
def test_containers_have_the_types_of_the_reference(mlx, kind, transform):
    assert outcome(mx, lambda c: seen_types(c, kind, transform)) == outcome(
        mlx, lambda c: seen_types(c, kind, transform)
    )


def test_a_differentiated_function_gets_its_own_objects():
    items, seen = {"x": [mx.array(1.0)]}, []

    def f(argument):
        seen.append((argument is items, argument["x"] is items["x"]))
        return argument["x"][0] * 2

    kept = items["x"][0]
    mx.grad(f)(items)
    assert seen == [(True, True)]
    assert items["x"][0] is kept and kept.item() == 1.0


def test_entries_that_stay_keep_their_identity():
    items = two(mx)
    stays = items[1]
    mx.grad(stored)(items)
    assert items[1] is stays and items[0].item() == 3.0
    moved = two(mx)
    first, second = moved

    def swap(items):
        items[0], items[1] = items[1], items[0]
        return items[0] * items[1]

    mx.grad(swap)(moved)
    assert moved[0] is second and moved[1] is first


def test_an_error_leaves_the_original_arrays():
    items = [mx.array(1.0), (mx.array(2.0),)]
    before = items[0], items[1]

    def f(items):
        raise KeyError("stop")

    with pytest.raises(KeyError):
        mx.grad(f)(items)
    assert items[0] is before[0] and items[1] is before[1]


def test_items_that_a_function_adds_and_removes_are_seen():
    items = two(mx)

    def f(items):
        items.append(items[0] * 5)
        return items[0] * items.pop(1)

    gradient = mx.grad(f)(items)
    assert [one.item() for one in gradient] == [2.0, 1.0]
    assert [one.item() for one in items] == [1.0, 5.0]


def test_other_arguments_are_not_changed_in_place():
    x, inner, by_name = mx.array([1.0, 2.0]), (mx.array([1.0, 2.0]),), mx.array([1.0, 2.0])

    def f(y, x, inner, by_name):
        x[0], inner[0][0], by_name[0] = y, y, y
        return x.sum() + inner[0].sum() + by_name.sum()

    assert mx.grad(f)(mx.array(7.0), x, inner, by_name=by_name).item() == 3.0
    for array in (x, inner[0], by_name):
        assert array.tolist() == [1.0, 2.0]


def test_a_module_in_a_tree_is_called_as_a_module():
    layer = nn.Linear(2, 3)
    gradient = mx.grad(lambda tree: tree["layer"](mx.ones((2,))).sum())({"layer": layer})
    assert type(gradient["layer"]) is dict
    assert gradient["layer"]["bias"].tolist() == [1.0, 1.0, 1.0]
    assert isinstance(layer.weight, mx.array) and layer.weight.shape == (3, 2)


def test_a_custom_function_is_what_its_rules_return():
    @mx.custom_function
    def f(x, y):
        return x * y

    whole = f

    @f.vjp
    def f(primals, cotangent, output):
        return cotangent * primals[1] * 10, cotangent * primals[0] * 10

    assert f is whole and f.jvp(lambda p, t: t[0]) is f and f.vmap(lambda p, a: (p[0], 0)) is f
    assert [one.item() for one in mx.grad(f, argnums=(0, 1))(mx.array(2.0), mx.array(3.0))] == [30.0, 20.0]


def test_a_rule_may_leave_cotangents_out():
    @mx.custom_function
    def f(x, y, k):
        return x * y * k

    @f.vjp
    def rule(primals, cotangent, output, k):
        return cotangent * primals[1], None

    call = lambda x, y, k: f(x, y, k=k)  # noqa: E731
    given = mx.array(2.0), mx.array(3.0), mx.array(5.0)
    assert [one.item() for one in mx.grad(call, argnums=(0, 1, 2))(*given)] == [3.0, 0.0, 0.0]
    f.vjp(lambda primals, cotangent, output, k: [cotangent] * 4)
    with pytest.raises(ValueError, match="4 cotangents for 3 primals"):
        mx.grad(call)(*given)


@pytest.mark.parametrize("transform", ["grad", "value_and_grad", "vmap", "compile", "checkpoint"])
def test_a_transformed_function_is_documented_as_the_function(transform):
    import inspect

    def scaled(x, k=2, *, shift=0):
        """Scales."""
        return x * k + shift

    made = getattr(mx, transform)(scaled)
    assert (made.__name__, made.__qualname__) == (scaled.__name__, scaled.__qualname__)
    assert (made.__doc__, made.__module__) == ("Scales.", __name__)
    assert inspect.signature(made) == inspect.signature(scaled)
    assert made.__wrapped__ is scaled
